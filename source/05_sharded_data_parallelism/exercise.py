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
# # 05 Sharded data parallelism: can four ranks hold one model?
#
# In topic 04 every rank kept a copy of everything: weights, gradients, optimizer state. That is not
# necessary. Here you remove the copies, one kind after another, until each of four ranks holds a quarter of
# everything, and the training is still that of one process.
#
# You will
#
# - compute what a parameter costs each rank under ZeRO-1, 2 and 3,
# - shard the optimizer's state: each rank updates its own parameters and sends them to the others,
# - shard the gradients: each is sent to the one rank that needs it, and the others free it before backward
#   ends,
# - shard the parameters themselves: `FullyShardedDataParallel` gathers a layer when it is needed and frees it
#   after use.
#
# 7 to 9 hours, more than half of them for part 4 · 1 to 8 ranks (the checks start their own) · Gloo, no GPU needed
#
# [The lecture](../../lectures/05_sharded_data_parallelism/lecture.ipynb) has the ideas; here you build them. On one page each:
# [notation](../../docs/notation.md) · [cheat sheet](../../docs/cheat_sheet.md) · [glossary](../../docs/glossary.md) · [concept map](../../docs/concept_map.md)

# %% [markdown]
# ## Rules
#
# **You may use** everything in `torch.distributed`, `torch.optim` and `nn.Module`, but not
# `torch.distributed.fsdp`, `torch.distributed.optim` and `torch.nn.parallel`, which contain the answers. They
# are missing when a check runs your code, and the check watches what the ranks really send and hold. In cells
# of your own you may compare with anything on your machine.
#
# **Parallel must equal serial.** The checks train the same model on the same data in one process and compare after every step. The ranks' models start
# from *different* random numbers; a wrapper gives them those of rank 0, as in topic 04: parameters and buffers, each broadcast once.
#
# **`group=None`** is the group of all ranks. A smaller group must work in the same way; "rank 0" below means
# its first rank. With 1 rank everything must work, too.
#
# **There are several kinds of parameters**: tied (used in two places, listed once), frozen
# (`requires_grad=False`), empty (0 elements), of a different dtype than the others, and of sizes that do not
# divide by the number of ranks.
#
# **How traffic is counted.** P is the number of all trained parameters, and traffic is counted in elements.
# Every collective counts with the elements that it has to send: with N ranks, a rank sends about P · (N −
# 1)/N elements in a reduce-scatter or reduce of P, as much in an all-gather or broadcast, and twice as much
# in an all-reduce. So in the shorthand of the ZeRO paper:
#
# | | all-reduce | reduce, reduce-scatter | all-gather, broadcast | in all |
# |---|---|---|---|---|
# | data parallelism (topic 04) | 2P | | | 2P |
# | ZeRO-2: part 3, with the optimizer of part 2 | | P | P | 2P |
# | ZeRO-3: part 4 | | P | P in forward, P in backward | 3P |
#
# **Budgets are part of the task**, for the bytes that are sent and for the bytes that are held. Call `wait()`
# on the handle of every call that you start with `async_op=True`.

# %% nbgrader={"grade": false, "grade_id": "setup", "locked": true, "schema_version": 3, "solution": false, "task": false}
# %load_ext fourranks

import gc
from collections import deque
from collections.abc import Callable, Iterable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

import fourranks
from autograder import check


def assign_owner(loads: list[int], parameter: torch.Tensor) -> int:
    """The rank that owns the next parameter: the one with the fewest elements so far (this function is given).

    `loads` counts, for each rank, the trained elements that it owns. So no rank owns more than an equal share
    and one parameter, in whatever order they come.
    """
    owner = loads.index(min(loads))
    loads[owner] += parameter.numel() if parameter.requires_grad else 0
    return owner


def on_access(module: nn.Module, name: str, get: Callable[[], torch.Tensor]) -> None:
    """From now on `module.<name>` is what `get()` returns at that moment (this function is given).

    What is registered as the parameter stays: `module.parameters()` and `module.state_dict()` do not ask `get`.
    """
    members = {name: property(lambda _: get())}
    if names := getattr(module, "_flat_weights_names", None):  # nn.LSTM and its kind keep a list of weights
        members["_flat_weights"] = property(lambda _: [getattr(module, n) for n in names], lambda *_: None)
    module.__class__ = type(type(module).__name__, (type(module),), members)


# %% [markdown]
# ## 1. What a parameter costs
#
# **Difficulty** ●○○○○ · **Importance** ●●●●● · **about 15 minutes**
#
# Mixed-precision training with Adam keeps, for every parameter, its 16-bit weight and gradient, and in
# float32 a master weight, and Adam's two moments: 2 + 2 + 4 + 4 + 4 = 16 bytes. With N ranks, ZeRO shards
# them in stages:
#
# | stage | weights | gradients | master weights and moments |
# |---|---|---|---|
# | 0 (data parallelism) | all | all | all |
# | 1 | all | all | 1/N |
# | 2 | all | 1/N | 1/N |
# | 3 | 1/N | 1/N | 1/N |
#
# `training_bytes(num_params, world_size, stage)` returns the bytes that each rank holds, and raises
# `ValueError` for any other stage. Activations and temporarily gathered weights are not included.
#
# How much memory does each stage save with many ranks? Two of the stages have a lower limit, at a quarter and
# an eighth of stage 0. Which?


# %% nbgrader={"grade": false, "grade_id": "training_bytes", "locked": false, "schema_version": 3, "solution": true, "task": false}
def training_bytes(num_params: int, world_size: int, stage: int) -> float:
    """Bytes of weights, gradients and optimizer state on each rank, in mixed precision with Adam."""
    ### BEGIN SOLUTION
    if stage not in (0, 1, 2, 3):
        raise ValueError(f"there is no ZeRO stage {stage}: choose 0 (nothing is sharded), 1, 2 or 3")
    weights, gradients, optimizer_state = 2 * num_params, 2 * num_params, 12 * num_params
    if stage >= 1:
        optimizer_state /= world_size
    if stage >= 2:
        gradients /= world_size
    if stage >= 3:
        weights /= world_size
    return weights + gradients + optimizer_state
    ### END SOLUTION


# %% [markdown]
# The example of the ZeRO paper: 7.5 billion parameters on 64 GPUs. On which of the stages do they fit into 80 GB, and into 24 GB?

# %%
for stage in range(4):
    print(f"stage {stage}: {training_bytes(7_500_000_000, 64, stage) / 1e9:6.1f} GB on each rank")

# %% nbgrader={"grade": true, "grade_id": "training_bytes_check", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
check.training_bytes(training_bytes)
### BEGIN HIDDEN TESTS
check.training_bytes(training_bytes, world_sizes=(1, 3, 8, 1024), seed=2501)
### END HIDDEN TESTS

