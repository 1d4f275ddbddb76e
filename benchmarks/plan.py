"""`python -m benchmarks.plan`: predicts all measured runs, into docs/plan.md and docs/plan_rows.csv.

With `--fit` it fits the A100's six constants again instead (about two minutes) and prints them, with the
errors on rows that a fit has not seen. `fourranks/plan/cluster.py` holds the result. Narayanan's rows are not
in the fit, but its bound on the network comes from them: docs/plan.md says what else was chosen with
measurements in view.
"""

from __future__ import annotations

import io
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import NamedTuple

from fourranks.plan.cluster import A100_CONSTANTS, Cluster, Constants
from fourranks.plan.layout import Plan
from fourranks.plan.predict import Prediction, predict_file, read_row
from fourranks.plan.report import predicted_cells, summary, write_predictions
from fourranks.plan.step import estimate_step
from fourranks.plan.transformer import Transformer

DATA = Path(__file__).with_name("data")
DOCS = Path(__file__).parent.parent / "docs"
PAGE, ROWS = "plan.md", "plan_rows.csv"
PUBLISHED, MULTI, SINGLE = "published_runs", "megatron_a100_multi_node", "megatron_a100_single_node"
BEGIN, END = "<!-- table of rows: begin -->\n", "<!-- table of rows: end -->\n"
LIMITS = (
    1.0,
    400.0,
    1.0,
    1.0,
    0.68,
    1e-2,
)  # 0.68: ZeRO-3's rows show one card's rate to be no more than 17 GB/s
START = (0.75, 60.0, 0.6, 0.75, 0.65, 1.1e-3)
TRIES = 3000


class Measured(NamedTuple):
    """One run, read."""

    model: Transformer
    cluster: Cluster
    plan: Plan
    seconds: float


def read(name: str, kept: Callable[[Prediction], bool] = lambda _: True) -> list[Measured]:
    """Read the measured rows of one table."""
    found = predict_file(DATA / f"{name}.csv")
    return [
        Measured(*read_row(each.row), each.measured_s) for each in found if each.measured_s and kept(each)
    ]


def errors(constants: Constants, runs: Sequence[Measured]) -> list[float]:
    """Predict runs with other constants; returns the absolute relative errors."""
    return [abs(_seconds(constants, run) / run.seconds - 1) for run in runs]


def _seconds(constants: Constants, run: Measured) -> float:
    gpu = replace(run.cluster.gpu, constants=constants)
    return estimate_step(run.model, replace(run.cluster, gpu=gpu), run.plan).seconds


def fit(korthikanti: Sequence[Measured], multi: Sequence[Measured], single: Sequence[Measured]) -> Constants:
    """Fit the six constants by a random walk that keeps what is better; the same result each time."""

    def loss(constants: Constants) -> float:
        total = 2 * statistics.mean(errors(constants, multi)) + statistics.mean(errors(constants, single)) / 2
        if korthikanti:
            own = errors(constants, korthikanti)
            total += 2 * statistics.mean(own) + max(own) / 2
        return total

    chance, best = random.Random(1), START
    lowest = loss(Constants(*best))
    for number in range(TRIES):
        step = max(0.01, 0.15 * 0.998**number)
        tried = [value * (1 + chance.gauss(0, step) * (chance.random() < 0.5)) for value in best]
        if not all(0 < value <= limit for value, limit in zip(tried, LIMITS, strict=True)):
            continue
        if (found := loss(Constants(*tried))) < lowest:
            best, lowest = tuple(tried), found
    return Constants(*best)


def show_fit() -> None:
    """Fit to all rows, and to some while others are held out."""
    korthikanti = read(PUBLISHED, lambda each: each.name.startswith("korthikanti"))
    multi, single = read(MULTI), read(SINGLE)
    print("fitted:", [float(f"{value:.3g}") for value in astuple(fit(korthikanti, multi, single[::6]))])
    half = fit(korthikanti, multi[::2], single[::12])
    held = (("multi-node, other half", multi[1::2]), ("single-node, rows 2 to 12 of each 12",
            [run for number, run in enumerate(single) if number % 12]))  # fmt: skip
    for name, runs in held:
        print(f"held out, {name}: mean {statistics.mean(errors(half, runs)):.1%}")
    without = fit([], multi, single[::6])
    print(f"held out, Korthikanti: mean {statistics.mean(errors(without, korthikanti)):.1%}")
    print("in the package:", list(astuple(A100_CONSTANTS)))


def table(found: Sequence[Prediction]) -> list[str]:
    """Return a Markdown table of rows."""
    lines = ["| run | measured (s) | predicted (s) | TFLOP/s a GPU | error (%) |", "|---|---|---|---|---|"]
    for each in found:
        seconds, tflops, error, problem = predicted_cells(each)
        measured = "" if each.measured_s is None else f"{each.measured_s:.4g}"
        lines.append(f"| {_label(each)} | {measured} | {seconds or problem} | {tflops} | {error} |")
    return lines


def _label(each: Prediction) -> str:
    row = each.row
    if row.get("id"):
        return each.name
    mesh = f"t{row['tp']} p{row['pp']} d{row['dp']}"
    return f"h {row['hidden']}, {row['gpus']} GPUs, {mesh}, microbatch {row['micro_batch']}"


def write_docs() -> None:
    """Write the tables of all rows."""
    written = page((DOCS / PAGE).read_text(encoding="utf-8"))
    (DOCS / PAGE).write_text(written, encoding="utf-8")
    (DOCS / ROWS).write_text(rows(), encoding="utf-8")
    print(written.partition(BEGIN)[2].partition("\n\n")[0])


def rows() -> str:
    """Return the rows of one node with their predictions, as CSV."""
    text = io.StringIO()
    write_predictions(predict_file(DATA / f"{SINGLE}.csv"), text)
    return text.getvalue()


def page(text: str) -> str:
    """Return the page with its tables replaced."""
    found = {name: predict_file(DATA / f"{name}.csv") for name in (PUBLISHED, MULTI, SINGLE)}
    groups = {
        "Korthikanti, eight rows": [e for e in found[PUBLISHED] if e.name.startswith("korthikanti")],
        "Narayanan, tables 1 and 2": [e for e in found[PUBLISHED] if e.name.startswith("narayanan")],
        "H100 and H800": [e for e in found[PUBLISHED] if e.row["gpu"].startswith(("H100", "H800"))],
        "Megatron on many nodes": found[MULTI],
        "Megatron on one node": found[SINGLE],
    }
    lines = [f"- {name}: {summary(rows)}" for name, rows in groups.items()]
    lines += ["", *table(found[PUBLISHED]), "", *table(found[MULTI])]
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}{chr(10).join(lines)}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    show_fit() if "--fit" in sys.argv[1:] else write_docs()
