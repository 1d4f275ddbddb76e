"""The outcome of a cell, as outputs of a notebook: made by `referee`, read by reports of one line."""

from __future__ import annotations

import base64
import contextlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nbformat import NotebookNode
from nbformat.v4 import new_output

from autograder.grading.pictures import MAX_PIXELS
from autograder.kit.text import line, shortened, visible
from fourranks.protocol.remote_error import plain

if TYPE_CHECKING:
    from autograder.kit.verdict import Verdict
    from autograder.sandbox.student_process import Shown

MAX_TEXT = 100_000  # characters of what a cell prints or displays at a time
MAX_ERROR = 20_000  # and of an error's message, and of its traceback
TERMINAL = "\n\t\r\b\x1b"  # a page shows these as a terminal does: progress bars and colours
CHECK_FAILED = "CheckFailed"  # the exception of `kit.verdict`, which takes a second to import
COST = "cost"  # where the metadata of a display say what a check has cost
VERDICT = "verdict"  # where the metadata of a table say what a check found
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR"  # how each begins
_PNG_HEADER = struct.Struct(f"!{len(PNG)}sII")  # then come its width and height


def of_student_cell(shown: Shown) -> list[NotebookNode]:
    """Show what a student's cell showed, as text and pictures: nothing that a browser would run."""
    outputs = [printed(shown.text)] if shown.text else []
    for display in shown.displays:
        data = {kind: value for kind, value in display.items() if _is_harmless(kind, value)}
        if "text/plain" in data:
            data["text/plain"] = _legible(data["text/plain"], MAX_TEXT, TERMINAL)
        outputs += [new_output("display_data", data=data)] if data else []
    if shown.error is not None:
        fields = [shown.error.get(name, "") for name in ("name", "message", "traceback")]
        outputs.append(raised(*fields))
    return outputs


def printed(text: str) -> NotebookNode:
    """Show text on standard output."""
    return new_output("stream", name="stdout", text=_legible(text, MAX_TEXT, TERMINAL))


def raised(name: str, message: str, traceback: str) -> NotebookNode:
    """Show an exception, which nbgrader gives no points for."""
    lines = _legible(plain(traceback), MAX_ERROR).splitlines()
    return new_output("error", ename=line(name), evalue=_legible(plain(message), MAX_ERROR), traceback=lines)


def failed(verdict: Verdict) -> list[NotebookNode]:
    """Show a failed check: its table, and the exception."""
    return [_table(verdict), raised(CHECK_FAILED, verdict.headline, verdict.headline)]


def earned(points: float, verdicts: Sequence[Verdict] = ()) -> list[NotebookNode]:
    """Make points the value of the cell, nbgrader's partial credit, and show what cost the others."""
    value = new_output("execute_result", data={"text/plain": f"{points:g}"})
    return [*map(_table, verdicts), value]


def cost(value: float) -> NotebookNode:
    """Show what a check has cost, which a class is ranked by."""
    return new_output("display_data", data={"text/plain": f"cost: {value:.4f}"}, metadata={COST: value})


def cost_of(outputs: Sequence[dict[str, Any]]) -> float | None:
    """Return what the check of a cell with these outputs has cost, if it has a cost."""
    told = (output.get("metadata", {}).get(COST) for output in outputs)
    return next((value for value in told if isinstance(value, float)), None)


@dataclass(frozen=True)
class Failure:
    """Why a cell did not come to all that it could.

    Attributes:
        name: of the exception's class; CheckFailed of a check, also if it gave some of the points.
        message: of the error; of a check its headline.
        mistake: that a check has found.
    """

    name: str
    message: str
    mistake: str = ""


def failure(outputs: Sequence[dict[str, Any]]) -> Failure | None:
    """Return why a cell with these outputs failed, if it did."""
    by_kind = {output["output_type"]: output for output in outputs}  # of an error there is one, the last
    if verdict := by_kind.get("display_data", {}).get("metadata", {}).get(VERDICT):
        return Failure(CHECK_FAILED, **verdict)
    if "error" in by_kind:
        return Failure(by_kind["error"]["ename"], by_kind["error"]["evalue"])
    return None


def _table(verdict: Verdict) -> NotebookNode:
    shown = {"text/plain": plain(str(verdict)), "text/html": verdict._repr_html_()}
    told = {"message": verdict.headline, "mistake": verdict.mistake.title}
    return new_output("display_data", data=shown, metadata={VERDICT: told})


def _legible(text: str, most: int, keep: str = "\n\t") -> str:
    return visible(shortened(text, most), keep)


def _is_harmless(kind: str, value: str) -> bool:
    if kind != "image/png":
        return kind == "text/plain"
    with contextlib.suppress(ValueError, struct.error):
        start, width, height = _PNG_HEADER.unpack_from(base64.b64decode(value, validate=True))
        return start == PNG and width * height <= MAX_PIXELS
    return False
