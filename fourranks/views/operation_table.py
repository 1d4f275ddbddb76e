"""The table of a trace: what each operation moved, how long it took, what ranks lost waiting."""

from __future__ import annotations

from dataclasses import asdict
from html import escape
from typing import TYPE_CHECKING, Any

from ..errors import format_ranks
from ..operations import Summary, summarize
from . import units

if TYPE_CHECKING:
    from ..trace import Trace

_CAPTION = (
    "bytes: as nccl-tests counts (KiB = 1024 B, GB = 10⁹ B). time: from the last rank's arrival until the "
    "last rank has its data. lost: ranks standing still for one that had not come yet, added up over ranks."
)


class OperationTable:
    """Displays as a table in a notebook and as aligned text elsewhere; one row for each operation and group.

    Bytes are sizes S as nccl-tests defines them, not what went over the wire. A collective that four ranks
    make, or a send with its receive, is one call. Its time is that from the arrival of its last rank until
    the last rank had its data, so that late ranks do not look like a slow network; what they cost the others
    is in `lost`, in seconds of ranks. Calls that were in flight at the same time are each counted in full. An
    asynchronous call whose end was not noted ends when it was waited for; calls without any end are counted,
    but not timed.

    Attributes:
        rows: the numbers, in base units (`operations.Summary`).
    """

    def __init__(self, trace: Trace) -> None:
        self.rows = list(summarize(trace.operations))

    @property
    def records(self) -> list[dict[str, Any]]:
        """The rows as plain dicts."""
        return [asdict(row) for row in self.rows]

    @property
    def caption(self) -> str:
        """What the columns mean."""
        untimed = sum(row.untimed for row in self.rows)
        calls = f"{untimed} call{'s' * (untimed != 1)}"
        return _CAPTION + (f" The end of {calls} is not known and not in the time." if untimed else "")

    def __repr__(self) -> str:
        if not self.rows:
            return "no communication recorded"
        table = self._texts()
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        return "\n".join(
            "  ".join(
                text.rjust(width) if column else text.ljust(width)
                for column, (text, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in table
        )

    def _repr_html_(self) -> str:
        if not self.rows:
            return "<p>no communication recorded</p>"
        head, *body = self._texts()
        rows = "".join(f"<tr>{_cells('td', row)}</tr>" for row in body)
        table = f"<table><thead><tr>{_cells('th', head)}</tr></thead><tbody>{rows}</tbody></table>"
        return (
            f'{table}<p style="font-size: smaller; opacity: 0.75; margin: 0.3em 0">{escape(self.caption)}</p>'
        )

    def _texts(self) -> list[tuple[str, ...]]:
        """Head and rows; the group is named where there are several."""
        several = len({row.ranks for row in self.rows}) > 1
        head = ("operation", "ranks", "calls", "bytes", "time", "algbw", "busbw", "lost")
        table = [head, *map(_text, self.rows)]
        return table if several else [(row[0], *row[2:]) for row in table]


def _text(row: Summary) -> tuple[str, ...]:
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


def _cells(tag: str, texts: tuple[str, ...]) -> str:
    left, *rest = (escape(text) for text in texts)
    return f'<{tag} style="text-align: left">{left}</{tag}>' + "".join(
        f'<{tag} style="text-align: right">{text}</{tag}>' for text in rest
    )
