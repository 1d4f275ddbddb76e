"""Whether what ranks say that they have sent is what Linux has counted.

Calls in a sandbox move their bytes over its loopback, whose counter nothing in it can reach. The witness
makes all calls and system calls for other ways are refused, so this repeats what `ledger` shows; it stays
because it is the one count made outside of the sandbox. If there is a way around those walls, forged calls
still have to move their bytes. The formulas are those of Gloo as `benchmarks.compat.traffic` measures it: in
each torch of KNOWN_TORCH, each holds within a percent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata

from fourranks.trace import Call

KNOWN_TORCH = ("2.13", "2.14", "2.15")
TOLERANCE = 0.05  # of what is told: headers of packets
# Bytes of headers, acknowledgements and lengths, for each rank that a call may reach: an all-reduce of few
# numbers needs 600 on 2 ranks and 1,200 on 8, and a layer whose ranks hold parts of different sizes 2,000.
EACH_CALL = 3_000
EACH_PAIR = 8_000  # bytes that two ranks need to meet, in a world and in a group of their own
# A machine that is busy acknowledges so late that Linux sends a segment again: it is counted twice. More than
# that share of them would be somebody's doing.
SEGMENT = 66_000  # bytes
MOST_RESENT = 0.25  # of what is told, beyond a few segments that short messages need

# By operation: bytes that one rank sends, given those that it puts in, and the size of the group.
_SENT: dict[str, Callable[[int, int], float]] = {
    "send": lambda nbytes, size: nbytes,
    "all_reduce": lambda nbytes, size: 2 * (size - 1) / size * nbytes,
    "broadcast": lambda nbytes, size: (size - 1) / size * nbytes,
    "reduce": lambda nbytes, size: (size**2 - 1) / size**2 * nbytes,
    "all_gather": lambda nbytes, size: (size - 1) * nbytes,
    "gather": lambda nbytes, size: (size - 1) / size * nbytes,
    "scatter": lambda nbytes, size: (size - 1) / size * nbytes,
    "reduce_scatter": lambda nbytes, size: 2 * (size - 1) / size * nbytes,  # Gloo reduces all everywhere
}


@dataclass(frozen=True)
class LoopbackTraffic:
    """Linux's counts on a loopback.

    Attributes:
        resent: segments of TCP's that were sent again.
    """

    nbytes: int
    resent: int

    def __sub__(self, earlier: LoopbackTraffic) -> LoopbackTraffic:
        return LoopbackTraffic(self.nbytes - earlier.nbytes, self.resent - earlier.resent)


def unknown_torch(version: str = "") -> str:
    """Return what to do about a torch whose traffic has not been measured, in words; "" if it is a known one.

    Args:
        version: that of the installed torch, if it is empty.
    """
    version = version or metadata.version("torch")
    if ".".join(version.split(".")[:2]) in KNOWN_TORCH:
        return ""
    return (
        f"The referee compares what ranks send with what Linux counts, and knows the traffic of torch "
        f"{', '.join(KNOWN_TORCH[:-1])} and {KNOWN_TORCH[-1]}, not of {version}: install one of those, as in "
        f"pip install torch=={KNOWN_TORCH[-1]}.*, or measure this one as docs/compat.md says."
    )


def contradiction(calls: Sequence[Sequence[Call]], counted: LoopbackTraffic) -> str:
    """Say what is wrong; "" if the calls can have sent as many bytes as were counted.

    Args:
        calls: of each rank.
        counted: while they were made, and while the ranks met if they had to.
    """
    told = sum(sent_bytes(rank, call) for rank, own in enumerate(calls) for call in own)
    reached = sum(2 if call.is_point_to_point else len(calls) for own in calls for call in own)
    slack = TOLERANCE * told + EACH_PAIR * len(calls) ** 2 + EACH_CALL * reached
    resent = min(SEGMENT * counted.resent, MOST_RESENT * told + 2 * SEGMENT)
    if counted.nbytes > told + slack + resent:
        return f"the ranks moved {counted.nbytes:,} bytes, and their calls account for {round(told):,} only"
    if counted.nbytes < told - slack:
        return f"the ranks moved {counted.nbytes:,} bytes, and their calls pretend {round(told):,}"
    return ""


def sent_bytes(rank: int, call: Call) -> float:
    """Return the bytes that one rank sends in one call."""
    if call.exchange is not None:
        return sum(call.gives(other) for other in call.ranks if other != rank)
    op = call.op.removesuffix("_single")
    return _SENT[op](call.nbytes, len(call.ranks)) if op in _SENT else 0.0
