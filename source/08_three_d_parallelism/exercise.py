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
# # 08 3D parallelism: can you cut a model along three axes at the same time?
#
# Data parallelism cuts the batch, tensor parallelism the width, pipeline parallelism the depth. Large models are trained with all three. Here you
# build the mesh that keeps them apart, train one transformer on any mesh of it, and write the program that decides which mesh to take.
#
# You will
#
# - number ranks on a mesh, and make a process group for each line of it,
# - trade memory for computation: discard activations, and compute them again,
# - write one training step for every mesh of 4 or 8 ranks, with the losses of one process,
# - predict time and memory of a step on a cluster you do not have, and search for the best plan,
# - optionally cut the sequence, and send tokens to experts.
#
# 5 to 6 hours · 1 to 8 ranks (the checks start their own) · Gloo, no GPU needed
#
# [The lecture](../../lectures/08_three_d_parallelism/lecture.ipynb) has the ideas; here you build them. [Notation](../../docs/notation.md) · [cheat sheet](../../docs/cheat_sheet.md) · [glossary](../../docs/glossary.md) · [concept map](../../docs/concept_map.md)

# %% [markdown]
# ## Rules
#
# **You may use** everything in `torch.distributed`, but not `torch.distributed.device_mesh`,
# `torch.distributed.tensor`, `torch.distributed.nn`, `torch.distributed._functional_collectives`,
# `torch.distributed.pipelining`, `torch.distributed.fsdp`, `torch.nn.parallel`,
# `torch.utils.checkpoint.checkpoint`, `fourranks.plan` and `fourranks.learner.on_mesh`, which contain the
# answers. They are missing when a check runs your code, and the check watches what the ranks really send. In
# cells of your own you may compare with anything on your machine.
#
# **Parallel must equal serial.** The checks train the same model on the same batches in one process and compare every loss.
#
# **Wait for what you start.** Call `wait()` on the handle of every `isend`, `irecv` and call with `async_op=True`.
#
# **Reuse your code.** You need your answers to exercises 06 and 07 here: copy a function or class into the
# cell that needs it.
#
# Four names are given. Run `Mesh??` or `ModelConfig??` in a cell of its own to see the source.
#
# | name | is |
# |---|---|
# | `Mesh` | this rank's place: `data_group`, `pipeline_group`, `tensor_group`, its position in each (`data_rank`, `pipeline_rank`, `tensor_rank`), and a dict `state` for the values that it keeps between steps |
# | `ModelConfig` | the model's size (`characters`, `width`, `heads`, `blocks`), `num_microbatches`, `learning_rate`, `seed` |
# | `whole_model(config)` | the model of the lectures in float64, an `nn.Sequential`: an embedding, the blocks, a head. The same config gives the same parameters on every rank |
# | `share(model, config, rank, ranks, enter, leave)` | a tensor-parallel rank's share of it, again an `nn.Sequential`: in each block some heads and some hidden units, all the rest replicated. `enter` is applied to the input of attention and MLP, `leave` to the partial sum that they output |

# %% nbgrader={"grade": false, "grade_id": "setup", "locked": true, "schema_version": 3, "solution": false, "task": false}
# %load_ext fourranks

import itertools
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch import nn

import fourranks
from autograder import check
from autograder.on_paper import Cluster, Model, Plan, StepEstimate
from autograder.three_d import Mesh, ModelConfig, whole_model
from fourranks.learner.model import loss as mean_loss
from fourranks.learner.model import share

# %% [markdown]
# ## 1. A mesh
#
# **Difficulty** ●●○○○ · **Importance** ●●●●● · **about 25 minutes**
#
# `build_mesh(data, pipeline, tensor)` is called on every rank, and returns the `Mesh` of this rank. Ranks are numbered row by row, the tensor coordinate the fastest:
#
# rank = (data_rank · pipeline + pipeline_rank) · tensor + tensor_rank
#
# ```
# 2 × 2 × 2          tensor 0   tensor 1
# data 0  stage 0       0          1           tensor group of rank 5:    4, 5
#         stage 1       2          3           pipeline group of rank 5:  5, 7
# data 1  stage 0       4          5           data group of rank 5:      1, 5
#         stage 1       6          7
# ```
#
# | | |
# |---|---|
# | groups | the members of each differ in one coordinate only, and are in ascending order |
# | raises | `ValueError` when data · pipeline · tensor is not the number of ranks; its text has both numbers |
#
# **Budget:** `dist.new_group` once for each line of the mesh: p·t data groups, d·t pipeline groups, d·p tensor groups.
#
# `dist.new_group(ranks)` has two rules. *Every* rank calls it, even those that are not members; and all ranks
# make the same calls in the same order. A rank that is not a member gets no group.
#
# <details><summary>Hint 1</summary>
# <code>itertools.product(range(data), range(pipeline), range(tensor))</code> gives the coordinates of all ranks, in the order of ranks.
# </details>
# <details><summary>Hint 2</summary>
# Two ranks are on the same line of an axis when their coordinates are equal once this axis is left out. Go through all lines of an axis, make a group of each, and keep the one that has
# this rank in it.
# </details>


# %% nbgrader={"grade": false, "grade_id": "build_mesh", "locked": false, "schema_version": 3, "solution": true, "task": false}
def build_mesh(data: int, pipeline: int, tensor: int) -> Mesh:
    """Make the process groups of a mesh, and return this rank's place on it."""
    ### BEGIN SOLUTION
    size, world_size = data * pipeline * tensor, dist.get_world_size()
    if size != world_size:
        raise ValueError(
            f"a mesh of {data} x {pipeline} x {tensor} has {size} ranks, but there are {world_size}: "
            "choose sizes whose product is the number of ranks"
        )
    places = list(itertools.product(range(data), range(pipeline), range(tensor)))
    groups = [group_along(axis, places) for axis in range(3)]
    return Mesh(*groups, *places[dist.get_rank()])


