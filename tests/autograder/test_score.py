"""The reader's score in the terminal: one line a question, whatever the notebook does."""

import json
import shutil
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from nbgrader.utils import compute_checksum

from autograder import cli
from autograder.grading.score import ScoreError, check
from fourranks import landlock

COURSE = Path(__file__).parents[2]
RIGHT = """
def attainable_flops(intensity, peak_flops, bandwidth):
    return min(peak_flops, intensity * bandwidth)
"""
WRONG = RIGHT.replace("min(", "max(")
TEST = "check.attainable_flops(attainable_flops)"


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


def test_each_question_has_its_points_and_the_first_line_of_what_is_wrong(write, program):
    program("bwrap")
    complete, lines = lines_of(
        write(
            new_code_cell(RIGHT),
            graded(TEST, "right"),
            new_code_cell(WRONG),
            graded(TEST, "wrong"),
            graded("1 / 0", "raises", points=5),
            graded("I say.", "essay", points=3, by_hand=True),
            new_code_cell(RIGHT),
            graded(TEST, "right_again"),
        )
    )
    assert not complete
    assert lines.pop("wrong").startswith("0 of 2 attainable_flops: the peak in every case (5 of 6")
    assert lines == {
        "right": "2 of 2 passed",
        "raises": "0 of 5 ZeroDivisionError: division by zero",
        "essay": "by hand of 3",
        "right_again": "2 of 2 passed",
        "sum": "4 of 11 points, 3 more by hand",
    }


def test_all_points_that_can_be_had_alone_are_a_full_score(write):
    path = write(graded("pass", "only"), graded("I say.", "essay", by_hand=True))
    assert cli.main(["check", str(path)]) == 0


def test_a_question_is_shown_as_soon_as_it_is_known(write):
    path = write(graded("pass", "first"), graded("1 / 0", "second"))
    lines = []

    def show(line: str) -> None:
        lines.append(line)
        if "first" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check(path, show)
    assert "second" not in "".join(lines)


def test_a_cell_that_ends_its_process_costs_no_question_but_its_own(write):
    complete, lines = lines_of(
        write(
            new_code_cell(RIGHT),
            graded(TEST, "before"),
            new_code_cell("import os; os._exit(1)"),
            graded(TEST, "after"),
            new_code_cell("def matmul_intensity(m, n, k, bytes): pass\nos._exit(1)"),
            graded("check.matmul_intensity(matmul_intensity)", "own"),
        )
    )
    assert not complete
    assert lines["before"] == lines["after"] == "2 of 2 passed"
    assert lines["own"].startswith("0 of 2 matmul_intensity: ")


def test_what_needs_a_file_is_as_wrong_as_in_class(write, program, tmp_path):
    program("bwrap")
    (tmp_path / "answers.py").write_text(RIGHT)
    reading = f"exec(open({str(tmp_path / 'answers.py')!r}).read())"
    _, lines = lines_of(write(new_code_cell(reading), graded(TEST, "one")))
    assert lines["one"].startswith("0 of 2")


def test_without_any_sandbox_it_says_so_and_is_otherwise_the_same(write, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(landlock, "version", lambda: 0)
    lines = []
    assert check(write(new_code_cell(RIGHT), graded(TEST, "one")), lines.append)
    first, *others = lines
    assert "runs without the sandbox" in first and "Landlock" in first
    assert len(others) == 3


def test_a_question_that_was_copied_counts_once(write):
    lines = []
    check(write(graded("1 / 0", "one"), graded("pass", "one")), lines.append)
    assert any("one: the cell was there 2 times" in line for line in lines)
    assert lines[-1].split() == ["2", "of", "2", "points"]


def test_a_test_that_was_changed_is_named(write):
    cell = graded("1 / 0", "one")
    cell.metadata.nbgrader["checksum"] = compute_checksum(cell)
    cell.source = "pass"
    lines = []
    check(write(cell), lines.append)
    assert any("one: the cell was changed; in class" in line for line in lines)


def test_a_question_in_words_without_an_answer_is_named(write):
    empty, answered = (graded("Your answer here.", name, by_hand=True) for name in ("empty", "answered"))
    for cell in (empty, answered):
        cell.metadata.nbgrader["checksum"] = compute_checksum(cell)
    answered.source = "I say."
    _, lines = lines_of(write(empty, answered))
    assert lines["empty"] == "by hand of 2 no answer yet"
    assert lines["answered"] == "by hand of 2"


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
    assert "text.ipynb is not a notebook: it is not JSON at line 1" in capsys.readouterr().err


def test_the_released_exercise_as_it_is_fails_every_check_as_not_implemented(tmp_path):
    folder = shutil.copytree(COURSE / "exercises" / "02_collectives", tmp_path / "02_collectives")
    complete, lines = lines_of(folder)
    assert not complete
    checks = {name: line for name, line in lines.items() if name.endswith("_check")}
    assert len(checks) == 9
    assert all("not implemented yet" in line for line in checks.values()), checks


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [("metadata", None, "metadata must be object"), ("metadata", 3, "metadata must be object")],
)
def test_a_field_of_a_wrong_type_is_named(field, value, said, write):
    path = write(graded(TEST, "f_check"))
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    with pytest.raises(ScoreError, match=f"is not a notebook: {said}") as caught:
        check(path)
    assert "NoneType" not in str(caught.value)
