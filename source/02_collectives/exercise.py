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
# # 02 Collectives: can you build them from messages?
#
# `torch.distributed` gives you broadcast, all-reduce and the others as single calls. Here you write them
# yourself, using only messages between two ranks.
#
# You will
#
# - repair a deadlock, and learn to recognize the next one,
# - build trees and rings that move no more bytes than necessary,
# - build an all-reduce from two halves, and say why it is faster than the obvious one.
#
# 2 to 3 hours · 1 to 8 ranks (the checks start their own) · Gloo, no GPU needed
#
# [The lecture](../../lectures/02_collectives/lecture.ipynb) has the ideas; here you build them. On one page each:
# [notation](../../docs/notation.md) · [cheat sheet](../../docs/cheat_sheet.md) · [glossary](../../docs/glossary.md) · [concept map](../../docs/concept_map.md)

# %% [markdown]
# ## Rules
#
# **You may use** `dist.send`, `dist.recv`, `dist.isend`, `dist.irecv` and `dist.batch_isend_irecv`. Every
# check watches what the ranks really send, so it also finds a `dist.all_reduce` in disguise, and names its
# line.
#
# **Arguments follow `torch.distributed`.** `group=None` is the group of all ranks. `src` and `dst` are
# *global* ranks, even when `group` is smaller. These calls help:
#
# | call | gives |
# |---|---|
# | `dist.get_world_size(group)` | N, the number of ranks in the group |
# | `dist.get_rank(group)` | this rank's position in the group, 0 to N − 1 |
# | `dist.get_process_group_ranks(group)` | the global ranks of the group, by position |
# | `dist.send(tensor, group_dst=p, group=group)` | sends to *position* p of the group |
# | `dist.recv(tensor, group_src=p, group=group)` | receives from position p |
# | `dist.P2POp(dist.isend, tensor, group_peer=p, group=group)` | one operation for `batch_isend_irecv` |
#
# **Four facts** will save you an evening:
#
# 1. On Gloo, `send` returns when the other rank *receives*, even for 4 bytes.
# 2. A receive buffer must have the size and dtype of its message. If it is too small, Gloo ends the process;
#    the ranks of this course stop just before that and say so. If only the dtype is wrong, there is no error
#    at all.
# 3. `isend`, `irecv` and `batch_isend_irecv` return before any data has moved. Call `wait()` on every handle
#    that they return, and do not touch the tensor until then.
# 4. Every tensor may have 0 elements, or several dimensions, and every group may have 1 rank.
#
# **Budgets are part of the task.** S is the size of the tensor in bytes; a *round* is a step in which each rank sends at most one
# message and receives at most one.

# %% nbgrader={"grade": false, "grade_id": "setup", "locked": true, "schema_version": 3, "solution": false, "task": false}
# %load_ext fourranks

import torch
import torch.distributed as dist

import fourranks
from autograder import check
from fourranks.errors import DeadlockError

# %% [markdown]
# ## 1. Exchange: repair a deadlock
#
# **Difficulty** ●●○○○ · **Importance** ●●●●○ · **about 20 minutes**
#
# Two ranks want each other's tensor. This is a first attempt:


# %%
def exchange_as_found(tensor: torch.Tensor, peer: int) -> torch.Tensor:
    received = torch.empty_like(tensor)
    dist.send(tensor, peer)
    dist.recv(received, peer)
    return received


# %% [markdown]
# Before you run it on two pairs of ranks (0 with 1, 2 with 3): which line will rank 0 be on when it stops?


# %%
def try_exchange(exchange):
    rank = dist.get_rank()
    return exchange(torch.tensor([rank, rank]), peer=rank ^ 1)  # 0 with 1, 2 with 3


try:
    print(fourranks.world("gloo").run(try_exchange, exchange_as_found))
except DeadlockError as error:
    print(error)

