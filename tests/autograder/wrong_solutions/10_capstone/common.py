# ruff: noqa: F401
# Helpers of the wrong solutions: all of them are right.
import itertools

import torch
import torch.distributed as dist

from autograder.capstone import Cluster, Work


class Frugal:
    """A strategy that earns all points, in other steps than the exercise's solution."""

    ROWS, RATE = 24, 0.03

    def __init__(self, cluster):
        self.cluster, self.rank = cluster, dist.get_rank()
        self.rows = [round(self.ROWS * flops / sum(cluster.flops)) for flops in cluster.flops]
        self.own = next(number for number, ranks in enumerate(cluster.nodes) if self.rank in ranks)
        self.pair = max(itertools.product(*cluster.nodes), key=self.speed)
        self.adam = None
        self.make_groups()

    def make_groups(self):
        self.groups = [dist.new_group(list(ranks)) for ranks in self.cluster.nodes]
        self.bridge = dist.new_group(sorted(self.pair))

    def speed(self, pair):
        return self.cluster.bandwidth[pair[0]][pair[1]]

    def work(self):
        rows = self.rows[self.rank]
        few, many = Work(rows, 4), Work(rows, rows, recompute=True)
        return many if self.cluster.fits(self.rank, many) else few

    def averaged(self, gradient):
        part = (gradient * self.rows[self.rank] / sum(self.rows)).bfloat16()
        dist.all_reduce(part, group=self.groups[self.own])
        if self.rank in self.pair:
            dist.all_reduce(part, group=self.bridge)
        dist.broadcast(part, self.pair[self.own], group=self.groups[self.own])
        return part.float()

    def step(self, weights, gradient):
        if self.adam is None:
            self.weights = torch.nn.Parameter(weights.clone())
            self.adam = torch.optim.Adam([self.weights], self.RATE, betas=(0.9, 0.95))
        self.weights.grad = self.averaged(gradient)
        self.adam.step()
        return self.weights.detach()
