"""A sandbox with namespaces: its processes reach their own memory, loopback and an empty folder, no more.

bubblewrap makes it.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from autograder.inside.filesystem import (
    COMPILED,
    COURSE,
    HOME,
    PACKAGES,
    SCRATCH,
    WRITABLE,
    environment,
    system,
)
from autograder.inside.limits import Limits
from autograder.inside.system_calls import seccomp_filter
from autograder.sandbox.loopback import LoopbackTraffic
from autograder.sandbox.sandbox import Sandbox, SandboxMissing
from autograder.sandbox.usage import begun, unread_bytes
from fourranks import landlock

# Of the machine, not of the sandbox, and root's: grading as root would let students' code write there.
KERNEL_SETTINGS = tuple(f"/proc/{name}" for name in ("acpi", "fs", "mtrr", "scsi", "sys", "sysrq-trigger"))

NOT_ALLOWED = (
    "bubblewrap may not make a sandbox here. In a container it needs user namespaces: "
    "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt "
    "systempaths=unconfined ..., and where that drops capabilities, --cap-add SETFCAP for root."
)

ON_GPUS = Limits(memory_bytes=32 << 30)  # CUDA takes gigabytes of each rank's process


class Bubblewrap(Sandbox):
    """A process in a sandbox with namespaces."""

    has_gpus = False

    def traffic(self) -> LoopbackTraffic:
        """Read what went over its loopback so far; nothing when it has ended."""
        with contextlib.suppress(OSError):
            counters = Path(f"/proc/{self._init}/net")
            _, _, *interfaces = (counters / "dev").read_text().splitlines()
            received = {line.split()[0]: int(line.split()[1]) for line in interfaces}
            names, values = (
                line.split() for line in (counters / "snmp").read_text().splitlines() if line[:4] == "Tcp:"
            )
            return LoopbackTraffic(received["lo:"], int(values[names.index("RetransSegs")]))
        return LoopbackTraffic(0, 0)

    def _start(self, command: Sequence[str], pass_fds: list[int]) -> None:
        told, tell = os.pipe()
        program = _program()
        rules = _readable(seccomp_filter(named_sockets=self.has_gpus))
        # Code inside can read the command line of the first process, and need not know of this machine.
        options = _readable("\0".join(_options(tell, rules, self._limits, self.has_gpus)).encode())
        inherited = [tell, rules, options]
        try:
            self._popen([program, "--args", str(options), "--", *command], [*pass_fds, *inherited])
        finally:
            for descriptor in inherited:
                os.close(descriptor)
        with os.fdopen(told) as report:
            self._init = _first_process(report.read(), self._process)
        self._seen_from_outside = Path("/proc", str(self._init))
        self._inside = self._seen_from_outside / "root" / "proc"  # where its namespace lists its processes

    def _is_set_up(self) -> bool:
        with contextlib.suppress(OSError):  # at first its /proc is the machine's, and then there is none
            return begun(self._seen_from_outside) == begun(self._inside / "1")
        return not self._seen_from_outside.exists()

    def _processes(self) -> list[Path]:
        return [self._inside / name for name in os.listdir(self._inside) if name.isdigit()]

    def _unread_bytes(self) -> int:
        with contextlib.suppress(OSError):
            return unread_bytes(self._seen_from_outside / "net", self._limits)
        return 0

    def _end(self) -> None:
        """End the first process of its namespace; Linux then ends all others."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._init, signal.SIGKILL)


class BubblewrapWithGpus(Bubblewrap):
    """The same with the machine's GPUs, and what NCCL reads of how they are connected.

    Its ranks exchange data by ways that are not counted.
    """

    has_gpus = True

    def __init__(self, command: Sequence[str], pass_fds: Iterable[int]) -> None:
        super().__init__(command, pass_fds, ON_GPUS)


def check() -> None:
    """Require that such sandboxes can be made here.

    Raises:
        SandboxMissing: when they cannot, with what to do.
    """
    if landlock.version() < landlock.NEEDED:
        raise SandboxMissing("Ranks are kept apart by Landlock, which needs Linux 5.19 or later with it on.")
    try:
        sandbox = Bubblewrap(["true"], [])
    except (OSError, NotImplementedError) as error:
        raise SandboxMissing(f"The sandbox could not be started: {error}") from None
    status = sandbox._process.wait()  # it names a first process, and may then not map its user
    sandbox.kill()
    if status:
        raise SandboxMissing(NOT_ALLOWED)


def _program() -> str:
    program = shutil.which("bwrap")
    if program is None:
        raise SandboxMissing(
            "Submissions are run in a sandbox, which needs bubblewrap: apt install bubblewrap (Debian, "
            "Ubuntu) or dnf install bubblewrap (Fedora)."
        )
    return program


def _options(report: int, rules: int, limits: Limits, has_gpus: bool) -> list[str]:
    """Return what bubblewrap is to lock its command into.

    Args:
        report: the descriptor to which it writes what it has started.
        rules: the descriptor from which it reads a filter of system calls.
        has_gpus: whether the machine's GPUs are in it.
    """
    options = ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    options += ["--uid", "65534", "--gid", "65534", "--hostname", "sandbox", "--info-fd", str(report)]
    options += ["--seccomp", str(rules)]
    options += ["--proc", "/proc", "--dev", "/dev"]
    for path in KERNEL_SETTINGS:
        options += ["--ro-bind-try", path, path]
    for folder in WRITABLE:
        options += ["--size", str(limits.disk_bytes), "--tmpfs", folder]
    options += ["--dir", COMPILED, "--dir", SCRATCH]
    for path in system():
        if os.path.islink(path):
            options += ["--symlink", os.readlink(path), path]
        else:
            options += ["--ro-bind", path, path]
    for inside, outside in COURSE.items():
        options += ["--ro-bind", str(PACKAGES / outside), str(PACKAGES / inside)]
    for device in sorted(glob.glob("/dev/nvidia*")) if has_gpus else ():
        options += ["--dev-bind", device, device]
    if has_gpus:
        options += ["--ro-bind", "/sys", "/sys"]
    options += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", HOME, "--clearenv"]
    for name, value in (environment() | (_of_gpus() if has_gpus else {})).items():
        options += ["--setenv", name, value]
    return options


def _of_gpus() -> dict[str, str]:
    """Return the variables that say which GPUs may be used and where their driver lies, if they are set."""
    names = ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")
    return {name: os.environ[name] for name in names if name in os.environ}


def _readable(content: bytes) -> int:
    """Return a descriptor from which this can be read.

    Not a pipe: while a user's programs, such as a submission that is graded meanwhile, have many, Linux makes
    new ones so small that writing the options to one would wait forever for a reader.
    """
    file = os.memfd_create("given")
    os.write(file, content)
    os.lseek(file, 0, os.SEEK_SET)
    return file


def _first_process(report: str, bubblewrap: subprocess.Popen[bytes]) -> int:
    """Return the process that all others in the sandbox descend from, as bubblewrap reports it."""
    try:
        return int(json.loads(report)["child-pid"])
    except (ValueError, KeyError):
        bubblewrap.kill()
        bubblewrap.wait()
        raise SandboxMissing(NOT_ALLOWED) from None
