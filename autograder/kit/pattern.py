"""What failing cases may have in common: a property of cases, its hint, and the evidence that it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autograder.kit.judge import Case

Rule = Callable[["Case"], bool]


@dataclass(frozen=True)
class Pattern:
    """A property that may explain why cases fail.

    Attributes:
        has: whether a case has the property.
        text: the hint; it speaks of the cases that have it, and may say that no others fail.
        controls: whether a case without the property lets the text speak of others, when it has passed. By
            default any case does whose world size is that of a failed one.
    """

    has: Rule
    text: str
    controls: Rule | None = None

    def explains(self, failed: Sequence[Case], passed: Sequence[Case]) -> bool:
        """Whether every failed case has the property, no passed one has it, and a control has passed."""
        if not all(map(self.has, failed)) or any(map(self.has, passed)):
            return False
        world_sizes = {case.world_size for case in failed}
        return any(self.controls(c) if self.controls else c.world_size in world_sizes for c in passed)


def single_rank(text: str) -> Pattern:
    """Only a single rank fails, and several ranks pass."""
    return Pattern(lambda case: case.world_size == 1, text, controls=lambda case: case.world_size > 1)
