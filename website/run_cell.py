"""Runs a cell as a notebook does. The page's worker calls this in a browser, by Pyodide."""

from __future__ import annotations

import ast
from contextlib import redirect_stderr, redirect_stdout
from html import escape
from io import StringIO
from traceback import format_exception
from types import CodeType
from typing import Any

CELL = "<cell>"
NAMES: dict[str, Any] = {"__name__": "__main__"}  # what cells have defined


def run(source: str) -> str:
    """Run a cell and return what it shows, as HTML: prints, the value of its last line, an error."""
    printed = StringIO()
    try:
        with redirect_stdout(printed), redirect_stderr(printed):
            shown = _shown(_value(ast.parse(source, CELL).body))
    except BaseException as error:  # a cell may call exit()
        shown = _preformatted(_told(error))
    return _preformatted(printed.getvalue()) + shown


def _value(statements: list[ast.stmt]) -> Any:
    last = statements[-1] if statements else None
    if not isinstance(last, ast.Expr):
        exec(_compiled(ast.Module(statements, []), "exec"), NAMES)
        return None
    exec(_compiled(ast.Module(statements[:-1], []), "exec"), NAMES)
    return eval(_compiled(ast.Expression(last.value), "eval"), NAMES)


def _compiled(tree: ast.Module | ast.Expression, mode: str) -> CodeType:
    code: CodeType = compile(tree, CELL, mode)
    return code


def _shown(value: Any) -> str:
    if value is None:
        return ""
    bundle = value._repr_mimebundle_() if hasattr(value, "_repr_mimebundle_") else {}
    return str(bundle["text/html"]) if "text/html" in bundle else _preformatted(repr(value))


def _told(error: BaseException) -> str:
    """Return the traceback from the cell on."""
    trace = error.__traceback__
    while trace and trace.tb_frame.f_code.co_filename != CELL:
        trace = trace.tb_next
    return "".join(format_exception(type(error), error, trace))


def _preformatted(text: str) -> str:
    return f'<pre class="stream">{escape(text)}</pre>' if text else ""
