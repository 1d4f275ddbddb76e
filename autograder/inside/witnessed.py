"""Process groups of a rank in a sandbox: they hand each call to the rank's `witness` and wait for what comes.

To torch and to `fourranks` they are groups of Gloo, whose connections are in another process.
"""

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
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from autograder.inside import frames, moments
from autograder.inside.arguments import to_plain
from autograder.inside.moments import Marks, Moment
from fourranks.protocol.messages import Settings
from fourranks.rank import waits
from fourranks.rank.default_group import DefaultGroup
from fourranks.rank.describe import tensors_in
from fourranks.rank.frames import pass_over
from fourranks.rank.methods import METHODS, Arguments, Method, read
from fourranks.rank.process_group import RecordingProcessGroup

GONE = "the connections of this world have been closed"
pass_over(Path(__file__).parent)
pass_over(Path(moments.__file__))
pass_over(Path(threading.__file__))
_EXCEPTIONS = {kind.__name__: kind for kind in (IndexError, NotImplementedError, TypeError, ValueError)}


class WitnessedGroup(DefaultGroup):
    """The default process group of a rank that has a witness.

    Args:
        settings: the rank and its world.
        listener: None; the witness has the rendezvous store.
        connection: to the witness.
    """

    def __init__(self, settings: Settings, listener: None, connection: socket.socket) -> None:
        super().__init__(settings, listener)
        self._witness = WitnessChannel(connection)
        distributed_c10d.ProcessGroupGloo = Unconnected
        RecordingProcessGroup.delegate = WitnessedProcessGroup
        RecordingProcessGroup.notes_completions = False
        WitnessedProcessGroup.witness = self._witness
        moments.marks = WitnessedMarks(self._witness)

    def _open_store(self, prefix: str) -> dist.Store:
        """One of the rank's own: nothing passes between ranks but by calls."""
        WitnessedProcessGroup.prefix = prefix
        return dist.HashStore()

    def cut(self, everything: bool) -> None:
        waits.give_up()
        self._witness.ask({"cut": True}).wait()


