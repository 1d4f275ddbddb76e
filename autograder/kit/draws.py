"""Random inputs that tell nothing of one another: from those that some code is given, no others can be found.

All numbers come from SHAKE-256 of a seed that may have any number of bits and of how many draws were made
before. Python's and torch's own generators are no secrets: their state follows from what they have drawn, and
torch's takes 32 bits of a seed.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import torch

_KEY_BYTES = 32
_SMALL = 1 << 24  # numbers up to here are drawn from 32 bits each, larger ones from 64
_DIGITS = 53  # bits of a float64's fraction


class Draws:
    """Numbers drawn from a seed: the same calls draw the same numbers. Shapes and dtypes are as in torch.

    Args:
        seed: any integer.
    """

    def __init__(self, seed: int) -> None:
        self._key = hashlib.shake_256(str(seed).encode()).digest(_KEY_BYTES)
        self._number = 0

    def split(self) -> Draws:
        """Return further numbers, which do not depend on how many are drawn here after this."""
        apart = Draws(0)
        apart._key = self._bytes(_KEY_BYTES)
        return apart

    def seed(self, name: object) -> int:
        """Return a seed for `torch.manual_seed`; the same for the same name, however much has been drawn."""
        return int.from_bytes(hashlib.shake_256(self._key + f"seed {name}".encode()).digest(7), "big")

    def randint(
        self, low: int, high: int, shape: Sequence[int] = (), dtype: torch.dtype = torch.int64
    ) -> torch.Tensor:
        """Draw integers from `low` to `high` - 1."""
        bits = torch.int32 if high - low <= _SMALL else torch.int64
        return self._words(shape, bits).remainder_(high - low).add_(low).to(dtype)

    def rand(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Draw numbers from 0 to 1, without 1."""
        digits = min(_DIGITS, 1 - round(math.log2(torch.finfo(dtype).eps)))
        words = self._words(shape, torch.int64).bitwise_and_((1 << digits) - 1)
        return words.double().mul_(2.0**-digits).to(dtype)

    def randn(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Draw numbers with mean 0 and variance 1: two uniform ones make one (Box and Muller)."""
        radius = self.rand(shape, torch.float64).neg_().add_(1).log_().mul_(-2).sqrt_()
        return radius.mul_(self.rand(shape, torch.float64).mul_(2 * math.pi).cos_()).to(dtype)

    def _words(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        if math.prod(shape) == 0:
            return torch.empty(shape, dtype=dtype)
        content = bytearray(self._bytes(math.prod(shape) * dtype.itemsize))
        return torch.frombuffer(content, dtype=dtype).reshape(shape)

    def _bytes(self, number: int) -> bytes:
        self._number += 1
        return hashlib.shake_256(self._key + self._number.to_bytes(8, "big")).digest(number)
