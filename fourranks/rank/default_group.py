"""The default process group of one rank: formed, formed again, and cut when the rank is to be freed."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore
from torch.distributed import distributed_c10d

from ..protocol.messages import Settings
from . import connection_owner, cuda, gloo, kept, own_groups, patches, rescue, waits
from .describe import call_on
from .process_group import RecordingProcessGroup
from .stores import DEFAULT_TIMEOUT
from .threads import Helper

# As torch has them: readers may replace these functions, and `script` has the first attach.
TORCH_INIT, TORCH_DESTROY = distributed_c10d.init_process_group, distributed_c10d.destroy_process_group
DESTRUCTION_PATIENCE = 10.0  # seconds; groups of calls that never end are not destroyed


class DefaultGroup:
    """The default process group of one rank, and the rendezvous store behind it.

    Args:
        settings: the rank and its world.
        listener: on rank 0, which serves the store, the descriptor of the socket that the store listens on.
    """

    def __init__(self, settings: Settings, listener: int | None) -> None:
        self._settings = settings
        connection_owner.expect(settings.location)
        self._spare = rescue.SpareDescriptor()
        self._before = rescue.tcp_connections()
        self._store: TCPStore | None = None  # this rank's connection to the store
        if listener is not None:
            self._server = self._store = TCPStore(
                settings.store_host,
                settings.store_port,
                is_master=True,
                wait_for_workers=False,
                master_listen_fd=listener,
            )
        patches.serve_rendezvous(self._rendezvous)
        self._generation, self._attempt = 0, 0
        self._half_made: set[rescue.Connection] = set()
        self._destroying: Helper | None = None

    @property
    def exists(self) -> bool:
        """Whether this rank has a default process group."""
        return distributed_c10d.GroupMember.WORLD is not None

    def form(self, generation: int) -> None:
        """Join the group of this generation, leaving the one before."""
        if self._generation:  # else there was none before
            self._free_threads()
            self.leave()
        distributed_c10d._world.group_count = 0  # names must agree, though single ranks may have made some
        self._generation, self._attempt = generation, 0
        RecordingProcessGroup.recorder.reset()
        kept.begin_anew()
        try:
            TORCH_INIT(self._settings.backend)
            self._world().connect()
        except Exception as error:
            RecordingProcessGroup.fail_formation(error)
            raise

    def _free_threads(self) -> None:
        """Free the threads that the reader's code has left in calls of the group before, on Gloo.

        Not while a group is half formed: the connections to the store would be cut, too, and ranks need them.
        """
        is_formed = self._settings.backend == "gloo" and RecordingProcessGroup.being_formed is None
        if is_formed and RecordingProcessGroup.recorder.blocked.waits(busy=False):
            self.cut(everything=False)

    @staticmethod
    def _world() -> RecordingProcessGroup:
        group = distributed_c10d.GroupMember.WORLD
        assert isinstance(group, RecordingProcessGroup), "torch makes no other in a rank"
        return group

    @property
    def name(self) -> str | None:
        """Name of the default process group, as its calls have it."""
        everyone = dist.group.WORLD
        return everyone.identity()[0] if isinstance(everyone, RecordingProcessGroup) else None

    def drop_unfinished_batch(self) -> bool:
        """Drop a batch of coalesced calls that an exception has left; returns whether there was one."""
        unfinished = bool(distributed_c10d._world.pg_coalesce_state)
        RecordingProcessGroup.drop_batches()
        distributed_c10d._world.pg_coalesce_state.clear()
        return unfinished

    def note_half_made_group(self) -> bool:
        """Note a group that an interrupt has left half made; returns whether there is one.

        Its connections are cut when the next default group is formed: a cut now would raise errors on ranks
        that have not been interrupted yet.
        """
        group = RecordingProcessGroup.being_formed
        if not gloo.take_left_behind() or group is None:
            return False
        self._half_made = group.connections() | self._to_store()
        return True

    def leave(self) -> None:
        """Destroy the groups of before, in a thread that nothing but the end of a program waits for.

        Gloo's destructor waits for calls that may never end, and else 10 ms for each connection.
        """
        rescue.cut(self._half_made)
        self._half_made.clear()
        groups = list(distributed_c10d._world.pg_map)
        patches.leave_in_defaults(dist.group.WORLD)
        own_groups.leave(groups)
        _mark_as_left(groups)
        if self.exists:
            TORCH_DESTROY()
        RecordingProcessGroup.forget_formation()
        RecordingProcessGroup.era = -1
        gc.collect()  # frames of a collective that failed hold the old groups, and so their connections
        self._destroying = Helper(target=groups.clear, name="fourranks destruction")
        self._destroying.start()

    def end_threads(self) -> None:
        """End the threads that destroy groups of before, and wait for messages that are kept.

        Python would end them in C++ code, which aborts the process.
        """
        if self._destroying is not None:
            self._destroying.join(DESTRUCTION_PATIENCE)
        kept.end(lambda: self.cut(everything=False))

    def _rendezvous(self, url: str, **_: Any) -> Iterator[tuple[Store, int, int]]:
        """Yield a part of the store for each new default group: it finds no addresses of an earlier one.

        Args:
            url: with what `init_process_group` was given in place of this rank's number and the world's size.
        """
        prefix = f"{self._generation}/{self._attempt}"
        store = self._open_store(prefix)
        self._attempt += 1
        own = self._settings.rank, self._settings.world_size
        given = dict(parse_qsl(urlsplit(url).query))
        rank, world_size = int(given.get("rank", own[0])), int(given.get("world_size", own[1]))
        if (rank, world_size) != own:  # ranks under other numbers cannot be compared
            RecordingProcessGroup.recorder.work_alone()
        elif sys._getframe(1).f_code.co_name == "init_process_group":  # torch's RPC comes here for the store
            everyone = tuple(range(world_size))
            RecordingProcessGroup.await_formation(call_on("init_process_group", prefix, everyone))
        yield store, rank, world_size

    def _open_store(self, prefix: str) -> Store:
        """Return the part of the store that has this name.

        One connection serves all groups: torch asks the name server about each that it opens, and that may
        take seconds.
        """
        store = self._store
        if store is None or not _is_alive(store):  # it may have been cut, at either end
            store = TCPStore(self._settings.store_host, self._settings.store_port, is_master=False)
            connection_owner.require_own(self._to_store())
            self._store = store
        store.set_timeout(DEFAULT_TIMEOUT)  # readers may have set another
        return PrefixStore(prefix, store)

    def cut(self, everything: bool) -> None:
        """Make every operation that waits on a group or its store fail now. Runs in a helper thread.

        Args:
            everything: whether to end all connections that were opened since the rank began: only they can
                free it from a group or a store that the reader has made by hand, and to have Gloo itself end
                the calls of all groups.
        """
        groups = [
            group for group in distributed_c10d._world.pg_map if isinstance(group, RecordingProcessGroup)
        ]
        being_formed = RecordingProcessGroup.being_formed
        if being_formed is not None:
            groups.append(being_formed)
        if self._settings.backend == "nccl" and self.exists:
            cuda.abort_nccl()
        waits.give_up()
        with self._spare.given_up():
            every = rescue.tcp_connections()
            connections = set[rescue.Connection]().union(*(group.connections() for group in groups))
            # Groups wait for the store while they are formed; those of NCCL connect at a first call. A new
            # connection costs a question to the name server, which loses some of those of many ranks.
            if being_formed is None and self._settings.backend == "gloo":
                connections -= {c for c in every if self._settings.store_port in (c.own_port, c.peer_port)}
            else:
                connections |= self._to_store()
            rescue.cut(every - self._before if everything else connections)
        for group in groups if everything and self._settings.backend == "gloo" else ():
            Helper(target=gloo.fail_calls, args=[group.inner]).start()

    def _to_store(self) -> set[rescue.Connection]:
        return {c for c in rescue.tcp_connections() if c.peer_port == self._settings.store_port}


def _mark_as_left(groups: list[dist.ProcessGroup]) -> None:
    """Have groups refuse calls from now on. A loop in `leave` itself would keep the last of them alive."""
    for group in groups:
        if isinstance(group, RecordingProcessGroup):
            group.is_left = True


def _is_alive(store: TCPStore) -> bool:
    """Tell whether the server of a store still answers on its connection."""
    try:
        store.check(["any key"])
        return True
    except RuntimeError:
        return False
