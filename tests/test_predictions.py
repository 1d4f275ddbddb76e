"""A reader may write anything in place of `None`: no lecture stops at a prediction.

Lectures hand predictions only to functions that take whatever a reader writes, and never compute with them,
look into them or go through their names. Tests of `fourranks.figures` try odd answers on these functions.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

COURSE = Path(__file__).parents[1]
TOPICS = sorted(path.parent.name for path in COURSE.glob("source/*/lecture.py"))
TAKE_ANYTHING = {
    "answers",
    "compare",
    "curves",
    "links",
    "predicted",
    "ratios",
    "roofline",
    "scaled",
    "sizes",
}
PASSED_ON = (ast.Dict, ast.keyword)  # a dictionary of predictions for a figure, an argument with a name


def code_cells(source: str) -> Iterator[ast.Module]:
    """The cells that run in the notebook itself."""
    for cell in re.split(r"^# %%(?= ?\n)", source, flags=re.MULTILINE)[1:]:
        code = re.split(r"^# %% ", cell, flags=re.MULTILINE)[0]  # up to a cell of another kind
        if not code.lstrip().startswith("# %%ranks"):
            yield ast.parse(re.sub(r"^\s*[%!].*$", "", code, flags=re.MULTILINE))


def asked(cell: ast.Module) -> set[str]:
    """Names of a cell that only asks for predictions: each of its values is written out and has a None."""
    if not cell.body or not all(isinstance(line, ast.Assign) for line in cell.body):
        return set()
    try:
        for line in cell.body:
            ast.literal_eval(line.value)
    except ValueError:
        return set()
    targets = [name for line in cell.body for name in ast.walk(line.targets[0]) if isinstance(name, ast.Name)]
    return {name.id for name in targets} if all(map(_has_none, cell.body)) else set()


def _has_none(line: ast.AST) -> bool:
    return any(isinstance(node, ast.Constant) and node.value is None for node in ast.walk(line))


def other_uses(source: str) -> list[str]:
    """Uses of predictions as anything but an argument of a function that takes any answer."""
    predictions: set[str] = set()
    found = []
    for cell in code_cells(source):
        if new := asked(cell):
            predictions |= new
            continue
        parents = {child: node for node in ast.walk(cell) for child in ast.iter_child_nodes(node)}
        for node in ast.walk(cell):
            if isinstance(node, ast.Name) and node.id in predictions:
                if isinstance(node.ctx, ast.Store):
                    predictions.discard(node.id)  # the name is something else from here on
                elif not _is_handed_on(node, parents):
                    found.append(ast.unparse(parents[node]))
    return found


def _is_handed_on(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    above = parents[node]
    while isinstance(above, PASSED_ON):
        node, above = above, parents[above]
    if isinstance(above, ast.Assign):
        return ast.unparse(above.targets[0]) == "yours"
    function = above.func if isinstance(above, ast.Call) else None
    return (
        node is not function and ast.unparse(function).split(".")[-1] in TAKE_ANYTHING if function else False
    )


@pytest.mark.parametrize("topic", TOPICS)
def test_a_lecture_hands_predictions_only_to_functions_that_take_any_answer(topic):
    assert other_uses((COURSE / "source" / topic / "lecture.py").read_text()) == []


@pytest.mark.parametrize(
    "use",
    ["4 * guess", "guess and 2", "guess['a']", "for name in guess:\n    pass", "{guess: 1}['a']", "guess()"],
)
def test_other_uses_of_predictions_are_found(use):
    assert other_uses(f"# %%\nguess = None  # your prediction\n\n# %%\n{use}\n") != []


def test_every_lecture_asks_for_predictions():
    for topic in TOPICS:
        cells = code_cells((COURSE / "source" / topic / "lecture.py").read_text())
        assert len(set().union(*map(asked, cells))) >= 4, topic
