"""What one variable of a rank holds whenever the rank communicates: for pictures of algorithms.

A rank looks while a trace asks for it (`RankGroup.trace(values=...)`). Each look travels with its `Call`, and
the views draw them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch

MOST_VALUES = 64  # of one rank that a picture has room for


class Look(NamedTuple):
    """What a variable held when a call was issued."""

    values: list[float] | None  # in the order of the tensor's elements; None if they are too many
    moved: range  # the places among them that the call reads or fills; empty if it uses another tensor


class Variable:
    """One variable in the namespace of a rank's cells."""

    def __init__(self, namespace: dict[str, Any], name: str) -> None:
        self._namespace, self._name = namespace, name

    def look(self, tensors: Sequence[torch.Tensor] = ()) -> Look:
        """The variable now, and which of its elements are those of the tensor that a call moves."""
        held = self._namespace.get(self._name)
        if count(held) > MOST_VALUES:
            return Look(None, range(0))
        return Look(flat(held), _places(held, tensors[0]) if tensors else range(0))


def flat(held: Any) -> list[float]:
    """The numbers in a tensor, an array, a number or a (nested) list of them; none in anything else."""
    if hasattr(held, "tolist"):
        held = held.tolist()
    if isinstance(held, (list, tuple)):
        return [value for item in held for value in flat(item)]
    return [held] if isinstance(held, Real) else []


def count(held: Any) -> int:
    """How many numbers `flat` would give."""
    if hasattr(held, "tolist"):
        return prod(held.shape)
    if isinstance(held, (list, tuple)):
        return sum(map(count, held))
    return int(isinstance(held, Real))


def _places(held: Any, tensor: torch.Tensor) -> range:
    if not hasattr(held, "untyped_storage") or not (held.is_contiguous() and tensor.is_contiguous()):
        return range(0)
    if held.dtype != tensor.dtype or held.untyped_storage().data_ptr() != tensor.untyped_storage().data_ptr():
        return range(0)
    first = tensor.storage_offset() - held.storage_offset()
    return range(max(0, first), min(held.numel(), first + tensor.numel()))
