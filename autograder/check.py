"""All checks under one name, for test cells: `from autograder import check; check.broadcast(broadcast)`."""

from autograder.topics.benchmarking.bandwidths import (
    algbw,
    busbw,
    corrected_reduce_scatter_busbw,
    crossover_bytes,
    fit_alpha_beta,
)
from autograder.topics.benchmarking.checks import benchmark
from autograder.topics.collectives.checks import (
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
from autograder.topics.data_parallelism.batches import accumulate, shard_batch
from autograder.topics.data_parallelism.checkpoints import load_checkpoint, save_checkpoint
from autograder.topics.data_parallelism.checks import (
    average_gradients,
    bucketed_distributed_data_parallel,
    distributed_data_parallel,
)
from autograder.topics.data_parallelism.less_communication import local_sgd_round, top_k_compressor
from autograder.topics.hardware_hierarchy.checks import (
    attainable_flops,
    matmul_intensity,
    measure_copy_bandwidth,
    transfer_seconds,
)
from autograder.topics.hardware_hierarchy.topology_listings import parse_topology
from autograder.topics.pipeline_parallelism.bubbles import bubble_fraction
from autograder.topics.pipeline_parallelism.checks import run_pipeline
from autograder.topics.pipeline_parallelism.schedules import (
    assign_layers,
    gpipe_schedule,
    interleaved_schedule,
    one_f_one_b_schedule,
)
from autograder.topics.pipeline_parallelism.split_backward import split_backward_linear
from autograder.topics.sharded_data_parallelism.fully_sharded import fully_sharded_data_parallel
from autograder.topics.sharded_data_parallelism.sharded_gradients import sharded_gradients
from autograder.topics.sharded_data_parallelism.sharded_optimizers import sharded_optimizer, training_bytes
from autograder.topics.tensor_parallelism.checks import (
    all_gather_mlp,
    column_parallel_linear,
    parallel_attention,
    parallel_mlp,
    row_parallel_linear,
    sequence_parallel_mlp,
)
from autograder.topics.tensor_parallelism.differentiable_collectives import (
    copy_to_ranks,
    gather_from_ranks,
    reduce_from_ranks,
    scatter_to_ranks,
)
from autograder.topics.tensor_parallelism.vocabulary_parallelism import vocab_parallel_cross_entropy

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
