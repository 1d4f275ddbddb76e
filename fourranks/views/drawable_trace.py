"""`DrawableTrace`: the `Trace` that a reader gets, with the tables and figures that can be made of it.

Drawing code is imported when it is asked for: matplotlib takes longer to import than a world to start.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ..trace import Trace, chrome
from .operation_table import OperationTable

if TYPE_CHECKING:
    from .player import Player
    from .style import Figure


class DrawableTrace(Trace):
    """The ranks' activity in the cells and calls between entering and leaving `group.trace()`.

    Its attributes are those of `Trace`.
    """

    def table(self) -> OperationTable:
        """List calls, bytes, time, algbw and busbw of each operation, and the time lost waiting."""
        return OperationTable(self)

    def timeline(self, title: str = "", computing: str = "") -> Figure:
        """Draw a Gantt chart: which ranks computed, communicated, and stood still for others.

        Args:
            title: a headline; by default what was recorded.
            computing: the legend's name for the time of computing, for instance where it is pretended.
        """
        from .timeline import timeline

        return timeline(self, title, computing)

    def traffic(self, title: str = "") -> Figure:
        """Draw the `traffic_matrix`."""
        from .traffic import traffic

        return traffic(self, title)

    def steps(self, title: str = "") -> Player:
        """Draw the messages round by round, and what the traced variable held in between."""
        from .steps import steps

        return steps(self, title)

    def to_chrome(self, path: str | os.PathLike[str]) -> Path:
        """Write the trace for https://ui.perfetto.dev or chrome://tracing; returns the file's path.

        A path that ends in ".gz" is compressed.
        """
        return chrome.write(self, Path(path))
