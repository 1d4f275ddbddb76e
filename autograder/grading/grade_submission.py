"""Grades one submission: records that still hold are taken, and `referee` runs the rest.

`grade` has `grade_submission` called for each student of a class; `nbgrader_plugin` calls `grade_notebook`.
On a cluster, the machine with the course's folder calls `prepared` and `entered`, a node calls `run`.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import glob
import itertools
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell

from autograder.grading import intake, records, submission
from autograder.grading.dependencies import fingerprint
from autograder.grading.intake import HandedIn
from autograder.grading.records import CellRecord, NotebookRecord, Terms
from autograder.grading.submission import SubmissionError
from autograder.kit.text import visible
from autograder.sandbox import tiers
from autograder.sandbox.launch import Ahead, Launch, Warm
from autograder.sandbox.sandbox import SandboxMissing
from autograder.sandbox.tiers import Tier

Start = Callable[[Tier], AbstractContextManager[Launch]]  # of processes for cells
LIMIT = 2400.0  # seconds for a submission; the referee itself is out of patience after half of it
CORES = 2  # of a submission: a check's ranks take turns on few cores
MOST_NAMED = 20  # files, in a message


@dataclass(frozen=True)
class Submission:
    """The work that one process referees at a time."""

    course: Path
    folder: Path
    assignment: str
    student: str
    notebooks: tuple[str, ...]
    terms: Terms

    def record(self, notebook: str) -> Path:
        """Return the path of a notebook's record."""
        return records.path_of(self.course, self.assignment, self.student, notebook)

    @property
    def handed_in(self) -> dict[str, HandedIn]:
        """The notebooks that are there, by name; those that are missing are worth nothing."""
        paths = {name: self.folder / f"{name}.ipynb" for name in self.notebooks}
        return {
            name: HandedIn(path, intake.kept_for(self.record(name)))
            for name, path in paths.items()
            if os.path.lexists(path)
        }


@dataclass(frozen=True)
class GradingTask:
    """The cells of a submission that are to be run: data alone, for any machine with this course.

    Attributes:
        notebooks: by name, as `submission.repaired` returns them.
        records: of each; None if there are none.
    """

    notebooks: dict[str, NotebookNode]
    records: dict[str, NotebookRecord | None]
    terms: Terms


@dataclass
class Refereed:
    """The results of a task.

    Attributes:
        digests: of each notebook, by name.
        ran: whether something had to be run.
        repairs: made before it could be run.
        problem: why it could not be refereed; "" if it could.
    """

    digests: dict[str, str] = field(default_factory=dict)
    ran: bool = False
    repairs: list[str] = field(default_factory=list)
    problem: str = ""


def grade_submission(one: Submission) -> Refereed:
    """Grade all notebooks of one of many submissions; faults in it are told, not raised.

    `intake.read_all` has read them.
    """
    try:
        work = prepared(one)
        return entered(one, work, run(work))
    except (SubmissionError, SandboxMissing) as error:
        return Refereed(problem=str(error))


def prepared(one: Submission) -> GradingTask:
    """Return what is to be run of a submission that `intake.read_all` has read.

    Raises:
        SubmissionError: when it cannot be graded.
    """
    _require_name(one)
    _require_notebook(one)
    notebooks = {
        name: submission.repaired(
            intake.known(handed_in), submission.release(one.course, one.assignment, name)
        )
        for name, handed_in in one.handed_in.items()
    }
    return GradingTask(notebooks, {name: records.load(one.record(name)) for name in notebooks}, one.terms)


def run(work: GradingTask) -> dict[str, NotebookRecord]:
    """Run what is not on record, in processes that stay for the next call; return the new records.

    Raises:
        SandboxMissing: when students' code cannot be kept apart here.
    """
    return {
        name: _brought_up_to_date(notebook, work.records[name], work.terms, _one_after_the_other)
        for name, notebook in work.notebooks.items()
    }


def entered(one: Submission, work: GradingTask, new: Mapping[str, NotebookRecord]) -> Refereed:
    """Keep what a submission came to on record; return what the gradebook needs of it."""
    refereed = Refereed()
    for name, notebook in work.notebooks.items():
        refereed.ran |= _entered(notebook, one.record(name), work.records[name], new[name])
        refereed.digests[name] = records.digest(notebook)
        refereed.repairs += notebook.metadata.fourranks.repairs
    return refereed


