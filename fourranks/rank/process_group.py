"""A process group that records every operation and lets torch do the work.

`torch.distributed` builds each process group by calling `ProcessGroup(store, rank, size)`. In a rank that
name is bound to `RecordingProcessGroup` (see `install`), so every path to a collective passes here with its
arguments: the functions of `torch.distributed`, functional collectives, DDP's reducer in C++, FSDP, DTensor.
The backend stays torch's own; `dist.get_backend()` still says "gloo" or "nccl".
"""

from __future__ import annotations

import contextlib
import functools
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from ..trace import Call
from . import loopback, rescue
from .arguments import OPERATIONS, Operation, call_on, describe, tensors_of
from .recorder import Recorder


class RecordedWork(dist.Work):
    """The handle of an operation; notes how long the rank stands still in `wait`."""

    def __init__(self, inner: dist.Work, call: Call, recorder: Recorder) -> None:
        super().__init__()
        self.inner, self._call, self._recorder = inner, call, recorder
        self._awaited = recorder.launches  # by somebody else than a caller of wait()
        self._delivered = False  # a second wait() for the same message would block in Gloo for ever
        if not self._awaited:
            recorder.leave_open(call, _seen_through(self))

    def __del__(self) -> None:
        if not self._awaited:
            self._recorder.drop(self._call, self.inner.is_completed())

    def wait(self, *timeout: timedelta) -> bool:
        if sys._getframe(1).f_code.co_filename == distributed_c10d.__file__:
            self._call.asynchronous = False
        if self._delivered:
            return True
        limited = timeout and timedelta(0) < timeout[0] < dist.default_pg_timeout  # it does not wait forever
        begun = self._recorder.begin_wait(None if limited else self._call)
        try:
            self.inner.wait(*timeout)
            self._delivered = self._call.is_point_to_point
            if self._delivered and self._call.peer is None:
                self._recorder.match(self._call, self._call.ranks[self.inner._source_rank()])
        finally:
            self._recorder.end_wait(self._call, begun)
        return True

    def is_completed(self) -> bool:
        return self.inner.is_completed()

    def is_success(self) -> bool:
        return self.inner.is_success()

    def exception(self) -> Any:
        return self.inner.exception()

    def result(self) -> Any:
        return self.inner.result()

    def source_rank(self) -> int:
        return self.inner._source_rank()

    _source_rank = source_rank

    def synchronize(self) -> None:
        self.inner.synchronize()

    def get_future(self) -> torch.futures.Future:
        future = self.inner.get_future()
        if not self._awaited:  # whoever has the future waits for it, DDP's reducer for one
            self._recorder.leave_open(self._call, future.done)
            self._recorder.backward_wait.expect(self._call, future.done)
            self._awaited = True
        return future


def _seen_through(work: RecordedWork) -> Callable[[], bool]:
    """Whether the operation of a handle is over; does not keep the handle, and so its tensors, alive."""
    reference = weakref.ref(work)

    def is_completed() -> bool:
        work = reference()
        return work is None or work.is_completed()

    return is_completed


