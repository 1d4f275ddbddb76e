"""Asks for rights: new namespaces, mounts, another user, kernel keys, tracing, setuid programs."""

import ctypes
import os
import subprocess

libc = ctypes.CDLL(None, use_errno=True)
ALL_NAMESPACES = 0x7E020000
CALLS = {
    "unshare": (272, ALL_NAMESPACES),
    "unshare user": (272, 0x10000000),
    "clone user": (56, 0x10000000 | 17, 0, 0, 0, 0),
    "clone3": (435, 0, 0),
    "setuid": (105, 1000),
    "keyctl": (250, 0, -3, 0),
    "add_key": (248, b"user", b"a", b"b", 1, -4),
    "bpf": (321, 0, 0, 0),
    "perf_event_open": (298, 0, 0, -1, -1, 0),
    "io_uring_setup": (425, 1, 0),
    "userfaultfd": (323, 0),
    "ptrace": (101, 16, 1, 0, 0),
}
for name, call in CALLS.items():
    if libc.syscall(*call) >= 0:
        print("got", name)
for line in open("/proc/self/status"):
    if line.startswith("Cap") and int(line.split()[1], 16):
        print("got", line)
for command in (["sudo", "-n", "true"], ["su", "-c", "true"], ["unshare", "-Ur", "true"], ["newuidmap"]):
    try:
        if subprocess.run(command, capture_output=True, timeout=5).returncode == 0:
            print("got", command)
    except OSError:
        pass
