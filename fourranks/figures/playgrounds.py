"""The course's formulas to play with: all-reduce algorithms, memory under ZeRO, schedules of a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

from ..plan.cluster import GPUS
from ..plan.memory import zero_bytes
from ..puzzles.pipeline import Pipeline, Task
from ..views import units
from ..views.picture import in_words
from ..views.style import FAINT_INK, INK, LEGEND, PAPER, Figure, draw_grid, tint
from . import alpha_beta
from .schedule import schedule
from .sliders import Playground, Slider
from .timings import sizes

_ALGORITHMS = {
    "ring": alpha_beta.ring_all_reduce,
    "tree": alpha_beta.tree_all_reduce,
    "tree, pipelined": alpha_beta.pipelined_tree_all_reduce,
    "halving, doubling": alpha_beta.halving_doubling_all_reduce,
}
_SIZES = [4.0**power for power in range(7, 16)]  # bytes
_GPU = GPUS["h100"].memory_bytes / 1e9  # GB
_PARTS = {"weights": 0.9, "gradients": 0.55, "optimizer state": 0.25}  # strength of their colour
_COLOUR = "#0072B2"


def all_reduce_algorithms() -> Any:
    """Show the time of all-reduce algorithms over sizes, with sliders for ranks, α and bandwidth."""
    ranks = [2**power for power in range(1, 13)]
    alphas, bandwidths = [1, 2, 3, 5, 10, 20, 50, 100, 200, 500], [1, 2, 5, 10, 25, 50, 100, 200, 450, 900]
    return _with_sliders(
        _algorithms,
        {
            "ranks N": Slider(ranks, [f"{n:,}" for n in ranks], ranks.index(64)),
            "latency α": Slider([1e-6 * a for a in alphas], [f"{a} µs" for a in alphas], alphas.index(10)),
            "bandwidth 1/β": Slider(
                [1e9 * b for b in bandwidths], [f"{b} GB/s" for b in bandwidths], bandwidths.index(50)
            ),
        },
    )


def _algorithms(ranks: int, alpha: float, bandwidth: float) -> Figure:
    beta = 1 / bandwidth
    lines = {name: [(s, time(ranks, s, alpha, beta)) for s in _SIZES] for name, time in _ALGORITHMS.items()}
    plain = alpha_beta.crossover_bytes(ranks, alpha, beta)
    pipelined = alpha_beta.pipelined_crossover_bytes(ranks, alpha, beta)
    told = f"the tree beats the ring up to {units.size(plain)}, pipelined up to {units.size(pipelined)}"
    title = f"{ranks:,} ranks: {told if plain and pipelined else 'no tree beats the ring'}"
    return sizes({}, lines, title=title, mark=alpha / beta)


def zero_stages() -> Any:
    """Show what a rank keeps under each stage of ZeRO, with sliders for parameters and ranks."""
    billions, ranks = [0.1, 0.5, 1, 3, 7.5, 13, 34, 70, 180, 405, 671], [2**power for power in range(13)]
    return _with_sliders(
        _zero,
        {
            "parameters P": Slider(billions, [f"{p:g} billion" for p in billions], billions.index(7.5)),
            "ranks N": Slider(ranks, [f"{n:,}" for n in ranks], ranks.index(64)),
        },
    )


def _zero(billions: float, ranks: int) -> Figure:
    kept = [zero_bytes(billions, billions / ranks, stage) for stage in range(4)]  # GB
    totals = list(map(sum, kept))
    fits = [stage for stage in range(4) if totals[stage] <= _GPU]
    verdict = f"fits from stage {fits[0]} on" if fits else "does not fit under any stage"
    title = f"{billions:g} billion parameters on {ranks:,} ranks, mixed precision with Adam: {verdict}"
    figure = Figure(7.5, 2.7)
    axes = figure.add_axes((0.1, 0.2, 0.78, 0.56), facecolor=PAPER)
    left = [0.0] * 4
    for part, (name, strength) in enumerate(_PARTS.items()):
        widths = [row[part] for row in kept]
        axes.barh(range(4), widths, left=left, height=0.62, color=tint(_COLOUR, strength), label=name)
        left = [before + width for before, width in zip(left, widths, strict=True)]
    for stage, total in enumerate(totals):
        axes.text(total, stage, f" {total:.3g} GB", va="center", fontsize=8.5, color=INK)
    axes.axvline(_GPU, color=FAINT_INK, linewidth=1, linestyle=":", label=f"an H100's {_GPU:g} GB")
    axes.set_yticks(range(4), [f"stage {stage}" for stage in range(4)], color=INK, fontsize=9)
    axes.set(xlim=(0, 1.12 * max(*totals, _GPU)), ylim=(3.6, -0.6))
    axes.set_xlabel("GB kept by each rank, without activations", color=FAINT_INK, fontsize=9)
    axes.tick_params(colors=FAINT_INK, labelsize=8.5, length=0)
    axes.tick_params(axis="y", labelcolor=INK)
    draw_grid(axes, "x")
    figure.text(0.02, 0.95, title, fontsize=10.5, color=INK, va="top")
    figure.legend(loc="upper left", bbox_to_anchor=(0.09, 0.89), ncols=4, **LEGEND)
    figure.alt = in_words(title, [f"stage {stage} {total:.3g} GB" for stage, total in enumerate(totals)])
    return figure


def pipeline_schedules() -> Any:
    """Show a schedule and its bubble, with sliders for ranks, microbatches and what a rank may keep."""
    ranks, microbatches, limits = range(1, 9), (1, 2, 3, 4, 6, 8, 12, 16), range(1, 9)
    return _with_sliders(
        _schedule,
        {
            "ranks p": Slider(ranks, list(map(str, ranks)), 3),
            "microbatches m": Slider(microbatches, list(map(str, microbatches)), microbatches.index(8)),
            "in memory at most": Slider(limits, list(map(str, limits)), 3),
        },
    )


def _schedule(ranks: int, microbatches: int, limit: int) -> Figure:
    rows = eager_schedule(ranks, microbatches, limit)
    ticks = max(end for row in rows for *_, end in row)
    bubble = 1 - 3 * microbatches / ticks
    formula = (ranks - 1) / (microbatches + ranks - 1)
    most = min(limit, ranks, microbatches)
    title = f"Rank 0 keeps {most}: {ticks} ticks, bubble {bubble:.0%}; with memory for all {formula:.0%}"
    return schedule(rows, title, "ticks")


def eager_schedule(ranks: int, microbatches: int, limit: int) -> list[list[tuple[str, int, int, int]]]:
    """Let each rank do a backward when it can, else a forward if memory for `limit` microbatches allows it.

    A forward takes 1 tick, a backward 2. No rank begins more than p - rank microbatches early, as in 1F1B.
    """
    shape = Pipeline(microbatches, tuple(range(ranks)), {"F": 1, "B": 2}, (limit,) * ranks)
    rows: list[list[tuple[str, int, int, int]]] = [[] for _ in range(ranks)]
    over: dict[tuple[Task, int], int] = {}
    for now in range(3 * microbatches * ranks):
        for rank, row in enumerate(rows):
            if row and row[-1][3] > now:
                continue
            done = {kind: sum(job[0] == kind for job in row) for kind in "FB"}
            wanted = [Task("B", done["B"])]
            if done["F"] - done["B"] < min(limit, ranks - rank):
                wanted.append(Task("F", done["F"]))
            for task in wanted:
                needs = shape.needs(task, rank)
                if task.microbatch < microbatches and all(over.get(need, now + 1) <= now for need in needs):
                    end = now + shape.length(task, rank)
                    over[task, rank] = end
                    row.append((task.kind, task.microbatch, now, end))
                    break
    return rows


def _with_sliders(draw: Callable[..., Figure], sliders: Mapping[str, Slider]) -> Any:
    """Return what a notebook shows as a figure with sliders; the figure alone where there are no widgets.

    Args:
        draw: makes the figure from one value of each slider, in their order.
        sliders: by their labels.
    """
    shown = Playground(draw, sliders)
    if find_spec("anywidget") is None:
        return shown.figure
    from .slider_widget import SliderWidget  # its libraries take a while to import

    return SliderWidget(shown)
