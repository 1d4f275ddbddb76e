"""The course's colours: one for each rank, one ink, one paper, and how dark a colour text on it needs.

Only the standard library is needed, so that what draws without matplotlib has the same colours. Text has a
contrast of at least 4.5 to 1 with its background, as WCAG's level AA asks, in light themes and in dark ones
(`picture` says how).
"""

from __future__ import annotations

from operator import mul
from typing import TypeAlias

RGB: TypeAlias = tuple[float, float, float]  # each from 0 to 1
Colour: TypeAlias = str | RGB  # as "#0072b2", or as RGB

PAPER = "#ffffff"
INK = "#1f2933"
FAINT_INK = "#667380"
BLANK = "#eef1f4"  # a place where nothing is held, a value whose origin is unknown

# Okabe and Ito's palette (https://jfly.uni-koeln.de/color/), which readers with any common colour blindness
# can tell apart; the four most different first. Yellow is darkened, for white paper.
RANK_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#BFB020", "#5B6770")

LEGIBLE_TINT = 0.65
_BLACK = "#000000"
# The matrix of hue-rotate(180deg) in CSS' Filter Effects.
_HUE_TURNED = ((-0.574, 1.430, 0.144), (0.426, 0.430, 0.144), (0.426, 1.430, -0.856))


def rank_colour(rank: int) -> str:
    """Return the colour of a rank; from 8 ranks on they repeat, so figures always print the number too."""
    return RANK_COLOURS[rank % len(RANK_COLOURS)]


def ink_on(colour: Colour) -> str:
    """Return white or black, whichever is read better on this colour in light and in dark themes.

    On a tint of a rank's colour with a strength of up to `LEGIBLE_TINT`, it can be read in both.
    """
    return max(
        PAPER, _BLACK, key=lambda ink: min(contrast(ink, colour), contrast(in_dark(ink), in_dark(colour)))
    )


def in_dark(colour: Colour) -> RGB:
    """Return what a browser makes of a colour under a dark theme: `invert(1) hue-rotate(180deg)`."""
    inverted = [1 - channel for channel in to_rgb(colour)]
    turned = (sum(map(mul, row, inverted)) for row in _HUE_TURNED)
    red, green, blue = (min(max(channel, 0.0), 1.0) for channel in turned)
    return red, green, blue


def contrast(one: Colour, other: Colour) -> float:
    """Return the contrast of two colours, from 1 to 21, by WCAG's formula."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: Colour) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def tint(colour: str, strength: float) -> RGB:
    """Thin `colour` with paper: strength 1 is the colour itself, 0 is paper."""
    mixed = zip(to_rgb(colour), to_rgb(PAPER), strict=True)
    red, green, blue = (strength * channel + (1 - strength) * paper for channel, paper in mixed)
    return red, green, blue


def to_rgb(colour: Colour) -> RGB:
    """Read a colour such as "#0072b2"."""
    if not isinstance(colour, str):
        return colour
    red, green, blue = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    return red, green, blue
