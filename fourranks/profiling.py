"""`torch.profiler` around a traced cell of one rank, and its clock aligned with that of the trace.

`rank` profiles a cell when `group.trace(profile=True)` asks for it; `chrome` merges what came out.
"""

from __future__ import annotations

import gzip
import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, record_function

_MARK = "fourranks clock"
_ERRORS_ONLY = "6"
_MARKS = 3  # the first ones are slow


@dataclass(frozen=True)
class Profile:
    """What torch.profiler has written.

    Attributes:
        compressed: its Chrome trace, gzipped.
        pid: process id of the rank in it.
        mark: the middle of the last mark, in seconds on the machine's monotonic clock.
    """

    compressed: bytes
    pid: int
    mark: float

    def events(self, origin: float) -> list[dict[str, Any]]:
        """Its events, with times in µs since `origin` (seconds on the monotonic clock)."""
        events = json.loads(gzip.decompress(self.compressed))["traceEvents"]
        marks = [event for event in events if event["name"] == _MARK]
        last = max(marks, key=lambda event: event["ts"])
        shift = 1e6 * (self.mark - origin) - (last["ts"] + last["dur"] / 2)
        return [event | {"ts": event["ts"] + shift} for event in events if event["name"] != _MARK]


class Profiler:
    """Profiles this process from `start` to `stop`."""

    def start(self) -> None:
        """Begin; whatever runs on any thread is recorded."""
        os.environ.setdefault("KINETO_LOG_LEVEL", _ERRORS_ONLY)  # else it prints that it starts and stops
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_initialized():
            activities.append(ProfilerActivity.CUDA)
        self._profiler = torch.profiler.profile(activities=activities, acc_events=True)
        self._profiler.start()
        for _ in range(_MARKS):
            before = time.perf_counter()
            with record_function(_MARK):
                pass
            self._mark = (before + time.perf_counter()) / 2

    def stop(self) -> Profile:
        """End; returns what was recorded."""
        self._profiler.stop()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "profile.json.gz")
            self._profiler.export_chrome_trace(str(path))
            return Profile(path.read_bytes(), os.getpid(), self._mark)
