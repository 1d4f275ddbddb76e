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
# # 04 Data parallelism: can four ranks train as one?
#
# Every rank has the whole model and a part of the batch. If everything is right, the weights after each step
# equal those of one process with the whole batch. Here you build data parallelism, first in a simple form,
# then as fast as PyTorch's.
#
# You will
#
# - cut a batch, average gradients, and know when the average of averages is the average,
# - write `DistributedDataParallel`, whose all-reduces run during the backward pass, and a version with
#   buckets,
# - accumulate gradients over microbatches and communicate once for all of them,
# - save a training run so that it resumes bit for bit as if nothing had happened,
# - optionally communicate less, with local SGD and with compressed gradients.
#
# 4 to 5 hours · 1 to 8 ranks (the checks start their own) · Gloo, no GPU needed
#
# [The lecture](../../lectures/04_data_parallelism/lecture.ipynb) has the ideas; here you build them. On one page each:
# [notation](../../docs/notation.md) · [cheat sheet](../../docs/cheat_sheet.md) · [glossary](../../docs/glossary.md) · [concept map](../../docs/concept_map.md)

# %% [markdown]
# ## Rules
#
# **You may use** everything in `torch.distributed`, and `nn.Module`, but not `torch.nn.parallel`,
# `torch.distributed.fsdp` and `torch.distributed.algorithms`, which contain the answers. They are missing
# when a check runs your code, and the check watches what the ranks really send. In cells of your own you may
# compare with anything on your machine.
#
# **Parallel must equal serial.** The checks train the same model on the same data in one process and compare after every step.
# The ranks' models start from *different* random numbers, so that a forgotten broadcast shows.
#
# **`group=None`** is the group of all ranks. A smaller group must work in the same way; "rank 0" below means
# its first rank. With 1 rank everything must work, too.
#
# **There are several kinds of parameters**, and the checks use all of them:
#
# | a parameter | is | so |
# |---|---|---|
# | tied | used in two places, listed once by `module.parameters()` | its gradient is averaged once |
# | frozen | `requires_grad=False` | it is broadcast, and has no gradient to average |
# | unused | in this step its `.grad` is `None`, on some ranks or on all | it takes part as zeros: other ranks may have used it |
# | empty | has 0 elements | it must work |
# | of another dtype | float64 or bfloat16 among float32 | it keeps its dtype, and is sent in it |
#
# A gradient that no rank has may become zeros or stay `None`. In plain SGD neither changes the weight; with
# weight decay or momentum, zeros do.
#
# **Four facts** will save you an evening:
#
# 1. `dist.all_reduce(tensor, async_op=True)` returns a handle immediately. Do not touch the tensor until its
#    `wait()` returns.
# 2. Collectives are matched by their order alone. If ranks issue two all-reduces of the same size in different
#    orders, there is no error, but the numbers are wrong.
# 3. `op=dist.ReduceOp.AVG` averages. Gloo supports it, too, for floating point: it sums, then divides. NCCL
#    scales before it adds.
# 4. `parameter.register_post_accumulate_grad_hook(f)` calls `f(parameter)` as soon as the backward pass has
#    finished `parameter.grad`. The hook may read, change and replace the gradient.
#
# **Budgets are part of the task.** S is the size of all gradients together in bytes.

# %% nbgrader={"grade": false, "grade_id": "setup", "locked": true, "schema_version": 3, "solution": false, "task": false}
# %load_ext fourranks

import math
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

import fourranks
from autograder import check

# %% [markdown]
# ## 1. Shard the batch
#
# **Difficulty** ●○○○○ · **Importance** ●●●●○ · **about 10 minutes**
#
# `shard_batch(batch, rank, world_size)` returns this rank's samples: the first rank gets the first 1/N of
# them, and so on. With 128 samples and 4 ranks, rank 1 gets samples 32 to 63.
#
# | | |
# |---|---|
# | `batch` | a tensor, contiguous or not, with samples along dimension 0 |
# | returns | `len(batch) // world_size` samples |
# | raises | `ValueError` when the samples do not divide by the ranks; its text has both numbers and says what to do |
#
# **Budget:** no copy of the samples, and no communication.
#
# Why refuse an uneven batch? Soon every rank computes the mean over its own samples, and the ranks average
# these means. With 1 sample here and 3 there, the single one would count three times as much as each of the
# others. The mean of means is the mean only if all shards have the same size.
#
# <details><summary>Hint</summary>
# A slice of a tensor is a view of the same memory.
# </details>


# %% nbgrader={"grade": false, "grade_id": "shard_batch", "locked": false, "schema_version": 3, "solution": true, "task": false}
def shard_batch(batch: torch.Tensor, rank: int, world_size: int) -> torch.Tensor:
    """This rank's equal share of a batch, as a view."""
    ### BEGIN SOLUTION
    num_samples = len(batch)
    if num_samples % world_size:
        raise ValueError(
            f"{num_samples} samples cannot be shared equally by {world_size} ranks: "
            f"drop {num_samples % world_size}, or choose a batch size that is a multiple of {world_size}"
        )
    local_size = num_samples // world_size
    return batch[rank * local_size : (rank + 1) * local_size]
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "shard_batch_check", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
check.shard_batch(shard_batch)
### BEGIN HIDDEN TESTS
check.shard_batch(shard_batch, world_sizes=(1, 3, 7, 8), seed=2401)
### END HIDDEN TESTS

