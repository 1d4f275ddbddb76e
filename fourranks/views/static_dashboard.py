"""The dashboard where the packages of its live view are not installed: one moment."""

from __future__ import annotations

import time
from html import escape
from importlib.util import find_spec

from ..group import RankGroup
from ..live import Meter
from .dashboard_frame import MOMENTS, TICK, frame
from .table import as_html, as_text

_COLUMNS = ("rank", "doing", "where", "memory")
_NODE_COLUMN = "node"
_INSTALL = "%pip install 'fourranks[dashboard]', restart the kernel, and reload the page."
LIVE_NEEDS = f"For a live dashboard: {_INSTALL}"
PANE_NEEDS = f"It stands under this cell. To have it beside the notebook: {_INSTALL}"


def can_be_live() -> bool:
    """Return whether the packages of the live view are installed."""
    return all(find_spec(name) is not None for name in ("anywidget", "ipywidgets"))


def can_stand_beside() -> bool:
    """Return whether the package is installed that opens a pane beside the notebook."""
    return find_spec("sidecar") is not None


class StaticDashboard:
    """Displays what each rank does and waits for, as it was when this was made.

    Args:
        world: the world to show, None if there is none.
    """

    def __init__(self, world: RankGroup | None) -> None:
        seen = world.snapshot() if world is not None else []
        now = frame(world, seen, [Meter(MOMENTS, TICK) for _ in seen])
        self._title = f"{now['title']} ({time.strftime('%Y-%m-%d at %H:%M:%S')})"
        on_nodes = any(row["node"] for row in now["ranks"])
        self._columns = (_COLUMNS[0], _NODE_COLUMN, *_COLUMNS[1:]) if on_nodes else _COLUMNS
        self._rows = [tuple(str(row[column]) for column in self._columns) for row in now["ranks"]]

    def __repr__(self) -> str:
        table = [as_text(self._columns, self._rows)] if self._rows else []
        return "\n".join([self._title, *table, LIVE_NEEDS])

    def _repr_html_(self) -> str:
        table = as_html(self._columns, self._rows) if self._rows else ""
        return f"<div><p>{escape(self._title)}</p>{table}<p>{escape(LIVE_NEEDS)}</p></div>"
