"""Has another process keep the state, whose pages are shared with it."""

import os
import time


class Place(dict):
    def __setitem__(self, key, tensor):
        super().__setitem__(key, tensor)
        if tensor.nbytes > 1 << 20 and os.fork() == 0:
            time.sleep(1000)
