"""Starts and ends the peers: ipyparallel's engines, nbdistributed's workers, Ray's actors."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from typing import Any

from .notebook import ALL_REDUCE, CHECK, WORLD_SIZE, run, shell

FORM_GROUP = """%%px
import torch
import torch.distributed as dist
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:{port}", rank=rank, world_size={world_size})
"""


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@contextlib.contextmanager
def engines() -> Iterator[tuple[Any, Any]]:
    """ipyparallel's cluster with an engine a rank, and the client connected to it; `%%px` works."""
    import ipyparallel

    shell()  # that `%%px` is added to
    cluster = ipyparallel.Cluster(n=WORLD_SIZE)
    try:
        yield cluster, cluster.start_and_connect_sync(activate=True)
    finally:
        cluster.stop_cluster_sync()


def all_reduce_on_engines(client: Any) -> None:
    """Make ranks of ipyparallel's engines, up to a first all-reduce; torch is imported on the way."""
    client[:].scatter("rank", range(WORLD_SIZE), flatten=True, block=True)
    run(FORM_GROUP.format(port=free_port(), world_size=WORLD_SIZE))
    run(f"%%px\n{ALL_REDUCE}{CHECK}")


@contextlib.contextmanager
def nbdistributed_workers() -> Iterator[Any]:
    """nbdistributed's workers, connected; yields its magics, for what it has no public function for."""
    from nbdistributed.magic import DistributedMagic

    # It ends by `pkill` of every process on the machine with "worker" in its command line.
    DistributedMagic.shutdown_all = classmethod(lambda cls: None)
    run("%load_ext nbdistributed")
    run(f"%dist_init -n {WORLD_SIZE}")
    magics = shell().magics_manager.registry["DistributedMagic"]
    try:
        _wait_until_connected(magics)
        yield magics
    finally:
        for process in magics._process_manager.processes:
            process.kill()
            process.communicate()
        magics._comm_manager.shutdown()


def check_on_workers(magics: Any) -> None:
    """Whether the all-reduce was one; errors in nbdistributed's cells are printed, not raised."""
    answers = magics._comm_manager.send_to_all("execute", CHECK, timeout=10)
    if errors := [answer["error"] for answer in answers.values() if "error" in answer]:
        raise RuntimeError(f"nbdistributed: {errors[0]}")


def _wait_until_connected(magics: Any) -> None:
    """`%dist_init` returns after two seconds, ready or not, and a cell sent too early is lost for 30."""
    deadline = time.monotonic() + 60
    while True:
        try:
            magics._comm_manager.send_to_all("get_status", {}, timeout=0.1)
            return
        except TimeoutError:
            if time.monotonic() > deadline:
                raise


class Interpreter:
    """One of Ray's actors: it executes source text, as a rank does."""

    def run(self, source: str) -> None:
        exec(source, {})


@contextlib.contextmanager
def actors() -> Iterator[None]:
    """Ray's actors, one a rank, as `actors` in the notebook, beside `ray`; nothing leaves this machine."""
    from .cluster import STORE, TOKEN

    os.environ.update(TOKEN)  # before Ray is imported, which reads it then
    import ray

    settings = {"address": "local", "_node_ip_address": "127.0.0.1", "object_store_memory": STORE}
    ray.init(num_cpus=WORLD_SIZE, include_dashboard=False, log_to_driver=False, **settings)
    try:
        started = [ray.remote(num_cpus=1)(Interpreter).remote() for _ in range(WORLD_SIZE)]
        shell().push({"ray": ray, "actors": started})
        yield
    finally:
        ray.shutdown()
