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
# # 08 3D parallelism: put it together
#
# **Batch, width and depth can each be cut. Which cuts does a large training run need, how many of each, and
# how do you choose?**
#
# You will
#
# - place four and eight real ranks on a mesh, each in three groups at the same time,
# - train the model that learns to write under five meshes, with one and the same loss curve, and count the bytes of each axis,
# - run torch's FSDP on two axes: hybrid sharding, and FSDP with tensor parallelism,
# - trade memory for computation with activation checkpointing,
# - see budgets of memory and time for a thousand GPUs, let a program choose the plan, and compare its
#   predictions with published runs,
# - cut a sequence over a ring of ranks, and send tokens to experts.
#
# 90 minutes · 4 and 8 ranks · Gloo on any laptop, NCCL on a machine with 4 GPUs
#
# [The exercise](../../exercises/08_three_d_parallelism/exercise.ipynb) · [notation](../../docs/notation.md) · [cheat sheet](../../docs/cheat_sheet.md) · [glossary](../../docs/glossary.md) · [concept map](../../docs/concept_map.md)
#
# As before, each run has a question and a variable for your answer.

# %%
# %load_ext fourranks
import sys

import fourranks
from fourranks.figures import compare, curves, finding, ledger, predicted, review

# %% [markdown]
# ## Before you begin
#
# Three questions about earlier lectures. Answer them from memory, in the list below; `None` works, too.

# %%
ledger.begin("08")

# %%
remembered = [None, None, None]  # your answers

# %%
ledger.answers(remembered)

# %% [markdown]
# ## 1. A mesh: three groups for every rank
#
# You know three of these four cuts by now; section 9 adds the fourth. Each has an axis:
#
# | cut | every rank has | sent | how much |
# |---|---|---|---|
# | batch (data) | the whole stage, different rows | gradients, or shards of weights and gradients | 2P or 3P elements a step, for the P parameters of a rank |
# | width (tensor) | a part of every layer | activations | four all-reduces a layer and microbatch |
# | depth (pipeline) | some layers | activations | one message a microbatch in each direction |
# | sequence (context) | different tokens of every sequence | keys and values | once round a ring, each layer |
#
# To combine them, number the ranks on a **mesh**. On a mesh of data × pipeline × tensor = 2 × 2 × 2 each of
# eight ranks has three coordinates, and belongs to three groups: each contains the ranks that differ from it
# in one coordinate only. A rank averages gradients with its data group, sends activations along its pipeline
# group, and sums partial sums in its tensor group. Torch makes all groups in one call.
#
# **Question.** Ranks are numbered row by row, the tensor coordinate the fastest. Which ranks share a data group with rank 5?

# %%
with_rank_5 = None  # your prediction: a list of ranks

# %%
# %ranks start -n 8
world = fourranks.world()

# %%
# %%ranks
from torch.distributed.device_mesh import init_device_mesh

axes = ("data", "pipeline", "tensor")
mesh = init_device_mesh(device.type, (2, 2, 2), mesh_dim_names=axes)
members = {axis: dist.get_process_group_ranks(mesh[axis].get_group()) for axis in axes}

# %%
places = world.pull("members")
for number, groups in enumerate(places):
    print(f"rank {number}: ", "   ".join(f"{axis} {ranks}" for axis, ranks in groups.items()))
print(predicted(with_rank_5, about="data group of rank 5", was=places[5]["data"]), places[5]["data"])

# %% [markdown]
# Are these really separate groups? To see it, each rank contributes its number to a sum along each axis: one
# `all_reduce` for each axis, on all eight ranks at the same time.

# %%
# %%ranks
for axis in axes:
    total = torch.tensor([float(rank)], device=device)
    dist.all_reduce(total, group=mesh[axis].get_group())
    print(f"{axis}: sum {total.item():.0f}", end="   ")

# %% [markdown]
# Why does the tensor coordinate change fastest? Launchers number the GPUs of a node consecutively, so
# neighbouring numbers are neighbours on NVLink. The axis with the most traffic, none of which can be hidden,
# gets the nearest ranks. `init_device_mesh` numbers in the order in which you name the axes. Megatron-LM and
# torchtitan put the pipeline in front of data: its messages are the smallest, so it may cross the slowest
# links.

# %% [markdown]
# ## 2. One model, five meshes, one loss curve
#
# `fourranks/learner/on_mesh.py` trains the model of the last lectures on any mesh: [read
# it](../../fourranks/learner/on_mesh.py), it is short, and every line that communicates names its axis.
# The exercise asks you to write your own. On each axis it does the same as lectures 04, 06 and 07:
#
# - **data**: each data-parallel rank draws its own rows of the batch, and gradients are averaged once a step;
# - **tensor**: each block has some of the heads and hidden units, with Megatron's f and g around attention and MLP;
# - **pipeline**: each stage has some of the blocks, and microbatches pass through them.
#
# **Question.** Four meshes of four ranks and one of eight. By how much will their losses differ from those of one process, at most, in 12 steps?

# %%
meshes_differ_by = None  # your prediction

# %%
# %ranks start
world = fourranks.world()

# %%
# %%ranks
import fourranks
from fourranks.learner.corpus import course
from fourranks.learner.model import Config
from fourranks.learner.on_mesh import MeshTraining

corpus = course()
config = Config(len(corpus.alphabet))
steps = 12


def train_on(sizes):
    """The losses of some steps on this mesh, and the training, which can go on."""
    training = MeshTraining(config, sizes, device=device)
    return [training.step(corpus, n) for n in fourranks.progress(range(steps), str(sizes))], training


# %%
# %%ranks
losses = {}
for sizes in ((1, 1, 4), (1, 4, 1), (2, 2, 1), (2, 1, 2)):
    losses[sizes], training = train_on(sizes)

# %% [markdown]
# One process for comparison, and then a mesh of eight ranks.

