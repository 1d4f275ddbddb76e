"""A class's gradebook, as nbgrader keeps it: students that have handed in, and grades of their submissions.

Grades, late penalties and what a person graded are nbgrader's own doing, by the settings in
nbgrader_config.py; here it is only told of one submission at a time.
"""

from __future__ import annotations

import contextlib
import datetime
import glob
import json
import logging
from collections.abc import Collection, Iterator
from pathlib import Path

from dateutil import tz
from nbformat import NotebookNode
from nbgrader.api import Gradebook, InvalidEntry
from nbgrader.converters import Autograde
from nbgrader.coursedir import CourseDirectory
from sqlalchemy.exc import SQLAlchemyError
from traitlets.config import Config
from traitlets.config.loader import PyFileConfigLoader

from autograder.grading.submission import SubmissionError, release
from autograder.kit.text import line

SETTINGS = "nbgrader_config.py"
TIMESTAMP = "timestamp.txt"  # which nbgrader's exchange has a student's own process write
LONGEST_TIMESTAMP = 100  # bytes
_TRACEBACKS = "tornado.application"  # the log in which nbgrader's gradebook writes them before it raises
_FRAME = "\n  File "  # where a traceback names a line of code; the code follows, and at last the exception
_TO_CORRECT = "write it as 2026-12-01 23:59:00 UTC, in UTF-8 without a byte-order mark, or remove it"


class ClassError(Exception):
    """There is nothing to grade or to report; the text says why and what to do."""


