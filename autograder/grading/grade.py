"""Grades a class: submissions are refereed in parallel, and entered into the gradebook one by one.

`autograder grade` calls it. Its results are on disk at every moment: stopped in any way, the same command
goes on from there.
"""

from __future__ import annotations

import contextlib
import fcntl
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from traitlets.config import Config

from autograder.grading import intake, machine, pool, records
from autograder.grading.dependencies import checks
from autograder.grading.grade_submission import LIMIT, Refereed, Submission, grade_submission
from autograder.grading.gradebook import Class, ClassError
from autograder.grading.pool import Failed, Pool, Running, WorkerPool
from autograder.grading.progress_line import ProgressLine
from autograder.grading.records import Terms
from autograder.kit.text import line
from autograder.sandbox import tiers
from autograder.sandbox.tiers import Tier
from fourranks.naming import some_of

MOST_NAMED = 20  # in a message
MOST_COMPARED = 3  # of two lists


@dataclass(frozen=True)
class Machines:
    """The place where submissions are run.

    Attributes:
        jobs: submissions at a time; None is as many as there is room for.
        on_ray: on the nodes of a Ray cluster, not on this machine.
        gpus: of the cluster, that each submission takes.
    """

    jobs: int | None = None
    on_ray: bool = False
    gpus: int = 0


def grade(
    course: Path,
    assignment: str,
    machines: Machines,
    students: Sequence[str] = (),
    only: str = "",
    force: bool = False,
    secret: str = "",
    tier: str = "",
    backend: str = "gloo",
) -> int:
    """Grade a class and say how it went; return the exit status.

    Args:
        students: by default all who handed something in.
        only: a check, or the name of a test cell; records of others stand.
        force: run again what is recorded, too.
        secret: draw all inputs from it.
        tier: the sandbox, by its name; by default the strongest that can be had.
        backend: "nccl" has every check run on NCCL, too; an answer must pass on both.

    Raises:
        ClassError: when there is nothing to grade, or no GPU to run NCCL on.
    """
    chosen = {"secret": secret, "only": only, "tier": tier, "nccl": backend == "nccl"}
    settings = Config(Referee={name: value for name, value in chosen.items() if value})
    own = Class(course, assignment, settings)
    terms = Terms.configured(own.config)
    everybody = _chosen(own, students)
    _compare_with_gradebook(own)
    _require_questions(own, only)
    if machines.on_ray:  # whose nodes are asked for their sandboxes
        from autograder.grading.on_ray import join  # few have Ray

        join()
    else:
        _require_machine(terms)
    if terms.tier is Tier.NONE:
        _say("WITHOUT A SANDBOX: students' code can read and delete all that you can, and forge every grade.")
    submissions = [_submission(own, student, terms) for student in everybody]
    with _alone(course):
        tally = _Tally(len(submissions))
        try:
            _grade(own, submissions, machines, tally, force)
        except KeyboardInterrupt:
            print(f"\nStopped after {tally.done} of {len(submissions)} submissions.", file=sys.stderr)
            again = " without --force" if tally.forgotten else ""
            print(f"Run the same command{again} to continue.", file=sys.stderr)
            return 130
    tally.show(own)
    return 1 if tally.problems else 0


def _grade(
    own: Class, submissions: Sequence[Submission], machines: Machines, tally: _Tally, force: bool
) -> None:
    known = own.timestamps()
    notebooks = [notebook for one in submissions for notebook in one.handed_in.values()]
    with _workers(machines, submissions) as workers:
        if force:  # only now that there is something to run them on
            _forget(submissions)
            tally.forgotten = True
        unread = intake.read_all(notebooks, [(core,) for core in pool.usable_cores()])
        with ProgressLine(len(submissions), lambda: dict(map(_named, workers.running()))) as progress:
            for one, result in workers.results(submissions):
                refereed = _refused(one, result) if isinstance(result, Failed) else result
                unable = [unread[notebook] for notebook in one.handed_in.values() if notebook in unread]
                problem = next(iter(unable), refereed.problem)
                problem = problem or own.enter(one.student, refereed.digests, known)
                if problem:
                    own.note(one.student)
                tally.add(one.student, refereed, problem)
                progress.done, progress.ran = tally.done, tally.ran


def _workers(machines: Machines, submissions: Sequence[Submission]) -> WorkerPool:
    if not machines.on_ray:
        return Pool(grade_submission, _shares(machines.jobs, len(submissions)), LIMIT)
    from autograder.grading.on_ray import RayPool

    jobs = min(machines.jobs or len(submissions), len(submissions))
    return RayPool(submissions[0].terms, jobs, machines.gpus, _say)


def _named(running: Running) -> tuple[str, float]:
    """Return how the progress line calls a submission that is being run, and for how long it has been."""
    student = line(running.input.student)
    return f"{student} on {line(running.place)}" if running.place else student, running.seconds


