"""The ledger of a reader's predictions: each prediction, the true value, and how far apart the two were.

`begin` opens a lecture, with questions of earlier ones. `predicted` and `compare` note each prediction as
soon as its truth is known; at the end of the lecture `review` shows them. All are kept beside the notebook.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

from .drawable import written
from .journal import Journal
from .questions import asked_in

_journal = Journal("predictions")
_topic = ""  # of the lecture that this kernel runs


@dataclass(frozen=True)
class Guess:
    """A prediction of which the truth is known."""

    topic: str
    about: str
    answer: Any
    truth: Any

    @property
    def ratio(self) -> float | None:
        """The answer divided by the truth; None where a ratio says nothing: for words, signs, zeros."""
        if not (_is_number(self.answer) and _is_number(self.truth)):
            return None
        try:
            ratio = self.answer / self.truth
        except (OverflowError, ZeroDivisionError):
            return None
        return float(ratio) if math.isfinite(ratio) and ratio > 0 else None

    @property
    def is_right(self) -> bool:
        """Whether it is the truth: to two percent for a number, to the letter for words."""
        if self.ratio is not None:
            return abs(self.ratio - 1) < 0.02
        return _plain(self.answer) == _plain(self.truth)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _plain(value: object) -> object:
    if isinstance(value, str):
        return value.strip().lower()
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def begin(topic: str) -> None:
    """Open a lecture, whose predictions follow, and print three questions of earlier ones."""
    global _topic
    _topic = topic
    for number, question in enumerate(asked_in(topic), 1):
        print(f"{number}. (lecture {question.topic}) {question.text}")


def answers(given: object = ()) -> None:
    """Print the answers to the questions of `begin`, each beside the reader's own where there is one."""
    own = given if isinstance(given, list | tuple) else ()
    if given is not None and own is not given:
        print("Your answers have lost their brackets. Keep them: [640, 6, None]")
    for number, question in enumerate(asked_in(_topic), 1):
        said = f"you said: {written(own[number - 1])}   " if _has(own, number) else ""
        print(f"{number}. {said}{question.answer}")


def _has(own: list[object] | tuple[object, ...], number: int) -> bool:
    return len(own) >= number and own[number - 1] is not None


def note(about: str, answer: object, truth: object) -> None:
    """Note a prediction and its truth, in place of an earlier one; None is none.

    Outside of a lecture, before `begin`, nothing is noted.
    """
    if _topic and answer is not None:
        record = {"topic": _topic, "about": about, "answer": _storable(answer), "truth": truth}
        _journal.keep(f"{_topic}: {about}", record)


def _storable(answer: object) -> object:
    """Return the answer, or its text if JSON cannot hold it."""
    try:
        json.dumps(answer, default=str)
    except (TypeError, ValueError):
        return written(answer)
    return answer


def guesses() -> tuple[list[Guess], list[Guess]]:
    """Return the predictions of this lecture, and all that this notebook and its neighbours keep."""
    known = [
        Guess(**record)
        for record in _journal.records().values()
        if record.keys() == {"topic", "about", "answer", "truth"}
        and isinstance(record["topic"], str)
        and isinstance(record["about"], str)
    ]
    return [guess for guess in known if guess.topic == _topic], known
