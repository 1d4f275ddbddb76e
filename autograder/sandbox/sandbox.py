"""A process that is kept from all that is not its own, and watched from outside.

When it takes more than its limits allow, it ends, with all processes that it has started. `tiers` lists the
kinds that there are.
"""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from autograder.inside.limits import DEFAULT, Limits, too_low
from autograder.kit.text import line
from autograder.sandbox import cgroup
from autograder.sandbox.loopback import LoopbackTraffic, unknown_torch
from autograder.sandbox.usage import NO_FILES, OpenFiles, exceeded, files_of, too_much_memory, usage_of

WATCH_EVERY = 0.1  # seconds
LOOK_FOR_SET_UP_EVERY = 0.01  # seconds
LOOK_INTO_FILES_EVERY = 10  # watches, as that takes ten times as long
LONGEST_WORDS = 2_000  # bytes of errors that are read
LONGEST_LOOK = 20.0  # seconds; of mappings that a process can make, Linux takes minutes to add up the pages


class SandboxMissing(RuntimeError):
    """No sandbox of a kind can be made here, or what is to run in it does not begin; the machine's fault."""


class Sandbox(ABC):
    """A process in a sandbox.

    Args:
        command: to run; its program, and all that Python needs to run it, can be read in the sandbox.
        pass_fds: file descriptors that it inherits. Besides them it has no way out.

    Attributes:
        exceeded: which limit ended it, in words; "" as long as none did.

    Raises:
        SandboxMissing: when there can be none, the traffic of this torch is not known, or this process's own
            limits leave too little.
    """

    def __init__(self, command: Sequence[str], pass_fds: Iterable[int], limits: Limits = DEFAULT) -> None:
        if reason := unknown_torch() or too_low():
            raise SandboxMissing(reason)
        self.exceeded = ""
        self._limits = limits
        self._over = threading.Event()
        self._cgroup = cgroup.make(limits)
        self._errors = os.fdopen(os.memfd_create("errors"), "rb")
        try:
            self._start(command, list(pass_fds))
        except BaseException:
            self._clean_up()
            raise
        self._late = math.inf  # a time.monotonic() by which the look that has begun must be over
        self._watcher = threading.Thread(target=self._watch, name="sandbox", daemon=True)
        self._watcher.start()
        self._timer = threading.Thread(target=self._time_looks, name="sandbox's looks", daemon=True)
        self._timer.start()

    @abstractmethod
    def traffic(self) -> LoopbackTraffic:
        """Read what its processes have sent each other so far, by Linux's count."""

    def kill(self) -> None:
        """End all its processes; return when they are gone."""
        self._over.set()
        self._end()
        self._process.wait()
        self._watcher.join()
        self._timer.join()
        self._clean_up()

    def last_words(self) -> str:
        """Return the last line that its processes wrote as an error before any student's code ran; or ""."""
        errors = self._errors.fileno()
        text = os.pread(errors, LONGEST_WORDS, max(0, os.fstat(errors).st_size - LONGEST_WORDS))
        return line(text.decode(errors="replace").strip().rpartition("\n")[2])

    # --- what kinds differ in ------------------------------------------------------------------------------

    @abstractmethod
    def _start(self, command: Sequence[str], pass_fds: list[int]) -> None:
        """Start the process, as `_popen` does; called once."""

    @abstractmethod
    def _processes(self) -> list[Path]:
        """List the folders in /proc of all its processes.

        Raises:
            OSError: it has ended.
        """

    @abstractmethod
    def _end(self) -> None:
        """Have all its processes end, if they have not."""

    def _is_set_up(self) -> bool:
        """Tell whether `_processes` lists its processes already, before which none runs the command."""
        return True

    def _files(self) -> OpenFiles:
        """Read what its processes have opened."""
        return files_of(self._processes())

    def _unread_bytes(self) -> int:
        """Return how many bytes the connections of students' code hold, if that is more than they may."""
        return 0

    def _clean_up(self) -> None:
        """Remove what was made for it."""
        self._errors.close()
        if self._cgroup is not None:
            self._cgroup.close()

    # --- internals -----------------------------------------------------------------------------------------

    def _popen(
        self,
        command: Sequence[str],
        pass_fds: Sequence[int],
        folder: Path | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        """Start a command. Its output goes nowhere: all that is to be kept comes as an answer.

        Its standard error is kept until `inside.broker` has started, which then discards it.
        """
        nowhere = subprocess.DEVNULL
        self._process = subprocess.Popen(
            self._cgroup.enter(command) if self._cgroup is not None else command,
            pass_fds=pass_fds,
            cwd=folder,
            env=environment,
            stdin=nowhere,
            stdout=nowhere,
            stderr=self._errors,
        )

    def _watch(self) -> None:
        while not self._is_set_up():
            if self._over.wait(LOOK_FOR_SET_UP_EVERY):
                return
        files, hidden = NO_FILES, 0
        for turn in itertools.count():
            if self._over.wait(WATCH_EVERY):
                return
            self._late = time.monotonic() + LONGEST_LOOK
            try:
                usage = usage_of(self._processes, self._limits)
                usage = replace(usage, unread_bytes=self._unread_bytes())
                if turn % LOOK_INTO_FILES_EVERY == 0 and usage.processes <= self._limits.processes:
                    looked = self._files()
                    # Its first process hides a command, too, from starting it until that begins.
                    files, hidden = replace(looked, hidden=min(hidden, looked.hidden)), looked.hidden
            except OSError:  # it has ended
                if self._cgroup is not None and self._cgroup.was_full():
                    self.exceeded = too_much_memory(self._limits)
                return
            except Exception:  # nothing may run that is not watched
                self._end()
                raise
            finally:
                self._late = math.inf
            if reason := exceeded(self._limits, usage, files):
                self.exceeded = reason
                self._end()
                return

    def _time_looks(self) -> None:
        """End what takes so long to be looked at that meanwhile it could take everything."""
        while not self._over.wait(WATCH_EVERY):
            if time.monotonic() > self._late:
                self.exceeded = (
                    f"what it takes cannot be watched: to look at it takes more than {LONGEST_LOOK:g} s"
                )
                self._end()
                return
