"""How many bytes each rank has got from others, by the calls of all ranks, and whether that can be enough.

A result that depends on data of other ranks takes at least the bytes of that data: a rank that has received
less has its result from another source.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from autograder.kit.mistakes import NO_WAIT, NOT_RECEIVED
from autograder.kit.problem import Problem, first
from autograder.kit.student import Outcome
from fourranks.naming import counted
from fourranks.trace import Call

Calls = Sequence[Sequence[Call]]
POINT_TO_POINT = ("send", "recv")
_FROM_ROOT = ("broadcast", "scatter")

# By collective: the bytes that a rank must have got for its result, given those that it puts in, the size of
# the group, and whether it is the root. A rank's part of a scatter stands in the root's call.
_GOT: dict[str, Callable[[int, int, bool], int]] = {
    "all_reduce": lambda nbytes, size, is_root: nbytes,
    "broadcast": lambda nbytes, size, is_root: 0 if is_root else nbytes,
    "reduce": lambda nbytes, size, is_root: nbytes if is_root else 0,
    "all_gather": lambda nbytes, size, is_root: (size - 1) * nbytes,
    "gather": lambda nbytes, size, is_root: (size - 1) * nbytes if is_root else 0,
    "reduce_scatter": lambda nbytes, size, is_root: nbytes // size,
}


def calls_of(outcomes: Sequence[Outcome | None]) -> Calls:
    """Return the calls of each rank; none where nothing was called."""
    return [outcome.calls if outcome else [] for outcome in outcomes]


def named(call: Call) -> str:
    """Name a call as the student wrote it."""
    return f"dist.{call.op} in line {call.line}"


def not_waited_for(calls: Iterable[Call], where: str) -> Problem | None:
    """Find a call whose handle had no wait()."""
    for call in calls:
        if call.moves_data and call.end is None:
            return Problem(NO_WAIT, f"{where}: a wait() for every handle", f"none for {named(call)}")
    return None


def not_waited_for_on_any(ranks: Iterable[tuple[str, Outcome]]) -> Problem | None:
    """Find a handle without its wait() on any rank: the result of its call is right or wrong by chance."""
    return first(not_waited_for(outcome.calls, rank) for rank, outcome in ranks)


def too_little(least: Sequence[int], calls: Calls) -> Problem | None:
    """Find a rank that has received less than its result takes.

    Args:
        least: bytes that each rank must have received; empty where nothing depends on other ranks.
        calls: of each rank.
    """
    for rank, (needed, got) in enumerate(zip(least, received(calls), strict=False)):
        if got < needed:
            expected = f"rank {rank}: at least {counted(needed, 'byte')} from other ranks, for what it has"
            return Problem(NOT_RECEIVED, expected, counted(got, "byte"))
    return None


def received(calls: Calls) -> list[int]:
    """Return the bytes that each rank has got from others."""
    got = [sum(_got(rank, call) for call in own) for rank, own in enumerate(calls)]
    for rank, own in enumerate(calls):
        for call in own:
            if call.op == "scatter" and call.root == rank:
                for other in call.ranks:
                    got[other] += call.nbytes // len(call.ranks) if other != rank else 0
    for (_, _, receiver), nbytes in _handed_over(calls).items():
        got[receiver] += nbytes
    return got


def given(rank: int, calls: Sequence[Call]) -> int:
    """Return the bytes that a rank has put into its calls: of broadcasts and scatters, only as their root."""
    return sum(
        call.nbytes
        for call in calls
        if call.op != "recv" and (call.op not in _FROM_ROOT or call.root == rank)
    )


def _got(rank: int, call: Call) -> int:
    if len(call.ranks) == 1 or call.op in POINT_TO_POINT:
        return 0
    if call.op == "reduce_scatter" and _is_uneven(call):
        return call.nbytes  # at most: which part is the rank's own is not on record
    got = _GOT.get(call.op.removesuffix("_single"))
    return got(call.nbytes, len(call.ranks), call.root == rank) if got else 0


def _is_uneven(call: Call) -> bool:
    """Tell whether a list with a part for each rank has parts of several sizes, by that of its first."""
    return call.part is not None and call.part[0] != len(call.ranks) * math.prod(call.shape)


def _handed_over(calls: Calls) -> Counter[tuple[bool, int, int]]:
    """Count the bytes of messages and of exchanges by sender and receiver, as far as both tell of them.

    Gloo lets a rank have more room for them than the other one fills.
    """
    sent: Counter[tuple[bool, int, int]] = Counter()
    came: Counter[tuple[bool, int, int]] = Counter()
    for rank, own in enumerate(calls):
        for call in own:
            for other, gives, takes in _with_each(call):
                if other != rank:
                    sent[call.is_point_to_point, rank, other] += gives
                    came[call.is_point_to_point, other, rank] += takes
    return sent & came


def _with_each(call: Call) -> Iterator[tuple[int, int, int]]:
    """Yield with which rank a message or an exchange is, the bytes that it gets, and those that it gives."""
    if call.exchange is not None:
        yield from zip(call.ranks, *call.exchange, strict=True)
    elif call.op == "send" and call.peer is not None:
        yield call.peer, call.nbytes, 0
    elif call.op == "recv" and call.peer is not None and call.end is not None:
        yield call.peer, 0, call.nbytes
