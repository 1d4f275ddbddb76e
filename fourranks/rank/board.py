"""A board in shared memory: every rank posts what it is about to communicate, for the others to compare.

Gloo ends a process when the two sides of a transfer do not fit (other dtype, buffer too small). A rank that
sees on the board that its call contradicts another rank's does not enter it: it stands still, alive, and
`watch` explains the contradiction.
"""

from __future__ import annotations

import mmap

from .. import memory

SLOTS = 256  # calls of each rank that are posted: more than a rank may run ahead of another in practice
LASTING = 256  # slots beside them whose entries the stream of calls does not wash away
_PAIR = 16  # bytes of a key and its value
_OF_A_RANK = SLOTS + LASTING


def create(world_size: int) -> int:
    """A new, empty board; returns its file descriptor, for the ranks to inherit."""
    return memory.create(world_size * _OF_A_RANK * _PAIR)


class Board:
    """The board as one rank sees it: it writes its own part and reads the others'.

    Keys and values are hashes. They are the same on all ranks because these are forks of one process, or were
    given the same hash seed.
    """

    def __init__(self, descriptor: int, rank: int) -> None:
        self._cells = memoryview(mmap.mmap(descriptor, 0)).cast("q")  # of all ranks: key, value, key, ...
        self._rank = rank

    def clear(self) -> None:
        """Take down all that this rank has posted."""
        first = _cell(self._rank, 0, False)
        for cell in range(first, first + 2 * _OF_A_RANK):
            self._cells[cell] = 0

    def post(self, key: int, value: int, lasting: bool = False) -> None:
        """Post a value under a key, in place of an older one."""
        cells, cell = self._cells, _cell(self._rank, key, lasting)
        cells[cell] = 0  # nobody may read the old key with the new value
        cells[cell + 1] = value
        cells[cell] = key

    def read(self, rank: int, key: int, lasting: bool = False) -> int | None:
        """What another rank has posted under a key; None if nothing, or nothing any more."""
        cell = _cell(rank, key, lasting)
        return self._cells[cell + 1] if self._cells[cell] == key else None


def _cell(rank: int, key: int, lasting: bool) -> int:
    """Where a rank's key is."""
    slot = SLOTS + key % LASTING if lasting else key % SLOTS
    return (rank * _OF_A_RANK + slot) * 2
