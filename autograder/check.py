"""All checks under one name, for test cells: `from autograder import check; check.broadcast(broadcast)`."""

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
from autograder.checks.hardware_hierarchy import (
    attainable_flops,
    matmul_intensity,
    measure_copy_bandwidth,
    transfer_seconds,
)
from autograder.checks.topology_listings import parse_topology

__all__ = [
    "all_to_all",
    "attainable_flops",
    "broadcast",
    "exchange",
    "gather",
    "matmul_intensity",
    "measure_copy_bandwidth",
    "parse_topology",
    "reduce",
    "ring_all_gather",
    "ring_all_reduce",
    "ring_reduce_scatter",
    "scatter",
    "transfer_seconds",
]
