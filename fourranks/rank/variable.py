"""Looks at one variable of a rank whenever the rank communicates, while a trace asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..protocol.looks import MOST_VALUES, Look, count, flat


class Variable:
    """One variable in the namespace of a rank's cells."""

    def __init__(self, namespace: dict[str, Any], name: str) -> None:
        self._namespace, self._name = namespace, name

    def look(self, tensors: Sequence[torch.Tensor] = ()) -> Look:
        """Look at the variable, and at which of its elements are those of the tensor that a call moves."""
        held = self._namespace.get(self._name)
        if count(held) > MOST_VALUES:
            return Look(None, range(0))
        return Look(flat(held), _places(held, tensors[0]) if tensors else range(0))


def _places(held: Any, tensor: torch.Tensor) -> range:
    if not hasattr(held, "untyped_storage") or not (held.is_contiguous() and tensor.is_contiguous()):
        return range(0)
    if held.dtype != tensor.dtype or held.untyped_storage().data_ptr() != tensor.untyped_storage().data_ptr():
        return range(0)
    first = tensor.storage_offset() - held.storage_offset()
    return range(max(0, first), min(held.numel(), first + tensor.numel()))
