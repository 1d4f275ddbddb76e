"""Checks of exercise 07 on real ranks: a pipeline must equal one process, in step with its schedule.

The serial run is computed here; a rank gets the weights of its own stage, the first one the inputs and the
last one the targets, all others numbers that are none. `pipeline_traffic` has the rules for messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from autograder.inside import runs
from autograder.inside.drivers import pipeline_parallelism as drivers
from autograder.inside.drivers.pipeline_parallelism import AddedLayer, Gradients, Weights, mean_loss
from autograder.inside.moments import Unmarked
from autograder.inside.reports import Unreadable, as_many
from autograder.inside.runs import RunFailed
from autograder.kit.case import Trial, again
from autograder.kit.check import Cases, Code, check
from autograder.kit.draws import Draws
from autograder.kit.messages import mismatched
from autograder.kit.mistakes import MODIFIED, Mistake
from autograder.kit.problem import Problem
from autograder.kit.received import calls_of
from autograder.kit.settings import WORLD_SIZES, Setting, some_ranks
from autograder.kit.student import Outcome
from autograder.kit.values import apart, close, kind_of, largest_difference
from autograder.topics.collectives.budget import unwaited
from autograder.topics.pipeline_parallelism import mistakes, traffic
from autograder.topics.pipeline_parallelism import reference_schedules as reference
from autograder.topics.pipeline_parallelism.banned import BANNED
from autograder.topics.pipeline_parallelism.reference_schedules import Step, in_words
from autograder.topics.pipeline_parallelism.schedules import text
from autograder.topics.pipeline_parallelism.traffic import Stage, StepTaken
from fourranks.naming import counted

WIDTH = 5
# How far another order of summation may lead in one forward and backward.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}

Schedule = Callable[[int, int, int], list[Step]]  # by stage, stages and microbatches
Pair = list[torch.Tensor]  # inputs and targets of a microbatch
_Rule = Callable[[int, Outcome, str], Problem | None]  # of a stage, its outcome, and where that is


_OF_EXCEPTIONS = {  # by what torch says
    "contiguous": mistakes.SENT_WITH_GAPS,
    "<class 'NoneType'>": mistakes.NOTHING_TO_SEND,
    "only for scalar outputs": mistakes.STAGE_WITHOUT_GRADIENTS,
}


@dataclass(frozen=True, kw_only=True)
class _PipelineTrial(Trial):
    """A trial whose failures may have in common how many ranks or microbatches there are."""

    patterns: ClassVar = mistakes.PATTERNS
    answered: str = "a loss from every rank"

    num_microbatches: int
    special: str = ""  # true of this trial and not of the others

    def explain(self, failure: RunFailed) -> Problem:
        if failure.reason == runs.DEADLOCK:
            return Problem(mistakes.PIPELINE_DEADLOCK, self.answered, failure.message)
        for said, mistake in _OF_EXCEPTIONS.items():
            if failure.reason == runs.RAISED and said in failure.message:
                return Problem(mistake, self.answered, failure.message)
        return super().explain(failure)


@check(banned=BANNED)
def run_pipeline(function: Code, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0) -> Cases:
    """Check `run_pipeline` under several schedules: values, order, messages, and what is alive."""
    draws, largest = Draws(seed), max(world_sizes)
    one_f_one_b, gpipe = ("1F1B", reference.one_f_one_b), ("GPipe", reference.gpipe)
    last_first = ("GPipe, last microbatch first in backward", _reversed)
    for world_size in world_sizes:
        setting = Setting(world_size, None, draws)
        yield _trial(setting, *one_f_one_b, [2] * (world_size + 3))
        yield _trial(setting, *gpipe, [3, 2, 1])
        yield _trial(setting, *one_f_one_b, [4])
        yield _trial(setting, *last_first, [2] * 3)
        yield again(_trial(setting, *one_f_one_b, [1] * 4), _trial(setting, *gpipe, [2] * 3))
        for special in _SPECIAL if world_size == 2 else ():
            yield _trial(setting, *one_f_one_b, [2] * 3, special)
    if largest >= 3:
        yield _trial(Setting(largest, some_ranks(largest), draws), *one_f_one_b, [2] * 4)


_SPECIAL: dict[str, dict[str, Any]] = {
    "a frozen first stage": {"frozen": 0},
    "a frozen last stage": {"frozen": 1},
    "activations that are not contiguous": {"transposed": True},
    "float32": {"dtype": torch.float32},
}


def _reversed(stage: int, num_stages: int, num_microbatches: int) -> list[Step]:
    """Return a schedule as the figures of the GPipe paper have it."""
    order = range(num_microbatches)
    return [("F", at) for at in order] + [("B", at) for at in reversed(order)]


@dataclass(frozen=True)
class _PipelinedRun:
    """A pipeline with its weights and microbatches, and what has to come of it.

    Attributes:
        ranks: global ranks, by stage.
        layers: for each stage its layers.
        frozen: the stage that is not trained, if there is one.
        gradients: for each stage those of its parameters.
        wrong: gradients that frequent mistakes make.
    """

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
        schedule: Schedule,
        ranks: tuple[int, ...],
        sizes: Sequence[int],
        draws: Draws,
        frozen: int | None = None,
        transposed: bool = False,
        dtype: torch.dtype = torch.float64,
    ) -> _PipelinedRun:
        def normal(*shape: int) -> torch.Tensor:
            return draws.randn(shape, dtype)

        stages = range(len(ranks))
        layers = [[[normal(WIDTH, WIDTH), normal(WIDTH)] for _ in range(2 - at % 2)] for at in stages]
        microbatches = [[normal(size, WIDTH), normal(size, 1)] for size in sizes]  # targets are to be spread
        shares, alike = [size / sum(sizes) for size in sizes], [1 / len(sizes)] * len(sizes)
        loss, gradients = _serial(layers, frozen, microbatches, shares)
        wrong = {
            mistakes.LOSSES_OF_MICROBATCHES_SUMMED: _serial(layers, frozen, microbatches, [1.0] * len(sizes)),
            mistakes.MICROBATCHES_COUNT_THE_SAME: _serial(layers, frozen, microbatches, alike),
            mistakes.ONE_MICROBATCH_ONLY: _serial(layers, frozen, microbatches[-1:], shares[-1:]),
        }
        return cls(
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

    def inputs(self, stage: int) -> tuple[Any, ...]:
        """Return the arguments of the driver, with nothing in them that is another stage's."""
        frozen = stage == self.frozen
        first, last = stage == 0, stage == len(self.ranks) - 1
        own = [
            [inputs if first else _nothing(inputs), targets if last else _nothing(targets)]
            for inputs, targets in self.microbatches
        ]
        steps = [list(step) for step in self.schedules[stage]]
        return steps, self.layers[stage], frozen, self.transposed, own

    def received(self, stage: int) -> int:
        """Count the bytes of the activations and gradients that the stage cannot compute itself."""
        nbytes = sum(inputs.nbytes for inputs, _ in self.microbatches)
        follows, precedes = stage > 0, stage < len(self.ranks) - 1
        return nbytes * (follows + (precedes and self._goes_back(stage)))

    def verify(self, outcomes: Sequence[Outcome | None]) -> Problem | None:
        """Find the first broken rule, on the last stage first: a fault there goes up to all."""
        calls = calls_of(outcomes)
        if problem := self._broken((self._neighbours, self._weights), outcomes):
            return problem
        if problem := self._broken((self._loss, self._gradients), outcomes):
            return mismatched(calls) or unwaited(calls) or problem  # reasons enough for any wrong value
        return self._broken((self._intact, self._steps, self._traffic, self._alive, self._in_time), outcomes)

    def _broken(self, rules: Sequence[_Rule], outcomes: Sequence[Outcome | None]) -> Problem | None:
        for rule in rules:
            for stage, rank in reversed(list(enumerate(self.ranks))):
                outcome = outcomes[rank]
                if outcome and (problem := rule(stage, outcome, self._where(stage))):
                    return problem
        return None

    def _where(self, stage: int) -> str:
        rank = f"rank {self.ranks[stage]}"
        return rank if self.ranks[stage] == stage else f"{rank} (stage {stage})"

    def _neighbours(self, stage: int, outcome: Outcome, where: str) -> Problem | None:
        return traffic.past_the_neighbours(self._seen(stage, outcome), where)

    def _loss(self, stage: int, outcome: Outcome, where: str) -> Problem | None:
        got, expected = outcome.value.loss, f"{where}: {self.loss:.6g} returned"
        if type(got) is not float:
            return Problem(mistakes.NO_LOSS, f"{expected}, a float", kind_of(got))
        tolerance = TOLERANCE[self.microbatches[0][0].dtype]
        if abs(got - self.loss) <= tolerance * (1 + abs(self.loss)):
            return None
        if got != got:
            return Problem(mistakes.DATA_OF_ANOTHER_STAGE, expected, "nan")
        kind = mistakes.LOSS_NOT_PASSED_BACK if stage < len(self.ranks) - 1 else mistakes.WRONG_MEAN_LOSS
        want, told = apart(self.loss, got)
        return Problem(kind, f"{where}: {want} returned", told)

    def _gradients(self, stage: int, outcome: Outcome, where: str) -> Problem | None:
        wanted = self.gradients[stage]
        found = as_many(outcome.value.gradients, len(wanted))
        for at, (got, want) in enumerate(zip(found, wanted, strict=True)):
            name = f"{where}, layer {at // 2}, {('weight', 'bias')[at % 2]}.grad"
            if want is None and got is not None and got.any():
                return Problem(mistakes.FROZEN_STAGE_TRAINED, f"{name}: None", kind_of(got))
            if want is None or _close(got, want):
                continue
            if got is None:
                return Problem(mistakes.STAGE_WITHOUT_GRADIENTS, f"{name}: {kind_of(want)}", "None")
            if got.shape != want.shape:
                raise Unreadable("a gradient of another shape than its parameter")
            mistake = mistakes.DATA_OF_ANOTHER_STAGE if got.isnan().any() else self._mistake(stage, found)
            expected, shown = largest_difference(want, got)
            return Problem(mistake, f"{name}: {expected}", shown)
        return None

    def _mistake(self, stage: int, found: Gradients) -> Mistake:
        for mistake, mistaken in self.wrong.items():
            pairs = zip(found, mistaken[stage], strict=True)
            if all(want is None or _close(own, want) for own, want in pairs):
                return mistake
        return mistakes.WRONG_STAGE_GRADIENTS

    def _weights(self, stage: int, outcome: Outcome, where: str) -> Problem | None:
        if outcome.value.still:
            return None
        return Problem(mistakes.STAGE_CHANGED, f"{where}: the stage's weights as they were", "others")

    def _intact(self, stage: int, outcome: Outcome, where: str) -> Problem | None:
        if outcome.value.intact:
            return None
        return Problem(MODIFIED, f"{where}: `schedule` and `microbatches` as they were", "one was changed")

    def _steps(self, stage: int, outcome: Outcome, where: str) -> Problem | None:
        """Compare the steps with the schedule; a frozen first stage may leave the backwards out."""
        order = [microbatch for kind, microbatch in self.schedules[stage] if kind == "F"]
        seen = [(kind, order[at] if at < len(order) else "?") for kind, at, _ in _steps(outcome)]
        want = [step for step in self.schedules[stage] if step[0] == "F" or self._goes_back(stage)]
        if seen in (want, self.schedules[stage]):
            return None
        forwards = sum(kind == "F" for kind, _ in seen)
        if forwards > len(order):
            expected = f"{where}: {counted(len(order), 'forward')}, one of each microbatch"
            return Problem(mistakes.COMPUTED_AGAIN, expected, f"{forwards}")
        return Problem(mistakes.ANOTHER_SCHEDULE, f"{where}: {text(want)}", text(seen))

    def _traffic(self, stage: int, outcome: Outcome, where: str) -> Problem | None:
        return traffic.too_much(self._seen(stage, outcome), where) or unwaited([outcome.calls])

    def _alive(self, stage: int, outcome: Outcome, where: str) -> Problem | None:
        limit = reference.most_in_flight(self.schedules[stage])
        ran: drivers.PipelineRun = outcome.value
        if ran.graphs > limit:
            expected = f"{where}: activations of {in_words(limit)} alive at most"
            return Problem(mistakes.ACTIVATIONS_ALIVE, expected, f"{ran.graphs}")
        # Names may still hold what the step before has used, and a handle that was waited for.
        if ran.kept > limit + 2:
            expected = f"{where}: tensors of {in_words(limit)} held, and of two more"
            return Problem(mistakes.ACTIVATIONS_KEPT, expected, f"{ran.kept}")
        if not self._goes_back(stage):
            return None
        seen = self._seen(stage, outcome)
        return traffic.received_ahead(seen, limit, where) or traffic.kept_by_sends(seen, limit, where)

    def _in_time(self, stage: int, outcome: Outcome, where: str) -> Problem | None:
        return traffic.out_of_time(self._seen(stage, outcome), where) if self._goes_back(stage) else None

    def _goes_back(self, stage: int) -> bool:
        """Tell whether it needs a backward: it does not where nothing is trained, in it or before it."""
        return stage > 0 or self.frozen != 0

    def _seen(self, stage: int, outcome: Outcome) -> Stage:
        before, after = stage - 1, stage + 1
        return Stage(
            self.ranks[before] if before >= 0 else None,
            self.ranks[after] if after < len(self.ranks) else None,
            sum(inputs.nbytes for inputs, _ in self.microbatches),
            len(self.microbatches),
            [StepTaken(*step) for step in _steps(outcome)],
            outcome.calls,
        )


