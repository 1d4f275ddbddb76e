"""Results of all ranks that communicate less: simulated in one process, rank after rank.

`less_communication` compares with it what real ranks did; with other settings, it makes the usual mistakes.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from autograder.inside.drivers import less_communication as drivers
from autograder.inside.drivers.small_models import Named

Combine = Callable[[list[torch.Tensor], int], torch.Tensor]


@dataclass(frozen=True)
class LocalSgd:
    """The inputs of a group's ranks, and the results."""

    state: Named
    kind: str
    rounds: Sequence[list[drivers.Batches]]  # for each rank its rounds

    def simulate(self, combine: Combine, clear: str = "before") -> Iterator[list[Named]]:
        """Give the weights of each rank after each round.

        Args:
            combine: makes of all ranks' values of a weight the one of rank n, as `combine(values, n)`.
            clear: when gradients are cleared: before or after each step, or never.
        """
        runs = [drivers.begin(self.state, self.kind, rounds) for rounds in self.rounds]
        models = [model for model, _ in runs]
        for batches_by_rank in zip(*self.rounds, strict=True):
            for run, batches in zip(runs, batches_by_rank, strict=True):
                _local_steps(*run, batches, clear)
            states = [copy.deepcopy(model.state_dict()) for model in models]
            for rank, model in enumerate(models):
                trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
                combined = {name: combine([each[name] for each in states], rank) for name in trained}
                model.load_state_dict(states[rank] | combined)
            yield [copy.deepcopy(dict(model.state_dict())) for model in models]

    @property
    def nbytes(self) -> int:
        """Count the bytes of the weights that are trained."""
        return sum(p.nbytes for p in drivers.make_model().parameters() if p.requires_grad)


def _local_steps(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, batches: drivers.Batches, clear: str
) -> None:
    for inputs, targets in batches:
        if clear == "before":
            optimizer.zero_grad()
        drivers.lopsided_error(model(inputs), targets).backward()
        optimizer.step()
        if clear == "after":
            optimizer.zero_grad()


def mean(values: list[torch.Tensor], rank: int) -> torch.Tensor:
    """Combine values as they are when all is right."""
    return torch.stack(values).mean(0)


@dataclass(frozen=True)
class Compression:
    """Gradients of each rank and step, and what comes of them."""

    ratio: float
    steps: Sequence[Sequence[Sequence[torch.Tensor]]]  # for each rank its steps
    keeps: str = "rest"  # a rank adds this to its next gradients: the rest, everything or nothing
    averages: bool = True
    by_magnitude: bool = True
    adds: bool = True  # where ranks have sent the same element
    together: bool = True  # whether the largest of all gradients are chosen, not those of each
    over_senders: bool = False  # whether the mean is over the ranks that have sent an element
    rounds: Callable[[float], int] = math.ceil

    def simulate(self) -> Iterator[list[torch.Tensor]]:
        """Give the gradients after each step, the same on all ranks."""
        kept = [torch.zeros(sum(g.numel() for g in steps[0])) for steps in self.steps]
        for gradients_by_rank in zip(*self.steps, strict=True):
            total, senders = torch.zeros_like(kept[0]), torch.zeros_like(kept[0])
            for rank, gradients in enumerate(gradients_by_rank):
                wanted = torch.cat([gradient.flatten() for gradient in gradients]) + kept[rank]
                places = self._places(wanted, [gradient.numel() for gradient in gradients])
                total[places] = wanted[places] + (total[places] if self.adds else 0)
                senders[places] += 1
                if self.keeps != "nothing":
                    kept[rank] = wanted
                if self.keeps == "rest":
                    kept[rank] = wanted.index_fill(0, places, 0)
            shapes = [gradient.shape for gradient in gradients_by_rank[0]]
            num_ranks = senders.clamp(min=1) if self.over_senders else len(self.steps)
            average = total / num_ranks if self.averages else total
            parts = average.split([math.prod(shape) for shape in shapes])
            yield [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]

    def _places(self, wanted: torch.Tensor, numels: Sequence[int]) -> torch.Tensor:
        size = wanted.abs() if self.by_magnitude else wanted
        if self.together:
            return size.topk(self.num_sent(wanted.numel())).indices
        starts = [sum(numels[:n]) for n in range(len(numels))]
        parts = zip(starts, size.split(list(numels)), strict=True)
        return torch.cat([start + part.topk(self.num_sent(part.numel())).indices for start, part in parts])

    def num_sent(self, numel: int) -> int:
        return self.rounds(self.ratio * numel)

    @property
    def nbytes(self) -> int:
        """Count the bytes of a rank and step: the values in float32, the places in int64."""
        return self.num_sent(sum(gradient.numel() for gradient in self.steps[0][0])) * (4 + 8)
