"""What a dashboard that somebody watches costs the cell that it shows.

The same cell in a kernel with a watched dashboard and in one without. The browser is left out: it draws as
often as it is told to, but it may be on another machine.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

from .model import OURS, Benchmark, Contender, no_more_than
from .notebook import WORLD_SIZE

STEPS = 150
CELL = f"""%%ranks
x, y = torch.rand(1 << 14), torch.rand(256, 256)
for step in range({STEPS}):
    for _ in range(4):
        y = torch.tanh(y @ y)
    dist.all_reduce(x)
"""


def watched() -> Iterator[float]:
    """Seconds of the cell while a view asks for the dashboard as the one in a browser does."""
    yield from _cells("%ranks dashboard")


def unwatched() -> Iterator[float]:
    yield from _cells("pass")


def _cells(before: str) -> Iterator[float]:
    manager, client = start_new_kernel(kernel_name="python3")
    try:
        opened: list[str] = []
        for source in ("%load_ext fourranks", f"%ranks start -n {WORLD_SIZE}", CELL, before):
            _run(client, source, opened)
        while True:
            for comm_id in opened:
                _ask(client, comm_id)
            began = time.perf_counter()
            _run(client, CELL, [])
            yield time.perf_counter() - began
    finally:
        client.stop_channels()
        manager.shutdown_kernel()


def _run(client: BlockingKernelClient, source: str, opened: list[str]) -> None:
    """Run a cell; the widgets that it opens are noted."""

    def note(message: dict) -> None:
        if message["msg_type"] == "comm_open":
            opened.append(message["content"]["comm_id"])
        if message["msg_type"] == "error":
            raise RuntimeError("\n".join(message["content"]["traceback"]))

    client.execute_interactive(source, output_hook=note, timeout=60)


def _ask(client: BlockingKernelClient, comm_id: str) -> None:
    """What a view says while it can be seen."""
    data = {"method": "custom", "content": {"ask": "serve"}}
    client.shell_channel.send(client.session.msg("comm_msg", {"comm_id": comm_id, "data": data}))


BENCHMARKS = (
    Benchmark(
        f"a cell of {STEPS} steps on {WORLD_SIZE} ranks while a dashboard shows it",
        (
            Contender(OURS, watched),
            Contender("the same cell without a dashboard", unwatched, no_more_than(1.02)),
        ),
        repeats=25,
    ),
)
