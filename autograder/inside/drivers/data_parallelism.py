"""Drivers of exercise 04: the same training loop on every rank, with what a student has written.

They report gradients and weights, and mark when steps begin and gradients become ready.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch import nn

from autograder.inside.drivers.live_memory import at_rest
from autograder.inside.drivers.small_models import build, contents, descend, gradients, loss
from autograder.inside.moments import mark
from fourranks.rank.allocations import Allocations

LEARNING_RATE = 0.1
REPEATS = 3  # steps before and between two looks at the memory


def shard(shard_batch: Callable, batch: torch.Tensor, world_size: int) -> dict:
    """What each of so many ranks would get; or the message, when the batch is refused."""
    try:
        shards = [shard_batch(batch, rank, world_size) for rank in range(world_size)]
    except ValueError as error:
        return {"refused": str(error)}
    tensors = [part for part in shards if isinstance(part, torch.Tensor) and part.numel()]
    memory = batch.untyped_storage().data_ptr()
    return {"shards": shards, "views": all(part.untyped_storage().data_ptr() == memory for part in tensors)}


def average(
    average_gradients: Callable,
    model: str,
    seed: int,
    inputs: torch.Tensor,
    group: dist.ProcessGroup | None = None,
) -> dict:
    """One backward, and the gradients averaged afterwards."""
    module = build(model, seed).to(_device())
    loss(module(inputs)).backward()
    average_gradients(module, group=group)
    return {"gradients": gradients(module), "parameters": contents(module)[0]}


def train(
    wrapper: Callable,
    model: str,
    seed: int,
    batches: list[torch.Tensor],
    options: dict,
    learning_rate: float = LEARNING_RATE,
    group: dist.ProcessGroup | None = None,
) -> dict:
    """A step of SGD for each batch: what the wrapped model held at first, and what after each step."""
    module = _watched(model, seed)
    wrapped = wrapper(module, **options, group=group)
    parameters, buffers = contents(module)
    steps = []
    for batch in batches:
        module.zero_grad()
        _step(wrapped, batch)
        steps.append({"gradients": gradients(module)})
        descend(module, learning_rate)
    return {
        "kept": wrapped.module is module,
        "names": list(wrapped.state_dict()),
        "parameters": parameters,
        "buffers": buffers,
        "steps": steps,
    }


def pause(
    wrapper: Callable,
    model: str,
    seed: int,
    batches: list[torch.Tensor],
    options: dict,
    group: dist.ProcessGroup | None = None,
) -> dict:
    """All but the last batch under `no_sync`; then a block that ends by an exception, and two more steps."""
    module = build(model, seed).to(_device())
    wrapped = wrapper(module, **options, group=group)
    mark("paused")
    with wrapped.no_sync():
        for batch in batches[:-1]:
            loss(wrapped(batch)).backward()
            wrapped.finish_gradient_synchronization()
        mark("resumed")
    inside = gradients(module)
    _step(wrapped, batches[-1])
    after = gradients(module)
    with contextlib.suppress(_Interruption), wrapped.no_sync():
        raise _Interruption
    module.zero_grad()
    _step(wrapped, batches[0])
    recovered = gradients(module)
    module.zero_grad()
    return {
        "inside": inside,
        "after": after,
        "recovered": recovered,
        "refused": _refuses_a_second_backward(wrapped, batches[0]),
    }


def _refuses_a_second_backward(wrapped: nn.Module, batch: torch.Tensor) -> bool:
    """Without a synchronization after the first; else what comes of it is up to how far all-reduces are."""
    loss(wrapped(batch)).backward()
    try:
        loss(wrapped(batch)).backward()
    except RuntimeError:
        return True
    wrapped.finish_gradient_synchronization()
    return False


class _Interruption(Exception):
    """As a student's code may meet, for instance when memory is short."""


def hold(
    wrapper: Callable, seed: int, batch: torch.Tensor, options: dict, group: dist.ProcessGroup | None = None
) -> list[int]:
    """Bytes that the wrapper holds after some steps, and after some more."""
    module = build("deep", seed).to(_device())
    with Allocations() as memory:
        wrapped = wrapper(module, **options, group=group)
        return [_held_after_steps(wrapped, batch, memory) for _ in range(2)]


def accumulate(
    accumulate: Callable,
    model: str,
    seed: int,
    microbatches: list[list[torch.Tensor]],
    group: dist.ProcessGroup | None = None,
) -> dict:
    """One accumulation over a wrapper that counts how often it synchronizes."""
    wrapped = _Counting(build(model, seed).to(_device()), group)
    losses = _Losses()
    mean = accumulate(wrapped, [tuple(pair) for pair in microbatches], losses)
    return {
        "loss": mean.item() if isinstance(mean, torch.Tensor) and mean.numel() == 1 else mean,
        "attached": isinstance(mean, torch.Tensor) and mean.requires_grad,
        "gradients": gradients(wrapped.module),
        "synchronizations": wrapped.synchronizations,
        "finished": wrapped.finished,
        "graphs": losses.most_graphs,
    }


class _Counting(nn.Module):
    """Decides in forward, as torch's own wrapper does, whether the backward to come synchronizes."""

    def __init__(self, module: nn.Module, group: dist.ProcessGroup | None) -> None:
        super().__init__()
        self.module, self.group = module, group
        self.synchronizes, self.synchronizations, self.finished = True, 0, 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs = self.module(inputs)
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

    def _synchronize(self) -> None:
        self.synchronizations += 1
        self.finished = 0
        for parameter in self.module.parameters():
            dist.all_reduce(parameter.grad, dist.ReduceOp.AVG, self.group)

    def finish_gradient_synchronization(self) -> None:
        self.finished += 1


class _Losses:
    """A loss function that counts the graphs whose backward is still to come."""

    def __init__(self) -> None:
        self.graphs = self.most_graphs = 0

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        self.graphs += 1
        self.most_graphs = max(self.most_graphs, self.graphs)
        outputs.register_hook(self._done)
        return (outputs - targets).square().mean()

    def _done(self, gradient: torch.Tensor) -> None:
        self.graphs -= 1


def _step(wrapped: nn.Module, batch: torch.Tensor) -> None:
    """Forward, backward and synchronization."""
    mark("began")
    loss(wrapped(inputs=batch)).backward()  # elsewhere without the name: both have to reach the model
    wrapped.finish_gradient_synchronization()


def _held_after_steps(wrapped: nn.Module, batch: torch.Tensor, memory: Allocations) -> int:
    for _ in range(REPEATS):
        _step(wrapped, batch)
        wrapped.zero_grad()
    return at_rest(memory)


def _watched(model: str, seed: int) -> nn.Module:
    """The model, which marks when each of its gradients becomes ready.

    These hooks come before those of any wrapper, so a gradient's moment is before its all-reduce.
    """
    module = build(model, seed).to(_device())
    for parameter in module.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(lambda _: mark("ready"))
    return module


def _device() -> torch.device:
    return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")
