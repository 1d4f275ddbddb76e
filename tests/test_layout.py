"""Imports go one way, lazy ones, too; each class has a name of its own, each docstring a verb."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

COURSE = Path(__file__).parents[1]
STARTERS = {"fourranks.zygote_process", "fourranks.spawn"}  # their processes become ranks
# Called by readers: these hand out views. All else computes, and does not know how it is shown.
FRONT = {"fourranks", "fourranks.magics", "fourranks.group"}
SHOWS = ("fourranks.views", "fourranks.figures", "fourranks.puzzles")
# Used by boards: all three have to run in a page, without torch and matplotlib.
OF_PUZZLES = ("fourranks.views.palette", "fourranks.views.picture")
# Rooms of `autograder`, and which others they may import. The code beside a student's uses nothing that
# decides about points.
GIVEN = (  # to students
    "autograder.unsharded",
    "autograder.three_d",
    "autograder.on_paper",
    "autograder.capstone",
)
ROOMS = {
    "autograder.inside": GIVEN,
    "autograder.kit": ("autograder.inside",),
    "autograder.sandbox": ("autograder.inside", "autograder.kit"),
    "autograder.topics": ("autograder.inside", "autograder.kit", *GIVEN),
}

Graph = dict[str, set[str]]  # by module, the modules of both packages that it imports


def modules(course: Path) -> dict[str, Path]:
    """Find the modules of both packages, by their names."""
    paths = [path for package in ("fourranks", "autograder") for path in (course / package).rglob("*.py")]
    return {_name(path.relative_to(course)): path for path in paths}


def _name(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def graph(course: Path) -> Graph:
    """Read which module imports which; a name from a package counts as its module where it is one."""
    found = modules(course)
    return {
        name: {target for target in _imported(name, path, found) if target in found} - {name}
        for name, path in found.items()
    }


def _imported(name: str, path: Path, found: dict[str, Path]) -> Iterator[str]:
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            outer = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            base = ".".join([*outer, node.module] if node.module else outer)
            for alias in node.names:
                yield module if (module := f"{base}.{alias.name}") in found else base


def is_in(module: str, *rooms: str) -> bool:
    return any(module == room or module.startswith(f"{room}.") for room in rooms)


def cycle(imports: Graph) -> list[str]:
    """Find modules that import each other, the first one again at the end; none if none do."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def forbidden(imports: Graph) -> list[tuple[str, str]]:
    """List the imports that go the wrong way."""
    arrows = [(name, to) for name, all_to in sorted(imports.items()) for to in sorted(all_to)]
    return [arrow for arrow in arrows if _is_forbidden(*arrow)]


def _is_forbidden(name: str, to: str) -> bool:
    if is_in(name, "autograder"):
        return _leaves_its_room(name, to)
    if is_in(to, "autograder"):
        return True
    if is_in(name, "fourranks.puzzles"):
        return not is_in(to, "fourranks.puzzles", *OF_PUZZLES)
    if is_in(to, "fourranks.rank"):
        return not is_in(name, "fourranks.rank") and name not in STARTERS
    for room in ("fourranks.figures", "fourranks.learner"):
        if is_in(to, room):
            return not is_in(name, room)
    if is_in(to, "fourranks.views"):
        return not is_in(name, *SHOWS) and name not in FRONT
    if is_in(name, "fourranks.protocol"):
        return not is_in(to, "fourranks.protocol")
    return False


def _leaves_its_room(name: str, to: str) -> bool:
    """Tell whether a module of `autograder` imports what its room may not."""
    own = next((room for room in ROOMS if is_in(name, room)), None)
    return own is not None and is_in(to, "autograder") and not is_in(to, own, *ROOMS[own])


def test_no_modules_import_each_other():
    assert cycle(graph(COURSE)) == []


def test_imports_go_one_way():
    assert forbidden(graph(COURSE)) == []


def test_the_name_of_a_class_has_one_meaning():
    """With an underscore or without; students are given classes of their own, such as a Plan to fill in."""
    names = Counter(
        node.name.removeprefix("_")
        for name, path in modules(COURSE).items()
        if not is_in(name, *GIVEN)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []


def described(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the name and the docstring of each public function and method but properties."""
    for node in ast.iter_child_nodes(tree):
        is_public = isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
        if is_public and isinstance(node, ast.ClassDef):
            yield from described(node)
        elif is_public and not any("property" in ast.unparse(each) for each in node.decorator_list):
            yield node.name, ast.get_docstring(node) or ""


def test_docstrings_of_public_functions_open_with_a_verb():
    # Ruff's D401 finds verbs in another form, but few of these.
    noun = re.compile(r"(What|Whether|Of|How|Who|Each|The|A|An|One)\b")
    found = [
        (name, *each)
        for name, path in modules(COURSE).items()
        for each in described(ast.parse(path.read_text("utf-8")))
    ]
    assert found and [each for each in found if noun.match(each[-1])] == []


def test_docstrings_do_not_open_with_what_or_who():
    described_by = (ast.Module, ast.ClassDef, ast.FunctionDef)
    opened = [
        (path.relative_to(COURSE).as_posix(), (ast.get_docstring(node) or "").partition("\n")[0])
        for folder in ("autograder", "benchmarks", "fourranks", "tests", "tools", "website")
        for path in (COURSE / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, described_by)
    ]
    assert [each for each in opened if re.match(r"(What|Who)(m|ever)?\b", each[-1])] == []


@pytest.fixture
def course(tmp_path):
    """The names of both packages' modules, in files that import nothing."""
    for name, path in modules(COURSE).items():
        copy = tmp_path / path.relative_to(COURSE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(f"NAME = {name!r}\n")
    return tmp_path


@pytest.mark.parametrize(
    "statement",
    [
        "import fourranks.trace.spans",
        "from .spans import Span",
        "from . import spans",
        "from ..trace import spans",
        "from fourranks.trace.spans import Span",
        "def later():\n    from .spans import Span",
        "if TYPE_CHECKING:\n    from .spans import Span",
    ],
)
def test_a_cycle_is_found_in_every_form(course, statement):
    (course / "fourranks/trace/chrome.py").write_text(statement)
    assert cycle(graph(course)) == []
    (course / "fourranks/trace/spans.py").write_text("from .chrome import write")
    assert set(cycle(graph(course))) == {"fourranks.trace.chrome", "fourranks.trace.spans"}


@pytest.mark.parametrize(
    ("name", "to"),
    [
        ("fourranks.watch", "autograder.kit.judge"),
        ("fourranks.watch", "fourranks.rank.recorder"),
        ("fourranks.trace", "fourranks.rank"),
        ("fourranks.views.steps", "fourranks.rank.variable"),
        ("fourranks.trace", "fourranks.views.timeline"),
        ("fourranks.diagnosis", "fourranks.views.deadlock"),
        ("fourranks.rank.main", "fourranks.views.output"),
        ("fourranks.views.steps", "fourranks.figures.lines"),
        ("fourranks.bench", "fourranks.figures.alpha_beta"),
        ("fourranks.puzzles.svg", "fourranks.views.style"),
        ("fourranks.puzzles.board", "fourranks.trace"),
        ("fourranks.figures.lines", "fourranks.learner.model"),
        ("fourranks.protocol.progress", "fourranks.trace"),
        ("fourranks.protocol.messages", "fourranks.errors"),
        ("autograder.inside.witness", "autograder.kit.judge"),
        ("autograder.inside.drivers.calls", "autograder.topics.collectives.checks"),
        ("autograder.kit.verdict", "autograder.topics.collectives.mistakes"),
        ("autograder.sandbox.usage", "autograder.grading.referee"),
        ("autograder.topics.collectives.checks", "autograder.sandbox.student_process"),
    ],
)
def test_an_import_that_goes_the_wrong_way_is_found(course, name, to):
    modules(course)[name].write_text(f"import {to}")
    assert forbidden(graph(course)) == [(name, to)]


@pytest.mark.parametrize(
    ("name", "to"),
    [
        ("autograder.kit.judge", "fourranks.trace"),
        ("autograder.grading.referee", "autograder.sandbox.student_process"),
        (
            "autograder.topics.sharded_data_parallelism.fully_sharded",
            "autograder.topics.data_parallelism.gradients",
        ),
        ("fourranks.spawn", "fourranks.rank.main"),
        ("fourranks.rank.main", "fourranks.rank.shell"),
        ("fourranks.magics", "fourranks.views.output"),
        ("fourranks.puzzles.svg", "fourranks.views.palette"),
        ("fourranks.figures.playgrounds", "fourranks.puzzles.pipeline"),
        ("fourranks.figures.lines", "fourranks.views.style"),
    ],
)
def test_an_import_that_goes_the_right_way_is_allowed(course, name, to):
    modules(course)[name].write_text(f"import {to}")
    assert forbidden(graph(course)) == []
