"""Checks of the machine and its limits on a user: processors, memory, files, processes, sandbox."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import socket
import sys
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import psutil
from packaging.requirements import Requirement

from .. import hardware, landlock
from ..naming import counted
from ..protocol.messages import LOOPBACK
from .report import Finding, Severity
from .tool import NoAnswer, ask

RANK_MEMORY = 0.5 * 2**30  # bytes: a rank with torch, a small model and its gradients
SHARED_MEMORY = 2**30  # bytes; NCCL takes some 10 MB a channel and pair of ranks, loaders take batches
FILES = 1024  # a rank of 32 has 31 connections a process group, and a notebook three descriptors a rank
THREADS = 1024  # 32 ranks with a score of threads each, and a notebook
_TORCH_VERSION = "from importlib.metadata import version; print(version('torch'))"
CGROUP = Path("/sys/fs/cgroup")


def python_and_torch() -> Finding:
    """Judge whether Python and torch are the ones that the course is written for."""
    import torch

    found = f"Python {platform.python_version()}, torch {torch.__version__}"
    try:
        wanted = next(line for line in requires("fourranks") or [] if line.startswith("torch"))
    except (PackageNotFoundError, StopIteration):
        advice = "Four Ranks is not installed: `make install` in its folder."
        return Finding(Severity.ATTENTION, found, advice)
    if torch.__version__.split("+")[0] in Requirement(wanted).specifier:
        return Finding(Severity.OK, found, _use_of_outer_torch(wanted))
    advice = f"Four Ranks is written for {wanted}: pip install '{wanted}', or `make install` in its folder."
    return Finding(Severity.ATTENTION, found, advice)


def _use_of_outer_torch(wanted: str) -> str:
    """Advise to share the torch of the Python that this virtual environment was made with, if it has one."""
    import torch

    if sys.prefix == sys.base_prefix or not torch.__file__.startswith(sys.prefix):
        return ""
    try:
        outer = ask(sys._base_executable, "-I", "-c", _TORCH_VERSION)  # type: ignore[attr-defined]
    except NoAnswer:
        return ""
    if outer.split("+")[0] not in Requirement(wanted).specifier:
        return ""
    return (
        f"{sys._base_executable} also has torch {outer}: "  # type: ignore[attr-defined]
        "`make lab SYSTEM_TORCH=1` uses that installation, and saves disk space."
    )


def processors() -> Finding:
    """Count the ranks that have a processor of their own."""
    count, quota = hardware.processors(), hardware.processor_quota()
    found = f"{counted(count, 'processor')} for this user"
    if quota is not None and quota < (os.cpu_count() or 1):
        found += f" (a limit of the container; the machine has {os.cpu_count()})"
    if count < 2:
        advice = "Everything works, but the ranks take turns, so timings mean nothing."
        return Finding(Severity.ATTENTION, found, advice)
    threads = hardware.threads_per_rank(4)
    return Finding(Severity.OK, f"{found}: {counted(threads, 'thread')} for each of 4 ranks")


def memory() -> Finding:
    """Judge whether four ranks find room."""
    available, limit = psutil.virtual_memory().available, _memory_limit()
    if limit is not None:
        available = min(available, limit)
    found = f"{available / 2**30:.1f} GiB free"
    found += " within the container's limit" if limit is not None and limit == available else ""
    if available < 4 * RANK_MEMORY:
        advice = (
            f"Four ranks may need {4 * RANK_MEMORY / 2**30:.0f} GiB: close programs or start fewer ranks."
        )
        return Finding(Severity.ATTENTION, found, advice)
    return Finding(Severity.OK, found)


def _memory_limit() -> int | None:
    """Return the bytes that the container may still take; None without a limit."""
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            left = int((CGROUP / limit).read_text()) - int((CGROUP / used).read_text())
        except (OSError, ValueError):  # not there, or "max"
            continue
        return left if left < psutil.virtual_memory().total else None
    return None


def shared_memory() -> Finding:
    """Judge whether /dev/shm is as large as NCCL and data loaders want it."""
    if not os.path.isdir("/dev/shm"):
        return Finding(Severity.OK, "this system has no /dev/shm and needs none")
    if not os.access("/dev/shm", os.W_OK):
        advice = "NCCL and DataLoader workers need it. Mount it writable, as `docker run` does by default."
        return Finding(Severity.ATTENTION, "/dev/shm cannot be written to", advice)
    space = shutil.disk_usage("/dev/shm")
    found = f"{_size(space.free)} of {_size(space.total)} free in /dev/shm"
    if space.free < SHARED_MEMORY:
        advice = (
            "NCCL and DataLoader workers may fail with less than 1 GiB. A container needs `docker run "
            "--shm-size=8g` or `--ipc=host`; elsewhere, remove old files from /dev/shm."
        )
        return Finding(Severity.ATTENTION, found, advice)
    return Finding(Severity.OK, found)


def open_files() -> Finding:
    """Judge whether a process may open as many files as 32 ranks need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = f"a process may open {_limit(soft)} files"
    if soft == resource.RLIM_INFINITY or soft >= FILES:
        return Finding(Severity.OK, found)
    advice = f"32 ranks with sub-groups need {FILES}: `ulimit -n {FILES}` before `make lab`."
    if hard != resource.RLIM_INFINITY and hard < FILES:
        advice += " The hard limit is lower, too: raise it in /etc/security/limits.conf."
    return Finding(Severity.ATTENTION, found, advice)


