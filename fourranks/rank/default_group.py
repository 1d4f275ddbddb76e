"""The default process group of one rank: formed, formed anew, and cut when the rank is to be freed."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.rendezvous import _rendezvous_handlers

from ..messages import LOOPBACK, Settings
from . import loopback, rescue
from .arguments import call_on
from .process_group import RecordingProcessGroup

LEAVE_PATIENCE = 0.3  # seconds for the groups of before to be destroyed; most take a few milliseconds


class DefaultGroup:
    """The default process group of one rank, and the rendezvous store behind it.

    Args:
        settings: the rank and its world.
        listener: on rank 0, which serves the store, the descriptor of the socket that the store listens on.
    """

    def __init__(self, settings: Settings, listener: int | None) -> None:
        self._settings = settings
        if listener is not None:
            self._server = dist.TCPStore(
                LOOPBACK,
                settings.store_port,
                is_master=True,
                wait_for_workers=False,
                master_listen_fd=listener,
            )

        _rendezvous_handlers["env"] = self._rendezvous  # what init_process_group() asks by default
        self._generation, self._attempt = 0, 0

    def form(self, generation: int) -> None:
        """Join the group of this generation, leaving the one before."""
        self._leave()
        distributed_c10d._world.group_count = 0  # names must agree, whatever single ranks have tried
        self._generation, self._attempt = generation, 0
        RecordingProcessGroup.recorder.reset()
        dist.init_process_group(self._settings.backend)

    def _leave(self) -> None:
        """Destroy the groups of before, in a thread: Gloo's destructor waits for calls that may never end."""
        groups = list(distributed_c10d._world.pg_map)
        if dist.is_initialized():
            dist.destroy_process_group()
        RecordingProcessGroup.forget_formation()
        gc.collect()  # frames of a collective that failed hold the old groups, and so their connections
        destroyer = threading.Thread(target=groups.clear, daemon=True)
        destroyer.start()
        destroyer.join(LEAVE_PATIENCE)

    def _rendezvous(self, url: str, **_: Any) -> Iterator[tuple[dist.Store, int, int]]:
        """A part of the store for each new default group, so that it finds no addresses of an earlier one."""
        prefix = f"{self._generation}/{self._attempt}"
        store = self._open_store(prefix)
        self._attempt += 1
        everyone = tuple(range(self._settings.world_size))
        RecordingProcessGroup.await_formation(call_on("init_process_group", prefix, everyone))
        yield store, self._settings.rank, self._settings.world_size

    def _open_store(self, prefix: str) -> dist.Store:
        """The part of the store that has this name."""
        store = dist.TCPStore(LOOPBACK, self._settings.store_port, is_master=False)
        loopback.require_own(self._to_store())
        return dist.PrefixStore(prefix, store)

    def feed(self, name: str, rank: int, tag: int, nbytes: int) -> None:
        """Send zeros to a rank that waits for any sender: nothing else frees it. Runs in a helper thread."""
        for group in distributed_c10d._world.pg_map:
            if group.group_name == name:
                zeros = torch.zeros(nbytes, dtype=torch.uint8)
                self._fed = group.inner.send([zeros], dist.get_group_rank(group, rank), tag)

    def cut(self) -> None:
        """Make every operation that waits on a group or its store fail now. Runs in a helper thread."""
        groups = [
            group for group in distributed_c10d._world.pg_map if isinstance(group, RecordingProcessGroup)
        ]
        if RecordingProcessGroup.being_formed is not None:
            groups.append(RecordingProcessGroup.being_formed)
        if self._settings.backend == "nccl" and dist.is_initialized():
            distributed_c10d._abort_process_group()  # in the order in which NCCL does not block
        rescue.cut(self._to_store().union(*(group.connections() for group in groups)))

    def _to_store(self) -> set[rescue.Connection]:
        return {c for c in rescue.tcp_connections() if c.peer_port == self._settings.store_port}
