"""A class graded on a Ray cluster of this machine, beside the same locally: `python -m benchmarks.cluster`.

Each node has Ray's own processes, workers and address of its object store, so that what a node's end does is
real; they share this machine's cores, so that how much faster more nodes are is not. One run loses a node in
the middle. All gradebooks are compared, and figures go to benchmarks/cluster.md. `make cluster` installs Ray.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
from nbgrader.api import Gradebook

from .classes import make

TOPIC = "02_collectives"
PAGE = Path(__file__).with_suffix(".md")
STORE = 80 << 20  # bytes of a node's object store, close to Ray's least: a submission is 0.1 MB
TOKEN = {
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": "0123456789abcdef" * 4,
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


class Nodes:
    """A cluster whose nodes can be added and killed; its head runs no submission.

    Attributes:
        environment: for commands that join it.
    """

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "node_name": "head"} | self._small()
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self._nodes: dict[str, Any] = {}
        self.environment = TOKEN | {"RAY_ADDRESS": self._cluster.address}

    def add(self, name: str, cpus: int = 2, env: Mapping[str, str] | None = None) -> None:
        self._nodes[name] = self._cluster.add_node(
            num_cpus=cpus, node_name=name, env_vars=dict(env or {}), **self._small()
        )

    def kill(self, name: str) -> None:
        """End a node as a power cut does."""
        self._cluster.remove_node(self._nodes.pop(name), allow_graceful=False)

    def stop(self) -> None:
        self._cluster.shutdown()

    @staticmethod
    def _small() -> dict[str, Any]:
        return {"object_store_memory": STORE, "include_dashboard": False}


@contextlib.contextmanager
def cluster(count: int) -> Iterator[Nodes]:
    """A cluster of `node0`, `node1` and so on."""
    os.environ.update(TOKEN)  # before Ray is imported, which reads it then
    nodes = Nodes()
    try:
        for number in range(count):
            nodes.add(f"node{number}")
        yield nodes
    finally:
        nodes.stop()


@dataclass(frozen=True)
class Run:
    """One class graded.

    Attributes:
        driver: seconds of processor time of the command's own process, less what it takes for one submission.
        book: the content of the gradebook.
    """

    name: str
    seconds: float
    driver: float
    book: dict[str, Any]


def book(course: Path) -> dict[str, Any]:
    """Return all that a gradebook says of a class."""
    with Gradebook(f"sqlite:///{course}/gradebook.db", "fourranks") as gradebook:
        return {
            submission.student_id: (
                sorted((g.name, g.auto_score, g.manual_score, g.needs_manual_grade) for g in notebook.grades),
                sorted((comment.name, comment.auto_comment) for comment in notebook.comments),
            )
            for submission in gradebook.assignment_submissions(TOPIC)
            for notebook in submission.notebooks
        }


def graded(name: str, course: Path, nodes: Nodes | None = None, kill: str = "") -> Run:
    """Grade a copy of a class; kill a node when a third of it is graded."""
    with tempfile.TemporaryDirectory(dir=course.parent) as temporary:
        copy = Path(shutil.copytree(course, Path(temporary) / "course"))
        program = str(Path(sysconfig.get_path("scripts"), "autograder"))
        command = [program, "grade", TOPIC, "--secret", "twice", *(["--on", "ray"] if nodes else [])]
        environment = os.environ | (nodes.environment if nodes else {})
        first = _timed([*command, "--students", "student0000"], copy, environment)
        done = len(list(copy.glob("refereed/*/*/*.json")))
        everybody = len(list((copy / "submitted").iterdir()))
        third = done + (everybody - done) // 3
        rest = _timed(
            command, copy, environment, (lambda: nodes.kill(kill)) if nodes and kill else None, third
        )
        print(f"{name}: {everybody - done} in {rest[0]:.0f} s, driver {rest[1] - first[1]:.1f} s", flush=True)
        return Run(name, rest[0], rest[1] - first[1], book(copy))


def _timed(
    command: list[str], folder: Path, environment: Mapping[str, str], act: Any = None, at: int = 0
) -> tuple[float, float]:
    """Run a command; return its seconds, and those of its own process's processor time."""
    began, own = time.monotonic(), 0.0
    with subprocess.Popen(command, cwd=folder, env=dict(environment)) as process:
        watched = psutil.Process(process.pid)
        while process.poll() is None:
            with contextlib.suppress(psutil.NoSuchProcess):
                times = watched.cpu_times()
                own = times.user + times.system
            if act and len(list(folder.glob("refereed/*/*/*.json"))) >= at:
                act()
                act = None
            time.sleep(0.2)
    if act:
        raise RuntimeError("the class was graded before a node could be killed")
    return time.monotonic() - began, own


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__.split("\n")[0])
    parser.add_argument("--students", type=int, default=30)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--questions", default="scatter,gather", help='names of answers; "" for all')
    parser.add_argument("--kill-only", action="store_true", help="without the runs that lose no node")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        course = Path(temporary) / "course"
        make(course, options.students, TOPIC, [name for name in options.questions.split(",") if name])
        runs = [graded("this machine, without Ray", course)]
        killed = (f"Ray, {options.nodes} nodes, one killed", options.nodes, "node0")
        whole = ((f"Ray, {options.nodes} nodes", options.nodes, ""), ("Ray, one node", 1, ""))
        for name, count, kill in (killed,) if options.kill_only else (killed, *whole):
            with cluster(count) as nodes:
                runs.append(graded(name, course, nodes, kill))
            PAGE.write_text(_page(options, runs), encoding="utf-8")
    print(PAGE.read_text(encoding="utf-8"))
    sys.exit(1 if any(run.book != runs[0].book for run in runs) else 0)


def _page(options: argparse.Namespace, runs: list[Run]) -> str:
    rest = options.students - 1
    rows = "\n".join(
        f"| {run.name} | {60 * rest / run.seconds:.1f} | {run.driver / rest:.2f} |"
        f" {'yes' if run.book == runs[0].book else 'NO'} |"
        for run in runs
    )
    linux = ".".join(platform.release().split(".")[:2])
    only = " --kill-only" if options.kill_only else ""
    machine = f"{os.cpu_count()} cores, Linux {linux}, torch {version('torch')}"
    return f"""# A class graded on a cluster

`.venv/bin/python -m benchmarks.cluster --students {options.students} --nodes {options.nodes}
--questions {options.questions}{only}`, with `PYTHONPATH=$PWD/.venv/cluster`;
{time.strftime("%F")}, {machine},
Ray {version("ray")}. All nodes are on this machine and share its cores, so that more cannot be faster. The
driver's seconds are the processor time of the process `autograder grade`, which reads, sends, keeps records,
and has nbgrader enter the grades.

| graded on | submissions a minute | driver's seconds a submission | gradebook as without Ray |
|---|---|---|---|
{rows}
"""


if __name__ == "__main__":
    main()