# %% [markdown]
# **Your task.** `exchange(tensor, peer)` returns a new tensor with the contents of the tensor that rank
# `peer` passed in.
#
# | | before | after |
# |---|---|---|
# | this rank | `tensor` | `tensor`, unchanged; returns the peer's tensor |
# | `peer` | its own `tensor`, same shape and dtype | likewise |
#
# Both ranks run the same function at the same time. **Budget:** one message of S bytes from each of the two.
# Where there are GPUs, the check runs on NCCL, too. There a rank's messages run one after another, in the
# order in which the rank issued them: an `isend` holds up all later messages until its receiver is there.
#
# ```
#      rank 0          rank 1
#     [ 0, 0 ] ──────> returned
#     returned <────── [ 1, 1 ]
# ```
#
# <details><summary>Hint 1</summary>
# Your rank does not have to wait in its send until the peer receives: which calls return immediately?
# </details>
# <details><summary>Hint 2</summary>
# <code>dist.batch_isend_irecv</code> takes a list of <code>dist.P2POp</code> and returns handles to wait for. Or let the
# lower rank send first and the higher one receive first.
# </details>


# %% nbgrader={"grade": false, "grade_id": "exchange", "locked": false, "schema_version": 3, "solution": true, "task": false}
def exchange(tensor: torch.Tensor, peer: int) -> torch.Tensor:
    """Give `tensor` to `peer` and return the tensor that it gives in turn."""
    ### BEGIN SOLUTION
    received = torch.empty_like(tensor)
    both = [dist.P2POp(dist.isend, tensor, peer), dist.P2POp(dist.irecv, received, peer)]
    for work in dist.batch_isend_irecv(both):
        work.wait()
    return received
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "exchange_check", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
check.exchange(exchange)
### BEGIN HIDDEN TESTS
check.exchange(exchange, world_sizes=(2, 7), numels=(1, 1_000_003), seed=2301)
### END HIDDEN TESTS

# %% [markdown]
# **Question 1 (graded by hand).** Why did `exchange_as_found` stop, although every send has a matching receive? With another
# library the same code may work for small tensors and hang for large ones: why? Name a second repair, different from yours.

# %% [markdown] nbgrader={"grade": true, "grade_id": "exchange_explained", "locked": false, "points": 6, "schema_version": 3, "solution": true, "task": false}
# **Answer to question 1**
#
# <!-- BEGIN SOLUTION -->
# On Gloo `send` is a rendezvous: it returns only when the peer receives. Both ranks send first, so each waits in line 3 for a
# receive that the other would issue in line 4: a cycle of two waits, which nothing can break.
#
# A library may copy a small message into a buffer of its own and let `send` return (an *eager* send). Then both reach their
# `recv`. Beyond the buffer's size it must wait for the receiver, and the same program hangs.
#
# Repairs: both operations in one `batch_isend_irecv`; or order by rank (the lower one sends first, the higher one receives first); or
# `isend`, `recv`, `wait`, which is enough on Gloo. On NCCL the receive of a rank would wait in the queue after its send, and the same program hangs
# (two ranks on one H100 hung with a single number). Waiting or retrying does not help: the cycle stays.
# <!-- END SOLUTION -->

# %% [markdown]
# ## 2. Broadcast: a tree
#
# **Difficulty** ●●●○○ · **Importance** ●●●●○ · **about 25 minutes**
#
# `broadcast(tensor, src, group=None)`: rank `src` has a tensor, and every rank gets it.
#
# | | before | after |
# |---|---|---|
# | `src` | `tensor` | the same |
# | the other ranks | a tensor of the same shape and dtype, with any contents | `tensor` of `src`, in place |
#
# If `src` serves one rank after another, the last one waits for N − 1 messages. But any rank that already has
# the tensor can pass it on. **Budget:** ⌈log₂ N⌉ rounds and (N − 1)·S bytes in all.
#
# Five ranks, numbered by their distance from `src`:
#
# ```
# round 1     0 ──> 1
# round 2     0 ──> 2     1 ──> 3
# round 3     0 ──> 4
# ```
#
# <details><summary>Hint 1</summary>
# Work with <code>position = (rank - position of src) % N</code>: then the source is always at position 0.
# </details>
# <details><summary>Hint 2</summary>
# Before round k, positions 0 to 2ᵏ⁻¹ − 1 have the tensor. Each of them sends to the position 2ᵏ⁻¹ further on, if there is one.
# </details>