# %%
from fourranks.learner.corpus import course, write
from fourranks.learner.model import Config, joined, transformer
from fourranks.learner.training import train

corpus = course()
config = Config(len(corpus.alphabet))


def in_one_process(steps):
    import torch

    model = transformer(config)
    return train(model, torch.optim.AdamW(model.parameters(), lr=3e-3), corpus, range(steps))


def on_eight_ranks(steps):
    from fourranks.learner.on_mesh import MeshTraining

    training = MeshTraining(config, (2, 2, 2))
    return [training.step(corpus, number) for number in range(steps)]


lines = {"one process": fourranks.run(in_one_process, 12, world_size=1, backend="gloo")[0]}
lines |= {" × ".join(map(str, sizes)): own for sizes, own in world.pull("losses")[0].items()}
lines["2 × 2 × 2"] = fourranks.run(on_eight_ranks, 12, world_size=8, backend="gloo")[0]

# %%
curves(lines, title="Losses under data × pipeline × tensor meshes of 4 and 8 ranks")

# %%
apart = {
    name: max(abs(one - other) for one, other in zip(own, lines["one process"], strict=True))
    for name, own in lines.items()
    if name != "one process"
}
furthest = max(apart.values())
print(
    f"{predicted(meshes_differ_by, about='losses of meshes differ by', was=furthest)}at most {furthest:.1e}"
)
finding(
    furthest < 1e-2,
    f"No mesh's loss is further than {furthest:.0e} from that of one process, in {len(lines['one process'])} steps.",
    f"A mesh's loss is {furthest:.0e} away from that of one process.",
)

# %% [markdown]
# A mesh decides where numbers are stored and which ranks sum them, not what is computed. Only the last bits
# differ, because sums are in a different order. AdamW makes such differences grow for a while, since it
# divides a gradient by its own size.
#
# The last mesh, 2 × 1 × 2, trains for some more steps. Then we join the tensor shards of one data-parallel
# half to the whole model, and let it write.

# %%
# %%ranks
for number in fourranks.progress(range(12, 90), "2 × 1 × 2"):
    loss = training.step(corpus, number)
shares = {name: tensor.cpu() for name, tensor in training.stage.state_dict().items()}
print(f"loss {loss:.2f}")

# %%
writer = transformer(config)
writer.load_state_dict(joined(world.pull("shares", [0, 1])))
print(write(writer, corpus, "The mesh ", count=240, seed=3))

# %% [markdown]
# ## 3. What each axis sends
#
# A batch of 16 rows of 64 characters, width 160, four blocks, 1.29 million parameters in float32, four microbatches.
#
# **Question.** Which axis sends the most bytes a step on the mesh 2 × 1 × 2: data or tensor? And on a model a hundred times wider with the same batch?

# %%
most_bytes = {"this model": None, "100 times wider": None}  # your predictions, "data" or "tensor"

# %%
from fourranks.trace.bandwidth import busbw_factor, message_size

MESHES = [(4, 1, 1), (1, 4, 1), (1, 1, 4), (2, 2, 1), (2, 1, 2), (1, 2, 2)]


def sent_along(calls, groups):
    """MiB that a rank sends in each group; a collective counts with what a ring sends from each rank."""
    found = dict.fromkeys(groups, 0.0)
    for call in calls:
        axis = next((axis for axis, ranks in groups.items() if set(call.ranks) == set(ranks)), None)
        if axis and call.op != "recv":
            size = message_size(call.op, [call.nbytes] * len(call.ranks))
            found[axis] += busbw_factor(call.op, len(call.ranks)) * size / 2**20
    return found


# %%
traffic = {}
for sizes in MESHES:
    world.execute(f"training = MeshTraining(config, {sizes}, device=device)")
    world.execute(
        "groups = [dist.get_process_group_ranks(g) for g in (training.data, training.pipeline, training.tensor)]"
    )
    with world.trace() as trace:
        world.execute("training.step(corpus, 0)")
    own = {
        axis: ranks
        for axis, ranks in zip(("data", "pipeline", "tensor"), world.pull("groups")[1], strict=True)
        if len(ranks) > 1
    }
    traffic[" × ".join(map(str, sizes))] = sent_along(trace.calls[1], own)


# %%
def by_formula(d, p, t, m=4, rows=16, tokens=64, width=160, blocks=4, parameters=1.29e6):
    """MiB that a rank in the middle sends: gradients, messages of microbatches, all-reduces of activations."""
    activation = 4 * rows / d / m * tokens * width
    data = 2 * (d - 1) / d * 4 * parameters / p / t
    pipeline = m * activation * min(2, p - 1)
    tensor = m * blocks / p * 4 * 2 * (t - 1) / t * activation
    return (data + pipeline + tensor) / 2**20


expected = {" × ".join(map(str, sizes)): by_formula(*sizes) for sizes in MESHES}
compare(traffic, expected, None, "MiB", "Sent by rank 1 in one step, by axis; data × pipeline × tensor")

# %%
here = traffic["2 × 1 × 2"]
wider = {"data": 100**2 * here["data"], "tensor": 100 * here["tensor"]}
largest = {"this model": max(here, key=here.get), "100 times wider": max(wider, key=wider.get)}
print(f"{predicted(most_bytes)}{largest}")

# %% [markdown]
# Gradients grow with the square of the width and not with the batch; activations grow with the width and with
# the batch. So a model a hundred times wider on the same few rows sends mostly gradients, and one with long
# sequences and large microbatches mostly activations. That, and the link over which an axis runs, decides
# where to cut. Bars and marks differ a little: the formulas divide all parameters by p and t, but the
# embedding is on one stage only, and the norms are on all tensor ranks.

