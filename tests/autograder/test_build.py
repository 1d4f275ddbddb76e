"""Text under source/ becomes lectures, exercises, solutions and a start page, and what is old is found."""

import csv
import json
import os
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import nbformat
import pytest

from autograder.cli import main
from autograder.notebooks.build import build, check
from autograder.notebooks.source import SourceError

COURSE = Path(__file__).parents[2]
SOLUTION = '"grade": false, "locked": false, "schema_version": 3, "solution": true, "task": false'
TEST = '"grade": true, "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false'

LECTURE = """\
# %% [markdown]
# # 01 Doubling: twice the fun

# %%
import time

time.time_ns()

# %%
print("a lecture")
"""

EXERCISE = f"""\
# %% [markdown]
# # 01 Doubling: an exercise

# %% nbgrader={{"grade_id": "double", {SOLUTION}}}
def double(x):
    ### BEGIN SOLUTION
    return 2 * x
    ### END SOLUTION


# %% nbgrader={{"grade_id": "double_check", {TEST}}}
assert double(2) == 4
### BEGIN HIDDEN TESTS
assert double(3) == 6
### END HIDDEN TESTS
"""


@pytest.fixture(scope="module")
def built_once(tmp_path_factory):
    """A course of one topic, built."""
    course = tmp_path_factory.mktemp("course")
    source = course / "source" / "01_doubling"
    source.mkdir(parents=True)
    (source / "lecture.py").write_text(LECTURE)
    (source / "exercise.py").write_text(EXERCISE)
    (source / "numbers.csv").write_text("1,2\n")
    (course / "source" / "index.md").write_text("# Start\n\n<!-- topics -->\n\nThe end.\n")
    shutil.copy(COURSE / "nbgrader_config.py", course)
    assert build(course) == []
    return course


@pytest.fixture
def course(built_once, tmp_path):
    """A copy of the built course, to change."""
    return Path(shutil.copytree(built_once, tmp_path / "course"))


def edit(path: Path, right: str, wrong: str) -> None:
    text = path.read_text()
    assert right in text
    path.write_text(text.replace(right, wrong))


