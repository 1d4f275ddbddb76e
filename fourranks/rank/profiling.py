"""torch.profiler around a traced cell of one rank; `chrome` merges what it saw into the trace.

Only ranks import this module: the notebook's process does without torch.
"""

from __future__ import annotations

import gzip
import os
import tempfile
import time
from pathlib import Path

import torch
from torch.profiler import record_function

from ..protocol.calls import Profile

_ERRORS_ONLY = "6"
_SHORT = 15e-6  # seconds: a mark that takes longer was slow to start, or the process was put off meanwhile
_MOST_MARKS = 50


class Profiler:
    """Profiles this process from `start` to `stop`.

    This is the inner part of `torch.profiler.profile`, which itself imports a compiler for a second.
    """

    def start(self) -> None:
        """Begin; everything that runs on any thread is recorded."""
        os.environ.setdefault("KINETO_LOG_LEVEL", _ERRORS_ONLY)  # else it prints that it starts and stops
        device = "cuda" if torch.cuda.is_initialized() else None
        self._profiler = torch.autograd.profiler.profile(use_device=device, acc_events=True)
        self._profiler.__enter__()
        for _ in range(_MOST_MARKS):
            before = time.perf_counter()
            with record_function(Profile.MARK):
                pass
            after = time.perf_counter()
            self._mark = (before + after) / 2
            if after - before < _SHORT:
                break

    def stop(self) -> Profile:
        """End; returns what was recorded."""
        self._profiler.__exit__(None, None, None)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "profile.json")
            self._profiler.export_chrome_trace(str(path))
            return Profile(gzip.compress(path.read_bytes()), os.getpid(), self._mark)
