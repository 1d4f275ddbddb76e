"""Optional parts of lectures can be skipped: no later cell needs a name that one of them defined last."""

import ast
import re
import symtable
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

COURSE = Path(__file__).parents[1]
TOPICS = sorted(path.parent.name for path in COURSE.glob("source/*/lecture.py"))
ON_RANKS = ("execute", "pull")  # methods of a world whose text runs on the ranks


class Cell(NamedTuple):
    """Code, where it runs, and whether it belongs to an optional part."""

    code: str
    on_ranks: bool
    optional: bool


def cells(source: str) -> Iterator[Cell]:
    """A lecture's code cells. A part is optional from its heading to the next one of its level or above."""
    optional_level = 0
    for cell in re.split(r"^# %%(?!ranks)", source, flags=re.MULTILINE)[1:]:
        kind, _, body = cell.partition("\n")
        if "[markdown]" not in kind:
            code = re.sub(r"^\s*[%!].*$", "", body, flags=re.MULTILINE)
            yield Cell(code, body.lstrip().startswith("# %%ranks"), optional_level > 0)
            continue
        for level, below in re.findall(r"^# (#+) [^\n]*\n((?:#[^#\n]*(?:\n|$))*)", body, re.MULTILINE):
            if optional_level >= len(level):
                optional_level = 0
            if not optional_level and re.match(r"#\n# \*Optional", below):
                optional_level = len(level)


def defined(code: str) -> set[str]:
    """Names that a cell gives a value."""
    symbols = symtable.symtable(code, "cell", "exec").get_symbols()
    return {one.get_name() for one in symbols if one.is_assigned() or one.is_imported()}


def needed(code: str) -> set[str]:
    """Names that a cell reads, its functions included, and does not define."""
    tables, names = [symtable.symtable(code, "cell", "exec")], set()
    while tables:
        table = tables.pop()
        tables += table.get_children()
        at_top = table.get_type() == "module"
        names |= {
            one.get_name()
            for one in table.get_symbols()
            if one.is_referenced() and (at_top or one.is_global())
        }
    return names - defined(code)


def sent_to_ranks(code: str) -> Iterator[str]:
    """Code that a cell of the notebook hands to the ranks as a text."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ON_RANKS:
            yield from (
                one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)
            )


def dependences(source: str) -> list[str]:
    """Names that cells outside of optional parts have from one."""
    last_is_optional: dict[tuple[bool, str], bool] = {}
    found = []
    for cell in cells(source):
        reads = {(cell.on_ranks, name) for name in needed(cell.code)}
        if not cell.on_ranks:
            reads |= {(True, name) for text in sent_to_ranks(cell.code) for name in needed(text)}
        if not cell.optional:
            found += [name for on_ranks, name in sorted(reads) if last_is_optional.get((on_ranks, name))]
        last_is_optional |= {(cell.on_ranks, name): cell.optional for name in defined(cell.code)}
    return found


@pytest.mark.parametrize("topic", TOPICS)
def test_a_lecture_runs_without_its_optional_parts(topic):
    assert dependences((COURSE / "source" / topic / "lecture.py").read_text()) == []


LECTURE = """
# %% [markdown]
# ## 1. A part
#
# Text.

# %%
# %%ranks
kept = 1

# %% [markdown]
# ## 2. Another
#
# *Optional: the exercise does not need it.*

# %%
# %%ranks
kept = extra = 2

# %% [markdown]
# {heading}
#
# Text.

# %%
{last}
"""


@pytest.mark.parametrize(
    ("heading", "last", "expected"),
    [
        ("## 3. After it", "# %%ranks\nprint(extra)", ["extra"]),
        ("## 3. After it", "# %%ranks\ndef later():\n    return extra", ["extra"]),
        ("## 3. After it", 'world.pull("extra")', ["extra"]),
        ("## 3. After it", "# %%ranks\nprint(kept)", ["kept"]),
        ("## 3. After it", "# %%ranks\nextra = 3\nprint(extra)", []),
        ("## 3. After it", "print(extra)", []),
        ("### Still in it", "# %%ranks\nprint(extra)", []),
    ],
    ids=["read", "read by a function", "pulled", "changed in it", "made again", "of the notebook", "within"],
)
def test_what_a_cell_has_from_an_optional_part_is_found(heading, last, expected):
    assert dependences(LECTURE.format(heading=heading, last=last)) == expected
