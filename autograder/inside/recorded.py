"""The record of what ranks communicated, as it comes out of a sandbox: JSON, read field by field.

Code on a rank can write into its own record what it likes. `ledger` holds it against the calls that were
made, `loopback` against what Linux counted; here it is only seen to that checks can rely on its form.
"""

from __future__ import annotations

import dataclasses
import json
import math
import operator
from collections.abc import Sequence
from typing import Any

from fourranks.rank.frames import MAX_CALLERS
from fourranks.trace import Call

LONGEST = 1000  # characters of a name
MOST_TEXT = 32 << 20  # characters of a record: 90,000 calls with all that a call can have, on 8 ranks
MOST_LISTS = 1_000_000  # of a record of so many calls; each takes 30 times as much memory as text
MOST_COUNT = 1 << 63  # bytes, elements, lines: no machine has more
MOST_DIMS = 64  # of a tensor
_FIELDS = [field.name for field in dataclasses.fields(Call)]
_NAMES = ("op", "group", "dtype", "file", "function", "through")
_COUNTS = ("seq", "index", "nbytes", "line")
_MOMENTS = ("end", "completed", "device_seconds")  # or None
_RANKS = ("peer", "root")  # or None


def plain(calls: Sequence[Sequence[Call]]) -> str:
    """The calls of each rank as rows of their fields; what JSON does not know is left out."""
    fields = operator.attrgetter(*_FIELDS)
    rows = [[fields(call) for call in own] for own in calls]
    return json.dumps(rows, skipkeys=True, default=lambda value: None)


def calls(text: object, world_size: int) -> list[list[Call]]:
    """The calls of each rank.

    Raises:
        ValueError: something in the record is not what it can be.
    """
    record = _read(text)
    if type(record) is not list or len(record) != world_size:
        raise ValueError("no record of every rank")
    return [_calls(own, world_size) for own in record]


def _read(text: object) -> object:
    if type(text) is not str or len(text) > MOST_TEXT:
        raise ValueError("no record, or a very long one")
    if text.count("[") + text.count("{") > MOST_LISTS:
        raise ValueError("a record with more in it than calls have")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("a record that is nested too deeply") from None


def _calls(own: object, world_size: int) -> list[Call]:
    if type(own) is not list or not all(type(row) is list and len(row) == len(_FIELDS) for row in own):
        raise ValueError("no record of calls")
    found = [dict(zip(_FIELDS, map(_with_tuples, row), strict=True)) for row in own]
    if not all(_is_call(fields, world_size) for fields in found):
        raise ValueError("no record of calls")
    return [Call(**fields) for fields in found]


def _with_tuples(value: object) -> object:
    """A field of a call, which has tuples where JSON has lists, and at most two of them in each other."""
    if type(value) is not list:
        return value
    return tuple(tuple(each) if type(each) is list else each for each in value)


def _is_call(fields: dict[str, Any], world_size: int) -> bool:
    return (
        all(_is_name(fields[name]) for name in _NAMES)
        and all(_is_count(fields[name]) for name in _COUNTS)
        and all(fields[name] is None or _is_moment(fields[name]) for name in _MOMENTS)
        and all(fields[name] is None or _is_rank(fields[name], world_size) for name in _RANKS)
        and _are_ranks(fields["ranks"], world_size)
        and len(fields["ranks"]) > 0
        and _are_ranks(fields["members"], world_size)
        and _are_counts(fields["shape"])
        and len(fields["shape"]) <= MOST_DIMS
        and (fields["exchange"] is None or _is_exchange(fields["exchange"], len(fields["ranks"])))
        and (fields["part"] is None or _is_part(fields["part"]))
        and (fields["reduce_op"] is None or _is_name(fields["reduce_op"]))
        and _is_moment(fields["start"])
        and _is_moment(fields["waited"])
        and type(fields["tag"]) is int
        and abs(fields["tag"]) < MOST_COUNT
        and type(fields["asynchronous"]) is bool
        and _are_lines(fields["callers"])
        and fields["look"] is None
    )


def _is_name(value: object) -> bool:
    return type(value) is str and len(value) <= LONGEST


def _is_moment(value: object) -> bool:
    return type(value) is float and math.isfinite(value)


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < MOST_COUNT


def _is_rank(value: object, world_size: int) -> bool:
    return type(value) is int and 0 <= value < world_size


def _are_counts(value: object) -> bool:
    return type(value) is tuple and all(map(_is_count, value))


def _are_ranks(value: object, world_size: int) -> bool:
    return (
        type(value) is tuple
        and all(_is_rank(each, world_size) for each in value)
        and len(set(value)) == len(value)
    )


def _are_lines(value: object) -> bool:
    return (
        type(value) is tuple
        and len(value) <= MAX_CALLERS
        and all(type(line) is tuple and [*map(type, line)] == [str, int, str] for line in value)
    )


def _is_part(value: object) -> bool:
    return type(value) is tuple and [type(each) for each in value] == [int, str]


def _is_exchange(value: object, size: int) -> bool:
    return (
        type(value) is tuple
        and len(value) == 2
        and all(_are_counts(nbytes) and len(nbytes) == size for nbytes in value)
    )
