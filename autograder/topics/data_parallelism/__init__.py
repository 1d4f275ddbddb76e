"""Topic 04: data parallelism, checkpoints, and training with less communication."""

from autograder.topics.data_parallelism.batches import accumulate, shard_batch
from autograder.topics.data_parallelism.checkpoints import load_checkpoint, save_checkpoint
from autograder.topics.data_parallelism.checks import (
    average_gradients,
    bucketed_distributed_data_parallel,
    distributed_data_parallel,
)
from autograder.topics.data_parallelism.less_communication import local_sgd_round, top_k_compressor