# %% [markdown]
# ## 2. Average the gradients
#
# **Difficulty** ●●○○○ · **Importance** ●●●●● · **about 20 minutes**
#
# `average_gradients(module, group=None)` is called after backward, when each rank has the gradients of its own samples.
#
# | | before | after |
# |---|---|---|
# | `parameter.grad` | of this rank's samples, or `None` | the mean over all ranks of the group |
# | weights, buffers | | unchanged: the optimizer moves the weights, not you |
#
# **Budget:** each gradient is all-reduced once: S bytes a rank go into all-reduces, with at most one
# all-reduce for each parameter.
#
# An example: four ranks have one weight w = 0.1 and the gradients 0.8, −0.2, −0.7 and 0.4. The sum is 0.3,
# but `.grad` must be the mean, 0.075: only then does the learning rate mean the same on 1 rank and on 4. With
# SGD the weight becomes 0.1 − lr · 0.075 on every rank.
#
# <details><summary>Hint 1</summary>
# A gradient that is <code>None</code> on this rank may exist on another. A rank that skips its all-reduce
# leaves the others waiting or, worse, is one all-reduce ahead of them.
# </details>
# <details><summary>Hint 2</summary>
# <code>torch.zeros_like(parameter)</code> stands in for a missing gradient, and <code>requires_grad</code> tells which parameters can have one.
# </details>


# %% nbgrader={"grade": false, "grade_id": "average_gradients", "locked": false, "schema_version": 3, "solution": true, "task": false}
def average_gradients(module: nn.Module, group: dist.ProcessGroup | None = None) -> None:
    """Replace every gradient of `module` by its mean over all ranks of the group."""
    ### BEGIN SOLUTION
    for parameter in module.parameters():
        if parameter.requires_grad:
            if parameter.grad is None:  # others may have used it
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG, group=group)
    ### END SOLUTION


# %% [markdown]
# Try it before you run the check, with the numbers from above. Then leave the gradient of rank 2 at `None`:
# what should the result be, and is it?


# %%
def try_average(average_gradients):
    module = nn.Linear(1, 1, bias=False)
    module.weight.grad = torch.full((1, 1), [0.8, -0.2, -0.7, 0.4][dist.get_rank()])
    average_gradients(module)
    return module.weight.grad.item()


fourranks.world("gloo").run(try_average, average_gradients)

# %% nbgrader={"grade": true, "grade_id": "average_gradients_check", "locked": true, "points": 10, "schema_version": 3, "solution": false, "task": false}
check.average_gradients(average_gradients)
### BEGIN HIDDEN TESTS
check.average_gradients(average_gradients, world_sizes=(6,), seed=2402)
### END HIDDEN TESTS

# %% [markdown]
# ## 3. DistributedDataParallel: communicate while you compute
#
# **Difficulty** ●●●●○ · **Importance** ●●●●● · **about 75 minutes**
#
# If communication begins only after backward, the gradients of the last layer have been waiting for a long
# time. A wrapper can do better: a hook tells it when a gradient is ready, it starts the all-reduce, and
# backward goes on.
#
# ```
# backward    │ layer 4 │ layer 3 │ layer 2 │ layer 1 │
# all-reduce            │ 4 ────── │ 3 ────── │ 2 ────── │ 1 ────── │
#                                                                  └ finish_gradient_synchronization() returns
# ```
#
# | method | what it does |
# |---|---|
# | `DistributedDataParallel(module, group=None)` | keeps `module` in `.module`, so that names and shapes are those of PyTorch's own wrapper; copies all parameters and buffers of rank 0 to the other ranks |
# | `forward(*args, **kwargs)` | calls the module |
# | `finish_gradient_synchronization()` | called after each backward; when it returns, every `.grad` is the mean over the ranks. In `no_sync()` it does nothing; elsewhere a second backward without it raises a `RuntimeError` |
# | `no_sync()` | a context manager for any number of forward and backward passes: nothing is sent, and gradients add up on each rank. The next backward outside averages the accumulated gradients |
#
# **Budget** at the start: each parameter and each buffer is broadcast once, as a tensor (a pickled object is
# larger). For one step: one all-reduce for each gradient, S bytes in all. Each must be in flight,
# asynchronously, before backward goes on to the layer after the next. In `no_sync()` nothing is sent, and no
# tensor is kept from step to step.
#
# **All ranks issue the same all-reduces in the same order**, although each rank may use different parameters.
# That is the heart of this exercise. PyTorch's wrapper expects every parameter to be used, unless you pass
# `find_unused_parameters=True`.
#
# <details><summary>Hint 1: the idea</summary>
# Fix an order beforehand: gradients become ready roughly in the reverse order of
# <code>module.parameters()</code>. Keep a list of the parameters whose all-reduce has not started. A hook
# records that its gradient is ready. Then, from the end of the list, it starts the all-reduces of all ready
# gradients, and stops at the first that is not ready.
# </details>
# <details><summary>Hint 2: the skeleton</summary>
# <pre>__init__   super().__init__() first; broadcast parameters and buffers; a hook on each parameter that requires a gradient
# hook       nothing under no_sync; else note that it is ready, and start all that are, in the order
# finish     do what the hook would have done for what is left, with zeros where there is no gradient;
#            wait for all handles; be ready for the next step</pre>
# <code>dist.broadcast(tensor.detach(), group_src=0, group=group)</code> works for parameters and buffers alike.
# </details>
# <details><summary>Hint 3: a part of the solution</summary>
# <pre>def _gradient_is_ready(self, parameter):
#     self._ready.add(parameter)
#     while self._waiting and self._waiting[-1] in self._ready:
#         self._synchronize(self._waiting.pop())</pre>
# Missing: <code>no_sync()</code>, and the error of a second backward.
# </details>
# <details><summary>Hint 4: no_sync</summary>
# Under <code>@contextmanager</code>, the code before <code>yield</code> runs on entering and the code after
# it on leaving; in a <code>finally</code> it also runs after an exception.
# </details>


