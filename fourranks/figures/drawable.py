"""Picks the predictions that a figure can mark, and says what to write instead of the others.

A reader may write anything in place of `None`: a text, a list, a number that no axis can hold.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping
from numbers import Real

_ADVICE = "Write a number without a unit, such as 40."
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


def _short(answer: object) -> str:
    try:
        text = repr(answer)
    except ValueError:  # Python does not write out integers of thousands of digits
        text = "a huge number"
    return textwrap.shorten(text, _LONGEST, placeholder=" …") if " " in text else text[:_LONGEST]
