"""The activity of each rank of a world, now and in the last seconds.

`RankGroup.snapshot` takes an `Activity` of each rank from the reports that it has anyway, so looking costs
the ranks nothing; a `Meter` makes rates and shares of successive ones. Pure logic; the dashboard draws it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from .protocol.calls import Call
from .protocol.messages import State
from .reports import Reports
from .watch import missing

LATE = 0.25  # seconds by which the newest report must be newer than that of a rank that does not answer
BRIDGED = 1.0  # seconds without a look that are taken to have been like the moment after them
RATE_WINDOW = 2.0  # seconds that the bytes per second are an average of


@dataclass(frozen=True)
class RankStatus:
    """One line of `%ranks`."""

    rank: int
    pid: int
    device: str
    backend: str
    state: str  # "idle", or how the process ended
    memory_bytes: int
    gpu: str = ""  # name of the GPU that `device` is on
    gpu_bytes: int = 0  # that the rank's tensors took there after its last cell
    node: str = ""  # its name, in a world over several


@dataclass(frozen=True)
class Activity:
    """The activity of one rank when it was last heard of."""

    rank: int
    state: str  # "idle", "computing", "waiting", "finished" (its part of the cell), or how the process ended
    memory_bytes: int = 0  # resident
    waits_in: Call | None = None
    waits_for: tuple[int, ...] = ()  # ranks that have not come to that call
    report: State | None = None  # the last one of the cell that runs
    since: float = 0.0  # when that cell began, by the clock of reports
    node: str = ""  # name of the rank's, in a world over several

    @property
    def busy(self) -> bool:
        """Whether the rank runs a cell."""
        return self.state in ("computing", "waiting")


def busy_rank(
    rank: int, memory_bytes: int, reports: dict[int, State], asked_again: bool, since: float = 0.0
) -> Activity:
    """Return what a rank that runs a cell is doing.

    Args:
        rank: the rank.
        memory_bytes: its resident memory.
        reports: the last report of each rank of the world.
        asked_again: whether a newer report is under way.
        since: when the cell began, by the clock of reports.
    """
    report = reports.get(rank)
    newest = max((other.at for other in reports.values()), default=0.0)
    # A rank that does not answer computes, wherever it stood before.
    silent = asked_again and report is not None and newest - report.at > LATE
    call = None if silent or report is None else report.progress.blocked
    if call is None:
        return Activity(rank, "computing", memory_bytes, report=report, since=since)
    waits_for = missing(rank, call, Reports({other: state.progress for other, state in reports.items()}))
    return Activity(rank, "waiting", memory_bytes, call, tuple(sorted(waits_for)), report, since)


class Meter:
    """Bytes per second of one rank, and how much of each moment of the last seconds it waited.

    Args:
        moments: how many are kept.
        length: seconds of one moment.
    """

    def __init__(self, moments: int, length: float) -> None:
        self._length = length
        self._newest: int | None = None
        self._reports: deque[State] = deque()
        self._last: State | None = None  # the newest report, also of an earlier cell
        self.shares: deque[float | None] = deque([None] * moments, maxlen=moments)

    @property
    def bytes_per_second(self) -> float:
        """Bytes that the rank has handed to collectives and sends in the last seconds of the running cell."""
        if len(self._reports) < 2:
            return 0.0
        first, last = self._reports[0], self._reports[-1]
        return (last.progress.nbytes - first.progress.nbytes) / (last.at - first.at)

    def take(self, seen: Activity, now: float) -> None:
        """Note what the rank does at `now` (seconds of any clock): a share from 0 (computes) to 1 (waits)."""
        share = self._share(seen.report, seen.state == "waiting") if seen.busy else None
        average = self._average(seen)
        self._keep(seen.report if seen.busy else None)
        moment = int(now / self._length)
        if self._newest is None or moment > self._newest:
            unseen = 0 if self._newest is None else min(moment - self._newest - 1, len(self.shares))
            if unseen * self._length <= BRIDGED:
                self.shares.extend([share] * unseen)
            else:  # without a look; it is known when the cell began, and how long the rank has waited since
                busy = min(unseen, int(_running(seen) / self._length))
                self.shares.extend([None] * (unseen - busy) + [average] * busy)
            self.shares.append(share)
            self._newest = moment
        elif share is not None:
            self.shares[-1] = share

    def _share(self, report: State | None, waiting: bool) -> float:
        """Return the part of the time since the report before that the rank stood still in calls."""
        before = self._reports[-1] if self._reports else None
        if report is None or before is None or report is before:
            return float(waiting)
        waited = report.progress.waited - before.progress.waited
        return min(1.0, max(0.0, waited / (report.at - before.at)))

    def _average(self, seen: Activity) -> float:
        """Return the part of the time that the rank stood still since the newest report or the cell began."""
        if seen.report is None:
            return 0.0
        last = self._last
        begun = seen.since if last is None else max(seen.since, last.at)
        waited = seen.report.progress.waited - (last.progress.waited if last is not None else 0.0)
        return min(1.0, max(0.0, waited / (seen.report.at - begun))) if seen.report.at > begun else 0.0

    def _keep(self, report: State | None) -> None:
        if report is None:
            self._reports.clear()
        elif not self._reports or report is not self._reports[-1]:
            if self._reports and report.progress.nbytes < self._reports[-1].progress.nbytes:
                self._reports.clear()  # the process group was formed again and counts from zero
            self._reports.append(report)
            self._last = report
            while report.at - self._reports[0].at > RATE_WINDOW:
                self._reports.popleft()


def _running(seen: Activity) -> float:
    """Return the seconds from the beginning of the rank's cell to its newest report; 0 while it runs none."""
    return seen.report.at - seen.since if seen.busy and seen.report is not None else 0.0
