"""All checks under one name, for test cells: `from autograder import check; check.broadcast(broadcast)`."""

from autograder.checks.bandwidths import (
    algbw,
    busbw,
    corrected_reduce_scatter_busbw,
    crossover_bytes,
    fit_alpha_beta,
)
from autograder.checks.batches import accumulate, shard_batch
from autograder.checks.benchmarking import benchmark
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
from autograder.checks.data_parallelism import (
    average_gradients,
    bucketed_distributed_data_parallel,
    distributed_data_parallel,
)
from autograder.checks.fully_sharded import fully_sharded_data_parallel
from autograder.checks.hardware_hierarchy import (
    attainable_flops,
    matmul_intensity,
    measure_copy_bandwidth,
    transfer_seconds,
)
from autograder.checks.less_communication import local_sgd_round, top_k_compressor
from autograder.checks.sharded_gradients import sharded_gradients
from autograder.checks.sharded_optimizers import sharded_optimizer, training_bytes
from autograder.checks.topology_listings import parse_topology

__all__ = [
    "accumulate",
    "algbw",
    "all_to_all",
    "attainable_flops",
    "average_gradients",
    "benchmark",
    "broadcast",
    "bucketed_distributed_data_parallel",
    "busbw",
    "corrected_reduce_scatter_busbw",
    "crossover_bytes",
    "distributed_data_parallel",
    "exchange",
    "fit_alpha_beta",
    "fully_sharded_data_parallel",
    "gather",
    "load_checkpoint",
    "local_sgd_round",
    "matmul_intensity",
    "measure_copy_bandwidth",
    "parse_topology",
    "reduce",
    "ring_all_gather",
    "ring_all_reduce",
    "ring_reduce_scatter",
    "save_checkpoint",
    "scatter",
    "shard_batch",
    "sharded_gradients",
    "sharded_optimizer",
    "top_k_compressor",
    "training_bytes",
    "transfer_seconds",
]
