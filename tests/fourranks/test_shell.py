"""A rank's shell reads each cell as IPython does, though it looks less often for what few cells have."""

from pathlib import Path

import jupytext
import pytest
from IPython.core.inputtransformer2 import TransformerManager

from fourranks.errors import RankError

SOURCE = Path(__file__).parents[2] / "source"
IPYTHONS = [
    "%time 1",
    "if True:\n    %time 1",
    "%%time\nx = '?'",
    "files = !ls",
    "files = %sx ls",
    "!ls | wc",
    "!!ls",
    "len?",
    "?len",
    "x = 1\nlen??",
    "/print 1",
    ",print a b",
    "  ;print a b",
    "a = [1\n, 2]\nb = 7 % 3",
    "# why?\n  # %time 1\nx = 1",
    "# why?\r%time 1",
    "x = 1  # why?\n%time x",
    "'a\\\n# b?'\nx?",
    ">>> x = 1\n... y = 2",
    "In [1]: x = 1",
    "\n\n    x = 1",
    "'''unfinished",
    "x = (",
    "x = '''\n%time 1\n'''",
    "print(f'{1:%}', 'really?')",
    "",
]
OWN_TRANSFORMER = """
from IPython.core.inputtransformer2 import TokenTransformBase
class Nine(TokenTransformBase):
    "Has `nine` mean 9."
    @classmethod
    def find(cls, tokens_by_line):
        return next((cls(t.start) for line in tokens_by_line for t in line if t.string == "nine"), None)
    def transform(self, lines):
        return ["".join(lines).replace("nine", "9", 1)]
get_ipython().input_transformer_manager.token_transformers.append(Nine)
"""


def transformed(cells, shell=None):
    """The Python of each cell, or the name of the error that it is refused with."""
    from IPython import get_ipython

    python = []
    for cell in cells:
        try:
            python.append((shell or get_ipython()).transform_cell(cell))
        except SyntaxError as error:
            python.append(type(error).__name__)
    return python


@pytest.fixture(scope="module")
def written() -> list[str]:
    """Every cell of the course, and one of each kind that only IPython understands."""
    notebooks = [jupytext.read(path) for path in SOURCE.glob("*/*.py")]
    return IPYTHONS + [
        cell.source for notebook in notebooks for cell in notebook.cells if cell.cell_type == "code"
    ]


def test_a_cell_becomes_the_python_that_ipython_makes_of_it(shared_group, written):
    on_rank = shared_group.run(transformed, written)[0]
    assert on_rank == transformed(written, TransformerManager())


def test_a_transformer_of_the_reader_s_own_is_used(group):
    group.execute(OWN_TRANSFORMER)
    assert str(group.execute("nine + nine")) == "[0-3] 18"


@pytest.mark.parametrize(
    "cell",
    [
        "await asyncio.sleep(0, 5)",
        "[x async for x in five()][0]",
        "async with nothing:\n    pass\n5",
    ],
)
def test_a_cell_awaits_at_its_top_level(shared_group, cell):
    shared_group.execute(
        "import asyncio, contextlib\nnothing = contextlib.nullcontext()\nasync def five():\n    yield 5"
    )
    assert shared_group.execute(cell).text(0).splitlines()[-1].endswith("5")


def test_the_traceback_of_a_recursion_without_end_takes_no_look_at_all_modules_for_each_frame(group):
    group.execute(
        "import inspect\n"
        "looks, is_module = 0, inspect.ismodule\n"
        "def counted(thing):\n"
        "    global looks\n"
        "    looks += 1\n"
        "    return is_module(thing)\n"
        "inspect.ismodule = counted\n"
        "def endless(n):\n"
        "    return endless(n + 1)"
    )
    with pytest.raises(RankError, match="RecursionError") as caught:
        group.execute("endless(0)", ranks=[0])
    assert "endless(n + 1)" in str(caught.value)
    modules, looks = group.pull("(len(__import__('sys').modules), looks)", ranks=[0])[0]
    assert looks < 100 * modules, "a recursion has a thousand frames"
