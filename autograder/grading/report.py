"""A class at a glance: a page about all submissions to an assignment, and one about each.

`autograder report` calls it. Scores are the gradebook's; why a check failed is on record. The pages need
nothing but themselves.
"""

from __future__ import annotations

import shutil
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup
from nbgrader.api import SubmittedAssignment

from autograder.grading import outputs, records, structures, submission
from autograder.grading.gradebook import Class, ClassError
from autograder.grading.outputs import Failure
from autograder.grading.progress_line import clock
from autograder.grading.records import CellRecord, NotebookRecord
from autograder.grading.submission import name_of
from autograder.sandbox.tiers import Tier

FOLDER = "report"
BARS = 10  # of the histogram
MOST = 10  # submissions that are named for being slow, and groups for being alike, of each kind


@dataclass(frozen=True)
class Question:
    """A student's points for a question.

    Attributes:
        waits: for a person to grade it.
        cell: its test, if that is on record.
    """

    name: str
    points: float
    most: float
    waits: bool
    cell: CellRecord | None

    @property
    def reason(self) -> str:
        """The reason why its test failed, in a few words; "" if it did not."""
        return _reason(self.cell) if self.cell else ""


@dataclass(frozen=True)
class Student:
    """A student's points, and how the grading went."""

    name: str
    points: float
    most: float
    penalty: float
    questions: list[Question]
    records: list[NotebookRecord]

    @property
    def waits(self) -> bool:
        """Whether a person has to grade an answer."""
        return any(question.waits for question in self.questions)

    @property
    def by_name(self) -> dict[str, Question]:
        return {question.name: question for question in self.questions}

    @property
    def cost(self) -> float | None:
        """The mean cost of its tests that have one; None without any."""
        tests = [question.cell for question in self.questions if question.cell]
        costs = [cost for cell in tests if (cost := outputs.cost_of(cell.outputs)) is not None]
        return statistics.mean(costs) if costs else None

    @property
    def seconds(self) -> float:
        return sum(record.seconds for record in self.records)

    @property
    def tiers(self) -> list[Tier]:
        """The tiers of sandbox in which it was graded, the weakest last."""
        return sorted({record.tier for record in self.records}, key=list(Tier).index)

    @property
    def repairs(self) -> list[str]:
        return [repair for record in self.records for repair in record.repairs]

    @property
    def broken(self) -> list[CellRecord]:
        """The cells of the student's own that ended in an error."""
        return [cell for cell in self._cells() if not cell.is_test and _failure(cell)]

    @property
    def answers(self) -> dict[str, str]:
        return {cell.name: cell.source for cell in self._cells() if cell.name and not cell.is_test}

    def _cells(self) -> Iterator[CellRecord]:
        return (cell for record in self.records for cell in record.cells)


def report(course: Path, assignment: str, anonymous: bool = False) -> Path:
    """Write the pages into report/ASSIGNMENT; return the path of the one to open.

    Args:
        anonymous: whether the ranking, a page to show to the class, leaves names out.

    Raises:
        ClassError: when there is no such assignment, or nothing of it was graded.
        OSError: the pages cannot be written.
    """
    own = Class(course, assignment)
    names, solution = _release(own)
    students = _students(own, names)
    if not students:
        raise ClassError(f"Nothing of {assignment} was graded: run `autograder grade {assignment}` first.")
    folder = course / FOLDER / assignment
    if folder.exists():
        shutil.rmtree(folder)
    (folder / "students").mkdir(parents=True)
    answers = {student.name: student.answers for student in students}
    alike = structures.alike(answers, _handed_out(own), solution)
    _write(folder / "index.html", "class.html", {"assignment": assignment, **_summary(students, alike)})
    if ranking := _ranking(students):
        values = {"assignment": assignment, "ranking": ranking, "anonymous": anonymous}
        _write(folder / "ranking.html", "ranking.html", values)
    for student in students:
        path = folder / "students" / f"{student.name}.html"
        _write(path, "student.html", {"assignment": assignment, "student": student})
    return folder / "index.html"


# --- what is known ----------------------------------------------------------------------------------------


def _release(own: Class) -> tuple[list[str], dict[str, str]]:
    """Return the names of all cells in their order, and the course's own answers."""
    notebooks = own.source_notebooks()
    cells = [cell for notebook in notebooks for cell in notebook.cells if name_of(cell)]
    solved = [cell for cell in cells if cell.cell_type == "code" and cell.metadata.nbgrader.solution]
    return [name_of(cell) for cell in cells], {name_of(cell): cell.source for cell in solved}


def _handed_out(own: Class) -> dict[str, str]:
    """Return the source of each answer's cell as it was handed out, if it is there."""
    paths = [own.released / f"{name}.ipynb" for name in own.notebooks]
    cells = [cell for path in paths if path.is_file() for cell in submission.read(path).cells]
    return {name_of(cell): cell.source for cell in cells if name_of(cell)}


