"""A process that reaches its own memory, loopback and an empty folder, and nothing else: bubblewrap's doing.

`Sandbox` starts it, and watches it from outside: when it takes more than its limits allow, it ends, with
all processes that it has started.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sysconfig
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from autograder.inside.filesystem import COMPILED, COURSE, HOME, INSIDE, PACKAGES, WRITABLE, python
from autograder.inside.limits import DEFAULT, Limits
from autograder.inside.system_calls import seccomp_filter
from autograder.sandbox import cgroup
from autograder.sandbox.loopback import Traffic
from autograder.sandbox.usage import NO_FILES, exceeded, files_of, too_much_memory, usage_of
from fourranks import landlock

WATCH_EVERY = 0.1  # seconds
LOOK_INTO_FILES_EVERY = 10  # watches, as that takes ten times as long
# Of the machine, not of the sandbox, and root's: who grades as root would let students' code write there.
KERNEL_SETTINGS = tuple(f"/proc/{name}" for name in ("acpi", "fs", "mtrr", "scsi", "sys", "sysrq-trigger"))
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/alternatives")


class SandboxMissing(RuntimeError):
    """There is no bubblewrap here, or it may not make a sandbox."""


class Sandbox:
    """A process in a sandbox.

    Args:
        command: what to run; its program, and all that Python needs to run it, can be read in the sandbox.
        pass_fds: file descriptors that it inherits. Besides them it has no way out.

    Attributes:
        exceeded: which limit ended it, in words; "" as long as none did.

    Raises:
        SandboxMissing: when bubblewrap is not to be had.
    """

    def __init__(self, command: Sequence[str], pass_fds: Iterable[int], limits: Limits = DEFAULT) -> None:
        self.exceeded = ""
        self._limits = limits
        self._over = threading.Event()
        told, tell = os.pipe()
        program = _program()
        rules = _readable(seccomp_filter())
        # Whoever is inside can read the command line of the first process, and need not know of this machine.
        options = _readable("\0".join(_options(tell, rules, limits)).encode())
        inherited = [tell, rules, options]
        self._cgroup = cgroup.make(limits.memory_bytes)
        try:
            confined = [program, "--args", str(options), "--", *command]
            if self._cgroup is not None:
                confined = self._cgroup.enter(confined)
            self._process = _popen(confined, [*pass_fds, *inherited])
        finally:
            for descriptor in inherited:
                os.close(descriptor)
        with os.fdopen(told) as report:
            try:
                self._init = _first_process(report.read(), self._process)
            except SandboxMissing:
                self._close_cgroup()
                raise
        self._watcher = threading.Thread(target=self._watch, name="sandbox", daemon=True)
        self._watcher.start()

    def traffic(self) -> Traffic:
        """What went over the sandbox's loopback so far, by Linux's count; nothing when it has ended."""
        with contextlib.suppress(OSError):
            counters = Path(f"/proc/{self._init}/net")
            _, _, *interfaces = (counters / "dev").read_text().splitlines()
            received = {line.split()[0]: int(line.split()[1]) for line in interfaces}
            names, values = (
                line.split() for line in (counters / "snmp").read_text().splitlines() if line[:4] == "Tcp:"
            )
            return Traffic(received["lo:"], int(values[names.index("RetransSegs")]))
        return Traffic(0, 0)

    def kill(self) -> None:
        """End all its processes; returns when they are gone."""
        self._over.set()
        self._end()
        self._process.wait()
        self._watcher.join()
        self._close_cgroup()

    # --- internals -----------------------------------------------------------------------------------------

    def _close_cgroup(self) -> None:
        if self._cgroup is not None:
            self._cgroup.close()

    def _end(self) -> None:
        """When the first process of its namespace ends, Linux ends all others."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._init, signal.SIGKILL)

    def _watch(self) -> None:
        processes = Path(f"/proc/{self._init}/root/proc")
        files = NO_FILES
        for turn in itertools.count():
            if self._over.wait(WATCH_EVERY):
                return
            try:
                usage = usage_of(processes, self._limits)
                if turn % LOOK_INTO_FILES_EVERY == 0 and usage.processes <= self._limits.processes:
                    files = files_of(processes)
            except OSError:  # it has ended
                if self._cgroup is not None and self._cgroup.was_full():
                    self.exceeded = too_much_memory(self._limits)
                return
            if reason := exceeded(self._limits, usage, files):
                self.exceeded = reason
                self._end()
                return