def contents(course: Path) -> dict[Path, tuple[bytes, int]]:
    files = (path for path in course.rglob("*") if path.is_file())
    return {path.relative_to(course): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def sources(notebook: Path) -> str:
    return "\n".join(cell.source for cell in nbformat.read(notebook, as_version=4).cells)


def test_a_build_leaves_the_four_kinds_of_notebook_and_the_start_page(built_once):
    assert {str(path) for path in contents(built_once)} == {
        "index.md",
        "nbgrader_config.py",
        "source/index.md",
        "source/01_doubling/lecture.py",
        "source/01_doubling/exercise.py",
        "source/01_doubling/exercise.ipynb",
        "source/01_doubling/numbers.csv",
        "lectures/01_doubling/lecture.ipynb",
        "exercises/01_doubling/exercise.ipynb",
        "exercises/01_doubling/numbers.csv",
        "solutions/01_doubling/exercise.ipynb",
        "solutions/01_doubling/numbers.csv",
    }


def test_every_built_notebook_is_valid_and_carries_the_hash_of_its_source(built_once):
    for path in built_once.glob("*s/01_doubling/*.ipynb"):
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        source = built_once / notebook.metadata.fourranks.source
        digest = subprocess.check_output(["sha256sum", source], text=True).split()[0]
        assert notebook.metadata.fourranks.sha256 == digest


def test_exercises_have_neither_solutions_nor_hidden_tests(built_once):
    text = (built_once / "exercises/01_doubling/exercise.ipynb").read_text()
    assert "double(2) == 4" in text and "Your code here" in text
    assert "return 2 * x" not in text and "double(3)" not in text and "HIDDEN" not in text


def test_solutions_and_lectures_have_been_run(built_once):
    lecture = nbformat.read(built_once / "lectures/01_doubling/lecture.ipynb", as_version=4)
    solution = nbformat.read(built_once / "solutions/01_doubling/exercise.ipynb", as_version=4)
    assert lecture.cells[2].outputs[1].text == "a lecture\n"
    assert [cell.execution_count for cell in solution.cells if cell.cell_type == "code"] == [1, 2]
    assert "return 2 * x" in sources(built_once / "solutions/01_doubling/exercise.ipynb")


def test_nbgraders_own_command_makes_the_same_exercise(course):
    released = course / "exercises/01_doubling/exercise.ipynb"
    before = released.read_bytes()
    nbgrader(course, "generate_assignment", "01_doubling")
    assert released.read_bytes() == before
    assert {path.name for path in released.parent.iterdir()} == {"exercise.ipynb", "numbers.csv"}


def test_nbgrader_grades_right_answers_although_they_write_to_stderr_or_lack_the_test(course):
    nbgrader(course, "generate_assignment", "01_doubling")
    solution = nbformat.read(course / "solutions/01_doubling/exercise.ipynb", as_version=4)
    solution.cells[
        1
    ].source = "def double(x):\n    import sys; print('careful', file=sys.stderr)\n    return 2 * x"
    submit(course, "ada", solution)
    del solution.cells[2]
    submit(course, "bob", solution)
    solution.cells[1].source = "def double(x):\n    return x"
    submit(course, "eve", solution)
    nbgrader(course, "autograde", "01_doubling")
    nbgrader(course, "export")
    with (course / "grades.csv").open() as file:
        scores = {row["student_id"]: float(row["score"]) for row in csv.DictReader(file)}
    assert scores == {"ada": 2, "bob": 2, "eve": 0}


def nbgrader(course: Path, *arguments: str) -> None:
    subprocess.run(["nbgrader", *arguments], cwd=course, check=True, capture_output=True)


def submit(course: Path, student: str, notebook: nbformat.NotebookNode) -> None:
    folder = course / "submitted" / student / "01_doubling"
    folder.mkdir(parents=True)
    nbformat.write(notebook, folder / "exercise.ipynb")


def test_building_twice_changes_no_byte(course):
    assert_up_to_date(course)


def test_a_built_course_is_up_to_date_whatever_its_outputs_are(course):
    path = course / "lectures/01_doubling/lecture.ipynb"
    lecture = nbformat.read(path, as_version=4)
    lecture.cells[1].outputs[1].data["text/plain"] = "42"
    lecture.cells[2].outputs = []
    lecture.cells[2].execution_count = 99
    nbformat.write(lecture, path)
    assert_up_to_date(course)


def test_opening_and_saving_a_notebook_in_jupyterlab_does_not_make_it_out_of_date(course):
    for path in course.glob("*s/01_doubling/*.ipynb"):
        notebook = nbformat.read(path, as_version=4)
        notebook.metadata.language_info = {"name": "python", "version": "3.12.1", "file_extension": ".py"}
        nbformat.write(notebook, path)
        path.with_name(".ipynb_checkpoints").mkdir()
        shutil.copy(path, path.with_name(".ipynb_checkpoints"))
    assert_up_to_date(course)


def test_predictions_that_a_reader_keeps_beside_a_lecture_do_not_make_it_out_of_date(course):
    kept = course / "lectures/01_doubling/.fourranks/predictions.jsonl"
    kept.parent.mkdir()
    kept.write_text("{}")
    assert_up_to_date(course)


def assert_up_to_date(course):
    before = contents(course)
    assert check(course) == []
    assert build(course) == []
    assert contents(course) == before


def test_each_way_of_being_out_of_date_is_named(course):
    edit(course / "source/01_doubling/lecture.py", "twice the fun", "and that is all")
    edit(course / "exercises/01_doubling/exercise.ipynb", "double(2) == 4", "double(2) == 5")
    edit(course / "exercises/01_doubling/numbers.csv", "1,2", "1,3")
    (course / "solutions/01_doubling/exercise.ipynb").unlink()
    shutil.copytree(course / "lectures/01_doubling", course / "lectures/00_before")
    edit(course / "index.md", "The end", "The start")
    before = contents(course)
    assert check(course) == [
        "exercises/01_doubling/exercise.ipynb: its cell double_check was edited",
        "exercises/01_doubling/numbers.csv: it was edited",
        "lectures/00_before/lecture.ipynb: nothing in source/ makes it",
        "lectures/01_doubling/lecture.ipynb: source/01_doubling/lecture.py has changed since it was built",
        "solutions/01_doubling/exercise.ipynb: it is missing",
        "index.md: it was edited",
    ]
    assert contents(course) == before

    assert build(course) == []
    assert check(course) == []
    assert not (course / "lectures/00_before/lecture.ipynb").exists()


def test_a_built_notebook_with_edited_metadata_or_code_or_without_its_run_is_out_of_date(course):
    lecture, solution = (
        course / "lectures/01_doubling/lecture.ipynb",
        course / "solutions/01_doubling/exercise.ipynb",
    )
    exercise = course / "exercises/01_doubling/exercise.ipynb"
    edit(exercise, '"editable": false', '"editable": true')
    edit(lecture, '"execution_count": 2', '"execution_count": null')
    edit(solution, '"name": "python3"', '"name": "python4"')
    assert check(course) == [
        "exercises/01_doubling/exercise.ipynb: its cell double_check was edited",
        "lectures/01_doubling/lecture.ipynb: it was not run to its end",
        "solutions/01_doubling/exercise.ipynb: its metadata was edited",
    ]


def test_a_lecture_whose_prose_changed_keeps_its_outputs(course):
    path = course / "lectures/01_doubling/lecture.ipynb"
    before = nbformat.read(path, as_version=4)
    edit(course / "source/01_doubling/lecture.py", "twice the fun", "and that is all")
    assert build(course) == []
    after = nbformat.read(path, as_version=4)
    assert after.cells[0].source == "# 01 Doubling: and that is all"
    assert after.cells[1:] == before.cells[1:]
    assert "and that is all" in (course / "index.md").read_text()


def test_a_lecture_whose_code_changed_is_run_again(course):
    path = course / "lectures/01_doubling/lecture.ipynb"
    before = nbformat.read(path, as_version=4).cells[1].outputs
    edit(course / "source/01_doubling/lecture.py", "a lecture", "another lecture")
    assert build(course) == []
    after = nbformat.read(path, as_version=4)
    assert after.cells[2].outputs[1].text == "another lecture\n"
    assert after.cells[1].outputs != before


def test_a_lecture_that_fails_keeps_its_last_built_notebook(course):
    path = course / "lectures/01_doubling/lecture.ipynb"
    before = path.read_bytes()
    edit(course / "source/01_doubling/lecture.py", 'print("a lecture")', "print(a_lecture)")
    edit(course / "source/01_doubling/exercise.py", "an exercise", "try it")
    problems = build(course)
    assert problems == [
        "lectures/01_doubling/lecture.ipynb: source/01_doubling/lecture.py, cell 3 (lecture-003) failed: "
        "NameError: name 'a_lecture' is not defined\n    print(a_lecture)"
    ]
    assert path.read_bytes() == before
    assert "try it" in sources(course / "exercises/01_doubling/exercise.ipynb")


def test_outputs_do_not_name_the_folder_of_the_course(course):
    edit(course / "source/01_doubling/lecture.py", '"a lecture"', f'"{course}/fourranks/group.py"')
    assert build(course) == []
    lecture = nbformat.read(course / "lectures/01_doubling/lecture.ipynb", as_version=4)
    assert lecture.cells[2].outputs[1].text == "fourranks/group.py\n"


def test_a_large_lecture_is_built_with_a_warning(course, capsys):
    edit(course / "source/01_doubling/lecture.py", '"a lecture"', '("a" * 99 + "\\n") * 20_000')
    assert build(course) == []
    said = capsys.readouterr().out
    assert re.search(
        r"warning: source/01_doubling/lecture.py makes 2.\d MB; draw fewer or smaller figures", said
    )


GAME = """\
# %%
print("a board")

# %% tags=["skip-execution"]
print("a move of the reader's")
"""


def test_a_game_is_run_but_for_the_cells_that_a_player_has_to_run(course):
    (course / "source" / "play").mkdir()
    (course / "source" / "play" / "game.py").write_text(GAME)
    assert build(course) == []
    shown, skipped = nbformat.read(course / "play" / "game.ipynb", as_version=4).cells
    assert shown.outputs[0].text == "a board\n" and not skipped.outputs
    assert check(course) == []


def test_a_game_in_which_someone_plays_is_not_overwritten(course):
    test_a_game_is_run_but_for_the_cells_that_a_player_has_to_run(course)
    path = course / "play" / "game.ipynb"
    edit(path, "a board", "my move")
    played = path.read_bytes()
    reason = "someone plays in it. Copy it elsewhere, git checkout it, and build again."
    assert build(course) == [f"play/game.ipynb: {reason}"]
    assert path.read_bytes() == played


def test_what_players_leave_behind_is_no_part_of_the_course(course):
    test_a_game_is_run_but_for_the_cells_that_a_player_has_to_run(course)
    (course / "play" / "incidents").mkdir()
    for name in ("incidents/program.py", "puzzle_records.json"):
        (course / "play" / name).write_text("")
    assert check(course) == []
    (course / "play" / "mine.ipynb").write_text("")
    assert check(course) == ["play/mine.ipynb: nothing in source/ makes it"]


def test_an_exercise_in_which_someone_works_is_not_overwritten(course):
    path = course / "exercises/01_doubling/exercise.ipynb"
    edit(path, '"execution_count": null', '"execution_count": 5')
    edit(course / "source/01_doubling/exercise.py", "an exercise", "try it")
    before = path.read_bytes()
    problems = build(course)
    assert [problem.split(".ipynb: ")[1] for problem in problems] == [
        "it holds outputs: someone works in it. Copy it elsewhere, git checkout it, and build again."
    ]
    assert path.read_bytes() == before


def test_a_file_that_no_build_made_is_reported_and_left_alone(course):
    notes = course / "lectures/01_doubling/notes.txt"
    notes.write_text("mine")
    (problem,) = build(course)
    assert problem.endswith(
        "notes.txt: nothing in source/ makes it, and no build made it. Move it elsewhere."
    )
    assert notes.read_text() == "mine"


def test_an_edited_source_notebook_is_not_overwritten(course):
    text, notebook = (course / f"source/01_doubling/exercise.{kind}" for kind in ("py", "ipynb"))
    assert notebook.stat().st_mtime_ns == text.stat().st_mtime_ns
    edit(notebook, "an exercise", "edited in JupyterLab")
    later = text.stat().st_mtime + 10
    os.utime(notebook, (later, later))
    (problem,) = build(course)
    assert "jupytext --to py:percent source/01_doubling/exercise.ipynb" in problem
    assert "edited in JupyterLab" in notebook.read_text()


def test_a_mistake_in_a_source_is_found_before_anything_is_changed(course):
    edit(course / "source/01_doubling/lecture.py", "a lecture", "another lecture")
    edit(course / "source/01_doubling/exercise.py", "### END HIDDEN TESTS\n", "")
    before = contents(course)
    with pytest.raises(
        SourceError, match=r"exercise.py, line 11, cell double_check: BEGIN HIDDEN TESTS has no END"
    ):
        build(course)
    assert contents(course) == before


def test_the_start_page_says_where_to_begin_above_its_table_and_marks_solutions():
    page = (COURSE / "index.md").read_text()
    begin, table = (
        page.index("[first lecture](lectures/00_hello/lecture.ipynb)"),
        page.index("| topic |"),
    )
    assert begin < table
    assert "| lecture | exercise | solution (after your own) |" in page


def test_the_start_page_links_to_what_exists(course):
    row = "| 01 Doubling: twice the fun | [lecture](lectures/01_doubling/lecture.ipynb) | "
    assert row + "[exercise](exercises/01_doubling/exercise.ipynb) | " in (course / "index.md").read_text()
    (course / "source/01_doubling/exercise.py").unlink()
    shutil.rmtree(course / "exercises")
    shutil.rmtree(course / "solutions")
    assert build(course) == []
    assert row + " |  |" in (course / "index.md").read_text()


def test_the_command_fails_and_says_what_to_do_when_something_is_out_of_date(course, monkeypatch, capsys):
    monkeypatch.chdir(course)
    (course / "index.md").unlink()
    assert main(["build", "--check"]) == 1
    assert capsys.readouterr() == (
        "",
        "index.md: it is missing\n\nRun `make build` and commit what it changes.\n",
    )
    assert main(["build"]) == 0
    assert capsys.readouterr() == ("made index.md\n", "")
    assert main(["build", "--check"]) == 0
    assert capsys.readouterr() == ("", "")


def test_the_command_says_where_it_has_to_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["build"]) == 1
    assert "it is not the course's top folder" in capsys.readouterr().err


def test_the_course_itself_is_up_to_date():
    assert check(COURSE) == []


BUILT = [
    path for folder in ("lectures", "exercises", "solutions") for path in COURSE.glob(f"{folder}/*/*.ipynb")
]


@pytest.mark.parametrize(
    "path", [COURSE / "index.md", *sorted(BUILT)], ids=lambda path: str(path.relative_to(COURSE))
)
def test_links_lead_to_files(path):
    text = path.read_text()
    if path.suffix == ".ipynb":
        text = "".join(
            "".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"
        )
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", text)
    files = [link for link in links if not re.match(r"[a-z]+:", link)]
    assert [file for file in files if not (path.parent / file).exists()] == []


@pytest.mark.parametrize("path", sorted(BUILT), ids=lambda path: str(path.relative_to(COURSE)))
def test_every_picture_of_a_built_notebook_is_there_once_and_described_in_words(path):
    for cell in nbformat.read(path, as_version=4).cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            assert not [kind for kind in data if kind.startswith("image/")], cell.source
            words = [unescape(alt) for alt in re.findall('<img alt="([^"]*)"', data.get("text/html", ""))]
            assert len(words) == data.get("text/html", "").count("<img ")
            assert all(len(alt) > 20 for alt in words), cell.source
