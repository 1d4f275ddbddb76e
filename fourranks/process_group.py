"""A process group that records every operation and lets torch do the work.

`torch.distributed` builds each process group by calling `ProcessGroup(store, rank, size)`. In a rank that
name is bound to `RecordingProcessGroup` (see `install`), so every path to a collective passes here with its
arguments: the functions of `torch.distributed`, functional collectives, DDP's reducer in C++, FSDP, DTensor.
The backend stays torch's own; `dist.get_backend()` still says "gloo" or "nccl".
"""

from __future__ import annotations

import functools
import gc
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.rendezvous import _rendezvous_handlers

from . import rescue
from .messages import LOOPBACK, Settings
from .recorder import Recorder
from .trace import Call

_TORCH = str(Path(torch.__file__).parent)
_HERE = str(Path(__file__).parent)
_WAIT_IN_CPP = {
    str(Path(_TORCH, *path)) for path in (("nn", "parallel", "distributed.py"), ("distributed", "utils.py"))
}


@dataclass(frozen=True)
class _Operation:
    """How to read the arguments of one `ProcessGroup` method."""

    name: str  # the function of torch.distributed that a reader knows
    source: int = 0  # position of the tensors that this rank puts in
    agree: int | None = 0  # position of the tensors whose element count must be equal on all ranks
    rooted: bool = False  # one rank is src or dst
    exchange: bool = False  # each two ranks agree on sizes of their own


_OPERATIONS = {
    "allreduce": _Operation("all_reduce"),
    "allreduce_coalesced": _Operation("all_reduce"),
    "broadcast": _Operation("broadcast", rooted=True),
    "reduce": _Operation("reduce", rooted=True),
    "allgather": _Operation("all_gather", source=1, agree=1),
    "allgather_coalesced": _Operation("all_gather", source=1, agree=1),
    "allgather_into_tensor_coalesced": _Operation("all_gather_single", source=1, agree=1),
    "_allgather_base": _Operation("all_gather_single", source=1, agree=1),
    "all_gather_single": _Operation("all_gather_single", source=1, agree=1),
    "all_gather_single_coalesced": _Operation("all_gather_single", source=1, agree=1),
    "gather": _Operation("gather", source=1, agree=1, rooted=True),
    "scatter": _Operation("scatter", source=1, agree=0, rooted=True),
    "reduce_scatter": _Operation("reduce_scatter", source=1, agree=1),
    "_reduce_scatter_base": _Operation("reduce_scatter_single", source=1, agree=1),
    "reduce_scatter_single": _Operation("reduce_scatter_single", source=1, agree=1),
    "reduce_scatter_single_coalesced": _Operation("reduce_scatter_single", source=1, agree=1),
    "reduce_scatter_tensor_coalesced": _Operation("reduce_scatter_single", source=1, agree=1),
    "alltoall": _Operation("all_to_all", source=1, agree=None, exchange=True),
    "alltoall_base": _Operation("all_to_all_single", source=1, agree=None, exchange=True),
    "all_to_all_single": _Operation("all_to_all_single", source=1, agree=None, exchange=True),
    "barrier": _Operation("barrier", agree=None),
    "send": _Operation("send", agree=None),
    "recv": _Operation("recv", agree=None),
    "recv_anysource": _Operation("recv", agree=None),
}


