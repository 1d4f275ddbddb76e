"""Times collectives honestly: warm-up, barrier, synchronize, and the median of the slowest rank.

`benchmark` and `measure` run on every rank of a group, in a `%%ranks` cell or a script under torchrun;
`sweep` is for the notebook and measures on the ranks of a world. Sizes and bandwidths are nccl-tests'.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from .trace import bandwidth

if TYPE_CHECKING:
    from .group import RankGroup

Run = Callable[[], Any]
Device = torch.device | str

SIZES = tuple(4**exponent for exponent in range(5, 13))  # 1 KiB to 16 MiB


@dataclass(frozen=True)
class Measurement:
    """The times of one collective of one size.

    Attributes:
        collective: name, one of `COLLECTIVES`.
        num_bytes: S as nccl-tests defines it, the bytes of the whole array.
        samples: for each iteration the seconds of its slowest rank.
    """

    collective: str
    num_bytes: int
    world_size: int
    backend: str
    samples: tuple[float, ...]

    @property
    def seconds(self) -> float:
        """The median over iterations."""
        return statistics.median(self.samples)

    @property
    def algbw(self) -> float:
        """S / t, in bytes per second."""
        return bandwidth.algbw(self.num_bytes, self.seconds)

    @property
    def busbw(self) -> float:
        """The bytes per second that each link would have to carry in a ring."""
        return bandwidth.busbw(self.collective, self.num_bytes, self.seconds, self.world_size)


def benchmark(
    run: Run,
    *,
    warmup: int = 5,
    iterations: int = 20,
    device: Device = "cpu",
    group: dist.ProcessGroup | None = None,
    calls: int = 1,
) -> float:
    """Return the seconds of one `run()`: the median over iterations of the slowest rank, alike on all ranks.

    Every rank of the group must call it, with the same numbers.

    Args:
        run: the call to time; on a GPU it need not wait for its kernels.
        warmup: calls before the clock.
        iterations: readings of the clock.
        device: what `run` works on; a GPU is synchronized before each reading.
        group: whose ranks start together.
        calls: how many calls share one reading, as all do in nccl-tests. More than one hides the time to
            launch a kernel, and lets a call begin before other ranks are through with the one before.
    """
    return statistics.median(samples(run, warmup, iterations, device, group, calls))


def samples(
    run: Run,
    warmup: int,
    iterations: int,
    device: Device = "cpu",
    group: dist.ProcessGroup | None = None,
    calls: int = 1,
) -> list[float]:
    """Return the slowest rank's seconds of each iteration, on every rank; arguments as in `benchmark`."""
    for _ in range(warmup):
        run()
    seconds = [_seconds(run, device, group, calls) for _ in range(iterations)]
    slowest = torch.tensor(seconds, dtype=torch.float64, device=device)
    dist.all_reduce(slowest, dist.ReduceOp.MAX, group=group)
    return slowest.tolist()


def _seconds(run: Run, device: Device, group: dist.ProcessGroup | None, calls: int) -> float:
    """Return this rank's seconds of one call, begun together with the others'."""
    synchronize(device)
    dist.barrier(group)
    began = time.perf_counter()
    for _ in range(calls):
        run()
    synchronize(device)
    return (time.perf_counter() - began) / calls


