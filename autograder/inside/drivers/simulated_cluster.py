"""A simulated cluster: the time of a message between two of its ranks, as it would be measured.

Exercise 03 measures one, in a cell of its own and in its check.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

CONNECTING = 0.05  # seconds that the first message from one rank to another takes on top
NOISE = 0.05  # relative, either way
DISTURBED_EVERY = 4  # one in so many messages from one rank to another takes several times as long


@dataclass
class SimulatedCluster:
    """Links between all pairs of ranks, no two of them quite alike.

    Attributes:
        alphas, betas: for each source and destination the seconds of a message, and of each byte.
        seed: of the noise.
        sent: how many messages have been sent.
    """

    alphas: Sequence[Sequence[float]]
    betas: Sequence[Sequence[float]]
    seed: int = 0
    sent: int = 0
    _before: Counter[tuple[int, int]] = field(default_factory=Counter)  # messages of each pair

    def __post_init__(self) -> None:
        self._generator = random.Random(self.seed)

    @classmethod
    def of_nodes(
        cls,
        node_of_rank: Sequence[int],
        inside: tuple[float, float],
        across: tuple[float, float],
        seed: int = 0,
    ) -> SimulatedCluster:
        """Make a cluster from the node of each rank, and (alpha, beta) of links inside and across nodes."""
        generator = random.Random(seed)

        def links(which: int) -> list[list[float]]:
            return [
                [
                    (inside if node == other else across)[which] * generator.uniform(0.98, 1.02)
                    for other in node_of_rank
                ]
                for node in node_of_rank
            ]

        return cls(links(0), links(1), seed)

    def send(self, source: int, destination: int, num_bytes: int) -> float:
        """Send a message, and return the seconds that it took.

        Raises:
            ValueError: there is no such pair of ranks.
        """
        ranks = range(len(self.alphas))
        if source not in ranks or destination not in ranks or source == destination:
            raise ValueError(
                f"no message goes from rank {source} to rank {destination}: "
                f"choose two different ranks of 0 to {len(ranks) - 1}"
            )
        self.sent += 1
        before = self._before[source, destination]
        self._before[source, destination] += 1
        seconds = self.alphas[source][destination] + self.betas[source][destination] * num_bytes
        seconds *= self._generator.uniform(1 - NOISE, 1 + NOISE)
        if before % DISTURBED_EVERY == DISTURBED_EVERY - 1:
            seconds *= self._generator.uniform(3, 10)
        return seconds + (CONNECTING if before == 0 else 0.0)
