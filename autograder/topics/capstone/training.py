"""A student's strategy trains a job: real ranks exchange what they exchange, and simulated clocks run.

The check computes each rank's gradient from the weights that this rank has returned, on rows that no rank
sees, and looks at the loss itself. The ranks' traffic is read from the record of their calls.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch

from autograder.capstone import MOST_ROWS, Cluster, Work
from autograder.inside import reports
from autograder.inside.drivers import capstone as drivers
from autograder.inside.drivers.capstone import Begun, Stepped
from autograder.inside.reports import Unreadable
from autograder.inside.runs import WRONG_TYPE, RunFailed
from autograder.kit.draws import Draws
from autograder.kit.problem import Problem
from autograder.kit.student import Function, Outcome
from autograder.kit.values import kind_of
from autograder.topics.capstone import clusters, mistakes, plain
from autograder.topics.capstone.clocks import Calls, Clocks, OutOfOrder
from autograder.topics.capstone.job import LearningTask
from autograder.topics.capstone.plain import PlainTraining, rows_of
from fourranks.naming import counted

MOST_STEPS = 2 * plain.STEPS
ONE_MODEL = 0.01  # how far from rank 0's a rank's weights may be, as a share of their norm
# And their predictions, in nats for a character: weights that nothing reads can make up almost all of a norm.
# Rounding as large as that makes 0.0002, and ranks that train apart are 0.03 apart.
ONE_PREDICTION = 0.001


class TrainingStopped(Exception):
    """The training cannot go on; its argument is the problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem


class Training:
    """One training of one job on one cluster, run when it is first needed.

    Attributes:
        name: of the training, among those of a rank.
        problem: that ended it before the loss was reached.
        steps: that were taken.
        losses: of the ranks after the last of them.
        spread: the largest distance from rank 0's weights to another rank's then, as a share of their norm.
    """

    def __init__(self, draws: Draws) -> None:
        self.name = str(draws.seed("name"))  # ranks learn it, and nothing of the job follows from it
        self.job = LearningTask(draws.seed("job"))
        self.cluster = clusters.draw(self.job.num_parameters, draws)
        self.clocks = Clocks(self.cluster)
        self.problem: Problem | None = None
        self.steps = 0
        self.losses: list[float] = []
        self.spread = 0.0
        self._ended = False
        self._failure: RunFailed | None = None

    @cached_property
    def plain(self) -> PlainTraining:
        return plain.train(self.job, self.cluster)

    @property
    def cost(self) -> float | None:
        """Simulated seconds until the loss was reached, as a share of plain data parallelism's."""
        reached = self._ended and self.problem is None
        return self.clocks.latest / self.plain.seconds if reached else None

    def run(self, function: Function) -> None:
        """Train, unless that was done before; a training that has failed is not tried again.

        Raises:
            RunFailed: the ranks are without an answer.
        """
        if self._failure is not None:  # a second try would begin with what the first one has learned
            raise self._failure
        if self._ended:
            return
        try:
            self._train(function)
        except TrainingStopped as wrong:
            self.problem = wrong.problem
        except RunFailed as failure:
            self._failure = failure
            raise
        self._ended = True

    def _train(self, function: Function) -> None:
        works = self._begin(function)
        weights = [self.job.first_weights] * self.cluster.num_ranks
        while self.steps < MOST_STEPS:
            gradients = [
                self.job.gradient(own, rows_of(self.steps, rank), works[rank].rows)
                for rank, own in enumerate(weights)
            ]
            self.clocks.compute(works)
            inputs = [
                (self.name, own.clone(), gradient) for own, gradient in zip(weights, gradients, strict=True)
            ]
            weights = [self._weights(*each) for each in enumerate(self._run(function, inputs, drivers.step))]
            self.steps += 1
            self.losses, self.spread = self._losses(weights), _spread(weights)
            reached = max(self.losses) <= self.plain.target and self.spread <= ONE_MODEL
            if reached and self._predict_the_same(weights):
                return
        raise TrainingStopped(self._missed())

    def _begin(self, function: Function) -> list[Work]:
        function.release()  # torch names some groups by how many a rank has made, in earlier trainings, too
        cluster = dataclasses.asdict(self.cluster)
        given = {field: _lists(value) for field, value in cluster.items()}
        chosen = self._run(function, [(self.name, given)] * self.cluster.num_ranks, drivers.begin)
        return [_work(self.cluster, rank, begun) for rank, begun in enumerate(chosen)]

    def _run(self, function: Function, inputs: Sequence[tuple[Any, ...]], driver: Any) -> list[Any]:
        """Have the ranks do one thing, and let their clocks run for what they sent."""
        outcomes = function.run(inputs, driver=driver)
        ran = [outcome for outcome in outcomes if outcome is not None]
        if len(ran) < len(inputs):
            raise RunFailed(WRONG_TYPE, "a rank gave no answer")
        self._communicate([outcome.calls for outcome in ran])
        return [_read(driver, outcome) for outcome in ran]

    def _communicate(self, calls: Calls) -> None:
        for rank, own in enumerate(calls):
            for call in own:
                if call.is_point_to_point:
                    expected, got = f"rank {rank}: collectives", f"dist.{call.op} in line {call.line}"
                    raise TrainingStopped(Problem(mistakes.POINT_TO_POINT, expected, got))
                if call.end is None:
                    expected = f"rank {rank}: a wait() in the step, for every call with async_op"
                    got = f"none for dist.{call.op} in line {call.line}"
                    raise TrainingStopped(Problem(mistakes.UNWAITED, expected, got))
        try:
            self.clocks.communicate(calls)
        except OutOfOrder:
            got = "an order in which each waits for another"
            raise TrainingStopped(Problem(mistakes.CALLS_CROSSED, "collectives in one order", got)) from None

    def _weights(self, rank: int, stepped: Stepped) -> torch.Tensor:
        weights, shape = stepped.weights, [self.job.num_parameters]
        if not isinstance(weights, torch.Tensor):
            raise TrainingStopped(Problem(mistakes.NO_WEIGHTS, f"rank {rank}: a tensor", kind_of(weights)))
        if weights.dtype != torch.float32 or list(weights.shape) != shape:
            expected = f"rank {rank}: a float32 tensor of shape {tuple(shape)}"
            raise TrainingStopped(Problem(mistakes.NO_WEIGHTS, expected, kind_of(weights)))
        if not bool(weights.isfinite().all()):
            raise TrainingStopped(Problem(mistakes.DIVERGED, f"rank {rank}: finite weights", "inf or nan"))
        return weights

    def _losses(self, weights: Sequence[torch.Tensor]) -> list[float]:
        """Return the loss of each rank's weights; of equal ones it is computed once."""
        losses: list[float] = []
        for rank, own in enumerate(weights):
            alike = next((other for other in range(rank) if torch.equal(own, weights[other])), None)
            losses.append(self.job.loss(own) if alike is None else losses[alike])
        return [loss if math.isfinite(loss) else math.inf for loss in losses]

    def _predict_the_same(self, weights: Sequence[torch.Tensor]) -> bool:
        """Tell whether all ranks' models predict what rank 0's does."""
        first, *others = weights
        apart = (self.job.divergence(first, own) for own in others if not torch.equal(first, own))
        return all(each <= ONE_PREDICTION for each in apart)

    def _missed(self) -> Problem:
        """Say how far the ranks have come after the last step."""
        if max(self.losses) <= self.plain.target:
            expected = f"the same weights on every rank after {counted(MOST_STEPS, 'step')}"
            by = f"by {self.spread:.0%} of their norm" if self.spread > ONE_MODEL else "in what they predict"
            got = f"weights that differ {by}, though each rank's reach the loss"
            return Problem(mistakes.MODELS_APART, expected, got)
        best = min(self.losses) <= self.plain.target
        expected = f"a loss of {self.plain.target:.3f} on every rank after {counted(MOST_STEPS, 'step')}"
        got = f"{', '.join(f'{loss:.3f}' for loss in self.losses)} on ranks 0 to {len(self.losses) - 1}"
        return Problem(mistakes.RANKS_APART if best else mistakes.NOT_LEARNED, expected, got)


