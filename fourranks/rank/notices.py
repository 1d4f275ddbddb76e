"""Notices for the reader after a cell in which something went wrong without an error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ..protocol.calls import Call
from ..protocol.places import place

_MAY_HANG = " Under torchrun this program may hang, because nothing keeps the message there."
_FORMED_ANEW = (
    "The default process group is formed again before the next cell; groups from new_group, and what holds "
    "one, must be made again."
)
UNFINISHED_BATCH = f"A batch of collectives was left by an exception. {_FORMED_ANEW}"


def of_dropped_handles(calls: Iterable[Call]) -> Iterator[str]:
    """Name the calls whose handles were thrown away before they were over."""
    for op, line, is_message in dict.fromkeys(
        (call.op, str(place(*call.at)), call.is_point_to_point) for call in calls
    ):
        yield (
            f"{op} ({line}) was not waited for: its handle was thrown away before it was over. Keep what "
            "the call returns and call wait() on it before the tensor is used again."
            f"{_MAY_HANG if is_message else ''}"
        )


def of_reinterpreted_messages(messages: Iterable[tuple[Call, str]]) -> Iterator[str]:
    """Name the messages whose other side gave another dtype, which comes with each."""
    for op, own, other, peer, line in dict.fromkeys(
        (call.op, call.dtype, dtype, call.peer, str(place(*call.at))) for call, dtype in messages
    ):
        yield (
            f"This {op} ({line}) has {own}, and its other side on rank {peer} {other}: a message is "
            "copied byte for byte and no number is converted, so the receiver holds other values. Give "
            "both tensors the same dtype."
        )


def of_broken_groups(broken: Mapping[str, Call], default_group: str | None) -> Iterator[str]:
    """Name the process groups whose connections a failed call has broken, and what to do about each.

    Args:
        broken: by the name of each such group, a call on it that failed.
        default_group: the name of the default process group, if there is one.
    """
    for group, call in broken.items():
        remedy = _FORMED_ANEW if group == default_group else "Make this group again: dist.new_group."
        line = place(*call.at)
        yield f"{call.op} failed ({line}), and with it the connections of its process group. {remedy}"
