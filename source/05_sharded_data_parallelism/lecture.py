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
# # 05 Sharded data parallelism: keep each number once
#
# **Four ranks keep the same optimizer state, the same gradients and the same weights, four times over. What does it cost to keep each of
# them only once?**
#
# You will
#
# - count the bytes that training keeps for a parameter, and find them in the memory of real ranks, stage by stage of ZeRO,
# - read from traces how much each stage sends to the other ranks: 2P, 2P, 2P and 3P,
# - watch weights come and go, see what autograd keeps and recompute it, hide transfers behind computation, and put torch's
#   `fully_shard` beside your own,
# - handle the corner cases: bfloat16, tied weights, sizes that do not divide, clipping, checkpoints made of shards,
# - train the transformer of lecture 04 under ZeRO-1 and FSDP, to the same loss.
#
# 110 minutes, 15 of them optional · 4 ranks · Gloo on any laptop, NCCL on a machine with 4 GPUs
#
# [The exercise](../../exercises/05_sharded_data_parallelism/exercise.ipynb) · [notation](../../docs/notation.md) · [cheat sheet](../../docs/cheat_sheet.md) · [glossary](../../docs/glossary.md) · [concept map](../../docs/concept_map.md)
#
# As before, each run has a question and a variable for your answer.

# %%
# %load_ext fourranks
import fourranks
from fourranks.figures import compare, curves, finding, ledger, predicted, review
from fourranks.trace.bandwidth import busbw_factor

# %ranks start

# %% [markdown]
# ## Before you begin
#
# Three questions about earlier lectures. Answer them from memory, in the list below; `None` works, too.

# %%
ledger.begin("05")

# %%
remembered = [None, None, None]  # your answers

# %%
ledger.answers(remembered)

# %% [markdown]
# ## 1. Sixteen bytes
#
# Besides activations, training with Adam keeps four numbers for every parameter: the weight, its gradient, and Adam's two running
# averages, of the gradient (m) and of its square (v). In float32 all four have 4 bytes.
#
# In **mixed precision**, as large models are trained, forward and backward use 2-byte weights and make 2-byte gradients. But a step may
# be far smaller than the last digit of a 2-byte number (section 9 shows it), so the optimizer keeps *master weights* in float32, and m
# and v likewise.
#
# **Question.** How many bytes does each way keep for a parameter?

# %%
bytes_a_parameter = {"float32": None, "mixed precision": None}  # your predictions

# %% [markdown]
# We look for them on one rank, by walking through its live tensors. The memory behind a tensor is its
# *storage*; two views of one storage count once.

# %%
# %%ranks
from torch import nn


def nbytes(tensors):
    """Bytes of the storages behind these tensors, each storage once."""
    storages = [tensor.untyped_storage() for tensor in tensors if tensor is not None]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def held(weights, optimizer):
    """Bytes that this rank keeps, by what they are for."""
    state = [value for values in optimizer.state.values() for value in values.values()]
    return {
        "weights": nbytes(weights),
        "gradients": nbytes([weight.grad for weight in weights]),
        "optimizer": nbytes(state),
    }


# %% [markdown]
# The model is lecture 04's, 4 layers of width 1024, P = 4 · 1024² parameters.


# %%
# %%ranks
def mlp(width=1024, layers=4):
    torch.manual_seed(0)  # equal seeds do what a broadcast does
    blocks = [(nn.Linear(width, width, bias=False), nn.GELU()) for _ in range(layers)]
    return nn.Sequential(*(module for block in blocks for module in block)).to(device)


P = 4 * 1024**2
rows = torch.randn(32, 1024, generator=torch.Generator().manual_seed(rank)).to(device)  # this rank's own

# %%
# %%ranks 0
model = mlp()
optimizer = torch.optim.AdamW(model.parameters())
model(rows).square().mean().backward()
optimizer.step()
kept = {"float32": held(list(model.parameters()), optimizer)}

# %%
# %%ranks 0
model = mlp().bfloat16()
masters = [weight.detach().float() for weight in model.parameters()]
optimizer = torch.optim.AdamW(masters)
model(rows.bfloat16()).float().square().mean().backward()
for master, weight in zip(masters, model.parameters(), strict=True):
    master.grad = weight.grad.float()
optimizer.step()
for master, weight in zip(masters, model.parameters(), strict=True):
    master.grad = None  # it lasts only for the step
    weight.data.copy_(master)

kept["mixed precision"] = held(list(model.parameters()), optimizer)
kept["mixed precision"]["master weights"] = nbytes(masters)

# %%
world = fourranks.world()
kept = world.pull("kept", [0])[0]
P = 4 * 1024**2
per_parameter = {way: {part: size / P for part, size in parts.items()} for way, parts in kept.items()}
title = "What training keeps for each parameter"
compare(per_parameter, dict.fromkeys(kept, 16), bytes_a_parameter, "bytes", title)

# %% [markdown]
# Both keep **16 bytes**: 4 + 4 + 4 + 4, and 2 + 2 + 4 + 4 + 4. The last three belong to the optimizer; ZeRO's
# paper calls these 12 bytes K. Lower precision saves time, and memory for *activations*, but none of these 16
# bytes.
#
# You may read that the 16 bytes are "just for the parameters and optimizer states". In fact two of them are
# the gradient's.
#
# A GPU with 80 GB holds 5 billion parameters this way, without a single activation. GPT-3's 175 billion need
# 2.8 TB. Data parallelism keeps 2.8 TB on *every* rank, and four ranks hold four equal copies of everything.
# **ZeRO**, the "zero redundancy optimizer", removes the copies, in three stages.

# %% [markdown]
# ## 2. Stage 1: who needs the optimizer's state?
#
# **Stage 0** is plain data parallelism; ours is the naive one of lecture 04:

# %%
# %%ranks
from torch.optim import AdamW


class Stage0:
    """Every rank keeps everything."""

    def __init__(self, model):
        self.model, self.weights = model, list(model.parameters())
        self.optimizer = AdamW(self.weights, lr=1e-3)

    def step(self, x):
        self.model.zero_grad()
        loss = self.model(x).square().mean()
        loss.backward()
        for weight in self.weights:
            dist.all_reduce(weight.grad, op=dist.ReduceOp.AVG)
        self.optimizer.step()
        return loss.detach()


# %% [markdown]
# Adam treats each number separately: a weight's new value follows from its own old value, gradient, m and v.
# So all four ranks do the same computation on the same numbers. Let rank r update only the r-th quarter of
# each weight. Then it needs m and v only for that quarter, and *averaged gradients* only for that quarter: a
# reduce-scatter delivers them. Afterwards every rank needs all weights: an all-gather delivers them.


# %%
# %%ranks
def part_of(tensor):
    """This rank's part of a tensor: a view, not a copy."""
    return tensor.detach().flatten().chunk(world_size)[rank]


def gathered(part):
    """The whole, from the parts of all ranks."""
    whole = torch.empty(world_size * part.numel(), dtype=part.dtype, device=device)
    dist.all_gather_single(whole, part.detach())
    return whole


