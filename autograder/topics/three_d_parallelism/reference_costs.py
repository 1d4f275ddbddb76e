"""The cost model of exercise 08, as its text has it: the cost of a plan's step, and all plans."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from autograder.on_paper import Cluster, Model, Plan, StepEstimate

HALF = 2  # bytes of an activation, a weight or a gradient


def indivisible(model: Model, cluster: Cluster, plan: Plan) -> tuple[int, tuple[int, ...]] | None:
    """Return a number and the factors of another that do not fit; None if the plan is possible."""
    axes = plan.data, plan.pipeline, plan.tensor
    if prod(axes) != cluster.num_gpus:
        return cluster.num_gpus, axes
    for number, factors in (
        (model.num_layers, (plan.pipeline,)),
        (model.num_heads, (plan.tensor,)),
        (model.batch, (plan.data, plan.num_microbatches)),
    ):
        if number % prod(factors):
            return number, factors
    return None


@dataclass(frozen=True)
class Costs:
    """The parts of an estimate for a plan that is possible; subclasses make a mistake each."""

    model: Model
    cluster: Cluster
    plan: Plan

    @property
    def stage_layers(self) -> int:
        return self.model.num_layers // self.plan.pipeline

    @property
    def sequences(self) -> int:
        """Sequences of a microbatch."""
        return self.model.batch // (self.plan.data * self.plan.num_microbatches)

    @property
    def activation(self) -> int:
        """Elements between two layers, of a microbatch."""
        return self.sequences * self.model.sequence * self.model.width

    @property
    def rank_parameters(self) -> float:
        layers = 12 * self.stage_layers * self.model.width**2
        return (layers + self.model.vocabulary * self.model.width) / self.plan.tensor

    def bandwidth(self, span: int) -> float:
        inside = span <= self.cluster.gpus_per_node
        return self.cluster.node_bandwidth if inside else self.cluster.network_bandwidth

    def all_reduce(self, ranks: int, nbytes: float, span: int) -> float:
        return 2 * (ranks - 1) * self.message(nbytes / ranks, span)

    def message(self, nbytes: float, span: int) -> float:
        return self.cluster.latency + nbytes / self.bandwidth(span)

    def compute(self) -> float:
        s, h = self.model.sequence, self.model.width
        layers = self.model.num_layers * (24 * s * h**2 + 4 * s**2 * h)
        head = 2 * s * h * self.model.vocabulary
        passes = 4 if self.plan.recompute else 3
        flops = self.model.batch * (passes * layers + 3 * head)
        return flops / (self.cluster.num_gpus * self.cluster.flops)

    def tensor(self) -> float:
        number = (6 if self.plan.recompute else 4) * self.stage_layers * self.plan.num_microbatches
        return number * self.all_reduce(self.plan.tensor, HALF * self.activation, self.plan.tensor)

    def bubble(self) -> float:
        return (self.plan.pipeline - 1) / self.plan.num_microbatches * (self.compute() + self.tensor())

    def pipeline(self) -> float:
        if self.plan.pipeline == 1:
            return 0.0
        span = self.plan.pipeline * self.plan.tensor
        return 2 * self.plan.num_microbatches * self.message(HALF * self.activation, span)

    def data(self) -> float:
        return self.all_reduce(self.plan.data, HALF * self.rank_parameters, self.cluster.num_gpus)

    def in_flight(self) -> int:
        return min(self.plan.pipeline, self.plan.num_microbatches)

    def state(self) -> float:
        return 4 * self.rank_parameters + 12 * self.rank_parameters / self.plan.data

    def memory(self) -> float:
        kept, layer = self.in_flight() * self.stage_layers, self.activation * (10 + 24 / self.plan.tensor)
        if self.plan.recompute:
            return self.state() + kept * HALF * self.activation + layer
        return self.state() + kept * layer

    def estimate(self) -> StepEstimate:
        parts = (self.compute, self.tensor, self.bubble, self.pipeline, self.data, self.memory)
        return StepEstimate(*[part() for part in parts])


class AnotherLink(Costs):
    def bandwidth(self, span: int) -> float:
        return self.cluster.node_bandwidth


class NoLinkButTheNetwork(Costs):
    def bandwidth(self, span: int) -> float:
        return self.cluster.network_bandwidth


class WithoutTheRing(Costs):
    def all_reduce(self, ranks: int, nbytes: float, span: int) -> float:
        return 2 * self.message(nbytes, span) if ranks > 1 else 0.0


class WithoutLatency(Costs):
    def message(self, nbytes: float, span: int) -> float:
        return nbytes / self.bandwidth(span)


class BatchNotDivided(Costs):
    @property
    def sequences(self) -> int:
        return self.model.batch


class StateNotSharded(Costs):
    def state(self) -> float:
        return 16 * self.rank_parameters


class AllAlive(Costs):
    def in_flight(self) -> int:
        return self.plan.num_microbatches


def all_plans(model: Model, cluster: Cluster) -> Iterator[Plan]:
    """Yield every plan that is possible."""
    for pipeline, tensor in itertools.product(_divisors(model.num_layers), _divisors(model.num_heads)):
        data, left = divmod(cluster.num_gpus, pipeline * tensor)
        if left or model.batch % data:
            continue
        for num_microbatches in _divisors(model.batch // data):
            for recompute in (False, True):
                yield Plan(data, pipeline, tensor, num_microbatches, recompute)


def _divisors(number: int) -> list[int]:
    return [size for size in range(1, number + 1) if number % size == 0]


def best(model: Model, cluster: Cluster) -> tuple[Plan | None, float]:
    """Return the fastest plan that fits, and the least memory that any plan takes."""
    found = [(plan, Costs(model, cluster, plan).estimate()) for plan in all_plans(model, cluster)]
    fitting = [(plan, cost) for plan, cost in found if cost.memory <= cluster.memory]
    least = min((cost.memory for _, cost in found), default=0.0)
    return (min(fitting, key=lambda each: each[1].seconds)[0] if fitting else None), least
