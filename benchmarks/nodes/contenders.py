"""Measurements on two nodes. `__main__` makes the nodes, and names them in the environment."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..contender import COURSE
from ..model import Benchmark, Contender
from ..notebook import WORLD_SIZE, run
from ..peers import free_port
from ..start import FIRST_CELL
from .trainer import Trainer

NODES = "BENCHMARK_NODES"  # environment variable: what --nodes gets
RAY, MONARCH = COURSE / ".venv" / "cluster", COURSE / ".venv" / "monarch"  # made by make
IN_A_ROW = 20  # round trips; their median is one measurement: the first finds the processes cold
PER_NODE = WORLD_SIZE // 2
HOST_PATIENCE = 60.0  # seconds for Monarch's hosts to answer
HOST = (
    "from monarch.actor import run_worker_loop_forever as run; run(address={!r}, ca='trust_all_connections')"
)

# --- Four Ranks ------------------------------------------------------------------------------------------


def _local() -> str:
    return f"%ranks start -n {WORLD_SIZE}"


def _by_ssh() -> str:
    return f"%ranks start -n {WORLD_SIZE} --nodes {os.environ[NODES]}"


def _on_ray() -> str:
    add(RAY)
    return f"%ranks start -n {WORLD_SIZE} --on ray"


def _cold_starts(start: str) -> Iterator[float]:
    from fourranks import zygote
    from fourranks.nodes import choice

    run("%load_ext fourranks")
    while True:
        zygote.stop_shared()
        choice.disconnect()
        yield _start(start)


def _starts(start: str) -> Iterator[float]:
    run("%load_ext fourranks")
    _start(start)
    while True:
        yield _start(start)


def _start(start: str) -> float:
    began = time.monotonic()
    run(start)
    run(FIRST_CELL)
    took = time.monotonic() - began
    run("%ranks stop")
    return took


def _cells(start: str) -> Iterator[float]:
    run("%load_ext fourranks")
    run(start)
    yield from _round_trips(lambda: run("%%ranks\npass"))


def local_cold() -> Iterator[float]:
    return _cold_starts(_local())


def ssh_cold() -> Iterator[float]:
    return _cold_starts(_by_ssh())


def ray_cold() -> Iterator[float]:
    return _cold_starts(_on_ray())


def local_again() -> Iterator[float]:
    return _starts(_local())


def ssh_again() -> Iterator[float]:
    return _starts(_by_ssh())


def ray_again() -> Iterator[float]:
    return _starts(_on_ray())


def local_cells() -> Iterator[float]:
    return _cells(_local())


def ssh_cells() -> Iterator[float]:
    return _cells(_by_ssh())


def ray_cells() -> Iterator[float]:
    return _cells(_on_ray())


# --- Ray's own actors ------------------------------------------------------------------------------------


def actors_cold() -> Iterator[float]:
    add(RAY)
    import ray

    while True:
        began = time.monotonic()
        _join()
        yield _until_formed(began)[0]
        ray.shutdown()


def actors_again() -> Iterator[float]:
    add(RAY)
    _join()
    import ray

    while True:
        took, actors = _until_formed(time.monotonic())
        yield took
        for actor in actors:
            ray.kill(actor)


def actors_cells() -> Iterator[float]:
    add(RAY)
    _join()
    import ray

    _, actors = _until_formed(time.monotonic())
    yield from _round_trips(lambda: ray.get([actor.run.remote("pass") for actor in actors]))


def _join() -> None:
    import ray

    ray.init(os.environ["RAY_ADDRESS"], log_to_driver=False)


def _until_formed(began: float) -> tuple[float, list[Any]]:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes = [node["NodeID"] for node in ray.nodes() if node["Resources"].get("CPU")]
    places = [NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes for _ in range(PER_NODE)]
    # No processor is kept for them: in another process Four Ranks' ranks have them all.
    actors = [
        ray.remote(num_cpus=0, scheduling_strategy=place)(Trainer).remote()  # type: ignore[untyped-decorator]
        for place in places
    ]
    port = free_port()
    sums = ray.get([actor.form.remote(port, rank, WORLD_SIZE) for rank, actor in enumerate(actors)])
    took = time.monotonic() - began
    _require_sum(sums)
    return took, actors


# --- Monarch ---------------------------------------------------------------------------------------------


def monarch_cold() -> Iterator[float]:
    with _hosts() as attach:
        while True:
            began = time.monotonic()
            hosts = attach()
            took, _, _ = _procs_formed(hosts, began)
            yield took
            hosts.stop().get()


def monarch_again() -> Iterator[float]:
    with _hosts() as attach:
        hosts = attach()
        while True:
            took, procs, _ = _procs_formed(hosts, time.monotonic())
            yield took
            procs.stop().get()


def monarch_cells() -> Iterator[float]:
    with _hosts() as attach:
        _, _, trainers = _procs_formed(attach(), time.monotonic())
        yield from _round_trips(lambda: trainers.run.call("pass").get())


@contextlib.contextmanager
def _hosts() -> Iterator[Callable[[], Any]]:
    """Start the two processes that stand for nodes; yields what attaches to them."""
    add(MONARCH)
    from monarch.actor import attach_to_workers, enable_transport

    addresses = [f"tcp://127.0.0.1:{free_port()}" for _ in range(2)]
    enable_transport(f"tcp://127.0.0.1:{free_port()}")
    hosts = [subprocess.Popen([sys.executable, "-c", HOST.format(address)]) for address in addresses]
    try:
        for address in addresses:
            _wait_for(int(address.rpartition(":")[2]))
        yield lambda: attach_to_workers(ca="trust_all_connections", workers=addresses)
    finally:
        for host in hosts:
            host.kill()
            host.wait()


_numbers = itertools.count()


def _procs_formed(hosts: Any, began: float) -> tuple[float, Any, Any]:
    from .monarch_trainer import MonarchTrainer

    procs = hosts.spawn_procs({"gpus": PER_NODE})
    trainers = procs.spawn(f"trainers{next(_numbers)}", MonarchTrainer)
    sums = [each for _, each in trainers.form.call(free_port(), WORLD_SIZE).get().items()]
    took = time.monotonic() - began
    _require_sum(sums)
    return took, procs, trainers


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + HOST_PATIENCE
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port)).close()
            return
        time.sleep(0.05)


# --- all -------------------------------------------------------------------------------------------------


def add(folder: Path) -> None:
    """Let this process, and those that it starts, import what lies in a folder."""
    sys.path.append(str(folder))
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join([*filter(None, before), str(folder)])


def _require_sum(sums: list[float]) -> None:
    if sums != [float(WORLD_SIZE)] * WORLD_SIZE:
        raise RuntimeError(f"a wrong all-reduce: {sums}")


def _round_trips(cell: Callable[[], object]) -> Iterator[float]:
    cell()  # the first imports what it needs
    while True:
        yield statistics.median(_seconds(cell) for _ in range(IN_A_ROW))


def _seconds(cell: Callable[[], object]) -> float:
    began = time.perf_counter()
    cell()
    return time.perf_counter() - began


HERE = "Four Ranks, this machine"
SSH = "Four Ranks, two nodes by ssh"
ON_RAY = "Four Ranks, two nodes of a Ray cluster"
ACTORS = "actors of Ray's, the same two nodes"
PROCS = "actors of Monarch's, two hosts"
BENCHMARKS = (
    Benchmark(
        f"{WORLD_SIZE} ranks ready, first all-reduce done; first time, nothing connected",
        (
            Contender(HERE, local_cold),
            Contender(SSH, ssh_cold),
            Contender(ON_RAY, ray_cold),
            Contender(ACTORS, actors_cold),
            Contender(PROCS, monarch_cold),
        ),
        repeats=5,
        enough=120.0,
    ),
    Benchmark(
        "the same again, from the same notebook",
        (
            Contender(HERE, local_again),
            Contender(SSH, ssh_again),
            Contender(ON_RAY, ray_again),
            Contender(ACTORS, actors_again),
            Contender(PROCS, monarch_again),
        ),
        repeats=5,
    ),
    Benchmark(
        f"round trip of the cell `pass` on {WORLD_SIZE} ranks, {IN_A_ROW} in a row",
        (
            Contender(HERE, local_cells),
            Contender(SSH, ssh_cells),
            Contender(ON_RAY, ray_cells),
            Contender(ACTORS, actors_cells),
            Contender(PROCS, monarch_cells),
        ),
        repeats=9,
    ),
)
