"""Lets readers run cells in the page where these need no ranks: by Pyodide, which is CPython for browsers.

Where there is no npm, `make site` has no Pyodide, and these pages show what is stored, like all others.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

if TYPE_CHECKING:
    from sphinx.application import Sphinx

COURSE = Path(__file__).parents[1]
PAGES = ("play/puzzles",)
MODULES = ("fourranks/puzzles/*.py", "fourranks/views/palette.py", "fourranks/views/picture.py")
PYODIDE = COURSE / ".venv" / "pyodide" / "node_modules" / "pyodide"  # made by `make site`
RUNTIME = (
    "pyodide.mjs",
    "pyodide.asm.mjs",
    "pyodide.asm.wasm",
    "pyodide-lock.json",
    "python_stdlib.zip",
)
NOTE = """**You can play on this page.** Change a cell, then press Run below it, or Shift+Enter. The first run
loads Python, 13 MB. Your records stay in this browser."""


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    if PYODIDE.exists():
        app.connect("source-read", _say_so)
        app.connect("html-page-context", _add_script)
        app.connect("build-finished", _add_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _say_so(_: Sphinx, page: str, source: list[str]) -> None:
    if page in PAGES:
        notebook: dict[str, Any] = json.loads(source[0])
        notebook["cells"].insert(1, {"cell_type": "markdown", "id": "here", "metadata": {}, "source": NOTE})
        source[0] = json.dumps(notebook)


def _add_script(app: Sphinx, page: str, *_: object) -> None:
    if page in PAGES:
        app.add_js_file("cells.js", type="module")


def _add_files(app: Sphinx, error: Exception | None) -> None:
    static = Path(app.outdir) / "_static"
    if error is None:
        (static / "pyodide").mkdir()
        for name in RUNTIME:
            shutil.copy(PYODIDE / name, static / "pyodide")
        pack(static / "modules.zip")


def pack(path: Path) -> None:
    """Write what cells import and what runs them; the packages above the modules are empty."""
    with ZipFile(path, "w") as archive:
        archive.write(COURSE / "website" / "run_cell.py", "run_cell.py")
        for package in ("fourranks", "fourranks/views"):
            archive.writestr(f"{package}/__init__.py", "")
        for pattern in MODULES:
            for module in sorted(COURSE.glob(pattern)):
                archive.write(module, module.relative_to(COURSE))
