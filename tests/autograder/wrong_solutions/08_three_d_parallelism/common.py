# ruff: noqa: F401
# Helpers of the wrong solutions: all of them are right.
import itertools

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from autograder.on_paper import Plan, StepEstimate
from autograder.three_d import Mesh, whole_model
from fourranks.learner.model import loss as mean_loss
from fourranks.learner.model import share


def places(data, pipeline, tensor):
    return list(itertools.product(range(data), range(pipeline), range(tensor)))


def lines(sizes, axis):
    """For each line along an axis its ranks."""
    found = {}
    for rank, place in enumerate(places(*sizes)):
        found.setdefault(place[:axis] + place[axis + 1 :], []).append(rank)
    return list(found.values())


def group_along(sizes, axis):
    made = [(ranks, dist.new_group(ranks)) for ranks in lines(sizes, axis)]
    return next(group for ranks, group in made if dist.get_rank() in ranks)


def refuse(data, pipeline, tensor):
    size = data * pipeline * tensor
    if size != dist.get_world_size():
        raise ValueError(f"{size} ranks in the mesh, {dist.get_world_size()} in the world")


class CopyToRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        total = gradient.clone()
        dist.all_reduce(total, group=ctx.group)
        return total, None


class ReduceFromRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        total = x.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class Trainer:
    """A right train_step whose parts can be replaced one by one; calling it takes a step."""

    def __new__(cls, config, mesh, batch):
        if "trainer" not in mesh.state:
            trainer = super().__new__(cls)
            trainer.config, trainer.mesh = config, mesh
            trainer.data, trainer.stages, trainer.ranks = (
                dist.get_world_size(group)
                for group in (mesh.data_group, mesh.pipeline_group, mesh.tensor_group)
            )
            trainer.at = mesh.pipeline_rank
            trainer.first, trainer.last = trainer.at == 0, trainer.at == trainer.stages - 1
            trainer.stage = trainer.build()
            mesh.state["trainer"] = trainer
        return mesh.state["trainer"].step(batch)

    def build(self):
        return self.cut(self.shared(whole_model(self.config)))

    def shared(self, model):
        config, mesh = self.config, self.mesh
        return share(model, config, mesh.tensor_rank, self.ranks, self.enter, self.leave).double()

    def enter(self, x):
        return CopyToRanks.apply(x, self.mesh.tensor_group)

    def leave(self, x):
        return ReduceFromRanks.apply(x, self.mesh.tensor_group)

    def cut(self, model):
        blocks = self.config.blocks // self.stages
        first = 0 if self.first else 1 + self.at * blocks
        return model[first : len(model) if self.last else 1 + (self.at + 1) * blocks]

    def step(self, batch):
        self.clear()
        loss = self.run(batch)
        self.synchronize()
        self.update()
        return self.share_loss(loss)

    def clear(self):
        self.stage.zero_grad()

    def run(self, batch):
        m = self.config.num_microbatches
        loss, alive, sending = torch.zeros((), dtype=torch.float64), [], []
        for inputs, targets in zip(*[tensor.chunk(m) for tensor in batch], strict=True):
            x = inputs if self.first else self.receive(inputs.shape, self.at - 1).requires_grad_()
            y = self.stage(x)
            if self.last:
                y = self.scaled(mean_loss(y, targets))
                loss += self.counted(y.detach())
            else:
                sending.append(self.send(y.detach(), self.at + 1))
            alive.append((x, y, inputs.shape))
        for x, y, shape in alive:
            y.backward(None if self.last else self.receive(shape, self.at + 1))
            if not self.first:
                sending.append(self.send(self.returned(x.grad), self.at - 1))
        for _, work in sending:
            work.wait()
        return loss

    def scaled(self, loss):
        return loss / self.config.num_microbatches

    def counted(self, loss):
        return loss

    def returned(self, gradient):
        return gradient

    def send(self, tensor, stage):
        return tensor, dist.isend(tensor, group=self.mesh.pipeline_group, group_dst=stage)

    def receive(self, shape, stage):
        tensor = torch.empty(*shape, self.config.width, dtype=torch.float64)
        dist.recv(tensor, group=self.mesh.pipeline_group, group_src=stage)
        return tensor

    def synchronize(self):
        for parameter in self.stage.parameters():
            dist.all_reduce(parameter.grad, group=self.mesh.data_group)
            parameter.grad /= self.data

    def update(self):
        with torch.no_grad():
            for parameter in self.stage.parameters():
                parameter -= self.config.learning_rate * parameter.grad

    def share_loss(self, loss):
        dist.all_reduce(loss, group=self.mesh.pipeline_group)
        dist.all_reduce(loss, group=self.mesh.data_group)
        return loss.item() / self.data


