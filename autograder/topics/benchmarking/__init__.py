"""Topic 03: benchmarks of collectives, and the alpha-beta model."""

from autograder.topics.benchmarking.bandwidths import (
    algbw,
    busbw,
    corrected_reduce_scatter_busbw,
    crossover_bytes,
    fit_alpha_beta,
)
from autograder.topics.benchmarking.checks import benchmark
from autograder.topics.benchmarking.investigations import audit, measure_cluster