class RecordedWork(dist.Work):
    """The handle of an operation; notes how long the rank stands still in `wait`."""

    def __init__(self, inner: dist.Work, call: Call, recorder: Recorder) -> None:
        super().__init__()
        self.inner, self._call, self._recorder = inner, call, recorder
        self._awaited = recorder.launches  # by somebody else than a caller of wait()
        if not self._awaited:
            recorder.leave_open(call, _seen_through(self))

    def __del__(self) -> None:
        if not self._awaited:
            self._recorder.drop(self._call, self.inner.is_completed())

    def wait(self, *timeout: timedelta) -> bool:
        if timeout and timedelta(0) < timeout[0] < dist.default_pg_timeout:
            return self.inner.wait(*timeout)  # the reader has set a limit, so the rank does not wait forever
        if sys._getframe(1).f_code.co_filename == distributed_c10d.__file__:
            self._call.asynchronous = False
        begun = self._recorder.begin_wait(self._call)
        try:
            return self.inner.wait(*timeout)
        finally:
            self._recorder.end_wait(self._call, begun)

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
    being_formed: RecordingProcessGroup | None = None
    formation: tuple[Call, tuple[Call | None, float]] | None = None  # of the default group, while under way

    def __init__(self, store: dist.Store, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self.inner = dist.ProcessGroup(store, rank, size)
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

    def _register_backend(self, *args: Any) -> None:
        super()._register_backend(*args)
        dist.ProcessGroup._register_backend(self.inner, *args)
        self._own = rescue.tcp_connections() - self._foreign
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

    def monitored_barrier(self, timeout: timedelta, wait_all_ranks: bool = False) -> None:
        if timeout < dist.default_pg_timeout and self.rank() == 0:  # the others wait for it without a limit
            return self.inner.monitored_barrier(timeout, wait_all_ranks)
        call = _call("monitored_barrier", *self.identity())
        self.recorder.issue(call)
        self.recorder.stand_still_in_conflict(call)
        begun = self.recorder.begin_wait(call)
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
        base(self.inner, *args)

    setattr(RecordingProcessGroup, name, method)


def _record(name: str, operation: _Operation) -> None:
    delegate = getattr(dist.ProcessGroup, name)

    def method(self: RecordingProcessGroup, *args: Any, **kwargs: Any) -> dist.Work | None:
        call = _describe(operation, self, args)
        recorder = self.recorder
        recorder.issue(call)
        recorder.stand_still_in_conflict(call)
        launched = recorder.begin_launch(call)
        try:
            inner = delegate(self.inner, *args, **kwargs)
        finally:
            recorder.end_launch(launched)
        if self._coalesced is not None:
            self._coalesced.append(call)
            return inner
        options = args[-1] if args else kwargs.get("opts")
        if recorder.calls is not None and getattr(options, "asyncOp", False) and not recorder.launches:
            _note_completion(inner, call)
        return _handle(inner, call, recorder)

    method.__name__ = name
    setattr(RecordingProcessGroup, name, method)


def _handle(inner: dist.Work | None, call: Call, recorder: Recorder) -> dist.Work | None:
    """What the caller gets: None, as from NCCL, for a call that the GPU's stream itself waits for."""
    if recorder.launches:
        recorder.leave_open(call, _on_stream() if inner is None else inner.is_completed)
    return RecordedWork(inner, call, recorder) if inner is not None else None


def _on_stream() -> Callable[[], bool]:
    """Whether all that the current stream has been given so far is over."""
    event = torch.cuda.Event()
    event.record()
    return event.query


def _note_completion(inner: dist.Work, call: Call) -> None:
    """Have the end of a traced asynchronous call noted when it comes, not when somebody waits for it."""

    def note(_: torch.futures.Future) -> None:
        call.completed = time.perf_counter()

    inner.get_future().add_done_callback(note)


for _name in ("_set_default_backend", "_set_group_name", "_set_group_desc", "set_timeout"):
    _forward_to_both(_name)
for _name, _operation in _OPERATIONS.items():
    _record(_name, _operation)


def _record_new_groups() -> None:
    """Record the making of a group, for which ranks wait as they do in a collective."""
    make = distributed_c10d._new_group_with_tag

    @functools.wraps(make)
    def new_group_with_tag(
        ranks: Sequence[int] | None = None, *args: Any, use_local_synchronization: bool = False, **kwargs: Any
    ) -> dist.ProcessGroup:
        everyone = dist.group.WORLD
        members = tuple(sorted(range(everyone.size()) if ranks is None else ranks))
        call = _call("new_group", *everyone.identity())
        call.part = len(members), str(members)
        if use_local_synchronization:  # only the members need to come
            call.ranks = members
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
        if dist.is_initialized():
            dist.destroy_process_group()
            gc.collect()  # an exception from a collective still holds the old group, and so its connections
        distributed_c10d._world.group_count = (
            0  # names of groups must agree, whatever single ranks have tried
        )
        self._generation, self._attempt = generation, 0
        RecordingProcessGroup.recorder.reset()
        dist.init_process_group(self._settings.backend)

    def _rendezvous(self, url: str, **_: Any) -> Iterator[tuple[dist.Store, int, int]]:
        """A part of the store for each new default group, so that it finds no addresses of an earlier one."""
        store = dist.TCPStore(LOOPBACK, self._settings.store_port, is_master=False)
        prefix = f"{self._generation}/{self._attempt}"
        self._attempt += 1
        everyone = tuple(range(self._settings.world_size))
        RecordingProcessGroup.await_formation(_call("init_process_group", prefix, everyone))
        yield dist.PrefixStore(prefix, store), self._settings.rank, self._settings.world_size

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
        if self._settings.backend == "nccl":
            for group in groups:
                group.inner.abort()
        to_store = {c for c in rescue.tcp_connections() if c.peer_port == self._settings.store_port}
        rescue.cut(to_store.union(*(group.connections() for group in groups)))


def _describe(operation: _Operation, group: RecordingProcessGroup, args: tuple) -> Call:
    """What a call is about. This runs before every operation, so it must cost microseconds."""
    tensors = _tensors(args[operation.source]) if operation.source < len(args) else []
    call = _call(operation.name, *group.identity())
    if tensors:
        call.shape, call.dtype = tuple(tensors[0].shape), _dtype_name(tensors[0].dtype)
        call.nbytes = sum(tensor.nbytes for tensor in tensors)
    call.part = _part(tensors if operation.agree == operation.source else args, operation)
    if group.recorder.variable is not None:
        call.look = group.recorder.variable.look(tensors)
    if call.is_point_to_point:
        _describe_message(call, call.ranks, args)
    elif operation.exchange:
        call.part, call.exchange = (0, call.dtype), _exchange(args, len(call.ranks))
    elif operation.rooted:
        call.root = call.ranks[args[-1].rootRank]
    if "reduce" in call.op:
        call.reduce_op = _reduce_op_name(args[-1])
    return call


def _call(op: str, group: str, ranks: tuple[int, ...]) -> Call:
    """A call on a group by the line of the reader's code that runs now, without what its tensors tell."""
    file, line, function = caller(sys._getframe(1))
    return Call(op=op, group=group, ranks=ranks, file=file, line=line, function=function)


def _describe_message(call: Call, members: tuple[int, ...], args: tuple) -> None:
    if len(args) == 3:  # (tensors, peer, tag)
        call.peer, call.tag = members[args[1]], args[2]
    else:  # recv_anysource: (tensors, tag)
        call.tag = args[1]


def _exchange(args: tuple, size: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Bytes that this rank gives to, and takes from, each rank of the group."""
    takes, gives = args[0], args[1]
    if isinstance(
        gives, torch.Tensor
    ):  # all_to_all_single(output, input, output splits, input splits, options)
        return _shares(gives, args[3], size), _shares(takes, args[2], size)
    return tuple(tensor.nbytes for tensor in gives), tuple(tensor.nbytes for tensor in takes)


def _shares(tensor: torch.Tensor, splits: Sequence[int], size: int) -> tuple[int, ...]:
    if not splits:
        return (tensor.nbytes // size,) * size
    row = tensor.nbytes // max(1, tensor.shape[0])
    return tuple(rows * row for rows in splits)


def _part(given: tuple | list[torch.Tensor], operation: _Operation) -> tuple[int, str] | None:
    """Elements and dtype of the tensors that must be alike on all ranks."""
    if operation.agree is None:
        return None
    tensors = given if operation.agree == operation.source else _tensors(given[operation.agree])
    return sum(tensor.numel() for tensor in tensors), _dtype_name(tensors[0].dtype) if tensors else ""


def _tensors(value: Any) -> list[torch.Tensor]:
    """Every tensor in an argument: a tensor, a list of tensors, or a list of such lists."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in _tensors(item)]
    return []


@functools.cache
def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _reduce_op_name(options: Any) -> str:
    """ "SUM" and the like; a premultiplied sum and an old-style call have no plain name."""
    kind = getattr(getattr(options, "reduceOp", None), "op", None)
    return getattr(kind, "name", "")


def in_native_code(frame: FrameType) -> bool:
    """Whether a thread is there while C++ code waits for collectives: a backward pass, or DDP's own."""
    return frame.f_code.co_name == "_engine_run_backward" or frame.f_code.co_filename in _WAIT_IN_CPP


def caller(frame: FrameType | None) -> tuple[str, int, str]:
    """File, line and function of the reader's code: the innermost frame outside torch and this package."""
    while frame is not None and frame.f_code.co_filename.startswith((_TORCH, _HERE)):
        frame = frame.f_back
    if frame is None:  # autograd's own thread: DDP issues its collectives from there
        return "", 0, "backward"
    return frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name  # None between two lines