def synchronize(device: Device) -> None:
    """Wait until a GPU has done all that it was asked for; a CPU always has."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


# --- the collectives of nccl-tests ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Buffers:
    """A tensor of S bytes, and what a rank of the group needs to call a collective with it."""

    whole: torch.Tensor
    group: dist.ProcessGroup | None

    @property
    def size(self) -> int:
        return dist.get_world_size(self.group)

    @property
    def part(self) -> torch.Tensor:
        return torch.zeros_like(self.whole[: len(self.whole) // self.size])

    def at_root(self) -> list[torch.Tensor] | None:
        """Return a list of parts on the first rank of the group, None on the others."""
        return list(self.whole.chunk(self.size)) if dist.get_rank(self.group) == 0 else None


def _all_reduce(buffers: _Buffers) -> Run:
    return lambda: dist.all_reduce(buffers.whole, group=buffers.group)


def _reduce_scatter(buffers: _Buffers) -> Run:
    part = buffers.part
    return lambda: dist.reduce_scatter_single(part, buffers.whole, group=buffers.group)


def _all_gather(buffers: _Buffers) -> Run:
    part = buffers.part
    return lambda: dist.all_gather_single(buffers.whole, part, group=buffers.group)


def _all_to_all(buffers: _Buffers) -> Run:
    output = torch.zeros_like(buffers.whole)
    return lambda: dist.all_to_all_single(output, buffers.whole, group=buffers.group)


def _broadcast(buffers: _Buffers) -> Run:
    return lambda: dist.broadcast(buffers.whole, group_src=0, group=buffers.group)


def _reduce(buffers: _Buffers) -> Run:
    return lambda: dist.reduce(buffers.whole, group_dst=0, group=buffers.group)


def _scatter(buffers: _Buffers) -> Run:
    part, parts = buffers.part, buffers.at_root()
    return lambda: dist.scatter(part, parts, group_src=0, group=buffers.group)


def _gather(buffers: _Buffers) -> Run:
    part, parts = buffers.part, buffers.at_root()
    return lambda: dist.gather(part, parts, group_dst=0, group=buffers.group)


def _sendrecv(buffers: _Buffers) -> Run:
    """Send to the right and receive from the left, at the same time."""
    rank, size, received = dist.get_rank(buffers.group), buffers.size, torch.zeros_like(buffers.whole)
    if size == 1:
        raise ValueError("sendrecv needs a second rank: a rank cannot send to itself.")
    messages = [
        dist.P2POp(dist.isend, buffers.whole, group_peer=(rank + 1) % size, group=buffers.group),
        dist.P2POp(dist.irecv, received, group_peer=(rank - 1) % size, group=buffers.group),
    ]

    def exchange() -> None:
        for work in dist.batch_isend_irecv(messages):
            work.wait()

    return exchange


_COLLECTIVES: dict[str, Callable[[_Buffers], Run]] = {
    "all_reduce": _all_reduce,
    "reduce_scatter": _reduce_scatter,
    "all_gather": _all_gather,
    "all_to_all": _all_to_all,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "scatter": _scatter,
    "gather": _gather,
    "sendrecv": _sendrecv,
}
COLLECTIVES = tuple(_COLLECTIVES)


def measure(
    collective: str,
    num_bytes: int,
    *,
    warmup: int = 5,
    iterations: int = 20,
    calls: int = 1,
    group: dist.ProcessGroup | None = None,
) -> Measurement:
    """Benchmark one collective on float32 zeros, on GPUs if the group talks by NCCL.

    Args:
        collective: one of `COLLECTIVES`; roots are the group's first rank.
        num_bytes: S as nccl-tests defines it; rounded down to whole elements, an equal number for each rank.
        warmup: as in `benchmark`, like the others.

    Raises:
        ValueError: there is no such collective, or nothing is left after rounding.
    """
    if collective not in _COLLECTIVES:
        raise ValueError(f"There is no collective {collective!r}; choose one of {', '.join(COLLECTIVES)}.")
    size, backend = dist.get_world_size(group), dist.get_backend(group)
    numel = num_bytes // (4 * size) * size
    if not numel:
        raise ValueError(f"{num_bytes} bytes are too few: {size} ranks with float32 need {4 * size} or more.")
    device = torch.device("cuda" if backend == "nccl" else "cpu")
    run = _COLLECTIVES[collective](_Buffers(torch.zeros(numel, device=device), group))
    taken = samples(run, warmup, iterations, device, group, calls)
    return Measurement(collective, 4 * numel, size, backend, tuple(taken))


def sweep(
    world: RankGroup,
    collectives: Iterable[str] = ("all_reduce",),
    sizes: Iterable[int] = SIZES,
    *,
    warmup: int = 3,
    iterations: int = 11,
    calls: int = 1,
) -> list[Measurement]:
    """Measure each collective at each size (S, in bytes) on the ranks of a world.

    Args:
        world: ranks that `fourranks.start` has started; `fourranks.world()` is the notebook's.
        warmup: as in `measure`, like the others.
    """
    options = {"warmup": warmup, "iterations": iterations, "calls": calls}
    sizes = list(sizes)
    return [world.run(measure, name, size, **options)[0] for name in collectives for size in sizes]
