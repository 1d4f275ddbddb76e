"""Calls of a student's function: alone, with tensors to fill, twice, and with an argument that is changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from autograder.inside.drivers import Code, driver_named
from autograder.inside.moments import mark

USED_AGAIN = "used again"


def call(function: Code, arguments: Sequence[Any], keywords: dict[str, Any]) -> object:
    return function(*arguments, **keywords)


def call_in_place(function: Code, *arguments: Any, **keywords: Any) -> object:
    """Call it with views of the tensors: giving one of them other memory leaves the given one unfilled."""
    return function(*map(_view, arguments), **keywords)


def call_with_tensors_to_fill(
    function: Code, tensor: torch.Tensor, to_fill: list[torch.Tensor] | None, *arguments: Any, **keywords: Any
) -> object:
    """Call it with a list of its own: putting another tensor into that leaves the given one unfilled."""
    views = None if to_fill is None else [_view(each) for each in to_fill]
    return function(_view(tensor), views, *arguments, **keywords)


def _view(given: Any) -> Any:
    return given.view_as(given) if isinstance(given, torch.Tensor) else given


def call_twice(function: Code, tensor: torch.Tensor, *arguments: Any) -> object:
    """Call it with a tensor, then with its negative; return the first result as the second call leaves it."""
    first = function(tensor, *arguments)
    function(-tensor, *arguments)
    return first


def call_again(function: Code, given: Any, *arguments: Any) -> object:
    """Call it with the negative of a tensor or a number, then with that itself; return the second result."""
    function(-given, *arguments)
    return function(given, *arguments)


def call_and_change(function: Code, tensor: torch.Tensor) -> object:
    """Call it, and change the tensor for a moment; return the result as it is meanwhile."""
    result = function(tensor)
    tensor.neg_()
    meanwhile = result.clone() if isinstance(result, torch.Tensor) else result
    tensor.neg_()
    return meanwhile


def use_again(
    function: Code, driver: str, earlier: Sequence[Any], arguments: Sequence[Any], **keywords: Any
) -> object:
    """Let a driver use it with earlier arguments, then with others; mark the second use, and report that."""
    use = driver_named(driver)
    use(function, *earlier, **keywords)
    mark(USED_AGAIN)
    return use(function, *arguments, **keywords)
