"""Grades as tables: for Moodle and spreadsheets, which is what `nbgrader export` writes here, and for Canvas.

`nbgrader export --exporter=autograder.grading.export.CanvasExport` makes the second. Names are the students':
nbgrader's own export takes a comma or a line break in them for the end of a field or of a line.
"""

import csv
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from nbgrader.api import Assignment, Gradebook, MissingEntry, Student
from nbgrader.plugins import ExportPlugin

from autograder.kit.text import table_cell

COLUMNS = (
    "assignment",
    "duedate",
    "timestamp",
    "student_id",
    "last_name",
    "first_name",
    "email",
    "raw_score",
    "late_submission_penalty",
    "score",
    "max_score",
)


class TableExport(ExportPlugin):
    """A line for each student and assignment, in the columns of nbgrader's own export."""

    def export(self, gradebook: Gradebook) -> None:
        _write(self.to or "grades.csv", COLUMNS, self._rows(gradebook))

    def _rows(self, gradebook: Gradebook) -> Iterator[Sequence[Any]]:
        for assignment in gradebook.assignments:
            for student in gradebook.students:
                if assignment.name in (self.assignment or [assignment.name]) and student.id in (
                    self.student or [student.id]
                ):
                    yield _row(gradebook, assignment, student)


class CanvasExport(ExportPlugin):
    """A line for each student, whose id is Canvas's, and a column for each assignment that is asked for.

    Who has handed nothing in has an empty field, which changes nothing in Canvas.
    """

    def export(self, gradebook: Gradebook) -> None:
        names = [each.name for each in gradebook.assignments if each.name in (self.assignment or [each.name])]
        rows = (self._row(gradebook, names, student) for student in gradebook.students)
        _write(self.to or "canvas.csv", ["Student", "ID", "Section", *names], rows)

    def _row(self, gradebook: Gradebook, assignments: Sequence[str], student: Student) -> list[str]:
        name = ", ".join(filter(None, (student.last_name, student.first_name)))
        scores = (_score(gradebook, assignment, student.id) for assignment in assignments)
        return [name, student.id, "", *scores]


def _row(gradebook: Gradebook, assignment: Assignment, student: Student) -> Sequence[Any]:
    """Return a student's line; a student who has handed nothing in has no points."""
    timestamp, score, penalty = None, 0.0, 0.0
    try:
        submission = gradebook.find_submission(assignment.name, student.id)
    except MissingEntry:
        pass
    else:
        timestamp, score, penalty = submission.timestamp, submission.score, submission.late_submission_penalty
    about = (student.id, student.last_name, student.first_name, student.email)
    points = (score, penalty, max(0.0, score - penalty), assignment.max_score)
    return (assignment.name, assignment.duedate, timestamp, *about, *points)


def _score(gradebook: Gradebook, assignment: str, student: str) -> str:
    try:
        submission = gradebook.find_submission(assignment, student)
    except MissingEntry:
        return ""
    return f"{max(0.0, submission.score - submission.late_submission_penalty):g}"


def _write(path: str, header: Sequence[str], rows: Iterator[Sequence[Any]]) -> None:
    lines = [header, *([_field(value) for value in row] for row in rows)]
    try:
        with open(path, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(lines)
    except OSError as error:
        sys.exit(f"{path} cannot be written: {error.strerror}. Name another place: --to=FILE.")


def _field(value: Any) -> Any:
    return table_cell(value) if isinstance(value, str) else value
