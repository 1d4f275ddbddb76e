"""Prints its memory, its variables and its place, to find a mistake."""

import inspect
import logging
import os
import pprint
import sys
import time
import traceback

import psutil


def exchange(tensor, peer):
    began = time.perf_counter()
    me = psutil.Process()
    print(me.memory_info().rss >> 20, "MiB in", me.name(), me.num_threads(), psutil.virtual_memory().percent)
    pprint.pprint({"locals": sorted(locals()), "shape": tuple(tensor.shape), "pid": os.getpid()})
    print(inspect.currentframe().f_lineno, sys._getframe().f_code.co_name, file=sys.stderr)
    logging.getLogger("exchange").warning("from %s", dist.get_rank())
    traceback.print_stack(limit=2)
    received = torch.empty_like(tensor)
    sending = dist.isend(tensor, peer)
    dist.recv(received, peer)
    sending.wait()
    print(f"{time.perf_counter() - began:.3f} s", flush=True)
    return received