class Class:
    """A course's folder with what a class handed in for one assignment.

    Args:
        course: the folder.
        config: settings that go before those in the folder's nbgrader_config.py.

    Raises:
        ClassError: when there is no such assignment.
    """

    def __init__(self, course: Path, assignment: str, config: Config | None = None) -> None:
        self.course = course
        self.assignment = assignment
        if not (course / SETTINGS).is_file():
            raise ClassError(f"{course} has no {SETTINGS}: run this in the course's top folder.")
        if glob.escape(str(course)) != str(course):
            raise ClassError(f"nbgrader takes [, * and ? for patterns: rename a folder in {course}.")
        logging.getLogger(_TRACEBACKS).setLevel(logging.CRITICAL)
        self.config = _settings(course)
        self.config.CourseDirectory.root = str(course)
        self.config.merge(config or Config())
        self._folders = CourseDirectory(config=self.config)
        self.notebooks = self._find_notebooks()

    @contextlib.contextmanager
    def open(self) -> Iterator[Gradebook]:
        """Open the gradebook.

        Raises:
            ClassError: when it cannot be used, here or in the context.
        """
        try:
            with Gradebook(self._folders.db_url, self._folders.course_id) as gradebook:
                yield gradebook
        except (SQLAlchemyError, InvalidEntry) as error:  # nbgrader's own is of what cannot be written
            reason = line(str(getattr(error, "orig", None) or error))
            raise ClassError(
                f"The gradebook {self._folders.db_url} cannot be used ({reason}). Close other programs that "
                "use it, or put a copy of it in its place, and run the same command again."
            ) from None

    def submitted(self, student: str) -> Path:
        """Return the folder with what a student handed in."""
        return self._folder(self._folders.submitted_directory, student)

    @property
    def released(self) -> Path:
        """The folder with what was handed out."""
        return self._folder(self._folders.release_directory, ".")

    def source_notebooks(self) -> list[NotebookNode]:
        """Read the instructor's notebooks of the assignment, with hidden tests.

        Raises:
            ClassError: when one is not there, or not whole.
        """
        try:
            return [release(self.course, self.assignment, name) for name in self.notebooks]
        except SubmissionError as error:
            raise ClassError(str(error)) from None

    def students(self) -> list[str]:
        """List the students who handed something in."""
        everybody = self.submitted("*").parent.parent
        folders = everybody.glob(f"[!.]*/{self.assignment}/")
        return sorted(folder.parent.name for folder in folders)

    def known_students(self) -> set[str]:
        """Return the ids of all students in the gradebook: from a roster, or from earlier exercises."""
        with self.open() as gradebook:
            return {student.id for student in gradebook.students}

    def timestamps(self) -> dict[str, datetime.datetime | None]:
        """Return the time of each submission that the gradebook knows of, graded or not."""
        with self.open() as gradebook:
            submissions = gradebook.assignment_submissions(self.assignment)
            return {submission.student_id: submission.timestamp for submission in submissions}

    def require_questions(self, questions: Collection[str]) -> None:
        """Require that the gradebook knows all questions, which nbgrader takes for granted.

        Args:
            questions: names of test cells and of answers.

        Raises:
            ClassError: when some were added since the assignment was entered.
        """
        with self.open() as gradebook:
            assignment = gradebook.find_assignment(self.assignment)
            known = {
                cell.name
                for book in assignment.notebooks
                for cell in (*book.grade_cells, *book.solution_cells, *book.task_cells)
            }
            has_grades = bool(assignment.submissions)
        if unknown := sorted(set(questions) - known):
            remove = f"`nbgrader db assignment remove {self.assignment} --force`, then " if has_grades else ""
            lost = has_grades * (
                " That removes all grades. The next `autograder grade` enters them again, but no points and "
                "comments of yours: write these down first, or take the questions out again."
            )
            raise ClassError(
                f"The gradebook does not know questions of {self.assignment}: {', '.join(unknown)}. "
                f"Run {remove}`nbgrader generate_assignment {self.assignment} --force`.{lost}"
            )

    def enter(self, student: str, digests: dict[str, str], known: dict[str, datetime.datetime | None]) -> str:
        """Have nbgrader grade a submission, unless it has; return "", or why it could not.

        Args:
            digests: of each notebook and what it came to, as `records.digest` makes them.
            known: what `timestamps` returned.
        """
        if _is_long(self.submitted(student) / TIMESTAMP):
            return f"{TIMESTAMP} is too long for a time: {_TO_CORRECT}"
        try:
            handed_in = self._folders.get_existing_timestamp(str(self.submitted(student)))
        except Exception:  # nbgrader raises what its parser does, or stumbles over its own message
            return f"{TIMESTAMP} contains no time: {_TO_CORRECT}"
        if zone := self._unknown_zone(student):
            return f"{TIMESTAMP} has a time zone that nbgrader does not know, {zone}: {_TO_CORRECT}"
        if student in known and handed_in in (None, known[student]) and self._has(student, digests):
            return ""
        folders = CourseDirectory(
            config=self.config, assignment_id=self.assignment, student_id=glob.escape(student)
        )
        converter = Autograde(coursedir=folders, config=self.config, force=True)
        said = _Said()
        converter.log.addHandler(said)
        try:
            converter.start()
        except Exception as error:
            return said.reason() or f"{type(error).__name__}: {error}"
        finally:
            converter.log.removeHandler(said)
        return ""

    def note(self, student: str) -> None:
        """Tell the gradebook of a submission that could not be graded: it waits for a person.

        It cannot be told while someone else writes to it, nor of a name that is not UTF-8.
        """
        with contextlib.suppress(ClassError, UnicodeEncodeError), self.open() as gradebook:
            gradebook.update_or_create_student(student)
            gradebook.update_or_create_submission(self.assignment, student)

    def waiting(self) -> set[str]:
        """Return the students of whose graded submission a person has to grade something."""
        with self.open() as gradebook:
            submissions = gradebook.assignment_submissions(self.assignment)
            waiting = {submission.student_id for submission in submissions if submission.needs_manual_grade}
        autograded = self._folders.autograded_directory
        return {student for student in waiting if self._folder(autograded, student).is_dir()}

    # --- internals -----------------------------------------------------------------------------------------

    def _find_notebooks(self) -> list[str]:
        """Return the names of the assignment's notebooks."""
        with self.open() as gradebook:
            known = {each.name: [book.name for book in each.notebooks] for each in gradebook.assignments}
        if self.assignment in known:
            return known[self.assignment]
        sources = self.course / self._folders.source_directory
        if (sources / self.assignment).is_dir():
            raise ClassError(
                f"The gradebook does not know of {self.assignment} yet. "
                f"Run `nbgrader generate_assignment {self.assignment}`, which adds its questions."
            )
        names = (
            ", ".join(sorted({*known, *(path.parent.name for path in sources.glob("*/exercise.*"))}))
            or "none"
        )
        raise ClassError(f"There is no assignment {self.assignment}. The course has {names}.")

    def _folder(self, step: str, student: str) -> Path:
        return Path(self._folders.format_path(step, student, self.assignment))

    def _unknown_zone(self, student: str) -> str:
        """Return what nbgrader does not understand behind the time, or "": it takes +0200 for 200 seconds."""
        timestamp = self.submitted(student) / TIMESTAMP
        words = timestamp.read_text().strip().split(" ") if timestamp.is_file() else []
        return line(words[2]) if len(words) == 3 and tz.gettz(words[2]) is None else ""

    def _has(self, student: str, digests: dict[str, str]) -> bool:
        """Tell whether the gradebook has the grades of what these notebooks came to.

        nbgrader writes an autograded notebook when its grades are in the gradebook. One that is not whole, or
        that was made from something else, tells of none.
        """
        autograded = self._folder(self._folders.autograded_directory, student)
        return all(_graded(autograded / f"{name}.ipynb") == digest for name, digest in digests.items())


def _settings(course: Path) -> Config:
    try:
        return PyFileConfigLoader(SETTINGS, str(course)).load_config()
    except Exception as error:  # anything may be written there
        raise ClassError(f"{SETTINGS} cannot be read: {type(error).__name__}: {line(str(error))}") from None


def _is_long(timestamp: Path) -> bool:
    return timestamp.is_file() and timestamp.stat().st_size > LONGEST_TIMESTAMP


def _graded(path: Path) -> str | None:
    """Return the digest that an autograded notebook carries; None if it is not there or not whole."""
    try:
        return json.loads(path.read_bytes())["metadata"]["fourranks"]["graded"]
    except (OSError, ValueError, TypeError, KeyError):
        return None


class _Said(logging.Handler):
    """The errors that nbgrader logs."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._messages.append(record.getMessage())

    def reason(self) -> str:
        """Return the exception of the first traceback, and the first line of what it says."""
        tracebacks = [text for text in self._messages if text.startswith("Traceback")]
        if not tracebacks:
            return ""
        _, *below = tracebacks[0].rpartition(_FRAME)[2].splitlines()
        return next((text for text in below if not text.startswith(" ")), "")
