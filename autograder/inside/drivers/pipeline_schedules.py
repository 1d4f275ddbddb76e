"""Driver of exercise 07's schedules: many calls of a pure function, their answers as plain data."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def call_each(function: Callable, calls: list[list]) -> list[dict]:
    """For each call what it returns, with the name of its type; or the text of the ValueError it raises."""
    return [_answer(function, arguments) for arguments in calls]


def _answer(function: Callable, arguments: Iterable) -> dict:
    try:
        value = function(*arguments)
    except ValueError as error:
        return {"refused": str(error)}
    return {"type": type(value).__name__, "value": list(value) if isinstance(value, range) else value}
