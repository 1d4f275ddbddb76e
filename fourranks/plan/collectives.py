"""Seconds that collectives take: rings, pipelined trees, and rings over several nodes that share the cards.

S is the whole tensor in bytes throughout: the input of a rank for an all-reduce or reduce-scatter, its
output of an all-gather.
"""

from __future__ import annotations

import math

from .cluster import Cluster

NVLINK_LATENCY, NETWORK_LATENCY = 3e-6, 10e-6  # seconds a message


def rounds(ranks: int) -> int:
    """Return the rounds in which a tree reaches all ranks: the base-2 logarithm, rounded up."""
    return (ranks - 1).bit_length()


def pipelined_tree(ranks: int, nbytes: float, alpha: float, beta: float) -> float:
    """Return the time of an all-reduce by a double binary tree, in pieces, up and down.

    Args:
        ranks: members of the group; one has nothing to send.
        nbytes: of the tensor.
        alpha: seconds a message.
        beta: seconds a byte.
    """
    return 0.0 if ranks == 1 else 2 * (rounds(ranks) * alpha + beta * nbytes)


def group_bandwidth(cluster: Cluster, ranks: int, stride: int) -> tuple[float, float, int]:
    """Return bandwidth a rank, latency a message and the members inside one node.

    Args:
        cluster: where the group lives.
        ranks: members of the group.
        stride: ranks from one member to the next; smaller axes lie in between.
    """
    gpu, constants = cluster.gpu, cluster.gpu.constants
    inside = max(1, min(ranks, cluster.gpus_per_node // stride))
    nvlink = gpu.nvlink_bandwidth * constants.nvlink_efficiency
    if inside >= ranks and stride * (ranks - 1) < cluster.gpus_per_node:
        return nvlink, NVLINK_LATENCY, inside
    share = inside / min(cluster.gpus_per_node, cluster.gpus)  # the node's groups share its cards
    return min(nvlink, cluster.node_bandwidth * share * constants.network_efficiency), NETWORK_LATENCY, inside


def hierarchical(phases: int, cluster: Cluster, ranks: int, stride: int, nbytes: float) -> float:
    """Return the time of rings over all cards of the nodes; the latency counts nodes, not ranks."""
    bandwidth, latency, inside = group_bandwidth(cluster, ranks, stride)
    nodes = math.ceil(ranks / inside)
    hops = phases * ((nodes - 1) * latency + (inside - 1) * NVLINK_LATENCY)
    return hops + phases * (ranks - 1) / ranks * nbytes / bandwidth


def all_reduce(cluster: Cluster, ranks: int, stride: int, nbytes: float) -> float:
    """Return the time of an all-reduce by whichever algorithm is faster."""
    if ranks == 1 or not nbytes:
        return 0.0
    bandwidth, latency, _ = group_bandwidth(cluster, ranks, stride)
    by_tree = pipelined_tree(ranks, nbytes, latency, 1 / bandwidth)
    return min(by_tree, hierarchical(2, cluster, ranks, stride, nbytes))


def all_gather(cluster: Cluster, ranks: int, stride: int, nbytes: float) -> float:
    """Return the time of an all-gather, reduce-scatter or all-to-all."""
    return hierarchical(1, cluster, ranks, stride, nbytes) if ranks > 1 else 0.0


def send(cluster: Cluster, stride: int, nbytes: float) -> float:
    """Return the time of a message to the rank `stride` further on, while all others send too."""
    bandwidth, latency, _ = group_bandwidth(cluster, 2, stride)
    return latency + nbytes / bandwidth
