"""Text under source/ becomes the same notebook each time, or an error that says where the mistake is."""

import re
from pathlib import Path

import pytest
from jupyter_server.services.contents.largefilemanager import LargeFileManager
from jupytext.sync_contentsmanager import build_sync_jupytext_contents_manager_class

from autograder.notebooks.source import SourceError, read

COURSE = Path(__file__).parents[2]
SOLUTION = '"grade": false, "locked": false, "schema_version": 3, "solution": true, "task": false'
TEST = '"grade": true, "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false'

EXERCISE = f"""\
# %% [markdown]
# # 01 Doubling

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


@pytest.fixture
def exercise(tmp_path: Path) -> Path:
    path = tmp_path / "exercise.py"
    path.write_text(EXERCISE)
    return path


def test_reading_a_text_twice_gives_the_same_notebook(exercise):
    assert read(exercise, "exercise.py") == read(exercise, "exercise.py")


def test_a_cell_is_identified_by_its_grade_id_or_by_file_and_position(exercise):
    ids = [cell.id for cell in read(exercise, "exercise.py").cells]
    assert ids == ["exercise-001", "double", "double_check"]


def test_a_notebook_carries_the_hash_of_its_text(exercise):
    before = read(exercise, "exercise.py").metadata.fourranks
    exercise.write_text(EXERCISE.replace("Doubling", "Twice"))
    after = read(exercise, "exercise.py").metadata.fourranks
    assert before.source == after.source == "exercise.py"
    assert before.sha256 != after.sha256


MISTAKES = {
    "no end": ("    ### END SOLUTION\n", "", "line 4, cell double: BEGIN SOLUTION has no END SOLUTION"),
    "no begin": ("### BEGIN HIDDEN TESTS\n", "", "line 11, cell double_check: END HIDDEN TESTS has no BEGIN"),
    "nested": (
        "### BEGIN HIDDEN TESTS\n",
        "### BEGIN HIDDEN TESTS\n### BEGIN HIDDEN TESTS\n",
        "line 11, cell double_check: BEGIN HIDDEN TESTS comes before END HIDDEN TESTS",
    ),
    "misspelt": ("### BEGIN HIDDEN TESTS", "### BEGIN HIDDEN TEST", "'### BEGIN HIDDEN TEST' is no marker"),
    "small letters": ("### END SOLUTION", "### end solution", "'### end solution' is no marker"),
    "hidden tests in a solution": (
        "    return 2 * x\n",
        "    return 2 * x\n    ### END SOLUTION\n    ### BEGIN HIDDEN TESTS\n",
        "cell double: BEGIN HIDDEN TESTS stands outside a test cell",
    ),
    "solution in a plain cell": (
        f'# %% nbgrader={{"grade_id": "double", {SOLUTION}}}',
        "# %%",
        "line 4, cell 2: BEGIN SOLUTION stands outside a solution cell",
    ),
    "same grade_id": ('"double_check"', '"double"', "two cells have the id double"),
    "bad grade_id": (
        '"double_check"',
        '"double check"',
        "nbgrader cannot read the fields of this cell: 'double check'",
    ),
    "long grade_id": ('"double_check"', f'"{"x" * 65}"', "a grade_id has at most 64 characters"),
    "no points": ('"points": 2, ', "", "cell double_check: nbgrader cannot read the fields of this cell"),
    "missing field": ('"solution": true, ', "", "'solution' is a required property"),
    "old schema": (
        '"schema_version": 3, "solution": true',
        '"schema_version": 1, "solution": true',
        "Outdated",
    ),
}


@pytest.mark.parametrize(("right", "wrong", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_reported_with_its_place(exercise, right, wrong, message):
    assert right in EXERCISE
    exercise.write_text(EXERCISE.replace(right, wrong, 1))
    with pytest.raises(SourceError, match=re.escape(message)) as error:
        read(exercise, "source/01_doubling/exercise.py")
    assert str(error.value).startswith("source/01_doubling/exercise.py")


@pytest.fixture
def jupyterlab(tmp_path: Path):
    """How JupyterLab reads and writes files in a course, by jupytext."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "jupytext.toml").write_text((COURSE / "source" / "jupytext.toml").read_text())
    manager = build_sync_jupytext_contents_manager_class(LargeFileManager)
    return manager(root_dir=str(tmp_path))


@pytest.mark.parametrize(
    "path", sorted(COURSE.glob("source/*/*.py")), ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_saving_a_source_text_as_a_notebook_does_not_change_it(jupyterlab, tmp_path, path):
    copy = tmp_path / "source" / path.name
    copy.write_text(path.read_text())
    model = jupyterlab.get(f"source/{path.name}", type="notebook", content=True)
    _add_what_jupyterlab_adds(model["content"])
    jupyterlab.save(model, f"source/{path.name}")
    assert copy.read_text() == path.read_text()


def test_fields_edited_in_the_create_assignment_toolbar_are_saved(jupyterlab, tmp_path):
    path = tmp_path / "source" / "exercise.py"
    path.write_text(EXERCISE)
    model = jupyterlab.get("source/exercise.py", type="notebook", content=True)
    fields = {"grade": True, "grade_id": "why", "locked": False, "points": 3, "schema_version": 3}
    model["content"]["cells"][0]["metadata"]["nbgrader"] = {**fields, "solution": True, "task": False}
    model["content"]["cells"][2]["metadata"]["nbgrader"]["points"] = 5
    _add_what_jupyterlab_adds(model["content"])
    jupyterlab.save(model, "source/exercise.py")

    before, after = EXERCISE.splitlines(), path.read_text().splitlines()
    kept = [line for line in after if line in before]
    changed = [line for line in after if line.startswith("# %%") and line not in before]
    assert [line for line in before if line not in kept] == [before[0], before[10]]
    assert changed == [
        '# %% [markdown] nbgrader={"grade": true, "grade_id": "why", "locked": false, "points": 3, '
        '"schema_version": 3, "solution": true, "task": false}',
        before[10].replace('"points": 2', '"points": 5'),
    ]


def _add_what_jupyterlab_adds(notebook) -> None:
    notebook["metadata"]["language_info"] = {"name": "python", "version": "3.12.1"}
    for cell in notebook["cells"]:
        cell["metadata"].update(
            trusted=True, editable=True, scrolled=False, execution={"iopub.status.busy": "now"}
        )
        if cell["cell_type"] == "code":
            cell["execution_count"] = 7
