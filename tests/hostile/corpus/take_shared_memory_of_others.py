"""Looks into shared memory that other programs have made, and takes it away."""

import ctypes
import platform

AT, CTL = {"x86_64": (30, 31), "aarch64": (196, 195)}[platform.machine()]
STATE_OF_ANY, REMOVE, READ_ONLY = 15, 0, 0o10000

libc = ctypes.CDLL(None)
libc.syscall.restype = ctypes.c_long
state = ctypes.create_string_buffer(1024)
for place in range(100):
    number = libc.syscall(CTL, place, STATE_OF_ANY, state)
    if number >= 0:
        print("got number", number)
        address = libc.syscall(AT, number, None, READ_ONLY)
        if address != -1:
            print("got", ctypes.string_at(address, 20))
        if libc.syscall(CTL, number, REMOVE, None) == 0:
            print("got rid of it")
