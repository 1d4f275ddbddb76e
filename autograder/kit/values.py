"""Compares what a student's code computed with what a check expects, and says how they differ."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from math import prod
from typing import TypeGuard

import torch


def is_number(value: object) -> TypeGuard[float]:
    """Tell whether this is a Python number, and none that is too large for a float."""
    return type(value) is float or (type(value) is int and abs(value) <= sys.float_info.max)


def same(got: object, want: object) -> bool:
    """Return whether two values are equal in type, dtype, shape and every element; in tensors nan is too."""
    if type(got) is not type(want):
        return False
    if isinstance(got, torch.Tensor) and isinstance(want, torch.Tensor):
        return got.dtype == want.dtype and got.shape == want.shape and _equal(got, want)
    if isinstance(got, (list, tuple)) and isinstance(want, (list, tuple)):
        return len(got) == len(want) and all(map(same, got, want))
    if isinstance(got, dict) and isinstance(want, dict):
        return got.keys() == want.keys() and all(same(got[key], want[key]) for key in want)
    return got == want


def _equal(got: torch.Tensor, want: torch.Tensor) -> bool:
    return torch.equal(got, want) or bool(((got == want) | (got.isnan() & want.isnan())).all())


def close(got: torch.Tensor, want: torch.Tensor, tolerance: float) -> bool:
    """Return whether dtype and shape are equal, and all elements up to a relative and absolute tolerance."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return False
    return torch.allclose(got.double(), want.double(), tolerance, tolerance, equal_nan=True)


def difference_beyond(tolerance: float, want: torch.Tensor, got: torch.Tensor) -> tuple[str, str]:
    """Return expected and got at the first place where they differ by more than a tolerance."""
    near = torch.isclose(got.double(), want.double(), tolerance, tolerance, equal_nan=True)
    return difference(want, torch.where(near, want, got))


def difference(want: torch.Tensor, got: torch.Tensor) -> tuple[str, str]:
    """Return expected and got at the first place where they differ."""
    wrong = (want != got).flatten().nonzero().flatten()
    first = int(wrong[0])
    share = f" ({len(wrong):,} of {want.numel():,} wrong)" if want.numel() > 1 else ""
    return f"[{first}] = {number(want, first)}", f"[{first}] = {number(got, first)}{share}"


def largest_difference(want: torch.Tensor, got: torch.Tensor) -> tuple[str, str]:
    """Return expected and got at the place where they differ most."""
    worst = int((got.double() - want.double()).abs().nan_to_num(torch.inf).argmax())
    return f"[{worst}] = {number(want, worst)}", number(got, worst)


def number(tensor: torch.Tensor, at: int) -> str:
    """Return an element of a tensor, by its position in the flattened one."""
    value = tensor.flatten()[at].item()
    return f"{value:,}" if isinstance(value, int) else f"{value:,.10g}"


def apart(want: float, got: float) -> tuple[str, str]:
    """Return two numbers in as few digits as show that they differ."""
    for digits in (6, 9, 12, 17):
        texts = f"{want:.{digits}g}", f"{got:.{digits}g}"
        if texts[0] != texts[1]:
            break
    return texts


def has_number(text: str, number: int | str) -> bool:
    """Tell whether a number stands in a text by itself, and not only as some of the digits of another.

    Decimals may follow a whole number: of 80.25 it is the beginning.
    """
    return re.search(rf"(?<![\d.]){re.escape(str(number))}(?!\d|,\d{{3}})", text) is not None


def has_product(text: str, factors: Sequence[int]) -> bool:
    """Tell whether a text has the product of some numbers, or each of them, as in "2 × 4"."""
    return has_number(text, prod(factors)) or all(has_number(text, factor) for factor in factors)


def dtype_name(dtype: torch.dtype) -> str:
    """Return a dtype as students write it, without the `torch.` before it."""
    return str(dtype).removeprefix("torch.")


def kind_of(value: object) -> str:
    """Say what something is, as in "a float32 tensor of shape (2, 3)"."""
    if isinstance(value, torch.Tensor):
        return _with_article(f"{dtype_name(value.dtype)} tensor of shape {tuple(value.shape)}")
    if isinstance(value, (list, tuple)):
        return _with_article(f"{type(value).__name__} of {len(value)}")
    return "None" if value is None else _with_article(type(value).__name__)


def _with_article(text: str) -> str:
    return f"an {text}" if text.startswith("int") else f"a {text}"