# %% nbgrader={"grade": false, "grade_id": "distributed_data_parallel", "locked": false, "schema_version": 3, "solution": true, "task": false}
class DistributedDataParallel(nn.Module):
    """Trains a module on every rank of a group as one, with an all-reduce for each gradient during backward."""

    def __init__(self, module: nn.Module, group: dist.ProcessGroup | None = None) -> None:
        """Wrap `module` and give it the parameters and buffers of the group's rank 0."""
        ### BEGIN SOLUTION
        super().__init__()
        self.module = module
        self.group = group
        self._synchronizing = True
        self._trainable = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self._expect_all()
        copies = [
            dist.broadcast(tensor.detach(), group_src=0, group=group, async_op=True)
            for tensor in [*module.parameters(), *module.buffers()]
        ]
        for copy in copies:
            copy.wait()
        for parameter in self._trainable:
            parameter.register_post_accumulate_grad_hook(self._gradient_is_ready)
        ### END SOLUTION

    def forward(self, *args: object, **kwargs: object) -> object:
        """Call the module."""
        ### BEGIN SOLUTION
        return self.module(*args, **kwargs)
        ### END SOLUTION

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Let gradients add up on this rank; the next backward outside averages the sums."""
        ### BEGIN SOLUTION
        before, self._synchronizing = self._synchronizing, False
        try:
            yield
        finally:
            self._synchronizing = before
        ### END SOLUTION

    def finish_gradient_synchronization(self) -> None:
        """Return when every gradient is the mean over all ranks."""
        ### BEGIN SOLUTION
        if not self._synchronizing:
            return
        while self._waiting:  # not used on this rank, but perhaps on others
            parameter = self._waiting.pop()
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            self._synchronize(parameter)
        for work in self._in_flight:
            work.wait()
        self._expect_all()

    def _expect_all(self) -> None:
        self._waiting = list(self._trainable)  # taken from the end: backward goes from the last to the first
        self._ready: set[nn.Parameter] = set()
        self._in_flight: list[dist.Work] = []

    def _gradient_is_ready(self, parameter: nn.Parameter) -> None:
        """Pass on what is ready, in the order that is the same on every rank."""
        if not self._synchronizing:
            return
        if parameter in self._ready:
            raise RuntimeError(
                "a gradient is ready twice: call finish_gradient_synchronization() after each backward, "
                "or put all but the last of several into no_sync()"
            )
        self._ready.add(parameter)
        while self._waiting and self._waiting[-1] in self._ready:
            self._synchronize(self._waiting.pop())

    def _synchronize(self, parameter: nn.Parameter) -> None:
        self._average(parameter.grad)

    def _average(self, tensor: torch.Tensor) -> None:
        work = dist.all_reduce(tensor, op=dist.ReduceOp.AVG, group=self.group, async_op=True)
        self._in_flight.append(work)
        ### END SOLUTION


# %% [markdown]
# Look at one step of eight layers, with your wrapper. Where do the all-reduces begin, and where does each
# rank wait?


# %%
def try_step(wrapper, **options):
    torch.manual_seed(dist.get_rank())
    model = wrapper(nn.Sequential(*[nn.Linear(512, 512) for _ in range(8)]), **options)
    model(torch.randn(64, 512)).square().mean().backward()
    model.finish_gradient_synchronization()


with fourranks.world("gloo").trace() as trace:
    fourranks.world("gloo").run(try_step, DistributedDataParallel)
trace.timeline("broadcast, forward, and a backward that overlaps with its all-reduces")

# %% nbgrader={"grade": true, "grade_id": "distributed_data_parallel_check", "locked": true, "points": 20, "schema_version": 3, "solution": false, "task": false}
check.distributed_data_parallel(DistributedDataParallel)
### BEGIN HIDDEN TESTS
check.distributed_data_parallel(DistributedDataParallel, world_sizes=(6,), seed=2403)
### END HIDDEN TESTS

# %% [markdown]
# **Question 1 (graded by hand).** A wrapper starts every all-reduce directly in the hook, without regard to
# the common order. All its tests pass. Then the model gets two expert layers of the same shape, and each
# rank's samples choose which of the two they use. The loss stops falling, without an error. What happened?
# Why might the same code hang or crash with experts of *different* shapes? And why do the weights of the
# ranks stay equal in a correct wrapper, although every rank sees other samples and computes other losses?

# %% [markdown] nbgrader={"grade": true, "grade_id": "order_explained", "locked": false, "points": 6, "schema_version": 3, "solution": true, "task": false}
# **Answer to question 1**
#
# <!-- BEGIN SOLUTION -->
# Collectives are matched by the order in which a rank issues them, not by the parameter they are meant for. A rank that uses only expert A
# announces A in backward and B in finish; a rank that uses only B does the opposite. So one rank's gradient of A is added to the other's
# zeros of B, and each stores the result under its own name: A and B get wrong gradients, different ones on different ranks, and nothing can
# notice, because shapes and dtypes agree. From then on the experts of the ranks differ as well.
#
# With different shapes the two sides of one all-reduce expect different numbers of bytes: Gloo aborts, raises, returns garbage on some ranks,
# or waits for bytes that never come until the timeout (30 minutes by default). Being wrong silently is worse.
#
# In a correct wrapper all ranks begin with the weights of rank 0 and apply the same averaged gradient with the same optimizer in every step. So the
# weights are the same after every step; the result of an all-reduce is the same on all ranks bit by bit. It is one SGD run with a large
# batch, not N runs that converge to one another. (It is not bit by bit the run of one process: the sums are formed in another order.)
# <!-- END SOLUTION -->

# %% [markdown]
# ## 4. Buckets: fewer, larger all-reduces
#
# **Difficulty** ●●●●○ · **Importance** ●●●●○ · **about 60 minutes**
#
# Every all-reduce costs its latency, even for a tiny tensor. A transformer has hundreds of gradients, many of
# them tiny. So gradients are sent in *buckets*: flat tensors that hold several gradients one after another.
#
# ```
# ready           W4 b4 W3 b3 W2 b2 W1 b1
#                 └────┬────┘ └────┬────┘
# all-reduces        bucket      bucket          the first starts while layer 2 is still to come
# ```
#
# `BucketedDistributedDataParallel(module, bucket_size_mb=25.0, group=None)` behaves like your wrapper from
# before, and inherits from it. It differs in how gradients are sent:
#
# | | |
# |---|---|
# | order | buckets are filled, and start, in the order in which gradients become ready: about the reverse of `module.parameters()` |
# | size | at most `bucket_size_mb` MiB (2²⁰ bytes); a gradient larger than that has a bucket to itself |
# | dtype | all gradients of a bucket have the same dtype; those of another dtype go into another bucket |
# | number | as few as these rules allow, filled one after another: a bucket is closed when the next gradient does not fit |
# | start | when its last gradient is ready, and every bucket before it has started |
#
# **Budget** for one step: one all-reduce for each bucket, S bytes in all, the first one in flight before
# backward ends. Between steps you may hold at most one copy of the gradients: the buckets themselves.
#
# PyTorch's default is 25 MiB too, but it closes a bucket once the size is *reached*, keeps the first bucket
# to 1 MiB so that something starts early, and puts all gradients into one bucket in the first iteration. From
# the second iteration on it knows the order in which gradients really become ready.
#
# <details><summary>Hint 1: the idea</summary>
# If your first wrapper passes each gradient, in the common order, to one small method, then only that method
# has to change: it copies the gradient into the bucket, and starts the all-reduce with the last gradient of
# the bucket.
# </details>
# <details><summary>Hint 2: the skeleton</summary>
# <pre>__init__       go through the trainable parameters in reverse; for each dtype one bucket is still open
#                for each bucket a flat tensor; for each parameter its view, and which one completes the bucket
# _synchronize   copy the gradient into its view; with the last one of the bucket start the all-reduce</pre>
# </details>
# <details><summary>Hint 3: a part of the solution</summary>
# <code>flat.split(numels)</code> gives views of a flat tensor. After the all-reduce a view holds the mean, and it need not be copied back:
# <pre>view = self._views[parameter]
# view.copy_(parameter.grad)
# parameter.grad = view</pre>
# </details>


# %% nbgrader={"grade": false, "grade_id": "bucketed", "locked": false, "schema_version": 3, "solution": true, "task": false}
class BucketedDistributedDataParallel(DistributedDataParallel):
    """Like DistributedDataParallel, with one all-reduce for each bucket of gradients."""

    def __init__(
        self, module: nn.Module, bucket_size_mb: float = 25.0, group: dist.ProcessGroup | None = None
    ) -> None:
        """Wrap `module`; `bucket_size_mb` is in MiB."""
        ### BEGIN SOLUTION
        super().__init__(module, group)
        self._views: dict[nn.Parameter, torch.Tensor] = {}  # its place in a bucket
        self._completes: dict[nn.Parameter, torch.Tensor] = {}  # the bucket that it is the last one of
        for bucket in self._buckets(int(bucket_size_mb * 2**20)):
            numels = [parameter.numel() for parameter in bucket]
            flat = bucket[0].new_zeros(sum(numels))
            for parameter, view in zip(bucket, flat.split(numels), strict=True):
                self._views[parameter] = view.view_as(parameter)
            self._completes[bucket[-1]] = flat

    def _buckets(self, max_bytes: int) -> list[list[nn.Parameter]]:
        buckets: list[list[nn.Parameter]] = []
        still_open: dict[tuple[torch.dtype, torch.device], list[nn.Parameter]] = {}
        for parameter in reversed(self._trainable):
            kind = parameter.dtype, parameter.device
            bucket = still_open.get(kind)
            if bucket is None or sum(held.nbytes for held in bucket) + parameter.nbytes > max_bytes:
                bucket = still_open[kind] = []
                buckets.append(bucket)
            bucket.append(parameter)
        return buckets

    def _synchronize(self, parameter: nn.Parameter) -> None:
        view = self._views[parameter]
        view.copy_(parameter.grad)
        parameter.grad = view  # nothing to copy back, and the memory of the old one is free immediately
        if parameter in self._completes:
            self._average(self._completes[parameter])
        ### END SOLUTION


# %% [markdown]
# The same step, with buckets of 3 MiB; a layer has a little more than 1 MiB. How many all-reduces will there be, and when does the first start?

# %%
with fourranks.world("gloo").trace() as trace:
    fourranks.world("gloo").run(try_step, BucketedDistributedDataParallel, bucket_size_mb=3)
trace.timeline("the same in buckets of 3 MiB")

# %% nbgrader={"grade": true, "grade_id": "bucketed_check", "locked": true, "points": 20, "schema_version": 3, "solution": false, "task": false}
check.bucketed_distributed_data_parallel(BucketedDistributedDataParallel)
### BEGIN HIDDEN TESTS
check.bucketed_distributed_data_parallel(BucketedDistributedDataParallel, world_sizes=(6,), seed=2404)
### END HIDDEN TESTS

# %% [markdown]
# **Question 2 (graded by hand).** A model has 400 layers with a gradient of 1 MiB each. Its backward takes 100 ms and makes the gradients at an even pace. An
# all-reduce of S bytes takes 0.5 ms + S / (10 GB/s); one runs at a time. How long after the end of backward are all gradients averaged: with an
# all-reduce for each gradient, with buckets of 25 MiB, and with a single bucket? What sets the lower limit of a good bucket size, and what the upper
# one? Which of the three gains most from a batch that is twice as large on every rank?

# %% [markdown] nbgrader={"grade": true, "grade_id": "bucket_size_explained", "locked": false, "points": 6, "schema_version": 3, "solution": true, "task": false}
# **Answer to question 2**
#
# <!-- BEGIN SOLUTION -->
# 1 MiB takes 0.5 + 0.105 = 0.605 ms, and a gradient is ready every 0.25 ms.
#
# - Each gradient by itself: 400 · 0.605 = 242 ms of communication, begun at 0.25 ms: about **142 ms** after backward. Four fifths of it
#   are latency.
# - 25 MiB: 16 buckets, one ready every 6.25 ms, each takes 0.5 + 2.62 = 3.12 ms. The line keeps up, and only the last bucket is left when
#   backward ends: **3.1 ms**.
# - A single bucket: nothing overlaps; 0.5 + 41.9 = **42.4 ms**.
#
# Lower limit: the latency must be small beside S / bandwidth, and a bucket must be finished before the next
# one is ready. Upper limit: what is left after backward is at least the time of the last bucket, and few
# buckets mean a late start.
#
# Twice the batch means 200 ms of backward and the same bytes. The first case gains most: 242 − 200 leaves about 42 ms of the 142. The
# second has nothing left to gain, and the third starts only after backward, however long that takes: its 42.4
# ms stay, as a smaller share of the step.
# <!-- END SOLUTION -->

# %% [markdown]
# ## 5. Accumulate: many microbatches, one synchronization
#
# **Difficulty** ●●○○○ · **Importance** ●●●●○ · **about 20 minutes**
#
# A batch that does not fit into memory is cut into microbatches, which the same rank processes one after
# another. Their gradients add up in `.grad`, and only the sum has to be averaged over the ranks.
#
# `accumulate(model, microbatches, loss_fn)`
#
# | | |
# |---|---|
# | `model` | a wrapper with `no_sync()` and `finish_gradient_synchronization()`; its gradients are `None` or zero |
# | `microbatches` | a sequence of pairs `(inputs, targets)`, samples along dimension 0; they may have different sizes |
# | `loss_fn(outputs, targets)` | the mean loss over the samples that it is given |
# | afterwards | the gradients are those of the mean loss over *all* samples of all ranks; no optimizer step is taken |
# | returns | the mean loss over this rank's samples, detached (a tensor of no dimensions) |
#
# **Budget:** one synchronization for all microbatches, and the activations of one microbatch at a time.
#
# Adding up is not averaging: with two microbatches, two mean losses add up to a gradient twice as large as it should be. In the lecture's example
# the summed gradient moves w₁ from 0.773 to 0.9631, and the mean would move it to 0.8680.
#
# `no_sync()` has to surround the forward pass as well as the backward pass. Your wrapper looks only at the
# backward pass, but PyTorch's decides in the forward pass whether it will synchronize. The check counts by
# both rules.
#
# <details><summary>Hint 1</summary>
# All microbatches except the last belong in <code>no_sync()</code>. The last one starts the all-reduces, and
# your function has to wait for them.
# </details>
# <details><summary>Hint 2</summary>
# Weight a microbatch by its share of the samples: multiply its loss by that share before its backward pass.
# </details>


# %% nbgrader={"grade": false, "grade_id": "accumulate", "locked": false, "schema_version": 3, "solution": true, "task": false}
def accumulate(
    model: nn.Module,
    microbatches: Sequence[tuple[torch.Tensor, torch.Tensor]],
    loss_fn: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """Accumulate the gradient of the mean loss over all microbatches, average it once, and return this rank's mean loss."""
    ### BEGIN SOLUTION
    num_samples = sum(len(inputs) for inputs, _ in microbatches)

    def backward(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        share = loss_fn(model(inputs), targets) * (len(inputs) / num_samples)
        share.backward()
        return share.detach()

    *earlier, last = microbatches
    with model.no_sync():
        mean_loss = sum(backward(*microbatch) for microbatch in earlier)
    mean_loss += backward(*last)
    model.finish_gradient_synchronization()
    return mean_loss
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "accumulate_check", "locked": true, "points": 10, "schema_version": 3, "solution": false, "task": false}
check.accumulate(accumulate)
### BEGIN HIDDEN TESTS
check.accumulate(accumulate, world_sizes=(6,), seed=2405)
### END HIDDEN TESTS

