"""Clusters of four ranks, drawn from a seed: a slow network with a bad cable, a straggler, small memories."""

from __future__ import annotations

from autograder.capstone import BYTES_OF_A_PARAMETER, Cluster
from autograder.kit.draws import Draws
from autograder.topics.capstone.job import CONFIG, TOKENS

RANKS = 4
FLOPS = 1e8  # a second, of an ordinary rank: so few that one rank alone is no cheap way to train
STRAGGLER = 0.3  # of that
LAUNCH = 4e-3  # seconds
INSIDE = (5e-5, 2e8)  # latency and bandwidth inside a node
ACROSS = (1e-3, 3e6)  # and between nodes
BAD_CABLE = 0.15  # of the bandwidth between nodes, for one pair of ranks
ROWS_IN_MEMORY = 8  # of activations; half of them on one rank
ACTIVATIONS = 34  # numbers that a block keeps of each token and channel, about
RECOMPUTED = 0.2  # of a row's activations that are kept with recompute


def draw(num_parameters: int, draws: Draws) -> Cluster:
    """Draw a cluster for a model of this size: the nodes, the slow ranks and the bad cable."""
    partner = 1 + int(draws.randint(0, RANKS - 1))
    nodes = ((0, partner), tuple(rank for rank in range(1, RANKS) if rank != partner))
    node_of = {rank: number for number, node in enumerate(nodes) for rank in node}
    ring = [(rank, (rank + 1) % RANKS) for rank in range(RANKS)]
    cables = [pair for pair in ring if node_of[pair[0]] != node_of[pair[1]]]
    bad = set(cables[int(draws.randint(0, len(cables)))])  # so that a ring through all ranks meets it
    straggler, small = (int(draws.randint(0, RANKS)) for _ in range(2))

    def link(one: int, other: int) -> tuple[float, float]:
        if node_of[one] == node_of[other]:
            return INSIDE
        latency, bandwidth = ACROSS
        return latency, bandwidth * (BAD_CABLE if {one, other} == bad else 1.0)

    links = [[link(one, other) for other in range(RANKS)] for one in range(RANKS)]
    bytes_of_row = 4.0 * TOKENS * ACTIVATIONS * CONFIG.width
    parameters = BYTES_OF_A_PARAMETER * num_parameters
    return Cluster(
        nodes=nodes,
        flops=tuple(FLOPS * (STRAGGLER if rank == straggler else 1.0) for rank in range(RANKS)),
        memory=tuple(
            parameters + bytes_of_row * ROWS_IN_MEMORY / (2 if rank == small else 1) for rank in range(RANKS)
        ),
        launch_seconds=LAUNCH,
        latency=tuple(tuple(latency for latency, _ in row) for row in links),
        bandwidth=tuple(tuple(bandwidth for _, bandwidth in row) for row in links),
        num_parameters=num_parameters,
        flops_of_row=6.0 * num_parameters * TOKENS,  # 2 forward, 4 backward
        bytes_of_row=bytes_of_row,
        bytes_of_recomputed_row=RECOMPUTED * bytes_of_row,
    )
