"""Which part of a tensor belongs to which rank, and what is wrong with a part that a rank has instead.

Called by the checks of exercise 06, in the notebook's process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from autograder.kit.mistakes import Mistake
from autograder.kit.problem import Problem
from autograder.kit.values import close, kind_of, largest_difference
from autograder.topics.tensor_parallelism.mistakes import ANOTHER_SHAPE_OF_A_PART, NO_GRADIENT_OF_A_PART

# Sums over the ranks may come in any order, and a block is a few sums deep; all modules run in float64.
TOLERANCE = 1e-9

# --- which part is whose


@dataclass(frozen=True)
class Cut:
    """How a tensor is cut over ranks.

    Attributes:
        dim: along which it is cut; None when every rank has all of it.
        blocks: so many equal blocks along `dim`, such as q, k and v, each of which is cut by itself.
    """

    dim: int | None
    blocks: int = 1

    def parts(self, tensor: torch.Tensor, num_parts: int) -> list[torch.Tensor]:
        """Return what each rank has, by position in the group."""
        if self.dim is None:
            return [tensor] * num_parts
        blocks = [block.chunk(num_parts, self.dim) for block in tensor.chunk(self.blocks, self.dim)]
        return [torch.cat(parts, self.dim) for parts in zip(*blocks, strict=True)]

    def only(self, part: int, tensor: torch.Tensor, elsewhere: torch.Tensor, num_parts: int) -> torch.Tensor:
        """Return a tensor with one part of `tensor`, and the numbers of `elsewhere` in all other parts."""
        places = torch.arange(tensor.numel()).view_as(tensor)
        own = self.parts(places, num_parts)[part].flatten()
        mixed = elsewhere.clone()
        mixed.view(-1)[own] = tensor.flatten()[own]
        return mixed


WHOLE = Cut(None)


# --- what is wrong with a tensor


@dataclass(frozen=True)
class Tensors:
    """One tensor of each rank, by position in the group: its right value, and the usual mistakes.

    Attributes:
        mistakes: with the value that each rank would have.
        otherwise: the problem when it is none of these.
        absent: the problem when there is no tensor at all.
    """

    name: str
    wanted: Sequence[torch.Tensor]
    otherwise: Mistake
    mistakes: Sequence[tuple[Mistake, Sequence[torch.Tensor]]] = ()
    tolerance: float = TOLERANCE
    absent: Mistake = NO_GRADIENT_OF_A_PART

    def wrong(self, got: Sequence[object], ranks: Sequence[str]) -> Problem | None:
        """Find the first rank's tensor that is not as it has to be."""
        for at, want in enumerate(self.wanted):
            found, label = got[at], f"{ranks[at]}, {self.name}"
            if not isinstance(found, torch.Tensor):
                return Problem(self.absent, f"{label}: {kind_of(want)}", kind_of(found))
            if kind_of(found) != kind_of(want):
                return Problem(ANOTHER_SHAPE_OF_A_PART, f"{label}: {kind_of(want)}", kind_of(found))
            if not close(found, want, self.tolerance):
                expected, shown = largest_difference(want, found)
                return Problem(self._mistake(at, found), f"{label}: {expected}", shown)
        return None

    def _mistake(self, at: int, found: torch.Tensor) -> Mistake:
        """Tell what a wrong tensor seems to be."""
        for mistake, tensors in self.mistakes:
            if tensors[at].shape == found.shape and close(found, tensors[at].to(found.dtype), self.tolerance):
                return mistake
        return self.otherwise


def parts_of_a_sum(got: Sequence[object], want: torch.Tensor) -> bool:
    """Tell whether the tensors of the ranks would be right if they were added up."""
    parts = [each for each in got if isinstance(each, torch.Tensor) and each.shape == want.shape]
    if len(parts) < max(2, len(got)):
        return False
    return close(torch.stack(parts).sum(0).to(want.dtype), want, TOLERANCE)


def cut_all(
    tensors: Mapping[str, torch.Tensor], cuts: Mapping[str, Cut], num_parts: int
) -> list[dict[str, torch.Tensor]]:
    """Return for each rank its parts of named tensors."""
    parts = {name: cuts[name].parts(tensor, num_parts) for name, tensor in tensors.items()}
    return [{name: each[at] for name, each in parts.items()} for at in range(num_parts)]
