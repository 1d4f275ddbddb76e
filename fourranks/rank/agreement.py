"""Whether the calls that ranks are about to make fit together, as far as the board tells.

`recorder` asks before each call enters the backend. Torch's rule decides: in a collective all ranks give
the same op, root, reduce op, dtype and size; a receive has room for its message.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from ..protocol.board import Board
from ..protocol.calls import Call, Exchange

CONFLICT_TICK = 0.005  # seconds between looks at the board of a rank that stands still

Counts = Mapping[tuple[str, int | None, int], int]  # receives so far, by (group, peer, tag)

# As they are posted with a message, by their place; the first stands for all others.
_DTYPES: tuple[str, ...] = ("", "float32", "float64", "int64", "int32", "float16", "bfloat16", "int16")
_DTYPES += ("bool", "complex64", "complex128")
_CODES = {dtype: code for code, dtype in enumerate(_DTYPES)}
_DTYPE_BITS = 6
_ANY_SIZE = 2**62  # room for anything that is sent, of any dtype
_SAME_BITS = (
    {"complex64", "float32"},
    {"complex128", "float64"},
    {"int16", "bfloat16"},
    {"int16", "float16"},
)


class Comparison(NamedTuple):
    """One comparison with what other ranks may have posted."""

    ranks: Collection[int]
    key: int
    value: int  # of this rank's call
    fits: Callable[[int, int], bool] = operator.eq  # of the own value and theirs
    lasting: bool = False
    awaited: bool = False  # whether it does not fit before they have posted anything


class Agreement:
    """One rank's view of the board: posts its calls and compares them with the others'."""

    def __init__(self, rank: int, board: Board) -> None:
        self._rank, self._board = rank, board
        self._others_in: dict[tuple[int, ...], list[int]] = {}  # asked at every call, so kept
        self.reset()

    def reset(self) -> None:
        """Take down all that this rank has posted."""
        self._board.clear()

    def post(self, call: Call, received: Counts, is_awaited: bool = False) -> list[Comparison]:
        """Post a call; returns what to compare, as long as the rank has not entered it.

        Args:
            call: the call.
            received: this rank's receives so far, this one included.
            is_awaited: whether the other side of a message must have been posted, too.
        """
        if call.peer is not None and is_awaited:
            return [self._post_message(call, call.peer, call.seq)._replace(awaited=True)]
        if call.op == "recv":
            return self._post_receive(call, received)
        if call.peer is not None:  # a send
            return [self._post_message(call, call.peer, call.seq)]
        if call.members and self._rank not in call.members:
            self._board.post(_apart(call), 1, lasting=True)
            return []
        key = _place(call)
        # Without None: spawned ranks would not agree on its hash before Python 3.12.
        value = hash((call.op, -1 if call.root is None else call.root, call.reduce_op or "", call.part or ()))
        stays = bool(call.members)  # a new_group that a rank left out may do harm only cells later
        self._board.post(key, value, stays)
        if call.members == (self._rank,):  # it waits for no other, but takes the name of a group
            return []
        comparisons = [Comparison(self._others(call.ranks), key, value, operator.eq, stays)]
        if call.members:
            members = self._others(call.members)
            comparisons.append(Comparison(members, _apart(call), 1, operator.ne, lasting=True))
        exchange = call.exchange
        return comparisons if exchange is None else [*comparisons, *self._post_exchange(call, exchange)]

    def fits(self, comparisons: list[Comparison]) -> bool:
        """Return whether what other ranks have posted by now fits the call."""
        for ranks, key, value, fits, lasting, awaited in comparisons:
            for rank in ranks:
                theirs = self._board.read(rank, key, lasting)
                if awaited if theirs is None else not fits(value, theirs):
                    return False
        return True

    def wait(self, comparisons: list[Comparison], is_over: Callable[[], bool]) -> bool:
        """Wait until what other ranks have posted fits the call; False if waiting is over before that."""
        while not self.fits(comparisons):
            if is_over():
                return False
            time.sleep(CONFLICT_TICK)
        return True

    def other_dtype(self, comparisons: list[Comparison]) -> str | None:
        """Return the dtype of a message's other side, if the message turns into other numbers by it.

        Gloo copies bytes. Those of int8 and uint8 are left alone, for they carry anything, and so are views:
        a complex tensor as real numbers, 16 bits as an integer.
        """
        if len(comparisons) != 1:
            return None
        ((peer,), key, value, *_) = comparisons[0]
        theirs = self._board.read(peer, key) or 0
        mine, other = (_DTYPES[each % 2**_DTYPE_BITS] for each in (value, theirs))
        return other if mine and other and mine != other and {mine, other} not in _SAME_BITS else None

    def take_back(self, call: Call) -> None:
        """Take a call down that the backend has refused."""
        if call.is_point_to_point:
            if call.peer is not None:
                self._board.take_down(self._message(call, call.peer, call.seq))
            return
        for key in (_place(call), _apart(call)):
            self._board.take_down(key, bool(call.members))
        for rank in call.ranks if call.exchange is not None else ():
            for side in ("gives", "takes"):
                self._board.take_down(_share(call, side, self._rank, rank))

    def withdraw(self, call: Call, source: int, received: Counts) -> None:
        """End a receive from any source: ranks that it did not receive from may send what they like."""
        for peer in set(call.ranks) - {self._rank, source}:
            key = self._message(call, peer, received.get((call.group, peer, call.tag), 0))
            self._board.post(key, _ANY_SIZE)

    def _post_receive(self, call: Call, received: Counts) -> list[Comparison]:
        """Post a receive; one from any source stands for each rank's next message unless several are open."""
        under_way = received.get((call.group, None, call.tag), 0)
        if call.peer is not None:
            return [] if under_way else [self._post_message(call, call.peer, call.seq)]
        if under_way > 1:
            return []
        peers = set(call.ranks) - {self._rank}
        return [
            self._post_message(call, peer, received.get((call.group, peer, call.tag), 0)) for peer in peers
        ]

    def _post_message(self, call: Call, peer: int, seq: int) -> Comparison:
        key = self._message(call, peer, seq)
        # One from any source may not be for this message.
        dtype = _CODES.get(call.dtype, 0) if call.peer is not None else 0
        value = call.nbytes << _DTYPE_BITS | dtype
        self._board.post(key, value)
        return Comparison([peer], key, value, _has_room if call.op == "send" else _fits_in)

    def _message(self, call: Call, peer: int, seq: int) -> int:
        """Return the key of the n-th message between this rank and another."""
        ends = (self._rank, peer) if call.op == "send" else (peer, self._rank)
        return hash((call.group, *ends, call.tag, seq))

    def _post_exchange(self, call: Call, exchange: Exchange) -> Iterator[Comparison]:
        """Have each pair of ranks of an all-to-all agree on the bytes between them."""
        for rank, gives, takes in zip(call.ranks, *exchange, strict=False):
            for value, mine, theirs in ((gives, "gives", "takes"), (takes, "takes", "gives")):
                self._board.post(_share(call, mine, self._rank, rank), value)
                if rank != self._rank:
                    yield Comparison([rank], _share(call, theirs, rank, self._rank), value)

    def _others(self, ranks: tuple[int, ...]) -> list[int]:
        if (others := self._others_in.get(ranks)) is None:
            others = self._others_in[ranks] = [rank for rank in ranks if rank != self._rank]
        return others


def _has_room(sent: int, room: int) -> bool:
    """Tell whether a message fits, by what its sender and its receiver have posted."""
    return sent >> _DTYPE_BITS <= room >> _DTYPE_BITS


def _fits_in(room: int, sent: int) -> bool:
    return _has_room(sent, room)


def _place(call: Call) -> int:
    """Return the key of a collective: where in the order of its group it stands."""
    return hash((call.group, call.ranks, call.seq))


def _apart(call: Call) -> int:
    """Return the key of a new_group at the same place that the calling rank is no member of."""
    return hash((call.group, call.ranks, call.seq, "apart"))


def _share(call: Call, side: str, rank: int, other: int) -> int:
    """Return the key of the bytes that a rank says it gives to, or takes from, another."""
    ends = (rank, other) if side == "gives" else (other, rank)
    return hash((call.group, call.ranks, call.seq, side, ends))