def _say(text: str) -> None:
    """Write a line of its own, where the progress line may stand."""
    print(f"\r\x1b[K{text}" if sys.stderr.isatty() else text, file=sys.stderr)


def _refused(one: Submission, failed: Failed) -> Refereed:
    """Keep in mind what takes all the time there is, or brings its process down: it does so once."""
    if failed.exhausted:
        for notebook in one.handed_in.values():
            intake.refuse(notebook, f"{failed.reason}; --students {one.student} --force tries again")
    return Refereed(problem=failed.reason)


class _Tally:
    """How it went so far, and whom a person has to look at.

    Attributes:
        forgotten: whether what was on record has been removed, to be run again.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.forgotten = False
        self.done = self.ran = self.recorded = 0
        self.problems: dict[str, str] = {}
        self.repairs: dict[str, str] = {}

    def add(self, student: str, refereed: Refereed, problem: str) -> None:
        self.done += 1
        self.ran += refereed.ran
        if problem:
            self.problems[student] = problem
            return
        self.recorded += not refereed.ran
        if refereed.repairs:
            self.repairs[student] = "; ".join(refereed.repairs)

    def show(self, own: Class) -> None:
        for student, repairs in sorted(self.repairs.items()):
            print(line(f"{student}: graded; {repairs}"))
        for student, problem in sorted(self.problems.items()):
            print(line(f"{student}: NOT graded: {problem}"))
        graded = self.total - len(self.problems)
        run = graded - self.recorded
        print(f"{graded} of {self.total} graded: {run} run now, {self.recorded} from earlier records.")
        if waiting := own.waiting():
            print(f"{len(waiting)} with answers to grade by hand: `make lab`, menu Nbgrader, Formgrader.")


def _submission(own: Class, student: str, terms: Terms) -> Submission:
    return Submission(
        own.course, own.submitted(student), own.assignment, student, tuple(own.notebooks), terms
    )


def _forget(submissions: Sequence[Submission]) -> None:
    for one in submissions:
        for name in one.notebooks:
            records.forget(one.record(name), one.terms)
        for notebook in one.handed_in.values():
            intake.forget(notebook)


def _shares(jobs: int | None, most: int) -> list[tuple[int, ...]]:
    cores = pool.usable_cores()
    return pool.shares(max(1, min(jobs or machine.jobs(len(cores)), most)), cores)


# --- what was asked for -----------------------------------------------------------------------------------


def _chosen(own: Class, students: Sequence[str]) -> list[str]:
    """Return the students whose submissions are to be graded."""
    everybody = own.students()
    if not everybody:
        raise ClassError(f"There is no submission of {own.assignment}: {own.submitted('*')} does not exist.")
    if unknown := sorted(set(students) - set(everybody)):
        others, there = some_of(unknown, MOST_NAMED), some_of(everybody, MOST_NAMED)
        raise ClassError(f"{others} did not hand in {own.assignment}. These did: {there}.")
    return sorted(set(students)) or everybody


def _compare_with_gradebook(own: Class) -> None:
    """Say so if no student of the gradebook has handed in: a roster may have other ids than the folders."""
    known, folders = own.known_students(), own.students()
    if known and known.isdisjoint(folders):
        ids, names = some_of(sorted(known), MOST_COMPARED), some_of(folders, MOST_COMPARED)
        _say(
            line(
                f"No student of the gradebook has handed in {own.assignment}: their ids are {ids}, and the "
                f"folders in submitted/ are {names}. Students are graded under the names of their folders."
            )
        )


def _require_questions(own: Class, only: str) -> None:
    """Require that the gradebook knows all questions, and that a test cell is called `only`, or its check."""
    notebooks = own.source_notebooks()
    fields = [cell.metadata.get("nbgrader", {}) for notebook in notebooks for cell in notebook.cells]
    own.require_questions([each.grade_id for each in fields if each.get("grade") or each.get("solution")])
    cells = [cell for notebook in notebooks for cell in records.cells_of(notebook) if cell.is_test]
    if only and not any(Terms(only=only).about(cell) for cell in cells):
        names = sorted({cell.name for cell in cells}.union(*(checks(cell.source) for cell in cells)))
        raise ClassError(f"{own.assignment} has no check {only}. It has {', '.join(names)}.")


def _require_machine(terms: Terms) -> None:
    """Require what grading here needs, and say so if the sandbox is not the strongest."""
    if reason := machine.lack(terms):
        raise ClassError(reason)
    if terms.tier is None and (reason := tiers.missing(Tier.NAMESPACES)):
        _say(f"Sandbox: {tiers.choose()}, which is weaker than namespaces (docs/security.md). {reason}")


@contextlib.contextmanager
def _alone(course: Path) -> Iterator[None]:
    """Let only one process at a time grade a course: there is one gradebook."""
    folder = course / records.FOLDER
    folder.mkdir(exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until this process ends, however it does
        except OSError:
            raise ClassError(f"Another `autograder grade` is grading {course}. Wait for its end.") from None
        yield
