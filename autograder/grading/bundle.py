"""The zip that an instructor hands out: the course, without solutions and without hidden tests.

`autograder bundle` calls `write`. The checks are in it, with what they expect: students run them, too. With
--gradescope it calls `write_gradescope`, whose zip grades an assignment, and is for the instructor.
"""

from __future__ import annotations

import io
import posixpath
import re
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from autograder.grading import submission
from autograder.kit import whole_file
from autograder.notebooks import build
from autograder.notebooks.stage import START_PAGE, start_page

TOP = "four_ranks"
NAME = f"{TOP}.zip"
FOLDERS = (".jupyter", "autograder", "exercises", "fourranks", "lectures")
FILES = (
    "LICENSE",
    "docs/anywhere.md",
    "docs/anywhere.svg",
    "docs/cheat_sheet.md",
    "docs/clusters.md",
    "docs/concept_map.md",
    "docs/glossary.md",
    "docs/gpu.md",
    "docs/hangs.md",
    "docs/notation.md",
    "docs/plan.md",
    "docs/security.md",
    "nbgrader_config.py",
    "play/incidents.ipynb",
    "play/puzzles.ipynb",
    "pyproject.toml",
    "requirements.txt",
    "tools/anywhere.py",
    "tools/install.py",
)
GRADING = ("autograder", "fourranks")  # what Gradescope needs of the course
GRADING_FILES = ("README.md", "pyproject.toml", "requirements.txt")
GRADESCOPE = Path(__file__).parent / "gradescope_scripts"  # at the top of its zip
README = "docs/students.md"  # what README.md is there
TARGETS = ("help", "install", "lab", "clean")  # of the Makefile; the others need what is not there
NOT_OURS = {".fourranks", ".ipynb_checkpoints", "__pycache__"}  # left behind by notebooks and Python
RULE = re.compile(r"([\w./-]+):(?!=)")
LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)[^)]*\)")


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
    contents = dict(_contents(course))
    for name in contents:
        if name.endswith(".md"):
            contents[name] = _with_links_to(contents, name, contents[name].decode()).encode()
    _write(path, ((f"{TOP}/{name}", content) for name, content in contents.items()))


def _write(path: Path, contents: Iterable[tuple[str, bytes]]) -> None:
    packed = io.BytesIO()
    with ZipFile(packed, "w", ZIP_DEFLATED) as archive:
        for name, content in sorted(contents):
            entry = ZipInfo(name)  # of 1980, whenever it is made
            entry.external_attr = (0o755 if content.startswith(b"#!") else 0o644) << 16
            archive.writestr(entry, content, ZIP_DEFLATED)
    whole_file.write(path, packed.getvalue())


def write_gradescope(course: Path, assignment: str, path: Path) -> None:
    """Write the zip that makes Gradescope grade an assignment: with hidden tests, for the instructor alone.

    Raises:
        SubmissionError: when there is no such assignment.
    """
    release = course / "source" / assignment / "exercise.ipynb"
    submission.release(course, assignment, release.stem)
    contents = {f"course/{name}": content for name, content in _files(course, GRADING, GRADING_FILES)}
    contents[f"course/{release.relative_to(course)}"] = release.read_bytes()
    for script in GRADESCOPE.iterdir():
        contents[script.name] = script.read_text().replace("ASSIGNMENT", assignment).encode()
    _write(path, contents.items())


def _contents(course: Path) -> Iterator[tuple[str, bytes]]:
    """Yield each file's name and its content."""
    yield from _files(course, FOLDERS, FILES)
    yield "README.md", (course / README).read_bytes()
    yield "Makefile", _makefile((course / "Makefile").read_text()).encode()
    yield START_PAGE, start_page(course, course, ("lecture", "exercise")).encode()


def _files(course: Path, folders: Iterable[str], files: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    for folder in folders:
        for path in (course / folder).rglob("*"):
            if path.is_file() and not NOT_OURS.intersection(path.parts):
                yield path.relative_to(course).as_posix(), path.read_bytes()
    for name in files:
        yield name, (course / name).read_bytes()


def _with_links_to(names: Container[str], page: str, text: str) -> str:
    """Return a page whose links to files without these names are plain text."""

    def kept(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), link[2]))
        return link[0] if "://" in link[2] or target in names else link[1]

    return LINK.sub(kept, text)


def _makefile(text: str) -> str:
    """Return the Makefile with fewer rules; an empty line parts one from the next."""
    text = re.sub(r"^\.PHONY:.*", f".PHONY: {' '.join(TARGETS)}", text, flags=re.MULTILINE)
    parts = [(RULE.match(part), part) for part in text.strip().split("\n\n")]
    return "\n\n".join(part for rule, part in parts if rule is None or rule[1] in TARGETS) + "\n"
