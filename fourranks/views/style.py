"""How every figure of the course looks: the course's colours, its paper, and no text too small.

The views use it; it knows nothing of ranks but their numbers.
"""

from __future__ import annotations

from base64 import b64encode
from io import BytesIO
from typing import Any, Literal, TypeAlias

from matplotlib import figure
from matplotlib.axes import Axes
from PIL import Image, ImageDraw

# All drawings take their paper and their colours from one place.
from .palette import BLANK as BLANK
from .palette import FAINT_INK as FAINT_INK
from .palette import INK as INK
from .palette import LEGIBLE_TINT as LEGIBLE_TINT
from .palette import PAPER as PAPER
from .palette import RANK_COLOURS as RANK_COLOURS
from .palette import RGB as RGB
from .palette import Colour as Colour
from .palette import contrast as contrast
from .palette import in_dark as in_dark
from .palette import ink_on as ink_on
from .palette import rank_colour as rank_colour
from .palette import tint as tint
from .picture import page

Keywords: TypeAlias = dict[str, Any]  # of one of matplotlib's functions

# The look of legends beside curves.
LEGEND: Keywords = {"frameon": False, "fontsize": 8.5, "labelcolor": INK}
# The look of what a reader has predicted, among what was found.
PREDICTION: Keywords = {
    "marker": "D",
    "markersize": 8,
    "linestyle": "none",
    "color": "#D55E00",
    "markeredgecolor": PAPER,
}

SMALLEST_TEXT = 6.5  # points; 9 of a browser's pixels

_SCREEN_DPI = 100
_PIXELS_PER_DOT = 1.6  # crisp on dense screens
_CLEAR = 127  # how many colours are kept, and the number of the transparent one behind them
_ROUNDING = 0.1  # inches; radius of the paper's corners


def draw_grid(axes: Axes, axis: Literal["both", "x", "y"] = "both") -> None:
    """Draw faint lines behind what is drawn, in place of a frame."""
    axes.grid(axis=axis, color=BLANK)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)


class Figure(figure.Figure):
    """A matplotlib figure on the course's paper that a notebook shows without pyplot.

    Attributes:
        alt: a description in words, for readers who cannot see it.
    """

    alt = ""

    def __init__(self, width: float, height: float) -> None:
        super().__init__(figsize=(width, height), dpi=_SCREEN_DPI, facecolor=PAPER)

    def png(self, pixels_per_dot: float = _PIXELS_PER_DOT) -> bytes:
        """Return the figure as a small file: of the colours that are kept, the eye misses none."""
        drawn, small = BytesIO(), BytesIO()
        dpi = _SCREEN_DPI * pixels_per_dot
        self.savefig(drawn, format="png", dpi=dpi, pil_kwargs={"compress_level": 0})
        image = Image.open(drawn).convert("RGB").quantize(_CLEAR, method=Image.Quantize.MAXCOVERAGE)
        beyond = Image.new("L", image.size, 255)
        edges = (0, 0, image.width - 1, image.height - 1)
        ImageDraw.Draw(beyond).rounded_rectangle(edges, _ROUNDING * dpi, fill=0)
        image.paste(_CLEAR, mask=beyond)
        image.putpalette([*(image.getpalette() or ()), 255, 255, 255])
        image.save(small, format="png", optimize=True, transparency=_CLEAR)
        return small.getvalue()

    @property
    def screen_size(self) -> dict[str, int]:
        """Width and height in a browser's pixels."""
        width, height = self.get_size_inches() * _SCREEN_DPI
        return {"width": round(width), "height": round(height)}

    def data_url(self, pixels_per_dot: float = _PIXELS_PER_DOT) -> str:
        """Return the figure as an image's source."""
        return f"data:image/png;base64,{b64encode(self.png(pixels_per_dot)).decode()}"

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, str], dict[str, Keywords]]:
        url = self.data_url()
        html = page(url, self.alt, **self.screen_size)
        data = {"text/html": html, "image/png": url.partition(",")[2], "text/plain": self.alt}
        return data, {"image/png": {**self.screen_size, "alt": self.alt}}