def group_along(axis: int, places: list[tuple[int, ...]]) -> dist.ProcessGroup:
    """Make a group of each line along an axis, and return this rank's own."""
    lines: dict[tuple[int, ...], list[int]] = {}
    for rank, place in enumerate(places):
        lines.setdefault(place[:axis] + place[axis + 1 :], []).append(rank)
    for ranks in lines.values():
        group = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            own = group
    return own
    ### END SOLUTION


# %% [markdown]
# Try it on eight ranks. With which ranks does rank 5 average gradients?


# %%
def show_place(build_mesh):
    mesh = build_mesh(2, 2, 2)
    groups = mesh.data_group, mesh.pipeline_group, mesh.tensor_group
    return [dist.get_process_group_ranks(group) for group in groups]


for place_rank, members in enumerate(fourranks.run(show_place, build_mesh, world_size=8)):
    print(f"rank {place_rank}: data {members[0]}, pipeline {members[1]}, tensor {members[2]}")

# %% nbgrader={"grade": true, "grade_id": "build_mesh_check", "locked": true, "points": 8, "schema_version": 3, "solution": false, "task": false}
check.build_mesh(build_mesh)
### BEGIN HIDDEN TESTS
check.build_mesh(build_mesh, meshes=((1, 2, 4), (2, 1, 2), (3, 2, 1), (1, 8, 1), (2, 4, 1)), seed=2801)
### END HIDDEN TESTS

# %% [markdown]
# **Question 1 (graded by hand).** A transformer has 48 layers of width h = 8,192. It is trained with
# d = 8, p = 4, t = 8 on 256 H100s in nodes of 8, sequences of s = 4,096 tokens, one sequence in a microbatch, m = 16
# microbatches a step on each data-parallel rank, 16-bit activations and gradients, 12h² parameters a layer.
#
# - (a) How many bytes does each rank send in one step along each axis? Leave the embedding out.
# - (b) NVLink gives 450 GB/s, a network card 50 GB/s for each GPU. How long does each take, if the tensor
#   groups are inside a node, and how long would the tensor axis take across nodes?
# - (c) Which of the three can hide behind computing, and what does that say about the order of the axes?

# %% [markdown] nbgrader={"grade": true, "grade_id": "axes_and_links", "locked": false, "points": 8, "schema_version": 3, "solution": true, "task": false}
# **Answer to question 1**
#
# <!-- BEGIN SOLUTION -->
# (a) An activation of a microbatch is 4,096 · 8,192 · 2 bytes = 67.1 MB. Tensor: 12 layers on a stage, 16 microbatches, 4 all-reduces each, 2 · 7/8 · 67.1 MB = 117 MB for one: 768 · 117 MB = 90.2 GB. Pipeline: a stage
# in the middle sends each microbatch on once and each gradient back once, 32 · 67.1 MB = 2.1 GB (less with tensor parallelism, if each rank sends only an eighth: 0.27 GB). Data: a rank has 12 · 12 · 8,192² / 8 = 1.21 · 10⁹
# parameters; 2 · 7/8 · 2 bytes · 1.21 · 10⁹ = 4.2 GB.
#
# (b) Tensor 90.2 / 450 = 0.20 s inside a node, 90.2 / 50 = 1.8 s across nodes. Pipeline 2.1 / 50 = 0.04 s, data 4.2 / 50 = 0.085 s over the network.
#
# (c) The messages between stages can hide behind the computing of other microbatches, and the gradients' all-reduce behind the last backward. The all-reduces of tensor parallelism are needed at once: the next layer waits for
# the sum. So the axis with most bytes is also the one that nothing hides: it gets the fastest links, and its
# coordinate changes fastest, so that its ranks are neighbours in a node. The other two may cross nodes.
#
# (a) 3 points, (b) 2, (c) 3.
# <!-- END SOLUTION -->

# %% [markdown]
# ## 2. Discard, and compute again
#
# **Difficulty** ●●●○○ · **Importance** ●●●●○ · **about 45 minutes**
#
# A layer keeps the tensors that its backward needs. *Activation checkpointing* keeps only the layer's input,
# and repeats the forward when backward reaches the layer. That takes the memory of one tensor a layer, and a
# third more computation.
#
# `checkpointed(function, *args)` returns what `function(*args)` returns.
#
# | | |
# |---|---|
# | `args` | tensors or anything else; the result is a tensor, or a tuple of tensors |
# | gradients | those of a plain call, for the arguments and for all parameters that the function uses, **also when no argument requires a gradient** |
# | random numbers | the second forward draws the same numbers as the first. Numbers drawn later are the same as without checkpointing |
# | under `torch.no_grad()` | a plain call |
#
# **Budget:** between forward and backward none of the function's intermediate results is in memory; the
# function is called once in forward and once in backward.
#
# There are two ways to do that. Either write a `torch.autograd.Function`: forward runs the function without a
# graph, backward runs it again with one, and goes back through that. Or use
# `torch.autograd.graph.saved_tensors_hooks(pack, unpack)`: autograd calls `pack` with each tensor that it
# wants to keep, and, when it needs the tensor, `unpack` with the object that `pack` returned. `pack` may
# return the tensor's number, and `unpack` may compute everything again.
#
# <details><summary>Hint 1: random numbers</summary>
# <code>torch.get_rng_state()</code> before the first forward, <code>torch.set_rng_state(state)</code> before the second, inside <code>with torch.random.fork_rng(devices=[])</code>, which puts
# back the state that was there before.
# </details>
# <details><summary>Hint 2: with hooks</summary>
# The second forward saves the same tensors in the same order. Run it under hooks whose <code>pack</code> appends to a list: the n-th tensor of the list is the n-th that the first forward wanted to keep.
# </details>
# <details><summary>Hint 3: with a Function</summary>
# <code>apply</code> is recorded only if a tensor among its arguments requires a gradient. <code>torch.empty(0, requires_grad=True)</code> is one that does. In backward: detach the arguments, let them require gradients as before,
# call the function under <code>torch.enable_grad()</code>, then <code>torch.autograd.backward(results, gradients)</code>; return the arguments' <code>.grad</code>.
# </details>