def check() -> None:
    """Whether sandboxes can be made here.

    Raises:
        SandboxMissing: when they cannot, with what to do.
    """
    if landlock.version() < landlock.NEEDED:
        raise SandboxMissing("Ranks are kept apart by Landlock, which needs Linux 5.19 or later with it on.")
    try:
        sandbox = Sandbox(["true"], [])
    except (OSError, NotImplementedError) as error:
        raise SandboxMissing(f"The sandbox could not be started: {error}") from None
    sandbox.kill()


def _program() -> str:
    program = shutil.which("bwrap")
    if program is None:
        raise SandboxMissing(
            "Submissions are run in a sandbox, which needs bubblewrap: apt install bubblewrap (Debian, "
            "Ubuntu) or dnf install bubblewrap (Fedora)."
        )
    return program


def _options(report: int, rules: int, limits: Limits) -> list[str]:
    """What bubblewrap is to lock its command into.

    Args:
        report: the descriptor to which it writes what it has started.
        rules: the descriptor from which it reads a filter of system calls.
    """
    options = ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    options += ["--uid", "65534", "--gid", "65534", "--hostname", "sandbox", "--info-fd", str(report)]
    options += ["--seccomp", str(rules)]
    options += ["--proc", "/proc", "--dev", "/dev"]
    for path in KERNEL_SETTINGS:
        options += ["--ro-bind-try", path, path]
    for folder in WRITABLE:
        options += ["--size", str(limits.disk_bytes), "--tmpfs", folder]
    options += ["--dir", COMPILED]
    for path in _system():
        if os.path.islink(path):
            options += ["--symlink", os.readlink(path), path]
        else:
            options += ["--ro-bind", path, path]
    for inside, outside in COURSE.items():
        options += ["--ro-bind", str(PACKAGES / outside), str(PACKAGES / inside)]
    options += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", HOME, "--clearenv"]
    for name, value in _environment().items():
        options += ["--setenv", name, value]
    return options


def _system() -> list[str]:
    """The system's libraries, and Python with its packages."""
    readable: list[str] = []
    for path in sorted({*SYSTEM, *python()}):
        if os.path.exists(path) and not any(path.startswith(f"{outer}/") for outer in readable):
            readable.append(path)
    return readable


def _environment() -> dict[str, str]:
    return {
        "HOME": HOME,
        "LANG": "C.UTF-8",
        "PATH": os.pathsep.join([sysconfig.get_path("scripts"), "/usr/bin", "/bin"]),
        "PYTHONPATH": str(PACKAGES),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        "MPLBACKEND": "agg",
        "TORCHINDUCTOR_CACHE_DIR": COMPILED,
        INSIDE: "1",
    }


def _readable(content: bytes) -> int:
    """A descriptor from which this can be read once."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb") as file:
        file.write(content)
    return reader


def _popen(command: Sequence[str], pass_fds: Sequence[int]) -> subprocess.Popen:
    """What it prints goes nowhere: whatever is to be kept comes as an answer."""
    nowhere = subprocess.DEVNULL
    return subprocess.Popen(command, pass_fds=pass_fds, stdin=nowhere, stdout=nowhere, stderr=nowhere)


def _first_process(report: str, bubblewrap: subprocess.Popen) -> int:
    """The process that all others in the sandbox descend from, as bubblewrap reports it."""
    try:
        return json.loads(report)["child-pid"]
    except (ValueError, KeyError):
        bubblewrap.kill()
        bubblewrap.wait()
        raise SandboxMissing(
            "bubblewrap may not make a sandbox here. In a container it needs user namespaces: "
            "docker run --security-opt seccomp=unconfined --security-opt systempaths=unconfined ..."
        ) from None
