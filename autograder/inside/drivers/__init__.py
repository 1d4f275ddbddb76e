"""Programs that use a student's classes and functions on the ranks, beside them, and report plain data.

A check names one in a case; it gets the student's code, then the case's inputs of its rank. No expected value
is known here. A driver returns a `Report`, or another value that `reports.read` can read.
"""

import importlib
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

Code = Callable[..., Any]  # a student's function or class
Group = dist.ProcessGroup | None  # None stands for the default one


def by_columns(tensor: torch.Tensor) -> torch.Tensor:
    """Return the same tensor in memory where its first dimension varies fastest, as in a transposed one."""
    backwards = tuple(reversed(range(tensor.dim())))
    return tensor.permute(backwards).contiguous().permute(backwards)


def memory_of(tensor: torch.Tensor) -> int:
    """Return the address of the memory that a tensor is a view of; the same for all views of it."""
    return tensor.untyped_storage().data_ptr()


def are_alike(pairs: list[tuple[torch.Tensor, torch.Tensor]], others: list[list[torch.Tensor]]) -> bool:
    """Tell whether pairs of tensors have the same values; NaN marks what must not be read, and equals NaN."""
    return len(pairs) == len(others) and all(
        tensor.shape == other.shape and torch.allclose(tensor, other, rtol=0, atol=0, equal_nan=True)
        for pair, own in zip(pairs, others, strict=True)
        for tensor, other in zip(pair, own, strict=True)
    )


def name_of(driver: Callable[..., Any]) -> str:
    """Return how a request names a driver."""
    return f"{driver.__module__}:{driver.__name__}"


def driver_named(name: str) -> Callable[..., Any]:
    """Return the driver that a request names."""
    module, _, function = name.partition(":")
    if not module.startswith(f"{__name__}."):
        raise ValueError(f"{name} is no driver")
    driver: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return driver