# %% nbgrader={"grade": false, "grade_id": "checkpointed", "locked": false, "schema_version": 3, "solution": true, "task": false}
def checkpointed(function: Callable, *args: object) -> object:
    """Call a function, forget its activations, and compute them again for backward."""
    ### BEGIN SOLUTION
    random_state = torch.get_rng_state()
    places = itertools.count()
    computed: list[torch.Tensor] = []

    def compute_again():
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            torch.set_rng_state(random_state)
            with torch.autograd.graph.saved_tensors_hooks(
                lambda t: computed.append(t.detach()), lambda _: None
            ):
                function(*args)

    def unpack(place):
        if not computed:
            compute_again()
        return computed[place]

    with torch.autograd.graph.saved_tensors_hooks(lambda _: next(places), unpack):
        return function(*args)
    ### END SOLUTION


# %% [markdown]
# When is the layer computed? And is the gradient the same as without checkpointing?

# %%
layer, calls = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Dropout(0.5), nn.Linear(256, 64)), []


def watched_layer(x):
    calls.append("forward")
    return layer(x)


x = torch.randn(8, 64)
for name, call in (("plain", watched_layer), ("checkpointed", lambda x: checkpointed(watched_layer, x))):
    torch.manual_seed(0)
    layer.zero_grad()
    calls.clear()
    y = call(x)
    calls.append("loss")
    y.square().sum().backward()
    print(f"{name}: {' → '.join(calls)}, gradient {layer[0].weight.grad.norm():.6f}")

# %% nbgrader={"grade": true, "grade_id": "checkpointed_check", "locked": true, "points": 10, "schema_version": 3, "solution": false, "task": false}
check.checkpointed(checkpointed)
### BEGIN HIDDEN TESTS
check.checkpointed(checkpointed, num_layers=(2, 5), seed=2802)
### END HIDDEN TESTS

# %% [markdown]
# ## 3. One step on any mesh
#
# **Difficulty** ●●●●● · **Importance** ●●●●● · **about 120 minutes**
#
# `train_step(model_config, mesh, batch)` trains `whole_model(model_config)` for one step, together with all other ranks of the mesh. It is called step after step with the same mesh: the
# first call builds what this rank needs, and keeps it in `mesh.state`.
#
# | | |
# |---|---|
# | `batch` | `(inputs, targets)`, this data-parallel rank's rows of the batch: two int64 tensors (rows, context). **Only the first stage has inputs and only the last has targets**; elsewhere they are filled with −1. All ranks of a tensor group have the same rows |
# | microbatches | the rows in `num_microbatches` equal parts, as `tensor.chunk` cuts them |
# | stages | the blocks are divided evenly, in order; the embedding is on the first stage, the head on the last |
# | shares | heads and hidden units are divided over the tensor group by `share`; embedding, norms and head are replicated there |
# | loss | `mean_loss(scores, targets)` of the lectures; the loss of a step is its mean over the whole batch, before the step |
# | the step | parameter −= learning_rate · gradient. It is plain SGD for a reason: Adam divides a gradient by its own size, and would hide a gradient that is twice too large |
# | returns | the loss of the whole batch as a Python float, not rounded to float32 on its way, **on every rank** |
#
# **Budget**, for each rank:
#
# - it holds the parameters of its own stage and share, and no others (`share` may make the whole model for a moment;
#   in a check `whole_model` fills the parts of other ranks with other numbers);
# - along the tensor axis two all-reduces of an activation for each block and microbatch forward, and two backward;
# - along the pipeline axis one activation for each microbatch down, and one gradient up;
# - along the data axis the gradients of its own parameters are all-reduced once, in one call or in several;
# - apart from these only calls of at most 64 bytes, for the loss.
#
# Four test cells follow, each with different meshes, so you can add one axis at a time.
#
# <details><summary>Hint 1: the idea</summary>
# Each axis has its own place in the step. The tensor axis is inside the blocks, in <code>enter</code> and
# <code>leave</code>. The pipeline axis is between stages, in their inputs and outputs. The data axis comes
# after the last backward: average the gradients. On an axis with one rank nothing has to be done.
# </details>
# <details><summary>Hint 2: the skeleton</summary>
# <pre>at the first call: take this rank's share of the model, and cut its stage out of it
# for each microbatch: take the inputs, or receive them; run the stage; send what comes out, or compute the loss
# for each microbatch: go back from the loss, or from a gradient that is received; send the gradient of the input
# wait for all sends
# bring the loss to all ranks, average the gradients over the data group, and step</pre>
# </details>
# <details><summary>Hint 3: a part of the solution</summary>
# The backward of one microbatch, on a stage that is neither first nor last:
# <pre>dist.recv(gradient, group=mesh.pipeline_group, group_src=mesh.pipeline_rank + 1)
# outputs.backward(gradient)
# handles.append(dist.isend(inputs.grad, group=mesh.pipeline_group, group_dst=mesh.pipeline_rank - 1))</pre>
# Each microbatch's loss is divided by the number of microbatches before its backward.
# </details>
# <details><summary>Hint 4: the tensor axis</summary>
# <code>enter</code> and <code>leave</code> are Megatron's f and g, <code>copy_to_ranks</code> and <code>reduce_from_ranks</code> of exercise 06, for the tensor group. Gradients of replicated parameters come out the same on all ranks of the group.
# </details>
# <details><summary>Hint 5: the pipeline axis</summary>
# <code>model[first:last]</code> is an <code>nn.Sequential</code>, too. GPipe is enough: all forwards, then all backwards. A stage that is not the first receives an activation (rows of a microbatch, context, width) in float64 and calls
# <code>requires_grad_()</code> on it; the gradient that goes back is its <code>.grad</code>. Send with <code>isend</code>, and keep handle and tensor until the end of the step.
# </details>
# <details><summary>Hint 6: the loss</summary>
# Stages other than the last contribute a zero: an all-reduce over the pipeline group, and one over the data group.
# </details>


