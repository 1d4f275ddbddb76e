"""Topic 07: schedules and training of pipelines."""

from autograder.topics.pipeline_parallelism.bubbles import bubble_fraction
from autograder.topics.pipeline_parallelism.checks import run_pipeline
from autograder.topics.pipeline_parallelism.schedules import (
    assign_layers,
    gpipe_schedule,
    interleaved_schedule,
    one_f_one_b_schedule,
)
from autograder.topics.pipeline_parallelism.split_backward import split_backward_linear
