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
from autograder.checks.bubbles import bubble_fraction
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
from autograder.checks.differentiable_collectives import (
    copy_to_ranks,
    gather_from_ranks,
    reduce_from_ranks,
    scatter_to_ranks,
)
from autograder.checks.fully_sharded import fully_sharded_data_parallel
from autograder.checks.hardware_hierarchy import (
    attainable_flops,
    matmul_intensity,
    measure_copy_bandwidth,
    transfer_seconds,
)
from autograder.checks.less_communication import local_sgd_round, top_k_compressor
from autograder.checks.pipeline_parallelism import run_pipeline
from autograder.checks.pipeline_schedules import (
    assign_layers,
    gpipe_schedule,
    interleaved_schedule,
    one_f_one_b_schedule,
)
from autograder.checks.sharded_gradients import sharded_gradients
from autograder.checks.sharded_optimizers import sharded_optimizer, training_bytes
from autograder.checks.split_backward import split_backward_linear
from autograder.checks.tensor_parallelism import (
    all_gather_mlp,
    column_parallel_linear,
    parallel_attention,
    parallel_mlp,
    row_parallel_linear,
    sequence_parallel_mlp,
)
from autograder.checks.topology_listings import parse_topology
from autograder.checks.vocabulary_parallelism import vocab_parallel_cross_entropy

__all__ = [
    "accumulate",
    "algbw",
    "all_gather_mlp",
    "all_to_all",
    "assign_layers",
    "attainable_flops",
    "average_gradients",
    "benchmark",
    "broadcast",
    "bubble_fraction",
    "bucketed_distributed_data_parallel",
    "busbw",
    "column_parallel_linear",
    "copy_to_ranks",
    "corrected_reduce_scatter_busbw",
    "crossover_bytes",
    "distributed_data_parallel",
    "exchange",
    "fit_alpha_beta",
    "fully_sharded_data_parallel",
    "gather",
    "gather_from_ranks",
    "gpipe_schedule",
    "interleaved_schedule",
    "load_checkpoint",
    "local_sgd_round",
    "matmul_intensity",
    "measure_copy_bandwidth",
    "one_f_one_b_schedule",
    "parallel_attention",
    "parallel_mlp",
    "parse_topology",
    "reduce",
    "reduce_from_ranks",
    "ring_all_gather",
    "ring_all_reduce",
    "ring_reduce_scatter",
    "row_parallel_linear",
    "run_pipeline",
    "save_checkpoint",
    "scatter",
    "scatter_to_ranks",
    "sequence_parallel_mlp",
    "shard_batch",
    "sharded_gradients",
    "sharded_optimizer",
    "split_backward_linear",
    "top_k_compressor",
    "training_bytes",
    "transfer_seconds",
    "vocab_parallel_cross_entropy",
]
