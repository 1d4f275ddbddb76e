"""Checks of exercise 07 on real ranks: a pipeline must equal one process, in step with its schedule.

The serial run is computed here; a rank gets the weights of its own stage, the first one the inputs and the
last one the targets, all others numbers that are none. `pipeline_traffic` has the rules for messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from autograder.inside import runs
from autograder.inside.drivers import pipeline_parallelism as drivers
from autograder.inside.drivers.pipeline_parallelism import Layer, Weights, mean_loss
from autograder.inside.moments import Unmarked
from autograder.inside.runs import RunFailed
from autograder.kit.case import Trial
from autograder.kit.draws import Draws
from autograder.kit.judge import judge
from autograder.kit.mistakes import Mistake
from autograder.kit.problem import Problem, counted
from autograder.kit.student import Function, Outcome
from autograder.kit.values import close, kind_of, number
from autograder.topics.collectives.budget import unwaited
from autograder.topics.pipeline_parallelism import reference_schedules as reference
from autograder.topics.pipeline_parallelism import traffic
from autograder.topics.pipeline_parallelism.banned import BANNED
from autograder.topics.pipeline_parallelism.mistakes import (
    ACTIVATIONS_ALIVE,
    ACTIVATIONS_KEPT,
    ANOTHER_SCHEDULE,
    DATA_OF_ANOTHER_STAGE,
    FROZEN_STAGE_TRAINED,
    LOSS_NOT_PASSED_BACK,
    LOSSES_OF_MICROBATCHES_SUMMED,
    MICROBATCHES_COUNT_THE_SAME,
    NO_LOSS,
    ONE_MICROBATCH_ONLY,
    PATTERNS,
    PIPELINE_DEADLOCK,
    SENT_WITH_GAPS,
    STAGE_WITHOUT_GRADIENTS,
    WRONG_MEAN_LOSS,
    WRONG_STAGE_GRADIENTS,
)
from autograder.topics.pipeline_parallelism.reference_schedules import Step, in_words
from autograder.topics.pipeline_parallelism.traffic import Stage, StepTaken
from fourranks.errors import name_ranks

WORLD_SIZES = (1, 2, 3, 4, 5)
WIDTH = 5
# How far another order of summation may lead in one forward and backward.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}

Code = Callable | Function
Pair = list[torch.Tensor]  # inputs and targets of a microbatch
Gradients = list[torch.Tensor | None]


def run_pipeline(function: Code, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0) -> None:
    """Checks `run_pipeline` under several schedules: values, order, messages, and what is alive.

    Raises:
        AssertionError: when a case fails; its text is a small table with a hint.
    """
    judge("run_pipeline", function, _running(world_sizes, seed), seed, BANNED)


@dataclass(frozen=True, kw_only=True)
class _PipelineTrial(Trial):
    """A trial whose failures may have in common how many ranks or microbatches there are."""

    patterns: ClassVar = PATTERNS
    answered: ClassVar = "a loss from every rank"

    num_microbatches: int
    special: str = ""  # what is so of this trial and not of the others

    def explain(self, failure: RunFailed) -> Problem:
        if failure.reason == runs.DEADLOCK:
            return Problem(PIPELINE_DEADLOCK, self.answered, failure.message)
        if failure.reason == runs.RAISED and "contiguous" in failure.message:
            return Problem(SENT_WITH_GAPS, self.answered, failure.message)
        return super().explain(failure)


def _running(world_sizes: Sequence[int], seed: int) -> Iterator[Trial]:
    draws = Draws(seed)
    for world_size in world_sizes:
        everyone = tuple(range(world_size))
        many = world_size + 3
        yield _trial(_Run.draw("1F1B", reference.one_f_one_b, everyone, [2] * many, draws), world_size)
        yield _trial(_Run.draw("GPipe", reference.gpipe, everyone, [3, 2, 1], draws), world_size)
        yield _trial(_Run.draw("1F1B", reference.one_f_one_b, everyone, [4], draws), world_size)
        yield _trial(
            _Run.draw("GPipe, last microbatch first in backward", _reversed, everyone, [2] * 3, draws),
            world_size,
        )
        if world_size == 2:
            for special, options in _SPECIAL.items():
                run = _Run.draw("1F1B", reference.one_f_one_b, everyone, [2] * 3, draws, **options)
                yield _trial(run, world_size, special)
    largest = max(world_sizes)
    if largest >= 3:
        members = tuple(range(1, largest))  # without rank 0: the first stage is not rank 0
        run = _Run.draw("1F1B", reference.one_f_one_b, members, [2] * 4, draws)
        yield _trial(run, largest)


_SPECIAL = {
    "a frozen first stage": {"frozen": 0},
    "a frozen last stage": {"frozen": 1},
    "activations that are not contiguous": {"transposed": True},
    "float32": {"dtype": torch.float32},
}


def _reversed(stage: int, num_stages: int, num_microbatches: int) -> list[Step]:
    """As the figures of the GPipe paper have it."""
    order = range(num_microbatches)
    return [("F", at) for at in order] + [("B", at) for at in reversed(order)]


@dataclass(frozen=True)
class _Run:
    """A pipeline with its weights and microbatches, and what has to come of it.

    Attributes:
        ranks: global ranks, by stage.
        layers: for each stage its layers.
        frozen: the stage that is not trained, if there is one.
        gradients: for each stage those of its parameters.
        wrong: gradients that frequent mistakes make.
    """

    name: str
    ranks: tuple[int, ...]
    schedules: list[list[Step]]
    layers: list[list[Weights]]
    microbatches: list[Pair]
    frozen: int | None
    transposed: bool
    loss: float
    gradients: list[Gradients]
    wrong: dict[Mistake, list[Gradients]]

    @classmethod
    def draw(
        cls,
        name: str,
        schedule: Callable,
        ranks: tuple[int, ...],
        sizes: Sequence[int],
        draws: Draws,
        frozen: int | None = None,
        transposed: bool = False,
        dtype: torch.dtype = torch.float64,
    ) -> _Run:
        def normal(*shape: int) -> torch.Tensor:
            return draws.randn(shape, dtype)

        stages = range(len(ranks))
        layers = [[[normal(WIDTH, WIDTH), normal(WIDTH)] for _ in range(2 - at % 2)] for at in stages]
        microbatches = [[normal(size, WIDTH), normal(size, 1)] for size in sizes]  # targets are to be spread
        shares, alike = [size / sum(sizes) for size in sizes], [1 / len(sizes)] * len(sizes)
        loss, gradients = _serial(layers, frozen, microbatches, shares)
        wrong = {
            LOSSES_OF_MICROBATCHES_SUMMED: _serial(layers, frozen, microbatches, [1.0] * len(sizes)),
            MICROBATCHES_COUNT_THE_SAME: _serial(layers, frozen, microbatches, alike),
            ONE_MICROBATCH_ONLY: _serial(layers, frozen, microbatches[-1:], shares[-1:]),
        }
        return cls(
            name,
            ranks,
            [schedule(stage, len(ranks), len(sizes)) for stage in stages],
            layers,
            microbatches,
            frozen,
            transposed,
            loss,
            gradients,
            {mistake: mistaken for mistake, (_, mistaken) in wrong.items()},
        )

    def inputs(self, stage: int) -> tuple:
        """The arguments of the driver, with nothing in them that is another stage's."""
        frozen = stage == self.frozen
        first, last = stage == 0, stage == len(self.ranks) - 1
        own = [
            [inputs if first else _nothing(inputs), targets if last else _nothing(targets)]
            for inputs, targets in self.microbatches
        ]
        steps = [list(step) for step in self.schedules[stage]]
        return steps, self.layers[stage], frozen, self.transposed, own

    def received(self, stage: int) -> int:
        """Bytes of the activations and gradients that the stage cannot compute itself."""
        nbytes = sum(inputs.nbytes for inputs, _ in self.microbatches)
        follows, precedes = stage > 0, stage < len(self.ranks) - 1
        return nbytes * (follows + (precedes and self._goes_back(stage)))

    def verify(self, outcomes: Sequence[Outcome | None]) -> Problem | None:
        """The first rule that a stage breaks, the last stage first: what goes wrong there goes up to all."""
        rules = (self._neighbours, self._loss, self._gradients, self._steps, self._traffic, self._alive)
        for rule in (*rules, self._in_time):
            for stage, rank in reversed(list(enumerate(self.ranks))):
                if problem := rule(stage, outcomes[rank], self._where(stage)):
                    return problem
        return None

    def _where(self, stage: int) -> str:
        rank = f"rank {self.ranks[stage]}"
        return rank if self.ranks[stage] == stage else f"{rank} (stage {stage})"

    def _neighbours(self, stage: int, outcome: Outcome, where: str) -> Problem | None:
        return traffic.past_the_neighbours(self._seen(stage, outcome), where)

    def _loss(self, stage: int, outcome: Outcome, where: str) -> Problem | None:
        got, expected = outcome.value["loss"], f"{where}: {self.loss:.6g} returned"
        if type(got) is not float:
            return Problem(NO_LOSS, f"{expected}, a float", kind_of(got))
        tolerance = TOLERANCE[self.microbatches[0][0].dtype]
        if abs(got - self.loss) <= tolerance * (1 + abs(self.loss)):
            return None
        if got != got:
            return Problem(DATA_OF_ANOTHER_STAGE, expected, "nan")
        last = stage == len(self.ranks) - 1
        return Problem(WRONG_MEAN_LOSS if last else LOSS_NOT_PASSED_BACK, expected, f"{got:.6g}")

    def _gradients(self, stage: int, outcome: Outcome, where: str) -> Problem | None:
        for at, (got, want) in enumerate(zip(outcome.value["gradients"], self.gradients[stage], strict=True)):
            name = f"{where}, layer {at // 2}, {('weight', 'bias')[at % 2]}.grad"
            if want is None and got is not None and got.any():
                return Problem(FROZEN_STAGE_TRAINED, f"{name}: None", kind_of(got))
            if want is None or (got is not None and _close(got, want)):
                continue
            if got is None:
                return Problem(STAGE_WITHOUT_GRADIENTS, f"{name}: {kind_of(want)}", "None")
            mistake = DATA_OF_ANOTHER_STAGE if got.isnan().any() else self._mistake(stage, outcome)
            worst = int((got - want).abs().nan_to_num(torch.inf).argmax())
            expected = f"{name}: [{worst}] = {number(want, worst)}"
            return Problem(mistake, expected, number(got, worst))
        return None

    def _mistake(self, stage: int, outcome: Outcome) -> Mistake:
        got = outcome.value["gradients"]
        for mistake, mistaken in self.wrong.items():
            pairs = zip(got, mistaken[stage], strict=True)
            if all(want is None or (own is not None and _close(own, want)) for own, want in pairs):
                return mistake
        return WRONG_STAGE_GRADIENTS

    def _steps(self, stage: int, outcome: Outcome, where: str) -> Problem | None:
        """Whether the schedule was followed; a frozen first stage has no backward to be seen."""
        order = [microbatch for kind, microbatch in self.schedules[stage] if kind == "F"]
        seen = [(kind, order[at] if at < len(order) else -1) for kind, at, _ in _steps(outcome)]
        want = [step for step in self.schedules[stage] if step[0] == "F" or self._goes_back(stage)]
        if seen == want:
            return None
        return Problem(ANOTHER_SCHEDULE, f"{where}: {_text(want)}", _text(seen))

    def _traffic(self, stage: int, outcome: Outcome, where: str) -> Problem | None:
        return traffic.too_much(self._seen(stage, outcome), where) or unwaited([outcome.calls])

    def _alive(self, stage: int, outcome: Outcome, where: str) -> Problem | None:
        limit = reference.most_in_flight(self.schedules[stage])
        if outcome.value["graphs"] > limit:
            expected = f"{where}: activations of {in_words(limit)} alive at most"
            return Problem(ACTIVATIONS_ALIVE, expected, f"{outcome.value['graphs']}")
        if outcome.value["kept"] > limit + 1:  # a name may still hold what the step before has used
            expected = f"{where}: tensors of {in_words(limit)} held, and of one more"
            return Problem(ACTIVATIONS_KEPT, expected, f"{outcome.value['kept']}")
        if not self._goes_back(stage):
            return None
        return traffic.received_ahead(self._seen(stage, outcome), limit, where)

    def _in_time(self, stage: int, outcome: Outcome, where: str) -> Problem | None:
        return traffic.out_of_time(self._seen(stage, outcome), where) if self._goes_back(stage) else None

    def _goes_back(self, stage: int) -> bool:
        """Whether it has a backward: where nothing is trained, in it or before it, there is none."""
        return stage > 0 or self.frozen != 0

    def _seen(self, stage: int, outcome: Outcome) -> Stage:
        before, after = stage - 1, stage + 1
        return Stage(
            self.ranks[before] if before >= 0 else None,
            self.ranks[after] if after < len(self.ranks) else None,
            sum(inputs.nbytes for inputs, _ in self.microbatches),
            len(self.microbatches),
            [StepTaken(kind, moment) for kind, _, moment in _steps(outcome)],
            outcome.calls,
        )


