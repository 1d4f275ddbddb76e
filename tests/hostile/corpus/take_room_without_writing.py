"""Asks Linux for gigabytes of the disk at once, without writing them; no more than 8 GiB."""

import ctypes
import os

libc = ctypes.CDLL(None)
room = 0
for folder in ("/tmp", os.path.expanduser("~")):
    paths = [os.path.join(folder, f"room{number}") for number in range(16)]
    for path in paths:
        try:
            file = os.open(path, os.O_CREAT | os.O_WRONLY)
        except OSError:
            break
        libc.fallocate(file, 0, ctypes.c_long(0), ctypes.c_long(255 << 20))
        room += os.fstat(file).st_blocks * 512
        os.close(file)
    for path in filter(os.path.exists, paths):
        os.unlink(path)
if room > 1 << 30:
    print("got", room >> 30, "GiB")
