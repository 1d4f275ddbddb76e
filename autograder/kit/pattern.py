"""Patterns of failing cases: a property that they may share, its hint, and the evidence that it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar


class OnRanks(Protocol):
    """A case, as far as patterns of all topics look at it."""

    @property
    def world_size(self) -> int: ...


C = TypeVar("C", bound=OnRanks)
Rule = Callable[[Any], bool]  # of cases of one topic, whose fields it knows


@dataclass(frozen=True)
class Pattern(Generic[C]):
    """A property that may explain why cases fail.

    Attributes:
        has: whether a case has the property.
        text: the hint; it speaks of the cases that have it, and may say that no others fail.
        controls: whether a case without the property lets the text speak of others, when it has passed. By
            default any case does whose world size is that of a failed one.
    """

    has: Callable[[C], bool]
    text: str
    controls: Callable[[C], bool] | None = None

    def explains(self, failed: Sequence[C], passed: Sequence[C]) -> bool:
        """Return whether all failed cases have the property, no passed one has, and a control passed."""
        if not all(map(self.has, failed)) or any(map(self.has, passed)):
            return False
        world_sizes = {case.world_size for case in failed}
        return any(self.controls(c) if self.controls else c.world_size in world_sizes for c in passed)


def single_rank(text: str) -> Pattern[OnRanks]:
    """Recognize that only a single rank fails, and several ranks pass."""
    return Pattern(lambda case: case.world_size == 1, text, controls=lambda case: case.world_size > 1)


def smaller_group(text: str) -> Pattern[Any]:
    """Recognize that only a process group other than the default one fails."""
    start = "Only a group that is not the default one goes wrong: pass group= to "
    return Pattern(lambda case: case.members is not None, start + text)


def of_model(name: str, text: str) -> Pattern[Any]:
    """Recognize that only cases with this model fail; cases without one have none of the property."""
    return Pattern(lambda case: getattr(case, "model", "") == name, text)
