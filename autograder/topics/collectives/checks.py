"""Checks of exercise 02: collectives built from messages between two ranks.

Each check draws its inputs, says what every rank must hold afterwards, and what it may have sent. Copies
are compared bit by bit. Sums too: the numbers to be added are small integers, whose sums are exact in every
dtype and order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from autograder.inside.drivers.calls import (
    call_again,
    call_in_place,
    call_twice,
    call_with_tensors_to_fill,
)
from autograder.kit.check import Cases, Code, check
from autograder.kit.draws import Draws
from autograder.kit.settings import Setting, some_ranks
from autograder.topics.collectives.budget import Budget
from autograder.topics.collectives.in_place import RETURNED, Expected, InPlaceCase

WORLD_SIZES = (1, 2, 3, 4, 5)
FEW = (7,)  # the shape of other ones that are called twice
NUMELS = (0, 1, *FEW, 1000)
DTYPES = (torch.float32, torch.int64, torch.bfloat16, torch.float64)
MATRIX = (4, 3)  # the shape of one case; all others have one dimension

# Tensors of at most so many elements hold small numbers, whose sums can be followed by hand.
_FEW = 12
_LARGEST_BY_HAND = 40  # a number that `garbage` is not
# The largest summand: so small that the sum of 16 of them is still an integer that the dtype holds exactly.
# That of int64 is larger than what float64 holds exactly: a sum has to be formed in the tensor's own dtype.
_LARGEST_SUMMAND = {
    torch.bfloat16: 1 << 4,
    torch.float16: 1 << 7,
    torch.float32: 1 << 20,
    torch.float64: 1 << 30,
    torch.int64: 1 << 58,
    torch.int32: 1 << 20,
}


@dataclass(frozen=True)
class _Variation(Setting):
    """The settings of a case. `shape` is that of the tensor, or of a chunk where there are several."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    root_position: int

    @property
    def size(self) -> int:
        return len(self.ranks)

    @property
    def root(self) -> int:
        return self.ranks[self.root_position]

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.numel * self.dtype.itemsize

    def shape_of(self, parts: int) -> tuple[int, ...]:
        """Return the shape of a tensor of `parts` chunks, one after another."""
        return parts * self.shape[0], *self.shape[1:]

    def draw(self, parts: int = 1) -> list[torch.Tensor]:
        """Draw for each rank that takes part a tensor of `parts` chunks."""
        high = _LARGEST_SUMMAND[self.dtype]
        if self.numel <= _FEW:
            high = min(high, _LARGEST_BY_HAND)
        shape = (self.size, *self.shape_of(parts))
        return list(self.draws.randint(-high, high + 1, shape, self.dtype).unbind())

    def garbage(self, parts: int = 1) -> torch.Tensor:
        """Make a buffer to be filled, whose contents are not the result by accident."""
        return torch.full(self.shape_of(parts), 77, dtype=self.dtype)

    def total(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the sum, which is exact: see `_LARGEST_SUMMAND`."""
        total = tensors[0].to(torch.int64 if self.dtype == torch.int64 else torch.float64, copy=True)
        for tensor in tensors[1:]:
            total += tensor
        return total.to(self.dtype)

    def on_ranks(self, values: Sequence[Any], elsewhere: Any) -> list[Any]:
        """Spread `values`, one for each rank that takes part, over all ranks of the world."""
        return [values[self.ranks.index(r)] if r in self.ranks else elsewhere for r in range(self.world_size)]

    def case(
        self,
        inputs: Sequence[tuple[Any, ...] | None],
        expected: Sequence[Expected],
        budget: Budget,
        received: tuple[int, ...],
        summands: Sequence[Sequence[torch.Tensor]] | None = None,
        root_name: str | None = None,
        driver: Callable[..., Any] = call_in_place,
    ) -> InPlaceCase:
        """Make a case of these inputs and expectations, one of each for every rank that takes part.

        Args:
            received: bytes that each rank of the world needs from others, where there are others.
        """
        return InPlaceCase(
            shape=self.shape,
            dtype=self.dtype,
            inputs=self.on_ranks(inputs, None),
            expected=self.on_ranks(expected, {}),
            budget=budget,
            members=self.members,
            received=received if self.size > 1 else (),
            root=self.root if root_name else None,
            root_name=root_name or "",
            driver=driver,
            summands=None if summands is None else self.on_ranks(summands, []),
        )

    def limits(self, at_root: int, elsewhere: int) -> tuple[int, ...]:
        """Return a budget by rank that differs between the root and the others."""
        return tuple(self.on_ranks([at_root if r == self.root else elsewhere for r in self.ranks], 0))

    def each(self, nbytes: int) -> tuple[int, ...]:
        """Return a budget by rank that is the same for all that take part."""
        return self.limits(nbytes, nbytes)

    def tree(self) -> Budget:
        rounds = (self.size - 1).bit_length()  # the base-2 logarithm, rounded up
        return Budget("a tree", total_bytes=(self.size - 1) * self.nbytes, rounds=rounds)

    def ring(self, steps: int, nbytes: int) -> Budget:
        return Budget("a ring", self.each(steps * nbytes), self.each(steps), ring=self.ranks)


def _settings(
    world_sizes: Sequence[int],
    numels: Sequence[int],
    dtypes: Sequence[torch.dtype],
    seed: int,
    groups: bool = True,
) -> Iterator[_Variation]:
    """Give every world size with every number of elements; dtypes and roots take turns."""
    draws = Draws(seed)
    for world_size in world_sizes:
        for turn, numel in enumerate(numels):
            dtype = dtypes[(turn + world_size) % len(dtypes)]
            yield _Variation(world_size, None, draws, (numel,), dtype, turn % world_size)
    largest = max(world_sizes)
    yield _Variation(largest, None, draws, MATRIX, dtypes[0], 0)
    if groups and largest >= 3:
        members = some_ranks(largest)
        yield _Variation(largest, members, draws, (numels[-1],), dtypes[0], len(members) - 1)


def _operation(
    groups: bool = True, world_sizes: Sequence[int] = WORLD_SIZES
) -> Callable[[Callable[[_Variation], InPlaceCase]], Callable[..., None]]:
    """Make a check of an operation, of a function that makes its case in each setting."""

    def decorate(make_case: Callable[[_Variation], InPlaceCase]) -> Callable[..., None]:
        def draw(
            function: Code,
            world_sizes: Sequence[int] = world_sizes,
            numels: Sequence[int] = NUMELS,
            dtypes: Sequence[torch.dtype] = DTYPES,
            seed: int = 0,
        ) -> Cases:
            yield from map(make_case, _settings(world_sizes, numels, dtypes, seed, groups))

        draw.__name__ = draw.__qualname__ = make_case.__name__
        draw.__doc__ = f"Check the values and the budget of `{make_case.__name__}` in each setting."
        return check()(draw)

    return decorate


@_operation()
def broadcast(setting: _Variation) -> InPlaceCase:
    tensors = setting.draw()
    inputs = [(tensor, setting.root) for tensor in tensors]
    expected = [{0: tensors[setting.root_position]}] * setting.size
    received = setting.limits(0, setting.nbytes)
    return setting.case(inputs, expected, setting.tree(), received, root_name="src")


@_operation()
def reduce(setting: _Variation) -> InPlaceCase:
    tensors = setting.draw()
    inputs = [(tensor, setting.root) for tensor in tensors]
    expected = [{0: setting.total(tensors)} if rank == setting.root else {} for rank in setting.ranks]
    received = setting.limits(setting.nbytes, 0)
    return setting.case(inputs, expected, setting.tree(), received, [tensors] * setting.size, root_name="dst")


@_operation()
def scatter(setting: _Variation) -> InPlaceCase:
    parts = setting.draw()
    inputs = [
        (setting.garbage(), parts if rank == setting.root else None, setting.root) for rank in setting.ranks
    ]
    expected = [
        {0: part, 1: parts} if rank == setting.root else {0: part}
        for rank, part in zip(setting.ranks, parts, strict=True)
    ]
    others = setting.size - 1
    budget = Budget("one part to each", setting.limits(others * setting.nbytes, 0), setting.limits(others, 0))
    return setting.case(inputs, expected, budget, setting.limits(0, setting.nbytes), root_name="src")


@_operation()
def gather(setting: _Variation) -> InPlaceCase:
    tensors = setting.draw()
    empty = [setting.garbage() for _ in tensors]
    inputs = [
        (tensor, empty if rank == setting.root else None, setting.root)
        for rank, tensor in zip(setting.ranks, tensors, strict=True)
    ]
    expected = [
        {0: tensor, 1: tensors} if rank == setting.root else {0: tensor}
        for rank, tensor in zip(setting.ranks, tensors, strict=True)
    ]
    budget = Budget("one message each", setting.limits(0, setting.nbytes), setting.limits(0, 1))
    received = setting.limits((setting.size - 1) * setting.nbytes, 0)
    driver = call_with_tensors_to_fill
    return setting.case(inputs, expected, budget, received, root_name="dst", driver=driver)


def _chunks(setting: _Variation, tensors: Sequence[torch.Tensor]) -> list[tuple[torch.Tensor, ...]]:
    """Return for each position p what every rank has for it: chunk p of each tensor."""
    split = [tensor.tensor_split(setting.size) for tensor in tensors]
    return [tuple(chunks[position] for chunks in split) for position in range(setting.size)]


@_operation()
def ring_reduce_scatter(setting: _Variation) -> InPlaceCase:
    tensors = setting.draw(setting.size)
    chunks = _chunks(setting, tensors)
    inputs = [(setting.garbage(), tensor) for tensor in tensors]
    expected = [{0: setting.total(own), 1: tensor} for own, tensor in zip(chunks, tensors, strict=True)]
    budget = setting.ring(setting.size - 1, setting.nbytes)
    return setting.case(inputs, expected, budget, setting.each(setting.nbytes), chunks)


@_operation()
def ring_all_gather(setting: _Variation) -> InPlaceCase:
    tensors = setting.draw()
    inputs = [(setting.garbage(setting.size), tensor) for tensor in tensors]
    expected = [{0: torch.cat(tensors), 1: tensor} for tensor in tensors]
    others = setting.size - 1
    received = setting.each(others * setting.nbytes)
    return setting.case(inputs, expected, setting.ring(others, setting.nbytes), received)


@_operation()
def ring_all_reduce(setting: _Variation) -> InPlaceCase:
    tensors = setting.draw()
    chunk_nbytes = -(-setting.numel // setting.size) * setting.dtype.itemsize  # rounded up
    expected = [{0: setting.total(tensors)}] * setting.size
    budget = replace(setting.ring(2 * (setting.size - 1), chunk_nbytes), is_rounded_up=True)
    inputs, received = [(tensor,) for tensor in tensors], setting.each(setting.nbytes)
    return setting.case(inputs, expected, budget, received, [tensors] * setting.size)


@_operation()
def all_to_all(setting: _Variation) -> InPlaceCase:
    tensors = setting.draw(setting.size)
    inputs = [(setting.garbage(setting.size), tensor) for tensor in tensors]
    expected = [
        {0: torch.cat(own), 1: tensor} for own, tensor in zip(_chunks(setting, tensors), tensors, strict=True)
    ]
    others = setting.size - 1
    nbytes = others * setting.nbytes
    budget = Budget("each chunk straight to its owner", setting.each(nbytes), setting.each(others))
    return setting.case(inputs, expected, budget, setting.each(nbytes))


@_operation(groups=False, world_sizes=(2, 3, 4, 5))
def exchange(setting: _Variation) -> InPlaceCase:
    """Pair first with last, second with last but one, …; the middle one of an odd world takes no part.

    With some shapes it is called twice: of one call the result must outlast the next, of another it must
    not be that of the call before.
    """
    driver = {MATRIX: call_twice, FEW: call_again}.get(setting.shape, call_in_place)
    calls = 1 if driver is call_in_place else 2
    tensors = setting.draw()
    paired = [rank != setting.world_size - 1 - rank for rank in setting.ranks]
    inputs = [
        (tensor, setting.world_size - 1 - rank) if paired[rank] else None
        for rank, tensor in enumerate(tensors)
    ]
    expected = [
        {RETURNED: tensors[-1 - rank], 0: tensor} if paired[rank] else {}
        for rank, tensor in enumerate(tensors)
    ]
    budget = Budget("one message each", setting.each(calls * setting.nbytes), setting.each(calls))
    received = tuple(calls * setting.nbytes * takes_part for takes_part in paired)
    return setting.case(inputs, expected, budget, received, driver=driver)
