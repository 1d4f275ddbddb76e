"""`python -m benchmarks.nodes`: measures worlds over two nodes, and writes benchmarks/nodes.md.

Nodes for ssh are network namespaces, those of Ray processes with addresses of their own: all of them are on
this machine. `make nodes` installs Ray and Monarch and runs this; it needs root, for the namespaces.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sshd import network_for_ssh, serving

from .. import table
from ..__main__ import measure
from ..cluster import cluster
from ..model import Benchmark, Result
from .contenders import BENCHMARKS, MONARCH, NODES, RAY, add

PAGE = Path(__file__).parents[1] / "nodes.md"
NOTES = """\
Medians of n measurements taken in turns, each contender in a process of its own; every all-reduce's result
is checked. All nodes are on this one machine and share its cores: what is measured is how long the software
takes, and no network. Four Ranks reaches two network namespaces through a real sshd each, and their ranks
talk over a virtual cable. Ray's two nodes, with two slots each, and Monarch's two hosts talk over the
loopback interface.

- **First time**: from a process that has imported the package, with the nodes up, to the result of the first
  all-reduce on all ranks. Four Ranks connects to both nodes, starts Python there and has torch imported once
  a node. On Ray it also starts the process that talks to Ray, which imports Ray. Ray's own actors and
  Monarch's have their package imported; each actor's process imports torch.
- **Again**: the world was stopped, and another one is started. By ssh the connections and the warm processes
  are kept. On Ray the slots are given back, so that no warm process is kept and torch is imported again.
- **Round trip**: the source `pass` goes to all ranks, and all of them say that it is done. Ranks of Four
  Ranks run it as a cell of an IPython shell, with what it takes to watch them; an actor calls `exec`."""
COLUMNS = "| measured | with | median | min to max | n |\n|---|---|---|---|---|"


@contextlib.contextmanager
def nodes() -> Iterator[None]:
    """Make all nodes, and name them in the environment."""
    with (
        tempfile.TemporaryDirectory() as folder,
        network_for_ssh(Path(folder)) as network,
        serving(network),
        cluster(2) as of_ray,
    ):
        named = {NODES: ",".join(network.nodes), "FOURRANKS_LAUNCHER": network.launcher}
        os.environ.update(named | of_ray.environment)
        yield


def rows(benchmark: Benchmark, results: list[Result]) -> str:
    """The lines of one benchmark."""
    titles = [benchmark.title] + [""] * len(results)
    return "\n".join(_row(title, result) for title, result in zip(titles, results, strict=False))


def _row(title: str, result: Result) -> str:
    figures = [result.reason, "", ""]
    if result.values:
        low, high = (table.in_unit(value, "s") for value in (min(result.values), max(result.values)))
        figures = [table.in_unit(result.median, "s"), f"{low} to {high}", str(len(result.values))]
    return f"| {' | '.join([title, result.contender.name, *figures])} |"


def main() -> None:
    add(RAY)
    sys.path.append(str(MONARCH))  # for its version
    head = table.head("make nodes", "Worlds over two nodes", NOTES, ("torch", "ray", "torchmonarch"))
    pieces = [head, COLUMNS]
    with nodes():
        for benchmark in BENCHMARKS:
            pieces.append(rows(benchmark, measure(benchmark)))
            print(pieces[-1], flush=True)
    PAGE.write_text("\n".join(pieces) + "\n", encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except pytest.skip.Exception as missing:
        sys.exit(f"Nodes cannot be made here: {missing}")
