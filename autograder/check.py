"""All checks under one name, for test cells: `from autograder import check; check.broadcast(broadcast)`."""

from autograder.checks.checkpoints import load_checkpoint, save_checkpoint
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
from autograder.checks.less_communication import local_sgd_round, top_k_compressor

__all__ = [
    "all_to_all",
    "broadcast",
    "exchange",
    "gather",
    "load_checkpoint",
    "local_sgd_round",
    "reduce",
    "ring_all_gather",
    "ring_all_reduce",
    "ring_reduce_scatter",
    "save_checkpoint",
    "scatter",
    "top_k_compressor",
]
