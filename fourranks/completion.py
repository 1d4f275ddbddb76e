"""Tab and Shift-Tab in the notebook's cells for the ranks: answered from rank 0's variables.

`magics` installs this in the notebook's shell. Where rank 0 cannot answer (there is no world yet, it is busy
or gone), the notebook answers as in any other cell. On the lines of `%ranks` and `%%ranks` themselves Tab
offers their actions, options and variables (`commands`).
"""

from __future__ import annotations

import builtins
import functools
import keyword
import re
from collections.abc import Callable
from typing import Any

from IPython.core.completer import (
    CompletionContext,
    SimpleCompletion,
    SimpleMatcherResult,
    context_matcher,
    cursor_to_position,
)
from IPython.core.getipython import get_ipython
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.tokenutil import token_at_cursor

from . import commands, current, every_cell
from .protocol.messages import Complete, Inspect

_FIRST_LINE = re.compile(r"\s*%%ranks\b.*\n")
_COMMAND = re.compile(r"\s*%%?ranks\s")


def install(shell: InteractiveShell) -> None:
    """Let Tab and Shift-Tab ask rank 0."""
    remove(shell)  # `%reload_ext`
    shell.Completer.custom_matchers += [_match, _match_command]
    kernel = getattr(shell, "kernel", None)
    if kernel is not None:  # a terminal has none, and no Shift-Tab
        kernel.do_inspect = functools.partial(_inspect, shell, kernel.do_inspect)


def remove(shell: InteractiveShell) -> None:
    """Undo `install`."""
    if _match in shell.Completer.custom_matchers:
        shell.Completer.custom_matchers.remove(_match)
        shell.Completer.custom_matchers.remove(_match_command)
        vars(getattr(shell, "kernel", None) or _match).pop("do_inspect", None)


# Both first, so that others need not run in vain. IPython's decorator has no types.
@context_matcher(priority=1000)  # type: ignore[untyped-decorator]
def _match(context: CompletionContext) -> SimpleMatcherResult:
    """Complete for IPython: return what rank 0 would offer, and only that."""
    cursor = cursor_to_position(context.full_text, context.cursor_line, context.cursor_position)
    fragment, found = _ask(Complete, context.full_text, cursor) or ("", [])
    offered = [SimpleCompletion(text, type=kind) for text, kind in found]
    return SimpleMatcherResult(completions=offered, matched_fragment=fragment, suppress=bool(offered))


@context_matcher(priority=1000)  # type: ignore[untyped-decorator]
def _match_command(context: CompletionContext) -> SimpleMatcherResult:
    """Complete a `%ranks` or `%%ranks` line for IPython."""
    line = context.full_text.split("\n")[context.cursor_line][: context.cursor_position]
    if not _COMMAND.match(line):
        return SimpleMatcherResult(completions=[], suppress=False)
    fragment, words = commands.completions(line, _names_of_the_notebook, _names_of_the_ranks)
    return SimpleMatcherResult(
        completions=[SimpleCompletion(word, type=commands.kind_of(word)) for word in words],
        matched_fragment=fragment,
        suppress=bool(words),
    )


def _names_of_the_notebook(beginning: str) -> list[str]:
    shell = get_ipython()
    names: list[str] = shell.run_line_magic("who_ls", "") if shell is not None else []
    return names


def _names_of_the_ranks(beginning: str) -> list[str]:
    builtin = {*dir(builtins), *keyword.kwlist}
    return [name for name in current.names_of_rank_0(beginning) if name not in builtin]


def _inspect(
    shell: InteractiveShell,
    elsewhere: Callable[..., dict[str, Any]],
    code: str,
    cursor_pos: int,
    detail_level: int = 0,
    omit_sections: Any = (),
) -> dict[str, Any]:
    """Answer the kernel's `do_inspect` with what rank 0 knows of the name at the cursor."""

    def question(source: str, cursor: int) -> Inspect:
        return Inspect(token_at_cursor(source, cursor), detail_level, tuple(omit_sections))

    data = _ask(question, code, cursor_pos)
    if data is None:
        return elsewhere(code, cursor_pos, detail_level, omit_sections)
    if not shell.enable_html_pager:
        data.pop("text/html", None)
    return {"status": "ok", "found": bool(data), "data": data, "metadata": {}}


def _ask(question: Callable[[str, int], Any], code: str, cursor: int) -> Any:
    """Return rank 0's answer about a place in a cell for the ranks; None if there is none."""
    begin = _begin(code)
    if begin is None or cursor < begin or not current.has_world():
        return None
    return current.world().ask(question(code[begin:], cursor - begin))


def _begin(code: str) -> int | None:
    """Return where a cell's code for the ranks begins; None if it has none."""
    if first_line := _FIRST_LINE.match(code):
        return first_line.end()
    shell = get_ipython()
    return 0 if shell is not None and every_cell.takes(shell, code) else None
