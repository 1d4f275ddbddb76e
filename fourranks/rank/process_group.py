"""A process group that records every operation and lets torch do the work.

`torch.distributed` builds each process group by calling `ProcessGroup(store, rank, size)`. In a rank that
makes a `RecordingProcessGroup` (by `patches`), so every path to a collective passes here with its
arguments: the functions of `torch.distributed`, functional collectives, DDP's reducer in C++, FSDP, DTensor.
The backend stays torch's own; `dist.get_backend()` still says "gloo" or "nccl". A process group that the
reader has written in Python takes the place of the one that torch has built, and is not recorded.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend, Store
from torch.distributed import distributed_c10d

from ..protocol.calls import Call
from ..protocol.places import place
from . import connection_owner, cuda, gloo, rescue, unusable, waits
from .blocked import Wait
from .describe import call_on, describe, tensors_in
from .methods import METHODS, Method, read
from .recorder import Recorder, from_connection
from .refusals import ends_process, is_refused, refuse_without_rows
from .uncompiled import leave_uncompiled
from .work import RecordedWork, is_limit
from .wrong_rank import TO_ITSELF, NoSuchRank, T, explained

MADE_OF_MESSAGES = ("all_to_all", "all_to_all_single", "gather", "scatter")  # collectives, on NCCL


@dataclass(eq=False)
class OpenBatch:
    """A batch of calls that has begun, and not ended."""

    backend: Any  # torch's own type is there only where torch is built for NCCL
    is_ending: bool = False


class RecordingProcessGroup(dist.ProcessGroup):
    """Delegates to an ordinary `ProcessGroup` and reports each operation to `recorder`."""

    recorder: Recorder  # set by `patches.record_groups`
    delegate: Callable[..., Any] = dist.ProcessGroup  # makes the one that does the work
    connects_on: torch.device | None = None  # of a rank on NCCL
    meets_peers = False  # whether a first message on NCCL waits until its other side is issued
    notes_completions = True  # of traced calls without a waiter yet; otherwise the witness dates them
    era = -1  # the number of default groups before the one that there is: torch gives names again after each
    forks = 0  # that lie between the rank and this process
    has_hooks = False  # of the reader's, each of which may refuse a call
    is_left = False  # the default group was formed again since: what holds this one has to be made again
    being_formed: RecordingProcessGroup | None = None
    formation: tuple[Call, tuple[Wait, float]] | None = None  # of the default group, while under way
    _batches: ClassVar[list[OpenBatch]] = []  # on NCCL

    def __init__(
        self, store: Store | None, rank: int, size: int, inner: dist.ProcessGroup | None = None
    ) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]  # torch describes one of two forms
        self.inner: Any = self.delegate(store, rank, size) if inner is None else inner
        self._handing_over = threading.RLock()
        self._made_after = self.forks
        self._identity: tuple[str, tuple[int, ...]] | None = None
        self._foreign = rescue.tcp_connections()  # open before this group connected
        self._own: set[rescue.Connection] = set()
        self._coalesced: list[Call] | None = None  # the calls of a batch that is launched as one
        self._mark: torch.cuda.Event | None = None  # after all that the GPU was given before that batch
        self._options: list[Backend.Options] = []  # of its backends
        self._formed_with: list[timedelta] = []  # their timeouts at first
        self._connected: set[tuple[str, int | None]] = set()  # on NCCL: to send to whom, to receive from whom
        RecordingProcessGroup.being_formed = self
        RecordingProcessGroup.era += distributed_c10d.GroupMember.WORLD is None
        self._era = RecordingProcessGroup.era

    def identity(self) -> tuple[str, tuple[int, ...]]:
        """Name of this group and its global ranks in group order; asked for at every call, so kept."""
        if self._identity is None:
            name = f"{self.group_name}.{self._era}" if self._era else self.group_name
            self._identity = name, tuple(dist.get_process_group_ranks(self))
        return self._identity

    def shutdown(self) -> None:
        """Close the group, after hooks of the reader's on NCCL: torch waits for them in a type of its own."""
        if self._has_hooks():
            self._wait_for_pending_works()
        super().shutdown()

    def reconfigure(self, opts: Any) -> dist.Work:
        """Connect the group anew, as torch 2.15 offers, to ranks of which Gloo alone knows the numbers."""
        self.recorder.work_alone()
        work: dist.Work = self.inner.reconfigure(opts)
        return work

    def __repr__(self) -> str:
        if self.is_left:  # torch names it so in its own errors, which know no more of it
            return "<ProcessGroup from before the default group was formed again>"
        known = distributed_c10d._world
        name, ranks = known.pg_names.get(self, "without a name"), known.pg_group_ranks.get(self, {})
        return f"<ProcessGroup {name} of ranks {', '.join(map(str, ranks))}>"

    def split(self, *args: Any, **kwargs: Any) -> RecordingProcessGroup | None:
        """Make a group as `split_group` of torch's own does, in C++; None if this rank is no member of it."""
        for options in self._options:  # where torch looks for them, and has none since a second default group
            options.global_ranks_in_group = list(self.identity()[1])
        foreign = rescue.tcp_connections()
        split = functools.partial(self.inner.split_group, *args, **kwargs)
        made = split() if self.recorder.launches else gloo.in_a_thread(split)
        if made is None:
            return None
        group = RecordingProcessGroup(None, made.rank(), made.size(), made)
        group._foreign = foreign
        group._set_group_name(made.group_name)
        group._set_group_desc(made.group_desc)
        for device in made._device_types:
            backend = made._get_backend(device)
            group._register_backend(device, _type_of(backend), backend)
        group._set_default_backend(_type_of(made))
        return group

    def timeouts(self) -> list[timedelta]:
        """Return how long calls of each of this group's backends may take."""
        return [options._timeout for options in self._options]

    def limit(self) -> timedelta | None:
        """Return the timeout that the reader gave this group; None for one that counts as no limit."""
        return next(filter(is_limit, self.timeouts()), None)

    def patience(self) -> timedelta:
        """Return the timeout of messages if it has changed: by itself Gloo keeps to the first one."""
        timeouts = self.timeouts()
        return waits.NO_LIMIT if timeouts == self._formed_with else min(timeouts)

    def connect(self) -> None:
        """Have NCCL connect the ranks of this group now, when all of them have come here.

        By itself it would at their first call, and for messages two ranks at a time: a rank that waits there
        for another one can be freed by nothing, as the communicator that could be aborted is not there yet.
        Torch has done it already where the reader has bound the group to a GPU.
        """
        device = self.connects_on if self.bound_device_id is None else None
        if device is not None and device.type in {each.type for each in self._device_types}:
            self._get_backend(device).eager_connect_single_device(device)

    def is_first_message(self, call: Call) -> bool:
        """Note what NCCL connects by this call; tell whether the two sides of a message have to do it.

        Where two ranks begin with an isend to each other, each may take the other's for the receive that it
        needs, and no message would arrive. Those of a batch are connected together.
        """
        if not self.meets_peers:
            return False
        if call.op in MADE_OF_MESSAGES:
            self._connected.update((op, peer) for op in ("send", "recv") for peer in call.ranks)
        if not call.is_point_to_point:
            return False
        is_first = (call.op, call.peer) not in self._connected
        self._connected.add((call.op, call.peer))
        return is_first and self._coalesced is None

    def connections(self) -> set[rescue.Connection]:
        """Return the TCP connections that this group has opened."""
        if RecordingProcessGroup.being_formed is self:
            return rescue.tcp_connections() - self._foreign
        return self._own

    @classmethod
    def await_formation(cls, call: Call) -> None:
        """Note that the rank waits for the others to form a default group, until its backend is there."""
        cls.recorder.issue(call)
        cls.formation = call, cls.recorder.begin_wait(call)

    @classmethod
    def fail_formation(cls, error: Exception) -> None:
        """Note that this rank could not form the default group, so that no other rank waits for it."""
        if cls.formation is not None:
            cls.recorder.fail(cls.formation[0], error)

    @classmethod
    def forget_formation(cls) -> None:
        """Stop waiting for a group whose making was interrupted."""
        cls.being_formed = cls.formation = None

    @classmethod
    def note_fork(cls) -> None:
        """Note that this process is a fork of the rank's, which is not one of the ranks itself."""
        cls.forks += 1
        cls.recorder.work_alone()

    def _register_backend(self, *args: Any) -> None:
        super()._register_backend(*args)
        self.inner._register_backend(*args)
        options: Any = getattr(args[2] if len(args) > 2 else None, "options", None)
        self._options += [options] if hasattr(options, "_timeout") else []
        self._formed_with = self.timeouts()
        self.end_formation()

    def end_formation(self) -> None:
        """Note that this group is connected, by itself or by a group of the reader's that takes its place."""
        self._own = rescue.tcp_connections() - self._foreign
        connection_owner.require_own(self._own)
        RecordingProcessGroup.being_formed = None
        if self.formation is not None:
            self.recorder.end_wait(*self.formation)
            RecordingProcessGroup.formation = None

    def _start_coalescing(self, device: torch.device) -> None:
        super()._start_coalescing(device)
        if self.recorder.launches:
            self._batches.append(OpenBatch(self._get_backend(device)))
        self._coalesced, self._mark = [], self._mark_gpu()

    def _end_coalescing(  # type: ignore[override]  # torch does not say that it may be None
        self, device: torch.device
    ) -> dist.Work | None:
        calls, self._coalesced = self._coalesced, None
        if not calls:
            self._end_batch(device)
            return None
        *others, call = calls
        call.batch = tuple(others)
        is_limited = self.limit() is not None
        outer = self.recorder.blocked.enter(None if is_limited else call)
        try:
            inner = self._end_batch(device)  # NCCL connects ranks here, too
        finally:
            self.recorder.blocked.leave(outer)
        if self._mark is not None and self.recorder.calls is not None:
            seconds = functools.cache(_gpu_time(self._mark, inner))
            for each in calls:
                self.recorder.time(each, seconds)
        return _handle(inner, call, self.recorder, is_limited, self._mark)

    def _end_batch(self, device: torch.device) -> dist.Work | None:
        ending = self._batches[-1:]
        for batch in ending:
            batch.is_ending = True
        inner = super()._end_coalescing(device)
        for batch in ending:
            self._batches.remove(batch)
        return inner

    @classmethod
    def drop_batches(cls) -> None:
        """Drop the batches on NCCL that exceptions have left on this thread."""
        for batch in cls._batches:
            cuda.leave_nccl_group(batch.backend, is_open=not batch.is_ending)
        cls._batches.clear()

    def _mark_gpu(self) -> torch.cuda.Event | None:
        """Record a mark after all that the GPU was given so far, before a call that is only launched."""
        return cuda.record_event(timed=self.recorder.calls is not None) if self.recorder.launches else None

    def _issue(self, call: Call) -> None:
        """Note that a call of this group starts; raises an error where it could not end."""
        if self._made_after != self.forks:
            raise unusable.in_a_fork(call)
        if self.is_left:
            raise unusable.of_before(call)
        self.recorder.issue(call)

    def _start(self, call: Call, start: Callable[[], T]) -> T:
        """Hand a call to the backend, which may refuse it."""
        # Threads one after the other, so that calls are known in the order in which Gloo has taken them.
        with contextlib.nullcontext() if self.recorder.launches else self._handing_over:
            try:
                work = start()
            except Exception as error:
                if from_connection(error) or self.recorder.has_broken(call.group):
                    self.recorder.fail(call, error, breaks_group=True)
                else:
                    self.recorder.take_back(call, error)
                raise
            self.recorder.accept(call)
        return work

    def _complete(self, call: Call, start: Callable[[], dist.Work], limited: bool) -> None:
        """Run a call that the caller wants nothing of but its end."""
        call.asynchronous = False
        begun = self.recorder.begin_wait(None if limited else call)
        try:
            work = self._start(call, start)
            try:
                waits.wait(call, work)
            except Exception as error:
                self.recorder.fail(call, error)
                raise
        finally:
            self.recorder.end_wait(call, begun)

    def _launch(
        self, call: Call, start: Callable[[], dist.Work | None], limited: bool, has_future: bool
    ) -> dist.Work | None:
        """Start a call that goes on by itself; its handle is the caller's."""
        recorder, traced = self.recorder, self.recorder.calls is not None
        is_marked = self._coalesced is None and (traced or call.is_point_to_point)
        mark = self._mark_gpu() if is_marked else None
        # NCCL connects more of a group's ranks when a call needs it, and waits for them. Gloo waits for none.
        outer = recorder.blocked.enter(call if recorder.launches and not limited else None)
        try:
            inner = self._start(call, start)
        finally:
            recorder.blocked.leave(outer)
        if self._coalesced is not None:
            self._coalesced.append(call)
            return inner
        if traced and mark is not None:
            recorder.time(call, _gpu_time(mark, inner))
        elif traced and has_future and self.notes_completions and inner is not None:
            _note_completion(inner, call)
        return _handle(inner, call, recorder, limited, mark)

    def _refuse(self, method: Method, named: int, start: Callable[[], T]) -> T:
        """Raise an error for a call that names a rank outside the group."""
        group, ranks = self.identity()
        call = call_on(method.name, group, ranks)
        refusal = NoSuchRank(named, self.rank(), ranks, place(*call.at))
        if method.message:  # Gloo would wait for that rank, and nothing could free it
            raise refusal.error()
        return explained(start, refusal)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        if not isinstance(timeout, (timedelta, type(None))):
            return self.inner.monitored_barrier(timeout, wait_all_ranks)  # torch says what is wrong
        call = call_on("monitored_barrier", *self.identity())
        call.asynchronous = False
        self._issue(call)
        self.recorder.stand_still_in_conflict(call, timeout.total_seconds() if is_limit(timeout) else None)
        self.recorder.accept(call)
        # The other ranks wait for rank 0 without this timeout.
        limited = (is_limit(timeout) and self.rank() == 0) or self.limit() is not None
        begun = self.recorder.begin_wait(None if limited else call)
        try:
            self.inner.monitored_barrier(timeout, wait_all_ranks)
        except Exception as error:
            self.recorder.fail(call, error, breaks_group=True)
            raise
        finally:
            self.recorder.end_wait(call, begun)

    def get_group_store(self) -> Store:
        store: Store = self.inner.get_group_store()
        return store


