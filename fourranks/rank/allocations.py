"""How much memory the tensors of one rank took, moment by moment. For `%%ranks` cells.

Walking through variables misses the tensors that only autograd or a collective holds, and those that come and
go within a step. So this looks after every operation of torch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves


class Allocations(TorchDispatchMode):
    """Notes after every operation what is allocated: on a GPU by its allocator, on a CPU by live storages.

        with Allocations() as memory:
            model = build()
            memory.mark("step")
            train(model)
        memory.peak("step")

    On a CPU that is the memory of all tensors that were made in the block, as long as anything refers to
    them, Python or not.

    Attributes:
        seconds: since the block was entered; two for each change, for the steps of a staircase.
        nbytes: allocated at these moments, beyond the amount when the block was entered.
        marks: the moment of each mark, in seconds.
    """

    def __enter__(self) -> Allocations:
        self.seconds, self.nbytes = [0.0], [0]
        self.marks: dict[str, float] = {}
        self._older: dict[int, StorageWeakRef] = {}  # seen, but not made in the block
        self._storages: dict[int, StorageWeakRef] = {}
        self._before = _allocated_on_gpu() if torch.cuda.is_initialized() else 0
        self._begun = time.perf_counter()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._look()

    def __torch_dispatch__(
        self,
        operation: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        for storage in _storages((args, kwargs)):
            if storage._cdata not in self._storages:
                self._older.setdefault(storage._cdata, StorageWeakRef(storage))
        result = operation(*args, **(kwargs or {}))
        for storage in _storages(result):
            if storage._cdata not in self._older:
                self._storages.setdefault(storage._cdata, StorageWeakRef(storage))
        self._look()
        return result

    def mark(self, name: str) -> None:
        """Note this moment."""
        self._look()
        self.marks[name] = time.perf_counter() - self._begun

    @property
    def now(self) -> int:
        """Bytes that are allocated at this moment."""
        self._look()
        return self.nbytes[-1]

    def peak(self, since: str) -> int:
        """Return the most bytes that were allocated between a mark and the next one."""
        begun = self.marks[since]
        end = min((moment for moment in self.marks.values() if moment > begun), default=float("inf"))
        changes = list(zip(self.seconds, self.nbytes, strict=True))
        before = [nbytes for moment, nbytes in changes if moment < begun]
        return max([*before[-1:], *(nbytes for moment, nbytes in changes if begun <= moment < end)])

    def _look(self) -> None:
        moment, nbytes = time.perf_counter() - self._begun, self._allocated()
        if nbytes != self.nbytes[-1]:
            self.seconds += [moment, moment]
            self.nbytes += [self.nbytes[-1], nbytes]

    def _allocated(self) -> int:
        if torch.cuda.is_initialized():
            return torch.cuda.memory_allocated() - self._before
        allocated = 0
        for key in list(self._storages):
            storage = torch.UntypedStorage._new_with_weak_ptr(key)
            if storage is None:  # nothing refers to it any more
                del self._storages[key]
            else:
                allocated += storage.nbytes()
        return allocated


def _allocated_on_gpu() -> int:
    """Return what is allocated when the library for products of matrices has its room.

    It takes and keeps 32 MiB or more for each thread that uses it, here the running one and autograd's.
    """
    with torch.inference_mode(False), torch.enable_grad():
        factor = torch.ones(1, 1, device="cuda", requires_grad=True)
        (factor @ factor).exp().backward()  # it warns where a product is the first that a thread computes
    del factor
    return torch.cuda.memory_allocated()


def _storages(values: Any) -> Iterator[torch.UntypedStorage]:
    """Yield what is behind the tensors among arguments or results; behind a DTensor, its part."""
    for leaf in tree_leaves(values):
        if isinstance(leaf, torch.Tensor) and is_traceable_wrapper_subclass(leaf):
            yield from _storages([getattr(leaf, name) for name in leaf.__tensor_flatten__()[0]])
        elif isinstance(leaf, torch.Tensor) and leaf.device.type != "meta":
            yield leaf.untyped_storage()