def _spread(weights: Sequence[torch.Tensor]) -> float:
    """Return the largest distance from the first weights to others, as a share of the first ones' norm."""
    first = weights[0]
    return max(float((own - first).norm() / first.norm().clamp_min(1e-30)) for own in weights)


def _read(driver: Any, outcome: Outcome) -> Any:
    try:
        return reports.read(reports.form_of(driver), outcome.value)
    except Unreadable as error:
        raise RunFailed(WRONG_TYPE, f"a rank answered what no check can read: {error}") from None


def _work(cluster: Cluster, rank: int, begun: Begun) -> Work:
    """Read what a rank wants to do, and refuse what it cannot."""
    match begun:
        case Begun("Work", int(rows), int(microbatch), bool(recompute)):
            pass
        case _:
            fields = (begun.rows, begun.microbatch, begun.recompute)
            got = f"a {begun.type}" if begun.type != "Work" else f"of {', '.join(map(kind_of, fields))}"
            raise TrainingStopped(
                Problem(mistakes.NO_WORK, f"rank {rank}: a Work of two integers and a bool", got)
            )
    if not 0 <= rows <= MOST_ROWS or not 1 <= microbatch <= MOST_ROWS:
        expected = f"rank {rank}: 0 to {MOST_ROWS:,} rows, microbatches of 1 to {MOST_ROWS:,}"
        raise TrainingStopped(
            Problem(mistakes.NO_WORK, expected, f"{rows:,} rows, microbatches of {microbatch:,}")
        )
    work = Work(int(rows), int(microbatch), recompute)
    if not cluster.fits(rank, work):
        expected = f"rank {rank}: at most {cluster.memory[rank]:,.0f} bytes"
        raise TrainingStopped(Problem(mistakes.OUT_OF_MEMORY, expected, f"{cluster.memory_bytes(work):,.0f}"))
    return work


def _lists(value: Any) -> Any:
    return list(map(_lists, value)) if isinstance(value, tuple) else value