# %% nbgrader={"grade": false, "grade_id": "train_step", "locked": false, "schema_version": 3, "solution": true, "task": false}
def train_step(model_config: ModelConfig, mesh: Mesh, batch: tuple[torch.Tensor, torch.Tensor]) -> float:
    """Take one step of training with all ranks of a mesh, and return the loss of the whole batch."""
    ### BEGIN SOLUTION
    if "stage" not in mesh.state:
        mesh.state["stage"] = build_stage(model_config, mesh)
    stage: nn.Sequential = mesh.state["stage"]
    stage.zero_grad()
    m = model_config.num_microbatches
    microbatches = list(zip(*[tensor.chunk(m) for tensor in batch], strict=True))
    loss = run_microbatches(stage, model_config, mesh, microbatches)
    dist.all_reduce(loss, group=mesh.pipeline_group)
    dist.all_reduce(loss, group=mesh.data_group)
    data = dist.get_world_size(mesh.data_group)
    gradients = nn.utils.parameters_to_vector(parameter.grad for parameter in stage.parameters())
    dist.all_reduce(gradients, group=mesh.data_group)
    with torch.no_grad():
        before = nn.utils.parameters_to_vector(stage.parameters())
        after = before - model_config.learning_rate * gradients / data
        nn.utils.vector_to_parameters(after, stage.parameters())
    return loss.item() / data


def build_stage(config: ModelConfig, mesh: Mesh) -> nn.Sequential:
    """Return this rank's share of its stage of the model."""
    tensor, pipeline = (dist.get_world_size(group) for group in (mesh.tensor_group, mesh.pipeline_group))
    model = share(
        whole_model(config),
        config,
        mesh.tensor_rank,
        tensor,
        enter=lambda x: CopyToRanks.apply(x, mesh.tensor_group),
        leave=lambda x: ReduceFromRanks.apply(x, mesh.tensor_group),
    )
    blocks = config.blocks // pipeline
    first = 1 + mesh.pipeline_rank * blocks if mesh.pipeline_rank else 0
    last = len(model) if mesh.pipeline_rank == pipeline - 1 else 1 + (mesh.pipeline_rank + 1) * blocks
    return model[first:last]


