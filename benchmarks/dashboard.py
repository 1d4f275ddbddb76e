"""The cost of a watched dashboard, to the cell that it shows.

The same cell on the same ranks with a watched dashboard and without one, in turns: two worlds differ by more
than a dashboard costs. The browser is left out: it draws as often as it is told to, but it may be on another
machine.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

from .model import OURS, Benchmark, Contender, at_most
from .notebook import WORLD_SIZE

STEPS = 60
TURNS = 5  # of each kind, in one measurement
CELL = f"""%%ranks
x, y = torch.rand(1 << 14), torch.rand(256, 256)
for step in range({STEPS}):
    for _ in range(4):
        y = torch.tanh(y @ y)
    dist.all_reduce(x)
"""
CLOSE = "import ipywidgets; ipywidgets.Widget.close_all()"


def watched_by_unwatched() -> Iterator[float]:
    """Time of the cell while a view asks for the dashboard as one in a browser does, by its time without."""
    manager, client = start_new_kernel(kernel_name="python3")
    try:
        for source in ("%load_ext fourranks", f"%ranks start -n {WORLD_SIZE}", CELL):
            _run(client, source)
        while True:
            turns = [(_watched(client), _seconds(client)) for _ in range(TURNS)]
            watched, unwatched = map(statistics.median, zip(*turns, strict=True))
            yield watched / unwatched
    finally:
        client.stop_channels()
        manager.shutdown_kernel()


def _watched(client: BlockingKernelClient) -> float:
    for comm_id in _run(client, "%ranks dashboard"):
        _ask(client, comm_id)
    seconds = _seconds(client)
    _run(client, CLOSE)
    return seconds


def _seconds(client: BlockingKernelClient) -> float:
    began = time.perf_counter()
    _run(client, CELL)
    return time.perf_counter() - began


def _run(client: BlockingKernelClient, source: str) -> list[str]:
    """Run a cell; returns the widgets that it opened."""
    opened = []

    def note(message: dict) -> None:
        if message["msg_type"] == "comm_open":
            opened.append(message["content"]["comm_id"])
        if message["msg_type"] == "error":
            raise RuntimeError("\n".join(message["content"]["traceback"]))

    client.execute_interactive(source, output_hook=note, timeout=60)
    return opened


def _ask(client: BlockingKernelClient, comm_id: str) -> None:
    """The messages of a view that can be seen."""
    data = {"method": "custom", "content": {"ask": "serve"}}
    client.shell_channel.send(client.session.msg("comm_msg", {"comm_id": comm_id, "data": data}))


BENCHMARKS = (
    Benchmark(
        f"a cell of {STEPS} steps on {WORLD_SIZE} ranks while a dashboard shows it, divided by its time "
        "without (the same ranks, in turns)",
        (Contender(OURS, watched_by_unwatched, at_most(1.01, "")),),
        repeats=15,
        unit="",
    ),
)