def _steps(outcome: Outcome) -> list[tuple[str, int, float]]:
    """Return kind, number of the forward, and moment of each step, in the order in which they began."""
    found = []
    for moment in outcome.moments:
        step = re.fullmatch(r"([FB])(\d{1,9})", moment.name)
        if step is None:
            raise Unmarked(f"{moment.name!r} is no step")
        found.append((step[1], int(step[2]), moment.at))
    return found


def _trial(
    setting: Setting, name: str, schedule: Schedule, sizes: Sequence[int], special: str = ""
) -> _PipelineTrial:
    """Make a trial of microbatches of these sizes."""
    run = _PipelinedRun.draw(schedule, setting.ranks, sizes, setting.draws, **_SPECIAL.get(special, {}))
    return setting.trial(
        ", ".join(filter(None, (name, in_words(len(sizes)), special))),
        drivers.run,
        lambda stage, _: run.inputs(stage),
        kind=_PipelineTrial,
        verify=run.verify,
        received=run.received,
        size=len(sizes) * len(run.ranks),
        num_microbatches=len(sizes),
        special=special,
    )


def _serial(
    layers: Sequence[Sequence[Weights]],
    frozen: int | None,
    microbatches: Sequence[Pair],
    shares: Sequence[float],
) -> tuple[float, list[Gradients]]:
    """Return the loss of one process, each microbatch's scaled by its share, and each stage's gradients."""
    stages = [
        nn.Sequential(*[AddedLayer(weights, at == frozen) for weights in own])
        for at, own in enumerate(layers)
    ]
    model = nn.Sequential(*stages)
    losses = [
        mean_loss(model(inputs), targets) * share
        for (inputs, targets), share in zip(microbatches, shares, strict=True)
    ]
    loss = sum(losses[1:], losses[0])
    loss.backward()
    return loss.item(), [drivers.gradients(stage) for stage in stages]


def _nothing(tensor: torch.Tensor) -> torch.Tensor:
    return torch.full_like(tensor, torch.nan)


def _close(got: torch.Tensor | None, want: torch.Tensor) -> bool:
    return got is not None and close(got, want, TOLERANCE[want.dtype])