# %% [markdown]
# ## 6. Checkpoints: lose an hour, not a month
#
# **Difficulty** ●●●○○ · **Importance** ●●●●○ · **about 60 minutes**
#
# When one rank dies, the run is over, and the more ranks there are, the sooner one dies. So it matters how
# much of the run is on the disk, and whether training resumes from there *exactly*. All ranks of this
# exercise share one disk, as the machines of a cluster share a file system.
#
# `save_checkpoint(path, model, optimizer, step)` is called by all ranks, with the same arguments. It leaves one file at `path`
# (a `str` or a `Path`, perhaps a mere file name), which `torch.load(path, weights_only=True)` reads as a dict:
#
# | key | value |
# |---|---|
# | `"model"` | the model's `state_dict()`, with the model's own names |
# | `"optimizer"` | the optimizer's `state_dict()`: momenta, step counts, learning rates |
# | `"step"` | `step`, an int |
# | `"random_states"` | a list of the results of `random_state()` (given below) on all ranks, by rank |
#
# - **The model may be wrapped.** A wrapper keeps its model in `.module`, and its own state dict puts
#   `module.` in front of every name. Weights saved like that no longer match a bare model.
# - **One writer.** After the last all-reduce all ranks hold the same weights and momenta, so only rank 0 of
#   the world writes. Only their random numbers differ, so that with dropout the ranks do not all drop the
#   same neurons.
# - **The others wait.** When `save_checkpoint` returns on any rank, the checkpoint exists.
# - **All or nothing.** Even if the disk is full or the process is killed with `kill -9` in the middle, there
#   is a complete checkpoint at `path`: the earlier one until the new one is complete. After a successful
#   save, the folder holds no temporary file, not even one that a killed process has left behind, and all
#   files of other programs. Missing folders are created.
# - **On the disk.** Data that a program writes stays in memory for a while, and is lost when the machine
#   loses power. So call `os.fsync` on the new file *before* it replaces the earlier one; otherwise both may
#   be lost.
# - **All ranks learn of a failure.** When rank 0 cannot write, `save_checkpoint` raises on *every* rank,
#   instead of leaving the others waiting.
#
# Where each rank holds a shard of the model instead of a copy (topics 05 to 07), each writes its own, with
# `torch.distributed.checkpoint`.
#
# ```
# rank 0   ──┬─ write run/last.pt.tmp ─ rename to run/last.pt ─┬──> goes on
# rank 1   ──┤ random states                                   ├──> goes on
# rank 2   ──┘                              it is there, or not └──> goes on
# ```
#
# <details><summary>Hint 1</summary>
# <code>dist.all_gather_object(list_of_N, thing)</code> fills the list with the objects of all ranks. You need only one more collective: one that tells the other ranks whether writing succeeded.
# </details>
# <details><summary>Hint 2</summary>
# <code>os.replace(temporary, path)</code> puts a file in the place of another in one step, on the same file system. There is no moment in which there is neither.
# </details>
# <details><summary>Hint 3</summary>
# Rank 0 catches the exception. <code>dist.broadcast_object_list([error or None], src=0)</code> lets all ranks wait for rank 0, and tells them.
# </details>


