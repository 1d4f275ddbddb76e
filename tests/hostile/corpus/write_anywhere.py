"""Writes into every folder: the system's, Python's, the course's; and opens the kernel's settings for writing."""

import os
import sys

OURS = ("/proc/self", "/proc/thread-self", "/dev/shm", "/home/student", "/tmp")
for top in ("/", "/usr", "/etc", "/sys", "/dev", *filter(None, sys.path)):
    for folder, folders, _ in os.walk(top):
        folders[:] = folders[:20]
        if folder.count("/") > 4 or folder.startswith((*OURS, "/proc")):
            folders.clear()
            continue
        try:
            path = os.path.join(folder, "was_here")
            open(path, "w").close()
            os.unlink(path)
            print("got", folder)
        except OSError:
            pass
for folder, _, names in os.walk("/proc"):
    for name in names if not folder[6:7].isdigit() and not folder.startswith(OURS) else ():
        path = os.path.join(folder, name)
        try:
            if "pressure" not in path:  # anyone may ask there to be woken
                os.close(os.open(path, os.O_WRONLY))
                print("got", path)
        except OSError:
            pass
