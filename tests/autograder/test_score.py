"""The reader's score in the terminal: one line a question, whatever the notebook does."""

import shutil
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from autograder import cli
from autograder.score import ScoreError, check

COURSE = Path(__file__).parents[2]


def graded(source: str, name: str, points: int = 2, by_hand: bool = False):
    fields = {"grade": True, "grade_id": name, "points": points, "solution": by_hand, "locked": not by_hand}
    make = new_markdown_cell if by_hand else new_code_cell
    return make(source, metadata={"nbgrader": fields | {"schema_version": 3, "task": False}})


@pytest.fixture
def write(tmp_path):
    def write(*cells, name: str = "exercise.ipynb") -> Path:
        kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
        notebook = new_notebook(cells=list(cells), metadata={"kernelspec": kernel})
        nbformat.write(notebook, tmp_path / name)
        return tmp_path / name

    return write


def lines_of(path: Path) -> tuple[bool, dict[str, str]]:
    """Whether all points were had, and each question's line."""
    lines: list[str] = []
    complete = check(path, lines.append)
    return complete, {line.split()[0]: " ".join(line.split()[1:]) for line in lines[1:-1]} | {
        "sum": " ".join(lines[-1].split())
    }


def test_each_question_has_its_points_and_the_first_line_of_what_is_wrong(write):
    complete, lines = lines_of(
        write(
            new_code_cell("x = 1"),
            graded("assert x == 1", "right"),
            graded("assert x == 2, 'x is 1\\nand more'", "wrong"),
            graded("x.y", "raises", points=5),
            graded("I say.", "essay", points=3, by_hand=True),
            graded("assert x == 1", "right_again"),
        )
    )
    assert not complete
    assert lines == {
        "right": "2 of 2 passed",
        "wrong": "0 of 2 x is 1",
        "raises": "0 of 5 AttributeError: 'int' object has no attribute 'y'",
        "essay": "by hand of 3",
        "right_again": "2 of 2 passed",
        "sum": "4 of 11 points, 3 more by hand",
    }


def test_all_points_that_can_be_had_alone_are_a_full_score(write):
    path = write(graded("pass", "only"), graded("I say.", "essay", by_hand=True))
    assert lines_of(path)[0]
    assert cli.main(["check", str(path)]) == 0


def test_a_cell_that_ends_the_kernel_costs_the_questions_after_it_and_no_others(write):
    complete, lines = lines_of(
        write(graded("pass", "before"), new_code_cell("import os; os._exit(1)"), graded("pass", "after"))
    )
    assert not complete
    assert lines["before"] == "2 of 2 passed"
    assert lines["after"] == "0 of 2 the kernel died in cell 2"


def test_every_notebook_of_a_folder_is_run(write, capsys):
    write(graded("assert False, 'no'", "first"), name="a.ipynb")
    folder = write(graded("pass", "second"), name="b.ipynb").parent
    assert cli.main(["check", str(folder)]) == 1
    shown = capsys.readouterr().out
    assert "first" in shown and "second" in shown


def test_nothing_to_run_is_said_with_what_to_name_instead(write, tmp_path, capsys):
    with pytest.raises(ScoreError, match="There is no notebook at .*exercises/02_collectives"):
        check(tmp_path / "nowhere")
    with pytest.raises(ScoreError, match="has no graded question"):
        check(write(new_code_cell("1")))
    (tmp_path / "text.ipynb").write_text("not a notebook")
    assert cli.main(["check", str(tmp_path / "text.ipynb")]) == 2
    assert "cannot be read as a notebook" in capsys.readouterr().err


def test_the_released_exercise_as_it_is_fails_every_check_as_not_implemented(tmp_path):
    folder = shutil.copytree(COURSE / "exercises" / "02_collectives", tmp_path / "02_collectives")
    complete, lines = lines_of(folder)
    assert not complete
    checks = {name: line for name, line in lines.items() if name.endswith("_check")}
    assert len(checks) == 9
    assert all("not implemented yet" in line for line in checks.values()), checks