# %% [markdown]
# ## 2. ZeRO-1: each rank updates a part
#
# **Difficulty** ●●●○○ · **Importance** ●●●●○ · **about 75 minutes**
#
# After the gradients are averaged, N ranks compute the same update N times, and keep N copies of the same
# moments for it. Instead, let every parameter have an *owner*. Only the owner keeps its moments and updates
# it, and then sends the new value to the others.
#
# `ShardedOptimizer(params, optimizer_cls, **kwargs)` is a `torch.optim.Optimizer` around any other one:
#
# ```python
# optimizer = ShardedOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-3, weight_decay=0.1)
# ```
#
# | method | what it does |
# |---|---|
# | `__init__` | `params` are parameters or groups (dicts) of them, as with every optimizer; an inner `optimizer_cls(…, **kwargs)` on each rank gets the parameters that this rank owns |
# | `step(closure=None)` | the gradients have been averaged already, and a rank may lack those of parameters that it does not own (see part 3). Updates the parameters that this rank owns; when it returns, all ranks have all new values. A closure computes the gradients: call it first, with gradients enabled, and return its result |
# | `add_param_group(group)` | adds parameters, with options of their own, even in the middle of training |
# | `zero_grad()`, `param_groups` | cover all parameters; a change of `lr` in `param_groups`, as schedules make it, must change the next step |
#
# **Budget:** the optimizer's state on a rank is at most 1/N of the whole, plus that of one parameter. In a
# step, each parameter with `requires_grad` is sent once from its owner: P elements in all, in broadcasts or
# all-gathers, and nothing else. Padding of an all-gather to equal parts counts, too: at most one element for
# each parameter and rank.
#
# The owner of a parameter has to be the same on all ranks, without communication, and the same in part 3.
# `assign_owner(loads, parameter)` above does that: call it for all parameters, in the order in which they are
# added. Simply taking the ranks in turn would not do, because weights and biases also alternate: with 2
# ranks, one would get all the weights.
#
# A rank may own nothing, when there are few parameters; a parameter may have no gradient in one step; and
# parameters may differ in dtype.
#
# <details><summary>Hint 1: the order of things</summary>
# <code>super().__init__(params, kwargs)</code> makes <code>self.param_groups</code> and calls
# <code>self.add_param_group(group)</code> for each group. So set every attribute that this method uses before
# the call; then owners are assigned in this one method only.
# </details>
# <details><summary>Hint 2: an optimizer that may own nothing</summary>
# <code>optimizer_cls([])</code> raises, but <code>optimizer_cls([{"params": []}])</code> does not. Its groups can correspond one to one to
# <code>self.param_groups</code>.
# </details>
# <details><summary>Hint 3: learning rates</summary>
# Before a step copy all options except <code>"params"</code> from each of your groups to the inner
# optimizer's. When a group is added, copy them in the other direction: only the inner optimizer knows the
# defaults of options that were not given, such as <code>lr</code>.
# </details>


# %% nbgrader={"grade": false, "grade_id": "sharded_optimizer", "locked": false, "schema_version": 3, "solution": true, "task": false}
class ShardedOptimizer(torch.optim.Optimizer):
    """Any optimizer, with its state dealt out over all ranks: each updates the parameters that it owns (ZeRO-1).

    Args:
        params: parameters, or dicts with `params` and options, in the same order on every rank.
        optimizer_cls: the class of the optimizer that each rank uses for its own.
        kwargs: of that optimizer.
    """

    def __init__(
        self, params: Iterable, optimizer_cls: type[torch.optim.Optimizer], **kwargs: object
    ) -> None:
        ### BEGIN SOLUTION
        self._make_optimizer = lambda groups: optimizer_cls(groups, **kwargs)
        self._own: torch.optim.Optimizer | None = None  # made with the first group
        self._owner: dict[torch.Tensor, int] = {}
        self._loads = [0] * dist.get_world_size()
        super().__init__(params, kwargs)
        ### END SOLUTION

    def add_param_group(self, param_group: dict) -> None:
        """Add parameters, each to the rank that owns it."""
        ### BEGIN SOLUTION
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        for parameter in group["params"]:
            self._owner[parameter] = assign_owner(self._loads, parameter)
        own = {**group, "params": [p for p in group["params"] if self._owner[p] == dist.get_rank()]}
        if self._own is None:
            self._own = self._make_optimizer([own])
        else:
            self._own.add_param_group(own)
        copy_options(self._own.param_groups[-1], group)  # with defaults that were not given
        ### END SOLUTION

    def step(self, closure: Callable[[], torch.Tensor] | None = None) -> torch.Tensor | None:
        """Update what this rank owns, and return when all ranks have all new values."""
        ### BEGIN SOLUTION
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group, own in zip(self.param_groups, self._own.param_groups, strict=True):
            copy_options(group, own)
        self._own.step()
        copies = [
            dist.broadcast(parameter.detach(), src=owner, async_op=True)
            for parameter, owner in self._owner.items()
            if parameter.requires_grad
        ]
        for copy in copies:
            copy.wait()
        return loss


def copy_options(source: dict, destination: dict) -> None:
    """Give one group of parameters the options of another."""
    destination.update({name: value for name, value in source.items() if name != "params"})
    ### END SOLUTION


# %% [markdown]
# Four layers of 256 × 256 in float32 are 1 MiB of weights; Adam's two moments are twice as much. How much
# state does a rank hold with `AdamW` itself, and with your optimizer around it? The cell finds the state by
# looking at all live tensors.


# %%
def state_nbytes(make_optimizer):
    """Bytes of the tensors that a step of the optimizer leaves behind."""

    def alive():
        gc.collect()
        tensors = [held for held in gc.get_objects() if issubclass(type(held), torch.Tensor)]
        return sum({tensor.data_ptr(): tensor.nbytes for tensor in tensors}.values())

    parameters = [nn.Parameter(torch.ones(256, 256)) for _ in range(4)]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    before = alive()
    optimizer = make_optimizer(parameters)
    optimizer.step()
    return alive() - before


for name, make in {
    "AdamW": lambda parameters: torch.optim.AdamW(parameters),
    "ShardedOptimizer": lambda parameters: ShardedOptimizer(parameters, torch.optim.AdamW),
}.items():
    print(name, [f"{nbytes / 2**20:.2f} MiB" for nbytes in fourranks.world("gloo").run(state_nbytes, make)])