class RecordingProcessGroup(dist.ProcessGroup):
    """Delegates to an ordinary `ProcessGroup` and reports each operation to `recorder`."""

    recorder: Recorder  # set by install()
    delegate: Callable[..., Any] = dist.ProcessGroup  # makes the one that does the work
    being_formed: RecordingProcessGroup | None = None
    formation: tuple[Call, tuple[Call | None, float]] | None = None  # of the default group, while under way

    def __init__(self, store: dist.Store, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self.inner = self.delegate(store, rank, size)
        self._identity: tuple[str, tuple[int, ...]] | None = None
        self._foreign = rescue.tcp_connections()  # open before this group connected
        self._own: set[rescue.Connection] = set()
        self._coalesced: list[Call] | None = None  # the calls of a batch that is launched as one
        RecordingProcessGroup.being_formed = self

    def identity(self) -> tuple[str, tuple[int, ...]]:
        """Name of this group and its global ranks in group order; asked for at every call, so kept."""
        if self._identity is None:
            self._identity = self.group_name, tuple(dist.get_process_group_ranks(self))
        return self._identity

    def connections(self) -> set[rescue.Connection]:
        """The TCP connections that this group has opened."""
        if RecordingProcessGroup.being_formed is self:
            return rescue.tcp_connections() - self._foreign
        return self._own

    @classmethod
    def await_formation(cls, call: Call) -> None:
        """From now until its backend is there, the rank waits for the others to form a default group."""
        cls.recorder.issue(call)
        cls.formation = call, cls.recorder.begin_wait(call)

    @classmethod
    def forget_formation(cls) -> None:
        """A group whose making was interrupted is not to be waited for any more."""
        cls.being_formed = cls.formation = None

    def _register_backend(self, *args: Any) -> None:
        super()._register_backend(*args)
        self.inner._register_backend(*args)
        self._own = rescue.tcp_connections() - self._foreign
        loopback.require_own(self._own)
        RecordingProcessGroup.being_formed = None
        if self.formation is not None:
            self.recorder.end_wait(*self.formation)
            RecordingProcessGroup.formation = None

    def _start_coalescing(self, device: torch.device) -> None:
        super()._start_coalescing(device)
        self._coalesced = []

    def _end_coalescing(self, device: torch.device) -> dist.Work | None:
        calls, self._coalesced = self._coalesced, None
        return _handle(super()._end_coalescing(device), calls[-1], self.recorder) if calls else None

    def _complete(self, call: Call, start: Callable[[], dist.Work]) -> None:
        """Run a call that the caller wants nothing of but its end."""
        call.asynchronous = False
        begun = self.recorder.begin_wait(call)
        try:
            start().wait()
        finally:
            self.recorder.end_wait(call, begun)

    def _launch(
        self, call: Call, start: Callable[[], dist.Work | None], has_future: bool
    ) -> dist.Work | None:
        """Start a call that goes on by itself; its handle is the caller's."""
        recorder, traced = self.recorder, self.recorder.calls is not None
        started = _event(timed=True) if recorder.launches and traced else None
        outer = recorder.stand_in(call)  # NCCL connects a group's ranks at its first call, and waits for them
        try:
            inner = start()
        except Exception:
            recorder.take_back(call)
            raise
        finally:
            recorder.go_on(outer)
        if self._coalesced is not None:
            self._coalesced.append(call)
            return inner
        if started is not None:
            recorder.time(call, _gpu_time(started, inner))
        elif traced and has_future:
            _note_completion(inner, call)
        return _handle(inner, call, recorder)

    def monitored_barrier(self, timeout: timedelta, wait_all_ranks: bool = False) -> None:
        call = call_on("monitored_barrier", *self.identity())
        call.asynchronous = False
        self.recorder.issue(call)
        self.recorder.stand_still_in_conflict(call)
        limited = timeout < dist.default_pg_timeout and self.rank() == 0  # the others wait for it without one
        begun = self.recorder.begin_wait(None if limited else call)
        try:
            self.inner.monitored_barrier(timeout, wait_all_ranks)
        finally:
            self.recorder.end_wait(call, begun)

    def get_group_store(self) -> dist.Store:
        return self.inner.get_group_store()


def _forward_to_both(name: str) -> None:
    """Settings must hold for the group that torch sees and for the one that does the work."""
    base = getattr(dist.ProcessGroup, name)

    def method(self: RecordingProcessGroup, *args: Any) -> None:
        base(self, *args)
        getattr(self.inner, name)(*args)

    setattr(RecordingProcessGroup, name, method)


def _record(name: str, operation: Operation) -> None:
    def method(self: RecordingProcessGroup, *args: Any, **kwargs: Any) -> dist.Work | None:
        call, recorder = describe(operation, *self.identity(), args), self.recorder
        if recorder.variable is not None:
            call.look = recorder.variable.look(tensors_of(operation, args))
        recorder.issue(call)
        recorder.stand_still_in_conflict(call)
        start = functools.partial(getattr(self.inner, name), *args, **kwargs)
        if is_synchronous(args, kwargs) and not recorder.launches and self._coalesced is None:
            return self._complete(call, start)
        return self._launch(call, start, has_future=not operation.message)

    method.__name__ = name
    setattr(RecordingProcessGroup, name, method)


def is_synchronous(args: tuple, kwargs: dict[str, Any]) -> bool:
    """Whether torch's function was called with `async_op=False`: it waits for what it gets, if anything."""
    return not getattr(args[-1] if args else kwargs.get("opts"), "asyncOp", True)


def _handle(inner: dist.Work | None, call: Call, recorder: Recorder) -> dist.Work | None:
    """What the caller gets: None, as from NCCL, for a call that the GPU's stream itself waits for."""
    if recorder.launches:
        recorder.leave_open(call, _event().query if inner is None else inner.is_completed)
    return RecordedWork(inner, call, recorder) if inner is not None else None


def _event(timed: bool = False) -> torch.cuda.Event:
    """A mark behind all that the current stream has been given so far."""
    event = torch.cuda.Event(enable_timing=timed)
    event.record()
    return event


def _gpu_time(started: torch.cuda.Event, inner: dist.Work | None) -> Callable[[], float]:
    """Asks for the seconds that a launched call took on the GPU, once it is complete."""
    if inner is not None:  # it runs on a stream of its own, and NCCL times it
        return lambda: inner._get_duration() / 1000
    ended = _event(timed=True)
    return lambda: started.elapsed_time(ended) / 1000


def _note_completion(inner: dist.Work, call: Call) -> None:
    """Have the end of a traced asynchronous call noted when it comes, not when somebody waits for it."""

    def note(_: torch.futures.Future) -> None:
        if call.completed is None:  # else the thread that waited for it was there first
            call.completed = time.perf_counter()

    with contextlib.suppress(RuntimeError):  # Gloo's reduce_scatter_single has none: wait() tells its end
        inner.get_future().add_done_callback(note)


for _name in ("_set_default_backend", "_set_group_name", "_set_group_desc", "set_timeout"):
    _forward_to_both(_name)
for _name, _operation in OPERATIONS.items():
    _record(_name, _operation)


def _record_new_groups() -> None:
    """Record the making of a group, for which ranks wait as they do in a collective."""
    make = distributed_c10d._new_group_with_tag

    @functools.wraps(make)
    def new_group_with_tag(
        ranks: Sequence[int] | None = None, *args: Any, use_local_synchronization: bool = False, **kwargs: Any
    ) -> dist.ProcessGroup:
        everyone = dist.group.WORLD
        if not isinstance(everyone, RecordingProcessGroup):  # torch says what is wrong
            return make(ranks, *args, use_local_synchronization=use_local_synchronization, **kwargs)
        members = tuple(sorted(range(everyone.size()) if ranks is None else ranks))
        name, all_ranks = everyone.identity()
        # Counted apart from the collectives, with which new_group keeps no order.
        call = call_on("new_group", f"{name} new_group", members if use_local_synchronization else all_ranks)
        call.members, call.part = members, (len(members), str(members))
        if everyone.rank() in call.ranks:
            everyone.recorder.issue(call)
            everyone.recorder.stand_still_in_conflict(call)
        begun = everyone.recorder.begin_wait(call)
        try:
            return make(ranks, *args, use_local_synchronization=use_local_synchronization, **kwargs)
        finally:
            everyone.recorder.end_wait(call, begun)

    distributed_c10d._new_group_with_tag = new_group_with_tag


def install(recorder: Recorder) -> None:
    """Make every process group of this process, from now on, a recording one."""
    RecordingProcessGroup.recorder = recorder
    distributed_c10d.ProcessGroup = RecordingProcessGroup
    _record_new_groups()
