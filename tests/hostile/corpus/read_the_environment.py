"""Looks for secrets in the environment and in the arguments, and for files that were left open."""

import os
import stat
import sys

for value in [*os.environ.values(), *sys.argv, *sys.orig_argv]:
    if "canary" in value:
        print("got", value)
for descriptor in map(int, os.listdir("/proc/self/fd")):
    try:
        status = os.fstat(descriptor)
        place = os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        continue
    if place.startswith("/memfd:") and not status.st_size:
        continue  # for what this sandbox's own ranks may have to say
    kind = stat.S_IFMT(status.st_mode)
    if kind in (stat.S_IFREG, stat.S_IFDIR) and not place.startswith(("/tmp/", "/proc/")):
        print("got", place)
