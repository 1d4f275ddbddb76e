"""An instructor hands out a course that runs and checks, without solutions and hidden tests."""

import functools
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from autograder import cli
from autograder.grading.bundle import _files
from autograder.notebooks.source import read
from fourranks.commands import help_text

COURSE = Path(__file__).parents[2]
TOPICS = sorted(path.parent.name for path in COURSE.glob("source/*/exercise.py"))
REGION = re.compile(r"BEGIN (SOLUTION|HIDDEN TESTS)[^\n]*\n(.*?)\n[^\n]*END \1", re.DOTALL)

pytestmark = pytest.mark.timeout(300)  # before a bundle is written, all exercises are made, to be compared


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(COURSE)
        assert cli.main(["bundle", str(folder)]) == 0
    return folder / "four_ranks.zip"


@pytest.fixture(scope="module")
def unpacked(bundle) -> Path:
    with ZipFile(bundle) as archive:
        archive.extractall(bundle.parent)
    return bundle.parent / "four_ranks"


def kept_back(topic: str) -> Iterator[str]:
    """The parts of an exercise that students are not to see: solutions, answers in words, hidden tests."""
    for cell in read(COURSE / "source" / topic / "exercise.py", topic).cells:
        regions = [region[2] for region in REGION.finditer(cell.source)]
        if cell.metadata.get("nbgrader", {}).get("solution") and not regions:
            regions = [cell.source]
        yield from regions


def found(text: str, folder: Path) -> list[Path]:
    """The files that have this text in them, however it is indented."""
    return [path for path, content in _contents(folder).items() if _plain(text) in content]