# %% nbgrader={"grade": true, "grade_id": "sharded_optimizer_check", "locked": true, "points": 18, "schema_version": 3, "solution": false, "task": false}
check.sharded_optimizer(ShardedOptimizer)
### BEGIN HIDDEN TESTS
check.sharded_optimizer(ShardedOptimizer, world_sizes=(6,), seed=2502)
### END HIDDEN TESTS

# %% [markdown]
# ## 3. ZeRO-2: a gradient has one reader
#
# **Difficulty** ●●●●○ · **Importance** ●●●●○ · **about 75 minutes**
#
# Now only the owner of a parameter reads its gradient, so an all-reduce sends it to all ranks for nothing. A
# *reduce* to the owner has half the traffic. And the other ranks can free their gradient as soon as it is
# sent: while backward computes the gradients of layer 1, those of layer 4 are already gone.
#
# ```
#             backward │ layer 4 │ layer 3 │ layer 2 │ layer 1 │
# rank 0 (owns 1, 3)    4 made    3 made    2 made    1 made
#                            4 gone    3 kept    2 gone    1 kept
# rank 1 (owns 2, 4)    4 made    3 made    2 made    1 made
#                            4 kept    3 gone    2 kept    1 gone
# ```
#
# | | |
# |---|---|
# | `ShardedGradients(module, group=None)` | keeps `module` in `.module`; copies all parameters and buffers of rank 0 to the other ranks; owners by `assign_owner`, in the order of `module.parameters()` |
# | `forward(*args, **kwargs)` | calls the module |
# | `finish_gradient_synchronization()` | called after each backward; when it returns, the `.grad` of each parameter is the mean over the ranks on its owner, and `None` on all other ranks |
#
# Before a backward, gradients are `None` or zero.
#
# **Budget** for one step: each gradient goes once into a reduce or a reduce-scatter, P in all, and there is
# no all-reduce. Each starts as soon as its gradient is ready, asynchronously, before backward goes on to the
# layer after the next. A rank keeps at most 1/N of all gradients, plus one, and at *no* moment does it hold
# more than three others.
#
# As in topic 04, ranks may use different layers, and all of them must issue the same reduces in the same
# order. A missing gradient counts as zeros.
#
# <details><summary>Hint 1: the idea</summary>
# As in topic 04, gradients become ready roughly in the reverse order of <code>module.parameters()</code>.
# Keep a list of the parameters whose reduce has not started. A hook records that its gradient is ready, then
# starts, from the end of the list, all that are ready. <code>finish_gradient_synchronization()</code> starts
# the rest. Free a gradient only when its reduce has finished.
# </details>
# <details><summary>Hint 2: the skeleton</summary>
# <pre>hook       as in topic 04
# _reduce    wait for the oldest reduces until one is left in flight; start this one, keep (parameter, handle)
#            in a deque
# _settle    for each that is waited for: where this rank is not the owner, parameter.grad = None
# finish     zeros for what is missing; reduce; wait for all; be ready for the next step</pre>
# So there is always one in flight while backward computes, and there are never many.
# </details>
# <details><summary>Hint 3: a part of the solution</summary>
# <pre>work = dist.reduce(parameter.grad, group_dst=self._owner[parameter], op=dist.ReduceOp.AVG,
#                    group=self.group, async_op=True)</pre>
# <code>group_dst</code> is the owner's position in the group, and <code>dist.get_rank(group)</code> is one's own.
# </details>


# %% nbgrader={"grade": false, "grade_id": "sharded_gradients", "locked": false, "schema_version": 3, "solution": true, "task": false}
class ShardedGradients(nn.Module):
    """Trains a module on every rank of a group as one; each gradient ends up on the rank that owns it (ZeRO-2)."""

    def __init__(self, module: nn.Module, group: dist.ProcessGroup | None = None) -> None:
        """Wrap `module` and give it the parameters and buffers of the group's rank 0."""
        ### BEGIN SOLUTION
        super().__init__()
        self.module = module
        self.group = group
        broadcast_from_first(module, group)
        loads = [0] * dist.get_world_size(group)
        self._owner = {parameter: assign_owner(loads, parameter) for parameter in module.parameters()}
        self._trainable = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self._expect_all()
        for parameter in self._trainable:
            parameter.register_post_accumulate_grad_hook(self._gradient_is_ready)
        ### END SOLUTION

    def forward(self, *args: object, **kwargs: object) -> object:
        """Call the module."""
        ### BEGIN SOLUTION
        return self.module(*args, **kwargs)
        ### END SOLUTION

    def finish_gradient_synchronization(self) -> None:
        """Return when every gradient is the mean over all ranks on its owner, and gone everywhere else."""
        ### BEGIN SOLUTION
        while self._waiting:  # not used on this rank, but perhaps on others
            parameter = self._waiting.pop()
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            self._reduce(parameter)
        self._settle(in_flight=0)
        self._expect_all()

    def _expect_all(self) -> None:
        self._waiting = list(self._trainable)  # taken from the end: backward goes from the last to the first
        self._ready: set[nn.Parameter] = set()
        self._in_flight: deque[tuple[nn.Parameter, dist.Work]] = deque()

    def _gradient_is_ready(self, parameter: nn.Parameter) -> None:
        """Pass on what is ready, in the order that is the same on every rank."""
        self._ready.add(parameter)
        while self._waiting and self._waiting[-1] in self._ready:
            self._reduce(self._waiting.pop())

    def _reduce(self, parameter: nn.Parameter) -> None:
        self._settle(in_flight=1)
        work = dist.reduce(
            parameter.grad,
            group_dst=self._owner[parameter],
            op=dist.ReduceOp.AVG,
            group=self.group,
            async_op=True,
        )
        self._in_flight.append((parameter, work))

    def _settle(self, in_flight: int) -> None:
        """Wait for the oldest reduces, until only so many are in flight, and drop what others own."""
        while len(self._in_flight) > in_flight:
            parameter, work = self._in_flight.popleft()
            work.wait()
            if self._owner[parameter] != dist.get_rank(self.group):
                parameter.grad = None


def broadcast_from_first(module: nn.Module, group: dist.ProcessGroup | None) -> None:
    """Give the module the parameters and buffers of the group's rank 0."""
    copies = [
        dist.broadcast(tensor.detach(), group_src=0, group=group, async_op=True)
        for tensor in [*module.parameters(), *module.buffers()]
    ]
    for copy in copies:
        copy.wait()
    ### END SOLUTION


# %% [markdown]
# Together with the optimizer of part 2 this is ZeRO-2. One step of eight layers: which gradients does each rank have when backward is over, and what does the step send?


