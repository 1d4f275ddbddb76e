"""The table that `%ranks` shows: what each rank is and does."""

from __future__ import annotations

from html import escape

from ..group import RankStatus

_COLUMNS = ("rank", "pid", "device", "backend", "state", "memory")


class StatusTable:
    """Displays as a table in a notebook and as aligned text elsewhere."""

    def __init__(self, statuses: list[RankStatus]) -> None:
        self._rows = [
            (str(s.rank), str(s.pid), s.device, s.backend, s.state, f"{s.memory_bytes / 2**20:.0f} MiB")
            for s in statuses
        ]

    def __repr__(self) -> str:
        table = [_COLUMNS, *self._rows]
        widths = [max(len(row[column]) for row in table) for column in range(len(_COLUMNS))]
        return "\n".join(
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
            for row in table
        )

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in _COLUMNS)
        rows = "".join(
            "<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in self._rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
