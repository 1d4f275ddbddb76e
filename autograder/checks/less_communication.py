"""Checks of exercise 04's ways to communicate less: local steps, and compressed gradients.

What the ranks must end up with is computed here by a simulation of all ranks. When it is something else, the
simulation is run with the usual mistakes, to say which one was made.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from autograder import hints
from autograder.drivers import less_communication as drivers
from autograder.judge import Trial, judge
from autograder.policy import Problem
from autograder.student import Function, Outcome
from autograder.values import close, difference, kind_of, same
from fourranks.trace import Call

WORLD_SIZES = (1, 2, 3, 4, 5)
RATIOS = (0.1, 0.3, 1.0)
SHAPES = ((7,), (5, 3), (1,), (0,), (2, 3, 4))
ROUNDS = 3
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}  # sums over the ranks may come in any order

Outcomes = Sequence[Outcome | None]


def local_sgd_round(
    function: Callable | Function, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0
) -> None:
    """Checks `local_sgd_round`: the weights after some rounds, and that only their average is communicated.

    Raises:
        AssertionError: when a case fails; its text is a small table with a hint.
    """
    judge("local_sgd_round", function, _rounds(world_sizes, seed), seed)


def TopKCompressor(
    compressor: type | Function,
    world_sizes: Sequence[int] = WORLD_SIZES,
    ratios: Sequence[float] = RATIOS,
    shapes: Sequence[tuple[int, ...]] = SHAPES,
    seed: int = 0,
) -> None:
    """Checks `TopKCompressor`: the averages of some steps, what is kept for later, and the bytes.

    Args:
        ratios: shares of the elements that are sent.
        shapes: of the gradients.

    Raises:
        AssertionError: when a case fails; its text is a small table with a hint.
    """
    judge("TopKCompressor", compressor, _compressions(world_sizes, ratios, shapes, seed), seed)


class _Trial(Trial):
    """A trial that may be the only one of a group that is not the default one."""

    patterns: ClassVar = hints.collectives.PATTERNS[:1]


def _worlds(world_sizes: Sequence[int]) -> Iterator[tuple[int, tuple[int, ...] | None]]:
    """Every world, and then a group in the largest one, without rank 0."""
    yield from ((world_size, None) for world_size in world_sizes)
    if max(world_sizes) >= 3:
        yield max(world_sizes), tuple(range(1, max(world_sizes)))


def _title(world_size: int, members: tuple[int, ...] | None, what: str) -> str:
    ranks = f"{world_size} rank{'s' if world_size > 1 else ''}"
    group = f", group of {', '.join(map(str, members))}" if members else ""
    return f"{ranks}{group}, {what}"


# --- local_sgd_round


@dataclass(frozen=True)
class _LocalSgd:
    """What the ranks of a group are given, and what comes of it."""

    state: dict[str, torch.Tensor]
    kind: str
    rounds: Sequence[Sequence[drivers.Batches]]  # for each rank its rounds

    def simulate(self, combine: Callable, clear: str = "before") -> Iterator[list[dict[str, torch.Tensor]]]:
        """The weights of each rank after each round.

        Args:
            combine: makes of all ranks' values of a weight the one of rank n, as `combine(values, n)`.
            clear: when gradients are cleared: before or after each step, or never.
        """
        models = [drivers.make_model() for _ in self.rounds]
        for model in models:
            model.load_state_dict(self.state)
        optimizers = [drivers.make_optimizer(self.kind, model) for model in models]
        for model in models:
            for parameter in model.parameters():
                parameter.grad = torch.ones_like(parameter) if parameter.requires_grad else None
        for batches_by_rank in zip(*self.rounds, strict=True):
            for model, optimizer, batches in zip(models, optimizers, batches_by_rank, strict=True):
                _local_steps(model, optimizer, batches, clear)
            states = [copy.deepcopy(model.state_dict()) for model in models]
            for rank, model in enumerate(models):
                trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
                combined = {name: combine([each[name] for each in states], rank) for name in trained}
                model.load_state_dict(states[rank] | combined)
            yield [copy.deepcopy(dict(model.state_dict())) for model in models]

    @property
    def nbytes(self) -> int:
        """Bytes of the weights that are trained."""
        return sum(p.nbytes for p in drivers.make_model().parameters() if p.requires_grad)


def _local_steps(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, batches: drivers.Batches, clear: str
) -> None:
    for inputs, targets in batches:
        if clear == "before":
            optimizer.zero_grad()
        drivers.squared_error(model(inputs), targets).backward()
        optimizer.step()
        if clear == "after":
            optimizer.zero_grad()


def _mean(values: list[torch.Tensor], rank: int) -> torch.Tensor:
    return torch.stack(values).mean(0)


# The usual mistakes: how the values of all ranks are combined, and when gradients are cleared.
_ROUND_MISTAKES: Sequence[tuple[str, Callable, str]] = (
    ("not averaged", lambda values, rank: values[rank], "before"),
    ("summed weights", lambda values, rank: torch.stack(values).sum(0), "before"),
    ("weights of one rank", lambda values, rank: values[0], "before"),
    ("gradients add up", _mean, "never"),
    ("gradients add up", _mean, "after"),
)


def _rounds(world_sizes: Sequence[int], seed: int) -> Iterator[Trial]:
    generator = torch.Generator().manual_seed(seed)
    for world_size, members in _worlds(world_sizes):
        ranks = members or tuple(range(world_size))
        local = _draw_rounds(len(ranks), ("SGD", "AdamW")[world_size % 2], generator)
        inputs = [(local.state, local.kind, rounds) for rounds in local.rounds]
        yield _Trial(
            title=_title(world_size, members, f"{local.kind}, {ROUNDS} rounds"),
            inputs=[inputs[ranks.index(r)] if r in ranks else None for r in range(world_size)],
            members=members,
            driver=drivers.local_sgd,
            size=2 if len(ranks) == 2 else 1,  # where all take as many steps, more can be told
            verify=lambda outcomes, local=local, ranks=ranks: _wrong_round(local, ranks, outcomes),
        )


def _draw_rounds(num_ranks: int, kind: str, generator: torch.Generator) -> _LocalSgd:
    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    state = {name: draw(*tensor.shape) for name, tensor in drivers.make_model().state_dict().items()}
    # Numbers of steps may differ, and be 0; with 2 ranks they are equal, so that talking in between is no deadlock.
    steps = [
        [2 if num_ranks == 2 else (rank + turn) % 4 for turn in range(ROUNDS)] for rank in range(num_ranks)
    ]
    rounds = [[[(draw(4, 3), draw(4, 2)) for _ in range(number)] for number in own] for own in steps]
    return _LocalSgd(state, kind, rounds)


def _wrong_round(local: _LocalSgd, ranks: Sequence[int], outcomes: Outcomes) -> Problem | None:
    own = [outcomes[rank] for rank in ranks]
    return _talked_early(ranks, own) or _wrong_weights(local, ranks, own) or _heavy_rounds(local, ranks, own)


def _talked_early(ranks: Sequence[int], outcomes: Outcomes) -> Problem | None:
    """A call between the losses of one round: those before its last loss that are not of earlier rounds."""
    for rank, outcome in zip(ranks, outcomes, strict=True):
        after = 0.0
        for number, report in enumerate(outcome.value, 1):
            for call in outcome.calls:
                if after < call.start < report["last_loss"]:
                    got = f"rank {rank} calls {call.op} in line {call.line} before its last step"
                    return Problem(
                        "communication between local steps", f"round {number}: local steps only", got
                    )
            after = max((call.start for call in outcome.calls if call.start > after), default=after)
    return None


def _wrong_weights(local: _LocalSgd, ranks: Sequence[int], outcomes: Outcomes) -> Problem | None:
    for number, wanted in enumerate(local.simulate(_mean)):
        found = [outcome.value[number]["weights"] for outcome in outcomes]
        if all(map(_alike, found, wanted)):
            continue
        rank = next(rank for rank in range(len(found)) if not _alike(found[rank], wanted[rank]))
        name = next(name for name, want in wanted[rank].items() if not _equal(found[rank][name], want))
        expected, got = _differing(wanted[rank][name], found[rank][name])
        place = f"round {number + 1}, rank {ranks[rank]}, {name}: "
        return Problem(_round_mistake(local, number, found), place + expected, got)
    return None


def _round_mistake(local: _LocalSgd, number: int, found: list[dict]) -> str:
    for kind, *mistake in _ROUND_MISTAKES:
        made = list(local.simulate(*mistake))[number]
        if all(map(_alike, found, made)):
            return kind
    return "wrong weights after a round"


def _heavy_rounds(local: _LocalSgd, ranks: Sequence[int], outcomes: Outcomes) -> Problem | None:
    if len(ranks) == 1:
        return None
    for rank, outcome in zip(ranks, outcomes, strict=True):
        nbytes, budget = _nbytes(outcome.calls), ROUNDS * local.nbytes
        if nbytes > budget:
            expected = f"at most {budget:,} bytes in {ROUNDS} rounds: the trained weights, once a round"
            return Problem("more than the weights", expected, f"{nbytes:,} bytes on rank {rank}")
    return None


# --- TopKCompressor


@dataclass(frozen=True)
class _Compression:
    """Gradients of each rank and step, and what comes of them."""

    ratio: float
    steps: Sequence[Sequence[Sequence[torch.Tensor]]]  # for each rank its steps
    keeps: str = "rest"  # what a rank adds to its next gradients: the rest, everything or nothing
    averages: bool = True
    by_magnitude: bool = True
    adds: bool = True  # where ranks have sent the same element
    together: bool = True  # whether the largest of all gradients are chosen, not those of each

    def simulate(self) -> Iterator[list[torch.Tensor]]:
        """The gradients after each step, the same on all ranks."""
        kept = [torch.zeros(sum(g.numel() for g in steps[0])) for steps in self.steps]
        for gradients_by_rank in zip(*self.steps, strict=True):
            total = torch.zeros_like(kept[0])
            for rank, gradients in enumerate(gradients_by_rank):
                wanted = torch.cat([gradient.flatten() for gradient in gradients]) + kept[rank]
                places = self._places(wanted, [gradient.numel() for gradient in gradients])
                total[places] = wanted[places] + (total[places] if self.adds else 0)
                if self.keeps != "nothing":
                    kept[rank] = wanted
                if self.keeps == "rest":
                    kept[rank] = wanted.index_fill(0, places, 0)
            shapes = [gradient.shape for gradient in gradients_by_rank[0]]
            average = total / len(self.steps) if self.averages else total
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
        return math.ceil(self.ratio * numel)

    @property
    def nbytes(self) -> int:
        """Bytes a rank and step: the values in float32, the places in int64."""
        return self.num_sent(sum(gradient.numel() for gradient in self.steps[0][0])) * (4 + 8)


_COMPRESSION_MISTAKES: dict[str, dict[str, object]] = {
    "no error feedback": {"keeps": "nothing"},
    "sent and kept": {"keeps": "everything"},
    "summed gradients": {"averages": False},
    "largest by value": {"by_magnitude": False},
    "coinciding elements": {"adds": False},
    "gradients one by one": {"together": False},
    "not compressed": {"ratio": 1.0},
}
_NUM_STEPS, _NUM_COMPRESSORS = 3, 2


def _compressions(
    world_sizes: Sequence[int], ratios: Sequence[float], shapes: Sequence[tuple[int, ...]], seed: int
) -> Iterator[Trial]:
    generator = torch.Generator().manual_seed(seed)
    for world_size, members in _worlds(world_sizes):
        ranks = members or tuple(range(world_size))
        for ratio in ratios if members is None else ratios[:1]:
            steps = _draw_steps(len(ranks), shapes, generator)
            inputs = [(ratio, own) for own in steps]
            compressions = [
                _Compression(ratio, [[step[which] for step in own] for own in steps])
                for which in range(_NUM_COMPRESSORS)
            ]
            yield _Trial(
                title=_title(world_size, members, f"ratio {ratio:g}"),
                inputs=[inputs[ranks.index(r)] if r in ranks else None for r in range(world_size)],
                members=members,
                driver=drivers.compress,
                verify=lambda outcomes, c=compressions, ranks=ranks: _wrong_compression(c, ranks, outcomes),
                size=round(100 * (1 - ratio)),
            )


def _draw_steps(num_ranks: int, shapes: Sequence[tuple[int, ...]], generator: torch.Generator) -> list:
    """For each rank and step the gradients for each compressor; the ranks agree in a part of them."""

    def draw() -> list[torch.Tensor]:
        return [torch.randn(shape, generator=generator) for shape in shapes]

    shared = [[draw() for _ in range(_NUM_COMPRESSORS)] for _ in range(_NUM_STEPS)]
    return [
        [[[g + own for g, own in zip(each, draw(), strict=True)] for each in step] for step in shared]
        for _ in range(num_ranks)
    ]


def _wrong_compression(
    compressions: Sequence[_Compression], ranks: Sequence[int], outcomes: Outcomes
) -> Problem | None:
    for rank in ranks:
        for which, compression in enumerate(compressions):
            found = [step[which] for step in outcomes[rank].value]
            given = compression.steps[ranks.index(rank)]
            if problem := _wrong_gradients(compression, rank, given, found):
                return problem
    if len(ranks) == 1:
        return None
    budget = _NUM_STEPS * sum(compression.nbytes for compression in compressions)
    for rank in ranks:
        nbytes = _nbytes(outcomes[rank].calls)
        if nbytes > budget:
            expected = f"at most {budget:,} bytes: the values sent and their places"
            return Problem("more than the largest", expected, f"{nbytes:,} bytes on rank {rank}")
    return None


def _wrong_gradients(
    compression: _Compression,
    rank: int,
    given: Sequence[Sequence[torch.Tensor]],
    found: Sequence[Sequence[torch.Tensor]],
) -> Problem | None:
    for number, wanted in enumerate(compression.simulate()):
        for index, (want, got) in enumerate(zip(wanted, found[number], strict=True)):
            if not _equal(got, want):
                expected, shown = _differing(want, got)
                place = f"step {number + 1}, rank {rank}, gradient {index + 1}: "
                untouched = all(map(same, found[number], given[number]))
                kind = "untouched" if untouched else _compression_mistake(compression, number, found)
                return Problem(kind, place + expected, shown)
    return None


def _compression_mistake(
    compression: _Compression, number: int, found: Sequence[Sequence[torch.Tensor]]
) -> str:
    for kind, changes in _COMPRESSION_MISTAKES.items():
        made = list(_changed(compression, changes).simulate())[number]
        if all(map(_equal, found[number], made)):
            return kind
    return "wrong compressed gradients"


def _changed(compression: _Compression, changes: dict[str, object]) -> _Compression:
    return _Compression(**(vars(compression) | changes))


# --- both


def _alike(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> bool:
    return all(_equal(found[name], want) for name, want in wanted.items())


def _equal(got: torch.Tensor, want: torch.Tensor) -> bool:
    return close(got, want, TOLERANCE[want.dtype])


def _differing(want: torch.Tensor, got: torch.Tensor) -> tuple[str, str]:
    return difference(want, got) if got.shape == want.shape else (kind_of(want), kind_of(got))


def _nbytes(calls: Sequence[Call]) -> int:
    """Bytes that a rank gave to its calls."""
    return sum(call.nbytes for call in calls if call.op != "recv")
