"""Makes the whole course from source/ in another folder, complete but for the outputs of its notebooks.

`build` calls `stage`. Exercises and solutions are made by nbgrader's own converters and nbgrader_config.py.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbgrader.converters import GenerateAssignment, GenerateSolution
from nbgrader.converters.base import BaseConverter
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import Execute, SaveCells
from nbgrader.utils import capture_log
from traitlets.config.loader import PyFileConfigLoader

from autograder.notebooks.metadata import FOLDED
from autograder.notebooks.source import SourceError, read

START_PAGE = "index.md"
TOPICS_MARKER = "<!-- topics -->"
# A gradebook is a class's, not the course's; and `build` runs only the notebooks that changed.
LEFT_OUT = (SaveCells, Execute)
HEADINGS = {"solution": "solution (after your own)"}  # of columns that are not called by their kind alone
NOTEBOOKS = {
    "lecture": "lectures/{}/lecture.ipynb",
    "exercise": "exercises/{}/exercise.ipynb",
    "solution": "solutions/{}/exercise.ipynb",
}


def stage(course: Path, folder: Path) -> None:
    """Make all notebooks and the start page of `course` in `folder`, and those that nbgrader reads.

    Raises:
        SourceError: a file in source/ has a mistake, or is not there.
    """
    topics = _topics(course)
    if not topics:
        raise SourceError(
            f"{course} has no source/NN_topic/lecture.py or exercise.py: it is not the course's top folder."
        )
    for topic in topics:
        _stage_topic(course, topic, folder)
    for text in sorted(course.glob("source/play/*.py")):
        _write_notebook(text, folder / "play")
    (folder / START_PAGE).write_text(start_page(course, folder), encoding="utf-8")


def _topics(course: Path) -> list[str]:
    return sorted({path.parent.name for path in course.glob("source/[0-9][0-9]_*/*.py")})


def _stage_topic(course: Path, topic: str, folder: Path) -> None:
    source = course / "source" / topic
    if (source / "lecture.py").exists():
        _write_notebook(source / "lecture.py", folder / "lectures" / topic, folded=True)
    if (source / "exercise.py").exists():
        shutil.copytree(source, folder / "source" / topic, ignore=shutil.ignore_patterns("*.ipynb", ".*"))
        _write_notebook(source / "exercise.py", folder / "source" / topic)
        _convert(GenerateAssignment, course, topic, folder)
        _convert(_GenerateSolution, course, topic, folder)


class _GenerateSolution(GenerateSolution):
    """nbgrader's own, but that it does not look for the assignment in a gradebook."""

    def init_assignment(self, assignment_id: str, student_id: str) -> None:
        BaseConverter.init_assignment(self, assignment_id, student_id)


def _write_notebook(text: Path, folder: Path, folded: bool = False) -> None:
    """Write a notebook; a lecture is `folded`: it asks for predictions before a cell shows its output."""
    folder.mkdir(parents=True, exist_ok=True)
    notebook = read(text, f"source/{text.parent.name}/{text.name}")
    for cell in notebook.cells if folded else []:
        if cell.cell_type == "code":
            cell.metadata.update(FOLDED)
    nbformat.write(notebook, folder / f"{text.stem}.ipynb")


def _convert(converter_class: type[BaseConverter], course: Path, topic: str, folder: Path) -> None:
    config = PyFileConfigLoader("nbgrader_config.py", str(course)).load_config()
    config.CourseDirectory.root = str(folder)
    coursedir = CourseDirectory(config=config, assignment_id=topic)
    config.GenerateAssignment.no_database = True
    converter = converter_class(coursedir=coursedir, config=config)
    converter.preprocessors = [step for step in converter.preprocessors if step not in LEFT_OUT]
    result = capture_log(converter)
    if not result["success"]:
        reason = result.get("log") or result["error"]
        raise SourceError(
            f"source/{topic}/exercise.py: nbgrader's {converter_class.__name__} failed:\n{reason}"
        )


def start_page(course: Path, folder: Path, kinds: Sequence[str] = tuple(NOTEBOOKS)) -> str:
    """Return source/index.md, with a table of the notebooks in `folder` in place of its marker.

    Raises:
        SourceError: it is not there, or has no such place.
    """
    template = course / "source" / START_PAGE
    if not template.exists():
        raise SourceError(f"source/{START_PAGE}, the text of the start page, is missing.")
    text = template.read_text(encoding="utf-8")
    if TOPICS_MARKER not in text:
        raise SourceError(
            f"source/{START_PAGE}: the line {TOPICS_MARKER}, where the table of topics goes, is missing."
        )
    headings = " | ".join(HEADINGS.get(kind, kind) for kind in kinds)
    head = f"| topic | {headings} |\n|{'---|' * (1 + len(kinds))}"
    rows = [_row(topic, folder, kinds) for topic in _topics(course)]
    return text.replace(TOPICS_MARKER, "\n".join([head, *rows]))


def _row(topic: str, folder: Path, kinds: Sequence[str]) -> str:
    paths = {kind: NOTEBOOKS[kind].format(topic) for kind in kinds}
    existing = {kind: path for kind, path in paths.items() if (folder / path).exists()}
    links = [f"[{kind}]({existing[kind]})" if kind in existing else "" for kind in kinds]
    title = _title(folder / next(iter(existing.values())))
    return f"| {' | '.join([title, *links])} |"


def _title(notebook: Path) -> str:
    """Return the first heading of a notebook, or else the name of its topic."""
    for cell in nbformat.read(notebook, as_version=4).cells:
        for line in cell.source.splitlines():
            if cell.cell_type == "markdown" and line.startswith("# "):
                return line.removeprefix("# ").strip()
    return notebook.parent.name