# %% nbgrader={"grade": false, "grade_id": "save_checkpoint", "locked": false, "schema_version": 3, "solution": true, "task": false}
def random_state() -> dict[str, torch.Tensor]:
    """Where this rank stands in its sequence of random numbers (this function is given)."""
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def write_in_one_step(content: dict[str, object], path: Path) -> None:
    """Write a file at `path`, where at every moment there is a whole one: the earlier one or this one."""
    ### BEGIN SOLUTION
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp")
    with temporary.open("wb") as file:
        torch.save(content, file)
        os.fsync(file.fileno())  # torch.save has emptied Python's buffer; this empties the machine's
    os.replace(temporary, path)
    ### END SOLUTION


def save_checkpoint(
    path: str | os.PathLike, model: nn.Module, optimizer: torch.optim.Optimizer, step: int
) -> None:
    """Write a checkpoint from rank 0; it is there when any rank returns, and if it cannot be, all ranks raise."""
    ### BEGIN SOLUTION
    random_states = [None] * dist.get_world_size()
    dist.all_gather_object(random_states, random_state())
    outcome = [None]
    if dist.get_rank() == 0:
        checkpoint = {
            "model": getattr(model, "module", model).state_dict(),
            "optimizer": optimizer.state_dict(),
            "step": step,
            "random_states": random_states,
        }
        try:
            write_in_one_step(checkpoint, Path(path))
        except Exception as error:
            outcome = [repr(error)]
    dist.broadcast_object_list(outcome, src=0)
    if outcome[0]:
        raise RuntimeError(f"{path} was not written: {outcome[0]}")
    ### END SOLUTION