# %%
def try_step(wrapper, optimizer):
    torch.manual_seed(dist.get_rank())
    model = wrapper(nn.Sequential(*[nn.Linear(512, 512, bias=False) for _ in range(8)]))
    optimizer = optimizer(model.parameters(), torch.optim.SGD, lr=0.1)
    model(torch.randn(64, 512)).square().mean().backward()
    model.finish_gradient_synchronization()
    kept = [n for n, parameter in enumerate(model.parameters()) if parameter.grad is not None]
    optimizer.step()
    return kept


with fourranks.world("gloo").trace() as trace:
    print("gradients kept:", fourranks.world("gloo").run(try_step, ShardedGradients, ShardedOptimizer))
trace.timeline("broadcast, forward, backward with reduces to the owners, and their broadcasts")

# %% nbgrader={"grade": true, "grade_id": "sharded_gradients_check", "locked": true, "points": 18, "schema_version": 3, "solution": false, "task": false}
check.sharded_gradients(ShardedGradients)
### BEGIN HIDDEN TESTS
check.sharded_gradients(ShardedGradients, world_sizes=(6,), seed=2503)
### END HIDDEN TESTS

# %% [markdown]
# **Question 1 (graded by hand).** The ZeRO paper says that stages 1 and 2 cost no more traffic than data
# parallelism, 2P. You train with `DistributedDataParallel` of topic 04 and put `ShardedOptimizer` around
# AdamW. What does a step send, by the table above? Which part of it is unnecessary, and how does ZeRO-2 avoid
# it? Now you accumulate gradients over 8 microbatches. With data parallelism you would put seven of them into
# `no_sync()`. What can you do under ZeRO-2, and what does each choice cost in traffic or in memory?

# %% [markdown] nbgrader={"grade": true, "grade_id": "stages_explained", "locked": false, "points": 6, "schema_version": 3, "solution": true, "task": false}
# **Answer to question 1**
#
# <!-- BEGIN SOLUTION -->
# The all-reduce of the gradients costs 2P and the broadcast of the new parameters P: 3P, more than data parallelism alone. An all-reduce is a reduce-scatter and an all-gather, and the second
# half brings every averaged gradient to every rank, although only its owner will read it. That half is
# unnecessary. A reduce (or reduce-scatter) to the owners, P, and the parameters on the way back, P, are 2P:
# the parameters' all-gather takes the place of the gradients'. That is what ZeRO-1 does in the paper; and
# once the other ranks get no averaged gradient, they have no reason to keep their own, so ZeRO-2 saves their
# memory at no cost.
#
# With 8 microbatches there are two choices. Either each microbatch's gradients are reduced to their owners, who add them up: gradients stay an N-th, but a step sends 8P + P instead of
# 2P (9P against 2P in data parallelism with `no_sync`). Or the ranks add up locally and reduce once, after the last microbatch: 2P, but every rank holds all gradients until then, which is what ZeRO-2 wanted to avoid;
# what remains is ZeRO-1 in memory. Which is better depends on what is short. (Larger microbatches with recomputed activations are a third way.)
# <!-- END SOLUTION -->

# %% [markdown]
# ## 4. ZeRO-3: gather a layer when it is needed
#
# The parameters themselves are still replicated. But layer 3 is of no use while layer 1 computes. So every
# rank keeps 1/N of each parameter, a flat *shard*, and the whole parameter is gathered just in time:
#
# ```
# forward    all-gather 1 ─ layer 1 ─ free │ all-gather 2 ─ layer 2 ─ free │ …
# backward   … │ all-gather 2 ─ layer 2 ─ free ─ reduce-scatter 2 │ all-gather 1 ─ layer 1 ─ free ─ reduce-scatter 1
# ```
#
# You build it in four parts. Each has a check of its own and uses the part before: one parameter (4a), any
# module (4b), a backward that gathers again (4c), and prefetching (4d).

# %% [markdown]
# ### 4a. Gather and free one parameter
#
# **Difficulty** ●●○○○ · **Importance** ●●●●○ · **about 45 minutes**
#
# `ShardedParameter(parameter, compute_dtype=None, group=None)` is made from a parameter that is the same on
# all ranks of the group.
#
# | | |
# |---|---|
# | `.shard` | an `nn.Parameter`: this rank's ⌈numel / N⌉ elements of the flattened parameter, in its dtype and in memory of its own. The last shards are padded with zeros. It is frozen if the parameter is |
# | `start_gathering()` | starts to gather the shards, asynchronously, and returns; does nothing if they are gathered or being gathered |
# | `gathered()` | returns the whole parameter in its shape, and gathers it if necessary. With `compute_dtype` the shards are cast to it *before* they are sent, and the result has that dtype |
# | `free()` | frees the gathered parameter; waits first, if it is still on its way. If nothing was gathered it does nothing |
# | `start_reducing(gradient)` | starts to reduce a gradient of the whole parameter, contiguous or not, asynchronously, and returns. The gradient is sent in its own dtype. If an earlier one is still in flight, it finishes that one first |
# | `finish_reducing()` | waits for the reduce, and adds this rank's shard of the mean over the ranks to `.shard.grad`, in the shard's dtype. If no reduce is in flight it does nothing |
# | `full()` | returns the whole parameter in its own dtype, in separate memory that `free()` does not touch |
#
# An optimizer changes `.shard` between two gathers, so what is gathered after a `free()` has the new values.
#
# **Budget:** one all-gather from a gather to the next `free()`, however often `gathered()` is called; one reduce-scatter for each gradient. After
# `free()` and `finish_reducing()` a rank holds its shard, the shard's gradient, and nothing else.
#
# <details><summary>Hint 1: the idea</summary>
# Flatten the parameter and append zeros until N parts of one size come out: <code>F.pad(flat, (0, missing))</code>. Shards of one size are
# what <code>dist.all_gather_single</code> and <code>dist.reduce_scatter_single</code> take. Padding has a gradient of zero, and stays zero.
# </details>
# <details><summary>Hint 2: the skeleton</summary>
# <pre>def start_gathering(self):
#     if nothing is gathered or on its way:
#         self._flat = room for N shards
#         self._gathering = dist.all_gather_single(self._flat, …, async_op=True)
# def gathered(self):
#     start_gathering, wait, cut the padding off, view in the shape
# def free(self):
#     wait, then forget self._flat</pre>
# <code>free()</code> has to wait, because data that arrive later would be written into memory that another tensor may use by then.
# </details>
# <details><summary>Hint 3: a part of the solution</summary>
# <pre>own = self._padded(parameter).chunk(self.world_size)[dist.get_rank(group)]
# self.shard = nn.Parameter(own.clone(), requires_grad=parameter.requires_grad)</pre>
# <code>chunk</code> gives views, and a view keeps the memory of the whole, so <code>clone()</code> is needed.
# </details>