class Paper:
    """A right estimate_step whose parts can be replaced one by one; calling it returns an estimate."""

    def __new__(cls, model, cluster, plan):
        paper = super().__new__(cls)
        paper.model, paper.cluster, paper.plan = model, cluster, plan
        paper.begin()
        return paper.estimate()

    def begin(self):
        model, plan = self.model, self.plan
        self.d, self.p, self.t, self.m = plan.data, plan.pipeline, plan.tensor, plan.num_microbatches
        self.refuse()
        self.layers = model.num_layers // self.p
        self.activation = self.sequences() * model.sequence * model.width
        self.parameters = self.count()

    def refuse(self):
        pairs = (
            (self.model.num_layers, self.p),
            (self.model.num_heads, self.t),
            (self.model.batch, self.d * self.m),
        )
        gpus = self.d * self.p * self.t
        if gpus != self.cluster.num_gpus:
            raise ValueError(f"{gpus} is not {self.cluster.num_gpus}")
        for number, parts in pairs:
            if number % parts:
                raise ValueError(f"{number} does not divide by {parts}")

    def sequences(self):
        return self.model.batch // (self.d * self.m)

    def count(self):
        layers = 12 * self.model.width**2 * self.layers
        return (layers + self.model.vocabulary * self.model.width) / self.t

    def bandwidth(self, span):
        inside = span <= self.cluster.gpus_per_node
        return self.cluster.node_bandwidth if inside else self.cluster.network_bandwidth

    def all_reduce(self, ranks, nbytes, span):
        return 2 * (ranks - 1) * (self.cluster.latency + nbytes / ranks / self.bandwidth(span))

    def estimate(self):
        compute, tensor = self.compute(), self.tensor()
        return StepEstimate(  # in the order of the exercise's table
            compute, tensor, self.bubble(compute, tensor), self.pipeline(), self.data(), self.memory()
        )

    def compute(self):
        model = self.model
        s, h = model.sequence, model.width
        flops = self.passes() * model.num_layers * (24 * s * h**2 + 4 * s**2 * h) + self.head()
        return model.batch * flops / (self.cluster.num_gpus * self.cluster.flops)

    def passes(self):
        return 4 if self.plan.recompute else 3

    def head(self):
        return 3 * 2 * self.model.sequence * self.model.width * self.model.vocabulary

    def tensor(self):
        number = (6 if self.plan.recompute else 4) * self.layers * self.m
        return number * self.all_reduce(self.t, 2 * self.activation, self.t)

    def bubble(self, compute, tensor):
        return (self.p - 1) / self.m * (compute + tensor)

    def pipeline(self):
        return self.messages() if self.p > 1 else 0.0

    def messages(self):
        seconds = self.cluster.latency + 2 * self.activation / self.bandwidth(self.p * self.t)
        return 2 * self.m * seconds

    def data(self):
        return self.all_reduce(self.d, 2 * self.parameters, self.cluster.num_gpus)

    def memory(self):
        layer, alive = self.activation * (10 + 24 / self.t), self.in_flight() * self.layers
        state = 4 * self.parameters + self.state()
        return state + (alive * 2 * self.activation + layer if self.plan.recompute else alive * layer)

    def state(self):
        return 12 * self.parameters / self.d

    def in_flight(self):
        return min(self.p, self.m)


def divisors(number):
    return [size for size in range(1, number + 1) if number % size == 0]