def _type_of(backend: dist.ProcessGroup | Backend) -> dist.ProcessGroup.BackendType:
    """Return the type by which torch registers a backend, or a group's default one."""
    types = dist.ProcessGroup.BackendType
    return types.__members__.get(backend.name().upper(), types.CUSTOM)


def _forward_to_both(name: str) -> None:
    """Have a setting hold for the group that torch sees and for the one that does the work."""
    base = getattr(dist.ProcessGroup, name)

    def method(self: RecordingProcessGroup, *args: Any, **kwargs: Any) -> None:
        base(self, *args, **kwargs)
        getattr(self.inner, name)(*args, **kwargs)

    setattr(RecordingProcessGroup, name, method)


def _record(name: str, method: Method) -> None:
    def recorded(self: RecordingProcessGroup, *args: Any, **kwargs: Any) -> dist.Work | None:
        start: Callable[[], dist.Work] = functools.partial(getattr(self.inner, name), *args, **kwargs)
        arguments, recorder = read(method, args, kwargs), self.recorder
        if arguments is None:
            return start()  # torch says what is wrong
        named = method.named_rank(arguments)
        if named is not None and not 0 <= named < self.size():
            return self._refuse(method, named, start)
        if method.message and named == self.rank():
            start = functools.partial(explained, start, TO_ITSELF)
        if not recorder.launches and ends_process(method, arguments):
            start = refuse_without_rows
        call = describe(method, call_on(method.name, *self.identity()), arguments)
        if call is None:
            return start()
        if recorder.variable is not None:
            call.look = recorder.variable.look(tensors_in(arguments.input))
        self._issue(call)
        own = arguments.limit
        limit = own if is_limit(own) else self.limit()
        recorder.stand_still_in_conflict(
            call,
            limit.total_seconds() if limit is not None else None,
            lambda: self.has_hooks or is_refused(method, arguments, self.rank(), self.size()),
            self.is_first_message(call),
        )
        if arguments.synchronous and not recorder.launches and self._coalesced is None:
            self._complete(call, start, limit is not None)
            return None
        work = self._launch(call, start, limit is not None, has_future=not method.message)
        if method.message and not recorder.launches and isinstance(work, RecordedWork):
            work.patience = self.patience()
        return work

    recorded.__name__ = name
    setattr(RecordingProcessGroup, name, recorded)


