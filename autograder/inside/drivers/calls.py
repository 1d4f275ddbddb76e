"""Calls of a student's function: as a test cell makes it that uses no check, and two, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from autograder.inside.drivers import Code


def call(function: Code, arguments: Sequence[Any], keywords: dict[str, Any]) -> object:
    return function(*arguments, **keywords)


def call_twice(function: Code, tensor: torch.Tensor, *arguments: Any) -> object:
    """Call it with a tensor, then with its negative; return the first result as the second call leaves it."""
    first = function(tensor, *arguments)
    function(-tensor, *arguments)
    return first
