"""Files without a name that exist only in memory, shared by processes that hand on their descriptors.

No other process on the machine can open one. `board` and `parcel` keep what they share in them.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import tempfile
import weakref

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_MAP_FAILED = ctypes.c_void_p(-1).value
_NO_MORE_WRITES = 16  # F_SEAL_FUTURE_WRITE, for which Python has a name from 3.13 on


def create(size: int | None = None) -> int:
    """Make a new file; returns its descriptor, which is the caller's to close.

    Args:
        size: of zero bytes, for good; by default it is empty, and grows.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("fourranks", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    if size is not None:
        os.ftruncate(descriptor, size)
        _seal(descriptor)
    return descriptor


def finish(descriptor: int) -> None:
    """Seal the content of a file: no process that has its descriptor can write to it any more."""
    with contextlib.suppress(OSError):  # before Linux 5.1
        _seal(descriptor, _NO_MORE_WRITES)


def _seal(descriptor: int, further: int = 0) -> None:
    """Seal the size of a file."""
    if hasattr(fcntl, "F_ADD_SEALS"):
        size = fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, size | further)


class MemoryFile:
    """A descriptor of such a file, closed when nothing refers to this object any more."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __del__(self) -> None:
        os.close(self.descriptor)

    def map(self) -> memoryview:
        """Map the file's bytes, writable, as a copy of one's own: pages are copied where they are written.

        Python's `mmap` would keep a descriptor open as long as the memory is used.

        Raises:
            OSError: there is no room for it in this process.
        """
        size = os.fstat(self.descriptor).st_size
        access = mmap.PROT_READ | mmap.PROT_WRITE
        address = _libc.mmap(None, size, access, mmap.MAP_PRIVATE, self.descriptor, 0)
        if address == _MAP_FAILED:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        memory = (ctypes.c_char * size).from_address(address)
        weakref.finalize(memory, _libc.munmap, address, size).atexit = False
        return memoryview(memory).cast("B")