def _handle(
    inner: dist.Work | None, call: Call, recorder: Recorder, limited: bool, mark: torch.cuda.Event | None
) -> dist.Work | None:
    """Return what the caller gets: None, as from NCCL, for a call that the GPU's stream itself waits for.

    Args:
        mark: after all that the GPU was given before a message.
    """
    if recorder.launches:
        is_completed = cuda.record_event().query if inner is None else inner.is_completed
        recorder.leave_open(call, is_completed, mark.query if mark is not None else None)
        if inner is None:  # torch has waited for it, as far as NCCL lets it
            call.asynchronous, call.end = False, time.perf_counter()
    return RecordedWork(inner, call, recorder, limited) if inner is not None else None


def _gpu_time(started: torch.cuda.Event, inner: dist.Work | None) -> Callable[[], float]:
    """Return what asks for the seconds of a launched call on the GPU, once it is complete."""
    if inner is not None:  # it runs on a stream of its own, and NCCL times it
        return lambda: inner._get_duration() / 1000  # type: ignore[attr-defined]
    ended = cuda.record_event(timed=True)
    return lambda: started.elapsed_time(ended) / 1000


def _note_completion(inner: dist.Work, call: Call) -> None:
    """Have the end of a traced asynchronous call noted when it comes, not at a wait for it."""

    def note(_: torch.futures.Future[Any]) -> None:
        if call.completed is None:  # else the thread that waited for it was there first
            call.completed = time.perf_counter()

    with contextlib.suppress(RuntimeError):  # Gloo's reduce_scatter_single has none: wait() tells its end
        inner.get_future().add_done_callback(note)


for _name in ("_set_default_backend", "_set_group_name", "_set_group_desc", "set_timeout"):
    _forward_to_both(_name)
for _name, _method in METHODS.items():
    _record(_name, _method)
leave_uncompiled([*vars(RecordedWork).values(), *vars(RecordingProcessGroup).values()])