class CopyToRanks(torch.autograd.Function):
    """Hand an activation to all ranks of a group; sum their gradients in backward."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        total = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=ctx.group)
        return total, None


class ReduceFromRanks(torch.autograd.Function):
    """Sum the partial sums of a group; the gradient passes as it is."""

    @staticmethod
    def forward(ctx, x, group):
        total = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def run_microbatches(
    stage: nn.Sequential,
    config: ModelConfig,
    mesh: Mesh,
    microbatches: list[tuple[torch.Tensor, torch.Tensor]],
) -> torch.Tensor:
    """Do all forwards and then all backwards; return the loss on the last stage and zero elsewhere."""
    group, at = mesh.pipeline_group, mesh.pipeline_rank
    is_first, is_last = at == 0, at == dist.get_world_size(group) - 1
    loss = torch.zeros((), dtype=torch.float64)
    sending, alive = [], []
    for inputs, targets in microbatches:
        x = inputs if is_first else receive(config, inputs.shape, group, at - 1).requires_grad_()
        y = stage(x)
        if is_last:
            y = mean_loss(y, targets) / len(microbatches)
            loss += y.detach()
        else:
            sending.append(send(y.detach(), group, at + 1))
        alive.append((x, y))
    for (inputs, _), (x, y) in zip(microbatches, alive, strict=True):
        y.backward(None if is_last else receive(config, inputs.shape, group, at + 1))
        if not is_first:
            sending.append(send(x.grad, group, at - 1))
    for _, work in sending:
        work.wait()
    return loss


def send(tensor: torch.Tensor, group: dist.ProcessGroup, stage: int) -> tuple[torch.Tensor, dist.Work]:
    """Begin to send a tensor to a stage; it stays alive together with the handle."""
    tensor = tensor.contiguous()
    return tensor, dist.isend(tensor, group=group, group_dst=stage)


def receive(config: ModelConfig, shape: torch.Size, group: dist.ProcessGroup, stage: int) -> torch.Tensor:
    """Wait for an activation of so many rows and tokens, or for the gradient of one."""
    tensor = torch.empty(*shape, config.width, dtype=torch.float64)
    dist.recv(tensor, group=group, group_src=stage)
    return tensor
    ### END SOLUTION


# %% [markdown]
# Try it on four ranks before you run the checks: eight steps on the same batch, under three meshes. Are the
# losses equal, and do they fall?


# %%
def train_on(build_mesh, train_step, sizes):
    config = ModelConfig(characters=11, width=16, heads=4, blocks=4)
    generator = torch.Generator().manual_seed(0)
    inputs, targets = torch.randint(11, (2, 8, 5), generator=generator)
    mesh = build_mesh(*sizes)
    rows = [tensor.chunk(sizes[0])[mesh.data_rank] for tensor in (inputs, targets)]
    return [train_step(config, mesh, rows) for _ in range(8)]


for sizes in ((4, 1, 1), (1, 1, 4), (1, 2, 2)):
    losses = fourranks.world("gloo").run(train_on, build_mesh, train_step, sizes)[0]
    print(f"{sizes}:", *[f"{loss:.9f}" for loss in losses[:4]], "...", f"{losses[-1]:.9f}")

# %% [markdown]
# The data axis:

# %% nbgrader={"grade": true, "grade_id": "train_step_data_check", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
check.train_step(train_step, meshes=((4, 1, 1),))
### BEGIN HIDDEN TESTS
check.train_step(train_step, meshes=((3, 1, 1), (8, 1, 1)), steps=5, seed=2803)
### END HIDDEN TESTS

# %% [markdown]
# The tensor axis:

# %% nbgrader={"grade": true, "grade_id": "train_step_tensor_check", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
check.train_step(train_step, meshes=((1, 1, 4),))
### BEGIN HIDDEN TESTS
check.train_step(train_step, meshes=((1, 1, 3), (1, 1, 8)), steps=5, seed=2804)
### END HIDDEN TESTS

# %% [markdown]
# The pipeline axis:

# %% nbgrader={"grade": true, "grade_id": "train_step_pipeline_check", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
check.train_step(train_step, meshes=((1, 4, 1),))
### BEGIN HIDDEN TESTS
check.train_step(train_step, meshes=((1, 3, 1), (1, 8, 1)), steps=5, seed=2805)
### END HIDDEN TESTS

# %% [markdown]
# All of them together, on 4 and on 8 ranks:

# %% nbgrader={"grade": true, "grade_id": "train_step_check", "locked": true, "points": 10, "schema_version": 3, "solution": false, "task": false}
check.train_step(train_step)
### BEGIN HIDDEN TESTS
check.train_step(train_step, meshes=((1, 2, 3), (2, 1, 4), (4, 2, 1), (2, 2, 2)), steps=6, seed=2806)
### END HIDDEN TESTS

# %% [markdown]
# **Question 2 (graded by hand).** On a mesh of 2 × 2 × 2 the operating system stops one process, rank 3, in
# the middle of a step: the process does not die, but it makes no more progress.
#
# - (a) Which ranks wait first, and in which call? Name them by group.
# - (b) Which ranks wait next, and in the end?
# - (c) Every other rank's trace shows a call that has not finished. How do you find rank 3 from these seven
#   calls?

# %% [markdown] nbgrader={"grade": true, "grade_id": "a_mesh_that_waits", "locked": false, "points": 6, "schema_version": 3, "solution": true, "task": false}
# **Answer to question 2**
#
# <!-- BEGIN SOLUTION -->
# Rank 3 is data 0, stage 1, tensor 1. (a) Rank 2, its partner in the tensor group, in the next all-reduce of an activation. Rank 1 as soon as it needs what stage 1 of its pipeline group sends (a gradient), or waits for an isend of its own to be
# received. (b) Rank 0 waits next: for the gradient that rank 2 no longer computes, or in an all-reduce with
# rank 1. The other data-parallel half, ranks 4 to 7, goes on until the end of its backward: then all four
# wait in the data groups' all-reduces, for ranks 0 to 3. All ranks wait. (c) Follow the waits: ranks 4 to 7
# wait in data groups for ranks 0 to 3, which have not come to that call; 0 and 1 wait for stage 1, rank 2
# waits in the tensor group for rank 3. Every chain ends at a rank for which others wait and which is itself
# in no call (or in the oldest one). Sequence numbers show the same: in each group, look for the rank that has
# begun the fewest calls.
#
# 2 points each.
# <!-- END SOLUTION -->

# %% [markdown]
# ## 4. A step on paper
#
# **Difficulty** ●●●○○ · **Importance** ●●●●○ · **about 70 minutes**
#
# Which mesh is best on a cluster that you do not have? `estimate_step(model, cluster, plan)` predicts a step, in parts, as a `StepEstimate`. Its `seconds` are the sum of the five times.
#
# | given | fields |
# |---|---|
# | `Model` | `num_layers` L, `width` h, `num_heads`, `vocabulary` V, `sequence` s, `batch`: sequences of a step |
# | `Cluster` | `num_gpus` N, `gpus_per_node`, `flops` F that a GPU attains, `memory` of a GPU in bytes, `node_bandwidth` and `network_bandwidth` B in bytes a second for each GPU and direction, `latency` α of a message in seconds |
# | `Plan` | `data` d, `pipeline` p, `tensor` t, `num_microbatches` m, `recompute`: whether layers keep their inputs only |
#
# A microbatch has b = batch / (d·m) sequences; a rank has L/p layers, and (12·h²·L/p + V·h) / t parameters. Activations, weights and gradients take 2 bytes an element.
#
# | field | is |
# |---|---|
# | `compute` | batch · (k · L · (24·s·h² + 4·s²·h) + 3 · 2·s·h·V) / (N·F) with k = 3 passes, one forward and a backward that counts twice; with recompute k = 4 |
# | `tensor` | 4 all-reduces (6 with recompute) of 2·b·s·h bytes for each layer of a rank and each microbatch; an all-reduce of S bytes over n ranks takes 2(n−1) · (α + S/(n·B)) |
# | `bubble` | (p−1)/m · (`compute` + `tensor`) |
# | `pipeline` | 2·m messages of S = 2·b·s·h bytes, α + S/B each; 0 if p = 1 |
# | `data` | one all-reduce of 2 bytes for each of a rank's parameters over d ranks |
# | `memory` | 4 bytes a parameter of the rank, and 12/d for the optimizer's state (ZeRO-1). And the activations: min(p, m) microbatches in flight, for each of them b·s·h·(10 + 24/t) bytes a layer; with recompute 2·b·s·h bytes a layer, and once b·s·h·(10 + 24/t) |
# | `B` | that of the node if the group's ranks can be in one node, else the network's. Ranks are numbered as in part 1: a tensor group spans t consecutive ranks, neighbours in a pipeline lie within p·t, a data group spans all N. They fit into a node if that is at most `gpus_per_node` |
#
# Raise a `ValueError` with both numbers when d·p·t is not N, p does not divide L, t does not divide the heads, or d·m does not divide the batch.
#
# <details><summary>Hint</summary>
# Two small functions help: the bandwidth of a group by the ranks that it spans, and the seconds of an all-reduce.
# </details>


# %% nbgrader={"grade": false, "grade_id": "estimate_step", "locked": false, "schema_version": 3, "solution": true, "task": false}
def estimate_step(model: Model, cluster: Cluster, plan: Plan) -> StepEstimate:
    """Predict seconds and bytes of one training step."""
    ### BEGIN SOLUTION
    refuse_what_does_not_divide(model, cluster, plan)
    d, p, t, m = plan.data, plan.pipeline, plan.tensor, plan.num_microbatches
    layers, s, h = model.num_layers // p, model.sequence, model.width
    activation = model.batch // (d * m) * s * h  # elements
    parameters = (12 * h**2 * layers + model.vocabulary * h) / t

    def bandwidth(span: int) -> float:
        return cluster.node_bandwidth if span <= cluster.gpus_per_node else cluster.network_bandwidth

    def message(nbytes: float, span: int) -> float:
        return cluster.latency + nbytes / bandwidth(span)

    def all_reduce(ranks: int, nbytes: float, span: int) -> float:
        return 2 * (ranks - 1) * message(nbytes / ranks, span)

    passes, all_reduces = (4, 6) if plan.recompute else (3, 4)
    flops = passes * model.num_layers * (24 * s * h**2 + 4 * s**2 * h) + 3 * 2 * s * h * model.vocabulary
    compute = model.batch * flops / (cluster.num_gpus * cluster.flops)
    tensor = all_reduces * layers * m * all_reduce(t, 2 * activation, t)
    in_flight, layer = min(p, m) * layers, activation * (10 + 24 / t)
    kept = in_flight * 2 * activation + layer if plan.recompute else in_flight * layer
    return StepEstimate(
        compute=compute,
        tensor=tensor,
        bubble=(p - 1) / m * (compute + tensor),
        pipeline=2 * m * message(2 * activation, p * t) if p > 1 else 0.0,
        data=all_reduce(d, 2 * parameters, cluster.num_gpus),
        memory=4 * parameters + 12 * parameters / d + kept,
    )


def refuse_what_does_not_divide(model: Model, cluster: Cluster, plan: Plan) -> None:
    """Raise a ValueError with two numbers that do not fit."""
    gpus = plan.data * plan.pipeline * plan.tensor
    if gpus != cluster.num_gpus:
        raise ValueError(f"the plan is for {gpus} GPUs, the cluster has {cluster.num_gpus}")
    for what, number, parts in (
        ("layers", model.num_layers, plan.pipeline),
        ("heads", model.num_heads, plan.tensor),
        ("sequences", model.batch, plan.data * plan.num_microbatches),
    ):
        if number % parts:
            raise ValueError(f"{number} {what} do not divide into {parts} equal parts")
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "estimate_step_check", "locked": true, "points": 10, "schema_version": 3, "solution": false, "task": false}
check.estimate_step(estimate_step)
### BEGIN HIDDEN TESTS
check.estimate_step(estimate_step, cases=60, seed=2807)
### END HIDDEN TESTS

# %% [markdown]
# `best_plan(model, cluster)` returns the plan that fits into the cluster's memory and takes the least `seconds`.
#
# - Go through every possible plan: all sizes of the axes, all numbers of microbatches that divide, with and
#   without recompute. For 1,024 GPUs there are some thousands.
# - If none fits, raise a `ValueError` with the GB that a GPU has and the least that any plan needs.
# - On 7 GPUs there may be no plan at all, because nothing divides. Then raise a `ValueError` with the number of
#   GPUs.


# %% nbgrader={"grade": false, "grade_id": "best_plan", "locked": false, "schema_version": 3, "solution": true, "task": false}
def best_plan(model: Model, cluster: Cluster) -> Plan:
    """Return the plan that fits and is predicted to be the fastest."""
    ### BEGIN SOLUTION
    estimates = {plan: estimate_step(model, cluster, plan) for plan in all_plans(model, cluster)}
    if not estimates:
        raise ValueError(
            f"the model's layers, heads and sequences do not divide over {cluster.num_gpus} GPUs"
        )
    fitting = [plan for plan, estimate in estimates.items() if estimate.memory <= cluster.memory]
    if not fitting:
        least = min(estimate.memory for estimate in estimates.values())
        raise ValueError(
            f"no plan fits: a GPU has {cluster.memory / 1e9:.1f} GB, and every plan takes at least "
            f"{least / 1e9:.1f} GB. Take more GPUs, or a smaller model"
        )
    return min(fitting, key=lambda plan: estimates[plan].seconds)


def all_plans(model: Model, cluster: Cluster) -> Iterator[Plan]:
    """Every plan that is possible."""
    for pipeline, tensor in itertools.product(divisors(model.num_layers), divisors(model.num_heads)):
        data, left = divmod(cluster.num_gpus, pipeline * tensor)
        if left or model.batch % data:
            continue
        for num_microbatches in divisors(model.batch // data):
            yield Plan(data, pipeline, tensor, num_microbatches, recompute=False)
            yield Plan(data, pipeline, tensor, num_microbatches, recompute=True)


def divisors(number: int) -> list[int]:
    """The numbers that divide this one."""
    return [size for size in range(1, number + 1) if number % size == 0]
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "best_plan_check", "locked": true, "points": 8, "schema_version": 3, "solution": false, "task": false}
check.best_plan(best_plan)
### BEGIN HIDDEN TESTS
check.best_plan(best_plan, cases=12, seed=2808)
### END HIDDEN TESTS

# %% [markdown]
# Now use it: a model of 22 billion parameters on a node of eight H100s, and one of 175 billion on 1,024 of
# them. `fourranks plan` models more than yours: kernels that do not fill the GPU, overlap, ZeRO-3. Does it
# choose the same plans?

# %%
from fourranks.plan import cluster as paper
from fourranks.plan import search, transformer

h100 = {
    "flops": 0.5 * 989e12,
    "memory": 0.92 * 80e9,
    "node_bandwidth": 0.75 * 450e9,
    "network_bandwidth": 0.65 * 50e9,
    "latency": 10e-6,
}
for name, num_gpus, per_node, num_sequences in (("gpt-22b", 8, 8, 64), ("gpt3-175b", 1024, 8, 1536)):
    known = transformer.find_model(name)
    model = Model(known.layers, known.hidden, known.heads, known.vocabulary, known.sequence, num_sequences)
    cluster = Cluster(num_gpus, per_node, **h100)
    own = best_plan(model, cluster)
    print(f"{name} on {num_gpus} H100: {own}, {estimate_step(model, cluster, own).seconds:.2f} s")
    theirs = search.best_plan(known, paper.Cluster(paper.find_gpu("h100"), num_gpus, per_node), num_sequences)
    print(
        f"  fourranks plan: data {theirs.data}, pipeline {theirs.pipeline}, tensor {theirs.tensor}, "
        f"{theirs.microbatches} microbatches, ZeRO-{theirs.zero}, recompute {theirs.recompute}"
    )

# %% [markdown]
# **Question 3 (graded by hand).**
#
# - (a) Your model and `fourranks plan` need not choose the same plan. Name two effects that yours leaves out,
#   and say for each which axis looks better or worse than it is without it.
# - (b) A colleague says: "the largest t that fits into a node is always best". Give a case where your program
#   chooses another t, with the parts of both estimates.
# - (c) Recompute costs a third more computing. When does your program choose it although the model would fit
#   without it under another plan?

# %% [markdown] nbgrader={"grade": true, "grade_id": "plans_compared", "locked": false, "points": 8, "schema_version": 3, "solution": true, "task": false}
# **Answer to question 3**
#
# <!-- BEGIN SOLUTION -->
# (a) Two of: small matrices do not fill a GPU, so F falls with a large t and with a small b, and tensor
# parallelism and many microbatches look better than they are. Overlap: gradients hide behind backward and
# messages behind other microbatches, so the data and the pipeline axis look worse than they are. Unequal
# stages: the head and the embedding lie on the last and the first stage, and all wait for the slowest; the
# pipeline looks better than it is. ZeRO-3: with it data parallelism alone fits in many more cases, so
# without it the data axis looks worse than it is.
#
# (b) Any model that fits without tensor parallelism, with a batch large enough: the tensor axis costs 4
# all-reduces of activations a layer and microbatch, the data axis one of the gradients a step. An example has
# numbers from your own run: the sum of `tensor` and `data` for t = 8 against t = 1.
#
# (c) When the plans that fit without it cost more than a third of the computing: more pipeline stages with few microbatches have a larger bubble, a larger t has more all-reduces (across nodes, above all), and more but smaller microbatches are not possible
# when the batch is used up. An example is any cluster with slow links and a large batch.
#
# (a) 4 points, (b) 2, (c) 2.
# <!-- END SOLUTION -->

# %% [markdown]
# ## 5. Optional: cut the sequence
#
# **Difficulty** ●●●●○ · **Importance** ●●●○○ · **about 60 minutes** · optional
#
# A sequence of a million tokens does not fit on one GPU. *Context parallelism* cuts it: rank r has tokens r·s
# to (r+1)·s − 1, with their q, k and v. But each query has to look at every key before it. In *ring
# attention* (2310.01889) the blocks of k and v go round a ring: after N − 1 turns every rank has used every
# block, but never held more than one or two.
#
# `ring_attention(q, k, v, group, causal=True)`: q, k and v are this rank's blocks, (batch, heads, s, width of a head) in float64 here. The result is the attention of this rank's queries over the whole sequence, as
# `F.scaled_dot_product_attention` gives it: scores q·kᵀ/√(width of a head), softmax over all keys that a query may see, times v. With gradients for q, k and v.
#
# **A softmax in pieces.** For each query keep the largest score M so far, the sum Z of exp(score − M), and the sum of exp(score − M)·v. When a block brings a larger score, multiply both sums by exp(M_old − M_new) first. At the end divide.
#
# **Budget:** forward N − 1 times one block of k and one of v to the next rank, and to no other; backward at most twice as much, and one more block of each. No tensor larger than the scores of one block against one block, or than k and v of one block. No collectives.
#
# <details><summary>Hint 1: the idea</summary>
# A <code>torch.autograd.Function</code> whose forward passes a tensor to the next rank, and whose backward passes the gradient to the one before. All else autograd can do itself.
# </details>
# <details><summary>Hint 2: the skeleton</summary>
# Query i of rank r stands at r·s + i, key j of the block of rank o at o·s + j. After turn n the block is that
# of rank (r − n) mod N. Masked scores are −inf, and a block may be masked as a whole. Rank 0 must use it
# nevertheless, or autograd would not pass its gradient on, and the next rank would wait forever. Start with
# the rank's own block, in which every query has a key.
# </details>
# <details><summary>Hint 3: a part of the solution</summary>
# <code>dist.batch_isend_irecv</code> of an isend to the next and an irecv from the one before, with <code>group_peer=</code>. <code>torch.stack((k, v))</code> makes one message of two.
# </details>


# %% nbgrader={"grade": false, "grade_id": "ring_attention", "locked": false, "schema_version": 3, "solution": true, "task": false}
def ring_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, group: dist.ProcessGroup | None, causal: bool = True
) -> torch.Tensor:
    """Attention of this rank's queries over a sequence of which each rank has one block."""
    ### BEGIN SOLUTION
    rank, num_ranks = dist.get_rank(group), dist.get_world_size(group)
    places = torch.arange(q.shape[2], device=q.device)
    block = torch.stack((k, v))
    largest = q.new_full((*q.shape[:3], 1), -torch.inf)
    total, weighted = torch.zeros_like(largest), torch.zeros_like(q)
    for turn in range(num_ranks):
        if turn:
            block = PassOn.apply(block, group)
        owner = (rank - turn) % num_ranks
        scores = q @ block[0].transpose(-1, -2) / q.shape[-1] ** 0.5
        if causal:
            unseen = owner * len(places) + places > rank * len(places) + places[:, None]
            scores = scores.masked_fill(unseen, -torch.inf)
        new_largest = torch.maximum(largest, scores.detach().amax(-1, keepdim=True))
        weights, rescale = torch.exp(scores - new_largest), torch.exp(largest - new_largest)
        total = total * rescale + weights.sum(-1, keepdim=True)
        weighted = weighted * rescale + weights @ block[1]
        largest = new_largest
    return weighted / total