def processes() -> Finding:
    """Judge whether the user may start as many processes and threads as 32 ranks need."""
    soft = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    limits = [] if soft == resource.RLIM_INFINITY or os.getuid() == 0 else [soft - _own_threads()]
    if (left := _left_of_pids()) is not None:
        limits.append(left)
    if not limits:
        return Finding(Severity.OK, "no limit on processes and threads")
    found = f"room for {min(limits)} more processes and threads"
    if min(limits) < THREADS:
        advice = (
            f"32 ranks need about {THREADS}: `ulimit -u`, or for a container `docker run --pids-limit=-1`."
        )
        return Finding(Severity.ATTENTION, found, advice)
    return Finding(Severity.OK, found)


def _own_threads() -> int:
    """Count the threads of this user, as RLIMIT_NPROC does."""
    found = psutil.process_iter(["uids", "num_threads"])
    return sum(
        process.info["num_threads"] or 0
        for process in found
        if process.info["uids"] and process.info["uids"].real == os.getuid()
    )


def _left_of_pids() -> int | None:
    for folder in (CGROUP, CGROUP / "pids"):
        try:
            return int((folder / "pids.max").read_text()) - int((folder / "pids.current").read_text())
        except (OSError, ValueError):  # not there, or "max"
            continue
    return None


def loopback() -> Finding:
    """Judge whether processes of this machine reach each other over the loopback interface."""
    try:
        with (
            socket.create_server((LOOPBACK, 0)) as server,
            socket.create_connection(server.getsockname(), timeout=5) as one,
        ):
            server.settimeout(5)
            other, _ = server.accept()
            with other:
                one.sendall(b"?")
                other.settimeout(5)
                other.recv(1)
    except OSError as error:
        advice = "Ranks connect over loopback: `sudo ip link set lo up`, and let no firewall block it."
        return Finding(Severity.PROBLEM, f"no connection to {LOOPBACK}: {error}", advice)
    return Finding(Severity.OK, f"a connection to {LOOPBACK} works")


def sandbox() -> Finding:
    """Judge which sandbox can be had: by bubblewrap, or without namespaces; only grading needs one."""
    if sys.platform != "linux":
        return Finding(Severity.OK, "only Linux has bubblewrap, which grading other people's code needs")
    if landlock.version() < landlock.NEEDED:
        advice = (
            "Only grading other people's code needs it. It takes Linux 5.19 or later with the LSM `landlock`."
        )
        return Finding(Severity.ATTENTION, "this Linux has no Landlock, or too old a version of it", advice)
    options = ("--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc")
    try:
        ask("bwrap", *options, "true")
    except NoAnswer as reason:
        return Finding(Severity.ATTENTION, *_without_namespaces(str(reason)))
    return Finding(Severity.OK, "tier namespaces: bubblewrap and Landlock confine processes")


def _without_namespaces(reason: str) -> tuple[str, str]:
    """Return what sandbox there is without bubblewrap, and how to get the stronger one."""
    if shutil.which("bwrap") is None:
        reason = "bubblewrap is not installed"
        advice = "`apt install bubblewrap` on Debian or Ubuntu."
    else:
        advice = (
            "The system does not let users create namespaces. A container needs `docker run --security-opt "
            "seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined`; "
            "Ubuntu 24.04 and later need a profile for bwrap (docs/instructors.md)."
        )
    if os.geteuid() == 0 or landlock.version() >= landlock.KEEPS_SIGNALS:
        found = f"tier landlock, which is weaker (docs/security.md): {reason}"
    else:
        found = f"none: {reason}. Without namespaces, it takes root in a container, or Linux 6.12 or later"
    return found, f"Only grading other people's code needs it. {advice}"


def _size(nbytes: int) -> str:
    return f"{nbytes / 2**30:.1f} GiB" if nbytes >= 2**30 else f"{nbytes / 2**20:.0f} MiB"


def _limit(value: int) -> str:
    return "any number of" if value == resource.RLIM_INFINITY else str(value)
