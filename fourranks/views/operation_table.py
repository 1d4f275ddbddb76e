"""The table of a trace: bytes and time of each operation, and the time that ranks lost waiting."""

from __future__ import annotations

from dataclasses import asdict
from html import escape
from typing import Any

from ..naming import counted, format_ranks
from ..protocol.calls import MAX_CALLS
from ..trace import Trace
from ..trace.operations import Summary, summarize
from . import units
from .table import Row, as_html, as_text

_HEAD = ("operation", "ranks", "calls", "bytes", "time", "algbw", "busbw", "lost")
_CAPTION = (
    "bytes: as nccl-tests counts (KiB = 1024 B, GB = 10⁹ B). time: from the last rank's arrival until the "
    "last rank has its data. lost: time that ranks waited for a late rank, added up over ranks."
)


class OperationTable:
    """Displays as a table in a notebook and as aligned text elsewhere; one row for each operation and group.

    Bytes are sizes S as nccl-tests defines them, not what went over the wire. A collective that four ranks
    make, or a send with its receive, is one call. Its time is that from the arrival of its last rank until
    the last rank had its data, so that late ranks do not look like a slow network; their cost to the
    others is in `lost`, in seconds of ranks. Calls that were in flight at the same time are each counted in
    full. An asynchronous call whose end was not noted ends when it was waited for; calls without any end are
    counted, but not timed.

    Attributes:
        rows: the numbers, in base units (`operations.Summary`).
    """

    def __init__(self, trace: Trace) -> None:
        self.rows = list(summarize(trace.operations))
        records = (record for cell in trace.cells for record in cell.values())
        self._cut_off = any(len(record.calls) >= MAX_CALLS for record in records)

    @property
    def records(self) -> list[dict[str, Any]]:
        """The rows as plain dicts."""
        return [asdict(row) for row in self.rows]

    @property
    def caption(self) -> str:
        """The meaning of the columns, and the limits of it."""
        notes = [_CAPTION]
        if untimed := sum(row.untimed for row in self.rows):
            notes.append(f"The end of {counted(untimed, 'call')} is not known and not in the time.")
        if self._cut_off:
            notes.append(f"Of each rank the first {MAX_CALLS:,} calls of a cell were recorded.")
        return " ".join(notes)

    def __repr__(self) -> str:
        if not self.rows:
            return "no communication recorded"
        return as_text(*self._texts(), numbers=True)

    def _repr_html_(self) -> str:
        if not self.rows:
            return "<p>no communication recorded</p>"
        table = as_html(*self._texts(), numbers=True)
        return (
            f'{table}<p style="font-size: smaller; opacity: 0.75; margin: 0.3em 0">{escape(self.caption)}</p>'
        )

    def _texts(self) -> tuple[Row, list[Row]]:
        """Return the head and the rows; the group is named where there are several."""
        head: Row = _HEAD
        body = [_text(row) for row in self.rows]
        if len({row.ranks for row in self.rows}) > 1:
            return head, body
        return _without_ranks(head), [_without_ranks(row) for row in body]


def _text(row: Summary) -> Row:
    return (
        row.op,
        format_ranks(row.ranks),
        str(row.calls),
        units.size(row.nbytes),
        units.time(row.seconds),
        units.rate(row.algbw),
        units.rate(row.busbw),
        units.time(row.lost),
    )


def _without_ranks(row: Row) -> Row:
    return (row[0], *row[2:])