# %% nbgrader={"grade": false, "grade_id": "broadcast", "locked": false, "schema_version": 3, "solution": true, "task": false}
def broadcast(tensor: torch.Tensor, src: int, group: dist.ProcessGroup | None = None) -> None:
    """Copy the tensor of rank `src` into `tensor` on every rank of the group."""
    ### BEGIN SOLUTION
    ranks, rank = dist.get_process_group_ranks(group), dist.get_rank(group)
    world_size = len(ranks)
    position = (rank - ranks.index(src)) % world_size  # the source is at 0
    reach = 1  # positions below it have the tensor
    while reach < world_size:
        if position < reach and position + reach < world_size:
            dist.send(tensor, group_dst=(rank + reach) % world_size, group=group)
        elif reach <= position < 2 * reach:
            dist.recv(tensor, group_src=(rank - reach) % world_size, group=group)
        reach *= 2
    ### END SOLUTION


# %% [markdown]
# Try it before you run the check. Which numbers do you expect? Change `src`, or the world size with `%ranks
# start -n 5 --backend gloo`. In all exercises the cells that try your code use Gloo and tensors on the CPU;
# the checks run it on NCCL as well, where there are GPUs enough.


# %%
def try_broadcast(broadcast):
    tensor = torch.full((3,), float(dist.get_rank()))
    broadcast(tensor, src=2)
    return tensor


fourranks.world("gloo").run(try_broadcast, broadcast)

# %% nbgrader={"grade": true, "grade_id": "broadcast_check", "locked": true, "points": 12, "schema_version": 3, "solution": false, "task": false}
check.broadcast(broadcast)
### BEGIN HIDDEN TESTS
check.broadcast(broadcast, world_sizes=(7,), numels=(1, 100_003), seed=2302)
### END HIDDEN TESTS

# %% [markdown]
# ## 3. Reduce: the same tree, upside down
#
# **Difficulty** ●●○○○ · **Importance** ●●●○○ · **about 15 minutes**
#
# `reduce(tensor, dst, group=None)`: rank `dst` gets the sum of all tensors.
#
# | | before | after |
# |---|---|---|
# | `dst` | its own `tensor` | the sum over all ranks, in place |
# | the other ranks | their own `tensor` | anything: as with `dist.reduce`, they may hold partial sums |
#
# **Budget:** ⌈log₂ N⌉ rounds and (N − 1)·S bytes in all. The ranks add along the way, so no message is larger
# than one tensor.
#
# Five ranks, numbered by their distance from `dst`:
#
# ```
# round 1     0 <── 1     2 <── 3
# round 2     0 <── 2
# round 3     0 <── 4
# ```
#
# <details><summary>Hint 1</summary>
# A position other than 0 sends exactly once, and is then done. Before that it receives and adds.
# </details>
# <details><summary>Hint 2</summary>
# Let the distance be 1, 2, 4, … A position that is an odd multiple of the distance sends to the position that
# far below it. An even multiple receives, if there is a position that far above it. Mind the ends: with 5
# ranks, no position sends to position 4.
# </details>


# %% nbgrader={"grade": false, "grade_id": "reduce", "locked": false, "schema_version": 3, "solution": true, "task": false}
def reduce(tensor: torch.Tensor, dst: int, group: dist.ProcessGroup | None = None) -> None:
    """Sum the tensors of all ranks of the group into `tensor` on rank `dst`."""
    ### BEGIN SOLUTION
    ranks, rank = dist.get_process_group_ranks(group), dist.get_rank(group)
    world_size = len(ranks)
    position = (rank - ranks.index(dst)) % world_size  # the destination is at 0
    received = torch.empty_like(tensor)
    distance = 1
    while distance < world_size:
        if position % (2 * distance) == distance:
            dist.send(tensor, group_dst=(rank - distance) % world_size, group=group)
            return
        if position + distance < world_size:
            dist.recv(received, group_src=(rank + distance) % world_size, group=group)
            tensor += received
        distance *= 2
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "reduce_check", "locked": true, "points": 12, "schema_version": 3, "solution": false, "task": false}
check.reduce(reduce)
### BEGIN HIDDEN TESTS
check.reduce(reduce, world_sizes=(7,), numels=(1, 100_003), seed=2303)
### END HIDDEN TESTS

