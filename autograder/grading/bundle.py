"""The zip that an instructor hands out: the course, without solutions and without hidden tests.

`autograder bundle` calls `write`. The checks are in it, with what they expect: students run them, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from autograder.notebooks import build
from autograder.notebooks.stage import START_PAGE, start_page

TOP = "four_ranks"
NAME = f"{TOP}.zip"
FOLDERS = (".jupyter", "autograder", "exercises", "fourranks", "lectures")
FILES = (
    "LICENSE",
    "docs/hangs.md",
    "docs/security.md",
    "nbgrader_config.py",
    "pyproject.toml",
    "requirements.txt",
    "tools/install.py",
)
README = "docs/students.md"  # what README.md is there
TARGETS = ("help", "install", "lab", "clean")  # of the Makefile; the others need what is not there
NOT_OURS = {".ipynb_checkpoints", "__pycache__"}
RULE = re.compile(r"([\w./-]+):(?!=)")


class BundleError(Exception):
    """The course cannot be handed out as it is; the text says why and what to do."""


def write(course: Path, path: Path) -> None:
    """Write the zip, whole or not at all; the same course makes the same bytes.

    Raises:
        BundleError: when a notebook is not what source/ makes: someone may have solved the exercise in it.
        SourceError: when source/ has a mistake.
    """
    if problems := build.check(course):
        raise BundleError("\n".join([*problems, "", "Run `make build` first: nothing was written."]))
    partial = path.with_name(f".{path.name}.partial")
    with ZipFile(partial, "w", ZIP_DEFLATED) as archive:
        for name, content in sorted(_contents(course)):
            entry = ZipInfo(f"{TOP}/{name}")  # of 1980, whenever it is made
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content, ZIP_DEFLATED)
    partial.replace(path)


def _contents(course: Path) -> Iterator[tuple[str, bytes]]:
    """Each file's name and what is in it."""
    for folder in FOLDERS:
        for path in (course / folder).rglob("*"):
            if path.is_file() and not NOT_OURS.intersection(path.parts):
                yield path.relative_to(course).as_posix(), path.read_bytes()
    for name in FILES:
        yield name, (course / name).read_bytes()
    yield "README.md", (course / README).read_bytes()
    yield "Makefile", _makefile((course / "Makefile").read_text()).encode()
    yield START_PAGE, start_page(course, course, ("lecture", "exercise")).encode()


def _makefile(text: str) -> str:
    """The same Makefile with fewer rules; an empty line parts one from the next."""
    text = re.sub(r"^\.PHONY:.*", f".PHONY: {' '.join(TARGETS)}", text, flags=re.MULTILINE)
    parts = [(RULE.match(part), part) for part in text.strip().split("\n\n")]
    return "\n\n".join(part for rule, part in parts if rule is None or rule[1] in TARGETS) + "\n"
