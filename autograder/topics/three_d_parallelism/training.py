"""Check of exercise 08's training step: on any mesh the losses are those of one process, step after step.

One process trains here, and so do variants of it that make a usual mistake each. The first stage gets the
inputs and the last one the targets; elsewhere there are numbers that are no tokens.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import ClassVar

import torch

from autograder.inside import runs
from autograder.inside.drivers import three_d_parallelism as drivers
from autograder.inside.drivers.three_d_parallelism import TrainedOnMesh
from autograder.inside.reports import as_many
from autograder.inside.runs import RunFailed
from autograder.kit.check import Cases, Code, check
from autograder.kit.draws import Draws
from autograder.kit.mistakes import Mistake
from autograder.kit.problem import Problem, first
from autograder.kit.received import calls_of, not_waited_for_on_any
from autograder.kit.settings import taking_part
from autograder.kit.student import Outcome
from autograder.kit.values import apart, kind_of
from autograder.three_d import ModelConfig, whole_model
from autograder.topics.collectives.budget import unwaited
from autograder.topics.three_d_parallelism import mistakes
from autograder.topics.three_d_parallelism.axis_traffic import Allowance, excess
from autograder.topics.three_d_parallelism.banned import BANNED
from autograder.topics.three_d_parallelism.meshes import MeshTrial, Sizes, in_words, members, places
from fourranks.learner.model import layers_of, share
from fourranks.learner.model import loss as mean_loss

STEPS = 20
TOLERANCE = 1e-8  # relative: other orders of summation in float64, after so many steps
FLOAT32 = 1e-6  # likewise, for a value that was rounded to float32 on its way
NO_TOKEN = -1
NOT_A_TOKEN = ("index out of range in self", f"Target {NO_TOKEN} is out of bounds")  # torch's errors for it
CONTEXT = 5  # tokens of a row
BYTES = 8  # of an element: all is in float64
MESHES: tuple[Sizes, ...] = ((2, 1, 2), (1, 2, 2), (2, 2, 1), (2, 2, 2))

Batch = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class _TrainTrial(MeshTrial):
    patterns: ClassVar = mistakes.MESH_PATTERNS
    answered: str = "a loss from every rank"

    def explain(self, failure: RunFailed) -> Problem:
        if failure.reason == runs.DEADLOCK:
            return Problem(mistakes.MESH_DEADLOCK, self.answered, failure.message)
        if failure.reason == runs.RAISED and any(said in failure.message for said in NOT_A_TOKEN):
            return Problem(mistakes.DATA_OF_ANOTHER_RANK, self.answered, failure.message)
        return super().explain(failure)


@check(banned=BANNED)
def train_step(function: Code, meshes: Sequence[Sizes] = MESHES, steps: int = STEPS, seed: int = 0) -> Cases:
    """Check `train_step` on each mesh: losses, a rank's memory, and its traffic along each axis.

    Args:
        meshes: sizes of data, pipeline and tensor to try.
        steps: of training on each.
    """
    draws = Draws(seed)
    for sizes in sorted(meshes, key=prod):
        run = _RunOnMesh.draw(sizes, steps, draws.split())
        yield _TrainTrial(
            title=in_words(sizes),
            sizes=sizes,
            inputs=[run.inputs(rank) for rank in range(prod(sizes))],
            driver=drivers.train,
            backends=("gloo",),  # an answer makes its buffers in the processor's memory
            verify=run.verify,
            received=[run.least_received(rank) for rank in range(prod(sizes))],
            size=sum(size > 1 for size in sizes),
        )


@dataclass(frozen=True)
class _RunOnMesh:
    """A model with its batches on a mesh, and what has to come of it."""

    sizes: Sizes
    config: ModelConfig
    batches: list[Batch]

    @classmethod
    def draw(cls, sizes: Sizes, steps: int, draws: Draws) -> _RunOnMesh:
        data, pipeline, tensor = sizes
        config = ModelConfig(
            characters=11,
            width=8 * tensor,
            heads=2 * tensor,
            blocks=pipeline * int(draws.randint(1, 3)),
            num_microbatches=3 if data == 2 else 2,  # so that it can be told from the number of data ranks
            learning_rate=0.2 + 0.01 * int(draws.randint(0, 9)),  # never what a config has by default
            seed=draws.seed("model"),
        )
        shape = (steps, data * config.num_microbatches * 2, CONTEXT)
        tokens = [draws.randint(0, config.characters, shape) for _ in "xy"]
        return cls(sizes, config, list(zip(*tokens, strict=True)))

    @property
    def data(self) -> int:
        return self.sizes[0]

    def inputs(self, rank: int) -> tuple[object, ...]:
        """Return the arguments of the driver, with no tokens that are another stage's."""
        data_rank, stage, _ = places(self.sizes)[rank]
        own = []
        for inputs, targets in self.batches:
            x, y = (each.chunk(self.data)[data_rank].clone() for each in (inputs, targets))
            own.append(
                [
                    x if stage == 0 else torch.full_like(x, NO_TOKEN),
                    y if stage == self.sizes[1] - 1 else torch.full_like(y, NO_TOKEN),
                ]
            )
        return dataclasses.asdict(self.config), list(self.sizes), own

    @cached_property
    def losses(self) -> list[float]:
        return list(_train(self.config, self.batches))

    def verify(self, outcomes: Sequence[Outcome | None]) -> Problem | None:
        ranks = taking_part(outcomes)
        rules = (self._wrong_losses, self._too_much_held, self._traffic)
        broken = (
            rule(rank, where, outcome) for rule in rules for rank, (where, outcome) in self._last_first(ranks)
        )
        return unwaited(calls_of(outcomes)) or not_waited_for_on_any(ranks) or first(broken)

    def _last_first(self, ranks: Sequence[tuple[str, Outcome]]) -> list[tuple[int, tuple[str, Outcome]]]:
        """Give the ranks of the last stage first: a fault there goes up to all."""
        return sorted(enumerate(ranks), key=lambda each: (-places(self.sizes)[each[0]][1], each[0]))

    def _wrong_losses(self, rank: int, where: str, outcome: Outcome) -> Problem | None:
        seen: TrainedOnMesh = outcome.value
        for step, (got, want) in enumerate(
            zip(as_many(seen.losses, len(self.losses)), self.losses, strict=True)
        ):
            expected = f"{where}, step {step + 1}: {want:.8g}"
            if type(got) is not float:
                return Problem(mistakes.NO_STEP_LOSS, f"{expected}, a float", kind_of(got))
            if not _near(got, want):
                told, found = apart(want, got)
                kind = self._kind(rank, seen.losses, step)
                return Problem(kind, f"{where}, step {step + 1}: {told}", found)
        return None

    def _kind(self, rank: int, losses: Sequence[object], step: int) -> Mistake:
        got = losses[step]
        assert isinstance(got, float)
        if _near(got, self.losses[step], FLOAT32):
            return mistakes.ROUNDED_LOSS
        return self._first_mistake(rank, got) if step == 0 else self._later_mistake(got, step)

    def _first_mistake(self, rank: int, got: float) -> Mistake:
        stage = places(self.sizes)[rank][1]
        if got == 0 and stage < self.sizes[1] - 1:
            return mistakes.LOSS_NOT_EVERYWHERE
        if any(_near(got, alone[0]) for alone in self._apart(1)):
            return mistakes.LOSS_OF_ONE_PART
        return mistakes.WRONG_FIRST_LOSS

    def _later_mistake(self, got: float, step: int) -> Mistake:
        """Tell what seems to be wrong from the loss of the first step that is."""
        begun = self.batches[: step + 1]
        m, rate = self.config.num_microbatches, self.config.learning_rate
        variants: list[tuple[Mistake, list[float]]] = [
            (mistakes.NOTHING_LEARNED, list(_train(self.config, begun, 0.0))),
            (mistakes.GRADIENTS_PILE_UP, list(_train(self.config, begun, rate, clear=False))),
            (mistakes.ANOTHER_LEARNING_RATE, list(_train(self.config, begun, ModelConfig.learning_rate))),
            (mistakes.SUMMED_OVER_MICROBATCHES, list(_train(self.config, begun, m * rate))),
        ]
        if self.data > 1:
            variants.append((mistakes.SUMMED_OVER_DATA, list(_train(self.config, begun, self.data * rate))))
            apart = [sum(losses) / self.data for losses in zip(*self._apart(step + 1), strict=True)]
            variants.append((mistakes.EACH_DATA_RANK_ALONE, apart))
        made = (mistake for mistake, variant in variants if _near(got, variant[step]))
        return next(made, mistakes.WRONG_LATER_LOSS)

    def _apart(self, steps: int) -> list[list[float]]:
        """Train each data rank on its own part of the batches."""
        if self.data == 1:
            return []
        begun = self.batches[:steps]
        parts = [
            [(x.chunk(self.data)[at], y.chunk(self.data)[at]) for x, y in begun] for at in range(self.data)
        ]
        return [list(_train(self.config, part)) for part in parts]

    def _too_much_held(self, rank: int, where: str, outcome: Outcome) -> Problem | None:
        most = max(self._numel(stage) for stage in range(self.sizes[1]))
        if outcome.value.numel <= most:
            return None
        expected = f"{where}: parameters of at most {most:,} elements"
        return Problem(mistakes.WHOLE_MODEL_HELD, expected, f"{outcome.value.numel:,}")

    def _numel(self, stage: int) -> int:
        """Count the elements of a stage's parameters on one rank."""
        model = share(whole_model(self.config), self.config, 0, self.sizes[2])
        own = [model[at] for at in layers_of(self.config, stage, self.sizes[1])]
        return sum(parameter.numel() for layer in own for parameter in layer.parameters())

    def _traffic(self, rank: int, where: str, outcome: Outcome) -> Problem | None:
        return excess(self.allowance(rank), outcome.calls, where)

    def allowance(self, rank: int) -> Allowance:
        """Return what this rank may send in all steps."""
        data, pipeline, tensor = self.sizes
        stage = places(self.sizes)[rank][1]
        steps, m = len(self.batches), self.config.num_microbatches
        activation = BYTES * 2 * CONTEXT * self.config.width
        blocks = self.config.blocks // pipeline
        messages = (stage > 0) + (stage < pipeline - 1)
        along = (
            2 * (data - 1) / data * BYTES * self._numel(stage),
            m * messages * activation,
            m * blocks * 4 * 2 * (tensor - 1) / tensor * activation,
        )
        groups = [members(self.sizes, rank, axis) for axis in range(3)]
        return Allowance(rank, groups, [steps * each for each in along])

    def least_received(self, rank: int) -> int:
        """Return bytes that this rank must have got: a quarter of what it may send, to be generous."""
        return int(sum(self.allowance(rank).nbytes) / 4)


def _near(got: float, want: float, tolerance: float = TOLERANCE) -> bool:
    return abs(got - want) <= tolerance * (1 + abs(want))


def _train(
    config: ModelConfig, batches: Sequence[Batch], learning_rate: float | None = None, clear: bool = True
) -> Iterator[float]:
    """Train in one process and give the loss of each step, before it is taken.

    Args:
        learning_rate: in place of the config's.
        clear: whether each step begins without gradients.
    """
    model = whole_model(config)
    rate = config.learning_rate if learning_rate is None else learning_rate
    for inputs, targets in batches:
        loss = mean_loss(model(inputs), targets)
        if clear:
            model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                assert parameter.grad is not None  # all are used
                parameter.sub_(rate * parameter.grad)
        yield loss.item()
