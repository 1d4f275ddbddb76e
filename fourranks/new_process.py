"""Starts processes of ours, whatever folder, variables and streams the parent has."""

from __future__ import annotations

import os
import site
import sys

_HUGE_PAGES = "glibc.malloc.hugetlb=1"


def command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module, whatever the current folder holds.

    With `python -m` a `random.py` of the reader's would take the place of Python's, there and for all that is
    imported. Its option -P for this is new in Python 3.11.
    """
    run = f"import runpy; runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    return [sys.executable, "-c", f"import sys; sys.path[:] = filter(None, sys.path); {run}", *arguments]


def working_directory() -> str:
    """Return the folder that this process works in, or the topmost one where that has been deleted.

    Torch cannot be imported in a folder that is not there.
    """
    try:
        return os.getcwd()
    except FileNotFoundError:
        return os.sep


def environment() -> dict[str, str]:
    """Return variables with which a new process imports this package, wherever it lies.

    Where it is installed a process does so anyway, and PYTHONPATH would put all that is installed before
    Python's own modules.
    """
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if folder in (*site.getsitepackages(), site.getusersitepackages()):
        return dict(os.environ)
    given = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([folder, given]) if given else folder}


def huge_pages() -> dict[str, str]:
    """Return variables with which the C library asks Linux for huge pages.

    A fork copies a table entry for each page: that of a process with huge ones takes half the time.
    """
    given = os.environ.get("GLIBC_TUNABLES")
    return {"GLIBC_TUNABLES": f"{given}:{_HUGE_PAGES}" if given else _HUGE_PAGES}


def open_standard_streams() -> None:
    """Open those standard streams that are closed, as in a daemon: no socket may take the place of one."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
