"""Which microbatch each rank of a pipeline works on, and when: as planned, or as real ranks did it.

For lectures, after a simulation or a run. It draws what it is given and knows nothing of schedules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from ..views import rank_rows
from ..views.picture import in_words
from ..views.style import (
    BLANK,
    FAINT_INK,
    INK,
    LEGIBLE_TINT,
    PAPER,
    Figure,
    Keywords,
    ink_on,
    rank_colour,
    tint,
)

_WIDTH = 9.0  # inches
_ROW = 0.36  # inches for a rank with one chunk
_LANE = 0.27  # inches for each of several chunks
_BAR = 0.78  # of a row's height
_LABEL_SIZE = 7.5  # points
_MOST_TOLD = 24  # jobs of a rank
_DIGIT = 0.65 * _LABEL_SIZE / 72  # inches


class Job(NamedTuple):
    """A piece of work that one rank does without a pause."""

    kind: str  # "F", "B" or "W"
    microbatch: int
    start: float
    end: float
    chunk: int = 0  # which of the rank's parts of the model


Fields: TypeAlias = tuple[str, int, float, float] | tuple[str, int, float, float, int]  # of a Job


class _JobLook(NamedTuple):
    label: str  # in the legend
    strength: float  # of the rank's colour


_LOOKS = {
    "F": _JobLook("forward", 0.2),
    "B": _JobLook("backward", LEGIBLE_TINT),
    "W": _JobLook("gradients of weights", 0.42),
}


def schedule(
    rows: Sequence[Sequence[Fields]],
    title: str = "",
    unit: str = "",
) -> Figure:
    """Draw one row a rank, one box with the microbatch's number a job; the empty part is the bubble.

    A rank with several chunks has a lane for each, the first on top.

    Args:
        rows: for each rank its jobs: kind ("F" forward, "B" backward, "W" gradients of weights), microbatch,
            start, end and, if the rank has several parts of the model, the number of the part.
        title: a headline.
        unit: of start and end; the axis begins with the first job.

    Raises:
        ValueError: a job has another kind.
    """
    jobs = [[_checked(Job(*job)) for job in row] for row in rows]
    everything = [job for row in jobs for job in row]
    begun = min((job.start for job in everything), default=0.0)
    length = max((job.end for job in everything), default=1.0) - begun
    lanes = 1 + max((job.chunk for job in everything), default=0)
    figure = Figure(_WIDTH, 0.95 + (_ROW if lanes == 1 else lanes * _LANE) * len(jobs))
    axes = _axes(figure, len(jobs), length, title, unit)
    for rank, row in enumerate(jobs):
        axes.broken_barh([(0, length)], (rank - _BAR / 2, _BAR), facecolor=BLANK)
        for lane in range(lanes):
            own = [job for job in row if job.chunk == lane]
            _draw(axes, rank, own, begun, lane, lanes, length / _inches(figure, axes))
    idle = [1 - sum(job.end - job.start for job in row) / length for row in jobs]
    if idle:
        rank_rows.write_bubbles(axes, dict(enumerate(idle)), sum(idle) / len(idle))
    _draw_legend(figure, {job.kind for job in everything})
    told = [
        f"rank {rank}: {_told(row)}, idle {share:.0%}"
        for rank, (row, share) in enumerate(zip(jobs, idle, strict=True))
    ]
    figure.alt = in_words(title, told)
    return figure


def _told(row: Sequence[Job]) -> str:
    """Name a rank's jobs in their order, such as F0 F1 B0."""
    names = [f"{job.kind}{job.microbatch}" for job in sorted(row, key=lambda job: job.start)]
    more = [f"and {len(names) - _MOST_TOLD} more"] if len(names) > _MOST_TOLD else []
    return " ".join([*names[:_MOST_TOLD], *more]) or "no job"


def _checked(job: Job) -> Job:
    if job.kind not in _LOOKS:
        raise ValueError(f"{job} is of no kind that can be drawn; kinds are {', '.join(map(repr, _LOOKS))}.")
    return job


def _axes(figure: Figure, ranks: int, length: float, title: str, unit: str) -> Axes:
    width, height = figure.get_size_inches()
    axes = figure.add_axes((0.75 / width, 0.55 / height, 1 - 1.5 / width, 1 - 0.85 / height))
    rank_rows.style_axes(axes, title)
    axes.set(xlim=(0, length), ylim=(ranks - 0.5, -0.5))
    axes.set_yticks(range(ranks), [f"rank {rank}" for rank in range(ranks)])
    axes.tick_params(axis="y", labelsize=9, labelcolor=INK)
    rank_rows.write_unit(axes, unit)
    return axes


def _inches(figure: Figure, axes: Axes) -> float:
    """Return the width of the axes."""
    return figure.get_figwidth() * axes.get_position().width


def _draw(
    axes: Axes, rank: int, jobs: Sequence[Job], begun: float, lane: int, lanes: int, inch: float
) -> None:
    height = _BAR / lanes
    bottom = rank - _BAR / 2 + lane * height
    for kind, look in _LOOKS.items():
        drawn = [job for job in jobs if job.kind == kind]
        extents = [(job.start - begun, job.end - job.start) for job in drawn]
        colour = tint(rank_colour(rank), look.strength)
        axes.broken_barh(extents, (bottom, height), facecolor=colour, edgecolor=PAPER, linewidth=0.8)
        for job, (left, width) in zip(drawn, extents, strict=True):
            if width > len(str(job.microbatch)) * _DIGIT * inch:
                style: Keywords = {
                    "fontsize": _LABEL_SIZE,
                    "color": ink_on(colour),
                    "ha": "center",
                    "va": "center",
                }
                axes.text(left + width / 2, bottom + height / 2, str(job.microbatch), **style)


def _draw_legend(figure: Figure, kinds: set[str]) -> None:
    looks = [look for kind, look in _LOOKS.items() if kind in kinds]
    handles = [Patch(facecolor=tint(FAINT_INK, look.strength), label=look.label) for look in looks]
    handles.append(Patch(facecolor=BLANK, label="nothing to do"))
    rank_rows.draw_legend(figure, handles)
