"""Driver of exercise 07's schedules: many calls of a pure function, their answers as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from autograder.inside.drivers import Code
from autograder.inside.reports import Report


@dataclass(frozen=True)
class ReturnedSchedule(Report):
    """The result of a call, with the name of its type; or the text of the ValueError that it raised."""

    type: str = ""
    value: object = None
    refused: str | None = None


def call_each(function: Code, calls: list[list[Any]]) -> list[ReturnedSchedule]:
    """Call the function with each of the lists of arguments."""
    return [_answer(function, arguments) for arguments in calls]


def _answer(function: Code, arguments: list[Any]) -> ReturnedSchedule:
    try:
        value = function(*arguments)
    except ValueError as error:
        return ReturnedSchedule(refused=str(error))
    return ReturnedSchedule(type(value).__name__, list(value) if isinstance(value, range) else value)