# %% nbgrader={"grade": false, "grade_id": "sharded_parameter", "locked": false, "schema_version": 3, "solution": true, "task": false}
class ShardedParameter:
    """A parameter of which every rank holds a flat shard of one size, the last ones padded with zeros.

    Args:
        parameter: the whole of it, the same on every rank.
        compute_dtype: in which it is gathered; None: in its own.
        group: whose ranks take part.
    """

    def __init__(
        self,
        parameter: nn.Parameter,
        compute_dtype: torch.dtype | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        ### BEGIN SOLUTION
        self.shape, self.numel, self.group = parameter.shape, parameter.numel(), group
        self.dtype = compute_dtype or parameter.dtype
        self.world_size = dist.get_world_size(group)
        self.shard_numel = -(-self.numel // self.world_size)
        own = self._padded(parameter).chunk(self.world_size)[dist.get_rank(group)]
        self.shard = nn.Parameter(own.clone(), requires_grad=parameter.requires_grad)
        self._flat: torch.Tensor | None = None
        self._gathering: dist.Work | None = None
        self._reducing: tuple[torch.Tensor, dist.Work] | None = None  # this rank's shard of the mean
        ### END SOLUTION

    def start_gathering(self) -> None:
        """Start to gather the shards, unless they are there or on their way."""
        ### BEGIN SOLUTION
        if self._flat is None:
            self._flat, self._gathering = self._gather(self.dtype)
        ### END SOLUTION

    def gathered(self) -> torch.Tensor:
        """The whole parameter in the dtype for computing, in memory that lasts until it is freed."""
        ### BEGIN SOLUTION
        self.start_gathering()
        self._wait()
        return self._flat[: self.numel].view(self.shape)
        ### END SOLUTION

    def free(self) -> None:
        """Forget what has been gathered."""
        ### BEGIN SOLUTION
        self._wait()  # nothing may arrive in memory that is someone else's by then
        self._flat = None
        ### END SOLUTION

    def start_reducing(self, gradient: torch.Tensor) -> None:
        """Start to average a gradient of the whole parameter over the ranks."""
        ### BEGIN SOLUTION
        self.finish_reducing()
        mean = gradient.new_empty(self.shard_numel)
        work = dist.reduce_scatter_single(
            mean, self._padded(gradient), op=dist.ReduceOp.AVG, group=self.group, async_op=True
        )
        self._reducing = mean, work
        ### END SOLUTION

    def finish_reducing(self) -> None:
        """Wait for the mean, and add it to the shard's gradient."""
        ### BEGIN SOLUTION
        if self._reducing is None:
            return
        mean, work = self._reducing
        self._reducing = None
        work.wait()
        mean = mean.to(self.shard.dtype)
        if self.shard.grad is not None:
            mean += self.shard.grad
        self.shard.grad = mean
        ### END SOLUTION

    def full(self) -> torch.Tensor:
        """The whole parameter in its own dtype, in memory of its own."""
        ### BEGIN SOLUTION
        flat, work = self._gather(self.shard.dtype)
        work.wait()
        return flat[: self.numel].view(self.shape)

    def _gather(self, dtype: torch.dtype) -> tuple[torch.Tensor, dist.Work]:
        shard = self.shard.detach().to(dtype)
        flat = shard.new_empty(self.world_size * self.shard_numel)
        return flat, dist.all_gather_single(flat, shard, group=self.group, async_op=True)

    def _wait(self) -> None:
        if self._gathering is not None:
            self._gathering.wait()
        self._gathering = None

    def _padded(self, tensor: torch.Tensor) -> torch.Tensor:
        missing = self.world_size * self.shard_numel - self.numel
        return F.pad(tensor.flatten(), (0, missing))
        ### END SOLUTION


# %% [markdown]
# Try it with ten numbers on four ranks. What does each rank keep, what does `gathered()` return, and what is
# the gradient's shard if each element of rank r's gradient is r + 1?


# %%
def try_parameter(ShardedParameter):
    sharded = ShardedParameter(nn.Parameter(torch.arange(10.0)))
    sharded.start_reducing(torch.full((10,), dist.get_rank() + 1.0))
    sharded.finish_reducing()
    return sharded.shard.tolist(), sharded.shard.grad.tolist(), sharded.gathered().tolist()


for rank, (shard, gradient, whole) in enumerate(fourranks.world("gloo").run(try_parameter, ShardedParameter)):
    print(f"rank {rank}: shard {shard}, its gradient {gradient}, gathered {whole}")

# %% nbgrader={"grade": true, "grade_id": "sharded_parameter_check", "locked": true, "points": 10, "schema_version": 3, "solution": false, "task": false}
check.sharded_parameter(ShardedParameter)
### BEGIN HIDDEN TESTS
check.sharded_parameter(ShardedParameter, world_sizes=(6,), seed=2505)
### END HIDDEN TESTS

# %% [markdown]
# ### 4b. Any module, with hooks
#
# **Difficulty** ●●●●○ · **Importance** ●●●●● · **about 90 minutes**
#
# `ShardedModule(module, compute_dtype=None, min_shard_numel=1024, group=None)` replaces the parameters of a
# module by shards, and gathers each when the module reads it. In forward a layer is freed when its forward is
# over. Autograd may still keep the tensors that it has saved for backward; part 4c frees those, too.
#
# | | |
# |---|---|
# | `.module` | the wrapped module. Each of its parameters with at least `min_shard_numel` elements is replaced, under its name, by a `.shard` |
# | smaller parameters | (and empty ones) stay on every rank as they are, and their gradients are averaged |
# | `parameters()` | shards and small parameters, in their original dtype, for the optimizer. An optimizer that works element by element, such as Adam, needs no change |
# | `forward(*args, **kwargs)` | calls the module; `loss.backward()` works as usual. With `compute_dtype`, floating-point tensors among the arguments are cast to that dtype; other arguments, such as tokens or a flag, are passed on unchanged |
# | `finish_gradient_synchronization()` | called after backward; when it returns, each `.grad` is this rank's shard of the mean gradient. Gradients add up as in PyTorch: over several forwards and backwards, before one finish or with one each |
# | `full_state_dict()` | called by all ranks: the state dict of the wrapped module, with its names, whole parameters in their own dtype, and its buffers; the same on every rank |
#
# **`compute_dtype`**, such as `torch.bfloat16`: parameters are gathered, computed with, and their gradients
# reduced in this dtype; small parameters are cast when they are read. Shards, their gradients, and so the
# optimizer's state stay in float32. That halves the traffic.
#
# **Any module with parameters** works, not only `nn.Linear`: embeddings, tied weights, and modules that use a parameter of their child
# themselves, as `nn.MultiheadAttention` does with the weight of its `out_proj`, without ever calling that. All ranks use the same layers in
# the same order, as with PyTorch's own; the next forward may use other layers.
#
# **Budget** for one step:
#
# - P in all-gathers in forward, at most P in backward, and P in reduce-scatters. Shards may be padded to equal
#   sizes. A parameter that is used in several places may be sent as often, but one that a module reads twice
#   in its forward is sent once.
# - A single all-gather has at most one layer: a module's own parameters.
# - The gradients of small parameters are sent once.
# - Under `torch.no_grad()`, where autograd saves nothing, a rank never holds more than half of a deep model
#   besides its shards.
#
# Two tools help. With `on_access(module, name, get)`, given above, every read of `module.weight` calls
# `get()` and returns its result. And a `torch.autograd.Function` (lecture 05, section 4) makes a gather
# differentiable.
#
# <details><summary>Hint 1: the idea</summary>
# A function whose forward takes the shard and returns the gathered parameter. Its backward gets the gradient
# of the whole parameter, exactly when the last operation that used it is done: the moment for the
# reduce-scatter. It returns <code>None</code>, since
# <code>finish_reducing()</code> puts the mean into the shard's <code>.grad</code> itself.
# </details>
# <details><summary>Hint 2: the skeleton</summary>
# <pre>__init__   broadcast from rank 0 (part 3)
#            one ShardedParameter for each large parameter, tied ones once
#            in every submodule, for every name of a parameter:
#                register the shard in its place; on_access: gather, once, and remember it as "in use"
#            on every submodule a forward hook: forget what is in use of the parameters in it, and free them
# Gather     forward: sharded.gathered()      backward: reduce the gradient
# finish     all-reduce the gradients of small parameters</pre>
# <code>named_parameters(recurse=False, remove_duplicate=False)</code> lists every name, also the second one of a tied parameter.
# </details>
# <details><summary>Hint 3: a part of the solution</summary>
# <pre>def _replace(self, module, name, parameter, sharded):
#     if sharded is not None:
#         setattr(module, name, sharded.shard)
#         on_access(module, name, lambda: self._gathered(sharded))
#     elif self.compute_dtype is not None:
#         on_access(module, name, lambda: parameter.to(self.compute_dtype))</pre>
# Modules read <code>self.weight</code> more than once; <code>_gathered</code> returns the same tensor until
# the hook frees it.
# </details>


# %% nbgrader={"grade": false, "grade_id": "sharded_module", "locked": false, "schema_version": 3, "solution": true, "task": false}
class ShardedModule(nn.Module):
    """A module of which each rank holds a shard; parameters are gathered when they are read.

    Args:
        module: any module with parameters; it ends up with those of the group's rank 0.
        compute_dtype: in which parameters are gathered and used, and gradients reduced; None: in their own.
        min_shard_numel: parameters with fewer elements stay on every rank.
        group: whose ranks take part.
    """

    def __init__(
        self,
        module: nn.Module,
        compute_dtype: torch.dtype | None = None,
        min_shard_numel: int = 1024,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        ### BEGIN SOLUTION
        super().__init__()
        self.module, self.group, self.compute_dtype = module, group, compute_dtype
        broadcast_from_first(module, group)
        sharded = {
            parameter: ShardedParameter(parameter, compute_dtype, group)
            for parameter in module.parameters()
            if parameter.numel() >= max(1, min_shard_numel)
        }
        self._small = [parameter for parameter in module.parameters() if parameter not in sharded]
        self._by_shard = {each.shard: each for each in sharded.values()}
        self._in_use: dict[ShardedParameter, torch.Tensor] = {}  # gathered, in forward
        for child in module.modules():
            for name, parameter in child.named_parameters(recurse=False, remove_duplicate=False):
                self._replace(child, name, parameter, sharded.get(parameter))
        for child in module.modules():
            inside = [self._by_shard[shard] for shard in child.parameters() if shard in self._by_shard]
            child.register_forward_hook(lambda *_, inside=inside: self._free(inside))
        ### END SOLUTION

    def forward(self, *args: object, **kwargs: object) -> object:
        """Call the module, with every parameter gathered for as long as it is needed."""
        ### BEGIN SOLUTION
        args = [self._cast(value) for value in args]
        kwargs = {name: self._cast(value) for name, value in kwargs.items()}
        return self.module(*args, **kwargs)
        ### END SOLUTION

    def finish_gradient_synchronization(self) -> None:
        """Return when every gradient is this rank's part of the mean over all ranks."""
        ### BEGIN SOLUTION
        by_dtype: dict[torch.dtype, list[torch.Tensor]] = {}
        for parameter in self._small:
            if parameter.grad is not None:
                by_dtype.setdefault(parameter.dtype, []).append(parameter.grad)
        for gradients in by_dtype.values():  # one all-reduce for all of a dtype
            flat = torch.cat([gradient.flatten() for gradient in gradients])
            dist.all_reduce(flat, op=dist.ReduceOp.AVG, group=self.group)
            parts = flat.split([gradient.numel() for gradient in gradients])
            for gradient, part in zip(gradients, parts, strict=True):
                gradient.copy_(part.view_as(gradient))

    def _replace(
        self, module: nn.Module, name: str, parameter: nn.Parameter, sharded: ShardedParameter | None
    ) -> None:
        """Register the shard in the parameter's place, and let a module that reads it get what to compute with."""
        if sharded is not None:
            setattr(module, name, sharded.shard)
            on_access(module, name, lambda: self._gathered(sharded))
        elif self.compute_dtype is not None:
            on_access(module, name, lambda: parameter.to(self.compute_dtype))

    def _cast(self, value: object) -> object:
        is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.to(self.compute_dtype) if is_float and self.compute_dtype else value

    def _gathered(self, sharded: ShardedParameter) -> torch.Tensor:
        if sharded not in self._in_use:
            self._in_use[sharded] = self._gather(sharded)
        return self._in_use[sharded]

    def _gather(self, sharded: ShardedParameter) -> torch.Tensor:
        return Gather.apply(sharded.shard, sharded, self._reduce)

    def _free(self, parameters: Iterable[ShardedParameter]) -> None:
        for sharded in parameters:
            self._in_use.pop(sharded, None)
            sharded.free()

    def _reduce(self, sharded: ShardedParameter, gradient: torch.Tensor) -> None:
        sharded.start_reducing(gradient)
        sharded.finish_reducing()
        ### END SOLUTION

    def full_state_dict(self) -> dict[str, torch.Tensor]:
        """The state dict of the wrapped module, put together from the shards of all ranks; all have to ask."""
        ### BEGIN SOLUTION
        full = {shard: sharded.full() for shard, sharded in self._by_shard.items()}
        state = dict(self.module.state_dict())
        for name, parameter in self.module.named_parameters(remove_duplicate=False):
            if parameter in full:
                state[name] = full[parameter]
        return state


class Gather(torch.autograd.Function):
    """From a shard to the whole parameter; in backward, from its gradient to that of the shard."""

    @staticmethod
    def forward(ctx, shard: torch.Tensor, sharded: ShardedParameter, reduce: Callable) -> torch.Tensor:
        ctx.sharded, ctx.reduce = sharded, reduce
        return sharded.gathered()

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> tuple[None, None, None]:
        ctx.reduce(ctx.sharded, gradient)  # which brings it to the shard
        return None, None, None
        ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "sharded_module_check", "locked": true, "points": 14, "schema_version": 3, "solution": false, "task": false}
check.sharded_module(ShardedModule)
### BEGIN HIDDEN TESTS
check.sharded_module(ShardedModule, world_sizes=(6,), seed=2506)
### END HIDDEN TESTS

# %% [markdown]
# ### 4c. Backward gathers again
#
# **Difficulty** ●●●●● · **Importance** ●●●●○ · **about 75 minutes**
#
# Autograd saves for each matrix product the weight that it was computed with, and so keeps every gathered
# weight alive until backward. Lecture 05, section 6, has the tool: whenever an operation saves a tensor,
# `saved_tensors_hooks(pack, unpack)` keeps `pack(tensor)` in its place. In backward `unpack` has to turn that
# object into a tensor of the same values and shape.
#
# `FullyShardedDataParallel` is a `ShardedModule`, with the same arguments and methods. It also has this **budget**:
#
# - P in all-gathers in forward, at most P in backward, P in reduce-scatters: 3P. One all-gather each way and one reduce-scatter for a
#   parameter, or fewer.
# - Besides its shards and their gradients a rank never holds more than half of a deep model, forward or
#   backward, parameters and gradients in full together: gather, use, free. After the step only shards and
#   their gradients are left.
#
# <details><summary>Hint 1: the idea</summary>
# For a gathered parameter let <code>pack</code> keep only a reference to its shard, and let
# <code>unpack</code> gather it again. When its gradient arrives in <code>Gather.backward</code>, its last use
# is over: free it. A frozen parameter is unpacked, but has no gradient: free it as soon as it is unpacked.
# </details>
# <details><summary>Hint 2: the skeleton</summary>
# <pre>def forward(self, *args, **kwargs):
#     with torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack):
#         return super().forward(*args, **kwargs)
# def _pack(self, tensor):       # a parameter in use: return (sharded, …), else the tensor itself
# def _unpack(self, kept):       # a tuple: gather again, make the same view, else the tensor itself
# def _reduce(self, sharded, gradient):   # free, then what ShardedModule does</pre>
# </details>
# <details><summary>Hint 3: a part of the solution</summary>
# <code>F.linear</code> saves <code>weight.t()</code>, a view. A view shares the memory of its tensor:
# <pre>if full.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr():
#     return sharded, tensor.size(), tensor.stride(), tensor.storage_offset()</pre>
# and <code>sharded.gathered().as_strided(size, stride, offset)</code> is the same view of the parameter that
# was gathered again.
# </details>


# %% nbgrader={"grade": false, "grade_id": "fully_sharded_data_parallel", "locked": false, "schema_version": 3, "solution": true, "task": false}
class FullyShardedDataParallel(ShardedModule):
    """Trains a module of which each rank holds a shard; backward gathers each parameter again (ZeRO-3)."""

    def forward(self, *args: object, **kwargs: object) -> object:
        """Call the module; autograd keeps no parameter for backward."""
        ### BEGIN SOLUTION
        with torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack):
            return super().forward(*args, **kwargs)

    def _pack(self, tensor: torch.Tensor) -> object:
        """Kept by autograd until backward: of a gathered parameter no more than how to find it again."""
        memory = tensor.untyped_storage().data_ptr()
        for sharded, full in self._in_use.items():
            if full.untyped_storage().data_ptr() == memory:
                return sharded, tensor.size(), tensor.stride(), tensor.storage_offset()
        return tensor

    def _unpack(self, kept: object) -> torch.Tensor:
        if isinstance(kept, torch.Tensor):
            return kept
        sharded, *view = kept
        tensor = sharded.gathered().as_strided(*view)
        if not sharded.shard.requires_grad:  # no gradient will tell when it is through
            sharded.free()
        return tensor

    def _reduce(self, sharded: ShardedParameter, gradient: torch.Tensor) -> None:
        sharded.free()
        super()._reduce(sharded, gradient)
        ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "fully_sharded_data_parallel_check", "locked": true, "points": 14, "schema_version": 3, "solution": false, "task": false}