# %% [markdown]
# ### FSDP on two axes
#
# Torch's `fully_shard` (lecture 05) takes a mesh of two axes, and can be used in two ways. Both train the model
# above with the batch above, on four ranks; P is its parameters, 4.9 MiB.
#
# - **Hybrid sharding** (HSDP), replicate 2 × shard 2: each parameter is sharded over two ranks, and the other
#   two have a replica of the shards. All four ranks draw different rows.
# - **FSDP and tensor parallelism**, shard 2 × tensor 2: `parallelize_module` cuts the blocks over two ranks
#   (lecture 06), and `fully_shard` shards each half over the other axis.
#
# **Question.** How many MiB does a rank send along each axis in one step?

# %%
# your predictions, in MiB
two_axes = {
    "hybrid: shard": None,
    "hybrid: replicate": None,
    "with tensor: shard": None,
    "with tensor: tensor": None,
}

# %%
# %%ranks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from fourranks.learner.corpus import batch
from fourranks.learner.model import loss as mean_loss
from fourranks.learner.model import transformer

CUT = {
    "attention.qkv": ColwiseParallel(),
    "attention.out": RowwiseParallel(),
    "mlp.up": ColwiseParallel(),
    "mlp.down": RowwiseParallel(),
}


class TorchTraining:
    """Training by torch on a mesh of 2 × 2: replicate × shard, or shard × tensor."""

    def __init__(self, *axes):
        mesh = init_device_mesh(device.type, (2, 2), mesh_dim_names=axes)
        self.groups = {axis: dist.get_process_group_ranks(mesh[axis].get_group()) for axis in axes}
        cut = "tensor" in axes
        over = mesh["shard"] if cut else mesh  # two axes: replicate, then shard
        self.rows = (
            (mesh.get_local_rank("shard"), 2) if cut else (rank, 4)
        )  # ranks of a tensor group share rows
        self.model = transformer(config).to(device)
        for block in self.model[1:-1]:
            if cut:
                parallelize_module(block, mesh["tensor"], CUT)
            fully_shard(block, mesh=over)
        fully_shard(self.model, mesh=over)
        # foreach=False: with tensor parallelism the parameters lie on two meshes, so each is updated alone
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3, foreach=False)

    def step(self, number):
        inputs, targets = (tensor.to(device) for tensor in batch(corpus, number, *self.rows))
        self.optimizer.zero_grad()
        loss = mean_loss(self.model(inputs), targets)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


torchs = {
    "hybrid": TorchTraining("replicate", "shard"),
    "with tensor": TorchTraining("shard", "tensor"),
}
of_ranks = {name: [each.step(number).item() for number in range(3)] for name, each in torchs.items()}

# %%
along, differ = {}, {}
for name in ("hybrid", "with tensor"):
    with world.trace() as trace:
        world.execute(f"torchs[{name!r}].step(3)")
    world.execute(f"groups = torchs[{name!r}].groups")
    groups = world.pull("groups")[1]
    along |= {f"{name}: {axis}": mib for axis, mib in sent_along(trace.calls[1], groups).items()}
    for axis, ranks in groups.items():
        ops = [call.op for call in trace.calls[1] if set(call.ranks) == set(ranks)]
        counted = ", ".join(f"{ops.count(op)} {op}" for op in dict.fromkeys(ops))
        print(f"{name:11}  {axis:9}  {counted}")
    means = [sum(step) / 4 for step in zip(*(own[name] for own in world.pull("of_ranks")), strict=True)]
    differ[name] = max(abs(mean - one) for mean, one in zip(means, lines["one process"], strict=False))

P, activations = 4 * 1.29e6 / 2**20, 4 * 8 * 64 * 160 / 2**20  # MiB; of 8 rows
formulas = {
    "hybrid: shard": 3 * P / 2,  # two all-gathers, one reduce-scatter, (s − 1)/s of P each
    "hybrid: replicate": 2 * (P / 2) / 2,  # an all-reduce, 2 (r − 1)/r, of a rank's shard: P/s
    "with tensor: shard": 3 * (P / 2) / 2,  # as above, for the P/t that the tensor axis leaves
    "with tensor: tensor": 4 * 4 * 2 * activations / 2,  # four all-reduces a block, 2 (t − 1)/t
}
compare(along, formulas, two_axes, "MiB", "Sent by rank 1 in one step of fully_shard on two axes")

# %%
furthest = max(differ.values())
finding(
    furthest < 1e-2,
    f"In three steps both losses stay within {furthest:.0e} of that of one process.",
    f"A loss is {furthest:.0e} away from that of one process.",
)
ratio = along["hybrid: shard"] / along["hybrid: replicate"]
print(f"hybrid sharding sends {ratio:.1f} times as much along shard as along replicate")

# %% [markdown]
# Each block is a unit, and the embedding and the head are one more. The units of the blocks are gathered in
# forward and again in backward, the last one only once: 2 · 4 + 1 all-gathers and 5 reduce-scatters. In
# hybrid sharding an all-reduce follows each reduce-scatter: it averages the rank's shard of the gradient over
# the replicas. With s ranks on the shard axis it carries 1/s of what plain data parallelism would send, so
# this axis may cross the network, while the shard axis sends three times P and stays inside the node.
#
# With tensor parallelism the order turns round. All-reduces of activations, four in each of four blocks,
# cannot be hidden, so the tensor axis gets the nearest ranks. FSDP runs across the nodes: it sends 1/t of the
# bytes, and can gather the next block while this one computes. More rows change only one of the two axes:
# with twice as many, the tensor axis sends twice as much, the shard axis the same.

# %% [markdown]
# ## 4. Discard, and compute again
#
# In training, a GPU is often full not of weights but of activations that are kept for the backward pass
# (lecture 06, section 7). A tensor that will be needed again can be **stored**, **communicated** from another
# rank that has it, or **recomputed**. *Activation checkpointing* keeps only each block's input, and runs the
# block's forward a second time when its backward comes.
#
# **Question.** The model above with a batch of 64 rows. By which factor do the activations shrink if each of the four blocks is checkpointed? And how much longer does a step take?

