"""Processes that start processes; no more than 256, and none for longer than a minute."""

import os
import time

for _ in range(8):
    os.fork()
time.sleep(60)