class PassOn(torch.autograd.Function):
    """Pass a tensor to the next rank of a ring; its gradient comes back."""

    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group = group
        return passed_on(tensor, group, 1)

    @staticmethod
    def backward(ctx, gradient):
        return passed_on(gradient, ctx.group, -1), None


def passed_on(tensor: torch.Tensor, group: dist.ProcessGroup | None, by: int) -> torch.Tensor:
    """The tensor of the rank so many places before, while this rank's own goes as far the other way."""
    rank, num_ranks = dist.get_rank(group), dist.get_world_size(group)
    arriving = torch.empty_like(tensor, memory_format=torch.contiguous_format)
    pair = [
        dist.P2POp(dist.isend, tensor.contiguous(), group=group, group_peer=(rank + by) % num_ranks),
        dist.P2POp(dist.irecv, arriving, group=group, group_peer=(rank - by) % num_ranks),
    ]
    for work in dist.batch_isend_irecv(pair):
        work.wait()
    return arriving
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "ring_attention_check", "locked": true, "points": 7, "schema_version": 3, "solution": false, "task": false}
check.ring_attention(ring_attention)
### BEGIN HIDDEN TESTS
check.ring_attention(ring_attention, world_sizes=(2, 5, 8), seed=2809)
### END HIDDEN TESTS

