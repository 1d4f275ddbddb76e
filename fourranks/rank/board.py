"""A board in shared memory: every rank posts what it is about to communicate, for the others to compare.

Gloo ends a process when the two sides of a transfer do not fit (other dtype, buffer too small). A rank that
sees on the board that its call contradicts another rank's does not enter it: it stands still, alive, and
`watch` explains the contradiction.
"""

from __future__ import annotations

import mmap
import struct

from .. import memory

SLOTS = 256  # calls of each rank that stay posted: more than a rank may run ahead of another in practice
_KEY, _VALUE = struct.Struct("q"), struct.Struct("q")
_SLOT = _KEY.size + _VALUE.size


def create(world_size: int) -> int:
    """A new, empty board; returns its file descriptor, for the ranks to inherit."""
    return memory.create(world_size * SLOTS * _SLOT)


class Board:
    """The board as one rank sees it: it writes its own part and reads the others'.

    Keys and values are hashes. They are the same on all ranks because these are forks of one process, or were
    given the same hash seed.
    """

    def __init__(self, descriptor: int, rank: int) -> None:
        self._memory = mmap.mmap(descriptor, 0)
        self._own = rank * SLOTS * _SLOT

    def clear(self) -> None:
        """Take down all that this rank has posted."""
        self._memory[self._own : self._own + SLOTS * _SLOT] = bytes(SLOTS * _SLOT)

    def post(self, key: int, value: int) -> None:
        """Post a value under a key, in place of an older one."""
        slot = self._own + key % SLOTS * _SLOT
        _KEY.pack_into(self._memory, slot, 0)  # nobody may read the old key with the new value
        _VALUE.pack_into(self._memory, slot + _KEY.size, value)
        _KEY.pack_into(self._memory, slot, key)

    def read(self, rank: int, key: int) -> int | None:
        """What another rank has posted under a key; None if nothing, or nothing any more."""
        slot = rank * SLOTS * _SLOT + key % SLOTS * _SLOT
        if _KEY.unpack_from(self._memory, slot)[0] != key:
            return None
        return _VALUE.unpack_from(self._memory, slot + _KEY.size)[0]
