"""Topic 02: collectives made of messages between two ranks."""

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