# %% [markdown]
# ## 6. Optional: experts
#
# **Difficulty** ●●●○○ · **Importance** ●●●○○ · **about 40 minutes** · optional
#
# A *mixture of experts* has many MLPs, and each token goes through one of them (or a few). With *expert parallelism* every rank has an expert; tokens travel to theirs, and the results travel back: two all-to-alls.
#
# `dispatch_to_experts(tokens, assignment, group)` is called on every rank with its own tokens (n, width) and for each of them the position in the group of its expert's rank, int64 (n,). n differs from rank to rank, and may be 0. It returns a pair:
#
# | | |
# |---|---|
# | tokens for this rank's expert | those of rank 0 first, then those of rank 1, and so on; each rank's in the order in which it has them |
# | `combine(outputs)` | a function that is called on every rank with the expert's outputs for these tokens, row by row; it returns the outputs for this rank's own tokens (n, width), in their original order |
#
# Both have gradients: for the tokens, and for the parameters of the expert.
#
# **Budget:** a token is sent to its expert's rank and back, once in forward and once in backward. Apart from
# that only numbers of tokens are sent. At most six collectives in all.
#
# <details><summary>Hint 1: sorting</summary>
# <code>order = assignment.argsort(stable=True)</code> puts tokens of one expert together; <code>torch.bincount(assignment, minlength=N)</code> counts them. <code>results[order] = sorted_results</code> puts them back.
# </details>
# <details><summary>Hint 2: sizes</summary>
# <code>dist.all_to_all_single(output, input, output_split_sizes, input_split_sizes, group=group)</code>. A rank knows the sizes of its output only after the ranks have exchanged the numbers of tokens, by an all-to-all of N integers.
# </details>
# <details><summary>Hint 3: gradients</summary>
# An all-to-all as a <code>torch.autograd.Function</code>: its backward is an all-to-all with the two lists of sizes swapped.
# </details>