check.fully_sharded_data_parallel(FullyShardedDataParallel)
### BEGIN HIDDEN TESTS
check.fully_sharded_data_parallel(FullyShardedDataParallel, world_sizes=(6,), seed=2504)
### END HIDDEN TESTS

# %% [markdown]
# ### 4d. Prefetch
#
# **Difficulty** ●●●○○ · **Importance** ●●●○○ · **about 45 minutes**
#
# So far a rank waits whenever a parameter is being gathered. But parameters are mostly needed in the same
# order in every step, in forward and in backward.
#
# `PrefetchingFullyShardedDataParallel` is a `FullyShardedDataParallel` that remembers the order of the last
# step. When a parameter is needed, it **starts** the all-gather of the one that comes next, before the layer
# computes, and does not wait for it until that one is needed. So from the second step on, in forward and in
# backward, each layer except the first is being gathered while the layer before it computes.
#
# **Budget:** as in 4c; within it you may also start more than one all-gather ahead. If a parameter was
# gathered unnecessarily, because this step uses other layers, wait for it and free it in
# `finish_gradient_synchronization()`, before an optimizer changes its shard.
#
# <details><summary>Hint 1: the idea</summary>
# Use a dictionary from each parameter to the one that was needed after it, one for forward and one for
# backward. It is never wrong for long, because each step updates it while it reads it.
# </details>
# <details><summary>Hint 2: the skeleton</summary>
# <pre>class Order:
#     def restart(self): ...            # at the beginning of a step: nothing was needed yet
#     def prefetch_after(self, sharded):  # note that it came after the latest; start what came after it last time</pre>
# Override <code>forward</code> (restart both orders), the method that gathers a parameter at its first read and
# <code>_unpack</code> (both prefetch), and <code>finish_gradient_synchronization</code>.
# </details>
# <details><summary>Hint 3: reduce-scatters, too</summary>
# You need not wait for them immediately, either. In <code>_reduce</code> free the parameter, wait for the
# reduce-scatters in flight until one is left, and start this one;
# <code>finish_gradient_synchronization()</code> waits for the rest.
# </details>


