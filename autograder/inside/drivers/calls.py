"""Calls a student's function as a test cell does that uses no check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autograder.inside.drivers import Code


def call(function: Code, arguments: Sequence[Any], keywords: dict[str, Any]) -> object:
    return function(*arguments, **keywords)
