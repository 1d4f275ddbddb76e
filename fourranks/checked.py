"""Checks of the arguments of a group: each as the group uses it, or an error that says what it should be."""

from __future__ import annotations

import contextlib
import math
import numbers
import operator
import reprlib
from collections.abc import Callable, Iterable
from typing import Any

from .errors import FourRanksError, StartError
from .naming import name_ranks
from .workers import MAX_WORLD_SIZE


def world_size(given: Any) -> int:
    """Return a number of ranks that a world can have.

    Raises:
        StartError: no world has that many.
    """
    with contextlib.suppress(TypeError):
        if 1 <= (size := operator.index(given)) <= MAX_WORLD_SIZE:
            return size
    raise StartError(f"A world has 1 to {MAX_WORLD_SIZE} ranks, not {given!r}.")


def timeout(given: Any) -> float | None:
    """Return a number of seconds above zero, or None for no limit.

    Raises:
        FourRanksError: it is neither.
    """
    if given is None:
        return None
    seconds = float(given) if isinstance(given, numbers.Real) else math.nan
    if not seconds > 0:
        raise FourRanksError(
            f"A timeout is a number of seconds above zero, or None for no limit, not {given!r}."
        )
    return seconds


def ranks(given: Any, world_size: int) -> list[int]:
    """Return the ranks that are chosen of a world; None stands for all.

    Raises:
        FourRanksError: it is no sequence of ranks, has one twice, one that the world does not have, or none.
    """
    try:
        chosen = list(range(world_size)) if given is None else [operator.index(rank) for rank in given]
    except TypeError:
        raise FourRanksError(
            f"Ranks are given as a list of numbers, as in [0, 1], not {reprlib.repr(given)}."
        ) from None
    unknown = [rank for rank in chosen if rank not in range(world_size)]
    if unknown:
        there_is = "there is" if len(unknown) == 1 else "there are"
        raise FourRanksError(f"This world has ranks 0-{world_size - 1}; {there_is} no {name_ranks(unknown)}.")
    if not chosen:
        raise FourRanksError("No ranks were given.")
    if twice := sorted({rank for rank in chosen if chosen.count(rank) > 1}):
        raise FourRanksError(f"Name each rank once; {name_ranks(twice)} came more often.")
    return chosen


def virtual_rank(rank: Any, world_size: Any) -> tuple[int, int]:
    """Return a rank and the size of a world that has it, however large.

    Raises:
        FourRanksError: one of them is not a whole number, or the world has no such rank.
    """
    try:
        number, size = operator.index(rank), operator.index(world_size)
    except TypeError:
        raise FourRanksError(
            f"A rank and the size of its world are whole numbers, not {reprlib.repr(rank)} of "
            f"{reprlib.repr(world_size)}."
        ) from None
    if not 0 <= number < size:
        raise FourRanksError(f"A world of {size} ranks has no rank {number}.")
    return number, size


def source(given: Any, meaning: str) -> str:
    """Return source text; `meaning` says of what, as in "A cell".

    Raises:
        FourRanksError: it is no text.
    """
    if not isinstance(given, str):
        raise FourRanksError(f"{meaning} is given as text, not as {reprlib.repr(given)}.")
    return given


def function(given: Callable[..., Any]) -> Callable[..., Any]:
    """Return what ranks can call.

    Raises:
        FourRanksError: it cannot be called.
    """
    if not callable(given):
        raise FourRanksError(f"The ranks need a function to call, not {reprlib.repr(given)}.")
    return given


def inputs(given: Any, world_size: int) -> list[tuple[Any, ...]]:
    """Return the arguments of each rank.

    Raises:
        FourRanksError: there is not one tuple of them for each rank.
    """
    each_rank = list(given) if isinstance(given, Iterable) else [given]
    if not all(isinstance(arguments, (tuple, list)) for arguments in each_rank):
        raise FourRanksError(
            f"map() needs a tuple of arguments for each rank, as in [(1,), (2,)], not {reprlib.repr(given)}."
        )
    if len(each_rank) != world_size:
        raise FourRanksError(
            f"map() needs one tuple of arguments a rank: {world_size}, not {len(each_rank)}."
        )
    return [tuple(arguments) for arguments in each_rank]