# %% nbgrader={"grade": false, "grade_id": "prefetching", "locked": false, "schema_version": 3, "solution": true, "task": false}
class PrefetchingFullyShardedDataParallel(FullyShardedDataParallel):
    """Starts to gather a parameter when the one before it is used, in the order of the step before."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        ### BEGIN SOLUTION
        self._forward_order, self._backward_order = Order(), Order()
        self._reducing: deque[ShardedParameter] = deque()
        ### END SOLUTION

    def forward(self, *args: object, **kwargs: object) -> object:
        """Call the module; the next parameter is on its way while one is used."""
        ### BEGIN SOLUTION
        self._forward_order.restart()
        self._backward_order.restart()
        return super().forward(*args, **kwargs)
        ### END SOLUTION

    def finish_gradient_synchronization(self) -> None:
        """Return when every gradient is there, and nothing is on its way."""
        ### BEGIN SOLUTION
        super().finish_gradient_synchronization()
        self._settle(in_flight=0)
        self._free(self._by_shard.values())  # those gathered in vain

    def _gather(self, sharded: ShardedParameter) -> torch.Tensor:
        full = super()._gather(sharded)
        self._forward_order.prefetch_after(sharded)
        return full

    def _unpack(self, kept: object) -> torch.Tensor:
        tensor = super()._unpack(kept)
        if not isinstance(kept, torch.Tensor):
            self._backward_order.prefetch_after(kept[0])
        return tensor

    def _reduce(self, sharded: ShardedParameter, gradient: torch.Tensor) -> None:
        sharded.free()
        self._settle(in_flight=1)
        sharded.start_reducing(gradient)
        self._reducing.append(sharded)

    def _settle(self, in_flight: int) -> None:
        """Wait for the oldest reduce-scatters, until only so many are in flight."""
        while len(self._reducing) > in_flight:
            self._reducing.popleft().finish_reducing()


class Order:
    """Remembers which parameter was needed after which, to tell what comes next."""

    def __init__(self) -> None:
        self._following: dict[ShardedParameter | None, ShardedParameter] = {}
        self._latest: ShardedParameter | None = None

    def restart(self) -> None:
        """Begin with the first parameter again."""
        self._latest = None

    def prefetch_after(self, sharded: ShardedParameter) -> None:
        """Start gathering what was needed after this one last time."""
        self._following[self._latest] = sharded
        self._latest = sharded
        if sharded in self._following:
            self._following[sharded].start_gathering()

    ### END SOLUTION


# %% [markdown]
# Watch it: two steps of eight layers. In which order are the layers gathered, and what has changed in the second step?


# %%
def try_shards(wrapper):
    torch.manual_seed(dist.get_rank())
    model = wrapper(nn.Sequential(*[nn.Linear(512, 512) for _ in range(8)]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(64, 512)).square().mean().backward()
        model.finish_gradient_synchronization()
        optimizer.step()
    return {name: tuple(parameter.shape) for name, parameter in list(model.named_parameters())[:2]}


with fourranks.world("gloo").trace() as trace:
    print(fourranks.world("gloo").run(try_shards, PrefetchingFullyShardedDataParallel)[0])
trace.timeline("two steps of a model that no rank holds")

# %% nbgrader={"grade": true, "grade_id": "prefetching_check", "locked": true, "points": 8, "schema_version": 3, "solution": false, "task": false}
check.prefetching_fully_sharded_data_parallel(PrefetchingFullyShardedDataParallel)
### BEGIN HIDDEN TESTS
check.prefetching_fully_sharded_data_parallel(
    PrefetchingFullyShardedDataParallel, world_sizes=(6,), seed=2507
)
### END HIDDEN TESTS

# %% [markdown]
# **Question 2 (graded by hand).** A model with P parameters is trained by ZeRO-3 on many GPUs, in bfloat16,
# with T tokens on each GPU in a step. Forward and backward take 6 · P · T floating-point operations a GPU, at
# F = 495 · 10¹² per second. How many bytes does a GPU receive in a step? And from how many tokens on can
# communication hide behind the computation
#
# - (a) with one GPU in each node, behind one network card of B = 50 GB/s,
# - (b) across nodes with eight GPUs and eight such cards, all of which a collective can use,
# - (c) inside one node, over NVLink's 450 GB/s?
#
# Does a larger model need more tokens? And what would you gain and lose if the parameters were kept from
# forward to backward, instead of being freed and gathered again?

# %% [markdown] nbgrader={"grade": true, "grade_id": "overlap_explained", "locked": false, "points": 6, "schema_version": 3, "solution": true, "task": false}
# **Answer to question 2**
#
# <!-- BEGIN SOLUTION -->
# All-gather in forward, all-gather in backward, reduce-scatter: 3 · P elements of 2
# bytes, times (N − 1)/N, which is nearly 1: 6P bytes, in 6P / B seconds. The computation takes 6PT / F. It is
# the longer of the two when T ≥ F / B. (a) 495 · 10¹² / (50 · 10⁹) ≈ **9,900 tokens** on each GPU. (b) Each
# card has to bring only an eighth of the bytes into the node, and NVLink hands them on: up to B = 8 · 50 =
# 400 GB/s for each GPU, about **1,240 tokens**. (c) 450 GB/s: about **1,100**. The size of the model cancels
# out: both sides grow with P. So the batch on each GPU decides. (It is a lower limit: the first all-gather
# and the last reduce-scatter have nothing to hide behind, and overlap is never perfect.)
#
# Kept parameters save the all-gather in backward: 2P of traffic, as much as data parallelism, so a third less. But at the end of forward each rank holds all parameters in full, in bfloat16 2P bytes, which
# is what ZeRO-3 took away; gradients, master weights and moments stay sharded. In memory it is ZeRO-2. PyTorch's `fully_shard(…, reshard_after_forward=False)` does that, and it is the right choice where the 16-bit parameters fit
# and the optimizer's state does not.
# <!-- END SOLUTION -->

# %% [markdown]
# ## What you have now
#
# - You computed how many bytes each stage keeps on a rank, and know that only stage 3 has no lower limit.
# - You sharded an optimizer's state: each parameter has one owner.
# - You sent each gradient to its owner during backward, and freed it on all other ranks.
# - You trained a model that no rank ever holds as a whole, gathered and freed layer by layer, with half the
#   bytes in bfloat16.
#
# Next: so far every rank computes with whole layers. *06 tensor parallelism* cuts the layers themselves.
