"""`%ranks auto`: a cell that begins with code runs on the ranks, as if `%%ranks` stood above it."""

from __future__ import annotations

from IPython.core.interactiveshell import InteractiveShell

_OF_THE_NOTEBOOK = ("%", "!", "?")  # how cells begin that stay there: magics, commands of the shell, help


def turn_on(shell: InteractiveShell) -> None:
    """Let cells run on the ranks from the next one on."""
    if not is_on(shell):
        shell.input_transformer_manager.line_transforms.insert(0, _with_magic)


def turn_off(shell: InteractiveShell) -> None:
    """Undo `turn_on`."""
    if is_on(shell):
        shell.input_transformer_manager.line_transforms.remove(_with_magic)


def is_on(shell: InteractiveShell) -> bool:
    """Tell whether cells run on the ranks."""
    return _with_magic in shell.input_transformer_manager.line_transforms


def takes(shell: InteractiveShell, cell: str) -> bool:
    """Tell whether this cell runs on the ranks although no magic says so."""
    return is_on(shell) and _begins_with_code(cell)


def _begins_with_code(cell: str) -> bool:
    """Tell whether the first line of a cell, apart from comments, is one of Python."""
    lines = (line.strip() for line in cell.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return bool(first) and not first.startswith(_OF_THE_NOTEBOOK)


def _with_magic(lines: list[str]) -> list[str]:
    return ["%%ranks\n", *lines] if _begins_with_code("".join(lines)) else lines
