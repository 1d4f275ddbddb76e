# ruff: noqa: F401
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F


def summed(x, group):
    total = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=group)
    return total


def gathered(x, group):
    x = x.contiguous()
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, x, group=group)
    return parts


def together(x, dim, group):
    return torch.cat(gathered(x, group), dim)


def share(size, group):
    n = dist.get_world_size(group)
    if size % n:
        raise ValueError(f"{size} does not divide by {n}")
    return size // n


def part(x, dim, group):
    share(x.shape[dim], group)
    return x.tensor_split(dist.get_world_size(group), dim)[dist.get_rank(group)]


def part_of_sum(x, dim, group):
    parts = [each.contiguous() for each in x.chunk(dist.get_world_size(group), dim)]
    total = torch.empty_like(parts[0])
    dist.reduce_scatter(total, parts, group=group)
    return total


def identity(x, *arguments):
    return x.view_as(x)


def made_of(forward, backward):
    """A function with these two directions."""

    class Both(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, *arguments):
            ctx.arguments = arguments
            return forward(x, *arguments)

        @staticmethod
        def backward(ctx, gradient):
            return backward(gradient, *ctx.arguments), *[None] * len(ctx.arguments)

    def function(x, *arguments, group=None):
        return Both.apply(x, *arguments, group)

    return function


copy = made_of(identity, summed)
reduce = made_of(summed, identity)
gather = made_of(together, part)
scatter = made_of(part, together)
all_gather = made_of(together, part_of_sum)
reduce_scatter = made_of(part_of_sum, together)


def entries(state, module):
    prefix = f"{module}."
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}


class Column(nn.Module):
    """A right ColumnParallelLinear whose parts can be replaced one by one."""

    def __init__(self, in_features, out_features, bias=True, gather_output=False, group=None):
        super().__init__()
        self.gather_output, self.group = gather_output, group
        own = self.own(out_features)
        self.weight = nn.Parameter(torch.empty(own, in_features))
        self.bias = nn.Parameter(torch.empty(own)) if bias else None

    def own(self, size):
        return share(size, self.group)

    def enter(self, x):
        return copy(x, group=self.group)

    def leave(self, y):
        return gather(y, -1, group=self.group) if self.gather_output else y

    def forward(self, x):
        return self.leave(F.linear(self.enter(x), self.weight, self.bias))

    def shard(self, tensor):
        return part(tensor, 0, self.group)

    def load_full(self, state):
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                parameter.copy_(self.shard(state[name]))


class Row(nn.Module):
    """A right RowParallelLinear whose parts can be replaced one by one."""

    def __init__(self, in_features, out_features, bias=True, input_is_parallel=True, group=None):
        super().__init__()
        self.input_is_parallel, self.group = input_is_parallel, group
        self.weight = nn.Parameter(torch.empty(out_features, self.own(in_features)))
        self.bias = nn.Parameter(torch.empty(out_features)) if bias else None

    def own(self, size):
        return share(size, self.group)

    def enter(self, x):
        return x if self.input_is_parallel else scatter(x, -1, group=self.group)

    def sum(self, y):
        return reduce(y, group=self.group)

    def add_bias(self, y):
        return y if self.bias is None else y + self.bias

    def forward(self, x):
        return self.add_bias(self.sum(F.linear(self.enter(x), self.weight)))

    def load_full(self, state):
        with torch.no_grad():
            self.weight.copy_(part(state["weight"], 1, self.group))
            if self.bias is not None:
                self.bias.copy_(state["bias"])


class Mlp(nn.Module):
    """A right ParallelMLP."""

    def __init__(self, width, hidden_width, group=None):
        super().__init__()
        self.group = group
        self.up = Column(width, hidden_width, group=group)
        self.down = Row(hidden_width, width, group=group)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))

    def load_full(self, state):
        self.up.load_full(entries(state, "up"))
        self.down.load_full(entries(state, "down"))