@functools.cache
def _contents(folder: Path) -> dict[Path, str]:
    """The text of every file in a folder, of notebooks that of their cells and outputs."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder): _plain(_text(path)) for path in files}


def _text(path: Path) -> str:
    text = path.read_text(encoding="utf-8", errors="replace")
    return "\n".join(_strings(json.loads(text))) if path.suffix == ".ipynb" else text


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and all(isinstance(item, str) for item in value):
        yield "".join(value)
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


def _plain(text: str) -> str:
    lines = (re.sub(r"^# ?", "", line.strip()) for line in text.splitlines())
    return "\n".join(line for line in lines if line)


@pytest.mark.parametrize("topic", TOPICS)
def test_no_solution_and_no_hidden_test_is_in_any_file(topic, unpacked):
    secrets = list(kept_back(topic))
    assert len(secrets) > 4
    assert {secret: files for secret in secrets if (files := found(secret, unpacked))} == {}


@pytest.mark.parametrize("topic", TOPICS)
def test_the_search_finds_them_where_they_are(topic):
    solved = COURSE / "solutions" / topic
    assert [secret for secret in kept_back(topic) if not found(secret, solved)] == []


def test_nothing_of_the_instructors_is_in_it(unpacked):
    assert {path.name for path in unpacked.iterdir()} == {
        ".jupyter", "LICENSE", "Makefile", "README.md", "autograder", "docs", "exercises", "fourranks",
        "index.md", "lectures", "nbgrader_config.py", "play", "pyproject.toml", "requirements.txt", "tools",
    }  # fmt: skip
    assert sorted(path.name for path in (unpacked / "exercises").iterdir()) == TOPICS
    assert "solutions/" not in (unpacked / "index.md").read_text()
    assert list(unpacked.rglob("__pycache__")) == []


def test_the_files_that_its_notebooks_link_to_are_in_it(unpacked):
    notebooks = [*unpacked.glob("lectures/*/*.ipynb"), *unpacked.glob("exercises/*/*.ipynb")]
    linked = [(path, link) for path in notebooks for link in _links(_prose(path))]
    assert len(linked) > 8 * len(TOPICS)
    assert [link for path, link in linked if not (path.parent / link).exists()] == []


def test_its_pages_link_to_what_is_in_it_and_name_everything_else(unpacked):
    pages = list(unpacked.rglob("*.md"))
    linked = [(path, link) for path in pages for link in _links(path.read_text())]
    assert len(linked) > 50
    assert [link for path, link in linked if not (path.parent / link).exists()] == []
    assert "| bandwidths | benchmarks/gpu.md |" in (unpacked / "docs" / "gpu.md").read_text()


def test_the_pages_that_the_help_in_a_notebook_names_are_in_it(unpacked):
    pages = set(re.findall(r"docs/\w+\.md", help_text()))
    assert pages
    assert [page for page in pages if not (unpacked / page).exists()] == []


def _prose(notebook: Path) -> str:
    cells = json.loads(notebook.read_text())["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def _links(prose: str) -> list[str]:
    return [link for link in re.findall(r"\]\(([^)#\s]+)", prose) if "://" not in link]


def test_the_same_course_makes_the_same_bytes(bundle, tmp_path, monkeypatch):
    monkeypatch.chdir(COURSE)
    assert cli.main(["bundle", str(tmp_path / "again.zip")]) == 0
    assert (tmp_path / "again.zip").read_bytes() == bundle.read_bytes()


def test_a_place_where_no_zip_can_be_made_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(COURSE)
    place = tmp_path / "no such folder" / "mine.zip"
    assert cli.main(["bundle", str(place)]) == 1
    assert f"{place} cannot be made" in capsys.readouterr().err


def test_a_full_disk_leaves_the_zip_of_before_and_no_part_of_a_new_one(tmp_path, monkeypatch, capsys):
    (tmp_path / "four_ranks.zip").write_bytes(b"before")
    monkeypatch.chdir(COURSE)
    monkeypatch.setattr("autograder.grading.bundle.build.check", lambda course: [])  # it writes larger files
    small = 20_000  # bytes
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (small, limits[1]))
        assert cli.main(["bundle", str(tmp_path)]) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert "four_ranks.zip cannot be made" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["four_ranks.zip"]
    assert (tmp_path / "four_ranks.zip").read_bytes() == b"before"


def test_all_that_it_tells_students_to_use_is_there(unpacked):
    readme = (unpacked / "README.md").read_text()
    commands = set(re.findall(r"^ +make (\w+)", readme, re.MULTILINE)) | {"help", "clean"}
    assert "lab" in commands
    listed = subprocess.run(["make"], cwd=unpacked, capture_output=True, text=True, check=True).stdout
    assert {line.split()[1] for line in listed.splitlines()} == commands
    would_run = subprocess.run(["make", "-n", "lab"], cwd=unpacked, capture_output=True, text=True).stdout
    assert "tools/install.py" in would_run and "jupyterlab" in would_run
    start_page = (unpacked / "index.md").read_text()
    paths = re.findall(r"(?:docs|exercises|lectures)/[\w/.]+\w", readme + start_page)
    assert len(paths) > 2 * len(TOPICS)
    assert [path for path in paths if not (unpacked / path).exists()] == []


def test_its_checks_run_without_the_rest_of_the_course(unpacked):
    environment = os.environ | {"PYTHONPATH": str(unpacked)}
    command = [sys.executable, "-c", "import autograder; print(autograder.__file__)"]
    done = subprocess.run(command, cwd=unpacked, env=environment, capture_output=True, text=True)
    assert done.stdout.startswith(str(unpacked))
    command = [sys.executable, "-m", "autograder", "check", "exercises/01_hardware_hierarchy"]
    done = subprocess.run(command, cwd=unpacked, env=environment, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    lines = [line for line in done.stdout.splitlines() if "_check " in line]
    assert len(lines) > 4
    assert all("not implemented yet" in line for line in lines), done.stdout


def test_an_exercise_that_someone_has_solved_is_not_handed_out(tmp_path, monkeypatch, capsys):
    ignore = shutil.ignore_patterns(".*", "tests", "benchmarks")
    course = shutil.copytree(COURSE, tmp_path / "course", ignore=ignore)
    name = "exercises/02_collectives/exercise.ipynb"
    shutil.copy(course / name.replace("exercises", "solutions"), course / name)
    monkeypatch.chdir(course)
    assert cli.main(["bundle"]) == 1
    assert f"{name}: its cell setup was edited" in capsys.readouterr().err
    assert list(course.glob("*.zip")) == []


def test_predictions_that_the_instructor_keeps_beside_a_lecture_are_not_handed_out(tmp_path):
    for name in ("lecture.ipynb", ".fourranks/predictions.jsonl"):
        path = tmp_path / "lectures/04_data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    assert dict(_files(tmp_path, ["lectures"], [])) == {"lectures/04_data/lecture.ipynb": b"{}"}
