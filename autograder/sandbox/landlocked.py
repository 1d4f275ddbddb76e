"""A sandbox without namespaces, for containers that refuse them: a user of its own, Landlock and seccomp.

Students' code has no socket in it, and no file but those of an empty folder. `inside.first_process` confines
its processes, and ends them.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import re
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

from autograder.inside.filesystem import COURSE, PACKAGES, environment, read_by_gloo, remove, system
from autograder.sandbox.loopback import LoopbackTraffic
from autograder.sandbox.sandbox import Sandbox, SandboxMissing
from autograder.sandbox.sockets import ReceivedBytes, sockets
from autograder.sandbox.usage import OpenFiles, descendants, disk_of, files_of
from fourranks import landlock

FIRST_PROCESS = "autograder.inside.first_process"  # the module that each such sandbox begins with
USERS = range(64_000, 65_500, 2)  # whom no system gives to a person or a service; a sandbox takes two
WRITABLE = ("home/student", "tmp")
_EMPTY = (*WRITABLE, "tmp/scratch", "tmp/compiled")
_PREFIX = "fourranks-sandbox-"
_NEW = 60.0  # seconds, in which a folder that was made has long been locked
_libc = ctypes.CDLL(None)


class Landlocked(Sandbox):
    """A process in a sandbox without namespaces.

    When root grades, its processes belong to a user of their own. When another user grades, or only root can
    read the folder of Python, they belong to the same user, without root's rights. Then Landlock alone keeps
    them from signalling others, which it can since Linux 6.12.
    """

    _reserved: _User | None = None
    _top: Path | None = None
    _used: int | None = None
    _lifeline: IO[bytes] | None = None

    def traffic(self) -> LoopbackTraffic:
        """Read what its connections have received so far; no headers and nothing that was sent again."""
        own = [one for one in sockets() if one.user == self._user]
        if self._reserved is None:
            inodes = _sockets_of(self._processes())
            own = [one for one in own if one.inode in inodes]
        return LoopbackTraffic(self._received.look(own), 0)

    def _start(self, command: Sequence[str], pass_fds: list[int]) -> None:
        self._received = ReceivedBytes()
        self._user, held = os.geteuid(), list[int]()
        if _has_users():
            self._reserved = _User()
            self._user = self._reserved.number
            held = [self._reserved.fileno()]  # until all of them have ended
        self._top = _folder(self._user)
        self._used = _lock(self._top)
        held.append(self._used)
        ends, lifeline = os.pipe()
        self._lifeline = os.fdopen(lifeline, "wb")
        packages = self._top / "packages"
        writable = [str(self._top / folder) for folder in WRITABLE]
        given = json.dumps([_readable(packages), writable, self._user if self._reserved else 0, held])
        first = [sys.executable, "-m", FIRST_PROCESS, str(ends), given, *command]
        try:
            self._popen(first, [ends, *pass_fds, *held], packages, environment(str(self._top), packages))
        finally:
            os.close(ends)

    def _processes(self) -> list[Path]:
        return descendants(self._process.pid)

    def _files(self) -> OpenFiles:
        assert self._top is not None
        on_disk = sum(disk_of(self._top / folder, self._limits.all_disk_bytes) for folder in WRITABLE)
        first = str(self._process.pid)  # whose user is another, so that nothing in the sandbox can signal it
        opened = files_of(folder for folder in self._processes() if folder.name != first)
        return replace(opened, disk_bytes=opened.disk_bytes + on_disk)

    def _end(self) -> None:
        """Tell its first process to end all others, and itself."""
        if self._lifeline is not None:
            self._lifeline.close()

    def _clean_up(self) -> None:
        super()._clean_up()
        if self._top is not None:
            remove(str(self._top))
        used, self._used = self._used, None
        if used is not None:
            os.close(used)
        if self._reserved is not None:
            self._reserved.close()

    def _watch(self) -> None:
        if self._reserved is not None:  # in a container, root may not look into other users' processes
            _libc.setfsgid(self._user)
            _libc.setfsuid(self._user)  # of this thread
        super()._watch()


class _User:
    """A number that no other sandbox has for its user, as long as this is not closed."""

    def __init__(self) -> None:
        self._reservation = socket.socket(socket.AF_UNIX)
        for self.number in USERS:
            with contextlib.suppress(OSError):
                self._reservation.bind(f"\0fourranks-user-{self.number}")
                return
        raise SandboxMissing(f"All {len(USERS)} users for sandboxes are taken.")

    def fileno(self) -> int:
        return self._reservation.fileno()

    def close(self) -> None:
        self._reservation.close()


def check() -> None:
    """Require that such sandboxes can be made here.

    Raises:
        SandboxMissing: when they cannot, with what to do.
    """
    if landlock.version() < landlock.NEEDED:
        raise SandboxMissing("Without namespaces, grading takes Linux 5.19 or later with Landlock on.")
    if not _has_users() and landlock.version() < landlock.KEEPS_SIGNALS:
        raise SandboxMissing(
            "Without namespaces, grading takes Linux 6.12 or later, or root in the container with Python and "
            f"the course where every user can read them (now {sys.base_prefix} and {PACKAGES}). Ask the "
            "administrator for one of them, or for user namespaces, which bubblewrap needs."
        )
    _remove_abandoned()
    try:
        for _ in sockets():
            pass
        said = _said_by("import os, sys, autograder.inside.limits; os.write(int(sys.argv[1]), b'ready')")
    except (OSError, NotImplementedError) as error:
        raise SandboxMissing(f"The sandbox without namespaces could not be started: {error}") from None
    if said != b"ready":
        raise SandboxMissing(f"Python ({sys.executable}) does not start in the sandbox without namespaces.")


def _has_users() -> bool:
    """Tell whether processes in it can be of other users: root may choose, and they have to find Python."""
    return os.geteuid() == 0 and all(
        os.stat(folder).st_mode & stat.S_IXOTH
        for path in (sys.executable, sys.base_prefix, PACKAGES / "fourranks", tempfile.gettempdir())
        for folder in Path(os.path.realpath(path)).parents
    )


def _said_by(code: str) -> bytes:
    """Run Python code in a sandbox; return what it writes to the descriptor that it is given."""
    said, say = os.pipe()
    with os.fdopen(said, "rb") as file:
        try:
            sandbox = Landlocked([sys.executable, "-c", code, str(say)], [say])
        finally:
            os.close(say)
        try:
            return file.read()
        finally:
            sandbox.kill()


def _folder(user: int) -> Path:
    """Make the folder of a sandbox: the course as it may see it, and what its user can write to."""
    top = Path(os.path.realpath(tempfile.mkdtemp(prefix=_PREFIX)))
    for inside, outside in COURSE.items():
        (top / "packages" / inside).parent.mkdir(parents=True, exist_ok=True)
        (top / "packages" / inside).symlink_to(PACKAGES / outside)
    for name in _EMPTY:
        (top / name).mkdir(parents=True)
        os.chown(top / name, user, -1)
        (top / name).chmod(0o700)
    for folder in (top, top / "home", top / "packages", top / "packages/autograder"):
        folder.chmod(0o755)  # against any umask
    return top


def _lock(top: Path) -> int:
    """Lock the folder of a sandbox, unless another process has; return the descriptor that keeps it locked.

    Raises:
        OSError: it is locked, or no folder of this user.
    """
    folder = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(folder).st_uid != os.geteuid():
            raise PermissionError
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(folder)
        raise
    return folder


def _remove_abandoned() -> None:
    """Remove folders of sandboxes whose grader was killed: their first process can only empty them."""
    for top in Path(os.path.realpath(tempfile.gettempdir())).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if time.time() - top.lstat().st_mtime > _NEW:
                folder = _lock(top)
                remove(str(top))
                os.close(folder)


def _readable(packages: Path) -> list[str]:
    """List what can be read: each process sees of /proc itself, and what is no process's."""
    course = (str(PACKAGES / outside) for outside in COURSE.values())
    return [*system(), *course, *read_by_gloo(), str(packages), "/proc"]


def _sockets_of(processes: Sequence[Path]) -> set[int]:
    """Return the numbers of all sockets that processes have open."""
    found = set()
    for folder in processes:
        with contextlib.suppress(OSError), os.scandir(folder / "fd") as descriptors:
            for descriptor in descriptors:
                if match := re.fullmatch(r"socket:\[(\d+)\]", os.readlink(descriptor.path)):
                    found.add(int(match[1]))
    return found
