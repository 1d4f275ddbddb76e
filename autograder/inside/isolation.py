"""What processes in a sandbox do to be safe from one another.

Ranks are kept from passing each other anything but what Linux counts, and the process that answers checks is
kept from students' code, which runs beside it: by Linux's Landlock, whose rules nobody can take back.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import errno
import os
import pickle
import sys
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from autograder.inside import system_calls
from autograder.inside.filesystem import WRITABLE, python_paths
from fourranks import landlock
from fourranks.protocol.parcel import Parcel

_libc = ctypes.CDLL(None, use_errno=True)
_ADD_RULE, _RESTRICT_SELF = 445, 446  # of Landlock; the same on all machines
_PATH_BENEATH = 1
_WRITE, _READ, _MOVE, _TRUNCATE = 1 << 1, 1 << 2, 1 << 13, 1 << 14  # to move: from one folder to another
_CHANGE = _WRITE | sum(1 << bit for bit in range(4, 13))  # to write, remove, make
_OTHERS_SIGNALS, _SINCE_VERSION = 1 << 1, 6
_SET_SECCOMP, _FILTER = 22, 2  # of prctl
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
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def keep_apart(shares_files: bool) -> None:
    """From now on this thread, and all that it starts, cannot look into processes that run already.

    From Linux 6.12 on it cannot signal them either.

    Args:
        shares_files: if not, it cannot change any file, nor read those that students' code has written, nor
            what /proc tells of other processes.

    Raises:
        OSError: Linux has no Landlock.
    """
    version = landlock.version()
    files = _MOVE if shares_files else _MOVE | _READ | _CHANGE | (_TRUNCATE if version >= 3 else 0)
    handled = _Rules(files, 0, _OTHERS_SIGNALS if version >= _SINCE_VERSION else 0)
    size = ctypes.sizeof(handled) if handled.scopes else ctypes.sizeof(ctypes.c_uint64)
    rules = _ask(landlock.CREATE_RULESET, ctypes.byref(handled), size, 0)
    if shares_files:
        _allow(rules, _MOVE, "/")
    else:
        _allow(rules, _WRITE, os.devnull)
        for path in _neither_students_nor_other_processes():
            _allow(rules, _READ, path)
    _ask(_RESTRICT_SELF, rules, 0)
    os.close(rules)


def hide_files(hidden: Sequence[str]) -> None:
    """From now on this thread, and all that it starts, cannot read these files and what is in these folders.

    Args:
        hidden: real paths, without symbolic links.

    Raises:
        OSError: Linux has no Landlock.
    """
    handled = _Rules(_MOVE | _READ, 0, 0)
    rules = _ask(landlock.CREATE_RULESET, ctypes.byref(handled), ctypes.sizeof(ctypes.c_uint64), 0)
    _allow(rules, _MOVE, "/")
    for path in _all_but(frozenset(hidden), "/"):
        _allow(rules, _READ, path)
    _ask(_RESTRICT_SELF, rules, 0)
    os.close(rules)


def _all_but(hidden: Collection[str], folder: str) -> Iterator[str]:
    """Paths that lead to everything in a folder but to what is hidden."""
    for entry in os.scandir(folder):
        if entry.path in hidden or entry.is_symlink():  # what a link leads to is found where it is
            continue
        if any(path.startswith(f"{entry.path}/") for path in hidden):
            yield from _all_but(hidden, entry.path)
        else:
            yield entry.path


def _neither_students_nor_other_processes() -> Iterator[str]:
    yield from _all_but({"/proc", TERMINALS, *WRITABLE}, "/")
    yield from python_paths()  # which may lie within one of them
    yield from (f"/proc/{name}" for name in os.listdir("/proc") if not name.isdigit())


def leave_no_traces(shares_files: bool) -> None:
    """From now on this thread, and all that it starts, cannot open a socket or change what others can see.

    Args:
        shares_files: whether it may change files.

    Raises:
        OSError: Linux takes no filter.
    """
    _refuse(system_calls.between_ranks(shares_files))


def keep_memory_in_sight() -> None:
    """From now on what this thread, and all that it starts, keeps in memory is counted as this process's.

    And no more is counted: what is freed goes back to Linux at once, and huge pages are not used.

    Raises:
        OSError: Linux takes no filter.
    """
    _libc.mallopt(_MMAP_THRESHOLD, _SMALL)
    _libc.prctl(_NO_HUGE_PAGES, 1, 0, 0, 0)
    _refuse(system_calls.in_sight())


def _refuse(instructions: bytes) -> None:
    program = _Program(len(instructions) // 8, instructions)
    if _libc.prctl(_SET_SECCOMP, _FILTER, ctypes.byref(program)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def unpickle_messages_only() -> None:
    """From now on nothing is unpickled in this process but what ranks have to say."""
    sys.addaudithook(_refuse_to_unpickle)


def _allow(rules: int, access: int, path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        file = os.open(path, os.O_PATH)
        beneath = _PathBeneath(access, file)
        _ask(_ADD_RULE, rules, _PATH_BENEATH, ctypes.byref(beneath), 0)
        os.close(file)


def _ask(*arguments: object) -> int:
    answer = _libc.syscall(*arguments)
    if answer < 0:
        number = ctypes.get_errno()
        hint = ": Linux has no Landlock here" if number in (errno.ENOSYS, errno.EOPNOTSUPP) else ""
        raise OSError(number, os.strerror(number) + hint)
    return answer


def _refuse_to_unpickle(event: str, arguments: tuple) -> None:
    """Plain data, and the data classes of fourranks: nothing that does anything when it is made."""
    if event != "pickle.find_class":
        return
    module, name = arguments
    found = vars(sys.modules.get(module, object)).get(name)
    if not (module.split(".")[0] == "fourranks" and isinstance(found, type) and _is_data(found)):
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a rank's message")
    if not hasattr(found, "__setstate__"):
        found.__setstate__ = _set_state


def _set_state(instance: object, state: Any) -> None:
    """Fill in an instance. Pickle does so by itself, but would also set what a class itself has."""
    for fields in state if isinstance(state, tuple) else (state,):
        for name, value in (fields or {}).items():
            object.__setattr__(instance, name, value)


def _is_data(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) or issubclass(kind, (tuple, Parcel))
