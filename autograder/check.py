"""All checks under one name, for test cells: `from autograder import check; check.broadcast(broadcast)`."""

from autograder.checks.bandwidths import (
    algbw,
    busbw,
    corrected_reduce_scatter_busbw,
    crossover_bytes,
    fit_alpha_beta,
)
from autograder.checks.benchmarking import benchmark
from autograder.checks.collectives import (
    all_to_all,
    broadcast,
    exchange,
    gather,
    reduce,
    ring_all_gather,
    ring_all_reduce,
    ring_reduce_scatter,
    scatter,
)

__all__ = [
    "algbw",
    "all_to_all",
    "benchmark",
    "broadcast",
    "busbw",
    "corrected_reduce_scatter_busbw",
    "crossover_bytes",
    "exchange",
    "fit_alpha_beta",
    "gather",
    "reduce",
    "ring_all_gather",
    "ring_all_reduce",
    "ring_reduce_scatter",
    "scatter",
]
