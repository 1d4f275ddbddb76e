"""Topic 06: layers and losses cut across ranks."""

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
