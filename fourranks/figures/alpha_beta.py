"""The alpha-beta model: a message of S bytes takes alpha + beta S seconds.

Alpha is what a message costs however small it is; 1 / beta is what a link carries in a second. The times of
algorithms follow from the messages that they send one after another. Each has its own links: nothing here
models ranks that share one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..plan.collectives import pipelined_tree, rounds


@dataclass(frozen=True)
class AlphaBeta:
    """A link: seconds a message, and seconds a byte."""

    alpha: float
    beta: float


def fit_alpha_beta(num_bytes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """Return the alpha (s) and beta (s per byte) that fit best, by least squares of relative errors.

    Sizes that span decades need relative ones: a percent of the largest time is more than all of the
    smallest, and alpha would be noise.

    Raises:
        ValueError: fewer than two different sizes, or a time that is not positive.
    """
    if len(set(num_bytes)) < 2 or min(seconds, default=0) <= 0:
        raise ValueError("A fit needs at least two different sizes, and times above zero.")
    weights = [1 / t**2 for t in seconds]
    points = list(zip(weights, num_bytes, seconds, strict=True))
    w, ws, wss = (sum(weight * size**power for weight, size, _ in points) for power in (0, 1, 2))
    wt, wst = (sum(weight * size**power * t for weight, size, t in points) for power in (0, 1))
    determinant = w * wss - ws * ws
    return (wt * wss - wst * ws) / determinant, (w * wst - ws * wt) / determinant


def message(num_bytes: float, alpha: float, beta: float) -> float:
    """Return the seconds of one message."""
    return alpha + beta * num_bytes


def ring_all_reduce(world_size: int, num_bytes: float, alpha: float, beta: float) -> float:
    """Return the seconds of a ring all-reduce: 2 (n - 1) messages of S / n bytes, one after another."""
    return 2 * (world_size - 1) * message(num_bytes / world_size, alpha, beta)


def tree_all_reduce(world_size: int, num_bytes: float, alpha: float, beta: float) -> float:
    """Return the seconds of a reduce and a broadcast along trees: a message of S bytes in each round."""
    return 2 * rounds(world_size) * message(num_bytes, alpha, beta)


def pipelined_tree_all_reduce(world_size: int, num_bytes: float, alpha: float, beta: float) -> float:
    """Return the seconds of a tree all-reduce in many small pieces: each byte is sent up once and down once.

    Two trees that share the work (NCCL's double binary tree) keep every rank busy in both directions.
    """
    return pipelined_tree(world_size, num_bytes, alpha, beta)


def halving_doubling_all_reduce(world_size: int, num_bytes: float, alpha: float, beta: float) -> float:
    """Return the seconds of an all-reduce by recursive halving and doubling, for a power of two of ranks.

    Partners exchange S / 2, S / 4, ... bytes until each rank has the sum of one part; then the parts spread
    in the reverse order.
    """
    return 2 * (rounds(world_size) * alpha + (world_size - 1) / world_size * beta * num_bytes)


def hierarchical_all_reduce(
    nodes: int, ranks_per_node: int, num_bytes: float, inside: AlphaBeta, between: AlphaBeta
) -> float:
    """Return the seconds of an all-reduce that is cut at the border of a node.

    A reduce-scatter inside each node, an all-reduce of every rank's part through the rank's own network card,
    and an all-gather inside; each by a ring, one after another.
    """
    part = num_bytes / ranks_per_node
    inner = (ranks_per_node - 1) * message(part, inside.alpha, inside.beta)
    return 2 * inner + ring_all_reduce(nodes, part, between.alpha, between.beta)


def crossover_bytes(world_size: int, alpha: float, beta: float) -> float:
    """Return the bytes at which a ring and an unpipelined tree take equally long; below, the tree is faster.

    0 where the tree never is: with up to 3 ranks it has no fewer messages in a row than the ring.
    """
    if world_size < 2:
        return 0.0
    fewer_messages = world_size - 1 - rounds(world_size)
    more_bytes = rounds(world_size) - (world_size - 1) / world_size
    return fewer_messages * alpha / (more_bytes * beta)


def pipelined_crossover_bytes(world_size: int, alpha: float, beta: float) -> float:
    """Return the bytes at which a ring and a pipelined tree take equally long; below, the tree is faster.

    0 where the tree never is.
    """
    fewer_messages = world_size - 1 - rounds(world_size)
    return max(0.0, fewer_messages * alpha * world_size / beta)
