"""Drivers of exercise 04: the same training loop on every rank, with what a student has written.

They report gradients and weights, and mark when steps begin and gradients become ready.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from autograder.inside.drivers import Code, Group, are_alike, by_columns, memory_of
from autograder.inside.drivers import small_models as models
from autograder.inside.drivers.live_memory import at_rest
from autograder.inside.moments import mark
from autograder.inside.reports import Report
from fourranks.rank.allocations import Allocations

LEARNING_RATE = 0.1
REPEATS = 3  # steps before and between two looks at the memory


@dataclass(frozen=True)
class BatchShards(Report):
    """The part of a batch that each rank would get, or the message with which the batch is refused.

    Attributes:
        views: whether all are views of the batch.
    """

    shards: list[object]
    views: bool = True
    refused: str | None = None


@dataclass(frozen=True)
class Averaged(Report):
    """A model's gradients, and its parameters and buffers, after its gradients were averaged."""

    gradients: models.Gradients
    contents: models.Named


@dataclass(frozen=True)
class TrainedReplica(Report):
    """A wrapped model before its first step, and its gradients in each step.

    Attributes:
        kept: whether the model that was wrapped is in `.module`.
        names: of the wrapper's state dict.
    """

    kept: bool
    names: list[str]
    parameters: models.Named
    buffers: models.Named
    steps: list[models.Gradients]


@dataclass(frozen=True)
class Paused(Report):
    """Gradients in `no_sync`, after it, and after an exception in it.

    Attributes:
        adds_up: whether backwards may follow one another in it; if not, the rest is empty.
        refused: whether they are refused elsewhere, by a RuntimeError.
        raised: the error that the second one raises there, if any.
    """

    inside: models.Gradients
    after: models.Gradients
    adds_up: bool
    recovered: models.Gradients = field(default_factory=dict)
    refused: bool = False
    raised: str = ""


@dataclass(frozen=True)
class Accumulated(Report):
    """The result of an accumulation, the gradients, and the calls that reached the wrapped model.

    Attributes:
        attached: whether the loss still has a graph.
        parameters: of the model, afterwards.
        synchronizations: by a wrapper that decides in forward, as torch's own does, and by one that decides
            in backward, as the exercise's does.
        finished: how often somebody waited for the last synchronization.
        samples: the most whose activations were alive at once.
        intact: whether the caller's microbatches are as they were.
    """

    loss: object
    attached: bool
    gradients: models.Gradients
    parameters: models.Named
    synchronizations: tuple[int, int]
    finished: int
    samples: int
    intact: bool


def shard(shard_batch: Code, batch: torch.Tensor, world_size: int) -> BatchShards:
    """Deal a batch out to so many ranks; it is not contiguous if it can be otherwise."""
    batch = by_columns(batch)
    try:
        shards = [shard_batch(batch, rank, world_size) for rank in range(world_size)]
    except ValueError as error:
        return BatchShards([], refused=str(error))
    tensors = [part for part in shards if isinstance(part, torch.Tensor) and part.numel()]
    return BatchShards(shards, all(memory_of(part) == memory_of(batch) for part in tensors))


def average(
    average_gradients: Code, model: str, seed: int, inputs: torch.Tensor, group: Group = None
) -> Averaged:
    """Do one backward, and average the gradients afterwards."""
    module = models.build(model, seed).to(models.device())
    models.loss(module(inputs, **models.others(model, inputs))).backward()
    average_gradients(module, group=group)
    parameters, buffers = models.contents(module)
    return Averaged(models.gradients(module), parameters | buffers)


def train(
    wrapper: Code,
    model: str,
    seed: int,
    batches: list[torch.Tensor],
    options: dict[str, Any],
    learning_rate: float = LEARNING_RATE,
    group: Group = None,
) -> TrainedReplica:
    """Wrap a model, and take a step of SGD for each batch."""
    module = _watched(model, seed)
    wrapped = wrapper(module, **options, group=group)
    parameters, buffers = models.contents(module)
    steps = []
    for number, batch in enumerate(batches):
        module.zero_grad(set_to_none=number < 2)  # a third step finds zeros
        _step(wrapped, batch, **models.others(model, batch))
        steps.append(models.gradients(module))
        models.descend(module, learning_rate)
    return TrainedReplica(wrapped.module is module, list(wrapped.state_dict()), parameters, buffers, steps)


