"""Whether the calls that ranks are about to make fit together, as far as the board tells.

`recorder` asks before each call enters the backend. What fits is torch's rule: in a collective all ranks give
the same op, root, reduce op, dtype and size; a receive has room for its message.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping

from ..trace import Call
from .board import Board

Fits = Callable[[int, int], bool]  # of the own value and theirs
Check = tuple[int, int, bool, Fits, int]  # rank, key, whether it stays posted, fits, own value
Counts = Mapping[tuple[str, int | None, int], int]  # receives so far, by (group, peer, tag)

_ANY_SIZE = 2**62  # bytes; room for whatever is sent


class Agreement:
    """One rank's view of the board: posts its calls and compares them with the others'."""

    def __init__(self, rank: int, board: Board) -> None:
        self._rank, self._board = rank, board
        self.reset()

    def reset(self) -> None:
        """Take down all that this rank has posted."""
        self._board.clear()

    def post(self, call: Call, received: Counts) -> list[Check]:
        """Post a call; returns what to compare, as long as the rank has not entered it.

        Args:
            call: the call.
            received: this rank's receives so far, this one included.
        """
        if call.op == "send":
            return [self._post_message(call, call.peer, call.seq)]
        if call.op == "recv":
            return self._post_receive(call, received)
        everyone = (call.group, call.ranks, call.seq)
        key = hash(everyone)
        # Without None: spawned ranks would not agree on its hash before Python 3.12.
        value = hash((call.op, -1 if call.root is None else call.root, call.reduce_op or "", call.part or ()))
        stays = bool(call.members)  # a new_group that a rank left out may do harm only cells later
        self._board.post(key, value, stays)
        checks = [(rank, key, stays, operator.eq, value) for rank in call.ranks if rank != self._rank]
        return checks if call.exchange is None else [*checks, *self._post_exchange(call, everyone)]

    def fits(self, checks: list[Check]) -> bool:
        """Whether nothing that other ranks have posted by now contradicts the call."""
        for rank, key, stays, fits, value in checks:
            theirs = self._board.read(rank, key, stays)
            if theirs is not None and not fits(value, theirs):
                return False
        return True

    def withdraw(self, call: Call, source: int, received: Counts) -> None:
        """A receive from any source is over: ranks that it did not receive from may send what they like."""
        for peer in set(call.ranks) - {self._rank, source}:
            key = self._message(call, peer, received.get((call.group, peer, call.tag), 0))
            self._board.post(key, _ANY_SIZE)

    def _post_receive(self, call: Call, received: Counts) -> list[Check]:
        """One from any source stands for the next message of each rank, unless several are under way."""
        under_way = received.get((call.group, None, call.tag), 0)
        if call.peer is not None:
            return [] if under_way else [self._post_message(call, call.peer, call.seq)]
        if under_way > 1:
            return []
        peers = set(call.ranks) - {self._rank}
        return [
            self._post_message(call, peer, received.get((call.group, peer, call.tag), 0)) for peer in peers
        ]

    def _post_message(self, call: Call, peer: int, seq: int) -> Check:
        key = self._message(call, peer, seq)
        self._board.post(key, call.nbytes)
        return peer, key, False, operator.le if call.op == "send" else operator.ge, call.nbytes

    def _message(self, call: Call, peer: int, seq: int) -> int:
        """The key of the n-th message between this rank and another."""
        ends = (self._rank, peer) if call.op == "send" else (peer, self._rank)
        return hash((call.group, *ends, call.tag, seq))

    def _post_exchange(self, call: Call, everyone: tuple) -> Iterator[Check]:
        """Each two ranks of an all-to-all agree on the bytes between them."""
        for rank, gives, takes in zip(call.ranks, *call.exchange, strict=True):
            for value, mine, theirs, ends in (
                (gives, "gives", "takes", (self._rank, rank)),
                (takes, "takes", "gives", (rank, self._rank)),
            ):
                self._board.post(hash((everyone, mine, ends)), value)
                if rank != self._rank:
                    yield rank, hash((everyone, theirs, ends)), False, operator.eq, value
