"""Keeps processes in a sandbox safe from one another.

Ranks are kept from passing each other anything but what Linux counts, and the process that answers checks is
kept from students' code, which runs next to it: by Linux's Landlock, whose rules no process can take back.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import errno
import os
import pickle
import stat
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from autograder.inside import filesystem, system_calls
from autograder.inside.filesystem import DEVICES, WRITABLE, python_paths
from fourranks import landlock
from fourranks.protocol.parcel import Parcel

_libc = ctypes.CDLL(None, use_errno=True)
_ADD_RULE, _RESTRICT_SELF = 445, 446  # of Landlock; the same on all machines
_PATH_BENEATH = 1
_WRITE, _READ, _MOVE, _TRUNCATE = 1 << 1, 1 << 2, 1 << 13, 1 << 14  # to move: from one folder to another
_CHANGE = _WRITE | sum(1 << bit for bit in range(4, 13))  # to write, remove, make
_EXECUTE, _LIST, _ALL = 1 << 0, 1 << 3, (1 << 13) - 1
_ASK_DEVICES = 1 << 15
_OF_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE | _ASK_DEVICES  # a rule about no folder can allow these
_OTHERS_ADDRESSES, _OTHERS_SIGNALS = 1 << 0, 1 << 1
_NO_NEW_PRIVILEGES = 38  # of prctl
_SET_FILTER, _FOR_ALL_THREADS = 1, 1  # of seccomp
_NO_HUGE_PAGES = 41  # of prctl
TERMINALS = "/dev/pts"  # each has a size and settings, which all who open it can read and set
_MMAP_THRESHOLD = -3  # of mallopt
_SMALL = 1 << 16  # bytes


class _Rules(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64)]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"  # that of a packed structure, which Python 3.14 wants to have named
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def confine(readable: Sequence[str], writable: Sequence[str]) -> None:
    """Keep this thread, and all that it starts, from all files but these: it has no file system of its own.

    From Linux 6.12 on, it cannot signal other processes either.

    Args:
        readable: files, and folders with all that is in them.
        writable: folders.

    Raises:
        OSError: Linux has no Landlock.
    """
    version = landlock.version()
    files = _ALL | _MOVE | (_TRUNCATE if version >= 3 else 0) | (_ASK_DEVICES if version >= 5 else 0)
    scopes = _OTHERS_ADDRESSES | _OTHERS_SIGNALS if version >= landlock.KEEPS_SIGNALS else 0
    with _restricting(_Rules(files, 0, scopes)) as rules:
        for path in readable:
            _allow(rules, _READ | _LIST | _EXECUTE, path)
        for path in writable:
            _allow(rules, files & ~_ASK_DEVICES, path)
        for path in DEVICES:
            _allow(rules, _READ | _WRITE, path)


def keep_apart(shares_files: bool) -> None:
    """Keep this thread, and all that it starts, from looking into processes that run already.

    From Linux 6.12 on it cannot signal them either. It cannot write to /proc, where it could have Linux end
    others first when memory runs out.

    Args:
        shares_files: if not, it cannot change any file, nor read those that students' code has written, nor
            what /proc tells of other processes.

    Raises:
        OSError: Linux has no Landlock.
    """
    version = landlock.version()
    reads = not (shares_files and filesystem.has_namespaces())  # which hide other processes by themselves
    files = _MOVE | _WRITE | (_READ if reads else 0)
    if not shares_files:
        files |= _CHANGE | (_TRUNCATE if version >= 3 else 0)
    scopes = _OTHERS_SIGNALS if version >= landlock.KEEPS_SIGNALS else 0
    with _restricting(_Rules(files, 0, scopes)) as rules:
        if shares_files:
            _allow(rules, _MOVE, "/")
            for path in _all_but({"/proc"}, "/") if filesystem.has_namespaces() else (*WRITABLE, *DEVICES):
                _allow(rules, _WRITE, path)
        else:
            _allow(rules, _WRITE, os.devnull)
        for path in _not_of_other_processes(shares_files) if reads else ():
            _allow(rules, _READ, path)


def hide_files(hidden: Sequence[str]) -> None:
    """Hide these files, and what is in these folders, from this thread and all that it starts.

    Args:
        hidden: real paths, without symbolic links.

    Raises:
        OSError: Linux has no Landlock.
    """
    with _restricting(_Rules(_MOVE | _READ, 0, 0)) as rules:
        _allow(rules, _MOVE, "/")
        tops = ["/"] if filesystem.has_namespaces() else [*_readable(), *WRITABLE, "/proc"]
        for path in _all_but_in(frozenset(hidden), tops):
            _allow(rules, _READ, path)


@contextlib.contextmanager
def _restricting(handled: _Rules) -> Iterator[int]:
    """Make rules that allow nothing of what they handle; at the end they hold for this thread."""
    size = ctypes.sizeof(handled) if handled.scopes else ctypes.sizeof(ctypes.c_uint64)
    rules = _ask(landlock.CREATE_RULESET, ctypes.byref(handled), size, 0)
    yield rules
    _libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    _ask(_RESTRICT_SELF, rules, 0)
    os.close(rules)


def _readable() -> list[str]:
    """List what a process without a file system of its own may read, of what is no process's."""
    return [*filesystem.system(), *python_paths(), *filesystem.read_by_gloo(), *DEVICES]