def _steps(outcome: Outcome) -> list[tuple[str, int, float]]:
    """Kind, number of the forward, and moment of each step, in the order in which they began."""
    found = []
    for moment in outcome.moments:
        step = re.fullmatch(r"([FB])(\d{1,9})", moment.name)
        if step is None:
            raise Unmarked(f"{moment.name!r} is no step")
        found.append((step[1], int(step[2]), moment.at))
    return found


def _trial(run: _Run, world_size: int, special: str = "") -> _PipelineTrial:
    members = run.ranks if len(run.ranks) < world_size else None
    stages = {rank: stage for stage, rank in enumerate(run.ranks)}
    parts = [counted(world_size, "rank")]
    parts += [f"group of {name_ranks(list(members))}"] if members else []
    parts += [run.name, in_words(len(run.microbatches))] + ([special] if special else [])
    return _PipelineTrial(
        title=", ".join(parts),
        inputs=[run.inputs(stages[rank]) if rank in stages else None for rank in range(world_size)],
        members=members,
        driver=drivers.run,
        verify=run.verify,
        received=[run.received(stages[rank]) if rank in stages else 0 for rank in range(world_size)],
        size=len(run.microbatches) * len(run.ranks),
        num_microbatches=len(run.microbatches),
        special=special,
    )


def _serial(
    layers: Sequence[Sequence[Weights]],
    frozen: int | None,
    microbatches: Sequence[Pair],
    shares: Sequence[float],
) -> tuple[float, list[Gradients]]:
    """The loss of one process, each microbatch's scaled by its share, and each stage's gradients."""
    stages = [
        nn.Sequential(*[Layer(weights, at == frozen) for weights in own]) for at, own in enumerate(layers)
    ]
    model = nn.Sequential(*stages)
    loss = sum(
        mean_loss(model(inputs), targets) * share
        for (inputs, targets), share in zip(microbatches, shares, strict=True)
    )
    loss.backward()
    return loss.item(), [drivers.gradients(stage) for stage in stages]


def _nothing(tensor: torch.Tensor) -> torch.Tensor:
    return torch.full_like(tensor, torch.nan)


def _close(got: torch.Tensor, want: torch.Tensor) -> bool:
    return close(got, want, TOLERANCE[want.dtype])


def _text(steps: Sequence[Step]) -> str:
    shown = " ".join(f"{kind}{microbatch if microbatch >= 0 else '?'}" for kind, microbatch in steps[:14])
    return shown + (" …" if len(steps) > 14 else "")
