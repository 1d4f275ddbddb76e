"""A drawing as SVG text, and as part of a notebook's page, made without any library."""

from __future__ import annotations

from base64 import b64encode
from html import escape

from ..views.palette import INK, PAPER, RGB, Colour
from ..views.picture import page

FAULT = "#c62828"
FINE = "#2e7d32"
_FONT = "system-ui, 'DejaVu Sans', sans-serif"


class Drawing:
    """Shapes on the course's paper, in a browser's pixels.

    Attributes:
        alt: a description in words.
    """

    def __init__(self, width: float, height: float, alt: str = "") -> None:
        self.width, self.height, self.alt = round(width), round(height), alt
        self._shapes: list[str] = []

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: Colour = "none",
        edge: Colour = "none",
        *,
        thick: float = 1,
        dashed: bool = False,
        round_by: float = 2,
    ) -> None:
        """Draw a rectangle."""
        dash = ' stroke-dasharray="3 2"' if dashed else ""
        self._shapes.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{round_by:g}" '
            f'fill="{_css(fill)}" stroke="{_css(edge)}" stroke-width="{thick:g}"{dash}/>'
        )

    def line(
        self,
        begin: tuple[float, float],
        end: tuple[float, float],
        colour: Colour = INK,
        *,
        thick: float = 1,
        dashed: bool = False,
    ) -> None:
        """Draw a line."""
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self._shapes.append(
            f'<line x1="{begin[0]:.1f}" y1="{begin[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}" '
            f'stroke="{_css(colour)}" stroke-width="{thick:g}"{dash}/>'
        )

    def arrow(
        self, begin: tuple[float, float], end: tuple[float, float], colour: Colour, *, thick: float = 1.8
    ) -> None:
        """Draw a curve from left to right with a head at its end."""
        bend = (end[0] - begin[0]) / 2
        tip = end[0] - 6
        self._shapes.append(
            f'<path d="M{begin[0]:.1f} {begin[1]:.1f} C{begin[0] + bend:.1f} {begin[1]:.1f} '
            f'{tip - bend:.1f} {end[1]:.1f} {tip:.1f} {end[1]:.1f}" fill="none" stroke="{_css(colour)}" '
            f'stroke-width="{thick:g}"/><path d="M{tip:.1f} {end[1] - 4:.1f} L{end[0]:.1f} {end[1]:.1f} '
            f'L{tip:.1f} {end[1] + 4:.1f} Z" fill="{_css(colour)}"/>'
        )

    def text(
        self,
        x: float,
        y: float,
        words: str,
        colour: Colour = INK,
        *,
        size: float = 12,
        anchor: str = "middle",
        bold: bool = False,
    ) -> None:
        """Write words whose middle line is at y."""
        weight = ' font-weight="600"' if bold else ""
        self._shapes.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" text-anchor="{anchor}" '
            f'dominant-baseline="central" fill="{_css(colour)}"{weight}>{escape(words)}</text>'
        )

    def svg(self) -> str:
        """Return the drawing as the text of an SVG file."""
        size = f'width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}"'
        paper = f'<rect width="{self.width}" height="{self.height}" rx="8" fill="{PAPER}"/>'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{_FONT}">'
            f"<title>{escape(self.alt)}</title>{paper}{''.join(self._shapes)}</svg>"
        )

    def html(self) -> str:
        """Return the drawing as part of a page, readable in light and in dark themes."""
        source = f"data:image/svg+xml;base64,{b64encode(self.svg().encode()).decode()}"
        return page(source, self.alt, self.width, self.height)


def _css(colour: Colour) -> str:
    return colour if isinstance(colour, str) else _hexadecimal(colour)


def _hexadecimal(colour: RGB) -> str:
    return "#" + "".join(f"{round(255 * channel):02x}" for channel in colour)