# %% [markdown]
# ## 4. Scatter and gather: one rank has all the parts
#
# **Difficulty** ●○○○○ · **Importance** ●●●○○ · **about 15 minutes**
#
# `scatter(output, scatter_list, src, group=None)`: `src` has a list of N tensors and sends one to each rank.
#
# | | before | after |
# |---|---|---|
# | `src` | `scatter_list`: N tensors of the shape of `output` | `output` holds the part of its own position; the list is unchanged |
# | position p | `scatter_list` is `None` | `output` holds `scatter_list[p]` of `src` |
#
# `gather(tensor, gather_list, dst, group=None)` is the inverse: `dst` collects.
#
# | | before | after |
# |---|---|---|
# | `dst` | its own `tensor`, and N tensors in `gather_list` to be filled | `gather_list[p]` holds the tensor of position p, in place |
# | the other ranks | their own `tensor`; `gather_list` is `None` | unchanged |
#
# **Budget** for each: N − 1 messages of S bytes, where S is one part. No rank sends to itself, which would be
# an error: a copy is enough.
#
# ```
# scatter             src has [ a, b, c, d ]      gather
#     rank 0 <── a                                    rank 0: a ──┐
#     rank 1 <── b                                    rank 1: b ──┤
#     rank 2 <── c                                    rank 2: c ──┼──> [ a, b, c, d ] at dst
#     rank 3 <── d                                    rank 3: d ──┘
# ```
#
# <details><summary>Hint</summary>
# Two cases: this rank is <code>src</code> and loops over the list, or it is not and receives once. The list is by position in the group, and
# <code>ranks.index(src)</code> is the position of <code>src</code>.
# </details>


# %% nbgrader={"grade": false, "grade_id": "scatter", "locked": false, "schema_version": 3, "solution": true, "task": false}
def scatter(
    output: torch.Tensor,
    scatter_list: list[torch.Tensor] | None,
    src: int,
    group: dist.ProcessGroup | None = None,
) -> None:
    """Deal the tensors in `scatter_list` of rank `src` out, one into the `output` of each rank of the group."""
    ### BEGIN SOLUTION
    rank, root = dist.get_rank(group), dist.get_process_group_ranks(group).index(src)
    if rank != root:
        dist.recv(output, group_src=root, group=group)
        return
    output.copy_(scatter_list[root])
    for position, part in enumerate(scatter_list):
        if position != root:
            dist.send(part, group_dst=position, group=group)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "scatter_check", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
check.scatter(scatter)
### BEGIN HIDDEN TESTS
check.scatter(scatter, world_sizes=(7,), numels=(1, 10_007), seed=2304)
### END HIDDEN TESTS


# %% nbgrader={"grade": false, "grade_id": "gather", "locked": false, "schema_version": 3, "solution": true, "task": false}
def gather(
    tensor: torch.Tensor,
    gather_list: list[torch.Tensor] | None,
    dst: int,
    group: dist.ProcessGroup | None = None,
) -> None:
    """Collect the tensors of all ranks of the group in `gather_list` of rank `dst`, by position."""
    ### BEGIN SOLUTION
    rank, root = dist.get_rank(group), dist.get_process_group_ranks(group).index(dst)
    if rank != root:
        dist.send(tensor, group_dst=root, group=group)
        return
    gather_list[root].copy_(tensor)
    for position, part in enumerate(gather_list):
        if position != root:
            dist.recv(part, group_src=position, group=group)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "gather_check", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
check.gather(gather)
### BEGIN HIDDEN TESTS
check.gather(gather, world_sizes=(7,), numels=(1, 10_007), seed=2305)
### END HIDDEN TESTS

