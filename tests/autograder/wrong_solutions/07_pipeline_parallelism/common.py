# ruff: noqa: F401
# Helpers of the wrong solutions: all of them are right.
import itertools
from collections import Counter, deque

import torch
import torch.distributed as dist
from torch import nn


def in_turns(microbatches, warm_up):
    warm_up = max(0, min(warm_up, len(microbatches)))
    steps = [("F", microbatch) for microbatch in microbatches[:warm_up]]
    for forward, backward in zip(microbatches[warm_up:], microbatches, strict=False):
        steps += [("F", forward), ("B", backward)]
    return steps + [("B", microbatch) for microbatch in microbatches[len(microbatches) - warm_up :]]


def rounds(num_stages, num_microbatches, num_chunks):
    firsts = range(0, num_microbatches, num_stages)
    return [first + at for first in firsts for _ in range(num_chunks) for at in range(num_stages)]


def need(kind, microbatch, stage, last):
    if kind == "F":
        return ("F", microbatch, stage - 1) if stage else None
    return ("B", microbatch, stage + 1) if stage < last else ("F", microbatch, stage)


def play(schedules, forward, backward):
    """Seconds in which each rank computes, and at which it is done."""
    last, seconds = len(schedules) - 1, {"F": forward, "B": backward}
    waiting, clocks, finished = [deque(steps) for steps in schedules], [0.0] * len(schedules), {None: 0.0}
    while any(waiting):
        before = len(finished)
        for stage, steps in enumerate(waiting):
            while steps and need(*steps[0], stage, last) in finished:
                kind, microbatch = steps.popleft()
                began = max(clocks[stage], finished[need(kind, microbatch, stage, last)])
                clocks[stage] = finished[kind, microbatch, stage] = began + seconds[kind]
        if len(finished) == before:
            kind, microbatch = next(steps[0] for steps in waiting if steps)
            raise ValueError(f"stuck: the {kind} of microbatch {microbatch} cannot begin")
    return [sum(seconds[kind] for kind, _ in steps) for steps in schedules], clocks


class Pipeline:
    """A right run_pipeline whose parts can be replaced one by one; calling it runs it."""

    def __new__(cls, *arguments, group=None):
        pipeline = super().__new__(cls)
        pipeline.begin(*arguments, group)
        return pipeline.run()

    def begin(self, schedule, module, microbatches, loss_fn, group):
        self.schedule, self.module, self.microbatches = schedule, module, microbatches
        self.loss_fn, self.group = loss_fn, group
        self.index, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.first, self.last = self.index == 0, self.index == self.size - 1
        self.samples = sum(len(inputs) for inputs, _ in microbatches)
        self.alive, self.activations, self.gradients, self.loss = {}, {}, [], 0.0

    def run(self):
        for kind, microbatch in self.schedule:
            self.do(kind, microbatch)
        loss = self.share_loss()
        self.end()
        return loss

    def do(self, kind, microbatch):
        if kind == "F":
            self.forward(microbatch)
        else:
            self.backward(microbatch)

    def forward(self, microbatch):
        inputs, targets = self.microbatches[microbatch]
        if not self.first:
            inputs = self.leaf(self.receive("F", microbatch))
        outputs = self.module(inputs)
        if self.last:
            outputs = self.add_loss(self.loss_fn(outputs, targets), len(inputs))
        else:
            self.send_on(microbatch, self.outgoing(outputs))
        self.alive[microbatch] = inputs, outputs

    def leaf(self, arrived):
        return arrived.requires_grad_()

    def outgoing(self, outputs):
        return outputs.detach().contiguous()

    def send_on(self, microbatch, outputs):
        self.activations[microbatch] = self.send(outputs, self.index + 1)

    def add_loss(self, loss, samples):
        share = loss * samples / self.samples
        self.loss += share.item()
        return share

    def backward(self, microbatch):
        gradient = None if self.last else self.receive("B", microbatch)
        inputs, outputs = self.take(microbatch)
        self.differentiate(outputs, gradient)
        if not self.last:
            self.wait(self.activations.pop(microbatch))
        if not self.first:
            self.send_back(inputs.grad)

    def take(self, microbatch):
        return self.alive.pop(microbatch)

    def differentiate(self, outputs, gradient):
        if outputs.requires_grad:
            outputs.backward(gradient)

    def send_back(self, gradient):
        while self.gradients:
            self.wait(self.gradients.pop())
        self.gradients.append(self.send(gradient, self.index - 1))

    def receive(self, kind, microbatch):
        buffer = self.buffer(microbatch)
        source = self.index - 1 if kind == "F" else self.index + 1
        dist.irecv(buffer, group=self.group, group_src=source).wait()
        return buffer

    def buffer(self, microbatch):
        return torch.empty_like(self.microbatches[microbatch][0])

    def send(self, tensor, destination):
        return dist.isend(tensor, group=self.group, group_dst=destination)

    def wait(self, work):
        work.wait()

    def share_loss(self):
        loss = torch.tensor([self.loss], dtype=torch.float64)
        if not self.last:
            dist.recv(loss, group=self.group, group_src=self.index + 1)
        if not self.first:
            dist.send(loss, group=self.group, group_dst=self.index - 1)
        return loss.item()

    def end(self):
        for work in [*self.activations.values(), *self.gradients]:
            work.wait()


class Split(nn.Linear):
    """A right SplitBackwardLinear whose parts can be replaced one by one."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.waiting = []

    def forward(self, inputs):
        return Halves.apply(inputs, self.weight, self.bias, self)

    def input_gradient(self, gradient, weight):
        return gradient @ weight

    def parameter_gradients(self, inputs, gradient):
        return None, None

    def note(self, inputs, gradient):
        self.waiting.append((inputs, gradient))

    def next(self):
        if not self.waiting:
            raise RuntimeError("no microbatch waits")
        return self.waiting.pop(0)

    def backward_weight(self):
        inputs, gradient = self.next()
        gradient = gradient.reshape(-1, self.out_features)
        if self.weight.requires_grad:
            self.add(self.weight, gradient.t() @ inputs.reshape(-1, self.in_features))
        if self.bias is not None and self.bias.requires_grad:
            self.add(self.bias, gradient.sum(0))

    def add(self, parameter, gradient):
        parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient


class Halves(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs, weight, bias, layer):
        ctx.save_for_backward(inputs, weight)
        ctx.layer = layer
        return nn.functional.linear(inputs, weight, bias)

    @staticmethod
    def backward(ctx, gradient):
        inputs, weight = ctx.saved_tensors
        ctx.layer.note(inputs.detach(), gradient)
        return (
            ctx.layer.input_gradient(gradient, weight),
            *ctx.layer.parameter_gradients(inputs, gradient),
            None,
        )
