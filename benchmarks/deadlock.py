"""From the last rank getting stuck until the ranks are usable again.

Four Ranks says who waits where for whom and keeps every variable. With ipyparallel nobody says anything; the
clock starts when its user, knowing at once what is wrong, restarts the engines, which forget everything.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import psutil

from . import peers
from .model import OURS, Benchmark, Contender, at_most
from .notebook import ALL_REDUCE, CHECK, WORLD_SIZE

NOTE_TIME = "import time\ntime.sleep(0.5)\nstuck_since = time.monotonic()\n"  # stuck in the middle of a cell
DEADLOCKS = (
    "dist.barrier() if rank == 0 else dist.all_reduce(torch.ones(1))",
    "if rank > 0: dist.all_reduce(torch.ones(1))",
    "dist.recv(torch.empty(1), (rank + 1) % dist.get_world_size())",
)
IN_A_ROW = 200  # deadlocks whose leavings are counted


def explained() -> Iterator[float]:
    yield from (to_error for to_error, _ in _deadlocks())


def usable() -> Iterator[float]:
    yield from (to_usable for _, to_usable in _deadlocks())


def _deadlocks() -> Iterator[tuple[float, float]]:
    """Seconds from the last rank's getting stuck until its error, and until an all-reduce after it."""
    import fourranks

    for deadlock in itertools.cycle(DEADLOCKS):
        with fourranks.start(WORLD_SIZE) as group:  # a fresh one: the first error of a world takes longest
            group.execute("kept = rank")
            _require_deadlock_error(group, NOTE_TIME + deadlock)
            raised = time.monotonic()
            group.execute(ALL_REDUCE + CHECK)
            done = time.monotonic()
            assert group.pull("kept") == list(range(WORLD_SIZE))
            stuck = max(group.pull("stuck_since"))
            yield raised - stuck, done - stuck


def left_behind() -> Iterator[float]:
    """Processes, threads and memory that many deadlocks in one world have left behind."""
    import fourranks

    with fourranks.start(WORLD_SIZE) as group:
        # From its first deadlock on, rank 0 has another connection to the store, which it serves itself.
        _require_deadlock_error(group, DEADLOCKS[0])
        while True:
            group.execute(ALL_REDUCE + CHECK)
            before = _held()
            for deadlock in itertools.islice(itertools.cycle(DEADLOCKS), IN_A_ROW):
                _require_deadlock_error(group, deadlock)
            group.execute(ALL_REDUCE + CHECK)
            yield float((_held() - before).total())


def _held() -> Counter[str]:
    """Processes, threads, file descriptors and sockets of this process and all that it started."""
    held: Counter[str] = Counter()
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        sockets = len(process.net_connections("all"))
        held.update(
            processes=1, threads=process.num_threads(), descriptors=process.num_fds(), sockets=sockets
        )
    return held


def _require_deadlock_error(group: Any, cell: str) -> None:
    from fourranks import DeadlockError

    try:
        group.execute(cell)
    except DeadlockError:
        return
    raise AssertionError(f"no deadlock was found in {cell!r}")


def ipyparallel() -> Iterator[float]:
    with peers.engines() as (cluster, client):
        peers.all_reduce_on_engines(client)
        for deadlock in itertools.cycle(DEADLOCKS):
            client[:].execute(deadlock, block=False)
            time.sleep(1)  # all are stuck by now
            began = time.monotonic()
            _restart_engines(cluster, client)
            peers.all_reduce_on_engines(client)
            yield time.monotonic() - began


def _restart_engines(cluster: Any, client: Any) -> None:
    """Restarted engines get new ids; the old ones stay in the list for a while."""
    before = set(client.ids)
    cluster.restart_engines_sync()
    while len(client.ids) != WORLD_SIZE or before.intersection(client.ids):
        time.sleep(0.01)
    view = client[:]
    view.block = True
    view.activate()


BENCHMARKS = (
    Benchmark(
        "a deadlock on 4 ranks: from the last rank getting stuck to its explanation",
        (Contender(OURS, explained, at_most(0.3, "s")),),
        repeats=3,
    ),
    Benchmark(
        "the same, to usable again",
        (
            Contender(f"{OURS}: explained, variables kept", usable, at_most(0.3, "s")),
            Contender("ipyparallel: engines restarted, variables lost", ipyparallel),
        ),
        repeats=3,
    ),
    Benchmark(
        f"{IN_A_ROW} deadlocks in a row: processes, threads, file descriptors and sockets that they leave",
        (Contender(OURS, left_behind, at_most(0, "")),),
        repeats=1,
        unit="",
    ),
)
