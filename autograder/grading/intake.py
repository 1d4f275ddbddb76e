"""Reads what students hand in, in processes whose memory and time have limits; each file is read once.

The content of a notebook, or the reason why it could not be read, is kept next to the record of its
submission: when a class is graded again, only changed notebooks are parsed. `grade` has a whole class read
before it is run, `nbgrader_plugin` one notebook.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from autograder.grading import pictures, submission
from autograder.grading.pool import Failed, Pool, usable_cores
from autograder.grading.submission import SubmissionError
from autograder.kit import whole_file

MEMORY = 1 << 30  # bytes: a notebook of 64 MiB of pictures takes a quarter of it
SECONDS = 60.0  # for one notebook, which takes a tenth of a second, and as long as Python to start


@dataclass(frozen=True)
class HandedIn:
    """A student's notebook, and where it is kept what was in it."""

    path: Path
    kept: Path


def kept_for(record: Path) -> Path:
    """Return the path at which the content of the notebook with this record is kept."""
    return record.with_suffix(".read")


def read(one: HandedIn) -> NotebookNode:
    """Return what a student wrote in a notebook, as `submission.read` does.

    Raises:
        SubmissionError: when it cannot be read, or takes more memory or time than anybody's notebook does.
    """
    submission.require_own(one.path)
    if _kept(one) is None and (troubles := read_all([one], [tuple(usable_cores())])):
        raise SubmissionError(troubles[one])
    return known(one)


def known(one: HandedIn) -> NotebookNode:
    """Return what a student wrote in a notebook that was read before.

    Raises:
        SubmissionError: when it could not be read, or has changed since.
    """
    submission.require_own(one.path)
    kept = _kept(one)
    if kept is None:
        raise SubmissionError(f"{one.path} was changed while it was being graded: run the same command again")
    if kept["problem"]:
        raise SubmissionError(kept["problem"])
    return nbformat.from_dict(kept["notebook"])


def read_all(handed_in: Sequence[HandedIn], shares: Sequence[tuple[int, ...]]) -> dict[HandedIn, str]:
    """Read all that were not read before, or were changed since.

    Args:
        shares: for each process that reads, its cores.

    Returns:
        Why this machine cannot read some, or keep what was read. It is not kept: it may be gone next time.
    """
    new = [one for one in handed_in if _is_new(one)]
    if not new:
        return {}
    troubles = {}
    with Pool(_read, shares[: len(new)], SECONDS, MEMORY) as readers:
        for one, result in readers.results(new):
            if isinstance(result, Failed):
                reason = f"{one.path} cannot be read: {result.reason}"
                if not (result.exhausted and refuse(one, reason)):
                    troubles[one] = reason
    return troubles


def refuse(one: HandedIn, problem: str) -> bool:
    """Keep why a notebook cannot be graded, until it is changed or `forget` is called; tell whether it is."""
    with contextlib.suppress(OSError):  # a disk may be full
        _keep(one, {"digest": _digest(one.path), "problem": problem, "notebook": {}})
        return True
    return False


def forget(one: HandedIn) -> None:
    """Have a notebook read again."""
    one.kept.unlink(missing_ok=True)


def _is_new(one: HandedIn) -> bool:
    try:
        submission.require_own(one.path)
    except SubmissionError:  # nothing of it is read; `known` says why
        return False
    return _kept(one) is None


def _read(one: HandedIn) -> str:
    """Read a notebook in a process with limits; return what is wrong. All else goes to a file."""
    digest, problem, notebook = _digest(one.path), "", NotebookNode()
    try:
        notebook = submission.read(one.path)
    except SubmissionError as error:
        problem = str(error)
    _keep(one, {"digest": digest, "problem": problem, "notebook": notebook})
    return problem


def _kept(one: HandedIn) -> dict[str, Any] | None:
    """Return what is kept of a notebook; None if it has changed since, or was never read."""
    try:
        kept = json.loads(one.kept.read_bytes())
        return kept if kept["digest"] == _digest(one.path) else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _keep(one: HandedIn, content: dict[str, Any]) -> None:
    one.kept.parent.mkdir(parents=True, exist_ok=True)
    whole_file.write(one.kept, json.dumps(content).encode("ascii"))


def _digest(path: Path) -> str:
    """Return a digest of a file and of the code that reads it."""
    return _reader() + hashlib.sha256(path.read_bytes()).hexdigest()


@cache
def _reader() -> str:
    code = b"".join(Path(str(module.__file__)).read_bytes() for module in (submission, pictures))
    return hashlib.sha256(code).hexdigest()[:16]
