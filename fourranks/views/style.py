"""How every figure of the course looks: one colour a rank, one ink, one paper, and no text too small.

The views use it; it knows nothing of ranks but their numbers. Text has a contrast of at least 4.5 to 1 with
what it stands on, as WCAG's level AA asks, in light themes and in dark ones (`picture` says how).
"""

from __future__ import annotations

from base64 import b64encode
from io import BytesIO
from operator import mul
from typing import Any

from matplotlib import figure
from matplotlib.colors import to_rgb
from PIL import Image, ImageDraw

from .picture import page

PAPER = "#ffffff"
INK = "#1f2933"
FAINT_INK = "#667380"
BLANK = "#eef1f4"  # a place where nothing is held, a value whose origin is unknown

# Okabe and Ito's palette (https://jfly.uni-koeln.de/color/), which readers with any common colour blindness
# can tell apart; the four most different first. Yellow is darkened, for white paper.
RANK_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#BFB020", "#5B6770")

SMALLEST_TEXT = 6.5  # points; 9 of a browser's pixels
LEGIBLE_TINT = 0.65
_BLACK = "#000000"
# The matrix of hue-rotate(180deg) in CSS' Filter Effects.
_HUE_TURNED = ((-0.574, 1.430, 0.144), (0.426, 0.430, 0.144), (0.426, 1.430, -0.856))

_SCREEN_DPI = 100
_PIXELS_PER_DOT = 1.6  # crisp on dense screens
_CLEAR = 127  # how many colours are kept, and the number of the transparent one behind them
_ROUNDING = 0.1  # inches; radius of the paper's corners


class Figure(figure.Figure):
    """A matplotlib figure on the course's paper that a notebook shows without pyplot.

    Attributes:
        alt: what it shows, in words, for who cannot see it.
    """

    alt = ""

    def __init__(self, width: float, height: float) -> None:
        super().__init__(figsize=(width, height), dpi=_SCREEN_DPI, facecolor=PAPER)

    def png(self, pixels_per_dot: float = _PIXELS_PER_DOT) -> bytes:
        """The figure as a small file: of the colours that are kept, the eye misses none."""
        drawn, small = BytesIO(), BytesIO()
        dpi = _SCREEN_DPI * pixels_per_dot
        self.savefig(drawn, format="png", dpi=dpi, pil_kwargs={"compress_level": 0})
        image = Image.open(drawn).convert("RGB").quantize(_CLEAR, method=Image.Quantize.MAXCOVERAGE)
        beyond = Image.new("L", image.size, 255)
        edges = (0, 0, image.width - 1, image.height - 1)
        ImageDraw.Draw(beyond).rounded_rectangle(edges, _ROUNDING * dpi, fill=0)
        image.paste(_CLEAR, mask=beyond)
        image.putpalette([*image.getpalette(), 255, 255, 255])
        image.save(small, format="png", optimize=True, transparency=_CLEAR)
        return small.getvalue()

    @property
    def screen_size(self) -> dict[str, int]:
        """Width and height in a browser's pixels."""
        width, height = self.get_size_inches() * _SCREEN_DPI
        return {"width": round(width), "height": round(height)}

    def data_url(self, pixels_per_dot: float = _PIXELS_PER_DOT) -> str:
        """The figure as an image's source."""
        return f"data:image/png;base64,{b64encode(self.png(pixels_per_dot)).decode()}"

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, str], dict[str, dict]]:
        url = self.data_url()
        html = page(url, self.alt, **self.screen_size)
        data = {"text/html": html, "image/png": url.partition(",")[2], "text/plain": self.alt}
        return data, {"image/png": {**self.screen_size, "alt": self.alt}}


def rank_colour(rank: int) -> str:
    """The colour of a rank; from 8 ranks on they repeat, so figures always print the number too."""
    return RANK_COLOURS[rank % len(RANK_COLOURS)]


def ink_on(colour: str | tuple[float, ...]) -> str:
    """White or black, whichever is read better on this colour in light and in dark themes.

    On a tint of a rank's colour with a strength of up to `LEGIBLE_TINT`, it can be read in both.
    """
    return max(
        PAPER, _BLACK, key=lambda ink: min(contrast(ink, colour), contrast(in_dark(ink), in_dark(colour)))
    )


def in_dark(colour: str | tuple[float, ...]) -> tuple[float, ...]:
    """What a browser makes of a colour under a dark theme: `invert(1) hue-rotate(180deg)`."""
    inverted = [1 - channel for channel in to_rgb(colour)]
    turned = (sum(map(mul, row, inverted)) for row in _HUE_TURNED)
    return tuple(min(max(channel, 0.0), 1.0) for channel in turned)


def contrast(one: str | tuple[float, ...], other: str | tuple[float, ...]) -> float:
    """The contrast of two colours, from 1 to 21, by WCAG's formula."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str | tuple[float, ...]) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def tint(colour: str, strength: float) -> tuple[float, ...]:
    """`colour` thinned with paper: strength 1 is the colour itself, 0 is paper."""
    mixed = zip(to_rgb(colour), to_rgb(PAPER), strict=True)
    return tuple(strength * channel + (1 - strength) * paper for channel, paper in mixed)
