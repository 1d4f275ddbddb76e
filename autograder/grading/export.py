"""Grades as Canvas takes them; `nbgrader export --exporter=autograder.grading.export.CanvasExport` calls it.

nbgrader's own export has a line for each student and assignment; Moodle takes that one.
"""

import csv

from nbgrader.api import Gradebook, MissingEntry
from nbgrader.plugins import ExportPlugin


class CanvasExport(ExportPlugin):
    """A line for each student, whose id is Canvas's, and a column for each assignment that is asked for.

    Who has handed nothing in has an empty field, which changes nothing in Canvas.
    """

    def export(self, gradebook: Gradebook) -> None:
        names = [each.name for each in gradebook.assignments if each.name in (self.assignment or [each.name])]
        with open(self.to or "canvas.csv", "w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(["Student", "ID", "Section", *names])
            for student in gradebook.students:
                name = ", ".join(filter(None, (student.last_name, student.first_name)))
                scores = (_score(gradebook, assignment, student.id) for assignment in names)
                table.writerow([name, student.id, "", *scores])


def _score(gradebook: Gradebook, assignment: str, student: str) -> str:
    try:
        submission = gradebook.find_submission(assignment, student)
    except MissingEntry:
        return ""
    return f"{max(0.0, submission.score - submission.late_submission_penalty):g}"
