"""Referees a submission again: what is recorded of it and still holds is taken from there, the rest is run.

`nbgrader_plugin` calls `regrade` for a notebook; `grade` has `regrade_submission` called for a whole class.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from autograder.grading import intake, records, submission
from autograder.grading.dependencies import fingerprint
from autograder.grading.intake import HandedIn
from autograder.grading.records import Cell, Record, Terms
from autograder.grading.submission import SubmissionError
from autograder.sandbox.bubblewrap import Sandbox, SandboxMissing
from autograder.sandbox.launch import Ahead, Launch, Unconfined, Warm, launch

Start = Callable[[bool], AbstractContextManager[Launch]]  # of processes for cells, in a sandbox or without
MOST_NAMED = 20  # files, in a message


@dataclass(frozen=True)
class Submission:
    """What one process referees at a time."""

    course: Path
    folder: Path
    assignment: str
    student: str
    notebooks: tuple[str, ...]
    terms: Terms

    def record(self, notebook: str) -> Path:
        """Where the record of a notebook is kept."""
        return records.path_of(self.course, self.assignment, self.student, notebook)

    @property
    def handed_in(self) -> dict[str, HandedIn]:
        """The notebooks that are there, by name. Of several some may be missing: those are worth nothing."""
        paths = {name: self.folder / f"{name}.ipynb" for name in self.notebooks}
        return {
            name: HandedIn(path, intake.kept_beside(self.record(name)))
            for name, path in paths.items()
            if os.path.lexists(path)
        }


@dataclass
class Refereed:
    """What came of it.

    Attributes:
        digests: of each notebook, by name.
        ran: whether something had to be run.
        repairs: what had to be mended.
        problem: why it could not be refereed; "" if it could.
    """

    digests: dict[str, str] = field(default_factory=dict)
    ran: bool = False
    repairs: list[str] = field(default_factory=list)
    problem: str = ""


def regrade_submission(one: Submission) -> Refereed:
    """Referee all notebooks of a submission, as one of many; what is wrong with it is told, not raised.

    `intake.read_all` has read them.
    """
    refereed = Refereed()
    try:
        _require_notebook(one)
        for name, handed_in in one.handed_in.items():
            release = submission.release(one.course, one.assignment, name)
            notebook = submission.mended(intake.known(handed_in), release)
            refereed.ran |= regrade(notebook, one.record(name), one.terms, _one_after_the_other)
            refereed.digests[name] = records.digest(notebook)
            refereed.repairs += notebook.metadata.fourranks.repairs
    except (SubmissionError, SandboxMissing) as error:
        refereed.problem = str(error)
    return refereed


def _require_notebook(one: Submission) -> None:
    if not one.handed_in:
        names = (path.name for path in itertools.islice(one.folder.iterdir(), MOST_NAMED))
        there = ", ".join(sorted(names)) or "nothing"
        raise SubmissionError(
            f"{one.folder} has no {' and no '.join(f'{name}.ipynb' for name in one.notebooks)}, but {there}"
        )


def _launch(sandboxed: bool) -> Launch:
    return partial(launch, Sandbox if sandboxed else Unconfined)


def _one(sandboxed: bool) -> AbstractContextManager[Launch]:
    return contextlib.closing(Ahead(_launch(sandboxed)))


@cache
def _one_after_the_other(sandboxed: bool) -> AbstractContextManager[Launch]:
    return contextlib.nullcontext(Warm(_launch(sandboxed)))


def regrade(notebook: NotebookNode, path: Path, terms: Terms, start: Start = _one) -> bool:
    """Fill in what each code cell comes to, and bring the record at `path` up to date.

    Args:
        notebook: as `submission.mended` returns it.
        start: what starts processes for the cells.

    Returns:
        Whether something had to be run.
    """
    cells = records.cells_of(notebook)
    record = records.load(path)
    known = record.holding(cells, terms) if record else None
    to_run = known is None or any(cell.is_test and cell.name not in known for cell in cells)
    new = Record(
        sandboxed=terms.sandbox if to_run else record.sandboxed,
        repairs=list(notebook.metadata.get("fourranks", {}).get("repairs", [])),
        cells=_run(notebook, cells, known or {}, terms, start) if to_run else record.cells,
    )
    if new != record:
        records.save(new, path)
    for number, (cell, own) in enumerate(zip(records.code_cells(notebook), new.cells, strict=True), 1):
        cell.execution_count, cell.outputs = number, nbformat.from_dict(own.outputs)
    return to_run


def _run(
    notebook: NotebookNode, cells: Sequence[Cell], known: Mapping[str, Cell], terms: Terms, start: Start
) -> list[Cell]:
    """The cells and what each came to; all are run but the test cells that are known."""
    secret = terms.secret or secrets.token_hex(16)
    with start(terms.sandbox) as launch:
        # Torch takes a while to import, here as there, and often nothing has to be run.
        from autograder.grading import referee
        from autograder.sandbox.student_process import StudentProcess

        if not gc.get_freeze_count():
            gc.freeze()  # else all that was imported is looked through again and again, last when Python ends
        clock = [time.monotonic()]
        with StudentProcess(launch=launch) as student:
            referee.grade(
                notebook,
                student,
                secret,
                done=lambda cell: clock.append(time.monotonic()),
                known={name: nbformat.from_dict(cell.outputs) for name, cell in known.items()},
            )
    took = [end - begin for begin, end in itertools.pairwise(clock)]
    ran = [(run, seconds) for run, seconds in zip(notebook.cells, took, strict=True) if "outputs" in run]
    return [
        known.get(cell.name)
        or replace(
            cell,
            outputs=run.outputs,
            seconds=seconds,
            secret=secret if cell.is_test else "",
            fingerprint=fingerprint(cell.source) if cell.is_test else "",
        )
        for cell, (run, seconds) in zip(cells, ran, strict=True)
    ]
