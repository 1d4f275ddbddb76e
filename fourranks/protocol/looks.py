"""The content of one variable whenever its rank communicates: for pictures of algorithms.

A rank looks while a trace asks for it (`RankGroup.trace(values=...)`); `rank.variable` does so. Each look
travels with its `Call`, and the views draw them.
"""

from __future__ import annotations

from math import prod
from numbers import Real
from typing import Any, NamedTuple, TypeGuard

MOST_VALUES = 64  # of one rank that a picture has room for


class Look(NamedTuple):
    """The content of a variable when a call was issued."""

    values: list[float] | None  # in the order of the tensor's elements; None if they are too many
    moved: range  # the places among them that the call reads or fills; empty if it uses another tensor


def flat(held: Any) -> list[float]:
    """Return the numbers in a tensor, an array, a number or a (nested) list; none in anything else."""
    if hasattr(held, "tolist"):
        held = held.tolist()
    if isinstance(held, (list, tuple)):
        return [value for item in held for value in flat(item)]
    return [held] if _is_number(held) else []


def count(held: Any) -> int:
    """Count the numbers that `flat` would give."""
    if hasattr(held, "tolist"):
        return prod(held.shape)
    if isinstance(held, (list, tuple)):
        return sum(map(count, held))
    return int(_is_number(held))


def _is_number(held: object) -> TypeGuard[float]:
    return isinstance(held, Real)
