"""How every figure of the course looks: one colour a rank, one ink, one paper.

The views use it; it knows nothing of ranks but their numbers. The paper is drawn, not transparent, so that
ink and colours keep their contrast under JupyterLab's light and dark themes alike.
"""

from __future__ import annotations

from io import BytesIO

from matplotlib import figure
from matplotlib.colors import to_rgb
from PIL import Image, ImageDraw

PAPER = "#ffffff"
INK = "#1f2933"
FAINT_INK = "#667380"
BLANK = "#eef1f4"  # a place where nothing is held, a value whose origin is unknown

# Okabe and Ito's palette (https://jfly.uni-koeln.de/color/), which readers with any common colour blindness
# can tell apart; the four most different first. Yellow is darkened, for white paper.
RANK_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#BFB020", "#5B6770")

_SCREEN_DPI = 100
_PIXELS_PER_DOT = 1.6  # crisp on dense screens
_CLEAR = 127  # how many colours are kept, and the number of the transparent one behind them
_ROUNDING = 0.1  # inches; radius of the paper's corners


class Figure(figure.Figure):
    """A matplotlib figure on the course's paper that a notebook shows without pyplot."""

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

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        return self.png(), self.screen_size


def rank_colour(rank: int) -> str:
    """The colour of a rank; from 8 ranks on they repeat, so figures always print the number too."""
    return RANK_COLOURS[rank % len(RANK_COLOURS)]


def tint(colour: str, strength: float) -> tuple[float, ...]:
    """`colour` thinned with paper: strength 1 is the colour itself, 0 is paper."""
    mixed = zip(to_rgb(colour), to_rgb(PAPER), strict=True)
    return tuple(strength * channel + (1 - strength) * paper for channel, paper in mixed)
