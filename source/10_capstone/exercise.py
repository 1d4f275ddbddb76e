# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 10 Capstone: how cheaply can you train on a bad cluster?
#
# Four ranks in two nodes. The network between the nodes is slow, one of its cables is broken, one rank is a
# straggler, and memory is scarce. You write the strategy that trains a small transformer on them. The ranks
# and what they send are real; the time that all of it takes is simulated, and so it is the same on every
# machine. The cheapest strategy leads the class's ranking.
#
# You will
#
# - give each rank as much work as its speed and its memory allow,
# - choose which collectives run over which links, and how many bytes they carry,
# - trade steps for bytes, and defend your choices with measurements.
#
# 3 to 4 hours · 4 ranks (the checks start their own) · Gloo, no GPU needed
#
# The ideas are those of [lecture 03](../../lectures/03_benchmarking/lecture.ipynb), [lecture
# 04](../../lectures/04_data_parallelism/lecture.ipynb) and [lecture
# 08](../../lectures/08_three_d_parallelism/lecture.ipynb). [Notation](../../docs/notation.md) · [cheat
# sheet](../../docs/cheat_sheet.md) · [glossary](../../docs/glossary.md) · [concept
# map](../../docs/concept_map.md)

# %% [markdown]
# ## Rules of the game
#
# A `Strategy` lives on each rank during one training. The referee calls it:
#
# | method | is called | returns |
# |---|---|---|
# | `Strategy(cluster)` | once; make groups here | |
# | `work()` | once | `Work(rows, microbatch, recompute)`: how many sequences this rank learns from in each step, how many at a time, and whether it computes activations again |
# | `step(weights, gradient)` | in each step | this rank's new weights, a float32 tensor of one dimension |
#
# **The referee holds the data.** In each step it computes the mean gradient over `rows` new sequences, at the
# weights that this rank returned in the step before, and passes it to `step`. No rank ever sees a sequence.
# `rows` is an integer from 0 to 1,024, `microbatch` one from 1 to 1,024. A rank with 0 rows gets zeros.
#
# **The goal.** The ranks train one model. Training ends as soon as all ranks return the same weights and
# these reach the target loss on sequences that were held out. The target is the loss that plain data
# parallelism reaches in 30 steps. Weights count as the same if no rank's differ from rank 0's by more than
# 1 % of their norm, and all ranks' models predict the same. If the target is not reached in 60 steps,
# training has failed.
#
# **The cost** is the simulated time until then, divided by that of plain data parallelism on the same
# cluster:
#
# | part | seconds |
# |---|---|
# | computing | `cluster.compute_seconds(rank, work)`: arithmetic by the rank's speed, a third more with recompute, and `launch_seconds` for each microbatch |
# | a collective | `cluster.collective_seconds(op, ranks, num_bytes)`: a ring through the group's ranks in ascending order, as fast as its slowest link. It begins when its last rank is there |
# | memory | `cluster.memory_bytes(work)` must not be more than `cluster.memory[rank]` |
# | all other arithmetic, such as the optimizer's | nothing |
#
# **You may use** every collective of `torch.distributed`, in groups of your own and in any dtype, but not
# `torch.distributed.nn`, `torch.distributed.fsdp`, `torch.distributed.tensor` and `torch.nn.parallel`, which
# contain the answers. They are missing when a check runs your code. Messages (`send`, `recv`) are refused.
# Nothing overlaps, and a call with `async_op=True` must be waited for in the step that begins it. Rare
# exchanges, compression and any optimizer are allowed: be inventive. `Cluster??` in a cell of its own shows
# the source of the formulas.

# %% nbgrader={"grade": false, "grade_id": "setup", "locked": true, "schema_version": 3, "solution": false, "task": false}
# %load_ext fourranks

import itertools

import torch
import torch.distributed as dist

from autograder import check
from autograder.capstone import Cluster, Work

# %% [markdown]
# This is plain data parallelism: the same work everywhere, one all-reduce in each step, Adam. Its cost is 1.


