"""Explains calls that name a rank outside their group, or the rank that makes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ..protocol.places import Place

T = TypeVar("T")

TO_ITSELF = "A rank can exchange messages only with other ranks: copy the tensor instead."
_REFUSAL = "fourranks_refusal"  # the attribute of an exception that says why


@dataclass(frozen=True)
class NoSuchRank:
    """The refusal of a call that names a rank outside its group; `str` explains it.

    Attributes:
        named: the number that was given.
        own: group rank of the caller.
        ranks: global ranks of the group, in group order.
        place: line of the call.
    """

    named: int
    own: int
    ranks: tuple[int, ...]
    place: Place

    def __str__(self) -> str:
        size, step = len(self.ranks), self.named - self.own
        is_subgroup = self.ranks != tuple(range(size))
        sentences = [
            f"There is no rank {self.named} in this group of {size}, whose ranks are 0 to {size - 1}."
        ]
        if is_subgroup:
            sentences.append(f"Counted in the whole world, they are {', '.join(map(str, self.ranks))}.")
        lines = [" ".join(sentences), str(self.place)]
        if abs(step) < size:
            rank, world_size = ("group.rank()", "group.size()") if is_subgroup else ("rank", "world_size")
            ring = f"({rank} {'+' if step > 0 else '-'} {abs(step)}) % {world_size}"
            partner = self.named % size
            lines.append(
                f"In a ring the first rank follows the last. Take the remainder: {ring} is {partner}."
            )
        return "\n".join(lines)

    def error(self) -> ValueError:
        """Return the error to raise."""
        error = ValueError(str(self))
        vars(error)[_REFUSAL] = self
        return error


def refusal_of(error: BaseException) -> NoSuchRank | None:
    """Return why the call that raised this error was refused, if it named a rank outside its group."""
    refusal = vars(error).get(_REFUSAL)
    return refusal if isinstance(refusal, NoSuchRank) else None


def explained(call: Callable[[], T], explanation: NoSuchRank | str) -> T:
    """Make a call; if it fails, the error says why in the reader's terms, too."""
    try:
        return call()
    except Exception as error:
        error.args = (f"{error}\n{explanation}",)
        vars(error)[_REFUSAL] = explanation
        raise
