"""A rank's connection to its witness: requests, and what becomes of them."""

from __future__ import annotations

import functools
import itertools
import math
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch

from autograder.inside import frames

GONE = "the connections of this world have been closed"
_EXCEPTIONS = {kind.__name__: kind for kind in (IndexError, NotImplementedError, TypeError, ValueError)}


class WitnessChannel:
    """The rank's end of the connection to its witness.

    Answers are read by the thread that waits for one. From the moment when another thread waits, too, or when
    somebody is to be called at the end of a call, a thread of their own reads them.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._arrivals = select.poll()
        self._arrivals.register(connection, select.POLLIN)
        self._numbers = itertools.count()
        self._asked: dict[int, Handle] = {}
        self._sending, self._reading = threading.Lock(), threading.Lock()
        self.arrival = threading.Condition()  # of an answer, for those who do not read it themselves
        self._listener: threading.Thread | None = None

    def ask(
        self,
        request: dict[str, Any],
        given: Sequence[torch.Tensor] = (),
        outputs: Sequence[torch.Tensor] = (),
        may_wait: bool = False,
    ) -> Handle:
        """Have something done.

        Args:
            request: the kind.
            given: tensors that it speaks of.
            outputs: places of its results.
            may_wait: whether the witness is to hear when somebody waits for it; it keeps the data until then.
        """
        with self._sending:  # so that numbers arrive in their order
            number = next(self._numbers)
            begin_wait = functools.partial(self._begin_wait, number) if may_wait else None
            handle = self._asked[number] = Handle(self, outputs, begin_wait)
            self._send(request | {"id": number}, given)
        return handle

    def _begin_wait(self, number: int, by_future: bool) -> None:
        self.send({"wait": number, "by_future": by_future})

    def send(self, request: dict[str, Any], given: Sequence[torch.Tensor] = ()) -> None:
        """Tell the witness something."""
        with self._sending:
            self._send(request, given)

    def _send(self, request: dict[str, Any], given: Sequence[torch.Tensor]) -> None:
        try:
            frames.send(self._connection, request, given)
        except OSError:
            raise RuntimeError(GONE) from None

    def read_until(self, has_come: Callable[[], bool], seconds: float | None = None) -> bool:
        """Take answers until this is so; return whether it is, within so many seconds."""
        if self._listener is not None or not self._reading.acquire(blocking=False):
            self.listen()
            with self.arrival:
                return self.arrival.wait_for(has_come, seconds)
        try:
            deadline = math.inf if seconds is None else time.monotonic() + seconds
            while not has_come() and (left := deadline - time.monotonic()) > 0:
                if self._arrivals.poll(None if left == math.inf else 1000 * left):
                    self._take_answer()
        finally:
            self._reading.release()
        return has_come()

    def read_arrived(self) -> None:
        """Take the answers that are there."""
        if self._listener is None and self._reading.acquire(blocking=False):
            try:
                while self._asked and self._arrivals.poll(0):
                    self._take_answer()
            finally:
                self._reading.release()

    def listen(self) -> None:
        """Have a thread take all answers from now on."""
        if self._listener is None:
            self._listener = threading.Thread(target=self._listen, name="witness", daemon=True)
            self._listener.start()

    def _listen(self) -> None:
        with self._reading:
            while self._take_answer():
                pass

    def _take_answer(self) -> bool:
        """Wait for an answer and hand it to whom it is for; False when there will be none any more."""
        try:
            answer, outputs = frames.receive(self._connection)
        except (EOFError, OSError, ValueError):  # Gloo ends a process when the sides of a transfer do not fit
            self._connection.close()
            while self._asked:
                self._asked.popitem()[1].finish({"error": GONE, "exception": ""}, [])
            return False
        if answer.keys() & {"issued", "over"}:
            if handle := self._asked.get(answer["id"]):  # else what comes of it has overtaken this
                handle.note(is_over="over" in answer)
        else:
            self._asked.pop(answer["id"]).finish(answer, outputs)
        return True


class Handle:
    """The outcome of a request: as much of `dist.Work` as is asked of it.

    Args:
        witness: that was asked.
        outputs: where the tensors that come belong.
        begin_wait: tells the witness that somebody waits, if it must know, and whether by a future.
    """

    def __init__(
        self,
        witness: WitnessChannel,
        outputs: Sequence[torch.Tensor],
        begin_wait: Callable[[bool], None] | None,
    ) -> None:
        self._witness, self._outputs, self._begin_wait = witness, list(outputs), begin_wait
        self._issued = self._arrived = self._over = False
        self._error: Exception | None = None
        self._source = -1
        self._future: torch.futures.Future[list[torch.Tensor]] | None = None

    def note(self, is_over: bool) -> None:
        """Note that the call has been made, or is over; its result is handed over at a wait."""
        with self._witness.arrival:
            self._issued, self._arrived = True, is_over
            self._witness.arrival.notify_all()

    def finish(self, answer: dict[str, Any], came: Sequence[torch.Tensor]) -> None:
        """Note what came."""
        try:
            if "error" in answer:
                raise _EXCEPTIONS.get(answer["exception"], RuntimeError)(answer["error"])
            for output, values in zip(self._outputs, came, strict=True):
                output.data.copy_(values)  # as Gloo writes: autograd does not see it
            self._source = answer.get("source", -1)
        except Exception as error:
            self._error = error
        with self._witness.arrival:
            self._issued = self._over = True
            self._witness.arrival.notify_all()
            future, self._future = self._future, None  # which may refer to this
        if future is not None:
            self._settle(future)

    def await_issue(self) -> None:
        """Wait until the call has been made, and raise what it has raised."""
        self._witness.read_until(lambda: self._issued)
        if self._error is not None:
            raise self._error

    def wait(self, *timeout: timedelta) -> bool:
        self._ask_for_it()
        seconds = timeout[0].total_seconds() if timeout else 0
        if not self._witness.read_until(lambda: self._over, seconds if seconds > 0 else None):
            raise RuntimeError(f"Timed out waiting {seconds * 1000:g}ms for the operation to complete")
        if self._error is not None:
            raise self._error
        return True

    def _ask_for_it(self, by_future: bool = False) -> None:
        begin, self._begin_wait = self._begin_wait, None
        if begin is not None:
            begin(by_future)

    def has_ended(self) -> bool:
        """Tell whether the call is over, to those who only look on: nothing is handed over to them."""
        if not self._over:
            self._witness.read_arrived()
        return self._over or self._arrived

    def is_completed(self) -> bool:
        if self.has_ended() and not self._over:
            self.wait()  # so that the data is there, as with Gloo
        return self._over

    def is_success(self) -> bool:
        return self.is_completed() and self._error is None

    def exception(self) -> Exception | None:
        return self._error

    def result(self) -> list[torch.Tensor]:
        return self._outputs

    def synchronize(self) -> None:
        self.wait()

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        self._ask_for_it(by_future=True)
        self._witness.listen()
        with self._witness.arrival:
            if not self._over:
                self._future = self._future or torch.futures.Future()
                return self._future
        future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
        self._settle(future)
        return future

    def _settle(self, future: torch.futures.Future[list[torch.Tensor]]) -> None:
        if self._error is None:
            future.set_result(self._outputs)
        else:
            future.set_exception(self._error)  # type: ignore[arg-type]  # torch describes a result

    def _source_rank(self) -> int:
        return self._source
