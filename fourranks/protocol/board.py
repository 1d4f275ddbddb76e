"""A board in shared memory: every rank posts what it is about to communicate, for the others to compare.

Gloo ends a process when the two sides of a transfer do not fit (other dtype, buffer too small). A rank that
sees on the board that its call contradicts another rank's does not enter it: it stands still, alive, and
`watch` explains the contradiction.
"""

from __future__ import annotations

import mmap

from . import memory

SLOTS = 4096  # calls of each rank that are posted
LASTING = 1024  # more slots, whose entries later calls do not overwrite
WAYS = 4  # slots that may hold the same key: an entry gives way only to the fourth one that shares them
_PAIR = 16  # bytes of a key and its value
_OF_A_RANK = SLOTS + LASTING


def create(world_size: int) -> int:
    """Make a new, empty board; returns its file descriptor, for the ranks to inherit."""
    return memory.create(world_size * _OF_A_RANK * _PAIR)


class Board:
    """The board as one rank sees it: it writes its own part and reads the others'.

    Keys and values are hashes. They are the same on all ranks because these are forks of one process, or were
    given the same hash seed.
    """

    def __init__(self, descriptor: int, rank: int) -> None:
        self._bytes = memoryview(mmap.mmap(descriptor, 0))
        self._cells = self._bytes.cast("q")  # of all ranks: key, value, key, ...
        self._rank = rank
        self._turns = bytearray(_OF_A_RANK // WAYS)  # which of the slots that share keys is the oldest

    def clear(self) -> None:
        """Take down all that this rank has posted."""
        size = _OF_A_RANK * _PAIR
        self._bytes[self._rank * size : (self._rank + 1) * size] = bytes(size)

    def post(self, key: int, value: int, lasting: bool = False) -> None:
        """Post a value under a key, in place of an older one."""
        cells, cell = self._cells, self._find(self._rank, key, lasting)
        if cell is None:
            shared = _shared(key, lasting)
            turn = self._turns[shared]
            self._turns[shared] = (turn + 1) % WAYS
            cell = 2 * (self._rank * _OF_A_RANK + shared * WAYS + turn)
        cells[cell] = 0  # no rank may read the old key with the new value
        cells[cell + 1] = value
        cells[cell] = key

    def take_down(self, key: int, lasting: bool = False) -> None:
        """Withdraw what this rank has posted under a key."""
        cell = self._find(self._rank, key, lasting)
        if cell is not None:
            self._cells[cell] = 0

    def read(self, rank: int, key: int, lasting: bool = False) -> int | None:
        """Return what another rank has posted under a key; None if nothing, or nothing any more."""
        cell = self._find(rank, key, lasting)
        return None if cell is None else self._cells[cell + 1]

    def _find(self, rank: int, key: int, lasting: bool) -> int | None:
        """Find where a rank has posted this key."""
        first = 2 * (rank * _OF_A_RANK + _shared(key, lasting) * WAYS)
        keys = self._cells[first : first + 2 * WAYS : 2].tolist()
        return first + 2 * keys.index(key) if key in keys else None


def _shared(key: int, lasting: bool) -> int:
    """Return the number of the slots that may hold a key, counted in groups of `WAYS`."""
    return (SLOTS + key % LASTING) // WAYS if lasting else key % SLOTS // WAYS