# %% [markdown]
# Look into a checkpoint. Which names do you expect in the model's state, and how many random states?


# %%
def try_save(save_checkpoint, path):
    model = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))
    save_checkpoint(path, model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), step=17)
    checkpoint = torch.load(path, weights_only=True)
    return list(checkpoint["model"]), checkpoint["step"], len(checkpoint["random_states"])


with tempfile.TemporaryDirectory() as folder:
    print(fourranks.world("gloo").run(try_save, save_checkpoint, f"{folder}/last.pt")[0])

# %% nbgrader={"grade": true, "grade_id": "save_checkpoint_check", "locked": true, "points": 8, "schema_version": 3, "solution": false, "task": false}
check.save_checkpoint(save_checkpoint)
### BEGIN HIDDEN TESTS
check.save_checkpoint(save_checkpoint, world_sizes=(6,), widths=(7, 16, 4), seed=2406)
### END HIDDEN TESTS

# %% [markdown]
# `load_checkpoint(path, model, optimizer)` is the way back, called by all ranks. Each of them reads the file.
#
# | | before | after |
# |---|---|---|
# | `model` | the same layers, any weights; perhaps wrapped | the saved weights and buffers, bit for bit, in its existing parameters |
# | `optimizer` | of the same kind, over these parameters | the saved state and settings |
# | random numbers | anything | those of this rank continue where they were |
# | returns | | the saved step, an int |
#
# - **With a different number of ranks** training can resume, too. A rank for which there is no random state
#   keeps its own.
# - **All or nothing**, again: if the file is missing, truncated, from another program, of another model, or of
#   an optimizer with other parameter groups, `load_checkpoint` raises an exception whose text names the file,
#   and model, optimizer and random numbers do not change. A `FileNotFoundError` already names the file.
# - **Nothing in the file is executed.** A pickle can run any program when it is read, and checkpoints are passed around.
#
# A checkpoint without the optimizer is a trap: training resumes, but its momenta are zero and its learning
# rate starts over. Loading on rank 0 alone is another trap: a wrapper broadcasts rank 0's weights when it is
# made, but it does not broadcast the optimizer's state.
#
# <details><summary>Hint 1</summary>
# <code>model.load_state_dict</code> copies what fits and raises only then: the model would be half loaded. So compare names and shapes first.
# <code>optimizer.load_state_dict</code> checks before it changes anything.
# </details>
# <details><summary>Hint 2</summary>
# <code>map_location="cpu"</code> keeps all ranks from loading onto the GPU of rank 0; <code>load_state_dict</code> then copies to where the parameters are.
# </details>
# <details><summary>Hint 3</summary>
# torch's own errors do not name the file ("pop from empty list", for a file of text). <code>raise ValueError(f"{path} …: {error}") from error</code> does.
# </details>