# %%
shrinks_by, takes_longer = None, None  # your predictions, both as factors

# %%
# %%ranks 0
import time

from torch.utils.checkpoint import checkpoint

from fourranks.bench import synchronize
from fourranks.learner.corpus import batch
from fourranks.learner.model import loss as mean_loss
from fourranks.learner.model import transformer
from fourranks.rank.allocations import Allocations

model = transformer(config).to(device)
inputs, targets = (tensor.to(device) for tensor in batch(corpus, 0, rows=64))


def forward(recompute):
    """The loss, with each block checkpointed or not."""
    x = model[0](inputs)
    for block in model[1:-1]:
        x = checkpoint(block, x, use_reentrant=False) if recompute else block(x)
    return mean_loss(model[-1](x), targets)


# %%
# %%ranks 0
found, fastest = {}, {False: float("inf"), True: float("inf")}
for recompute in (False, True) * 4:
    model.zero_grad()
    with Allocations() as memory:
        loss = forward(recompute)
        kept = memory.now / 2**20
    del loss
    synchronize(device)  # a GPU's calls return when they are queued
    begun = time.perf_counter()
    forward(recompute).backward()
    synchronize(device)
    fastest[recompute] = min(fastest[recompute], time.perf_counter() - begun)
    found[recompute] = kept, fastest[recompute]

# %%
(stored, stored_s), (again, again_s) = (world.pull("found", [0])[0][recompute] for recompute in (False, True))
compare(
    {"stored": stored, "recomputed": again},
    None,
    None,
    "MiB",
    "Held between forward and backward, 64 rows, 4 blocks",
)

# %%
told = predicted(shrinks_by, about="checkpointing shrinks activations by", was=stored / again)
print(f"{told}activations: {stored / again:.1f} times less")
longer = again_s / stored_s
told = predicted(takes_longer, about="checkpointing takes longer by", was=longer)
print(f"{told}a step takes {longer:.2f} times as long; four passes instead of three would be 1.33")
finding(
    longer > 1.1,
    "the second forward pass takes time, as the recomputed activations are not kept.",
    "other work on this machine hid the second forward pass, or fewer bytes in memory made up for it.",
)

# %% [markdown]
# Only the inputs of the blocks are left, and the activations of embedding and head. On large models the
# saving is larger: without FlashAttention a layer stores sbh(34 + 5as/h) bytes, and its input only 2sbh. So
# full recomputation of a GPT-3 layer keeps 0.05 GB instead of 2.87 GB. **Selective** recomputation repeats
# only the attention scores, which are large and cheap to compute: 34sbh are left, for a few percent more
# computation. FlashAttention does that inside its kernel.
#
# Remember three points:
#
# - Random numbers must be the same the second time, or dropout drops different elements: torch saves and
#   restores the generator's state.
# - Collectives in a checkpointed block run twice: with tensor parallelism there are six all-reduces a layer
#   instead of four.
# - A pipeline with checkpointing keeps only inputs in flight, so it can afford more microbatches.
#
# In JAX the function is `jax.checkpoint`, also called `jax.remat`.

# %% [markdown]
# ## 5. Budgets: memory, computing, communication
#
# A thousand GPUs do not fit on your desk, but they fit on paper. `fourranks plan` ([how it
# predicts](../../docs/plan.md)) has the formulas of all lectures so far. Here is GPT-3 with its 175 billion
# parameters, 1,536 sequences a step, on 1,024 H100s in nodes of eight. Every mesh has the same number of
# GPUs, but different shares of memory and time. All plans use ZeRO-1, 1F1B with microbatches of one sequence,
# sequence parallelism and FlashAttention.
#
# **Question.** Tensor parallelism 8, and the pipeline from 1 to 32 stages; the data axis takes the GPUs that
# are left, 128 to 4. Memory has four parts: weights, gradients, optimizer state and activations. Which two
# shrink fastest with the number of stages (write them as "weights and state")? Time has four parts, too:
# computing, bubble, messages of tensor and pipeline, data. Which of them begins at zero and grows?

# %%
shrinks, grows = None, None  # your predictions

# %%
from fourranks.plan.cluster import Cluster, find_gpu
from fourranks.plan.layout import Plan
from fourranks.plan.search import candidates
from fourranks.plan.step import estimate_step
from fourranks.plan.transformer import find_model
from fourranks.views.player import Player

gpt3, thousand = find_model("gpt3-175b"), Cluster(find_gpu("h100"), 1024)


def plan_with(pipeline, tensor=8, recompute="none"):
    data = 1024 // pipeline // tensor
    return Plan(
        data=data, pipeline=pipeline, tensor=tensor, batch=1536, zero=1, recompute=recompute,
        sequence_parallel=tensor > 1, flash=True, overlap=True,
    )  # fmt: skip


STAGES = (1, 2, 4, 8, 16, 32)
estimates = {pipeline: estimate_step(gpt3, thousand, plan_with(pipeline)) for pipeline in STAGES}


def memory_of(estimate):
    memory = estimate.memory
    parts = {"weights": memory.weights, "gradients": memory.gradients, "state": memory.state}
    return {name: nbytes / 1e9 for name, nbytes in (parts | {"activations": memory.activations}).items()}


def seconds_of(estimate):
    messages = estimate.tensor + estimate.pipeline
    return {
        "computing": estimate.compute + estimate.optimizer, "bubble": estimate.bubble,
        "tensor, pipeline": messages, "data": estimate.data,
    }  # fmt: skip


