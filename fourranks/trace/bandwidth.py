"""Sizes and bandwidths as nccl-tests defines them, for operations that were measured.

Sizes are in bytes, times in seconds, bandwidths in bytes per second.
Source: doc/PERFORMANCE.md and src/*.cu of https://github.com/NVIDIA/nccl-tests.
"""

from __future__ import annotations

from collections.abc import Iterable

_SUMMED = ("all_gather", "gather", "scatter")  # S is what all ranks put in, together


def message_size(op: str, nbytes: Iterable[int]) -> int:
    """Return S of one operation: the bytes of the whole array.

    For all-gather and gather this is the output, world size times one rank's part; for reduce-scatter and
    all-to-all it is the input of one rank; for the others the tensor itself.

    Args:
        op: name of the function of `torch.distributed`.
        nbytes: input of each rank of the group.
    """
    nbytes = list(nbytes)
    return sum(nbytes) if _plain(op) in _SUMMED else max(nbytes, default=0)


def busbw_factor(op: str, world_size: int) -> float:
    """Return the factor from algbw to busbw: the bytes that each rank has to send, as a share of S.

    Args:
        op: name of the function of `torch.distributed`.
        world_size: number of ranks in the group.
    """
    share = (world_size - 1) / world_size
    factors = {
        "all_reduce": 2 * share,
        "reduce_scatter": share,
        "all_gather": share,
        "all_to_all": share,
        "gather": share,
        "scatter": share,
    }
    return factors.get(_plain(op), 1.0)


def algbw(size: int, seconds: float) -> float:
    """Return the algorithm bandwidth, S / t, in bytes per second."""
    return size / seconds


def busbw(op: str, size: int, seconds: float, world_size: int) -> float:
    """Return the bus bandwidth: comparable with a link's, whatever the operation and the number of ranks."""
    return algbw(size, seconds) * busbw_factor(op, world_size)


def _plain(op: str) -> str:
    return op.removesuffix("_single")