def _require_name(one: Submission) -> None:
    if glob.escape(one.student) != one.student:
        raise SubmissionError(f"nbgrader takes [, * and ? for patterns: rename {one.folder.parent}")
    if visible(one.student, keep="") != one.student:
        raise SubmissionError(
            "nbgrader takes no names with line breaks, other characters that are not seen, or bytes that are "
            f"not UTF-8: rename {one.folder.parent}"
        )


def _require_notebook(one: Submission) -> None:
    if not one.handed_in:
        names = (path.name for path in itertools.islice(one.folder.iterdir(), MOST_NAMED))
        wanted = " and no ".join(f"{name}.ipynb" for name in one.notebooks)
        there = ", ".join(sorted(names))
        tell = f"but {there}: give the notebook that counts this name" if there else "and nothing else"
        raise SubmissionError(f"{one.folder} has no {wanted}, {tell}")


def _one(tier: Tier) -> AbstractContextManager[Launch]:
    return contextlib.closing(Ahead(tier.launch))


_chosen = cache(tiers.choose)  # which starts a sandbox, to see whether it can


@cache
def _one_after_the_other(tier: Tier) -> AbstractContextManager[Launch]:
    launch = Warm(tier.launch)
    atexit.register(launch.close)  # it ends a spare sandbox, and removes its folder
    return contextlib.nullcontext(launch)


def grade_notebook(notebook: NotebookNode, path: Path, terms: Terms, start: Start = _one) -> bool:
    """Fill in what each code cell comes to, and bring the record at `path` up to date.

    Args:
        notebook: as `submission.repaired` returns it.
        start: starts processes for the cells.

    Returns:
        Whether something had to be run.
    """
    old = records.load(path)
    return _entered(notebook, path, old, _brought_up_to_date(notebook, old, terms, start))


def _brought_up_to_date(
    notebook: NotebookNode, old: NotebookRecord | None, terms: Terms, start: Start
) -> NotebookRecord:
    """Return the record of a notebook, in which what does not hold any more was run again."""
    cells = records.cells_of(notebook)
    known = old.holding(cells, terms) if old else None
    repairs = list(notebook.metadata.get("fourranks", {}).get("repairs", []))
    if old and known is not None and all(cell.name in known for cell in cells if cell.is_test):
        return replace(old, repairs=repairs)
    tier = _chosen(terms.tier)
    ran = _run(notebook, cells, known or {}, terms, tier, start)
    kept = old if known else None
    return NotebookRecord(_weakest(tier, kept), repairs, ran, terms.nccl and (kept is None or kept.nccl))


def _entered(notebook: NotebookNode, path: Path, old: NotebookRecord | None, new: NotebookRecord) -> bool:
    """Keep the new record, and fill it in; return whether something had to be run for it."""
    if new != old:
        records.save(new, path)
    for number, (cell, own) in enumerate(zip(records.code_cells(notebook), new.cells, strict=True), 1):
        cell.execution_count, cell.outputs = number, nbformat.from_dict(own.outputs)
    on_nccl = " Checks ran on Gloo and on NCCL." if new.nccl else ""
    notebook.cells.append(new_markdown_cell(f"Sandbox in which this was graded: {new.tier}.{on_nccl}"))
    return old is None or new.cells != old.cells


def _weakest(tier: Tier, old: NotebookRecord | None) -> Tier:
    """Return the tier of which all that is on record then was: some of it is taken from there."""
    return max(tier, old.tier, key=list(Tier).index) if old else tier


def _run(
    notebook: NotebookNode,
    cells: Sequence[CellRecord],
    known: Mapping[str, CellRecord],
    terms: Terms,
    tier: Tier,
    start: Start,
) -> list[CellRecord]:
    """Run all cells but the test cells that are known; return what each came to."""
    secret = terms.secret or secrets.token_hex(16)
    with start(tier) as launch:
        # Torch takes a while to import, here as there, and often nothing has to be run.
        gc.disable()  # imports make no garbage
        import torch

        from autograder.grading import referee
        from autograder.sandbox.student_process import StudentProcess

        if not gc.get_freeze_count():
            gc.freeze()  # else all that was imported is looked through again and again, last when Python ends
        gc.enable()
        torch.set_num_threads(1)  # another one would spin beside the ranks, which need the processors
        clock = [time.monotonic()]
        on_gpus = tier.launch_on_gpus if terms.nccl else None
        with StudentProcess(launch=launch, launch_on_gpus=on_gpus) as student:
            referee.run(
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
