"""The versions that must be the same on two machines that send each other pickled values."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
_IN_PICKLES = ("torch", "numpy", "cloudpickle")


def own() -> dict[str, str]:
    """Return the versions of this machine, by name."""
    python = ".".join(platform.python_version_tuple()[:2])  # functions by value depend on it
    packages = {name: _version(name) for name in _IN_PICKLES}
    return {"Python": python, "fourranks": f"{_version('fourranks')}, {_digest()}", **packages}


def differences(here: Mapping[str, str], there: Mapping[str, str], node: str) -> list[str]:
    """Say what differs, a sentence each."""
    return [
        f"{name} is {version} here and {there.get(name, 'missing')} on {node}."
        for name, version in here.items()
        if there.get(name) != version
    ]


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "missing"


def _digest() -> str:
    """Return a short hash of this package's source: a version number stays while people change the code."""
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        digest.update(path.relative_to(_PACKAGE).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:8]
