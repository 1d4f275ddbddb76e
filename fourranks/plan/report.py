"""Plans and predictions as text: tables for a terminal, CSV for programs."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Sequence
from typing import TextIO

from .predict import Prediction
from .search import Candidate, too_large


def plan_table(found: Sequence[Candidate]) -> str:
    """Return one line a plan."""
    rows = [("step", "TFLOP/s", "GB", "bound by", "plan"), *map(_plan_row, found)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        "  ".join([*(cell.rjust(width) for cell, width in zip(row, widths, strict=False)), row[4]])
        for row in rows
    )


def _plan_row(candidate: Candidate) -> tuple[str, str, str, str, str]:
    plan, cost = candidate
    axes = f"d{plan.data} t{plan.tensor} p{plan.pipeline} c{plan.context} e{plan.expert}"
    schedule = f"{plan.schedule} v{plan.chunks}"
    how = f"{schedule}, ZeRO-{plan.zero}, microbatch {plan.micro_batch}, recompute {plan.recompute}"
    unfit = "" if cost.fits else f"; does not fit: {too_large(candidate)}"
    numbers = f"{cost.seconds:.3g} s", f"{cost.tflops_per_gpu:.0f}", f"{cost.memory.total / 1e9:.0f}"
    return (*numbers, cost.bound, f"{axes}, {how}{unfit}")


def write_predictions(found: Sequence[Prediction], out: TextIO) -> None:
    """Write each row as it was read, with what is predicted for it in place of any earlier prediction."""
    added = ["predicted_step_s", "predicted_tflops_per_gpu", "error_pct", "problem"]
    columns = [name for name in (found[0].cells if found else ()) if name not in added]
    writer = csv.DictWriter(out, [*columns, *added], lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for each in found:
        writer.writerow({**each.cells, **dict(zip(added, predicted_cells(each), strict=True))})


def predicted_cells(each: Prediction) -> tuple[str, str, str, str]:
    """Return predicted seconds, TFLOP/s, error in per cent and problem of a row; empty: there is none."""
    return (
        "" if each.predicted_s is None else f"{each.predicted_s:.4g}",
        "" if each.tflops is None else f"{each.tflops:.4g}",
        "" if each.error is None else f"{100 * each.error:+.1f}",
        each.problem,
    )


def summary(found: Sequence[Prediction]) -> str:
    """Say how far off the predictions are."""
    errors = [abs(each.error) for each in found if each.error is not None]
    if not errors:
        return f"{len(found)} rows, none with a measured step"
    return f"{len(errors)} measured rows: mean error {statistics.mean(errors):.1%}, largest {max(errors):.1%}"
