"""Picks the predictions that a figure can mark, and says what to write instead of the others.

A reader may write anything in place of `None`: a text, a list, a number that no axis can hold.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping
from numbers import Real

_ADVICE = "Write a number without a unit, such as 40 or 0.4."
_LONGEST = 40  # characters of an answer that a message repeats


def drawable(answer: object, about: str = "") -> float | None:
    """Return a prediction as a finite number; None without one, and with a message if it is not a number."""
    if answer is None:
        return None
    if isinstance(answer, Real) and not isinstance(answer, bool):
        try:
            number = float(answer)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
    subject = f"Your prediction for {about}" if about else "Your prediction"
    print(f"{subject}, {_short(answer)}, is not a number that the figure can show. {_ADVICE}")
    return None


def scaled(answer: object, unit: float) -> float | None:
    """Return a prediction of how many times `unit` something is, in that unit; None as `drawable` does."""
    number = drawable(answer)
    return None if number is None else number * unit


def all_drawable(answers: object, names: Iterable[str]) -> dict[str, float]:
    """Return the predictions for these names that are finite numbers, with a message for each other one."""
    if answers is None:
        return {}
    if not isinstance(answers, Mapping):
        print(f"Your predictions, {_short(answers)}, have lost their names. Keep the braces: {_form(names)}")
        return {}
    numbers = {name: drawable(answers.get(name), name) for name in names}
    return {name: number for name, number in numbers.items() if number is not None}


def _form(names: Iterable[str]) -> str:
    return "{" + ", ".join(f'"{name}": 40' for name in names) + "}"


def written(answer: object, style: Callable[[object], str] = str) -> str:
    """Return an answer as text, whatever it is; `style` is `str` or `repr`."""
    try:
        return style(answer)
    except ValueError:  # Python does not write out integers of thousands of digits
        return "a huge number"


def _short(answer: object) -> str:
    text = written(answer, repr)
    return textwrap.shorten(text, _LONGEST, placeholder=" …") if " " in text else text[:_LONGEST]
