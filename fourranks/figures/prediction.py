"""The reader's prediction, next to what the ranks did and what a formula says. For lectures, after a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ..views.picture import in_words
from ..views.style import FAINT_INK, INK, LEGEND, PAPER, PREDICTION, Figure, Keywords, draw_grid
from .drawable import all_drawable, written
from .ledger import note

_BAR_COLOURS = ("#9fb3c8", "#e3c08f", "#8fb8a4", "#b9a3cc")  # not those of ranks
_FORMULA: Keywords = {
    "marker": "|",
    "markersize": 20,
    "markeredgewidth": 2.5,
    "color": INK,
    "linestyle": "none",
}


def predicted(*answers: object, of: object = None, about: str = "", was: object = None) -> str:
    """Return the reader's answers in words, to stand before what was found; "" if there are none yet.

    Args:
        of: which entry of answers with names is meant; an answer that has lost its names stands for all.
        about: the subject of an answer, to note it in the ledger.
        was: the value that was found.
    """
    answers = tuple(_entry(answer, of) for answer in answers)
    for answer in answers if about else ():
        note(about, answer, was)
    given = [part for part in map(_given_part, answers) if part is not None]
    return f"you predicted: {', '.join(map(written, given))}   " if given else ""


def _entry(answer: object, name: object) -> object:
    return answer.get(name) if name is not None and isinstance(answer, Mapping) else answer


def _given_part(answer: object) -> object:
    """Leave out what has no prediction yet; None if nothing is left."""
    if isinstance(answer, Mapping):
        return {name: each for name, each in answer.items() if each is not None} or None
    return answer


def compare(
    measured: Mapping[str, float | Mapping[str, float]],
    formula: Mapping[str, float | None] | None = None,
    yours: Mapping[str, float | None] | None = None,
    unit: str = "",
    title: str = "",
    label: str = "measured",
    mark: str = "formula",
) -> Figure:
    """Draw one bar for each measured number, with the formula's and the reader's number marked on it.

    Args:
        measured: the name of each run and what was measured, from top to bottom; where that has parts, the
            name and the number of each, up to four.
        formula: the values that theory gives for these names; None or a missing name is not drawn.
        yours: the reader's predictions, likewise; they are noted in the ledger.
        unit: of the numbers.
        title: a headline; the part after a semicolon is about this run only, and not noted in the ledger.
        label: of the bars, if they have no parts.
        mark: what `formula` is, for the legend.
    """
    answers = all_drawable(yours, measured)
    expected, guessed = _given(formula, measured), _given(answers, measured)
    bars = [value if isinstance(value, Mapping) else {label: value} for value in measured.values()]
    totals = {name: sum(parts.values()) for name, parts in zip(measured, bars, strict=True)}
    for name, answer in answers.items():
        note(subject(name, title), answer, totals[name])
    figure = Figure(7.5, 1.05 + 0.38 * len(measured))
    height = figure.get_figheight()
    axes = figure.add_axes((0.35, 0.62 / height, 0.59, 1 - 1.0 / height), facecolor=PAPER)
    colours = _draw_bars(axes, bars)
    axes.plot(list(expected.values()), list(expected), **_FORMULA)
    axes.plot(list(guessed.values()), list(guessed), **PREDICTION)
    furthest = max([*totals.values(), *expected.values(), *guessed.values(), 1e-12])
    axes.set(xlim=(0, 1.15 * furthest), ylim=(len(measured) - 0.5, -0.5))
    axes.set_title(title, loc="left", fontsize=10.5, color=INK, x=-0.57)
    _label(axes, totals, unit)
    _legend(figure, colours, mark if expected else "", guessed)
    told = zip(_told(totals, {mark: expected, "your prediction": guessed}, unit), bars, strict=True)
    figure.alt = in_words(title, [text + _parts(bar) for text, bar in told])
    return figure


def subject(name: str, title: str) -> str:
    """Return what a prediction in a figure is about, in the same words in every run."""
    return ", ".join(filter(None, (name, title.partition(";")[0])))


def _parts(bar: Mapping[str, float]) -> str:
    """Return the parts of a bar in words, if it has several."""
    return (
        f" ({', '.join(f'{name} {_number(value)}' for name, value in bar.items())})" if len(bar) > 1 else ""
    )


def _told(totals: Mapping[str, float], marked: Mapping[str, Mapping[int, float]], unit: str) -> Iterator[str]:
    """Put each bar into words, with what is marked on it."""
    for row, (name, total) in enumerate(totals.items()):
        marks = [f"{mark} {_number(numbers[row])}" for mark, numbers in marked.items() if row in numbers]
        yield f"{name} {', '.join([f'{_number(total)} {unit}'.strip(), *marks])}"


def _draw_bars(axes: Axes, bars: list[Mapping[str, float]]) -> dict[str, str]:
    """Draw one bar a row, its parts one after the other; return the colour of each part."""
    parts = list(dict.fromkeys(part for bar in bars for part in bar))
    if len(parts) > len(_BAR_COLOURS):
        raise ValueError(f"{len(parts)} parts cannot be told apart; draw at most {len(_BAR_COLOURS)}")
    colours = dict(zip(parts, _BAR_COLOURS, strict=False))
    ends = [0.0] * len(bars)
    for part, colour in colours.items():
        lengths = [bar.get(part, 0.0) for bar in bars]
        axes.barh(range(len(bars)), lengths, left=ends, height=0.55, color=colour)
        ends = [end + length for end, length in zip(ends, lengths, strict=True)]
    return colours


def _given(numbers: Mapping[str, float | None] | None, names: Iterable[str]) -> dict[int, float]:
    """Return the numbers that there are, by row."""
    found = [(row, (numbers or {}).get(name)) for row, name in enumerate(names)]
    return {row: number for row, number in found if number is not None}


def _label(axes: Axes, measured: Mapping[str, float], unit: str) -> None:
    names = [f"{name}:  {_number(value)} {unit}" for name, value in measured.items()]
    axes.set_yticks(range(len(measured)), names)
    # Beside the axis, not below: there the last number may reach as far.
    axes.text(1.02, 0, unit, transform=axes.transAxes, color=FAINT_INK, fontsize=8.5, va="center")
    axes.tick_params(axis="y", length=0, labelsize=9, labelcolor=INK)
    axes.tick_params(axis="x", colors=FAINT_INK, labelsize=8.5)
    draw_grid(axes, "x")


def _legend(figure: Figure, colours: dict[str, str], mark: str, yours: dict[int, float]) -> None:
    handles: list[Artist] = [Patch(facecolor=colour, label=part) for part, colour in colours.items()]
    if mark:
        handles.append(Line2D([], [], **_FORMULA | {"markersize": 11}, label=mark))
    if yours:
        handles.append(Line2D([], [], **PREDICTION, label="your prediction"))
    style = LEGEND | {"labelcolor": FAINT_INK}
    figure.legend(handles=handles, loc="lower center", ncols=len(handles), **style)


def _number(value: float) -> str:
    """Write three digits, and no powers of ten for thousands."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