# %% nbgrader={"grade": false, "grade_id": "dispatch_to_experts", "locked": false, "schema_version": 3, "solution": true, "task": false}
def dispatch_to_experts(
    tokens: torch.Tensor, assignment: torch.Tensor, group: dist.ProcessGroup | None
) -> tuple[torch.Tensor, Callable[[torch.Tensor], torch.Tensor]]:
    """Send tokens to their experts' ranks; return this rank's expert's, and what takes results home."""
    ### BEGIN SOLUTION
    order = assignment.argsort(stable=True)
    leaving = torch.bincount(assignment, minlength=dist.get_world_size(group))
    arriving = torch.empty_like(leaving)
    dist.all_to_all_single(arriving, leaving, group=group)
    leaving, arriving = leaving.tolist(), arriving.tolist()

    def combine(outputs: torch.Tensor) -> torch.Tensor:
        at_home = AllToAll.apply(outputs, arriving, leaving, group)
        return torch.empty_like(at_home).index_copy(0, order, at_home)

    return AllToAll.apply(tokens[order], leaving, arriving, group), combine


class AllToAll(torch.autograd.Function):
    """Exchange rows with all ranks; the gradients of what came go back to where it came from."""

    @staticmethod
    def forward(ctx, rows, leaving, arriving, group):
        ctx.sizes, ctx.group = (arriving, leaving), group
        return exchanged(rows, leaving, arriving, group)

    @staticmethod
    def backward(ctx, gradient):
        return exchanged(gradient, *ctx.sizes, ctx.group), None, None, None


def exchanged(
    rows: torch.Tensor, leaving: list[int], arriving: list[int], group: dist.ProcessGroup | None
) -> torch.Tensor:
    """The rows that all ranks have for this one, for its own rows."""
    output = rows.new_empty(sum(arriving), *rows.shape[1:])
    dist.all_to_all_single(output, rows.contiguous(), arriving, leaving, group=group)
    return output
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "dispatch_to_experts_check", "locked": true, "points": 7, "schema_version": 3, "solution": false, "task": false}
check.dispatch_to_experts(dispatch_to_experts)
### BEGIN HIDDEN TESTS
check.dispatch_to_experts(dispatch_to_experts, world_sizes=(2, 5, 8), seed=2810)
### END HIDDEN TESTS

# %% [markdown]
# ## What you have now
#
# - You gave every rank a place on a mesh, with a group for each axis.
# - You traded memory for computation, and reproduced the random numbers.
# - You trained one model on every mesh, with the same losses, and within the budget of bytes of each axis.
# - You predicted steps on a thousand GPUs, and let a program choose the plan.
# - Perhaps you cut a sequence and sent tokens to experts: the fourth and the fifth axis.