# %% [markdown]
# ## 5. Reduce-scatter on a ring
#
# **Difficulty** ●●●●○ · **Importance** ●●●●● · **about 35 minutes**
#
# From here on the ranks sit in a ring. In every step each rank sends to its right neighbour (position + 1)
# and receives from its left one (position − 1), all at the same time. So all links are busy, and all carry
# the same load.
#
# `ring_reduce_scatter(output, input, group=None)`: every rank contributes N chunks, and position p gets the
# sum of all chunks p.
#
# | | before | after |
# |---|---|---|
# | position p | `input`: N chunks one after another, together (N·k, …) | unchanged |
# | | `output`: (k, …), with any contents | the sum over all ranks of chunk p |
#
# **Budget:** N − 1 messages a rank, each of one chunk and to a neighbour: (N − 1)/N·S bytes a rank, with S the size of `input`.
#
# The sum of chunk p goes round the ring, grows at every stop, and ends at position p. So it starts one
# position further to the right. The picture shows three positions with the chunks `a0 a1 a2`, `b0 b1 b2` and
# `c0 c1 c2`:
#
# ```
#             position 0          position 1          position 2
# start       a2                  b0                  c1                sent to the right
# step 1      c1 + a1             a2 + b2             b0 + c0           what arrived, plus one of its own
# step 2      b0 + c0 + a0        c1 + a1 + b1        a2 + b2 + c2      done: chunk 0, 1, 2
# ```
#
# Draw the same for four positions on paper first; it takes five minutes and saves an hour.
#
# The cell has two functions. `pass_right` makes one step of a ring, for any two tensors of equal size. Write it
# first; you can use it in part 6, too.
#
# <details><summary>Hint 1</summary>
# Before the first step, position r sends its own chunk r − 1 (modulo N). A partial sum of chunk r − 2 arrives from the left.
# </details>
# <details><summary>Hint 2</summary>
# In step s = 1, …, N − 1 the sum of chunk r − 1 − s arrives. Add your own chunk of that number, and pass the result on in the next step. After the last
# step it is chunk r − N, which is chunk r.
# </details>
# <details><summary>Hint 3</summary>
# <code>input.view(N, *output.shape)[c]</code> is chunk c, even when there are 0 elements. Do not add into <code>input</code> itself: that overwrites it.
# </details>


# %% nbgrader={"grade": false, "grade_id": "ring_reduce_scatter", "locked": false, "schema_version": 3, "solution": true, "task": false}
def pass_right(
    outgoing: torch.Tensor, incoming: torch.Tensor, group: dist.ProcessGroup | None = None
) -> None:
    """One step of a ring: send `outgoing` to the right neighbour while `incoming` arrives from the left one."""
    ### BEGIN SOLUTION
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    right, left = (rank + 1) % world_size, (rank - 1) % world_size
    operations = [
        dist.P2POp(dist.isend, outgoing, group_peer=right, group=group),
        dist.P2POp(dist.irecv, incoming, group_peer=left, group=group),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    ### END SOLUTION


def ring_reduce_scatter(
    output: torch.Tensor, input: torch.Tensor, group: dist.ProcessGroup | None = None
) -> None:
    """Sum `input` over all ranks of the group and leave this rank's chunk of the sum in `output`."""
    ### BEGIN SOLUTION
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    chunks = input.view(world_size, *output.shape)
    partial_sum = chunks[rank - 1]
    for step in range(1, world_size):
        received = torch.empty_like(output)
        pass_right(partial_sum, received, group)
        partial_sum = received + chunks[(rank - 1 - step) % world_size]
    output.copy_(partial_sum)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "ring_reduce_scatter_check", "locked": true, "points": 15, "schema_version": 3, "solution": false, "task": false}
check.ring_reduce_scatter(ring_reduce_scatter)
### BEGIN HIDDEN TESTS
check.ring_reduce_scatter(ring_reduce_scatter, world_sizes=(7,), numels=(1, 100_003), seed=2306)
### END HIDDEN TESTS

# %% [markdown]
# ## 6. All-gather on a ring
#
# **Difficulty** ●●○○○ · **Importance** ●●●●○ · **about 15 minutes**
#
# `ring_all_gather(output, input, group=None)`: every rank has one chunk, and every rank gets all of them.
#
# | | before | after |
# |---|---|---|
# | position p | `input`: (k, …) | unchanged |
# | | `output`: (N·k, …), with any contents | the inputs of all ranks, by position |
#
# **Budget:** N − 1 messages a rank, each of one chunk and to a neighbour: (N − 1)/N·S bytes a rank, with S the size of `output`.
#
# ```
#             position 0      position 1      position 2      position 3
# start       a · · ·         · b · ·         · · c ·         · · · d
# step 1      a · · d         a b · ·         · b c ·         · · c d
# step 2      a · c d         a b · d         a b c ·         · b c d
# step 3      a b c d         a b c d         a b c d         a b c d
# ```
#
# <details><summary>Hint</summary>
# Pass on the chunk that you received last. In step s = 0, 1, … position r sends chunk r − s, and chunk r − s
# − 1 arrives, directly in its place in <code>output</code>.
# </details>


