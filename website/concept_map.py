"""Draws the concept map in the course's style. Its page holds it as text for Mermaid, which is a script.

A group is a column, its boxes stand in the order in which they are named, and arrows go between them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from fourranks.views.cells import write
from fourranks.views.picture import in_words, page
from fourranks.views.style import BLANK, FAINT_INK, PAPER, Figure, Keywords, rank_colour

GROUP = re.compile(r"subgraph \w+ \[(.+)\]")
BOX = re.compile(r'(\w+)\["(.+)"\]')
ARROW = re.compile(r'(\w+) -- "(.+)" --> (\w+)|(\w+) --> (\w+)')
FRAME = ("flowchart TD", "end", "")

Point: TypeAlias = tuple[float, float]


@dataclass(frozen=True)
class Arrow:
    """The need of one topic for another, or for a part of it."""

    start: str
    end: str
    label: str


@dataclass(frozen=True)
class Map:
    """The concept map: titles of boxes by group and name, and arrows."""

    groups: dict[str, dict[str, str]]
    arrows: list[Arrow]

    @property
    def titles(self) -> dict[str, str]:
        """The title of each box by its name, in order."""
        return {name: title for boxes in self.groups.values() for name, title in boxes.items()}


class ConceptMapError(ValueError):
    """A map that cannot be drawn; the text says which line or box is the reason."""


def picture(mermaid: str) -> str:
    """Return the map as HTML.

    Raises:
        ConceptMapError: it has something that this does not draw.
    """
    drawn = _draw(read(mermaid))
    return page(drawn.data_url(), drawn.alt, **drawn.screen_size)


def read(mermaid: str) -> Map:
    """Read groups, boxes and arrows.

    Raises:
        ConceptMapError: a line is something else, or an arrow names no box.
    """
    groups: dict[str, dict[str, str]] = {}
    arrows: list[Arrow] = []
    for line in map(str.strip, mermaid.splitlines()):
        if found := GROUP.fullmatch(line):
            groups[found[1]] = {}
        elif groups and (found := BOX.fullmatch(line)):
            list(groups.values())[-1][found[1]] = found[2].replace("<br/>", "\n")
        elif found := ARROW.fullmatch(line):
            arrows.append(Arrow(found[1] or found[4], found[3] or found[5], found[2] or ""))
        elif line not in FRAME:
            raise ConceptMapError(f"docs/concept_map.md: the site's drawing does not know the line {line!r}.")
    concepts = Map(groups, arrows)
    if unknown := {name for arrow in arrows for name in (arrow.start, arrow.end)} - concepts.titles.keys():
        raise ConceptMapError(f"docs/concept_map.md: an arrow names a box that is not there: {min(unknown)}.")
    return concepts


WIDTH, HEIGHT = 2.7, 0.62  # of a box, in inches
ROW, COLUMN = 1.0, 5.3  # from one box to the next
MARGIN, HEAD = 0.5, 0.55
ON_THE_WAY = 0.55  # where an arrow to another column has its label: beyond the crossings in the middle


def _draw(concepts: Map) -> Figure:
    columns = concepts.groups.values()
    width = 2 * MARGIN + WIDTH + COLUMN * (len(columns) - 1)
    figure = Figure(width, HEAD + ROW * max(map(len, columns)))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(figure.get_figheight(), 0))
    axes.axis("off")
    centres: dict[str, Point] = {}
    for number, (heading, boxes) in enumerate(concepts.groups.items()):
        x = MARGIN + WIDTH / 2 + COLUMN * number
        write(axes, x, HEAD / 2, heading, 10, FAINT_INK)
        for row, (name, title) in enumerate(boxes.items()):
            centres[name] = (x, HEAD + ROW * row + HEIGHT / 2)
            _draw_box(axes, centres[name], title, rank_colour(number))
    for arrow in concepts.arrows:
        _draw_arrow(axes, centres[arrow.start], centres[arrow.end], arrow.label)
    figure.alt = in_words("Concept map", (_sentence(concepts, arrow) for arrow in concepts.arrows))
    return figure


def _draw_box(axes: Axes, centre: Point, title: str, colour: str) -> None:
    x, y = centre
    style: Keywords = {"facecolor": BLANK, "edgecolor": colour, "linewidth": 1.5}
    corner = (x - WIDTH / 2, y - HEIGHT / 2)
    axes.add_patch(FancyBboxPatch(corner, WIDTH, HEIGHT, boxstyle="round,pad=0,rounding_size=0.08", **style))
    head, _, rest = title.partition("\n")
    write(axes, x, y - 0.11, head, 9.5).set_fontweight("bold")
    write(axes, x, y + 0.13, rest, 8.5)


def _draw_arrow(axes: Axes, start: Point, end: Point, label: str) -> None:
    """Draw an arrow: to another column from side to side, to the next box down, and around those between."""
    (x0, y0), (x1, y1) = start, end
    style: Keywords = {"arrowstyle": "-|>", "mutation_scale": 12, "color": FAINT_INK, "linewidth": 1.2}
    if x0 != x1:
        side = WIDTH / 2 if x1 > x0 else -WIDTH / 2
        x0, x1 = x0 + side, x1 - side
        middle = (x0 + ON_THE_WAY * (x1 - x0), y0 + ON_THE_WAY * (y1 - y0))
        write(axes, *middle, label, 8).set_bbox({"facecolor": PAPER, "linewidth": 0, "pad": 1.5})
    elif abs(y1 - y0) <= ROW:
        x0 = x1 = x0 - WIDTH / 3
        y0, y1 = y0 + HEIGHT / 2, y1 - HEIGHT / 2
        write(axes, x0 + 0.1, (y0 + y1) / 2, label, 8, ha="left")
    else:
        x0, x1 = x0 - WIDTH / 2, x1 - WIDTH / 2
        style["connectionstyle"] = "arc3,rad=0.25"
    axes.add_patch(FancyArrowPatch((x0, y0), (x1, y1), shrinkA=0, shrinkB=0, **style))


def _sentence(concepts: Map, arrow: Arrow) -> str:
    start, end = (concepts.titles[name].partition("\n")[0] for name in (arrow.start, arrow.end))
    return f"{start} for {end}" + (f" ({arrow.label})" if arrow.label else "")
