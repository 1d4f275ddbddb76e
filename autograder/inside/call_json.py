"""Calls as JSON: ranks' own accounts of their communication, out of a sandbox, read field by field.

The `recorder` in each rank of `fourranks` keeps that record, and code on the rank can write into it what it
likes. `ledger` holds it against the calls that witnesses made, `loopback` against what Linux counted; here it
is only seen to that checks can rely on its form. (`grading.records` are of something else: what submissions
came to.)
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from fourranks.protocol.places import Line
from fourranks.rank.frames import MAX_CALLERS
from fourranks.trace import Call

LONGEST = 1000  # characters of a name
MOST_TEXT = 32 << 20  # characters of a record: 90,000 calls with all that a call can have, on 8 ranks
MOST_LISTS = 1_000_000  # of a record of so many calls; each takes 30 times as much memory as text
MOST_COUNT = 1 << 63  # bytes, elements, lines: no machine has more
MOST_DIMS = 64  # of a tensor
# A batch matters while its calls are under way; all of them are in the record.
_FIELDS = [field.name for field in dataclasses.fields(Call) if field.name != "batch"]
_COUNTS = ("seq", "index", "nbytes", "line")
Test = Callable[[Any], bool]
Kinds = dict[type, Test]  # by the types that a value can have, the further test that it must pass


def dumps(calls: Sequence[Sequence[Call]]) -> str:
    """Write the calls of each rank as rows of their fields, without what JSON does not know."""
    fields = operator.attrgetter(*_FIELDS)
    rows = [[fields(call) for call in own] for own in calls]
    return json.dumps(rows, skipkeys=True, default=lambda value: None)


def loads(text: object, world_size: int) -> list[list[Call]]:
    """Read the calls of each rank.

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
    found: list[dict[str, Any]] = [dict(zip(_FIELDS, _with_tuples(row), strict=True)) for row in own]
    if not all(_is_typed(fields) and _is_call(fields, world_size) for fields in found):
        raise ValueError("no record of calls")
    return [Call(**fields) for fields in found]


def _with_tuples(row: list[object]) -> Iterator[object]:
    """Yield the fields of a call: tuples for JSON's lists, at most two of them in each other."""
    for value in row:
        if type(value) is list:
            yield tuple([tuple(each) if type(each) is list else each for each in value])
        else:
            yield value


def _is_call(fields: dict[str, Any], world_size: int) -> bool:
    """Tell whether numbers of the right types are within their limits."""
    ranks, exchange = fields["ranks"], fields["exchange"] or ()
    counts = [
        *(fields[name] for name in _COUNTS),
        *fields["shape"],
        *(each for own in exchange for each in own),
    ]
    return (
        all(each >= 0 for each in counts)
        and all(_are_ranks(fields[name], world_size) for name in ("ranks", "members"))
        and all(fields[name] is None or 0 <= fields[name] < world_size for name in ("peer", "root"))
        and len(ranks) > 0
        and all(len(nbytes) == len(ranks) for nbytes in exchange)
        and len(fields["shape"]) <= MOST_DIMS
        and len(fields["callers"]) <= MAX_CALLERS
    )


def _are_ranks(ranks: Sequence[int], world_size: int) -> bool:
    return all(0 <= rank < world_size for rank in ranks) and len(set(ranks)) == len(ranks)


def _is_typed(fields: dict[str, Any]) -> bool:
    return all(map(_is_one, _KINDS, fields.values()))


def _is_one(kinds: Kinds, value: object) -> bool:
    """Tell whether a value is of one of these kinds."""
    test = kinds.get(type(value))
    return test is not None and test(value)


def _kinds(hint: Any) -> Kinds:
    """Return what values of a type annotation can be; one that no record has, has no values."""
    kind, inner = get_origin(hint), get_args(hint)
    if hint is Line:
        kind, inner = tuple, tuple(get_type_hints(Line).values())
    if kind in (Union, UnionType):
        return {kind: test for each in inner for kind, test in _kinds(each).items()}
    if kind is tuple:
        return {tuple: _like(inner)}
    return {hint: _PLAIN[hint]} if hint in _PLAIN else {}


def _like(inner: Sequence[Any]) -> Test:
    """Return what tells whether the parts of a tuple have these types, all the first one if `...` follows."""
    if inner[-1] is ...:
        return functools.partial(_are_all, _kinds(inner[0]))
    kinds = [*map(_kinds, inner)]
    return lambda parts: len(parts) == len(kinds) and all(map(_is_one, kinds, parts))


def _are_all(kinds: Kinds, parts: tuple[object, ...]) -> bool:
    return all(_is_one(kinds, part) for part in parts)


_PLAIN: dict[Any, Test] = {
    NoneType: lambda value: True,
    bool: lambda value: True,
    int: lambda value: abs(value) < MOST_COUNT,
    float: math.isfinite,
    str: lambda value: len(value) <= LONGEST,
}
_HINTS = get_type_hints(Call)
_KINDS = [_kinds(_HINTS[name]) for name in _FIELDS]
