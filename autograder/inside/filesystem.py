"""The file system as a sandbox's processes see it, and the parts that they can write to."""

from __future__ import annotations

import glob
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from fourranks import new_process

# An environment variable that is set in a sandbox, to the folder that those lie in which students' code can
# write to: the root of a file system of its own or, where there is none, a folder of this sandbox.
INSIDE = "AUTOGRADER_SANDBOX"
TOP = os.environ.get(INSIDE, "/")
PACKAGES = Path(__file__).parents[2]
HOME = os.path.join(TOP, "home/student")
WRITABLE = tuple(
    os.path.join(TOP, name) for name in ("dev/shm", "tmp", "home/student")
)  # in memory, or empty
# Where Python makes temporary files. It is there from the start: where a library in /tmp is hidden, as it is
# for a course that lies there, new files in /tmp itself cannot be read.
SCRATCH = os.path.join(TOP, "tmp/scratch")
COMPILED = os.path.join(TOP, "tmp/compiled")  # where torch looks for what it has compiled, and makes a folder
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/alternatives")
DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom"))
GIVEN = ("unsharded", "three_d", "on_paper", "capstone")  # modules that notebooks import, besides `check`
# Of this course: the code that runs a student's, and imports of notebooks. Checks stay outside.
COURSE = {
    path: path
    for path in (
        "fourranks",
        "autograder/__init__.py",
        "autograder/inside",
        *(f"autograder/{name}.py" for name in GIVEN),
    )
} | {"autograder/check.py": "autograder/inside/no_checks.py"}


def is_inside() -> bool:
    """Tell whether this process runs in a sandbox."""
    return INSIDE in os.environ


def has_namespaces() -> bool:
    """Tell whether a sandbox's processes have a file system, numbers and a network of their own."""
    return TOP == "/"


def has_own_user() -> bool:
    """Tell whether a sandbox's processes are of a user that owns nothing else."""
    return has_namespaces() or os.stat(TOP).st_uid != os.geteuid()


def python() -> list[str]:
    """Return the folders of Python and its packages."""
    return [sys.base_prefix, sys.prefix, *sysconfig.get_paths().values()]


def python_paths() -> list[str]:
    """Return where Python, its packages and the part of the course that can be read lie."""
    return [*python(), *(str(PACKAGES / inside) for inside in COURSE)]


def system() -> list[str]:
    """List the system's libraries, and Python with its packages."""
    readable: list[str] = []
    for path in sorted({*SYSTEM, *python()}):
        if os.path.exists(path) and not any(path.startswith(f"{outer}/") for outer in readable):
            readable.append(path)
    return readable


def placed(path: str) -> str:
    """Return where a path that the referee chose below its own /tmp lies for this process."""
    return path if has_namespaces() else os.path.join(SCRATCH, path.lstrip("/"))


def read_by_gloo() -> list[str]:
    """List what Gloo fails without, if it exists and cannot be read."""
    folder = "/sys/bus/pci/devices"
    return [folder, *glob.glob(f"{folder}/*/class")]


def remove(*folders: str) -> None:
    """Remove folders, however deep, with all that students' code has made in them.

    Only root could empty a folder that may not be listed or changed without allowing that first.
    """
    for command in (["chmod", "-fR", "u+rwX"], ["rm", "-rf"]):
        subprocess.run([*command, "--", *folders], check=False)


def environment(top: str = "/", packages: Path = PACKAGES) -> dict[str, str]:
    """Return the environment of a sandbox's processes.

    Args:
        top: what `TOP` is to them.
        packages: where they find the course.
    """
    return {
        "HOME": os.path.join(top, "home/student"),
        "LANG": "C.UTF-8",
        "PATH": os.pathsep.join([sysconfig.get_path("scripts"), "/usr/bin", "/bin"]),
        "PYTHONPATH": str(packages),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        "MPLBACKEND": "agg",
        "TMPDIR": os.path.join(top, "tmp/scratch"),
        "TORCHINDUCTOR_CACHE_DIR": os.path.join(top, "tmp/compiled"),
        INSIDE: top,
    } | new_process.huge_pages()
