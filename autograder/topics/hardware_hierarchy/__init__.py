"""Topic 01: estimates of time and traffic, and the links of a machine."""

from autograder.topics.hardware_hierarchy.checks import (
    attainable_flops,
    matmul_intensity,
    measure_copy_bandwidth,
    transfer_seconds,
)
from autograder.topics.hardware_hierarchy.topology_listings import parse_topology
