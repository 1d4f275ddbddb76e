"""The settings that trials of several topics share: every world size, and a group of some ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from autograder.kit.case import Trial
from autograder.kit.draws import Draws
from autograder.kit.problem import Problem, first
from autograder.kit.student import Outcome
from fourranks.naming import counted, name_ranks

WORLD_SIZES = (1, 2, 3, 4, 5)
# Finds the problem of one rank: gets its position in the group, the rank in words, and its outcome.
Rule = Callable[[int, str, Outcome], Problem | None]
T = TypeVar("T", bound=Trial)


@dataclass(frozen=True)
class Setting:
    """Which ranks take part in a trial, and the random numbers of its inputs."""

    world_size: int
    members: tuple[int, ...] | None
    draws: Draws

    @property
    def ranks(self) -> tuple[int, ...]:
        return self.members or tuple(range(self.world_size))

    @property
    def positions(self) -> dict[int, int]:
        """The position in the group of each rank that takes part."""
        return {rank: position for position, rank in enumerate(self.ranks)}

    def model_seed(self, rank: int) -> int:
        """Return another seed on every rank, so that a missing broadcast shows."""
        return self.draws.seed(rank)

    def title(self, what: str) -> str:
        """Return the title of a trial, for the student."""
        return f"{ranks_in_words(self.world_size, self.members)}, {what}"

    def tries(self, number: int) -> bool:
        """Tell whether to try the n-th of many variations here: on many ranks, every second one is enough."""
        return self.world_size <= 3 or number % 2 == self.world_size % 2

    def inputs(self, arguments: Callable[[int, int], tuple[Any, ...]]) -> list[tuple[Any, ...] | None]:
        """Make the arguments of each rank that takes part, by position in the group and rank."""
        positions = self.positions
        return [
            arguments(positions[rank], rank) if rank in positions else None for rank in range(self.world_size)
        ]

    def trial(
        self,
        what: str,
        driver: Callable[..., Any],
        arguments: Callable[[int, int], tuple[Any, ...]],
        *rules: Rule,
        kind: type[T] = Trial,  # type: ignore[assignment]  # mypy issue 3737: defaults of type variables
        received: Callable[[int], int] = lambda position: 0,
        **fields: Any,
    ) -> T:
        """Make a trial whose outcomes must keep the rules, on every rank the first before the second.

        Args:
            what: is tried, for the student.
            arguments: of the driver, by position in the group and rank.
            kind: of trial.
            received: bytes that a rank needs from others where there are others, by position in the group.
            fields: more of the trial's own, or others than are made here.
        """
        positions = self.positions
        made: dict[str, Any] = {
            "title": self.title(what),
            "inputs": self.inputs(arguments),
            "members": self.members,
            "driver": driver,
            "verify": partial(_first_problem, rules),
            "size": 1,
            "received": [
                received(positions[rank]) if rank in positions and len(positions) > 1 else 0
                for rank in range(self.world_size)
            ],
        }
        return kind(**made | fields)


def ranks_in_words(world_size: int, members: tuple[int, ...] | None) -> str:
    """Say on how many ranks a case is, and in which group if not in that of all."""
    group = f", group of {name_ranks(list(members))}" if members else ""
    return f"{counted(world_size, 'rank')}{group}"


def _first_problem(rules: Sequence[Rule], outcomes: Sequence[Outcome | None]) -> Problem | None:
    ranks = taking_part(outcomes)
    return first(rule(at, rank, outcome) for rule in rules for at, (rank, outcome) in enumerate(ranks))


def taking_part(outcomes: Sequence[Outcome | None]) -> list[tuple[str, Outcome]]:
    """Return the outcome of each rank that takes part, with the rank in words."""
    return [(f"rank {rank}", outcome) for rank, outcome in enumerate(outcomes) if outcome is not None]


def some_ranks(world_size: int) -> tuple[int, ...]:
    """Return the ranks of a group that shows who takes a position in it for a rank.

    It begins after rank 0, so that no position is the global rank, and with 4 ranks or more it has a gap, so
    that the ranks do not follow from the first one.
    """
    return 1, *range(min(3, world_size - 1), world_size)


def settings(world_sizes: Sequence[int], seed: int) -> Iterator[Setting]:
    """Yield every world size, then a group of some ranks of the largest one."""
    draws = Draws(seed)
    for world_size in world_sizes:
        yield Setting(world_size, None, draws.split())
    largest = max(world_sizes)
    if largest >= 3:
        yield Setting(largest, some_ranks(largest), draws.split())


def settings_of(world_size: int, world_sizes: Sequence[int], seed: int) -> Iterator[Setting]:
    """Yield the setting of this world size, if it is one of those that are asked for."""
    if world_size in world_sizes:
        yield Setting(world_size, None, Draws(seed))