def _students(own: Class, names: Sequence[str]) -> list[Student]:
    """Return what is known of each student; questions are in the order of the cells' names."""
    order = {name: place for place, name in enumerate(names)}
    with own.open() as gradebook:
        submissions = gradebook.assignment_submissions(own.assignment)
        students = [_student(own, submitted, order) for submitted in submissions]
    return sorted(students, key=lambda student: student.name)


def _student(own: Class, submitted: SubmittedAssignment, order: dict[str, int]) -> Student:
    name = submitted.student_id
    found = [records.load(records.path_of(own.course, own.assignment, name, book)) for book in own.notebooks]
    known = [record for record in found if record]
    tests = {cell.name: cell for record in known for cell in record.tests}
    questions = [
        Question(grade.name, grade.score, grade.max_score, grade.needs_manual_grade, tests.get(grade.name))
        for notebook in submitted.notebooks
        for grade in notebook.grades
    ]
    questions.sort(key=lambda question: order.get(question.name, len(order)))
    penalty = submitted.late_submission_penalty or 0.0
    return Student(name, max(0.0, submitted.score - penalty), submitted.max_score, penalty, questions, known)


def _failure(cell: CellRecord) -> Failure | None:
    return outputs.failure(cell.outputs)


def _reason(cell: CellRecord) -> str:
    failure = _failure(cell)
    return failure.mistake or failure.name if failure else ""


# --- what is shown ----------------------------------------------------------------------------------------


def _summary(students: Sequence[Student], alike: Sequence[structures.Likeness]) -> dict[str, Any]:
    shares = [student.points / student.most if student.most else 0.0 for student in students]
    bars = Counter(min(int(share * BARS), BARS - 1) for share in shares)
    took = sorted((s for s in students if s.records), key=lambda student: -student.seconds)
    return {
        "students": students,
        "mean": statistics.mean(shares),
        "median": statistics.median(shares),
        "waiting": [student for student in students if student.records and student.waits],
        "not_graded": [student for student in students if not student.records],
        "bars": [bars[bar] for bar in range(BARS)],
        "questions": _questions(students),
        "slowest": took[:MOST],
        "median_seconds": statistics.median(student.seconds for student in took) if took else 0.0,
        "tiers": Counter(str(student.tiers[-1]) for student in students if student.tiers).most_common(),
        "repaired": [student for student in students if student.repairs],
        "alike": [group for group in alike if not group.as_solved][:MOST],
        "as_solved": [group for group in alike if group.as_solved][:MOST],
        "ranked": len(_ranking(students)),
    }


def _ranking(students: Sequence[Student]) -> list[tuple[int, Student]]:
    """Return each student who has a cost behind the place: the cheapest first, equal costs in one place."""
    ranked = sorted(
        (student for student in students if student.cost is not None),
        key=lambda student: (student.cost, student.name),
    )
    costs = [student.cost for student in ranked]
    return [(1 + costs.index(student.cost), student) for student in ranked]


def _questions(students: Sequence[Student]) -> list[dict[str, Any]]:
    """Say how the class did in each question."""
    by_name = defaultdict(list)
    for student in students:
        for question in student.questions:
            by_name[question.name].append(question)
    return [_question(each) for each in by_name.values()]


def _question(each: Sequence[Question]) -> dict[str, Any]:
    graded = [question for question in each if not question.waits]
    return {
        "name": each[0].name,
        "most": each[0].most,
        "mean": statistics.mean(question.points for question in graded) if graded else None,
        "waiting": len(each) - len(graded),
        "full": sum(question.points >= question.most for question in graded),
        "graded": len(graded),
        "reasons": Counter(question.reason for question in graded if question.reason).most_common(),
    }


def _shown(cell: CellRecord) -> Iterator[tuple[str, str]]:
    """Yield what a test cell showed: each part with its kind, which is table, text or error.

    A table is the verdict's own, which escapes what it quotes. Everything else is escaped by the page.
    """
    for output in cell.outputs:
        match output["output_type"]:
            case "display_data" if outputs.COST in output["metadata"]:
                yield "text", output["data"]["text/plain"]
            case "display_data" if "text/html" in output["data"]:
                yield "table", Markup(output["data"]["text/html"])
            case "stream":
                yield "text", output["text"]
            case "error" if output["ename"] != outputs.CHECK_FAILED:  # whose text is in the table
                yield "error", f"{output['ename']}: {output['evalue']}"


def _write(path: Path, template: str, values: dict[str, Any]) -> None:
    pages = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "pages"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters |= {"clock": clock, "shown": _shown, "failure": _failure}
    path.write_text(pages.get_template(template).render(values), encoding="utf-8", errors="replace")