# %% nbgrader={"grade": false, "grade_id": "load_checkpoint", "locked": false, "schema_version": 3, "solution": true, "task": false}
def set_random_state(state: dict[str, torch.Tensor]) -> None:
    """Go on drawing random numbers where `random_state()` was called (this function is given)."""
    torch.set_rng_state(state["cpu"])
    if "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"])


def load_checkpoint(path: str | os.PathLike, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Restore model, optimizer and this rank's random numbers, and return the step; or raise, and change nothing."""
    ### BEGIN SOLUTION
    model = getattr(model, "module", model)
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
        random_states, step = checkpoint["random_states"], checkpoint["step"]
        if shapes(checkpoint["model"]) != shapes(model.state_dict()):
            raise ValueError("it is of another model")
        optimizer.load_state_dict(checkpoint["optimizer"])  # which checks before it changes anything
    except FileNotFoundError:
        raise
    except Exception as error:
        raise ValueError(f"{path} is no checkpoint of this run: {error}") from error
    model.load_state_dict(checkpoint["model"])
    rank = dist.get_rank()
    if rank < len(random_states):
        set_random_state(random_states[rank])
    return step


def shapes(state: dict[str, torch.Tensor]) -> dict[str, torch.Size]:
    """Names and shapes of a model's state."""
    return {name: tensor.shape for name, tensor in state.items()}
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "load_checkpoint_check", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
check.load_checkpoint(load_checkpoint)
### BEGIN HIDDEN TESTS
check.load_checkpoint(load_checkpoint, world_sizes=(6,), widths=(7, 16, 4), seed=2407)
### END HIDDEN TESTS

# %% [markdown]
# ## 7. Optional: local SGD
#
# **Difficulty** ●●○○○ · **Importance** ●●○○○ · **about 20 minutes** · optional
#
# Averaging gradients in every step costs 2·(N − 1)/N·S bytes a rank and step. What if the ranks trained alone
# for a while, and only then averaged their weights? With H steps in between, they send 1/H of the bytes. The
# result is no longer that of one process, but it works surprisingly well; DiLoCo does it with hundreds of
# steps, and with a second optimizer for the averages.
#
# `local_sgd_round(model, optimizer, batches, loss_fn, group=None)` is one such round.
#
# | | before | after |
# |---|---|---|
# | `model` | not wrapped; the same weights on all ranks | each trained parameter is the mean of its values on the ranks |
# | `optimizer` | this rank's | has taken one step for each of this rank's `batches`; its state stays on this rank |
# | `batches` | pairs `(inputs, targets)`, of this rank alone; ranks may have different numbers of them, or none | |
# | gradients | anything | anything |
#
# **Budget:** no communication before the last step, and then S bytes a rank: each trained parameter (those with `requires_grad`) goes once into an all-reduce.
#
# ```
# rank 0   step step step ─┐          ┌─ step step step ─┐
# rank 1   step step step ─┼─ average ┼─ step step step ─┼─ average
# rank 2   step step      ─┘          └─ step step step ─┘
# ```
#
# <details><summary>Hint</summary>
# The mean has to be written into the parameters themselves, without autograd: use <code>with torch.no_grad()</code>, or <code>parameter.data</code>.
# </details>


# %% nbgrader={"grade": false, "grade_id": "local_sgd_round", "locked": false, "schema_version": 3, "solution": true, "task": false}
def local_sgd_round(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Sequence[tuple[torch.Tensor, torch.Tensor]],
    loss_fn: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    group: dist.ProcessGroup | None = None,
) -> None:
    """Take a step for each of this rank's batches, then average the trained parameters over the group."""
    ### BEGIN SOLUTION
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss_fn(model(inputs), targets).backward()
        optimizer.step()
    for parameter in model.parameters():
        if parameter.requires_grad:
            dist.all_reduce(parameter.data, group=group)
            parameter.data /= dist.get_world_size(group)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "local_sgd_round_check", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
check.local_sgd_round(local_sgd_round)
### BEGIN HIDDEN TESTS
check.local_sgd_round(local_sgd_round, world_sizes=(6,), seed=2408)
### END HIDDEN TESTS

# %% [markdown]
# ## 8. Optional: send the largest, keep the rest
#
# **Difficulty** ●●●○○ · **Importance** ●●○○○ · **about 30 minutes** · optional
#
# Most elements of a gradient are small. A compressor sends only the largest ones, perhaps a hundredth. The
# others are not lost: the compressor keeps them and adds them to the gradients of the next step. This *error
# feedback* makes the method work: an element that is small but always has the same sign adds up, until it is
# large enough to be sent.
#
# `TopKCompressor(ratio, group=None)` has one method, `average(gradients)`. `gradients` is a list of float32 tensors, contiguous or not, of the same shapes in every step
# and on every rank.
#
# | | |
# |---|---|
# | wanted | all gradients together, as one long vector, plus the elements that this rank kept in the step before |
# | sent | the k = ⌈`ratio` · numel⌉ elements of it with the largest absolute values (`math.ceil`; numel counts all gradients together) |
# | kept | the others, for this compressor's next step |
# | afterwards | `gradients` hold, in place, the mean over the N ranks of the elements that they sent; an element that a rank did not send counts as 0 |
#
# **Budget:** k values and their k places a rank and step: 12·k bytes, with places in int64.
#
# Two ranks, three elements, k = 1:
#
# ```
#               rank 0                                   rank 1                                   gradients of both
# step 1        [ 4, 3, 0 ]   sends 4, keeps [0, 3, 0]   [ 1, 0, 2 ]   sends 2, keeps [1, 0, 0]   [ 2, 0, 1 ]
# step 2        [ 1, 3, 0 ]                              [ 1, 5, 0 ]
#  + kept       [ 1, 6, 0 ]   sends 6, keeps [1, 0, 0]   [ 2, 5, 0 ]   sends 5, keeps [2, 0, 0]   [ 0, 5.5, 0 ]
# ```
#
# <details><summary>Hint 1</summary>
# The ranks choose different places, so a sum of the values alone means nothing: gather values and places of all ranks (<code>dist.all_gather</code>), and put the
# vector together on every rank.
# </details>
# <details><summary>Hint 2</summary>
# <code>wanted.abs().topk(k).indices</code> are the places, <code>wanted[places]</code> the values, and <code>index_add_</code> adds up what several ranks sent for one
# place.
# </details>


# %% nbgrader={"grade": false, "grade_id": "top_k_compressor", "locked": false, "schema_version": 3, "solution": true, "task": false}
class TopKCompressor:
    """Averages gradients over the ranks by their largest elements; the rest is kept and sent later.

    Args:
        ratio: share of the elements that each rank sends in a step, above 0 and at most 1.
        group: whose ranks take part.
    """

    def __init__(self, ratio: float, group: dist.ProcessGroup | None = None) -> None:
        ### BEGIN SOLUTION
        self.ratio, self.group = ratio, group
        self.kept: torch.Tensor | float = 0.0
        ### END SOLUTION

    def average(self, gradients: list[torch.Tensor]) -> None:
        """Replace the gradients, in place, by the mean over the ranks of what each sends of them."""
        ### BEGIN SOLUTION
        wanted = torch.cat([gradient.flatten() for gradient in gradients]) + self.kept
        places = wanted.abs().topk(math.ceil(self.ratio * wanted.numel())).indices
        self.kept = wanted.index_fill(0, places, 0)
        mean = torch.zeros_like(wanted)
        for sent in zip(self._gather(places), self._gather(wanted[places]), strict=True):
            mean.index_add_(0, *sent)
        mean /= dist.get_world_size(self.group)
        parts = mean.split([gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    def _gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """The tensors of all ranks, by position."""
        gathered = [torch.empty_like(tensor) for _ in range(dist.get_world_size(self.group))]
        dist.all_gather(gathered, tensor, group=self.group)
        return gathered
        ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "top_k_compressor_check", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
check.top_k_compressor(TopKCompressor)
### BEGIN HIDDEN TESTS
check.top_k_compressor(
    TopKCompressor, world_sizes=(6,), ratios=(0.02, 0.5), shapes=((31,), (0, 4), (6, 7)), seed=2409
)
### END HIDDEN TESTS

# %% [markdown]
# ## What you have now
#
# - You cut a batch into equal shards and averaged gradients, and know that a mean of means is the mean only then.
# - You wrote a wrapper whose all-reduces run during backward, in one order on all ranks, and one that sends buckets.
# - You accumulated gradients over microbatches and communicated once.
# - You saved a run that resumes bit for bit as if nothing had happened, and perhaps made four ranks
#   communicate less.
#
# Next: four ranks, four copies of everything. *05 sharded data parallelism* keeps one.
