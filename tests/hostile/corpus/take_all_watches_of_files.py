"""Takes all instances of inotify that Linux lets a user have: editors and services outside then get none."""

import ctypes

libc = ctypes.CDLL(None)
taken = 0
while libc.inotify_init1(0) >= 0:
    taken += 1
if taken:
    print("got", taken)