def reduce_scattered(gradient):
    """This rank's part of the average of all ranks' gradients."""
    part = torch.empty(gradient.numel() // world_size, dtype=gradient.dtype, device=device)
    dist.reduce_scatter_single(part, gradient.flatten(), op=dist.ReduceOp.AVG)
    return part


# %%
# %%ranks
class Stage1:
    """The optimizer's state is in one place only."""

    def __init__(self, model):
        self.model, self.weights = model, list(model.parameters())
        self.parts = [nn.Parameter(part_of(weight)) for weight in self.weights]  # views
        self.optimizer = AdamW(self.parts, lr=1e-3)

    def step(self, x):
        self.model.zero_grad()
        self.optimizer.zero_grad()
        loss = self.model(x).square().mean()
        loss.backward()
        self.average_gradients()
        self.optimizer.step()
        for weight, part in zip(self.weights, self.parts, strict=True):
            weight.data.copy_(gathered(part).view_as(weight))
        return loss.detach()

    def average_gradients(self):
        for weight, part in zip(self.weights, self.parts, strict=True):
            part.grad = part_of(weight.grad).copy_(reduce_scattered(weight.grad))


# %% [markdown]
# **Question.** Stage 0's all-reduce makes each rank send 2 (N−1)/N · P elements, with a ring. From here on we leave out the factor
# (N−1)/N and call that **2P**. What does stage 1 send?

# %%
stage_1_sends = None  # your prediction, in P

# %%
# %%ranks
stage_0, stage_1 = Stage0(mlp()), Stage1(mlp())
losses = stage_0.step(rows), stage_1.step(rows)  # first steps also make the optimizers' state

# %%
# %%ranks --trace
loss = stage_1.step(rows)


# %%
def sent(expression):
    """What a rank sends for this, in elements of float32, as multiples of (N-1)/N · P."""
    with world.trace() as trace:
        world.execute(expression)
    share = (world.world_size - 1) / world.world_size
    nbytes = sum(busbw_factor(row.op, world.world_size) * row.nbytes for row in trace.table().rows)
    return nbytes / share / (4 * P)


print(f"stage 0 sends {sent('stage_0.step(rows)'):.2f} P")
stage_1_sent = sent("stage_1.step(rows)")
print(
    f"{predicted(stage_1_sends, about='P that stage 1 sends', was=stage_1_sent)}stage 1 sends {stage_1_sent:.2f} P"
)

# %% [markdown]
# It sends the same! In lecture 02 an all-reduce *was* a reduce-scatter and an all-gather. ZeRO-1 separates
# the two and puts the optimizer between them. That saves three quarters of the optimizer's memory and
# computation, and no rank sends more bytes.
#
# We count the bytes that a collective must move. Gloo's own reduce-scatter makes an all-reduce and discards
# most of the result, as lecture 03 showed; NCCL's does not.

# %% [markdown]
# ## 3. Stage 2: who needs the gradients?
#
# After the reduce-scatter three quarters of each gradient are of no use. And the reduce-scatter of a weight
# can begin as soon as its gradient is ready. So **do it in a hook, during backward, and drop the rest
# immediately**:


# %%
# %%ranks
class Stage2(Stage1):
    """A rank keeps its part of each gradient, and drops the rest as soon as the gradient is ready."""

    def __init__(self, model):
        super().__init__(model)
        self.part_for = dict(zip(self.weights, self.parts, strict=True))
        for weight in self.weights:
            weight.register_post_accumulate_grad_hook(self.keep_a_part)

    def keep_a_part(self, weight):
        self.part_for[weight].grad = reduce_scattered(weight.grad)
        weight.grad = None

    def average_gradients(self):
        """Nothing is left to do."""


# %% [markdown]
# Stage 2 sends exactly the bytes of stage 1, but *earlier*: at no moment are there two whole gradients in
# memory.
#
# Gradient accumulation costs extra, though. Stage 0 can add up whole gradients without communication and
# all-reduce once (`no_sync`). Stage 2 has no room for whole gradients: it reduce-scatters those of *every*
# microbatch.

# %% [markdown]
# ## 4. Stage 3: who needs the weights?
#
# A layer's weight is needed for one matrix multiplication in forward and one in backward, and not in between.
# **Stage 3** keeps only shards. It gathers a weight when its layer begins, and frees it when the layer is
# finished. In backward it gathers the weight once more.
#
# For a layer without bias, one `torch.autograd.Function` is enough to do that: an operation for which we
# write both directions, as in section 4 of lecture 04. It saves its input for backward as usual, but *not*
# the weight, only this rank's shard of it:


# %%
# %%ranks
class ShardedLinear(torch.autograd.Function):
    """x @ weight.T; each rank keeps a part of the weight."""

    @staticmethod
    def forward(ctx, x, part):
        ctx.save_for_backward(x, part)
        return x @ gathered(part).view(-1, x.shape[1]).T  # the whole weight is freed here

    @staticmethod
    def backward(ctx, gradient):
        x, part = ctx.saved_tensors
        to_x = gradient @ gathered(part).view(-1, x.shape[1])
        return to_x, reduce_scattered(gradient.T @ x)


class Stage3:
    """Each number is in one place only."""

    weights = ()

    def __init__(self, model, linear=ShardedLinear):
        self.parts = [nn.Parameter(part_of(weight).clone()) for weight in model.parameters()]
        self.optimizer, self.linear = AdamW(self.parts, lr=1e-3), linear

    def forward(self, x):
        for part in self.parts:
            x = nn.functional.gelu(self.linear.apply(x, part))
        return x

    def step(self, x):
        self.optimizer.zero_grad()
        loss = self.forward(x).square().mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


# %% [markdown]
# Note what is missing: there is no averaging of gradients, and no all-gather after the step. The gradient of
# an all-gather **is** a reduce-scatter, so sharding has become a part of backward, and the rest of the loop
# is the same as in a single process.
#
# **Question.** What does stage 3 send, in P?

# %%
stage_3_sends = None  # your prediction, in P

# %%
# %%ranks
stage_2, stage_3 = Stage2(mlp()), Stage3(mlp())
losses = stage_2.step(rows), stage_3.step(rows)

# %%
# %%ranks --trace
loss = stage_3.step(rows)

# %%
traffic = {f"stage {n}": sent(f"stage_{n}.step(rows)") for n in range(4)}
formula = {"stage 0": 2, "stage 1": 2, "stage 2": 2, "stage 3": 3}
yours = {"stage 1": stage_1_sends, "stage 3": stage_3_sends}
compare(traffic, formula, yours, "P", "Sent by each rank in a step, in units of (N−1)/N · P")

# %% [markdown]
# There are 8 all-gathers and 4 reduce-scatters: P for the weights in forward, P for the weights again in
# backward, and P for the gradients. The ZeRO paper calls **3P instead of 2P** "1.5 times the communication":
# 1.5 times as much as plain data parallelism and stages 1 and 2 send.

# %% [markdown]
# ## 5. The stages in memory
#
# The formulas, for P parameters on N ranks, in bytes:
#
# | | float32 | mixed precision | limit for many ranks |
# |---|---|---|---|
# | stage 0 | 16P | 16P | |
# | stage 1: optimizer state | 8P + 8P/N | 4P + 12P/N | 4 times less |
# | stage 2: and gradients | 4P + 12P/N | 2P + 14P/N | 8 times less |
# | stage 3: and weights | 16P/N | 16P/N | N times less |
#
# The limits are those of mixed precision; in float32 the limits of stages 1 and 2 are 2 and 4.
#
# **Question.** How many MiB does each rank keep after a step? In float32 P parameters are 16 MiB.

# %%
mebibytes = {"stage 0": None, "stage 1": None, "stage 2": None, "stage 3": None}  # your predictions

# %%
# %%ranks
losses, kept, on_the_gpu = {}, {}, {}
for number, Stage in enumerate([Stage0, Stage1, Stage2, Stage3]):
    before = torch.cuda.memory_allocated() if device.type == "cuda" else 0
    stage = Stage(mlp())
    losses[f"stage {number}"] = [stage.step(rows).item() for _ in range(5)]
    kept[f"stage {number}"] = held([*stage.weights, *getattr(stage, "parts", ())], stage.optimizer)
    if device.type == "cuda":
        on_the_gpu[f"stage {number}"] = (torch.cuda.memory_allocated() - before) / 2**20
    del stage

# %%
kept = world.pull("kept")
measured = {name: {part: size / 2**20 for part, size in parts.items()} for name, parts in kept[0].items()}
# P bytes are 4 MiB, P/N are 1
formula = {"stage 0": 16 * 4, "stage 1": 8 * 4 + 8 * 1, "stage 2": 4 * 4 + 12 * 1, "stage 3": 16 * 1}
print("all ranks keep the same:", all(other == kept[0] for other in kept))
print("by the GPU's allocator:", world.pull("on_the_gpu")[0] or "there is no GPU here")
compare(measured, formula, mebibytes, "MiB", "Kept by each of 4 ranks after a step")

# %% [markdown]
# The marks are the formulas, and the bars are the tensors that we found. Is it still the same training?

# %%
losses = world.pull("losses")[0]
for name, values in losses.items():
    difference = max(abs(a - b) for a, b in zip(values, losses["stage 0"], strict=True))
    print(f"{name}: losses {values[0]:.3e} … {values[-1]:.3e}, at most {difference:.1e} from stage 0")

# %% [markdown]
# Only *where* a number is kept has changed, not its value. ZeRO **splits storage, not computation**: every
# rank still multiplies whole matrices, for its own rows. Tensor parallelism (lecture 06) splits the
# multiplication itself.
#
# "ZeRO saves memory in proportion to the number of ranks"? Only stage 3 does:

# %%
ranks = range(1, 65)
formulas = {  # GB for 7.5 billion parameters
    "stage 0": [7.5 * 16 for n in ranks],
    "stage 1": [7.5 * (4 + 12 / n) for n in ranks],
    "stage 2": [7.5 * (2 + 14 / n) for n in ranks],
    "stage 3": [7.5 * 16 / n for n in ranks],
}
print({name: f"{line[-1]:.1f} GB on 64 ranks" for name, line in formulas.items()})
lines = {name: (ranks, line) for name, line in formulas.items()}
title = "7.5 billion parameters, mixed precision: the formulas"
curves(lines, "ranks", "GB on each rank", title, log=True)

# %% [markdown]
# These are the numbers of ZeRO's paper: 120, 31.4, 16.6 and 1.9 GB. Stages 1 and 2 are limited by the parts
# that they still replicate, 4P and 2P.
#
# Move the sliders. What is the largest model that stage 1 can hold on any number of 80 GB GPUs? And how many
# ranks does stage 3 need for 70 billion parameters?

# %%
from fourranks.figures import playgrounds

playgrounds.zero_stages()

# %% [markdown]
# ## 6. Memory during a step
#
# So far we counted the memory *after* a step. During a step stage 3 also holds whole weights and whole
# gradients, each for a moment. How many at a time? `Allocations` records the memory in use after every torch
# operation, in forward, backward and optimizer. On a GPU it asks the memory allocator. The CPU's allocator
# has no such counter, so there it adds up all live storages.

# %%
# %%ranks
from fourranks.rank.allocations import Allocations


def watched(build):
    """Return MiB over ms on this rank while a model is made and takes two steps, and the peak of each."""
    with Allocations() as memory:
        memory.mark("making")
        stage = build()
        for step in ("step 1", "step 2"):
            memory.mark(step)
            stage.step(rows)
    line = [1000 * second for second in memory.seconds], [size / 2**20 for size in memory.nbytes]
    marks = {1000 * second: name for name, second in memory.marks.items()}
    return line, marks, {name: memory.peak(name) / 2**20 for name in memory.marks}


# %% [markdown]
# **Question.** Between steps stage 0 keeps 64 MiB and stage 3 keeps 16. A whole weight, or a whole gradient,
# is 4 MiB. Adam's update of a parameter needs temporary tensors of its size: three at a time. What is the peak
# of each *during* its second step?

# %%
peaks = {"stage 0": None, "stage 3": None}  # your predictions, in MiB

# %%
# %%ranks
memory = {"stage 0": watched(lambda: Stage0(mlp())), "stage 3": watched(lambda: Stage3(mlp()))}

# %%
memory = world.pull("memory")[0]
measured = {name: peak["step 2"] for name, (_, _, peak) in memory.items()}
compare(measured, None, peaks, "MiB", "Most that was allocated in the second step, on rank 0")

# %%
line, marks, _ = memory["stage 3"]
lines = {"kept after a step": ([0, line[0][-1]], [16, 16]), "allocated": line}
curves(lines, "ms", "MiB", "Stage 3 on rank 0: a model is made and takes two steps", marks=marks)

# %% [markdown]
# Stage 0 has its peak in the optimizer: the 64 MiB, plus Adam's own intermediate results. Stage 3's peak is
# 16 MiB and *one* whole weight or gradient. On a busy machine it may be more, because Gloo's own thread can
# still hold the tensors of a call for a moment after the call has returned. Read the curve from left to
# right:
#
# - **A mountain at the very beginning**: each rank makes the whole model, 16 MiB, only to cut its shard of 4
#   MiB out of it. You cannot make a model that does not fit like that; section 8 shows another way.
# - **Forward** has four teeth: a weight of 4 MiB is gathered, used and freed, the level falls back, and then
#   the next weight follows. In the second step the teeth reach only 16 MiB, because a step begins by dropping
#   the old gradients.
# - **Backward** has eight teeth: a weight is gathered and freed, then a whole gradient is computed and freed,
#   and its shard stays.
# - **The optimizer** makes m and v in the first step. From then on the level after a step is the 16 MiB of section 5.
#
# So a layer costs its *whole* size, but only one layer at a time. The larger the pieces that are gathered
# together, the higher the teeth.

# %% [markdown]
# ### What autograd keeps
#
# `ShardedLinear` decides itself what it saves for backward. In any other module autograd decides: each operation saves the tensors from which
# its backward computes. You can watch that, and you can put something else in a tensor's place. Inside
#
# ```python
# with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
# ```
#
# autograd keeps `pack(tensor)` instead of every tensor that an operation saves, and in backward it calls
# `unpack` on the kept object. Let us watch that in two layers of the model of section 1.
#
# **Question.** Two linear layers without bias, each followed by a GELU. How many tensors do they save for backward, and how many of these
# are weights?

# %%
saved_tensors = {"in all": None, "weights": None}  # your predictions

# %%
# %%ranks 0
from torch.autograd.graph import saved_tensors_hooks

two_layers = mlp(layers=2)
weight_at = {w.untyped_storage().data_ptr(): name for name, w in two_layers.named_parameters()}
saved = []


def pack(tensor):
    name = weight_at.get(tensor.untyped_storage().data_ptr(), "an activation")
    saved.append(f"{tuple(tensor.shape)}, strides {tensor.stride()}: {name}")
    return tensor


with saved_tensors_hooks(pack, lambda kept: kept):
    y = two_layers(rows)
print("\n".join(saved))

# %%
saved = world.pull("saved", [0])[0]
weights = sum("weight" in each for each in saved)
print(f"{predicted(saved_tensors)}measured: {len(saved)} in all, of which {weights} of weights")

# %% [markdown]
# Each linear layer saves its input, to compute the weight's gradient from it, and each GELU saves its own
# input. A layer saves its weight only to compute the gradient of its *input*, and the first layer's input,
# the rows, needs no gradient. The weight is saved as a **view**: the strides (1, 1024) belong to its
# transpose. A view shares the memory of its tensor, so `pack` recognized the weight by its address,
# `untyped_storage().data_ptr()`.
#
# These hooks make FSDP possible for any module: instead of a gathered weight, `pack` keeps only the
# information needed to gather it again. You write that in the exercise. The hooks also help with the other
# half of a GPU's memory, the activations: keep *only* the input of a layer, and let `unpack` compute the rest
# again. That is **recomputation**, or activation checkpointing. Torch implements it with these hooks: write
# `checkpoint(layer, x, use_reentrant=False)` instead of `layer(x)`.
#
# **Question.** Four layers of width 1024, each with its GELU, on 512 rows, where an activation takes 2 MiB. How many MiB are kept from
# forward to backward, and how many FLOPs does the step take, in multiples of those without recomputation?

# %%
# your predictions
kept_mib = {"everything kept": None, "layers recomputed": None}
flops_over_plain = None

# %%
# %%ranks 0
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode


def kept_and_flops(recompute):
    """MiB that are there after forward and were not before, and the FLOPs of forward and backward."""
    model, x = mlp(), torch.randn(512, 1024, device=device)
    with Allocations() as memory, FlopCounterMode(display=False) as flops:
        before = memory.now
        for layer in (model[at : at + 2] for at in range(0, len(model), 2)):
            x = checkpoint(layer, x, use_reentrant=False) if recompute else layer(x)
        kept = memory.now - before
        x.sum().backward()
    return kept / 2**20, flops.get_total_flops()


plain, recomputed = kept_and_flops(False), kept_and_flops(True)

# %%
(plain_mib, plain_flops), (recomputed_mib, flops) = (world.pull(n, [0])[0] for n in ("plain", "recomputed"))
print(f"{predicted(flops_over_plain)}FLOPs: {flops / plain_flops:.2f} times as many")
measured = {"everything kept": plain_mib, "layers recomputed": recomputed_mib}
formula = {"everything kept": 8 * 2, "layers recomputed": 4 * 2}
compare(measured, formula, kept_mib, "MiB", "Kept from forward to backward: 4 layers, 512 rows")

# %% [markdown]
# Half of the memory is saved, since for each layer only one activation is kept instead of two. A Transformer
# layer computes some ten activations between its input and its output, so there recomputation saves more. The
# price is one more forward pass. Without recomputation forward is a third of a step, so the step grows by
# about a third. Here it is a little more, because the first layer's backward is cheaper: the rows need no
# gradient. The random state is restored, so that dropout drops the same elements again.
#
# You need not recompute everything: *selective* recomputation discards only activations that are large and
# cheap to compute, such as attention scores. Under FSDP a recomputed layer has to gather its weights for the
# recomputation, and keeps them for the backward that follows.

# %% [markdown]
# ## 7. Prefetch
#
# In the timeline of section 4 the ranks wait whenever a weight is being gathered. But the order of the
# weights is known in advance. So start to gather the next weight *before* computing with the current one.
# That is **prefetching**, and it turns ZeRO-3 into **FSDP**, "fully sharded data parallel".
#
# As in lecture 04, each layer also waits 5 ms in forward and 10 ms in backward, like a CPU whose GPU
# computes. In the timelines of this section "computing" is mostly this imitated computation; the messages are
# real. There are 8 layers of width 256.

# %%
# %%ranks
import time


def wait_for(work):
    """Wait until the data is there: NCCL's own wait() holds up the GPU's stream, but not the CPU."""
    work.wait()
    if device.type == "cuda":
        torch.cuda.current_stream().synchronize()


# %%
# %%ranks
class Weights:
    """The weights of all layers: this rank's parts, and the whole weights that are in use or in flight."""

    def __init__(self, parts, prefetch):
        self.parts, self.prefetch = parts, prefetch
        self.coming, self.leaving = {}, []

    def ask_for(self, number):
        if number in range(len(self.parts)) and number not in self.coming:
            whole = torch.empty(256 * 256, device=device)
            work = dist.all_gather_single(whole, self.parts[number].detach(), async_op=True)
            self.coming[number] = whole, work

    def get(self, number, following):
        self.ask_for(number)
        if self.prefetch:
            self.ask_for(following)
        whole, work = self.coming.pop(number)
        wait_for(work)
        return whole.view(256, 256)

    def send_away(self, number, gradient):
        self.finish()  # at most one whole gradient is in flight
        part = torch.empty_like(self.parts[number])
        work = dist.reduce_scatter_single(part, gradient.flatten(), op=dist.ReduceOp.AVG, async_op=True)
        self.leaving.append((self.parts[number], part, work))
        if not self.prefetch:
            self.finish()

    def finish(self):
        while self.leaving:
            parameter, gradient, work = self.leaving.pop(0)
            wait_for(work)
            parameter.grad = gradient


# %%
# %%ranks
class SlowLinear(torch.autograd.Function):
    """A sharded layer that takes 5 ms forward and 10 ms backward."""

    @staticmethod
    def forward(ctx, x, part, weights, number):
        ctx.save_for_backward(x)
        ctx.weights, ctx.number = weights, number
        weight = weights.get(number, following=number + 1)
        time.sleep(0.005)
        return x @ weight.T

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        weight = ctx.weights.get(ctx.number, following=ctx.number - 1)
        time.sleep(0.010)
        ctx.weights.send_away(ctx.number, gradient.T @ x)
        return gradient @ weight, None, None, None


# %%
# %%ranks
few_rows = torch.randn(8, 256, device=device)


def eight_layers(prefetch):
    return Weights([nn.Parameter(part_of(weight).clone()) for weight in mlp(256, 8).parameters()], prefetch)


def train_once(weights):
    x = few_rows
    for number, part in enumerate(weights.parts):
        x = nn.functional.gelu(SlowLinear.apply(x, part, weights, number))
    x.square().mean().backward()
    weights.finish()


without, ahead = eight_layers(prefetch=False), eight_layers(prefetch=True)
for weights in (without, ahead):
    train_once(weights)  # first calls are slower

# %% [markdown]
# Without prefetching:


# %%
def timeline_of(expression, title):
    """Draw what the ranks do in this time; the legend says that they only pretend to compute."""
    with world.trace() as trace:
        world.execute(expression)
    return trace.timeline(title, computing="computing: pretended, asleep")


timeline_of("train_once(without)", "Without prefetching: a step of 8 sharded layers, 4 ranks")

# %% [markdown]
# **Question.** Computing takes 8 · (5 + 10) = 120 ms, and the timeline shows what waiting for weights adds to it. How many milliseconds
# will a step take with prefetching?

# %%
step_ms = {"with prefetching": None}  # your prediction

# %% [markdown]
# With prefetching:

# %%
timeline_of("train_once(ahead)", "With prefetching: a step of 8 sharded layers, 4 ranks")

# %% [markdown]
# The thin bars are calls in flight while the rank computes: in forward the next layer's weight; in backward
# the next weight and the last gradient, at the same time. Three transfers cannot be hidden: the first weight
# in forward, the first weight in backward, and the last gradient. Gloo does not report when a reduce-scatter
# has finished, so its bar ends where the rank asks for the result, a layer later.
#
# Now we time both versions several times:


# %%
# %%ranks
from fourranks.bench import synchronize


def milliseconds(run, times=7):
    spent = []
    for _ in range(times):
        dist.barrier()
        begun = time.perf_counter()
        run()
        synchronize(device)  # NCCL's calls return when they are queued
        spent.append(1000 * (time.perf_counter() - begun))
    return sorted(spent)[times // 2]


def talk_only():
    for part in without.parts:
        gathered(part), gathered(part), reduce_scattered(torch.ones(256 * 256, device=device))


# %%
# %%ranks
talking = milliseconds(talk_only)
steps = {
    "without": milliseconds(lambda: train_once(without)),
    "with prefetching": milliseconds(lambda: train_once(ahead)),
}

# %%
talking, measured = world.pull("talking")[0], world.pull("steps")[0]
title = f"A step of 8 sharded layers; communication alone takes {talking:.0f} ms"
compare(measured, {"without": 120 + talking, "with prefetching": 120}, step_ms, "ms", title)
hidden = max(0, measured["without"] - measured["with prefetching"]) / talking
finding(
    hidden > 0.2,
    f"prefetching hid {hidden:.0%} of the communication.",
    f"prefetching hid only {hidden:.0%} of the communication: with more ranks than free cores, or several on one GPU, adding needs the time that it should hide in.",
)

# %% [markdown]
# The price of prefetching is memory: there are *two* whole weights, one in use and one being gathered.
# Prefetching all weights together would give the fastest step, but would need as much memory as stage 2. FSDP
# limits how far ahead it prefetches.
#
# **When is the communication hidden completely?** A layer of p parameters computes 2pT operations for T
# tokens in forward, while 2p bytes of bfloat16 arrive. At F operations and B bytes a second the bytes are
# hidden if T ≥ F/B. Backward computes twice as much, and moves twice as much. So it is data parallelism's
# rule once more, and B depends on the node as it did there (lecture 03, section 7). With H100s at half of
# their 989 TFLOP/s it takes
#
# - some **9,900** tokens on each rank with one GPU in a node, behind one card of 50 GB/s,
# - some **1,240** across nodes of eight GPUs and eight cards: each card brings an eighth of the weights into the node, and NVLink
#   hands it on, so that up to 400 GB/s arrive at each rank,
# - some **1,100** inside one node, over NVLink's 450 GB/s.

# %% [markdown]
# ## 8. torch's own
#
# Torch's function is `fully_shard`, its second version of FSDP. Call it on each layer, then on the whole
# model, **from the inside out**. Each call makes one *unit*, whose parameters are gathered and freed
# together.

# %%
# %%ranks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

mesh = init_device_mesh(device.type, (world_size,))


class Torch:
    """Torch's version of the stages above."""

    def __init__(self, model, by_layer=True, **options):
        for layer in model if by_layer else ():
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh, **options)
        self.model = fully_shard(model, mesh=mesh, **options)
        self.optimizer = AdamW(model.parameters(), lr=1e-3)  # made after sharding: it must see the parts

    def step(self, x):
        self.optimizer.zero_grad()
        loss = self.model(x).float().square().mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


torchs = Torch(mlp())
print(type(torchs.model[0].weight).__name__, torchs.model[0].weight.to_local().shape)

# %% [markdown]
# `step` is the same as in a single process. Parameters have become **DTensors**: their shape is 1024 × 1024,
# but each rank holds only 256 rows. Our version shards the flattened weight; torch shards dimension 0.
#
# Are the losses ours, too? Five steps on the same data:

# %%
# %%ranks
theirs = [torchs.step(rows).item() for _ in range(5)]
difference = max(abs(a - b) for a, b in zip(theirs, losses["stage 3"], strict=True))
print(f"losses {theirs[0]:.3e} … {theirs[-1]:.3e}, at most {difference:.1e} from ours")

# %%
# %%ranks --trace
loss = torchs.step(rows)

# %% [markdown]
# Torch makes the same 8 all-gathers and 4 reduce-scatters. On a GPU it prefetches, too: it launches the next
# layer's all-gather on a second stream while the current layer computes, and
# `set_modules_to_forward_prefetch` makes it prefetch further ahead. On a CPU it waits for each all-gather, as
# the timeline shows.

# %% [markdown]
# ### How large is a unit?
#
# Many templates wrap the whole model in one line, `FSDP(model)` in the first version.
#
# **Question.** With everything in one unit, how many all-gathers are there in a step, and what is the peak of
# memory, compared with one unit for each layer?

# %%
# your predictions
all_gathers = {"a unit for each layer": None, "one unit": None, "FSDP(model)": None}
peaks = {"a unit for each layer": None, "one unit": None, "FSDP(model)": None}  # MiB

# %%
# %%ranks
from torch.distributed.fsdp import FullyShardedDataParallel


class FirstVersion(Torch):
    def __init__(self, model):
        self.model = FullyShardedDataParallel(model, device_id=device)
        self.optimizer = AdamW(self.model.parameters(), lr=1e-3)


# %%
# %%ranks
builds = {
    "a unit for each layer": lambda: Torch(mlp()),
    "one unit": lambda: Torch(mlp(), by_layer=False),
    "FSDP(model)": lambda: FirstVersion(mlp()),
}
memory = {name: watched(build) for name, build in builds.items()}
units = {name: build() for name, build in builds.items()}
for unit in units.values():
    unit.step(rows)

# %%
counted = {}
for name in ("a unit for each layer", "one unit", "FSDP(model)"):
    with world.trace() as trace:
        world.execute(f"units[{name!r}].step(rows)")
    counted[name] = sum(row.calls for row in trace.table().rows if "all_gather" in row.op)
compare(counted, None, all_gathers, "", "All-gathers in a step")

# %%
measured = {name: peak["step 2"] for name, (_, _, peak) in world.pull("memory")[0].items()}
compare(measured, None, peaks, "MiB", "Most that was allocated in the second step, on rank 0")

# %% [markdown]
# One unit is simple but defeats the purpose: the whole model is gathered together, and nothing is left to
# prefetch. It is gathered only once, because torch does not free the outermost unit after forward, since
# backward needs it immediately. Usually each *block* of a Transformer is a unit: large enough that latencies
# do not matter, like the buckets of lecture 04, but small compared with the model.
#
# With a unit for each layer torch needs more than our 20 MiB: a unit's parameters are copied into one buffer,
# gathered together, and copied out again.
#
# The first version's `FSDP(module)` needs an `auto_wrap_policy` for that (and on a CPU `device_id=`, or it raises "FSDP needs a
# non-CPU accelerator device"). It packs all parameters of a unit into one flat vector; `fully_shard` leaves them apart, which is why it can
# handle frozen and mixed ones. New code uses `fully_shard`.

# %% [markdown]
# ### Trading memory for traffic
#
# **Question.** With `reshard_after_forward=False` the weights stay after forward, until backward has used them. What is then sent in a
# step, and which stage is that?

# %%
kept_weights_send = None  # your prediction, in P

# %%
# %%ranks
keeps = Torch(mlp(), reshard_after_forward=False)
loss = keeps.step(rows)

# %%
keeps_sent = sent("keeps.step(rows)")
print(
    f"{predicted(kept_weights_send, about='P sent with kept weights', was=keeps_sent)}sent: {keeps_sent:.2f} P"
)

# %% [markdown]
# It sends P less, because backward finds the weights in place. So the traffic is that of stage 2, and so is
# the memory between forward and backward.
#
# **Question.** And with accumulation? For four microbatches and one step of the optimizer, how many P does each
# rank send: in stage 0 with `no_sync`, with `fully_shard`, and with a `fully_shard` that reduce-scatters only
# after the last microbatch?

# %%
# your predictions, in P, for four microbatches
accumulating = {"stage 0, no_sync": None, "fully_shard": None, "fully_shard, one reduce-scatter": None}


# %%
# %%ranks
def accumulate(sharded, one_reduce_scatter):
    for number, microbatch in enumerate(rows.chunk(4)):
        sharded.model.set_requires_gradient_sync(number == 3 or not one_reduce_scatter)
        (sharded.model(microbatch).square().mean() / 4).backward()
    sharded.optimizer.step()
    sharded.optimizer.zero_grad()


accumulate(torchs, True)

# %%
measured = {
    "stage 0, no_sync": sent("for weight in stage_0.weights: dist.all_reduce(weight.grad)"),
    "fully_shard": sent("accumulate(torchs, False)"),
    "fully_shard, one reduce-scatter": sent("accumulate(torchs, True)"),
}
formula = dict(zip(measured, [2, 4 * 3, 4 * 2 + 1], strict=True))
compare(measured, formula, accumulating, "P", "Sent by each rank for four microbatches")

# %% [markdown]
# Weights that are not kept must be gathered for every microbatch. `set_requires_gradient_sync(False)` saves
# reduce-scatters, at the price of whole gradients in memory. So with sharding prefer larger microbatches to
# more of them.

# %% [markdown]
# ### A model that never exists as a whole
#
# Back to the mountain of section 6. On the device `meta` tensors have a shape but no memory. So make the
# model there, shard it, and only then allocate memory, for the shards alone. Then fill in the shards, from a
# checkpoint or at random.
#
# **Question.** What is the peak of memory while the model is *made*?

# %%
peaks = {"made whole": None, "made on meta": None}  # your predictions, in MiB


# %%
# %%ranks
class FromMeta(Torch):
    def __init__(self):
        with torch.device("meta"):
            model = nn.Sequential(*(nn.Linear(1024, 1024, bias=False) for _ in range(4)))
        super().__init__(model)
        model.to_empty(device=device)
        for part in (weight.to_local() for weight in model.parameters()):
            nn.init.normal_(part, std=1024**-0.5)


memory = {"made whole": watched(lambda: Torch(mlp())), "made on meta": watched(FromMeta)}

# %%
measured = {name: peak["making"] for name, (_, _, peak) in world.pull("memory")[0].items()}
compare(
    measured, {"made on meta": 4}, peaks, "MiB", "Most that was allocated while the model was made, on rank 0"
)

# %% [markdown]
# ## 9. Mixed precision: master weights stay on their rank
#
# Sharding and mixed precision were made for each other: the shard that a rank keeps is its float32 *master*,
# and the rank rounds it to bfloat16 before it sends it. A bfloat16 copy exists only while a layer is
# gathered. Two lines change:


# %%
# %%ranks
class MixedLinear(torch.autograd.Function):
    """A sharded layer that keeps float32, and gathers and computes in bfloat16."""

    @staticmethod
    def forward(ctx, x, part):
        ctx.save_for_backward(x, part)
        return x @ gathered(part.bfloat16()).view(-1, x.shape[1]).T

    @staticmethod
    def backward(ctx, gradient):
        x, part = ctx.saved_tensors
        to_x = gradient @ gathered(part.bfloat16()).view(-1, x.shape[1])
        return to_x, reduce_scattered((gradient.T @ x).float())  # added up in float32


class MixedStage3(Stage3):
    def forward(self, x):
        return super().forward(x.bfloat16()).float()


# %% [markdown]
# Torch calls it a `MixedPrecisionPolicy`: `param_dtype` is for weights while they are sent and used,
# `reduce_dtype` for gradients while they are sent.
#
# **Question.** How many bytes a parameter does a rank send in a step (in units of (N−1)/N, as before)? Plain data parallelism in
# float32: 2 · 4.

# %%
# your predictions, in bytes a parameter
bytes_sent = {
    "stage 0, float32": None,
    "stage 3, float32": None,
    "weights in bfloat16, ours": None,
    "weights in bfloat16, torch's": None,
    "all in bfloat16, torch's": None,
}

# %%
# %%ranks
from torch.distributed.fsdp import MixedPrecisionPolicy

weights_only = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
mixed = MixedStage3(mlp(), MixedLinear)
torchs_mixed = Torch(mlp(), mp_policy=weights_only)
torchs_bfloat16 = Torch(mlp(), mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
pairs = [(mixed.step(rows).item(), torchs_mixed.step(rows).item()) for _ in range(5)]
loss = torchs_bfloat16.step(rows)
print("ours and torch's:", ", ".join(f"{ours:.3e} {theirs:.3e}" for ours, theirs in pairs))

# %%
runs = {
    "stage 0, float32": ("stage_0", 2 * 4),
    "stage 3, float32": ("stage_3", 3 * 4),
    "weights in bfloat16, ours": ("mixed", 2 + 2 + 4),
    "weights in bfloat16, torch's": ("torchs_mixed", 2 + 2 + 4),
    "all in bfloat16, torch's": ("torchs_bfloat16", 3 * 2),
}
measured = {name: 4 * sent(f"{run}.step(rows)") for name, (run, _) in runs.items()}
formula = {name: number for name, (_, number) in runs.items()}
compare(
    measured, formula, bytes_sent, "bytes", "Sent by each rank for each parameter, in units of (N−1)/N bytes"
)

# %% [markdown]
# In bfloat16 stage 3 sends no more than plain data parallelism in float32. Gradients are often added in
# float32 nevertheless, since bfloat16 keeps only 8 bits: in lecture 04, 256 + 1 was 256.
#
# Why keep float32 masters at all?
#
# **Question.** A weight of 1 gets 1000 updates of 0.001 each. Where does it end, in float32 and in bfloat16?

# %%
ends_at = {"float32": None, "bfloat16": None}  # your predictions

# %%
# %%ranks 0
ends = {}
for name, dtype in {"float32": torch.float32, "bfloat16": torch.bfloat16}.items():
    weight = torch.ones((), dtype=dtype)
    for _ in range(1000):
        weight += 0.001
    ends[name] = weight.item()

# %%
compare(world.pull("ends", [0])[0], {"float32": 2, "bfloat16": 2}, ends_at, "", "1 + 1000 · 0.001")

# %% [markdown]
# The next bfloat16 above 1 is 1.0078. So 1.001 is rounded back to 1, a thousand times.
#
# **Eight bits.** From the H100 on, GPUs also multiply in float8, at twice the rate of bfloat16. A float8 has
# so few values that each tensor, or each block of one, gets a scale that brings its largest element to the
# end of the range.
#
# A rank can round its shard to float8 before it sends it: the gathered weights then take 1 + 1 bytes a
# parameter instead of 2 + 2. But the largest element of a weight may be in the shard of any rank, so the
# ranks first need an all-reduce of one number for each weight, with MAX. Gradients are still added up in
# bfloat16 or float32, and the masters stay float32.

# %% [markdown]
# ## 10. Special cases

# %% [markdown]
# ### Sizes that do not divide
#
# **Question.** Torch shards a weight with 10 rows, and one with 5, over four ranks. How many rows does each
# rank keep?

# %%
rows_on_ranks = {"10 rows": None, "5 rows": None}  # your predictions, as lists

# %%
# %%ranks
odd = nn.Sequential(nn.Linear(16, 10), nn.Linear(10, 5)).to(device)
for layer in odd:
    fully_shard(layer, mesh=mesh)
fully_shard(odd, mesh=mesh)
kept_rows = [layer.weight.to_local().shape[0] for layer in odd]

# %%
kept_rows = [list(each) for each in zip(*world.pull("kept_rows"), strict=True)]
for name, each in zip(("10 rows", "5 rows"), kept_rows, strict=True):
    print(f"{name}: {predicted(rows_on_ranks, of=name, about=f'how {name} are kept', was=each)}kept {each}")

# %%
# %%ranks --trace
odd(torch.ones(2, 16, device=device)).sum().backward()

# %% [markdown]
# Torch cuts as `torch.chunk` does: ⌈10 / 4⌉ = 3 rows for each rank, until none are left. Of 5 rows rank 3
# gets none at all, but it still takes part in every collective. All-gathers need shards of equal size, so
# these are *padded*: 4 times 3 rows of 16, and 4 times 3 biases. Sharding the flattened weight wastes less,
# at most N − 1 elements.
#
# The table shows one all-gather for weight *and* bias: torch gathers a unit's parameters in one collective.
# That matters. At width 1024 a bias is 1024 times smaller than its weight, and its own all-gather would cost
# the same latency. Alternatively, leave small parameters replicated, and average their gradients by an
# all-reduce. The exercise does that.

# %% [markdown]
# ### Tied weights
#
# Language models often use one matrix twice: to embed tokens at the beginning, and to score them at the end. Here layers 0 and 3 share
# one.
#
# **Question.** With our stage 3, how many all-gathers and reduce-scatters does a step make for these *three* weights? Is the tied
# weight's gradient right?

# %%
tied_calls = {"all_gather_single": None, "reduce_scatter_single": None}  # your predictions

# %%
# %%ranks
tied = Stage3(mlp())
tied.parts = [*tied.parts[:3], tied.parts[0]]
model = mlp()
model[6].weight = model[0].weight
tied.forward(rows).square().mean().backward()
model(rows).square().mean().backward()
right = model[0].weight.grad
dist.all_reduce(right, op=dist.ReduceOp.AVG)
difference = (tied.parts[0].grad - part_of(right)).abs().max()
print(f"largest gradient {right.abs().max():.1e}, largest difference {difference:.1e}")

# %%
with world.trace() as trace:
    world.execute("tied.forward(rows).square().mean().backward()")
counted = {row.op: row.calls for row in trace.table().rows}
compare(counted, None, tied_calls, "", "Three weights in four layers")

# %% [markdown]
# The gradient is correct, but the traffic is wasteful: the weight is gathered for each *use*, and both of
# its gradients are reduce-scattered and then added by autograd. If your wrapper puts a hook on the
# parameter, the hook must not act before both gradients have been added.
#
# And torch, when each layer is its own unit?

# %%
# %%ranks
try:
    model = mlp()
    model[6].weight = model[0].weight
    Torch(model).step(rows)
except ValueError as error:
    print("ValueError:", error)

# %%
# %%ranks
model = mlp()
model[6].weight = model[0].weight
fully_shard([model[0], model[6]], mesh=mesh)
for layer in (model[2], model[4]):
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
model(rows).square().mean().backward()
difference = (model[0].weight.grad.full_tensor() - right).abs().max()
print(f"largest difference {difference:.1e}")

# %% [markdown]
# Torch refuses, and its message says what to do: put both users into *one* unit, which then stays gathered from the first to the last.

# %% [markdown]
# ### Frozen weights
#
# When a large model is fine-tuned, most of it is frozen: it has no gradient, no m and v, and no master. Only
# the weight remains, 2 bytes for each parameter, or 2P/N bytes when it is sharded.
#
# **Question.** Layers 0 and 1 are frozen. How many all-gathers and reduce-scatters are left of 8 and 4?

# %%
frozen_calls = {"all_gather_single": None, "reduce_scatter_single": None}  # your predictions

# %%
# %%ranks
frozen = Stage3(mlp())
for part in frozen.parts[:2]:
    part.requires_grad_(False)
loss = frozen.step(rows)

# %%
with world.trace() as trace:
    world.execute("frozen.step(rows)")
counted = {row.op: row.calls for row in trace.table().rows}
compare(counted, None, frozen_calls, "", "Two of four layers frozen")

# %% [markdown]
# Backward ends where no earlier layer needs a gradient, so the frozen weights are not even gathered again.
# Layer 2's weight would not have to be gathered, either: it is used only for the gradient of the layer's
# *input*, which is not needed here; `ctx.needs_input_grad` tells that. If instead the *last* layers are
# frozen, they must be gathered, because the gradient has to pass through them.

# %% [markdown]
# ### Clipping
#
# *Optional: the exercise does not need it.*
#
# Large models clip gradients: if the norm of *all* gradients together exceeds a limit, all are scaled down. `clip_grad_norm_` computes that
# norm from the gradients it sees. Here each rank sees a quarter.
#
# **Question.** If each rank clips its parts to norm 1 by what it sees, what is the norm of the whole gradient?

# %%
norm_after = {"each by its own norm": None, "by the common norm": None}  # your predictions


# %%
# %%ranks
def squares(gradients):
    """The sum of all squares, of all ranks' parts."""
    total = sum(gradient.square().sum() for gradient in gradients)
    dist.all_reduce(total)
    return total


sharded = Stage3(mlp())
sharded.forward(1000 * rows).square().mean().backward()
gradients = [part.grad for part in sharded.parts]
own = sum(gradient.square().sum() for gradient in gradients).sqrt()
common = squares(gradients).sqrt()
after = {
    "each by its own norm": squares([gradient / own for gradient in gradients]).sqrt().item(),
    "by the common norm": squares([gradient / common for gradient in gradients]).sqrt().item(),
}
print(f"own norm {own:.3g}, common norm {common:.3g}")

# %%
formula = {"each by its own norm": 4**0.5, "by the common norm": 1.0}
compare(world.pull("after")[0], formula, norm_after, "", "Norm of the whole gradient after clipping to 1")

# %% [markdown]
# Each rank scales its own quarter to length 1, so the whole gradient has length 2, twice the limit, and a
# different direction. There is no error, but the training is a different one. The remedy is one all-reduce of
# *one number*, the sum of squares.
#
# Torch's DTensors know that they are shards:

# %%
# %%ranks
torchs = Torch(mlp())
torchs.model(1000 * rows).square().mean().backward()
norm = nn.utils.clip_grad_norm_(torchs.model.parameters(), 1.0)
print(f"{type(norm).__name__}, whole norm {norm.full_tensor():.3g}, ours {common:.3g}")

# %% [markdown]
# Every computation that uses more than one number at a time has the same trap: norms of layers (LAMB), whole
# matrices (Muon), factors of rows and columns (Adafactor), a maximum over all weights. Adam and SGD use one
# number at a time, and need no communication.

# %% [markdown]
# ## 11. Checkpoints without a whole model
#
# *Optional: the exercise does not need it.*
#
# In lecture 04 rank 0 wrote the checkpoint, because all ranks held the same state. Now no rank has the whole
# state, and it may not fit on one rank. So **each rank writes its shard**. `torch.distributed.checkpoint`
# does that.

# %%
import tempfile

folder = tempfile.TemporaryDirectory()
checkpoint = folder.name
# %ranks push checkpoint

# %%
# %%ranks
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict

sharded = Torch(mlp())
for _ in range(3):
    sharded.step(rows)
model_state, optimizer_state = get_state_dict(sharded.model, sharded.optimizer)
saved = dcp.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=checkpoint)

# %%
import os

for name in sorted(os.listdir(checkpoint)):
    print(f"{name:12} {os.path.getsize(f'{checkpoint}/{name}') / 2**20:6.2f} MiB")

# %% [markdown]
# There are four files, each with a quarter of the weights, m and v, and a file `.metadata`, which records
# where each row is. So any number of ranks can read the checkpoint.
#
# We go on for three steps, with four ranks and with *two*, each with twice as many rows:


# %%
def go_on(checkpoint, steps):
    """Mean losses of the steps after a checkpoint, on however many ranks there are."""
    import torch.distributed.checkpoint as dcp
    from torch import nn
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (world_size,))
    layers = [nn.Linear(1024, 1024, bias=False) for _ in range(4)]
    model = nn.Sequential(*(module for layer in layers for module in (layer, nn.GELU()))).to(device)
    for module in [*layers, model]:
        fully_shard(module, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    model_state, optimizer_state = get_state_dict(model, optimizer)
    dcp.load({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=checkpoint)
    set_state_dict(model, optimizer, model_state_dict=model_state, optim_state_dict=optimizer_state)

    shards = [torch.randn(32, 1024, generator=torch.Generator().manual_seed(seed)) for seed in range(4)]
    mine = torch.cat(shards).chunk(world_size)[rank].to(device)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(mine).square().mean()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        losses.append(mean.item())
    return losses


# %%
four = world.run(go_on, checkpoint, steps=3)[0]
# %ranks start -n 2
two = fourranks.world().run(go_on, checkpoint, steps=3)[0]
difference = max(abs(a - b) for a, b in zip(four, two, strict=True))
print("four ranks:", four)
print("two ranks: ", two)
print(f"they differ by at most {difference:.1e}")

# %% [markdown]
# Each rank reads the rows that it owns now, from whichever file has them. If other programs should be able to
# load the checkpoint, ask for whole tensors: `StateDictOptions(full_state_dict=True, cpu_offload=True)`
# gathers them, one by one, on rank 0.

# %% [markdown]
# ## 12. When, and which?
#
# | | what is sharded | sent in a step | keeps, mixed precision | use it |
# |---|---|---|---|---|
# | DDP | nothing | 2P | 16P | when everything fits |
# | ZeRO-1 | optimizer state | 2P | 4P + 12P/N | nearly always: it costs no traffic |
# | ZeRO-2 | and gradients | 2P; more with accumulation | 2P + 14P/N | large models without accumulation |
# | ZeRO-3, FSDP | and weights | 3P; more with accumulation | 16P/N | when the weights alone, 2P bytes, are too much |
#
# - **Activations are not sharded.** They depend on the rows, and each rank has its own. When *they* do not fit: smaller
#   microbatches, or recomputation (section 6), for about a third more computing.
# - **A layer must fit**, whole, with its gradient and its activations, on one rank. If it does not, split the multiplication (06).
# - **More ranks mean fewer tokens on each**: computation shrinks, but 3P does not. When T falls below F/B,
#   ranks wait for weights. *Hybrid sharding* then shards within a node, over NVLink, and replicates across
#   nodes: `fully_shard` takes a mesh of two axes, as lecture 08 shows.
# - **Offloading** keeps shards in the CPU's memory (`CPUOffloadPolicy`): another level of lecture 01's
#   hierarchy, behind PCIe.
# - **Names.** DeepSpeed counts ZeRO in stages; PyTorch's FSDP is stage 3 (`SHARD_GRAD_OP` of its first
#   version is stage 2), and `ZeroRedundancyOptimizer` is stage 1. Stanford's CS336, whose lecture this course
#   grew from, mentions FSDP but does not use it.
# - **In JAX** it is a sharding that you declare, and the compiler inserts the collectives: `jax.device_put(w,
#   NamedSharding(mesh, PartitionSpec("data", None)))` for a weight cut by rows over the mesh's axis "data",
#   and then `jax.jit` of the ordinary step. Some notes show a function `shard(model, axis_name=…)`; there is
#   none. Levanter, a library for language models that is built this way, comes from Stanford's CRFM.

# %% [markdown]
# ## 13. The model that learns to write, sharded
#
# Lecture 04 has trained a transformer of 1.3 million parameters on the text of this course
# (`fourranks/learner/model.py`, a page of code), in one process and with DDP. The loop is `train` in
# `fourranks/learner/training.py`: forward, backward, step. Sharding changes the optimizer or the model, but
# not a line of the loop. We train twice, for 250 steps each:
#
# - **ZeRO-1**: DDP, and torch's `ZeroRedundancyOptimizer`, in which each rank updates some of the parameters and
#   broadcasts them. DDP still all-reduces whole gradients, so this version sends 3P, not the 2P of section 2;
# - **FSDP**: `fully_shard` on each of the six layers.
#
# **Question.** The model has 1.29 million parameters in float32. How many MiB will each rank send in a step under FSDP?

# %%
fsdp_sends = None  # your prediction, in MiB

# %%
# %ranks start -n 4
world = fourranks.world()

# %%
# %%ranks
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import fourranks
from fourranks.learner.corpus import course
from fourranks.learner.model import Config, transformer
from fourranks.learner.training import train

corpus, steps = course(), 250
config = Config(len(corpus.alphabet))


# %%
# %%ranks
def train_on_my_rows(model, optimizer, name, **options):
    """The loss on the whole batch in each step: the mean of what the ranks saw on their rows."""
    counted = fourranks.progress(range(steps), name)
    losses = train(model, optimizer, corpus, counted, rank, world_size, **options)
    dist.all_reduce(losses := torch.tensor(losses, device=device))
    return (losses / world_size).tolist()


def train_alone():
    """The losses of one process, which reads all rows."""
    model = transformer(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    return train(model, optimizer, corpus, fourranks.progress(range(steps), "one process"))


# %%
# %%ranks
writer = DistributedDataParallel(transformer(config).to(device))
optimizer = ZeroRedundancyOptimizer(writer.parameters(), torch.optim.AdamW, lr=3e-3)
zero_losses = train_on_my_rows(writer, optimizer, "ZeRO-1")

# %%
# %%ranks
writer = transformer(config).to(device)
for layer in writer:
    fully_shard(layer)
fully_shard(writer)
optimizer = torch.optim.AdamW(writer.parameters(), lr=3e-3)
fsdp_losses = train_on_my_rows(writer, optimizer, "FSDP")

# %%
parameters = world.pull("sum(weight.numel() for weight in transformer(config).parameters())", [0])[0]
with world.trace() as trace:
    world.execute("train(writer, optimizer, corpus, [steps], rank, world_size)")
mebibytes = sum(busbw_factor(row.op, 4) * row.nbytes for row in trace.table().rows) / 2**20
compare(
    {"FSDP": mebibytes},
    {"FSDP": 3 * 3 / 4 * parameters * 4 / 2**20},
    {"FSDP": fsdp_sends},
    "MiB",
    "Sent by each rank in a step",
)

# %% [markdown]
# It is three quarters of 3P, as in section 4. We draw both curves over the losses of lecture 04. If you have
# not run that lecture here, rank 0 first trains alone.

# %%
from fourranks.figures import strategies

lines = {"ZeRO-1": world.pull("zero_losses", [0])[0], "FSDP": world.pull("fsdp_losses", [0])[0]}
for name, losses in lines.items():
    strategies.keep(name, losses)
known = strategies.kept(lines["FSDP"][0])

# %%
if "one process" not in known:
    world.execute("losses = train_alone()", ranks=[0])
    strategies.keep("one process", world.pull("losses", [0])[0])

# %%
lines = strategies.kept(lines["FSDP"][0])
strategies.over_one_another(lines, "The model that learns to write, under each strategy so far")

# %%
largest = {name: max(apart) for name, apart in strategies.apart(lines, "one process").items()}
finding(
    max(largest.values()) < 1e-3,
    f"No strategy's losses differ from those of one process by more than {max(largest.values()):.0e}.",
    f"The losses differ by up to {max(largest.values()):.0e}: training has made differences in the last bit grow.",
)

# %% [markdown]
# The place where a number is *stored* does not change its value. The ranks gather the same weights, average
# the same gradients and make the same AdamW step; only the order of additions differs. This is a text that
# the model writes with the weights that FSDP has trained:

# %%
# %%ranks
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

everything = StateDictOptions(full_state_dict=True, cpu_offload=True)
state = get_model_state_dict(writer, options=everything)  # gathered; rank 0 has it

# %%
from fourranks.learner.corpus import course, write
from fourranks.learner.model import Config, transformer

corpus = course()
writer = transformer(Config(len(corpus.alphabet)))
writer.load_state_dict(world.pull("state", [0])[0])
print(write(writer, corpus, "A shard ", seed=5))

# %% [markdown]
# **Train it with yours** (optional). Paste the cells of the exercise that define `FullyShardedDataParallel` and what it uses into this cell,
# with `on_access` and the imports from the exercise's first code cell, and return the model wrapped in it. With `None` nothing happens.


# %%
# %%ranks
def my_wrapper(model):
    return None  # your own: return FullyShardedDataParallel(model)


# %%
# %%ranks
mine_wraps = my_wrapper(transformer(config).to(device))
if mine_wraps is None:
    print("No wrapper of yours yet.")
else:
    optimizer = torch.optim.AdamW(mine_wraps.parameters(), lr=3e-3)
    finish = mine_wraps.finish_gradient_synchronization
    by_mine = train_on_my_rows(mine_wraps, optimizer, "yours", before_step=finish)
    differences = [abs(one - other) for one, other in zip(by_mine, fsdp_losses, strict=True)]
    print(f"Your losses differ from those of fully_shard by at most {max(differences):.0e}.")

# %% [markdown]
# ## How good were your predictions?
#
# The next cell compares each number that you predicted with the result of the run. Your predictions are kept
# beside this notebook, in the folder `.fourranks`. If you change a prediction and run its cells again, the
# last one counts.

# %%
review()

# %% [markdown]
# ## We saw
#
# - **16 bytes** for each parameter: weight, gradient, m and v, or bfloat16 copies and float32 masters. Walking the live tensors of four
#   ranks gave what the formulas say: 16P, 8P + 8P/N, 4P + 12P/N, 16P/N in float32.
# - **2P, 2P, 2P, 3P.** An all-reduce is a reduce-scatter and an all-gather; stages 1 and 2 put the optimizer between the two. Stage 3
#   gathers weights twice.
# - **Weights are gathered and freed** layer by layer, which draws a saw. Instead of a tensor, autograd can
#   keep the information needed to gather or recompute it. Prefetching hides the gathering behind the
#   computation of the layer before. `fully_shard` makes the same calls and reaches the same losses; one unit
#   for the whole model would defeat its purpose.
# - **The model that learns to write**, under ZeRO-1 and FSDP: the curve of one process.
# - **Special cases**: float32 masters stay on their rank, and bfloat16 copies are sent; shards are padded,
#   and may be empty; tied weights share a unit; a norm needs an all-reduce; a checkpoint consists of shards,
#   and other numbers of ranks can read it.
#
# **Your turn**: [the exercise](../../exercises/05_sharded_data_parallelism/exercise.ipynb). You write ZeRO-1, ZeRO-2 and FSDP for any
# module, with hooks instead of a hand-written layer.
#
# **Next**: sharding has split what is *stored*. Lecture 06 splits what is *computed*: every rank multiplies a part of each matrix.
#
# **Sources and further reading.** Rajbhandari and others, *ZeRO: memory optimizations toward training trillion parameter models*,
# [arXiv 1910.02054](https://arxiv.org/abs/1910.02054) · Zhao and others, *PyTorch FSDP*, [arXiv
# 2304.11277](https://arxiv.org/abs/2304.11277) · Micikevicius and others, *Mixed precision training*, [arXiv
# 1710.03740](https://arxiv.org/abs/1710.03740) · [Stanford CS229S (fall 2023)](https://cs229s.stanford.edu/fall2023/), on
# parallelism · [Stanford CS336 (spring 2025), lecture 8](https://github.com/stanford-cs336/spring2025-lectures) · PyTorch 2.13,
# documentation of [`fully_shard`](https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html) and of
# [`torch.distributed.checkpoint`](https://docs.pytorch.org/docs/stable/distributed.checkpoint.html)

# %%
# %ranks stop