class WitnessedMarks(Marks):
    """Moments that the witness notes."""

    def __init__(self, witness: WitnessChannel) -> None:
        super().__init__()
        self._witness = witness

    def mark(self, name: str) -> None:
        self._witness.send({"mark": name})

    def settle(self) -> None:
        self._witness.ask({"settle": True}).wait()

    def end(self) -> list[Moment]:
        """None from here; returns when the witness has noted all that it was told."""
        self.settle()
        return []


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
            request: what.
            given: tensors that it speaks of.
            outputs: where what comes of it belongs.
            may_wait: whether the witness is to hear when somebody waits for it, and keeps it until then.
        """
        with self._sending:  # so that numbers arrive in their order
            number = next(self._numbers)
            begin_wait = functools.partial(self.send, {"wait": number}) if may_wait else None
            handle = self._asked[number] = Handle(self, outputs, begin_wait)
            self._send(request | {"id": number}, given)
        return handle

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
        """Take answers until this is so; whether it is, within so many seconds."""
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
    """What became of a request: as much of `dist.Work` as is asked of it.

    Args:
        witness: who was asked.
        outputs: where the tensors that come belong.
        begin_wait: tells the witness that somebody waits, if it must know.
    """

    def __init__(
        self, witness: WitnessChannel, outputs: Sequence[torch.Tensor], begin_wait: Callable[[], None] | None
    ) -> None:
        self._witness, self._outputs, self._begin_wait = witness, list(outputs), begin_wait
        self._issued = self._arrived = self._over = False
        self._error: Exception | None = None
        self._source = -1
        self._future: torch.futures.Future | None = None

    def note(self, is_over: bool) -> None:
        """The call has been made, or is over; what came of it is handed over when somebody waits."""
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
            future = self._future
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

    def _ask_for_it(self) -> None:
        begin, self._begin_wait = self._begin_wait, None
        if begin is not None and not self._over:
            begin()

    def has_ended(self) -> bool:
        """Whether the call is over. For those who only look on: nothing is handed over to them."""
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

    def get_future(self) -> torch.futures.Future:
        self._ask_for_it()
        self._witness.listen()
        with self._witness.arrival:
            if self._future is None:
                self._future = torch.futures.Future()
                if self._over:
                    self._settle(self._future)
            return self._future

    def _settle(self, future: torch.futures.Future) -> None:
        if self._error is None:
            future.set_result(self._outputs)
        else:
            future.set_exception(self._error)

    def _source_rank(self) -> int:
        return self._source


class Unconnected(dist.ProcessGroupGloo):
    """What torch asks for the kind of device that a group works on, and for nothing else."""

    _options: dist.ProcessGroupGloo.Options

    @classmethod
    def prepare(cls) -> None:
        """Open what each backend must have, while the rank still can."""
        cls._options = dist.ProcessGroupGloo._Options()
        cls._options._devices = [dist.ProcessGroupGloo.create_default_device()]
        cls._options._threads = 1

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(store, 0, 1, self._options)
        self.timeout = timeout


class WitnessedProcessGroup:
    """Makes no call itself. Its methods, one for each of `METHODS`, are those of `dist.ProcessGroup`.

    Attributes:
        witness: makes the calls.
        prefix: of the names of all groups that are made now.
    """

    witness: WitnessChannel
    prefix: str

    def __init__(self, store: dist.Store, rank: int, size: int) -> None:
        self._store, self._rank, self._size = store, rank, size

    def _register_backend(self, device: torch.device, kind: Any, backend: Unconnected) -> None:
        self._timeout = backend.timeout

    def _set_group_name(self, name: str) -> None:
        """The last that torch says of a new group; its ranks meet now."""
        self._key = f"{self.prefix}/{name}"
        request = {"join": self._key, "rank": self._rank, "size": self._size}
        self.witness.ask(request | {"timeout": self._timeout.total_seconds()}).wait()

    def _set_default_backend(self, kind: Any) -> None:
        """It is Gloo."""

    def _set_group_desc(self, description: str) -> None:
        """Nobody reads it."""

    def set_timeout(self, timeout: timedelta) -> None:
        """The time that a check allows ends sooner."""

    def get_group_store(self) -> dist.Store:
        return self._store

    def monitored_barrier(self, timeout: timedelta, wait_all_ranks: bool = False) -> None:
        self.witness.ask(self.request("monitored_barrier", to_plain((timeout, wait_all_ranks), []))).wait()

    def request(self, name: str, arguments: list[Any], **more: Any) -> dict[str, Any]:
        """What the witness is told of a call."""
        return {"call": name, "group": self._key, "arguments": arguments, "keywords": {}} | more


def _hand_over(name: str, operation: Method) -> None:
    sends, receives = name == "send", "recv" in name

    def method(self: WitnessedProcessGroup, *given: Any, **keywords: Any) -> Handle:
        arguments = read(operation, given, keywords)
        if arguments is None:
            raise TypeError(f"{name}(): incompatible function arguments")
        inputs = [] if receives else tensors_in(arguments.input)
        outputs = [] if sends else tensors_in(arguments.result)
        unread = frozenset(map(id, outputs)) - frozenset(map(id, inputs))
        sent: list[torch.Tensor] = []
        waits = not operation.message and arguments.synchronous
        request = self.request(
            name,
            to_plain(given, sent, unread),
            keywords={keyword: to_plain(value, sent, unread) for keyword, value in keywords.items()},
            acknowledge=_may_be_refused(operation, arguments),
            waits=waits,
        )
        handle = self.witness.ask(request, sent, outputs, may_wait=not waits)
        if request["acknowledge"]:
            handle.await_issue()
        return handle

    setattr(WitnessedProcessGroup, name, method)


def _may_be_refused(operation: Method, arguments: Arguments) -> bool:
    """Whether the call may fail at once, and not where it is waited for, which would be as good."""
    if operation.message:
        return not all(tensor.is_contiguous() for tensor in tensors_in(arguments.input))
    return not arguments.synchronous


for _name, _operation in METHODS.items():
    _hand_over(_name, _operation)
