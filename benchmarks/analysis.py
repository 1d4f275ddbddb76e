"""How long it takes to prove and explain a deadlock of 512 ranks, from what they report.

That many ranks are more than this machine can run, so their reports are made up: each rank has made 63
collectives before and stands still in one more call, and its report arrives pickled, as reports do.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator, Sequence
from typing import Any

from fourranks import diagnosis
from fourranks.protocol.calls import Call
from fourranks.protocol.progress import Progress
from fourranks.scene import Scene
from fourranks.source import Source
from fourranks.watch import End, Ended, RankView, Watch

from .model import OURS, Benchmark, Contender, at_most

RANKS = 512
ALL = tuple(range(RANKS))
EARLIER = 63  # collectives, of as many calls as a report carries
SIDE = 16  # of a mesh: rows of so many ranks


def _call(op: str, seq: int = EARLIER, group: str = "0", ranks: Sequence[int] = ALL, **more: Any) -> Call:
    return Call(op, group, tuple(ranks), seq, seq, (2,), "float32", 8, (2, "float32"), file="a.py", **more)


def _earlier() -> Progress:
    calls = [_call("all_reduce", seq, line=seq) for seq in range(EARLIER)]
    return Progress(collectives={("0", ALL): EARLIER}, recent=calls, passes={("a.py", 1): EARLIER})


def _waiting(call: Call) -> RankView:
    progress = _earlier()
    progress.waits = [call]
    progress.recent.append(call)
    if call.op == "recv":
        progress.recvs[call.group, call.peer, call.tag] = 1
    else:
        progress.collectives[call.group, call.ranks] = call.seq + 1
    return RankView(progress)


def _receiving(rank: int) -> RankView:
    return _waiting(_call("recv", 0, peer=(rank + 1) % RANKS, line=100))


def _of_a_row_or_column(rank: int) -> RankView:
    row, column = divmod(rank, SIDE)
    if (row + column) % 2:
        return _waiting(_call("all_reduce", 0, f"row {row}", range(rank - column, rank - column + SIDE)))
    return _waiting(_call("all_reduce", 0, f"column {column}", range(column, RANKS, SIDE)))


def _deadlocks() -> Iterator[list[RankView]]:
    away = RankView(_earlier(), Ended(End.FINISHED))
    yield [*(_waiting(_call("all_reduce", line=100)) for _ in ALL[1:]), away]
    yield [_waiting(_call("barrier" if rank % 2 else "all_reduce", line=100 + rank % 2)) for rank in ALL]
    yield [_receiving(rank) for rank in ALL]
    yield [*map(_receiving, ALL[:-1]), away]
    yield [_of_a_row_or_column(rank) for rank in ALL]


def slowest_explanation() -> Iterator[float]:
    """Seconds for the two reports of a proof and its explanation, in the slowest of these deadlocks."""
    arrived = [[pickle.dumps(view) for view in views] for views in _deadlocks()]
    while True:
        yield max(_explained([pickle.loads(view) for view in views]) for views in arrived)


def _explained(views: list[RankView]) -> float:
    watch, by_rank = Watch(), dict(enumerate(views))
    began = time.perf_counter()
    assert watch.observe(by_rank) is None  # one report is no proof
    proof = watch.observe(by_rank)
    assert proof is not None
    assert diagnosis.explain(Scene(proof, {}, Source({})))
    return time.perf_counter() - began


BENCHMARKS = (
    Benchmark(
        f"from the reports of {RANKS} ranks to the explanation of a deadlock, the slowest of five",
        (Contender(OURS, slowest_explanation, at_most(1.0, "s")),),
        repeats=3,
    ),
)
