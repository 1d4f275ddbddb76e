"""The table that `%ranks` shows: each rank's process, state and memory."""

from __future__ import annotations

from ..live import RankStatus
from .table import as_html, as_text

_COLUMNS = ("rank", "pid", "device", "backend", "state", "memory")
_GPU_COLUMNS = ("GPU", "GPU memory")
_NODE_COLUMN = "node"


class StatusTable:
    """Displays as a table in a notebook and as aligned text elsewhere; GPUs and nodes have columns."""

    def __init__(self, statuses: list[RankStatus]) -> None:
        on_gpus = any(status.gpu for status in statuses)
        self._columns = _COLUMNS + (_GPU_COLUMNS if on_gpus else ())
        self._rows = [_cells(status)[: len(self._columns)] for status in statuses]
        if any(status.node for status in statuses):
            self._columns = (_COLUMNS[0], _NODE_COLUMN, *self._columns[1:])
            self._rows = [
                (row[0], status.node, *row[1:]) for row, status in zip(self._rows, statuses, strict=True)
            ]

    def __repr__(self) -> str:
        return as_text(self._columns, self._rows)

    def _repr_html_(self) -> str:
        return as_html(self._columns, self._rows)


def _cells(status: RankStatus) -> tuple[str, ...]:
    return (
        str(status.rank),
        str(status.pid),
        status.device,
        status.backend,
        status.state,
        _mebibytes(status.memory_bytes),
        status.gpu,
        _mebibytes(status.gpu_bytes),
    )


def _mebibytes(nbytes: int) -> str:
    return f"{nbytes / 2**20:.0f} MiB"
