"""Which tokens a token looks at: the weights of one attention head. For lectures."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from matplotlib.patches import Rectangle

from ..views.picture import in_words
from ..views.style import FAINT_INK, INK, PAPER, Figure, rank_colour, tint

_CELL = 0.36  # inches
_MARGIN = 0.65  # for the names of the axes, on the left and below
_HEAD = 0.45  # for a title of one line
_LINE = 0.16  # for each further line
_CHARACTER = 0.074  # of a title, a little more than the average
_STRONGEST = 0.85  # of the colour, for a weight of 1


def attention_weights(weights: Sequence[Sequence[float]], title: str = "") -> Figure:
    """Draw a row for each token that looks, and in it a square for each token that it looks at.

    Args:
        weights: square, each row with a sum of 1. A 0 is hidden from the row's token, and stays blank.
        title: a headline.
    """
    size = len(weights)
    width = size * _CELL + 2 * _MARGIN
    headline = textwrap.wrap(title, int((width - _MARGIN) / _CHARACTER))
    height = size * _CELL + _MARGIN + _HEAD + _LINE * max(0, len(headline) - 1)
    figure = Figure(width, height)
    most = [
        f"token {row} looks most at token {max(range(size), key=own.__getitem__)}"
        for row, own in enumerate(weights)
    ]
    figure.alt = in_words(title or "weights of an attention head", most)
    place = (_MARGIN / width, _MARGIN / height, size * _CELL / width, size * _CELL / height)
    axes = figure.add_axes(place, facecolor=PAPER)
    for row, own in enumerate(weights):
        for column, weight in enumerate(own):
            if weight:
                colour = tint(rank_colour(0), _STRONGEST * weight)
                axes.add_patch(Rectangle((column, row), 1, 1, facecolor=colour, edgecolor=PAPER))
                axes.text(
                    column + 0.5, row + 0.5, f"{weight:.0%}", ha="center", va="center", fontsize=7, color=INK
                )
    axes.set(xlim=(0, size), ylim=(size, 0), xlabel="token that is looked at", ylabel="token that looks")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks([at + 0.5 for at in range(size)], [str(at) for at in range(size)])
        axis.label.set(color=FAINT_INK, fontsize=8.5)
    axes.tick_params(length=0, labelsize=8, colors=FAINT_INK)
    axes.spines[:].set_visible(False)
    axes.set_title("\n".join(headline), loc="left", color=INK, fontsize=9.5)
    return figure
