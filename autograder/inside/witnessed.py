"""Process groups of a rank in a sandbox: they hand each call to the rank's `witness` and wait for what comes.

To torch and to `fourranks` they are groups of Gloo, whose connections are in another process.
"""

from __future__ import annotations

import socket
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, Store

from autograder.inside import moments
from autograder.inside.arguments import to_plain
from autograder.inside.moments import Marks, Moment
from autograder.inside.witness_channel import Handle, WitnessChannel
from fourranks.protocol.messages import Settings
from fourranks.rank import patches, waits
from fourranks.rank.default_group import DefaultGroup
from fourranks.rank.describe import tensors_in
from fourranks.rank.frames import pass_over
from fourranks.rank.methods import METHODS, Arguments, Method, read
from fourranks.rank.process_group import RecordingProcessGroup
from fourranks.rank.refusals import is_accepted, is_refused

pass_over(Path(__file__).parent)
pass_over(Path(moments.__file__))
pass_over(Path(threading.__file__))


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
        patches.replace_gloo(Unconnected)
        RecordingProcessGroup.delegate = WitnessedProcessGroup
        RecordingProcessGroup.notes_completions = False
        WitnessedProcessGroup.witness = self._witness
        moments.marks = WitnessedMarks(self._witness)

    def _open_store(self, prefix: str) -> Store:
        """Return one of the rank's own: nothing passes between ranks but by calls."""
        WitnessedProcessGroup.prefix = prefix
        return HashStore()

    def cut(self, everything: bool) -> None:
        waits.give_up()
        self._witness.ask({"cut": True}).wait()


class WitnessedMarks(Marks):
    """Moments that the witness notes."""

    def __init__(self, witness: WitnessChannel) -> None:
        super().__init__()
        self._witness = witness

    def mark(self, name: str) -> None:
        self._witness.send({"mark": name, "at": moments.clock()})

    def settle(self) -> None:
        self._witness.ask({"settle": True}).wait()

    def end(self) -> list[Moment]:
        """Return none from here, once the witness has noted all that it was told."""
        self.settle()
        return []


def gloo_options(device: dist.ProcessGroupGloo.Device) -> Any:
    """Return options for a group of Gloo; torch describes them by names that they do not have."""
    options: Any = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._devices, options._threads = [device], 1
    return options


class Unconnected(dist.ProcessGroupGloo):
    """Tells torch a group's kind of device and, from 2.15 on, its rank and size, and no more."""

    _device: dist.ProcessGroupGloo.Device
    _has_place = False  # whether it can have a rank and a size without connecting: since torch 2.15

    @classmethod
    def prepare(cls) -> None:
        """Open what each backend must have, while the rank still can."""
        cls._device = dist.ProcessGroupGloo.create_default_device()
        cls._has_place = hasattr(gloo_options(cls._device), "enable_reconfigure")

    def __init__(
        self, store: Store, rank: int, size: int, timeout: timedelta, enable_reconfigure: bool = False
    ) -> None:
        place = (rank, size) if self._has_place else (0, 1)
        options = gloo_options(self._device)
        options._timeout = timeout
        if self._has_place:
            options.enable_reconfigure = True  # connects when told to: never
        super().__init__(store, *place, options)
        self.timeout = timeout


class WitnessedProcessGroup:
    """Makes no call itself. Its methods, one for each of `METHODS`, are those of `dist.ProcessGroup`.

    Attributes:
        witness: makes the calls.
        prefix: of the names of all groups that are made now.
    """

    witness: WitnessChannel
    prefix: str

    def __init__(self, store: Store, rank: int, size: int) -> None:
        self._store, self._rank, self._size = store, rank, size

    def _register_backend(self, device: torch.device, kind: Any, backend: Unconnected) -> None:
        self._timeout = backend.timeout

    def _set_group_name(self, name: str) -> None:
        """Meet the other ranks of a new group; its name is the last that torch says of it."""
        self._key = f"{self.prefix}/{name}"
        request = {"join": self._key, "rank": self._rank, "size": self._size}
        self.witness.ask(request | {"timeout": self._timeout.total_seconds()}).wait()

    def _set_default_backend(self, kind: Any) -> None:
        """Do nothing: it is Gloo."""

    def _set_group_desc(self, description: str) -> None:
        """Do nothing: it is not read."""

    def set_timeout(self, timeout: timedelta) -> None:
        """Do nothing: the time that a check allows ends sooner."""

    def get_group_store(self) -> Store:
        return self._store

    def monitored_barrier(self, timeout: timedelta, wait_all_ranks: bool = False) -> None:
        self.witness.ask(self.request("monitored_barrier", to_plain((timeout, wait_all_ranks), []))).wait()

    def request(self, name: str, arguments: list[Any], **more: Any) -> dict[str, Any]:
        """Return what the witness is told of a call."""
        return {"call": name, "group": self._key, "arguments": arguments, "keywords": {}} | more


def _hand_over(name: str, operation: Method) -> None:
    sends = name == "send"

    def method(self: WitnessedProcessGroup, *given: Any, **keywords: Any) -> Handle:
        arguments = read(operation, given, keywords)
        if arguments is None:
            raise TypeError(f"{name}(): incompatible function arguments")
        inputs = tensors_in(arguments.input)  # of a receive, too: a message may fill a part of it
        outputs = [] if sends else tensors_in(arguments.result)
        unread = frozenset(map(id, outputs)) - frozenset(map(id, inputs))
        sent: list[torch.Tensor] = []
        waits = arguments.synchronous and not operation.message
        request = self.request(
            name,
            to_plain(given, sent, unread),
            keywords={keyword: to_plain(value, sent, unread) for keyword, value in keywords.items()},
            acknowledge=_may_be_refused(operation, arguments, self._rank, self._size),
            waits=waits,
        )
        handle = self.witness.ask(request, sent, outputs, may_wait=not waits)
        if request["acknowledge"]:
            handle.await_issue()
        return handle

    setattr(WitnessedProcessGroup, name, method)


def _may_be_refused(operation: Method, arguments: Arguments, rank: int, size: int) -> bool:
    """Tell whether it matters that the call may fail at once, and not where it is waited for.

    To other ranks a refused call was never made. A synchronous one is known by its arguments.
    """
    if operation.message:
        return not all(tensor.is_contiguous() for tensor in tensors_in(arguments.input))
    if arguments.synchronous:
        return is_refused(operation, arguments, rank, size)
    return not is_accepted(operation, arguments, rank, size)


for _name, _operation in METHODS.items():
    _hand_over(_name, _operation)
