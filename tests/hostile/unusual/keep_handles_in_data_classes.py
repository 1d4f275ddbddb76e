"""Keeps handles in data classes with slots, and waits in a context manager."""

import contextlib
import dataclasses
import enum
import typing


class Direction(enum.Enum):
    OUT = "isend"
    IN = "irecv"


@dataclasses.dataclass(slots=True, frozen=True)
class Message:
    direction: Direction
    buffer: torch.Tensor
    peer: int

    def start(self) -> "typing.Any":
        return getattr(dist, self.direction.value)(self.buffer, self.peer)


@contextlib.contextmanager
def all_done(*messages: Message) -> typing.Iterator[None]:
    handles = [message.start() for message in messages]
    try:
        yield
    finally:
        while handles:
            handles.pop().wait()


def exchange(tensor, peer):
    received = torch.empty_like(tensor)
    with all_done(Message(Direction.OUT, tensor, peer), Message(Direction.IN, received, peer)):
        pass
    return received