# %% nbgrader={"grade": false, "grade_id": "ring_all_gather", "locked": false, "schema_version": 3, "solution": true, "task": false}
def ring_all_gather(
    output: torch.Tensor, input: torch.Tensor, group: dist.ProcessGroup | None = None
) -> None:
    """Collect the `input` of all ranks of the group in `output`, by position, on every rank."""
    ### BEGIN SOLUTION
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    chunks = output.view(world_size, *input.shape)
    chunks[rank].copy_(input)
    for step in range(world_size - 1):
        pass_right(chunks[(rank - step) % world_size], chunks[(rank - step - 1) % world_size], group)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "ring_all_gather_check", "locked": true, "points": 10, "schema_version": 3, "solution": false, "task": false}
check.ring_all_gather(ring_all_gather)
### BEGIN HIDDEN TESTS
check.ring_all_gather(ring_all_gather, world_sizes=(7,), numels=(1, 100_003), seed=2307)
### END HIDDEN TESTS

# %% [markdown]
# ## 7. All-reduce: put the halves together
#
# **Difficulty** ●●●○○ · **Importance** ●●●●● · **about 25 minutes**
#
# `ring_all_reduce(tensor, group=None)`: every rank gets the sum.
#
# | | before | after |
# |---|---|---|
# | every rank | its own `tensor`, with **any number of elements** | the sum over all ranks, in place |
#
# **Budget:** 2·(N − 1) messages and 2·(N − 1)/N·S bytes a rank, to neighbours only. If the elements do not divide by N, the size of a chunk is rounded up.
#
# The obvious way is that every rank sends its tensor to every other rank, and each adds them up: (N − 1)·S
# bytes a rank. The result is right, but from 3 ranks on the bytes are over budget.
#
# ```
# reduce-scatter      every position has one chunk of the sum
# all-gather          every position has all chunks
# ```
#
# <details><summary>Hint 1</summary>
# You have both halves. You still need a tensor whose elements divide by N.
# </details>
# <details><summary>Hint 2</summary>
# Copy the elements into a tensor of N·⌈numel / N⌉ elements, with zeros at the end. Zeros do not change a sum.
# </details>


# %% nbgrader={"grade": false, "grade_id": "ring_all_reduce", "locked": false, "schema_version": 3, "solution": true, "task": false}
def ring_all_reduce(tensor: torch.Tensor, group: dist.ProcessGroup | None = None) -> None:
    """Sum `tensor` over all ranks of the group, in place on every rank."""
    ### BEGIN SOLUTION
    world_size, numel = dist.get_world_size(group), tensor.numel()
    chunk_numel = -(-numel // world_size)  # rounded up
    padded = tensor.new_zeros(world_size * chunk_numel)
    padded[:numel] = tensor.flatten()
    chunk = tensor.new_empty(chunk_numel)
    ring_reduce_scatter(chunk, padded, group)
    ring_all_gather(padded, chunk, group)
    tensor.copy_(padded[:numel].view_as(tensor))
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "ring_all_reduce_check", "locked": true, "points": 15, "schema_version": 3, "solution": false, "task": false}
check.ring_all_reduce(ring_all_reduce)
### BEGIN HIDDEN TESTS
check.ring_all_reduce(ring_all_reduce, world_sizes=(7,), numels=(1, 250_007), seed=2308)
### END HIDDEN TESTS

# %% [markdown]
# **Question 2 (graded by hand).** Reduce to rank 0 and then broadcast is an all-reduce too. Over all links
# together it moves 2·(N − 1)·S bytes, exactly as many as the ring. Why is the ring still faster for large
# tensors? Every link carries B bytes/s in each direction. Estimate both times for N = 4: first with a rank 0
# that receives and sends the tensors one after another, then with your trees. For which tensors is the ring
# *not* the better choice?