def _all_but_in(hidden: Collection[str], tops: Iterable[str]) -> Iterator[str]:
    """Yield paths that lead to all that is below several folders but to what is hidden."""
    for top in map(os.path.realpath, tops):
        if any(path.startswith(f"{top.rstrip('/')}/") for path in hidden):
            yield from _all_but(hidden, top)
        elif top not in hidden:
            yield top


def _all_but(hidden: Collection[str], folder: str) -> Iterator[str]:
    """Yield paths that lead to everything in a folder but to what is hidden."""
    for entry in os.scandir(folder):
        if entry.path in hidden or entry.is_symlink():  # a link's target is found where it is
            continue
        if any(path.startswith(f"{entry.path}/") for path in hidden):
            yield from _all_but(hidden, entry.path)
        else:
            yield entry.path


def _not_of_other_processes(students: bool) -> Iterator[str]:
    """Yield what a process that runs students' code may read.

    Args:
        students: whether files that other such processes write are among it.
    """
    if filesystem.has_namespaces():
        yield from _all_but({"/proc", TERMINALS, *WRITABLE}, "/")
    else:
        yield from _readable()
        yield from WRITABLE if students else ()
    yield from python_paths()  # which may lie within what students write
    yield from (f"/proc/{name}" for name in os.listdir("/proc") if not name.isdigit() and _is_for_all(name))


def _is_for_all(name: str) -> bool:
    """Tell whether everyone may read what Linux tells under a name in /proc.

    Some is for root alone, such as when every timer of the machine ends. Where root grades, students' code is
    root to Linux, without its rights.
    """
    return bool(os.lstat(f"/proc/{name}").st_mode & stat.S_IROTH)


def leave_no_traces(shares_files: bool, starts_sessions: bool = False) -> None:
    """Keep this process, and all that it starts, from sockets and from changing what others can see.

    Args:
        shares_files: whether it may change files.
        starts_sessions: whether it may start sessions.

    Raises:
        OSError: Linux takes no filter.
    """
    owns_others = not filesystem.has_own_user()
    refuse(system_calls.between_ranks(shares_files, starts_sessions, owns_others))


def keep_memory_in_sight() -> None:
    """Have all that this process, and what it starts, keeps in memory be counted as its own.

    And no more is counted: freed memory goes back to Linux at once, and huge pages are not used.

    Raises:
        OSError: Linux takes no filter.
    """
    _libc.mallopt(_MMAP_THRESHOLD, _SMALL)
    _libc.prctl(_NO_HUGE_PAGES, 1, 0, 0, 0)
    refuse(system_calls.in_sight())


def refuse(instructions: bytes) -> None:
    """Refuse system calls to all threads of this process, and all that they start.

    Args:
        instructions: a program of `system_calls`.

    Raises:
        OSError: Linux takes no filter.
    """
    program = _Program(len(instructions) // 8, instructions)
    refused = _libc.syscall(
        system_calls.to_filter(), _SET_FILTER, _FOR_ALL_THREADS, ctypes.byref(program)
    )  # above zero: the number of a thread that has another filter
    if refused != 0:
        number = ctypes.get_errno() if refused < 0 else errno.EACCES
        raise OSError(number, os.strerror(number))


def unpickle_messages_only() -> None:
    """Let nothing be unpickled in this process any more but what ranks have to say."""
    sys.addaudithook(_refuse_to_unpickle)


def _allow(rules: int, access: int, path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        file = os.open(path, os.O_PATH)
        beneath = _PathBeneath(access if os.path.isdir(path) else access & _OF_FILES, file)
        _ask(_ADD_RULE, rules, _PATH_BENEATH, ctypes.byref(beneath), 0)
        os.close(file)


def _ask(*arguments: object) -> int:
    answer: int = _libc.syscall(*arguments)
    if answer < 0:
        number = ctypes.get_errno()
        hint = ": Linux has no Landlock here" if number in (errno.ENOSYS, errno.EOPNOTSUPP) else ""
        raise OSError(number, os.strerror(number) + hint)
    return answer


def _refuse_to_unpickle(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse all but plain data and fourranks' data classes, which do nothing when they are made."""
    if event != "pickle.find_class":
        return
    module, name = arguments
    found = vars(sys.modules.get(module, object)).get(name)
    if not (module.split(".")[0] == "fourranks" and isinstance(found, type) and _is_data(found)):
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a rank's message")
    if not hasattr(found, "__setstate__"):
        found.__setstate__ = _set_state  # type: ignore[attr-defined]


def _set_state(instance: object, state: Any) -> None:
    """Fill in an instance. Pickle does so by itself, but would also set what a class itself has."""
    for fields in state if isinstance(state, tuple) else (state,):
        for name, value in (fields or {}).items():
            object.__setattr__(instance, name, value)


def _is_data(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) or issubclass(kind, (tuple, Parcel))
