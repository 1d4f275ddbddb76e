"""The handle of an operation, which notes how long the rank stands still in `wait` and what becomes of it."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeGuard

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from ..protocol.calls import Call
from . import cuda, futures, kept, waits
from .frames import torch_calls
from .recorder import Recorder


class RecordedWork(dist.Work):
    """The handle of an operation; notes how long the rank stands still in `wait`."""

    def __init__(self, inner: dist.Work, call: Call, recorder: Recorder, limited: bool) -> None:
        super().__init__()
        self.inner, self._call, self._recorder = inner, call, recorder
        self._limited = limited  # the group's own timeout ends it
        self.patience = waits.NO_LIMIT  # of a message whose group got another timeout than Gloo knows
        self._awaited = recorder.launches  # by something other than a caller of wait()
        self._is_torchs = torch_calls(sys._getframe(1))
        self._delivered = False  # a second wait() for the same message would block forever in Gloo
        if not self._awaited:
            recorder.leave_open(call, _seen_through(self))

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if self._awaited or is_finalizing():  # then the modules that are needed here may be gone
            return
        is_over = self._delivered or _end_of(self.inner)()
        self._recorder.drop(self._call, self._is_torchs or is_over)
        if self._call.is_point_to_point and not is_over and isinstance(self.inner, dist.Work):  # Gloo's
            kept.keep(functools.partial(_receive, self._call, self.inner, self._recorder))

    def wait(self, timeout: timedelta = waits.NO_LIMIT) -> bool:
        if sys._getframe(1).f_code.co_filename == distributed_c10d.__file__:
            self._call.asynchronous = False
        if self._delivered:
            return True
        if not isinstance(timeout, timedelta):
            return self.inner.wait(timeout)  # torch says what is wrong
        limited = self._limited or is_limit(timeout)
        if timeout <= waits.NO_LIMIT:
            timeout = self.patience
        begun = self._recorder.begin_wait(None if limited else self._call)
        try:
            self._wait(timeout)
            self._delivered = self._call.is_point_to_point
            if self._recorder.launches:  # the handle, asked any longer, would keep the call's results alive
                self._recorder.ask_instead(self._call, cuda.record_event().query)
        finally:
            self._recorder.end_wait(self._call, begun)
        return True

    def _wait(self, timeout: timedelta) -> None:
        try:
            _receive(self._call, self.inner, self._recorder, timeout)
        except Exception as error:  # unless only the wait is over: Gloo ties a message to it
            if timeout <= waits.NO_LIMIT or self._call.is_point_to_point or _end_of(self.inner)():
                self._recorder.fail(self._call, error)
            raise

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

    def block_current_stream(self) -> None:
        self.inner.block_current_stream()

    # Torch's own description of Work lacks these.

    def _get_op_type(self) -> int:
        return self.inner._get_op_type()  # type: ignore[attr-defined, no-any-return]

    def _get_duration(self) -> float:
        return self.inner._get_duration()  # type: ignore[attr-defined, no-any-return]

    def get_future_result(self) -> torch.futures.Future[Any]:
        return self.inner.get_future_result()  # type: ignore[attr-defined, no-any-return]

    def get_future(self) -> torch.futures.Future[Any]:
        future = self.inner.get_future()
        if not self._awaited:  # the holder of the future waits for it, as DDP's reducer does
            self._recorder.leave_open(
                self._call, functools.partial(_has_ended, future, self._call, self._recorder)
            )
            self._recorder.backward_wait.expect(self._call, future.done)
            self._awaited = True
        if not self._limited:
            futures.comes_from(future, [(self._call, _end_of(self.inner))])
        return future


def _has_ended(future: torch.futures.Future[Any], call: Call, recorder: Recorder) -> bool:
    """Tell whether the operation of a future is over, and note its error, which C++ code alone may see."""
    if not future.done():
        return False
    try:
        future.value()
    except Exception as error:
        recorder.fail(call, error)
    return True


def _receive(call: Call, inner: dist.Work, recorder: Recorder, timeout: timedelta = waits.NO_LIMIT) -> None:
    """Wait for an operation; a message from any source is then known to be from one."""
    waits.wait(call, inner, timeout)
    if call.is_point_to_point and call.peer is None:
        recorder.match(call, call.ranks[inner._source_rank()])


def is_limit(timeout: timedelta | None) -> TypeGuard[timedelta]:
    """Return whether a wait ends soon, at a timeout that was chosen; torch's defaults count as no limit."""
    return timeout is not None and waits.NO_LIMIT < timeout < waits.FOREVER


def _end_of(work: dist.Work) -> Callable[[], bool]:
    """Return a test of whether an operation is over that does not take its result, as a witness notes."""
    return getattr(work, "has_ended", work.is_completed)


def _seen_through(work: RecordedWork) -> Callable[[], bool]:
    """Tell whether the operation of a handle is over; does not keep the handle, and so its tensors, alive."""
    reference = weakref.ref(work)

    def is_completed() -> bool:
        work = reference()
        return work is None or _end_of(work.inner)()

    return is_completed
