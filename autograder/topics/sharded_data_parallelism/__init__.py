"""Topic 05: data parallelism with sharded optimizers, gradients and parameters."""

from autograder.topics.sharded_data_parallelism.fully_sharded import (
    fully_sharded_data_parallel,
    prefetching_fully_sharded_data_parallel,
    sharded_module,
)
from autograder.topics.sharded_data_parallelism.sharded_gradients import sharded_gradients
from autograder.topics.sharded_data_parallelism.sharded_optimizers import sharded_optimizer, training_bytes
from autograder.topics.sharded_data_parallelism.sharded_parameters import sharded_parameter
