"""Whether the calls that ranks are about to make fit together, as far as the board tells.

`recorder` asks before each call enters the backend. What fits is torch's rule: in a collective all ranks give
the same op, root, reduce op, dtype and size; a receive has room for its message.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator

from .board import Board
from .trace import Call

Check = tuple[int, int, Callable[[int, int], bool], int]  # (rank, key, fits, own value): fits(own, theirs)


class Agreement:
    """One rank's view of the board: posts its calls and compares them with the others'."""

    def __init__(self, rank: int, board: Board) -> None:
        self._rank, self._board = rank, board
        self.reset()

    def reset(self) -> None:
        """Take down all that this rank has posted."""
        self._board.clear()
        self._any_source: set[tuple[str, int]] = set()  # (group, tag) in which messages cannot be paired up

    def post(self, call: Call) -> list[Check]:
        """Post a call; returns what to compare, as long as the rank has not entered it."""
        if call.is_point_to_point:
            return self._post_message(call)
        everyone = (call.group, call.ranks, call.seq)
        key = hash(everyone)
        # Without None: spawned ranks would not agree on its hash before Python 3.12.
        value = hash((call.op, -1 if call.root is None else call.root, call.reduce_op or "", call.part or ()))
        self._board.post(key, value)
        others = [rank for rank in call.ranks if rank != self._rank]
        checks = [(rank, key, operator.eq, value) for rank in others]
        return checks if call.exchange is None else [*checks, *self._post_exchange(call, everyone)]

    def fits(self, checks: list[Check]) -> bool:
        """Whether nothing that other ranks have posted by now contradicts the call."""
        for rank, key, fits, value in checks:
            theirs = self._board.read(rank, key)
            if theirs is not None and not fits(value, theirs):
                return False
        return True

    def _post_message(self, call: Call) -> list[Check]:
        if call.peer is None:
            self._any_source.add((call.group, call.tag))
        if (call.group, call.tag) in self._any_source:
            return []
        sends = call.op == "send"
        ends = (self._rank, call.peer) if sends else (call.peer, self._rank)
        key = hash((call.group, *ends, call.tag, call.seq))
        self._board.post(key, call.nbytes)
        return [(call.peer, key, operator.le if sends else operator.ge, call.nbytes)]

    def _post_exchange(self, call: Call, everyone: tuple) -> Iterator[Check]:
        """Each two ranks of an all-to-all agree on the bytes between them."""
        for rank, gives, takes in zip(call.ranks, *call.exchange, strict=True):
            for value, mine, theirs, ends in (
                (gives, "gives", "takes", (self._rank, rank)),
                (takes, "takes", "gives", (rank, self._rank)),
            ):
                self._board.post(hash((everyone, mine, ends)), value)
                if rank != self._rank:
                    yield rank, hash((everyone, theirs, ends)), operator.eq, value
