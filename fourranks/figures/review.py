"""How good a reader's predictions were, in words and on a log scale. For the end of a lecture."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median
from textwrap import fill

from ..naming import counted
from ..views.picture import in_words
from ..views.style import BLANK, FAINT_INK, INK, PAPER, Figure
from . import ledger
from .ledger import Guess

LABEL_WIDTH = 50  # characters that fit on a line beside the axes
NEAR = (0.01, 0.1, 0.5, 1, 2, 10, 100)  # ticks, up to a factor of 100
FAR = (1e-6, 1e-4, 0.01, 1, 100, 1e4, 1e6)


def review() -> Figure | None:
    """Say in words how good this lecture's predictions were, and draw by which factor each missed.

    Returns:
        The figure: for each number the ratio of prediction and truth, on a log scale; None without one.
    """
    here, everywhere = ledger.guesses()
    if not here:
        print("No predictions were made here. Write yours in place of None, and see how good they are.")
        return None
    print(in_sentences("In this lecture", here))
    if len(everywhere) > len(here):
        print(in_sentences("In all lectures so far", everywhere))
    measurable = {guess.about: guess.ratio for guess in here if guess.ratio is not None}
    return _drawn(measurable) if measurable else None


def in_sentences(where: str, made: Sequence[Guess]) -> str:
    """Say how many of some predictions were right, and how good the numbers among them were, a line each."""
    right = sum(guess.is_right for guess in made)
    ratios = [guess.ratio for guess in made if guess.ratio is not None]
    exact = " (a number is right within 2 percent)" if ratios else ""
    count = f"{counted(len(made), 'prediction')}, of which {right} {_were(right)} right{exact}"
    told = [f"{where} you made {count}."]
    if ratios:
        close = sum(0.5 <= ratio <= 2 for ratio in ratios)
        typical = median(_factor(ratio) for ratio in ratios)
        told += [
            f"{close} of {counted(len(ratios), 'number')} {_were(close)} within a factor of 2; "
            f"the median miss was a factor of {typical:.2g}.",
            _leaning(ratios),
        ]
    return "\n".join(told)


def _leaning(ratios: Sequence[float]) -> str:
    """Say to which side the predictions lean."""
    lean = _mean(ratios)
    whose = "It was" if len(ratios) == 1 else "On average they were"
    if _factor(lean) < 1.1:
        return f"{whose} neither too high nor too low."
    return f"{whose} too {'high' if lean > 1 else 'low'} by a factor of {_factor(lean):.2g}."


def _mean(ratios: Iterable[float]) -> float:
    return math.exp(fmean(map(math.log, ratios)))


def _factor(ratio: float) -> float:
    return max(ratio, 1 / ratio)


def _were(number: int) -> str:
    return "was" if number == 1 else "were"


def _drawn(ratios: Mapping[str, float]) -> Figure:
    """Draw a row for each number: how many times too high or too low, and the line around which they lie."""
    labels = [fill(about, LABEL_WIDTH) for about in ratios]
    figure = Figure(7.5, 1.15 + 0.26 * len(ratios) + 0.1 * sum(label.count("\n") for label in labels))
    height = figure.get_figheight()
    axes = figure.add_axes((0.42, 0.6 / height, 0.54, 1 - 1.05 / height), facecolor=PAPER)
    axes.axvspan(0.5, 2, color=BLANK)
    axes.axvline(1, color=INK, linewidth=1.2)
    axes.axvline(_mean(ratios.values()), color="#D55E00", linewidth=1.2, linestyle=(0, (4, 2)))
    axes.plot(list(ratios.values()), range(len(ratios)), "D", color="#D55E00", markeredgecolor=PAPER)
    furthest = 1.3 * max(4.0, *map(_factor, ratios.values()))
    axes.set(xscale="log", xlim=(1 / furthest, furthest), ylim=(len(ratios) - 0.4, -0.6))
    axes.set_yticks(range(len(ratios)), labels)
    ticks = [tick for tick in (NEAR if furthest < 100 else FAR) if _factor(tick) <= furthest]
    axes.set_xticks(ticks, [f"{tick:g}" if tick >= 1 else f"1/{1 / tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.tick_params(axis="y", length=0, labelsize=8.5, labelcolor=INK)
    axes.tick_params(axis="x", which="both", colors=FAINT_INK, labelsize=8.5)
    axes.set_xlabel(
        "prediction / truth; dashed: your average; grey: within a factor of 2", color=FAINT_INK, fontsize=8.5
    )
    axes.spines[:].set_visible(False)
    title = "Your predictions, divided by what was true"
    axes.set_title(title, loc="left", fontsize=10.5, color=INK, x=-0.77)
    figure.alt = in_words(title, [f"{about} {ratio:.2g}" for about, ratio in ratios.items()])
    return figure
