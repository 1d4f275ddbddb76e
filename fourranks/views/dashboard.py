"""`%ranks dashboard`: each rank's activity, in the browser, while cells run.

A view asks to be served every second or so while somebody can see it. As long as one asks, a thread looks at
the world and sends what has changed; when nobody has asked for a while the thread ends. The buttons' messages
arrive in a thread, too, where the front end has subshells (JupyterLab 4.4); elsewhere after the cell.
"""

from __future__ import annotations

import contextvars
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets
import traitlets
from IPython.display import display

from ..errors import FourRanksError
from ..group import RankGroup
from ..live import Meter, RankStatus
from .dashboard_frame import MOMENTS, TICK, frame
from .status import StatusTable
from .widget_places import with_places

LEASE = 4.0  # seconds that a view is served after it asked; it asks more often
ACTIONS = {"interrupt": "Interrupting …", "restart": "Restarting …", "stop": "Stopping …"}


class Dashboard(anywidget.AnyWidget):
    """One widget for all places where the dashboard is shown.

    What is displayed, and stored, is a table of the ranks; in the browser the live view stands in its place.

    Args:
        world: tells which world to show, None if there is none.
    """

    _esm = with_places(Path(__file__).with_suffix(".js"))
    _css = Path(__file__).with_suffix(".css")
    place = traitlets.Unicode().tag(sync=True)  # class of the elements that views stand in
    frame = traitlets.Dict().tag(sync=True)  # all that a view draws
    notice = traitlets.Unicode().tag(sync=True)  # the outcome of a button

    def __init__(self, world: Callable[[], RankGroup | None]) -> None:
        self._closed = threading.Event()
        self._server: threading.Thread | None = None
        self._pane: ipywidgets.Output | None = None  # beside the notebook
        super().__init__(place=f"fourranks-{uuid.uuid4().hex}")
        self._world = world
        self._watched: RankGroup | None = None  # that the meters belong to
        self._meters: list[Meter] = []
        self._asked = 0.0  # when a view last did
        self._asked_between_cells = False  # the front end has no subshells: nothing arrives while a cell runs
        self._looking = threading.Lock()
        self._lock = threading.Lock()
        self.on_msg(self._hear)
        self._leave_routing_to_the_front_end()

    def show(self) -> None:
        """Display it under the running cell."""
        self.look()
        display(self)

    def show_beside(self) -> None:
        """Display it in a pane beside the notebook, in place of the one before; only JupyterLab has panes."""
        from sidecar import Sidecar  # needed for this alone

        self.look()
        self._close_pane()
        self._pane = Sidecar(title="Ranks", anchor="split-right")
        self._pane.append_display_data(self)

    def close(self) -> None:
        """Stop live updates; the last table stays."""
        self._close_pane()
        self._closed.set()
        if server := self._server:
            server.join()
        super().close()

    def look(self) -> None:
        """Send what the ranks do now, if that is another thing than before."""
        with self._looking:
            world = self._world()
            seen = world.snapshot() if world is not None else []
            if world is not self._watched or len(seen) != len(self._meters):
                self._watched, self._meters = world, [Meter(MOMENTS, TICK) for _ in seen]
            for meter, activity in zip(self._meters, seen, strict=True):
                meter.take(activity, time.monotonic())
            self.frame = frame(world, seen, self._meters)

    # --- internals ---------------------------------------------------------------------------------------

    def _close_pane(self) -> None:
        if self._pane is not None:
            self._pane.close()

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, str], dict[str, Any]]:
        world = self._world()
        ranks = world.status() if world is not None else []
        table, when = StatusTable(ranks), _when(ranks)
        html = f'<div class="{self.place}"><div>{table._repr_html_()}<p>{when}</p></div></div>'
        return {"text/plain": f"{table!r}\n{when}", "text/html": html}, {}

    def _hear(self, _: Any, message: Any, buffers: Any) -> None:
        """Hear from a view that it is watched, or that a button was pressed."""
        match message:
            case {"ask": "serve"}:
                self._serve_on()
            case {"ask": action} if action in ACTIONS:
                self._press(action)
        self.send({"heard": True})

    def _press(self, action: str) -> None:
        world = self._world()
        if world is None:
            return
        self.notice = ACTIONS[action]
        try:
            getattr(world, action)()
            self.notice = ""
        except FourRanksError as error:
            self.notice = str(error)
        self.look()

    def _serve_on(self) -> None:
        with self._lock:
            self._asked = time.monotonic()
            self._asked_between_cells = threading.current_thread() is threading.main_thread()
            if self._server is None and not self._closed.is_set():
                # In this message's context, so that answers go to the front end's shell that asked.
                run = contextvars.copy_context().run
                self._server = threading.Thread(target=run, args=(self._serve,), name="fourranks dashboard")
                self._server.daemon = True
                self._server.start()

    def _serve(self) -> None:
        try:
            while self._is_watched():
                self.look()
                self._closed.wait(TICK)
        finally:
            with self._lock:
                self._server = None

    def _is_watched(self) -> bool:
        if self._closed.is_set():
            return False
        cannot_ask = self._asked_between_cells and self._watched is not None and self._watched.busy
        return cannot_ask or time.monotonic() - self._asked < LEASE

    def _leave_routing_to_the_front_end(self) -> None:
        """Let a view's messages go where the front end sends them: to a subshell, if it has one.

        ipykernel 7.4 hands them to the shell that spoke last: the main one, where cells run.
        """
        if self.comm is not None:
            self.comm._reply_subshell_for = lambda data, default: default


def _when(ranks: Sequence[RankStatus]) -> str:
    """Say of a table that stays in the notebook when it was true."""
    were = "How the ranks were" if ranks else "No ranks were running"
    return f"{were} on {time.strftime('%Y-%m-%d at %H:%M:%S')}. Run %ranks dashboard again to see them live."
