"""Traces made by hand, for tests of what is made of them."""

from fourranks.protocol.calls import Call, Record
from fourranks.views.drawable_trace import DrawableTrace


def call(op, start_ms, end_ms, waited_ms=None, ranks=(0, 1), **fields):
    """A recorded call; unless `waited_ms` says otherwise the rank stood still from its start to its end."""
    waited_ms = (end_ms or start_ms) - start_ms if waited_ms is None else waited_ms
    end = None if end_ms is None else end_ms / 1000
    fields = {"group": "0", "nbytes": 4, "asynchronous": False, **fields}
    return Call(op=op, ranks=ranks, start=start_ms / 1000, end=end, waited=waited_ms / 1000, **fields)


def cell(*calls_by_rank, start_ms=None, end_ms=None):
    """One cell; by default every rank is in it from the first call's start to the last call's end."""
    calls = [call for row in calls_by_rank for call in row]
    start = min((call.start for call in calls), default=0) if start_ms is None else start_ms / 1000
    end = max((call.end or call.start for call in calls), default=1) if end_ms is None else end_ms / 1000
    return {rank: Record(start, end, list(row), {}) for rank, row in enumerate(calls_by_rank)}


def trace(*calls_by_rank, **moments):
    """A trace of one cell, from the calls of each rank."""
    return DrawableTrace(len(calls_by_rank), cells=[cell(*calls_by_rank, **moments)])