# %% [markdown] nbgrader={"grade": true, "grade_id": "all_reduce_explained", "locked": false, "points": 6, "schema_version": 3, "solution": true, "task": false}
# **Answer to question 2**
#
# <!-- BEGIN SOLUTION -->
# The busiest link decides, not the sum over all links. In reduce and broadcast, rank
# 0's link carries most of the bytes while the others are idle. In the ring every rank sends in every step, so
# all N links work all the time and share the bytes evenly.
#
# - Rank 0 serves one rank after another: it receives (N − 1)·S and then sends (N − 1)·S: 2·(N − 1)·S/B = 6
#   S/B for N = 4.
# - Trees: ⌈log₂ N⌉ rounds of S bytes, twice: 2·⌈log₂ N⌉·S/B = 4 S/B.
# - Ring: 2·(N − 1) steps of S/N bytes: 2·(N − 1)/N·S/B = 1.5 S/B, and never more than 2 S/B however large N is.
#
# For small tensors latency decides: the ring takes 2·(N − 1) steps one after another, the trees 2·⌈log₂ N⌉.
# So many ranks and few bytes call for the tree.
# <!-- END SOLUTION -->

# %% [markdown]
# ## 8. All-to-all: every rank has something for every rank
#
# **Difficulty** ●●●○○ · **Importance** ●●●○○ · **about 20 minutes**
#
# `all_to_all(output, input, group=None)`: chunk q of position p goes to position q, which stores it as chunk p: a transpose across ranks.
#
# | | before | after |
# |---|---|---|
# | position p | `input`: N chunks one after another, together (N·k, …) | unchanged |
# | | `output`: same shape, with any contents | chunk q is chunk p of position q's `input` |
#
# **Budget:** N − 1 messages a rank, each chunk sent directly to its owner: (N − 1)/N·S bytes a rank.
#
# ```
#             before                          after
# position 0  a0 a1 a2 a3                     a0 b0 c0 d0
# position 1  b0 b1 b2 b3                     a1 b1 c1 d1
# position 2  c0 c1 c2 c3                     a2 b2 c2 d2
# position 3  d0 d1 d2 d3                     a3 b3 c3 d3
# ```
#
# <details><summary>Hint 1</summary>
# If all ranks serve position 0 first, all of them wait for position 0. In step s, send to the position s to
# your right and receive from the one s to your left.
# </details>
# <details><summary>Hint 2</summary>
# <code>tensor.tensor_split(N)</code> gives N chunks, even of an empty tensor. They are views: data received into a chunk of <code>output</code> is in <code>output</code>.
# </details>


# %% nbgrader={"grade": false, "grade_id": "all_to_all", "locked": false, "schema_version": 3, "solution": true, "task": false}
def all_to_all(output: torch.Tensor, input: torch.Tensor, group: dist.ProcessGroup | None = None) -> None:
    """Send chunk p of `input` to position p of the group and fill `output` with the chunks that arrive, by position."""
    ### BEGIN SOLUTION
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    arriving, leaving = output.tensor_split(world_size), input.tensor_split(world_size)
    arriving[rank].copy_(leaving[rank])
    for distance in range(1, world_size):
        right, left = (rank + distance) % world_size, (rank - distance) % world_size
        operations = [
            dist.P2POp(dist.isend, leaving[right], group_peer=right, group=group),
            dist.P2POp(dist.irecv, arriving[left], group_peer=left, group=group),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "all_to_all_check", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
check.all_to_all(all_to_all)
### BEGIN HIDDEN TESTS
check.all_to_all(all_to_all, world_sizes=(7,), numels=(1, 10_007), seed=2309)
### END HIDDEN TESTS

# %% [markdown]
# ## What you have now
#
# - You repaired a deadlock, and will recognize the next one: a cycle of ranks in which each waits for
#   another.
# - You built trees, which need few rounds, and rings, which need few bytes a rank. Both move no more bytes
#   than necessary.
# - You built an all-reduce from a reduce-scatter and an all-gather, and can say why it beats reduce and
#   broadcast for large tensors.
#
# Next: what does a byte cost? *03 benchmarking* puts seconds to all this.