# %%
name = "{} stages × 8 × {} data".format
bars = {name(p, 128 // p): memory_of(estimate) for p, estimate in estimates.items()}
compare(
    bars,
    dict.fromkeys(bars, 80.0),
    None,
    "GB",
    "Memory of the fullest GPU, GPT-3 on 1,024 H100s",
    mark="an H100",
)

# %%
bars = {name(p, 128 // p): seconds_of(estimate) for p, estimate in estimates.items()}
compare(bars, None, None, "s", "Seconds of a step, GPT-3 on 1,024 H100s")

# %%
told = predicted(shrinks, about="memory that shrinks with stages", was="weights and gradients")
print(f"{told}weights and gradients: each stage has 1/p of them")
told = predicted(grows, about="time that grows with stages", was="bubble")
print(f"{told}the bubble: fewer microbatches for each pipeline would make it larger still")

# %% [markdown]
# Why do the other two hardly shrink? ZeRO-1 divides the optimizer state by the data axis, too: 12P bytes over
# all 1,024 GPUs, 2 GB on each, whatever the mesh. And when the number of stages doubles, the first stage has
# half of the layers, but under 1F1B twice as many microbatches in flight. The bubble is (p − 1)/m of the time
# for computing and tensor-parallel messages. Each pipeline has m = 1,536 / (128/p) = 12p microbatches, so the
# bubble grows towards a twelfth of that time.
#
# The next figure does the same for tensor parallelism from 1 to 8, with a slider for the meshes. If your page
# runs no scripts, you see all of them together.


# %%
def budget(tensor):
    estimate = estimate_step(gpt3, thousand, plan_with(16, tensor))
    return compare(
        {"memory in 10 GB": sum(memory_of(estimate).values()) / 10, **seconds_of(estimate)},
        None, None, "s", f"16 stages, tensor {tensor}: {estimate.seconds:.1f} s, {estimate.memory.total / 1e9:.0f} GB", label="predicted",
    )  # fmt: skip


overview = compare(
    {f"tensor {t}": seconds_of(estimate_step(gpt3, thousand, plan_with(16, t))) for t in (1, 2, 4, 8)},
    None, None, "s", "Seconds of a step, 16 stages, tensor parallelism 1 to 8",
)  # fmt: skip
Player(overview, [(f"tensor {t}", budget(t)) for t in (1, 2, 4, 8)], whole="all four")

# %% [markdown]
# ## 6. A program that chooses
#
# Which strategy should you choose? Ask: Does the model fit? How fast are the links? What does the strategy
# cost to implement, and can you debug it? As a table:
#
# | | data | tensor | pipeline |
# |---|---|---|---|
# | weights do not fit on a GPU | only with ZeRO-3 | ✓ | ✓ |
# | one layer does not fit | – | ✓ | – |
# | slow links between nodes | with enough tokens a rank | – | ✓ |
# | small batch | – | ✓ | – (bubble) |
# | little code to change | ✓ | – | – |
# | easy to debug | ✓ | – | – |
#
# A rule of thumb follows: use **data** parallelism as long as weights and activations fit; **tensor**
# parallelism inside a node; **pipelines** across nodes; and data parallelism over the remaining ranks. A
# program can do better than a table, since it can try everything: all sizes of all axes, microbatches, ZeRO
# stages, recomputation. It predicts time and memory of each plan, drops those that do not fit, and sorts the
# rest. In the exercise you write such a program.
#
# **Question.** A node of four H100s, Llama 3 8B, 16 sequences of 8,192 tokens. Which plan is the fastest: data × pipeline × tensor, and which ZeRO?
# Write it as "data 4, pipeline 1, tensor 1, ZeRO-3". In the table that follows, a plan such as d1 t2 p2 c1 e1 has the sizes of five axes:
# data, tensor, pipeline, context (section 9) and experts (section 10). If c is 2, context parallelism takes the remaining factor of 2. v
# is the number of chunks a rank.

# %%
four_gpus = None  # your prediction, in words

# %%
llama, node = find_model("llama3-8b"), Cluster(find_gpu("h100"), 4, gpus_per_node=4)
found = candidates(llama, node, 16)
from fourranks.plan.report import plan_table

print(plan_table(found[:5]))
print(f"\nof {len(found)} plans {sum(each.estimate.fits for each in found)} fit")
chosen = found[0].plan
told = f"data {chosen.data}, pipeline {chosen.pipeline}, tensor {chosen.tensor}, ZeRO-{chosen.zero}"
print(predicted(four_gpus, about="plan for four H100s", was=told))

# %% [markdown]
# Data parallelism alone would be a little faster, but it does not fit: each GPU would keep the activations of
# a whole sequence of 8,192 tokens. Recomputation makes room for them, and costs nearly a third more time. A
# second axis halves them instead. Context parallelism costs least here, since it sends keys and values only,
# and Llama 3 has a quarter as many heads of these as of queries (lecture 06, section 5). Tensor parallelism
# sends whole activations, four times a layer.
#
# And for a thousand GPUs. In a terminal the same command is `fourranks plan --model gpt3-175b` and so on:

# %%
# !{sys.executable!r} -m fourranks plan --model gpt3-175b --gpus 1024 --gpu h100 --batch 1536 --top 4

# %%
import time

begun = time.perf_counter()
found = candidates(gpt3, thousand, 1536)
seconds = time.perf_counter() - begun
best, worst = (
    found[0],
    max((each for each in found if each.estimate.fits), key=lambda each: each.estimate.seconds),
)
print(
    f"{len(found):,} plans in {seconds:.1f} s; the best takes {best.estimate.seconds:.1f} s a step, the worst that fits {worst.estimate.seconds:.0f} s"
)
finding(
    worst.estimate.seconds > 2 * best.estimate.seconds,
    f"Between the best and the worst plan that fits lies a factor of {worst.estimate.seconds / best.estimate.seconds:.0f}: on the same GPUs, for the same model.",
    "All plans that fit take about the same time.",
)

# %% [markdown]
# And your laptop? Its "links" are memory copies between processes that share the same cores, so no cut can
# make it faster: each mesh of section 2 does the same arithmetic and copies more. Cutting pays off only if
# ranks have processors of their own.
#
# **What Alpa automates.** [Alpa](https://arxiv.org/abs/2201.12023) searches a larger space: not one (d, p, t)
# for the whole model but a cut for every operator. It separates *inter-operator* parallelism (stages, on slow
# links) from *intra-operator* parallelism (how each tensor is sharded, on fast ones). For each possible stage
# and sub-mesh an integer program finds the shardings with the least communication; dynamic programming then
# combines stages so that the slowest is as fast as possible. It searches with a cost model because
# experiments are slow, and the space is huge. With GSPMD and torch's DTensor you declare the sharding; the
# choice is still yours.

# %% [markdown]
# ## 7. Is the paper right? Published runs
#
# A cost model that was never checked is only an opinion. Korthikanti and others published the times of eight
# training steps of Megatron-LM on A100s, from 22 billion parameters on 8 GPUs to a trillion on 512, with full
# and with selective recomputation ([table 5](https://arxiv.org/abs/2205.05198)). The bars are their
# measurements, the marks are predictions.
#
# **Question.** By how many percent is a prediction off, on average over the eight?

# %%
off_by = None  # your prediction, in percent

# %%
RUNS = {  # name: model, GPUs, pipeline, chunks, microbatch, batch; seconds with full and with selective recompute
    "22B on 8": ("gpt-22b", 8, 1, 1, 4, 4, 1.42, 1.10),
    "175B on 64": ("gpt3-175b", 64, 8, 3, 1, 64, 18.13, 13.75),
    "530B on 280": ("gpt-530b", 280, 35, 3, 1, 280, 49.05, 37.83),
    "1T on 512": ("gpt-1t", 512, 64, 1, 1, 512, 94.42, 71.49),
}


def predicted_seconds(model, gpus, pipeline, chunks, micro_batch, batch, recompute):
    schedule = "interleaved" if chunks > 1 else "1f1b"
    plan = Plan(
        tensor=8, pipeline=pipeline, chunks=chunks, schedule=schedule, micro_batch=micro_batch, batch=batch,
        recompute=recompute, sequence_parallel=recompute == "selective",
    )  # fmt: skip
    return estimate_step(find_model(model), Cluster(find_gpu("a100"), gpus), plan).seconds


published, on_paper = {}, {}
for run, (*numbers, full, selective) in RUNS.items():
    for recompute, seconds in (("full", full), ("selective", selective)):
        published[f"{run}, {recompute}"] = seconds
        on_paper[f"{run}, {recompute}"] = predicted_seconds(*numbers, recompute)

# %%
title = "Seconds of a step on A100s: published, and predicted by fourranks plan"
compare(published, on_paper, None, "s", title, label="published", mark="predicted")

# %%
errors = [abs(on_paper[run] / seconds - 1) for run, seconds in published.items()]
mean_error = 100 * sum(errors) / len(errors)
told = predicted(off_by, about="error of the cost model in percent", was=mean_error)
print(f"{told}mean error {mean_error:.1f} %, largest {100 * max(errors):.1f} %")

# %% [markdown]
# Six constants of the A100 were fitted to published runs, and these rows were among them. So agreement here
# shows only that the *form* of the model can describe them. [docs/plan.md](../../docs/plan.md) has 102 rows of
# published runs. It says which of them were not used in the fit, and where the model is wrong: by up to 50 %.
# `python -m benchmarks.plan` makes that table again.

# %% [markdown]
# ## 8. Ten lines of JAX
#
# In JAX you do not call collectives. You declare how arrays are sharded over a mesh, and the compiler, XLA,
# inserts the collectives: these are the same decisions as in sections 1 to 3. TPUs are programmed like this,
# and Levanter, of Stanford's CRFM, trains language models in this way. Here are a data × tensor mesh of four
# CPU devices and the MLP of lecture 06.

# %%
JAX = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("data", "tensor"))
put = lambda x, *axes: jax.device_put(x, NamedSharding(mesh, P(*axes)))
x, up, down = put(jnp.ones((8, 16)), "data", None), put(jnp.ones((16, 64)), None, "tensor"), put(jnp.ones((64, 16)), "tensor", None)
mlp = jax.jit(lambda x, up, down: jax.nn.gelu(x @ up) @ down)
text = mlp.lower(x, up, down).compile().as_text()
print("devices:", len(jax.devices()), " output:", mlp(x, up, down).sharding.spec)
print("all-reduces that the compiler has inserted:", text.count(" all-reduce("))
"""

# %%
import importlib.util
import os
import subprocess
import sys

if importlib.util.find_spec("jax"):
    environment = os.environ | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "JAX_PLATFORMS": "cpu",
    }
    done = subprocess.run(
        [sys.executable, "-c", JAX], env=environment, capture_output=True, text=True, timeout=120
    )
    print(done.stdout or done.stderr[-500:])
else:
    print("JAX is not installed here. To run this cell: pip install jax, and run it again.")

# %% [markdown]
# There is one all-reduce, in the place of Megatron's g: the rows of `down` are sharded, so each device has a
# partial sum. With several processes, `jax.distributed.initialize()` takes the address of process 0, the
# number of processes and the number of this process, like `MASTER_ADDR`, `WORLD_SIZE` and `RANK` of a
# torchrun job.

# %% [markdown]
# ## 9. The fourth axis: context parallelism
#
# The activations of a sequence of a million tokens do not fit on any GPU, even with a batch of one. So cut
# the sequence: rank r has tokens r·s to (r+1)·s − 1 of every sequence. Norms, projections and MLPs work on
# each token separately. Attention does not: each query needs every key. **Ring attention** keeps the queries
# where they are and sends blocks of keys and values around a ring. In N − 1 turns every rank has seen every
# block.
#
# A softmax can be computed in pieces: each block gives, for every query, the largest score, the sum of
# exponentials, and the weighted values; a block with a larger score rescales the results of earlier blocks.
#
# **Question.** Four ranks, 4 × 64 tokens. What share of all keys and values does a rank hold at most? And how far is the result from one process?

# %%
holds, is_off_by = None, None  # your predictions: a share, and a number

# %%
# %%ranks
torch.manual_seed(0)  # all ranks draw the same whole sequence, and take their block
whole_q, whole_k, whole_v = torch.randn(3, 2, 64 * world_size, 16, dtype=torch.float64, device=device)
q, k, v = (each.chunk(world_size, dim=1)[rank].contiguous() for each in (whole_q, whole_k, whole_v))


def to_the_next(block):
    """Send this rank's block to the next rank, and return that of the rank before."""
    arriving = torch.empty_like(block)
    pair = [
        dist.P2POp(dist.isend, block, (rank + 1) % world_size),
        dist.P2POp(dist.irecv, arriving, (rank - 1) % world_size),
    ]
    for work in dist.batch_isend_irecv(pair):
        work.wait()
    return arriving


# %%
# %%ranks --trace
block = torch.stack((k, v))
largest = torch.full((*q.shape[:2], 1), -torch.inf, dtype=q.dtype, device=device)
total, weighted = torch.zeros_like(largest), torch.zeros_like(q)
for turn in range(world_size):
    block = to_the_next(block) if turn else block
    scores = q @ block[0].transpose(-1, -2) / q.shape[-1] ** 0.5
    new = torch.maximum(largest, scores.amax(-1, keepdim=True))
    weights, rescale = torch.exp(scores - new), torch.exp(largest - new)
    total = total * rescale + weights.sum(-1, keepdim=True)
    weighted = weighted * rescale + weights @ block[1]
    largest = new
attended = weighted / total

# %%
# %%ranks
alone = torch.nn.functional.scaled_dot_product_attention(whole_q, whole_k, whole_v)
difference = (attended - alone.chunk(world_size, dim=1)[rank]).abs().max().item()

# %%
off = max(world.pull("difference"))
print(
    f"{predicted(holds, about='share of keys and values that a rank holds', was=0.5)}two blocks of four at most: one in use, one arriving"
)
print(f"{predicted(is_off_by, about='ring attention differs by', was=off)}from one process: {off:.0e}")

# %% [markdown]
# In a causal language model rank 0 needs only its own block, while rank N − 1 needs all blocks, so on average
# ranks would be idle for nearly half of the time. Real implementations give every rank one block from the front and one from
# the back of the sequence, so that all have the same work. While a block is being sent, the rank computes
# with the previous one: the communication is hidden as soon as a block has enough tokens. Gradients also go
# round the ring, in the other direction; the exercise asks for them. Ulysses achieves the same with
# all-to-alls: tensors are sequence-sharded before attention, and head-sharded inside it.

# %% [markdown]
# ## 10. The fifth axis: experts
#
# A *mixture of experts* replaces each MLP by several, and a router sends each token to one or two of them. So
# the model has many times the parameters, but a token costs the computation of only one or two MLPs. With **expert parallelism** each
# rank has its own experts. Tokens are sent to their experts and back with two **all-to-alls** a layer, whose
# sizes are known only when the router has decided.
#
# **Question.** Each of four ranks has 64 tokens, and the router chooses expert 0 twice as often as each of the
# others. What share of the tokens stays on its rank? And how much longer than the average does the busiest
# expert compute?

# %%
stays, busiest = None, None  # your predictions: a share, a factor

# %%
# %%ranks
torch.manual_seed(100 + rank)
tokens = torch.randn(64, 16, device=device)
odds = torch.tensor([2.0, 1.0, 1.0, 1.0][:world_size])
expert_of = torch.multinomial(odds, len(tokens), replacement=True).to(device)
torch.manual_seed(7)
experts = [torch.randn(16, 16, device=device) for _ in range(world_size)]  # each rank uses one of them

# %%
# %%ranks --trace
order = expert_of.argsort(stable=True)  # tokens of one expert side by side
leaving = torch.bincount(expert_of, minlength=world_size)
arriving = torch.empty_like(leaving)
dist.all_to_all_single(arriving, leaving)  # first how many tokens
there = torch.empty(int(arriving.sum()), 16, device=device)
dist.all_to_all_single(there, tokens[order], arriving.tolist(), leaving.tolist())
made = torch.tanh(there @ experts[rank])
back = torch.empty_like(tokens)
dist.all_to_all_single(back, made, leaving.tolist(), arriving.tolist())
outputs = torch.empty_like(tokens).index_copy(0, order, back)

# %%
# %%ranks
alone = torch.stack([torch.tanh(token @ experts[at]) for token, at in zip(tokens, expert_of, strict=True)])
worst = (outputs - alone).abs().max().item()
here, load = leaving[rank].item() / len(tokens), int(arriving.sum())
print(f"{load} tokens for this rank's expert; from one process: {worst:.0e}")

# %%
loads, at_home = world.pull("load"), sum(world.pull("here")) / 4
factor = max(loads) / (sum(loads) / len(loads))
print(f"{predicted(stays, about='share of tokens that stays', was=at_home)}{at_home:.0%} stay")
print(
    f"{predicted(busiest, about='load of the busiest expert', was=factor)}the busiest has {factor:.2f} times the average"
)

# %% [markdown]
# By the odds expert 0 gets 2/5 of all tokens, 1.6 times the average. With few tokens chance decides, too.
#
# Each token crosses the network twice in forward and twice in backward, to a rank that is not known in
# advance. There is no ring and there are no neighbours: all pairs of ranks communicate at the same time. So
# experts need the fastest links, and large training runs keep a token's experts within few nodes. And all
# ranks wait for the busiest expert. So routers are trained with a balancing loss, and experts have a
# *capacity* beyond which tokens are dropped or sent to another expert.

# %% [markdown]
# ## 11. A deadlock on a mesh
#
# With several groups, a mistake has effects outside the group in which it was made. Rank 3 of a mesh 2 × 1 ×
# 2 leaves out one all-reduce in its tensor group.
#
# **Question.** Which ranks wait in the end, and in which group does the first one wait?

# %%
wait_in_the_end = None  # your prediction: a list of ranks

# %%
# %%ranks
mesh = MeshTraining(config, (2, 1, 2), device=device)
activation, gradient = torch.ones(4, device=device), torch.ones(4, device=device)

# %% tags=["raises-exception"]
# %%ranks
if rank != 3:  # the mistake
    dist.all_reduce(activation, group=mesh.tensor)
dist.all_reduce(gradient, group=mesh.data)

# %% [markdown]
# The deadlock spreads like a wave. Rank 2 waits in its tensor group for rank 3. Rank 3 has gone on to its
# data group, where rank 1 joins it after its own tensor group, so those two finish. Rank 0 waits in *its*
# data group for rank 2. Two ranks wait, in two groups, and the rank that made the mistake is not among them:
# it has finished. On 1,024 GPUs the same wave reaches all ranks within one step, and 1,024 logs show
# different waits. So look for the rank that is *not* in the call in which others wait for it. Outside of
# notebooks torch's Flight Recorder shows that (lecture 09).

# %% [markdown]
# ## 12. What else large training runs combine
#
# - **Hybrid sharding.** FSDP inside a node, plain data parallelism between nodes: parameters are gathered over NVLink only, and each shard's gradients are all-reduced between the nodes. 8 GPUs a node divide the state by 8, not by N, and the slow network carries 1/8 of the gradients for each GPU (section 3 runs it on 2 × 2 ranks).
# - **Offloading.** Optimizer state, or even parameters, in the memory of the CPU: 12 bytes a parameter over
#   PCIe, 55 GB/s measured on gen 5. For 8 billion parameters on 8 GPUs that is 12 GB a GPU and 0.22 s each
#   way, which is acceptable when a step takes several seconds.
# - **Load balancing.** Stages that take the same time, experts that get the same number of tokens, batches of
#   sequences of similar length.
# - **Mixed precision**: 16-bit activations and gradients on the wire, float32 masters. **Overlap**: gradients behind backward, gathers ahead of forward, messages behind other microbatches.
# - **Fault tolerance**: with 10,000 GPUs something fails every few hours; see lecture 09.
#
# **PTD-P** is Megatron's name for pipeline, tensor and data together, DeepSpeed's is 3D parallelism: 530 billion parameters in MT-NLG were trained on 280 GPUs per replica, tensor 8 × pipeline 35, and 8 to 12 data-parallel replicas.
#
# **How to work.** Start with one GPU, until the loss falls. Measure. Add data parallelism, and compare
# losses. If memory is short, add other axes, one at a time, and compare with the previous mesh each time.
# Profile before every decision. In production use FSDP2, torchtitan or Megatron-LM rather than your own code:
# now you know what they do, and can read their settings.
#
# **Open questions.** GPUs do not sum in a fixed order, so two runs differ: how much speed should you give up
# for determinism? How should a system decide, for each tensor, whether to recompute or to store it?
# Asynchronous point-to-point communication makes bookkeeping hard: which programming language would make
# schedules safe? Should chips be built for data flow or for control flow? Those of Groq and Cerebras schedule
# everything at compile time, which needs static graphs, but mixtures of experts are not static.

# %% [markdown]
# ## How good were your predictions?

# %%
review()

# %% [markdown]
# ## We saw
#
# - **A mesh** gives every rank three groups; tensor parallelism gets the nearest ranks, since nothing hides its traffic.
# - **Five meshes, one curve**: cuts change where numbers are stored, not what the model learns. The bytes
#   along each axis agreed with the formulas, also for torch's `fully_shard` on a mesh of two axes.
# - **Checkpointing** keeps only inputs, for a third more computation.
# - **A program chose plans** for 4 and for 1,024 GPUs, by predictions that we compared with published runs,
#   errors included.
# - **Ring attention and experts** cut the sequence and the experts, on real ranks, with the results of one
#   process. A deadlock in one group spreads through the others.
#
# **Your turn**: [the exercise](../../exercises/08_three_d_parallelism/exercise.ipynb). You build the mesh,
# the training step for all meshes, the checkpoint, and the program that chooses, and optionally ring
# attention with gradients, and experts.
#
# **Next**: [leave the notebook](../09_beyond_one_node/lecture.ipynb). The same code on several machines, and what happens when one of them dies.
#
# **Sources and further reading.** Narayanan and others, *Efficient large-scale language model training on GPU clusters using Megatron-LM* (PTD-P), [arXiv 2104.04473](https://arxiv.org/abs/2104.04473) · Korthikanti and others, *Reducing activation recomputation in large transformer
# models*, [arXiv 2205.05198](https://arxiv.org/abs/2205.05198) · Smith and others, *Using DeepSpeed and Megatron to train Megatron-Turing NLG 530B*, [arXiv 2201.11990](https://arxiv.org/abs/2201.11990) · Zheng and others, *Alpa*, [arXiv 2201.12023](https://arxiv.org/abs/2201.12023) · Liu and
# others, *Ring attention with blockwise transformers*, [arXiv 2310.01889](https://arxiv.org/abs/2310.01889) · Rajbhandari and others, *ZeRO*, [arXiv 1910.02054](https://arxiv.org/abs/1910.02054) · [Levanter](https://github.com/stanford-crfm/levanter) · [Stanford CS336 (spring 2025), lecture
# 8](https://github.com/stanford-cs336/spring2025-lectures) · [Stanford CS229S (fall 2023)](https://cs229s.stanford.edu/fall2023/), on parallelism · [torchtitan](https://github.com/pytorch/torchtitan) · PyTorch, [documentation of `torch.utils.checkpoint`](https://docs.pytorch.org/docs/stable/checkpoint.html)

# %%
# %ranks stop
