"""Colours a notebook's cells: Python, and the lines for IPython in it, which are none."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pygments.lexer import inherit
from pygments.lexers import PythonLexer
from pygments.token import Comment

if TYPE_CHECKING:
    from sphinx.application import Sphinx

NAME = "cell"


class CellLexer(PythonLexer):
    """Python with magics and with commands for the shell, which take one line each."""

    name = NAME
    tokens: ClassVar = {"root": [(r"^[ \t]*(!|%%?\w)[^\n]*\n", Comment.Preproc), inherit]}


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the lexer."""
    app.add_lexer(NAME, CellLexer)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
