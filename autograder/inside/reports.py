"""Reports of drivers: dataclasses on the ranks and in checks, plain data on the way between them.

A message from a rank may be anything that `wire` can carry: each value in it is looked at before a
report is made of it.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Callable
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
_hints: Callable[[Any], dict[str, Any]] = functools.cache(get_type_hints)  # a list may have 100,000 reports


class Report:
    """A driver's report: a base of dataclasses whose fields `wire` can carry, or that are reports."""


class Unreadable(Exception):
    """A message from a rank has not the form of the report that its driver makes."""


def plain(value: object) -> object:
    """Return a report, or a list of them, as dicts by field; anything else as it is."""
    if isinstance(value, Report) and dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, list) and any(isinstance(each, Report) for each in value):
        return [plain(each) for each in value]
    return value


@functools.cache
def form_of(driver: Callable[..., Any] | None) -> Any:
    """Return the type that a driver says it returns; without a driver, any."""
    return get_type_hints(driver)["return"] if driver else object


def read(form: Any, value: object) -> Any:
    """Return what came from a rank in the form that it has to have.

    Args:
        form: a report, `list`, `dict` or `tuple` of forms, a union of them, or a type that `wire` can carry;
            `object` stands for any value, as where a student's code may have returned it.

    Raises:
        Unreadable: it has another form.
    """
    origin, parts = get_origin(form), get_args(form)
    if form is object:
        return value
    if origin in (Union, types.UnionType):
        return _one_of(parts, value)
    if origin is list and type(value) is list:
        return [read(parts[0], each) for each in value]
    if origin is tuple and type(value) in (list, tuple) and len(value) == len(parts):  # type: ignore[arg-type]
        return tuple(map(read, parts, value))  # type: ignore[call-overload]
    if origin is dict and type(value) is dict:
        return {read(parts[0], key): read(parts[1], each) for key, each in value.items()}
    if isinstance(form, type) and issubclass(form, Report):
        return _report(form, value)
    if type(value) is form:
        return value
    raise Unreadable(f"not {getattr(form, '__name__', form)}, but {type(value).__name__}")


def _one_of(forms: tuple[Any, ...], value: object) -> Any:
    for form in forms[:-1]:
        try:
            return read(form, value)
        except Unreadable:
            continue
    return read(forms[-1], value)


def _report(form: type[T], value: object) -> T:
    forms = _hints(form)
    if type(value) is not dict or value.keys() != forms.keys():
        raise Unreadable(f"no {form.__name__}")
    return form(**{name: read(forms[name], each) for name, each in value.items()})


def as_many(values: list[T], number: int) -> list[T]:
    """Return the values of a report if they are so many.

    Raises:
        Unreadable: they are not.
    """
    if len(values) != number:
        raise Unreadable(f"{len(values)} values, not {number}")
    return values
