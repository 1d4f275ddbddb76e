"""Explains calls that name a rank outside their group, or the rank that makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ..protocol.places import Place

T = TypeVar("T")

TO_ITSELF = "A rank can exchange messages only with other ranks: copy the tensor instead."


def no_such_rank(named: int, own: int, ranks: tuple[int, ...], place: Place) -> str:
    """Explain that a group has no rank of this number.

    Args:
        named: the number.
        own: group rank of the caller.
        ranks: global ranks of the group, in group order.
        place: line of the call.
    """
    size, step = len(ranks), named - own
    is_subgroup = ranks != tuple(range(size))
    sentences = [f"There is no rank {named} in this group of {size}, whose ranks are 0 to {size - 1}."]
    if is_subgroup:
        sentences.append(f"Counted in the whole world, they are {', '.join(map(str, ranks))}.")
    lines = [" ".join(sentences), str(place)]
    if abs(step) < size:
        rank, world_size = ("group.rank()", "group.size()") if is_subgroup else ("rank", "world_size")
        ring = f"({rank} {'+' if step > 0 else '-'} {abs(step)}) % {world_size}"
        lines.append(
            f"In a ring the first rank follows the last. Take the remainder: {ring} is {named % size}."
        )
    return "\n".join(lines)


def explained(call: Callable[[], T], explanation: str) -> T:
    """Make a call; if it fails, the error says why in the reader's terms, too."""
    try:
        return call()
    except Exception as error:
        error.args = (f"{error}\n{explanation}",)
        raise
