"""Files without a name that exist only in memory: what several processes share, handed on by descriptor.

Nobody else on the machine can open one. `board` and `parcel` keep what they share in them.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
import weakref

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_MAP_FAILED = ctypes.c_void_p(-1).value


def create(size: int = 0) -> int:
    """A new file of `size` zero bytes; returns its descriptor, which is the caller's to close."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("fourranks")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


class MemoryFile:
    """A descriptor of such a file, closed when nobody refers to this object any more."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __del__(self) -> None:
        os.close(self.descriptor)

    def map(self) -> memoryview:
        """The file's bytes, writable, as a copy of one's own: pages are copied where they are written.

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
