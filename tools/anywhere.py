"""Prepare a kernel that is not the course's own: `%run four_ranks/tools/anywhere.py` in any notebook.

Installs the package from the folder that this file is in, around the torch that is there, and says what a
reader of this kernel has to know. docs/anywhere.md has the cell that calls it.
"""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tempfile
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

COURSE = Path(__file__).resolve().parents[1]
OLDEST_PYTHON = (3, 10)
OLDEST_TORCH, TOO_NEW_TORCH = (2, 13), (2, 16)  # as in pyproject.toml
# Packages that a kernel may have loaded before this script runs, each with its module.
MODULES = {"ipython": "IPython", "matplotlib": "matplotlib", "psutil": "psutil", "cloudpickle": "cloudpickle"}


class Unfit(SystemExit):
    """The kernel cannot run the course; the text says why and what to do."""


def main() -> None:
    if sys.version_info[:2] < OLDEST_PYTHON:
        raise Unfit(f"This kernel has Python {sys.version.split()[0]}; Four Ranks needs 3.10 or newer.")
    torch = fit_torch()
    install(torch)
    importlib.invalidate_caches()
    print(f"Four Ranks {metadata.version('fourranks')}, with this kernel's own torch {torch}, from {COURSE}")
    if replaced := loaded_before():
        names = ", ".join(replaced)
        print(f"Restart the kernel, then run this cell again: {names} was replaced by a newer one.")
    print(widgets())


def fit_torch() -> str:
    """Return the version of torch, which must be one that the course is made for."""
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        raise Unfit("This kernel has no torch: %pip install torch, then run this cell again.") from None
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if not OLDEST_TORCH <= numbers < TOO_NEW_TORCH:
        raise Unfit(
            f"This kernel has torch {version}; Four Ranks is made for 2.13 to 2.15. Choose an image that has "
            "one, or replace it (some GB): %pip install 'torch>=2.13,<2.16', then restart the kernel."
        )
    return version


def install(torch: str) -> None:
    """Install the package and what it lacks; torch stays as it is."""
    with tempfile.TemporaryDirectory() as folder:
        constraint = Path(folder, "torch.txt")
        constraint.write_text(f"torch=={torch}\n")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        ran = subprocess.run([*pip, "--constraint", constraint, COURSE], stderr=subprocess.PIPE, text=True)
    if ran.returncode:
        raise Unfit(f"{ran.stderr}\nFour Ranks could not be installed; pip's reason is above.")


def loaded_before() -> list[str]:
    """Return the packages of which the kernel has loaded another version than is installed now."""
    loaded = {name: sys.modules[module] for name, module in MODULES.items() if module in sys.modules}
    return [name for name, module in loaded.items() if module.__version__ != metadata.version(name)]


def widgets() -> str:
    """Switch Colab's widgets on, and say what the dashboard is here."""
    if not all(map(find_spec, ("anywidget", "ipywidgets"))):
        return "%ranks dashboard shows a table here; for a live one: %pip install 'fourranks[dashboard]'"
    if "google.colab" in sys.modules:
        sys.modules["google.colab"].output.enable_custom_widget_manager()
    return "%ranks dashboard is live here, where this page allows custom widgets; elsewhere it shows a table."


if __name__ == "__main__":
    main()