def pause(
    wrapper: Code,
    model: str,
    seed: int,
    batches: list[torch.Tensor],
    options: dict[str, Any],
    group: Group = None,
) -> Paused:
    """Do all but the last batch under `no_sync`; then a block that ends by an exception, and two steps."""
    module = models.build(model, seed).to(models.device())
    wrapped = wrapper(module, **options, group=group)
    mark("paused")
    for batch in batches[:-1]:  # each in a block of its own, as a loop over microbatches has it
        with wrapped.no_sync():
            models.loss(wrapped(batch)).backward()
            wrapped.finish_gradient_synchronization()
    mark("resumed")
    inside = models.gradients(module)
    _step(wrapped, batches[-1])
    after = models.gradients(module)
    with contextlib.suppress(_Interruption), wrapped.no_sync():
        error = _error_of_a_second_backward(wrapped, batches[0])
        if isinstance(error, RuntimeError):
            return Paused(inside, after, adds_up=False)
        raise error or _Interruption
    module.zero_grad()
    _step(wrapped, batches[0])
    recovered = models.gradients(module)
    module.zero_grad()
    error = _error_of_a_second_backward(wrapped, batches[0])
    raised = "" if error is None else f"{type(error).__name__}: {error}"
    return Paused(inside, after, True, recovered, isinstance(error, RuntimeError), raised)


def _error_of_a_second_backward(wrapped: Any, batch: torch.Tensor) -> Exception | None:
    """Run two backwards without a synchronization after the first; return the error of the second, if any."""
    models.loss(wrapped(batch)).backward()
    try:
        models.loss(wrapped(batch)).backward()
    except Exception as error:
        return error
    wrapped.finish_gradient_synchronization()
    return None


class _Interruption(Exception):
    """As a student's code may meet, for instance when memory is short."""


def hold(
    wrapper: Code, seed: int, batch: torch.Tensor, options: dict[str, Any], group: Group = None
) -> tuple[int, int]:
    """Return the bytes that the wrapper holds after some steps, and after some more."""
    module = models.build("deep", seed).to(models.device())
    with Allocations() as memory:
        wrapped = wrapper(module, **options, group=group)
        earlier = _held_after_steps(wrapped, batch, memory)
        return earlier, _held_after_steps(wrapped, batch, memory)


def accumulate(
    accumulate: Code, model: str, seed: int, microbatches: list[list[torch.Tensor]], group: Group = None
) -> Accumulated:
    """Accumulate over a wrapper that counts how often it synchronizes."""
    wrapped = _Counting(models.build(model, seed).to(models.device()), group)
    given = [(inputs.clone(), targets.clone()) for inputs, targets in microbatches]
    mean = accumulate(wrapped, given, mean_loss)
    return Accumulated(
        mean.item() if isinstance(mean, torch.Tensor) and mean.numel() == 1 else mean,
        isinstance(mean, torch.Tensor) and mean.requires_grad,
        models.gradients(wrapped.module),
        models.contents(wrapped.module)[0],
        (wrapped.synchronizations, wrapped.synchronizing_backwards),
        wrapped.finished,
        wrapped.most_samples,
        are_alike(given, microbatches),
    )


class _Counting(nn.Module):
    """Decides in forward, as torch's own wrapper does, and counts as one that decides in backward does."""

    def __init__(self, module: nn.Module, group: Group) -> None:
        super().__init__()
        self.module, self.group = module, group
        self.synchronizes, self.synchronizations, self.finished = True, 0, 0
        self.synchronizing_backwards = self.samples = self.most_samples = 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.module(inputs)
        if not outputs.requires_grad:
            return outputs
        self.samples += len(inputs)
        self.most_samples = max(self.most_samples, self.samples)
        outputs.register_hook(lambda _: self._count_backward(len(inputs)))
        if self.synchronizes:
            engine = torch.autograd.Variable._execution_engine
            outputs.register_hook(lambda _: engine.queue_callback(self._synchronize))  # for its end
        return outputs

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        before, self.synchronizes = self.synchronizes, False
        try:
            yield
        finally:
            self.synchronizes = before

    def _count_backward(self, num_samples: int) -> None:
        self.samples -= num_samples
        self.synchronizing_backwards += self.synchronizes

    def _synchronize(self) -> None:
        self.synchronizations += 1
        self.finished = 0
        mark("synchronizing")
        for parameter in self.module.parameters():
            dist.all_reduce(parameter.grad, dist.ReduceOp.AVG, self.group)
        mark("synchronized")

    def finish_gradient_synchronization(self) -> None:
        self.finished += 1


def mean_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return a loss that is another one where outputs and targets are swapped."""
    return ((outputs - targets).square() + outputs).mean()


def _step(wrapped: Any, batch: torch.Tensor, **others: object) -> None:
    """Do forward, backward and synchronization."""
    mark("began")
    output = wrapped(inputs=batch, **others)  # elsewhere without the name: both have to reach the model
    models.loss(output).backward()
    wrapped.finish_gradient_synchronization()


def _held_after_steps(wrapped: Any, batch: torch.Tensor, memory: Allocations) -> int:
    for _ in range(REPEATS):
        _step(wrapped, batch)
        wrapped.zero_grad()
    return at_rest(memory)


def _watched(model: str, seed: int) -> nn.Module:
    """Make the model mark when each of its gradients becomes ready.

    These hooks come before those of any wrapper, so a gradient's moment is before its all-reduce.
    """
    module = models.build(model, seed).to(models.device())
    for parameter in module.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(lambda _: mark("ready"))
    return module
