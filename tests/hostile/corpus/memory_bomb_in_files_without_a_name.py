"""Takes memory that belongs to no process: files without a name, which nobody maps; no more than 6 GiB."""

import os
import time

for _ in range(24):
    file = os.memfd_create("bomb")
    for _ in range(16):
        os.write(file, bytes(16 << 20))
time.sleep(60)