# %%
class PlainStrategy:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.rank = cluster, dist.get_rank()

    def work(self) -> Work:
        return Work(rows=16, microbatch=4)

    def step(self, weights: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        if not hasattr(self, "adam"):
            self.weights = torch.nn.Parameter(weights.clone())
            self.adam = torch.optim.Adam([self.weights], lr=0.01)
        dist.all_reduce(gradient)
        self.weights.grad = gradient / dist.get_world_size()
        self.adam.step()
        return self.weights.detach()


# %% [markdown]
# ## 1. The strategy
#
# **Difficulty** ●●●●● · **Importance** ●●●●○ · **about 150 minutes**
#
# Write `Strategy`. Begin with a copy of the plain one, and make one thing cheaper at a time. You are graded
# on clusters other than the one you see, with other nodes, another broken cable and another straggler. So
# read everything from `cluster`.
#
# | your cost is at most | of the points |
# |---|---|
# | anything, with the loss reached | 20 % |
# | 1.05, plain data parallelism | 40 % |
# | 0.5 | 60 % |
# | 0.3 | 80 % |
# | 0.2 | 100 % |
#
# A cost below 0.2 earns no more points, but a higher place in the class's ranking.
#
# <details><summary>Hint 1: the idea</summary>
# The time of a step is a maximum over ranks and a maximum over links. Look for the rank that computes
# longest, and then for the slowest link: all others wait for them. Only when no rank and no link stands out
# is it worth sending less, or less often.
# </details>
# <details><summary>Hint 2: the skeleton</summary>
# <code>work</code>: share a number of rows in proportion to <code>cluster.flops</code>, and try every
# microbatch, with and without recompute, for the cheapest that <code>cluster.fits</code>.
# <code>__init__</code>: a group for each node, and one for the pair of ranks with the best link between
# nodes.
# <code>step</code>: multiply the gradient by this rank's share of the rows, reduce it inside the node,
# all-reduce it between the pair, broadcast it inside the node.
# </details>
# <details><summary>Hint 3: a part of the solution</summary>
# <code>pair = max(itertools.product(*cluster.nodes), key=lambda pair:
# cluster.bandwidth[pair[0]][pair[1]])</code>. Each node has one rank of the pair: it is the root of the
# reduce and of the broadcast. Between the pair, <code>gradient.bfloat16()</code> is half the bytes.
# </details>


# %% nbgrader={"grade": false, "grade_id": "strategy", "locked": false, "schema_version": 3, "solution": true, "task": false}
class Strategy:
    """Trains on a cluster of unequal ranks and links."""

    def __init__(self, cluster: Cluster) -> None:
        ### BEGIN SOLUTION
        self.cluster, self.rank = cluster, dist.get_rank()
        self.rows = share_rows(cluster, ROWS)
        pair = max(itertools.product(*cluster.nodes), key=lambda pair: cluster.bandwidth[pair[0]][pair[1]])
        for ranks, leader in zip(cluster.nodes, pair, strict=True):
            group = dist.new_group(list(ranks))
            if self.rank in ranks:
                self.node, self.leader = group, leader
        self.between = dist.new_group(sorted(pair))
        self.adam = None
        ### END SOLUTION

    def work(self) -> Work:
        """Say what this rank does in each step."""
        ### BEGIN SOLUTION
        rows = self.rows[self.rank]
        sizes = range(1, max(rows, 1) + 1)
        works = [Work(rows, size, recompute) for size in sizes for recompute in (False, True)]
        return min(
            (work for work in works if self.cluster.fits(self.rank, work)),
            key=lambda work: self.cluster.compute_seconds(self.rank, work),
        )
        ### END SOLUTION

    def step(self, weights: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """Return this rank's new weights."""
        ### BEGIN SOLUTION
        if self.adam is None:
            self.weights = torch.nn.Parameter(weights.clone())
            self.adam = torch.optim.Adam([self.weights], LEARNING_RATE, betas=(0.9, 0.95))
        self.weights.grad = self.averaged(gradient * self.rows[self.rank] / sum(self.rows))
        self.adam.step()
        return self.weights.detach()

    def averaged(self, part: torch.Tensor) -> torch.Tensor:
        """Sum the parts of all ranks: inside the nodes, between two ranks, inside the nodes again."""
        dist.reduce(part, self.leader, group=self.node)
        small = part.bfloat16()
        if self.rank == self.leader:
            dist.all_reduce(small, group=self.between)
        dist.broadcast(small, self.leader, group=self.node)
        return small.float()


ROWS, LEARNING_RATE = 24, 0.03  # of all ranks in a step; both were tried


def share_rows(cluster: Cluster, rows: int) -> list[int]:
    """Give each rank rows in proportion to its speed."""
    return [round(rows * flops / sum(cluster.flops)) for flops in cluster.flops]
    ### END SOLUTION


# %% [markdown]
# The check shows the cost and, for each level that you do not reach yet, where the time goes.

# %% nbgrader={"grade": true, "grade_id": "strategy_check", "locked": true, "points": 80, "schema_version": 3, "solution": false, "task": false}
check.strategy(Strategy)
### BEGIN HIDDEN TESTS
check.strategy(Strategy, num_clusters=2, seed=3001)
### END HIDDEN TESTS

# %% [markdown]
# ## 2. What was it worth?
#
# **Difficulty** ●●○○○ · **Importance** ●●●●○ · **about 45 minutes**
#
# Undo your ideas one at a time, run the check, and note the cost.

# %%
# For your own measurements.

# %% [markdown]
# **Question 1 (graded by hand).**
#
# - (a) Give a table of your ideas with the cost of your strategy without each of them. Which one was worth
#   most, and why does the cluster make it so?
# - (b) Name an idea that did not pay, with its cost, and explain it.
# - (c) The simulated cluster overlaps nothing. Which of your choices would you change on a real one, where
#   gradients travel during the backward pass?

# %% [markdown] nbgrader={"grade": true, "grade_id": "what_it_was_worth", "locked": false, "points": 20, "schema_version": 3, "solution": true, "task": false}
# **Answer to question 1**
#
# <!-- BEGIN SOLUTION -->
# (a) A table with at least three ideas, each measured alone. Two of them are usually worth most, and about the
# same. Rows in proportion to speed: else all wait for the straggler. The path of the gradients: an all-reduce
# through all ranks crosses the broken cable, whose bandwidth sets the pace of the whole ring; a pair with a
# good cable carries the sum of a node once. Next comes the number of rows in a step.
#
# (b) For instance: recompute on a rank whose memory holds the microbatch anyway costs a third more arithmetic
# and saves no launch. Or exchanging only in every fourth step: the ranks learn from fewer rows in between,
# need more steps, and the exchange that is left out was cheap once it avoids the broken cable.
#
# (c) Overlap hides communication behind computing: then sending rarely, or fewer bytes, is worth less, and
# buckets are worth their latency. A whole gradient in one collective, cheapest here, cannot start before
# backward ends.
#
# (a) 10 points, (b) 5, (c) 5.
# <!-- END SOLUTION -->

# %% [markdown]
# ## What you have now
#
# - You divided work by the ranks' speed and memory, and chose which links carry which bytes.
# - You know the price of each idea, because you measured it.
# - Your strategy runs on clusters that you have never seen.
