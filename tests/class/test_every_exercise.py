"""Every exercise is graded by nbgrader, and every submission gets exactly the points that it deserves.

But for the exercise of `test_grading`, which a whole class hands in.
"""

import ast
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest
from nbformat import NotebookNode
from nbgrader.api import Gradebook

from autograder.grading import outputs
from autograder.notebooks.stage import stage
from tests import classroom
from tests.classroom import COURSE

pytestmark = pytest.mark.timeout(1200)  # the submissions are graded once for each topic, in its first test

TOPICS = sorted({path.parent.name for path in COURSE.glob("source/*/exercise.py")} - {"02_collectives"})
NOTHING = "\n\n\ndef {name}(*arguments, **options):\n    pass\n"  # only the name is right


@dataclass(frozen=True)
class Question:
    """A graded cell: its points, and the name of the function or class that it checks, if it does."""

    points: float
    checks: str | None


@dataclass(frozen=True)
class Graded:
    """nbgrader's results for the submissions to one exercise.

    Attributes:
        questions: of the exercise, by name.
        scores: of each student, by question; None is for a person to decide.
        right: the one question that the student who left early answered rightly.
        costs: of the solution, in checks by which a class is ranked.
        left_behind: processes that outlived the commands.
    """

    questions: dict[str, Question]
    scores: dict[str, dict[str, float | None]]
    right: str
    costs: list[float]
    left_behind: list


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The course's folder, made from the source as it is."""
    folder = tmp_path_factory.mktemp("course")
    stage(COURSE, folder)
    (folder / "nbgrader_config.py").write_bytes((COURSE / "nbgrader_config.py").read_bytes())
    return folder


@pytest.fixture(scope="module", params=TOPICS)
def graded(request: pytest.FixtureRequest, course: Path) -> Graded:
    """An exercise, handed in solved, and with one right answer, one wrong one, and the rest untouched."""
    topic = request.param
    released, solution = (
        classroom.read(course / kind / topic / "exercise.ipynb") for kind in ("exercises", "solutions")
    )
    questions = _questions(released)
    first, *others = [name for name, question in questions.items() if question.checks]
    right = classroom.answers(solution)
    one_of_two = _answer(right, questions[first].checks)
    if others:
        one_of_two |= _spoilt(right, questions[others[-1]].checks)
    submissions = {
        "solved": classroom.filled_in(released, right),
        "left_early": classroom.filled_in(released, one_of_two),
    }
    files = {student: {"exercise.ipynb": classroom.as_bytes(n)} for student, n in submissions.items()}
    classroom.hand_in(course, topic, files)
    mark = uuid.uuid4().hex
    for command in ("generate_assignment", "autograde"):
        done = classroom.run(f"nbgrader {command} {topic}", course, mark)
        assert done.returncode == 0, done.stdout
    with Gradebook(f"sqlite:///{course}/gradebook.db", "fourranks") as gradebook:
        scores = {student: _scores(gradebook, topic, student) for student in submissions}
    solved = classroom.read(course / "autograded" / "solved" / topic / "exercise.ipynb")
    told = [outputs.cost_of(cell.outputs) for cell in solved.cells if cell.cell_type == "code"]
    costs = [cost for cost in told if cost is not None]
    return Graded(questions, scores, first, costs, classroom.kill_marked(mark))


def _questions(released: NotebookNode) -> dict[str, Question]:
    graded = [cell for cell in released.cells if cell.metadata.get("nbgrader", {}).get("grade")]
    return {cell.id: Question(cell.metadata.nbgrader.points, _checked(cell)) for cell in graded}


def _checked(cell: NotebookNode) -> str | None:
    """The first name that is passed to a check in this cell."""
    if cell.cell_type != "code":
        return None
    calls = [node for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Call)]
    return next(argument.id for call in calls for argument in call.args if isinstance(argument, ast.Name))


def _answer(right: dict[str, str], name: str) -> dict[str, str]:
    """The answer that defines this name."""
    definitions = (f"def {name}(", f"class {name}(", f"class {name}:")
    ((cell, source),) = [
        (cell, source)
        for cell, source in right.items()
        if any(line.startswith(definitions) for line in source.splitlines())
    ]
    return {cell: source}


def _spoilt(right: dict[str, str], name: str) -> dict[str, str]:
    """The same, with something of the same name after it that does nothing."""
    return {cell: source + NOTHING.format(name=name) for cell, source in _answer(right, name).items()}


def _scores(gradebook: Gradebook, topic: str, student: str) -> dict[str, float | None]:
    (notebook,) = gradebook.find_submission(topic, student).notebooks
    return {grade.name: None if grade.needs_manual_grade else grade.score for grade in notebook.grades}


def test_the_solution_gets_all_points_and_its_answers_in_words_wait_for_a_person(graded):
    full = {name: question.points if question.checks else None for name, question in graded.questions.items()}
    assert graded.scores["solved"] == full


def test_a_right_answer_keeps_its_points_and_what_is_untouched_gets_none_without_a_person(graded):
    got = dict.fromkeys(graded.questions, 0) | {graded.right: graded.questions[graded.right].points}
    assert graded.scores["left_early"] == got


def test_the_capstone_alone_has_a_cost_to_be_ranked_by(graded, request):
    assert len(graded.costs) == ("10_capstone" in request.node.name)
    assert all(0 < cost < 0.2 for cost in graded.costs)


def test_grading_leaves_no_process_behind(graded):
    assert graded.left_behind == []
