"""What the memory allocator of one rank gave out and took back, moment by moment. For `%%ranks` cells.

Python sees tensors, but not those that only autograd or a collective holds, and not when they come and go.
The allocator does; torch.profiler asks it, on CPU and GPU alike.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch.profiler import record_function

_ERRORS_ONLY = "6"
_NUMBERS = {"cpu": 0, "cuda": 1}  # of torch's kinds of devices
_PREFIX = "fourranks mark "


class Allocations:
    """Watches the allocator of this rank's device; the curve is there when the block is left.

        with Allocations() as memory:
            model = build()
            memory.mark("step")
            train(model)
        memory.peak("step")

    On a CPU, memory that was there before does not count, and is not missed when it is freed: let the block
    begin before what it shall measure is made.

    Attributes:
        seconds: since the block was entered; two for each change, for the steps of a staircase.
        nbytes: what was allocated at these moments, beyond what was allocated when the block was entered.
        marks: the moment of each mark, in seconds.
    """

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.nbytes: list[int] = []
        self.marks: dict[str, float] = {}

    def __enter__(self) -> Allocations:
        os.environ.setdefault("KINETO_LOG_LEVEL", _ERRORS_ONLY)  # else it prints that it starts and stops
        self._device = "cuda" if torch.cuda.is_initialized() else "cpu"
        use_device = "cuda" if self._device == "cuda" else None
        self._profiler = torch.autograd.profiler.profile(
            use_device=use_device, profile_memory=True, acc_events=True
        )
        self._profiler.__enter__()
        self.mark("")
        return self

    def mark(self, name: str) -> None:
        """Note this moment."""
        with record_function(_PREFIX + name):
            pass

    def __exit__(self, *error: Any) -> None:
        self._profiler.__exit__(*error)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "profile.json")
            self._profiler.export_chrome_trace(str(path))
            events = json.loads(path.read_bytes())["traceEvents"]
        del self._profiler
        self._read(sorted((event for event in events if "ts" in event), key=lambda event: event["ts"]))

    def _read(self, events: list[dict[str, Any]]) -> None:
        marks = {e["name"].removeprefix(_PREFIX): e["ts"] for e in events if e["name"].startswith(_PREFIX)}
        begun = marks.pop("")
        self.marks = {name: _seconds(moment - begun) for name, moment in marks.items()}
        allocated = 0
        for event in events:
            if event["name"] == "[memory]" and event["args"]["Device Type"] == _NUMBERS[self._device]:
                before, allocated = allocated, allocated + event["args"]["Bytes"]
                self.seconds += 2 * [_seconds(event["ts"] - begun)]
                self.nbytes += [before, allocated]

    def peak(self, since: str) -> int:
        """The most that was allocated between a mark and the next one, in bytes."""
        begun = self.marks[since]
        end = min((moment for moment in self.marks.values() if moment > begun), default=float("inf"))
        changes = list(zip(self.seconds, self.nbytes, strict=True))
        before = [nbytes for moment, nbytes in changes if moment < begun]
        within = [nbytes for moment, nbytes in changes if begun <= moment < end]
        return max([*before[-1:], *within], default=0)


def _seconds(microseconds: float) -> float:
    return microseconds / 1e6
