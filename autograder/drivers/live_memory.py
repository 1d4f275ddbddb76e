"""Measures the memory of tensors, whoever holds them: Python code, autograd, or a collective under way.

Used by drivers on the ranks. Counting allocations is exact, where the size of the process is not.
"""

from __future__ import annotations

import gc
import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveMemory(TorchDispatchMode):
    """Within its `with` block: bytes of the tensors made there that are still alive, now and at most.

    It looks at what each operation of torch returns. A storage's Python object lives as long as the storage
    does, so that a weak reference tells when the memory is given back.

    Attributes:
        peak: the most bytes that were alive after any operation.
    """

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._alive: dict[int, weakref.ref] = {}
        self._earlier = {_storage(held) for held in gc.get_objects() if issubclass(type(held), torch.Tensor)}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and _storage(leaf) not in self._earlier:
                self._alive[_storage(leaf)] = weakref.ref(leaf.untyped_storage())
        self.peak = max(self.peak, self.now)
        return result

    @property
    def now(self) -> int:
        """Bytes that are alive."""
        storages = {address: reference() for address, reference in self._alive.items()}
        self._alive = {
            address: self._alive[address] for address, alive in storages.items() if alive is not None
        }
        return sum(storage.nbytes() for storage in storages.values() if storage is not None)

    def take_peak(self) -> int:
        """The most bytes so far; what comes now begins anew."""
        peak, self.peak = self.peak, self.now
        return peak


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata
