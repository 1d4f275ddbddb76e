"""The exercises' solutions, and a shelf of wrong ones, as the checks of a notebook get them.

`wrong_solutions/NN_topic/` has one module for each check of the topic, with one mistake in each function or
class of it, and `common.py` with helpers that are right. A module's `FAILS_AS` names the mistake that the
check must find (some depend on which rank comes first) and a phrase of the hint. Modules and solutions are
executed as a notebook's cells are, so that ranks get the code by value.
"""

import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import ClassVar

import jupytext
import pytest

from autograder import check
from autograder.inside.worlds import Worlds
from autograder.kit.mistakes import Mistake
from autograder.kit.student import NotebookFunction
from autograder.kit.verdict import CheckFailed

SOURCE = Path(__file__).parents[2] / "source"
SHELF = Path(__file__).parent / "wrong_solutions"


def cells(topic: str, wanted: Callable[[dict], bool]) -> list[str]:
    """Code cells of a topic's exercise, chosen by their nbgrader metadata."""
    found = jupytext.read(SOURCE / topic / "exercise.py").cells
    return [c.source for c in found if c.cell_type == "code" and wanted(c.metadata.get("nbgrader", {}))]


def names(source: str, filename: str) -> dict:
    """The definitions of some code when it is run as a notebook's cell is."""
    defined = {"__name__": "__main__"}
    exec(_compiled(source, f"<{filename}>"), defined)
    return defined


# Each test of a wrong solution executes the whole shelf, so its compiled code is kept.
_compiled = functools.cache(functools.partial(compile, mode="exec"))


def solutions(topic: str) -> dict:
    """The definitions of the solved cells of a topic's exercise."""
    lines = "\n\n".join(cells(topic, is_needed)).splitlines()
    return names("\n".join(line for line in lines if not line.startswith("%")), "exercise")


def is_needed(cell: dict) -> bool:
    """Whether this is a cell that a solution consists of: the imports, or one that students fill in."""
    return bool(cell.get("solution")) or cell.get("grade_id") == "setup"


def sources(topic: str, operations: Iterable[str]) -> list[str]:
    """The modules of wrong solutions for these checks, behind the one with their helpers."""
    files = [SHELF / topic / f"{name}.py" for name in ("common", *operations)]
    return [file.read_text() for file in files if file.exists()]


def wrong_solutions(topic: str, operation: str) -> dict:
    """The definitions of the module of wrong solutions for this check."""
    return names("\n".join(sources(topic, [operation])), operation)


class Mistaken(NotebookFunction):
    """The handle to a wrong solution; ranks that a check leaves serve the next one, of the same libraries."""

    _kept: ClassVar[tuple[tuple[str, ...], Worlds]] = ((), Worlds())

    def forbid(self, libraries: Sequence[str]) -> None:
        forbidden, worlds = self._kept
        if forbidden != tuple(libraries):
            worlds.release()
            worlds.forbid(libraries)
            Mistaken._kept = tuple(libraries), worlds
        self._worlds = worlds

    def release(self) -> None:
        """Keep the ranks, until `release_all`."""

    @classmethod
    def release_all(cls) -> None:
        """End the ranks that are kept."""
        cls._kept[1].release()


def mistaken(topic: str, operation: str, name: str) -> Mistaken:
    """The handle to a wrong solution."""
    return Mistaken(wrong_solutions(topic, operation)[name])


def operations(topic: str) -> list[str]:
    """The checks of a topic that have wrong solutions: all of them have."""
    return sorted(path.stem for path in (SHELF / topic).glob("*.py") if path.stem != "common")


def failure_of(operation: str, *code: object, **limits: object) -> CheckFailed:
    """The failure that the check of this operation must end in."""
    with pytest.raises(CheckFailed) as caught:
        getattr(check, operation)(*code, **limits)
    return caught.value


def name_of(mistake: Mistake) -> str:
    """The constant that holds this mistake."""
    modules = (module for name, module in sys.modules.items() if name.endswith("mistakes"))
    return next(name for module in modules for name, value in vars(module).items() if value is mistake)
