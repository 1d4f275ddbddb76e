"""What a sandbox's processes see of the file system, and what of it they can write to."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

INSIDE = "AUTOGRADER_SANDBOX"  # an environment variable that is set in a sandbox
PACKAGES = Path(__file__).parents[2]
HOME = "/home/student"
WRITABLE = ("/dev/shm", "/tmp", HOME)  # folders in memory that students' code can write to
COMPILED = "/tmp/compiled"  # where torch looks for what it has compiled, and makes a folder if there is none
# Of this course: what runs a student's code, and the two modules that notebooks import. Checks stay outside.
COURSE = {
    path: path
    for path in ("fourranks", "autograder/__init__.py", "autograder/inside", "autograder/unsharded.py")
} | {"autograder/check.py": "autograder/inside/no_checks.py"}


def is_inside() -> bool:
    """Tell whether this process runs in a sandbox."""
    return INSIDE in os.environ


def python() -> list[str]:
    """Return the folders of Python and its packages."""
    return [sys.base_prefix, sys.prefix, *sysconfig.get_paths().values()]


def python_paths() -> list[str]:
    """Return where Python, its packages and the part of the course that can be read lie."""
    return [*python(), *(str(PACKAGES / inside) for inside in COURSE)]
