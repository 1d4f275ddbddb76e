"""Runs programs on real ranks, notes when each rank came where, and looks at the world afterwards."""

from __future__ import annotations

import mmap
import struct
import tempfile
import time
from dataclasses import dataclass

import fourranks
from fourranks import RankDied, zygote

CHECK_TIMEOUT = 30.0
_STAMP = struct.Struct("qd")  # stages that a rank has come to, and when it came to the last one
HELPERS = """
import mmap, os, signal, struct, threading, time
from datetime import timedelta
from torch.distributed import _functional_collectives as functional
from torch.nn.parallel import DistributedDataParallel

with open(stamps_path, "r+b") as file:
    stamps = mmap.mmap(file.fileno(), 0)
kept = ["a variable of rank", rank]

def stamp():
    count = struct.unpack_from("qd", stamps, 16 * rank)[0] + 1
    struct.pack_into("qd", stamps, 16 * rank, count, time.monotonic())

def multiply(seconds):
    end, matrix = time.monotonic() + seconds, torch.ones(64, 64)
    while time.monotonic() < end:
        matrix @ matrix

def count(seconds):
    sum(range(int(30_000_000 * seconds)))  # in C, all the while holding the GIL

def poll(work):
    while not work.is_completed():
        time.sleep(0.001)

class Thread(threading.Thread):
    def __init__(self, call):
        super().__init__(daemon=True)
        self.call, self.error = call, None
        self.start()

    def run(self):
        try:
            self.call()
        except Exception as error:
            self.error = error

    def wait(self):
        self.join()
        if self.error is not None:
            raise self.error

def train(steps):
    model = DistributedDataParallel(torch.nn.Linear(3, 5))
    for _ in range(steps):
        model(torch.ones(2, 3)).sum().backward()
"""
ALL_REDUCE = "total = torch.ones(1); dist.all_reduce(total); assert total.item() == world_size"
CHECK = """
received = torch.empty(1)
for work in dist.batch_isend_irecv([
    dist.P2POp(dist.isend, torch.tensor([float(rank)]), (rank + 1) % world_size),
    dist.P2POp(dist.irecv, received, (rank - 1) % world_size),
]):
    work.wait()
assert received.item() == (rank - 1) % world_size
assert kept == ["a variable of rank", rank]
"""


@dataclass(frozen=True)
class Outcome:
    """The end of one program.

    Attributes:
        error: the error that it ended with, if any.
        seconds_to_error: from the last rank's getting stuck until the error was raised.
        seconds_to_usable: the same, until an all-reduce has been done after it.
        restarted: whether all ranks had to be started again and lost their variables.
        unusable: the fault of the world afterwards; "" if it had none.
    """

    error: Exception | None
    seconds_to_error: float | None = None
    seconds_to_usable: float | None = None
    restarted: bool = False
    unusable: str = ""


class World:
    """Ranks that know the helpers of the programs."""

    def __init__(self, world_size: int) -> None:
        self._file = tempfile.NamedTemporaryFile()  # noqa: SIM115 (closed by close)
        self._file.write(bytes(_STAMP.size * world_size))
        self._file.flush()
        self._stamps = mmap.mmap(self._file.fileno(), 0)
        zygote.shared().import_modules(zygote.COMPILER)  # else each rank does, at a functional collective
        self._group = fourranks.start(world_size, "gloo")
        self._prepare()

    def close(self) -> None:
        """End the ranks."""
        self._group.stop()
        self._stamps.close()
        self._file.close()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, source: str, stages: tuple[int, ...], timeout: float) -> Outcome:
        """Run a program; `stages` says in which stage each rank gets stuck if the program does."""
        self._stamps[:] = bytes(len(self._stamps))
        pids = self._pids()
        try:
            self._group.execute(source, timeout=timeout)
            return Outcome(None, unusable=self._unusable())
        except Exception as caught:  # a mistake of ours is an outcome, too
            error, raised = caught, time.monotonic()
        stuck = self._stuck_since(stages)
        restarted = self._pids() != pids
        if restarted:
            self._prepare()
        unusable = self._unusable_after_death() if isinstance(error, RankDied) else self._unusable()
        to_error = None if stuck is None else raised - stuck
        to_usable = None if stuck is None or unusable else self._usable_at - stuck
        return Outcome(error, to_error, to_usable, restarted, unusable)

    def _prepare(self) -> None:
        self._group.push(stamps_path=self._file.name)
        self._group.execute(HELPERS)

    def _pids(self) -> list[int]:
        return [status.pid for status in self._group.status()]

    def _stuck_since(self, stages: tuple[int, ...]) -> float | None:
        """When the last of the ranks that have come to their last stage came there."""
        stamps = list(_STAMP.iter_unpack(self._stamps))
        there = [when for (count, when), stage in zip(stamps, stages, strict=True) if count > stage]
        return max(there, default=None)

    def _unusable(self) -> str:
        """Find a fault of the world, by communicating in it and looking at a variable from before."""
        try:
            self._group.execute(ALL_REDUCE, timeout=CHECK_TIMEOUT)
            self._usable_at = time.monotonic()
            self._group.execute(CHECK, timeout=CHECK_TIMEOUT)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def _unusable_after_death(self) -> str:
        """The others must have kept their variables; then all are started again."""
        alive = [status.rank for status in self._group.status() if status.state == "idle"]
        try:
            if self._group.pull("kept[1]", ranks=alive) != alive:
                return "a rank that lives on has lost its variables"
            self._group.restart()
            self._prepare()
        except Exception as failure:
            return f"{type(failure).__name__}: {failure}"
        return self._unusable()
