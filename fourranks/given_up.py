"""Finds calls that ranks have given up: they failed there, as other ranks never came to them.

Nobody waits any more, so there is no deadlock to prove; what is known of the ranks is told in the same terms.
"""

from __future__ import annotations

from .protocol.calls import Call
from .protocol.progress import Progress
from .reports import Reports
from .watch import Deadlock, End, Ended, RankView, missing


def calls_given_up(views: dict[int, RankView]) -> Deadlock | None:
    """Find a collective that has failed on ranks, which raised its error, as others never came to it.

    One that has timed out comes first: that closes connections, which may be why another one has failed.
    """
    reports = Reports({rank: view.progress for rank, view in views.items()})
    failed = {
        rank: call
        for rank, view in views.items()
        if _raised(view) and (call := _last_call(view.progress)) in view.progress.failed and call is not None
        if not call.is_point_to_point and reports.late(call) and (call.broke_group or has_timed_out(call))
    }
    if not failed:
        return None
    first = next(filter(has_timed_out, failed.values()), next(iter(failed.values())))
    failed = {
        rank: call
        for rank, call in failed.items()
        if call.place_in_group == first.place_in_group and has_timed_out(call) == has_timed_out(first)
    }
    late = sorted(reports.late(first))
    if any(_raised(views[rank]) or views[rank].ended == Ended(End.DIED) for rank in late):
        return None  # that comes first
    waiting = {rank: call for rank in late if (call := views[rank].progress.blocked) is not None}
    whom = {rank: tuple(sorted(missing(rank, call, reports))) for rank, call in waiting.items()}
    return Deadlock(failed | waiting, dict.fromkeys(failed, tuple(late)) | whom, views, failed=failed)


def has_timed_out(call: Call) -> bool:
    """Tell whether a call has ended at its timeout."""
    return call.is_limited and "timed out" in call.error.lower()


def _raised(view: RankView) -> bool:
    return view.ended is not None and view.ended.how is End.RAISED


def _last_call(progress: Progress) -> Call | None:
    """Return the last call of a rank, if it is of this cell."""
    last = max(progress.recent, key=lambda call: call.index, default=None)
    return last if last is not None and progress.passes.get((last.file, last.line)) else None