def all_plans(model, cluster, recompute=(False, True)):
    for pipeline, tensor in itertools.product(divisors(model.num_layers), divisors(model.num_heads)):
        data, left = divmod(cluster.num_gpus, pipeline * tensor)
        if left == 0 and model.batch % data == 0:
            for number in divisors(model.batch // data):
                yield from (Plan(data, pipeline, tensor, number, again) for again in recompute)


def fitting(model, cluster, plans):
    found = [(plan, Paper(model, cluster, plan)) for plan in plans]
    if not found:
        raise ValueError(f"no plan for {cluster.num_gpus} GPUs")
    fits = [(plan, cost) for plan, cost in found if cost.memory <= cluster.memory]
    if not fits:
        least = min(cost.memory for _, cost in found)
        raise ValueError(f"{least / 1e9:.1f} GB at least, {cluster.memory / 1e9:.1f} GB there")
    return fits


def passed_on(tensor, group, by):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    arriving = torch.empty(tensor.shape, dtype=tensor.dtype)
    pair = [
        dist.P2POp(dist.isend, tensor.contiguous(), group=group, group_peer=(rank + by) % size),
        dist.P2POp(dist.irecv, arriving, group=group, group_peer=(rank - by) % size),
    ]
    for work in dist.batch_isend_irecv(pair):
        work.wait()
    return arriving


class PassOn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group = group
        return passed_on(tensor, group, 1)

    @staticmethod
    def backward(ctx, gradient):
        return passed_on(gradient, ctx.group, -1), None


class Ring:
    """A right ring_attention whose parts can be replaced one by one; calling it attends."""

    def __new__(cls, q, k, v, group, causal=True):
        ring = super().__new__(cls)
        ring.q, ring.group, ring.causal = q, group, causal
        ring.rank, ring.size = dist.get_rank(group), dist.get_world_size(group)
        return ring.attend(torch.stack((k, v)))

    def attend(self, block):
        largest = self.q.new_full((*self.q.shape[:3], 1), -torch.inf)
        total, weighted = torch.zeros_like(largest), torch.zeros_like(self.q)
        for turn in range(self.size):
            block = self.passed(block, turn)
            owner = (self.rank - turn) % self.size
            if not self.used(owner):
                continue
            scores = self.masked(self.scores(block[0]), owner)
            new = self.largest(largest, scores)
            weights, rescale = torch.exp(scores - new), self.rescale(largest, new)
            total = total * rescale + weights.sum(-1, keepdim=True)
            weighted = weighted * rescale + weights @ block[1]
            largest = new
        return weighted / total

    def passed(self, block, turn):
        return PassOn.apply(block, self.group) if turn else block

    def used(self, owner):
        return True

    def scores(self, k):
        return self.q @ k.transpose(-1, -2) / self.q.shape[-1] ** 0.5

    def masked(self, scores, owner):
        places = torch.arange(self.q.shape[2])
        unseen = owner * len(places) + places > self.rank * len(places) + places[:, None]
        return scores.masked_fill(unseen, -torch.inf) if self.causal else scores

    def largest(self, largest, scores):
        return torch.maximum(largest, scores.detach().amax(-1, keepdim=True))

    def rescale(self, largest, new):
        return torch.exp(largest - new)


def exchanged(rows, leaving, arriving, group):
    output = rows.new_empty(sum(arriving), *rows.shape[1:])
    dist.all_to_all_single(output, rows.contiguous(), arriving, leaving, group=group)
    return output


class AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, leaving, arriving, group):
        ctx.sizes, ctx.group = (arriving, leaving), group
        return exchanged(rows, leaving, arriving, group)

    @staticmethod
    def backward(ctx, gradient):
        return exchanged(gradient, *ctx.sizes, ctx.group), None, None, None


class Experts:
    """A right dispatch_to_experts whose parts can be replaced one by one."""

    def __new__(cls, tokens, assignment, group):
        experts = super().__new__(cls)
        experts.group, experts.size = group, dist.get_world_size(group)
        return experts.dispatch(tokens, assignment)

    def dispatch(self, tokens, assignment):
        order = self.order(assignment)
        leaving = torch.bincount(assignment, minlength=self.size)
        there, back = leaving.tolist(), self.arriving(leaving).tolist()

        def combine(outputs):
            return self.home(self.exchange(outputs, back, there), order)

        return self.exchange(tokens[order], there, back), combine

    def arriving(self, leaving):
        numbers = torch.empty_like(leaving)
        dist.all_to_all_single(numbers, leaving, group=self.group)
        return numbers

    def order(self, assignment):
        return assignment.argsort(stable=True)

    def exchange(self, rows, leaving, arriving):
        return AllToAll.apply(rows, leaving, arriving, self.group)

    def home(self, rows, order):
        return torch.empty_like(rows).index_copy(0, order, rows)
