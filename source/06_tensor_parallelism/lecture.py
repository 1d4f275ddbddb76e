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
# # 06 Tensor parallelism: cut along the width
#
# **Four ranks share every single layer. Where may a matrix be cut, what must the ranks then tell each other, forward and backward, and
# which links are fast enough for it?**
#
# You will
#
# - cut an MLP along its width, derive its backward pass on paper, and find the gradients of one process in four pieces,
# - pair two cuts so that a block needs one all-reduce forward and one backward, for MLPs, for attention, and (with less) for the loss,
# - find the mistakes that no loss shows: a forgotten sum, a bias added four times, a dropout that differs where it must not,
# - count the bytes of a layer beside the formula, and see, from a cost model and a point measured here, why tensor parallelism needs NVLink,
# - train the transformer of lecture 04 with its heads and hidden units on four ranks, to the same loss.
#
# 120 minutes, 35 of them optional · 4 ranks · Gloo on any laptop, NCCL on a machine with 4 GPUs
#
# [The exercise](../../exercises/06_tensor_parallelism/exercise.ipynb) · [notation](../../docs/notation.md) · [cheat sheet](../../docs/cheat_sheet.md) · [glossary](../../docs/glossary.md) · [concept map](../../docs/concept_map.md)
#
# As before, each run has a question and a variable for your answer.

# %%
# %load_ext fourranks
import fourranks
from fourranks.figures import (
    attention_weights,
    compare,
    finding,
    ledger,
    links,
    placements,
    predicted,
    review,
)
from fourranks.trace.bandwidth import busbw_factor

# %ranks start

# %% [markdown]
# ## Before you begin
#
# Three questions about earlier lectures. Answer them from memory, in the list below; `None` works, too.

# %%
ledger.begin("06")

# %%
remembered = [None, None, None]  # your answers

# %%
ledger.answers(remembered)

# %% [markdown]
# ## 1. Two ways to cut a matrix
#
# Data parallelism (04) keeps every layer whole and cuts the batch. ZeRO (05) cuts what is *stored*, but gathers each layer before it
# computes. Tensor parallelism cuts the **computation**: each rank multiplies with its part of the matrix, and no rank ever sees the
# rest of it. A layer is x · W, with a row of x for each token and a column of W for each neuron.
#
# A note on terms: some texts call this "horizontal" and a pipeline "vertical" slicing, others the other way
# round, depending on whether they draw layers side by side or on top of each other. We say **intra-layer** or
# tensor parallelism for cuts *through* layers, and **inter-layer** or pipeline parallelism, lecture 07, for
# cuts *between* them.
#
# The width can be cut at two places. By **columns**, each rank has some of the neurons:

# %%
by_columns = [
    ("x", 0.8, 1, "replicate"),
    "·",
    ("W", 1, 1, "columns"),
    "=",
    ("y", 0.8, 1, "columns"),
]
placements(by_columns, "A cut by columns: all of x, some of the neurons, some of the outputs")

# %% [markdown]
# By **rows**, each rank has some of every neuron's inputs:

# %%
by_rows = [
    ("x", 0.8, 1, "columns"),
    "·",
    ("W", 1, 1, "rows"),
    "=",
    ("y", 0.8, 1, "partial"),
]
placements(by_rows, "A cut by rows: some of x, some inputs of all neurons, a partial sum of all outputs")

# %% [markdown]
# These words are DTensor's (section 10): a tensor on several ranks is *replicated*, *sharded* along a
# dimension, or *partial*: each rank holds a *partial sum* of its full size. Confusing shards with partial
# sums is the most common mistake in tensor parallelism.
#
# **Question.** x is 6 × 8 and W is 8 × 12. For each cut, what is the shape of a rank's result, and which
# collective combines the four results into y?

# %%
columns_shape, columns_collective = None, None  # your predictions
rows_shape, rows_collective = None, None

# %%
# %%ranks
torch.manual_seed(0)  # the same x and W on all ranks
x, w = torch.randn(6, 8).to(device), torch.randn(8, 12).to(device)

a_shard = x @ w.chunk(world_size, dim=1)[rank]
a_partial_sum = x.chunk(world_size, dim=1)[rank] @ w.chunk(world_size, dim=0)[rank]
print("by columns", tuple(a_shard.shape), "  by rows", tuple(a_partial_sum.shape))

# %%
# %%ranks
shards = [torch.empty_like(a_shard) for _ in range(world_size)]
dist.all_gather(shards, a_shard)
gathered = torch.cat(shards, dim=1)

added = a_partial_sum.clone()
dist.all_reduce(added)
for name, y in {"shards, gathered": gathered, "partial sums, added": added}.items():
    print(f"{name}: largest difference from x · W {(y - x @ w).abs().max():.1e}")

# %%
column_shape, row_shape = fourranks.world().pull("(tuple(a_shard.shape), tuple(a_partial_sum.shape))", [0])[0]
print(predicted(columns_shape, about="shape by columns", was=column_shape), end="")
print(predicted(rows_shape, about="shape by rows", was=row_shape), end="")
print(predicted(columns_collective, rows_collective), end="")

# %% [markdown]
# Shards are **gathered**, partial sums are **added**. The last bits may differ from x · W. The library may
# choose another kernel for a narrow matrix, and partial sums are added in a different order.

# %% [markdown]
# ## 2. The MLP with an all-gather after each layer
#
# The simplest plan is to cut all matrices by columns, and to gather after every layer, so that the next layer
# has all of its input. The model is the same as in lecture 04: 4 layers of width 1024, GELU, a batch of 128
# rows, which **all** ranks have. Each rank holds 1024 × 256 of each weight.

# %%
plan = [
    ("x", 0.5, 1, "replicate"),
    "·",
    ("W", 1, 1, "columns"),
    "→ GELU →",
    ("a", 0.5, 1, "columns"),
    "→ all-gather →",
    ("next x", 0.5, 1, "replicate"),
]
placements(plan, "One layer of the all-gather MLP")

# %%
# %%ranks
from torch import nn

gelu = nn.functional.gelu


def gather(columns):
    """All ranks' columns side by side, as a tensor that every rank has."""
    all_columns = [torch.empty_like(columns) for _ in range(world_size)]
    dist.all_gather(all_columns, columns)
    return torch.cat(all_columns, dim=1)


def all_gather_mlp(x, shards, gather):
    for w in shards:
        x = gather(gelu(x @ w))
    return x


torch.manual_seed(1)
batch = torch.randn(128, 1024).to(device)


# %% [markdown]
# `dist.all_gather` fills a *list* of outputs. The flat form, `all_gather_single`, stacks the shards along
# dimension 0: rank 1's columns would lie *below* rank 0's, and have to be moved beside them. Section 3 does
# that.
#
# Where does a rank get its 1024 × 256? Lecture 8 of CS336 makes them like this, on every rank, for every
# layer:


# %%
# %%ranks
def initial_weights(num_inputs, num_outputs):
    torch.manual_seed(0)
    return (torch.randn(num_inputs, num_outputs) / num_outputs**0.5).to(device)


shards = [initial_weights(1024, 1024 // world_size) for _ in range(4)]
y = all_gather_mlp(batch, shards, gather)

# %% [markdown]
# **Question.** The output has 1024 columns. How many of them are different?

# %%
different_columns = None  # your prediction


# %%
# %%ranks
def mlp(x, weights):
    """The same network on one process."""
    for w in weights:
        x = gelu(x @ w)
    return x


torch.manual_seed(0)
full = [(torch.randn(1024, 1024) / 1024**0.5).to(device) for _ in range(4)]

different = y.unique(dim=1).shape[1]
rms, right_rms = (output.square().mean().sqrt().item() for output in (y, mlp(batch, full)))

# %%
world = fourranks.world()
different, rms, right_rms = world.pull("(different, rms, right_rms)", [0])[0]
print(
    f"{predicted(different_columns, about='different columns', was=different)}{different} different columns"
)
print(f"root mean square {rms:.2f} instead of {right_rms:.2f}, {rms / right_rms:.0f} times as large")

# %% [markdown]
# There are three mistakes in three lines, and no error was raised:
#
# - One seed on all ranks makes **one shard, four times**. The network is a quarter as wide as it looks.
# - The seed is set again for each layer, so all **layers** are equal as well.
# - Each weight is divided by the root of the number of a rank's *outputs*, 256, instead of the number of
#   inputs, 1024. So all weights are twice as large as they should be, and four layers multiply that error.
#
# For the same reason the tensor-parallel activations of that lecture cannot be compared with its
# data-parallel losses: they belong to different networks. We want the network of one process, in shards. So
# make one full matrix, the same on all ranks, and let each rank take its columns:

# %%
# %%ranks
shards = [w.chunk(world_size, dim=1)[rank].clone().requires_grad_() for w in full]
y = all_gather_mlp(batch, shards, gather)
print(
    f"a shard is {tuple(shards[0].shape)}; difference from one process: {(y - mlp(batch, full)).abs().max():.1e}"
)

# %% [markdown]
# A model that needs tensor parallelism has no full matrix anywhere. Then each rank draws its own shards, from
# a seed with the rank added and with the scale of the *whole* layer. Tests, like ours, use a small model and
# slice.
#
# The forward pass is right. Now the backward pass, which CS336 leaves as homework.
# Which of the four shards get a gradient?

# %%
# %%ranks
try:
    y.square().mean().backward()
except RuntimeError as error:
    print("RuntimeError:", str(error).splitlines()[0])
print([w.grad is not None for w in shards])

# %% [markdown]
# None. `dist.all_gather` writes into tensors that autograd does not track, and the graph ends there.
# Collectives of `torch.distributed` are not differentiable, and not all of them raise an error:
#
# | in a forward pass | what autograd makes of it |
# |---|---|
# | `dist.all_gather` | the output has no graph |
# | `dist.all_gather_single` of a tensor that needs a gradient | an error, on Gloo |
# | `dist.all_reduce`, in place | passes the gradient on as if nothing had happened, with a warning that is easily overlooked |
#
# So we have to derive the backward pass, and write it ourselves.

# %% [markdown]
# ## 3. The backward pass, on paper
#
# We begin with one process. A layer computes h = x · W and a = GELU(h). Write x̄ for the gradient of the loss
# with respect to x, and so on. Given ā, the chain rule says
#
# > h̄ = ā ⊙ GELU′(h), W̄ = xᵀ · h̄, x̄ = h̄ · Wᵀ
#
# Now rank r has the columns W_r, and so h_r and a_r. Take the three formulas one by one:
#
# 1. h̄_r = ā_r ⊙ GELU′(h_r). Rank r needs *its* columns of ā, and has h_r.
# 2. W̄_r = xᵀ · h̄_r. Rank r has both. **Weight gradients are local**: there is nothing to average, since no
#    other rank has this shard.
# 3. x̄ = Σ_r h̄_r · W_rᵀ. This is a sum over the neurons of all ranks! Each rank can compute one partial sum, of
#    full size.
#
# The layer before had gathered x. Of x̄, rank r needs only its own columns, for formula 1 one layer down. So
# *add up over all ranks, and let each rank keep its columns*. That is a **reduce-scatter**. Where the forward
# pass gathers, the backward pass reduce-scatters.
#
# The same holds for all collectives. They are linear maps, and the backward pass of a linear map is its
# transpose: a rank that sent in forward receives in backward, and where data was copied, gradients are added.
#
# | forward | backward |
# |---|---|
# | all-gather | reduce-scatter |
# | reduce-scatter | all-gather |
# | broadcast | reduce |
# | scatter | gather |
# | all-to-all | all-to-all |
# | all-reduce | all-reduce |
#
# We tell autograd with a `torch.autograd.Function`:


# %%
# %%ranks
class Gather(torch.autograd.Function):
    """All ranks' columns side by side; backward, each rank's columns of the sum of all gradients."""

    @staticmethod
    def forward(ctx, columns):
        stacked = columns.new_empty(world_size * len(columns), columns.shape[1])
        dist.all_gather_single(stacked, columns.contiguous())
        return torch.cat(
            stacked.chunk(world_size), dim=1
        )  # chunks that lay below each other, now side by side

    @staticmethod
    def backward(ctx, gradient):
        stacked = torch.cat(gradient.chunk(world_size, dim=1))
        own = gradient.new_empty(len(gradient), gradient.shape[1] // world_size)
        dist.reduce_scatter_single(own, stacked)
        return own


# %%
# %%ranks
y = all_gather_mlp(batch, shards, Gather.apply)
y.square().mean().backward()

whole = [w.clone().requires_grad_() for w in full]
mlp(batch, whole).square().mean().backward()
expected = [w.grad.chunk(world_size, dim=1)[rank] for w in whole]


# %% [markdown]
# **Question.** Something is still wrong with these gradients, by a factor. All ranks compute the same y and the same loss. What is our
# gradient, divided by that of one process?

# %%
too_large_by = None  # your prediction

# %%
# %%ranks
factors = [
    (shard.grad.double().norm() / true.double().norm()).item()
    for shard, true in zip(shards, expected, strict=True)
]
print("ours / one process's, layer by layer:", [f"{factor:.4f}" for factor in factors])

# %%
factor = world.pull("factors[0]", [0])[0]
print(f"{predicted(too_large_by, about='gradients too large by', was=factor)}too large by {factor:.3g}")

# %% [markdown]
# It is too large by the number of ranks. Each rank called `backward` on a loss, so backward differentiated
# the **sum of all ranks' losses**, which is 4 times the loss. The transposes treat the four losses as four
# different ones. The rule is simple, and holds for any communication inside a forward pass:
#
# > With true transposes, backward differentiates the sum of the tensors on which the ranks call `backward`.
# Make this sum the loss.
#
# For instance, call `(loss / world_size).backward()`. Or let each rank take the loss of its own columns only,
# and do not even gather the last layer.

# %%
# %%ranks
for w in shards:
    w.grad = None
y = all_gather_mlp(batch, shards, Gather.apply)
(y.square().mean() / world_size).backward()

differences = [
    (shard.grad - true).abs().max() / true.abs().max() for shard, true in zip(shards, expected, strict=True)
]
print("largest difference / largest gradient, layer by layer:", [f"{each:.0e}" for each in differences])

# %% [markdown]
# Every rank holds a quarter of the gradients of one process, except for rounding. What did it cost?
#
# **Question.** How many MiB does each rank send in the forward pass, and how many in the backward pass? A layer's output has 128 × 1024
# float32. An all-gather sends (N − 1)/N of the whole from each rank, and so does a reduce-scatter.

# %%
sent_mib = {"forward": None, "backward": None}  # your predictions

# %%
with world.trace() as forward:
    world.execute("y = all_gather_mlp(batch, shards, Gather.apply)")
with world.trace() as backward:
    world.execute("(y.square().mean() / world_size).backward()")


def mebibytes_sent(trace):
    """By each rank: bytes from the trace, with the factors of lecture 03."""
    return sum(busbw_factor(call.op, len(call.ranks)) * call.size for call in trace.operations) / 2**20


measured = {"forward": mebibytes_sent(forward), "backward": mebibytes_sent(backward)}
each = 3 / 4 * 128 * 1024 * 4 / 2**20
formula = {"forward": 4 * each, "backward": 4 * each}
compare(measured, formula, sent_mib, "MiB", "Sent by each rank, 4 layers, 4 ranks")

# %% [markdown]
# Each rank sends 1.5 MiB in each pass. Data parallelism sent 24 MiB for the same model in lecture 04. So is
# tensor parallelism cheaper? That depends on the batch:
#
# - Data parallelism sends gradients of *weights*: 2 · ¾ · D² elements a layer, for any batch.
# - Tensor parallelism sends *activations*: 2 · ¾ · batch · D elements a layer, in both passes together.
#
# Both send the same when the batch is as large as the layer is wide. In language models a "row" is a token,
# and a rank processes thousands of them together. So there tensor parallelism sends more, and it sends *in
# the middle of the computation*, when nothing else can be computed meanwhile. It should send less.

# %% [markdown]
# ## 4. Columns, then rows
#
# A Transformer's MLP has two matrices: A makes the width four times as large, B brings it back, y = GELU(x ·
# A) · B. Could one of the two gathers be saved? Four pairs of cuts are possible, and the GELU in the middle
# decides.
#
# **Question.** A rank has either a *shard* of h = x · A or a *partial sum* of it. In which case may it apply
# GELU without communication?

# %%
may_go_on_with = None  # your prediction: "shard", "partial sum", "both" or "neither"

# %%
# %%ranks 0
h = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
shards_of_h, partial_sums = h.chunk(2, dim=1), (h - 0.7, torch.full_like(h, 0.7))
differences = {
    "shard": (torch.cat([gelu(part) for part in shards_of_h], dim=1) - gelu(h)).abs().max().item(),
    "partial sum": (sum(gelu(part) for part in partial_sums) - gelu(h)).abs().max().item(),
}
print({name: f"{difference:.0e}" for name, difference in differences.items()})

# %%
print(predicted(may_go_on_with, about="what GELU may go on with", was="shard"), end="")

# %% [markdown]
# GELU works on each element separately. So it may be applied to a shard, but not to a partial sum: GELU(u +
# v) is not GELU(u) + GELU(v). So A is cut by **columns**. Then each rank has exactly those columns of
# GELU(h) that it needs if B is cut by **rows**. This is the pair of Megatron-LM:

# %%
megatron = [
    ("x", 0.6, 0.5, "replicate"),
    "·",
    ("A", 0.5, 1.4, "columns"),
    "→ GELU →",
    ("a", 0.6, 1.4, "columns"),
    "·",
    ("B", 1.4, 0.5, "rows"),
    "=",
    ("z", 0.6, 0.5, "partial"),
    "→ all-reduce →",
    ("y", 0.6, 0.5, "replicate"),
]
placements(megatron, "Columns, then rows: no communication in the middle")

# %% [markdown]
# **One all-reduce for two matrices**: y = Σ_r GELU(x · A_r) · B_r. The all-reduce adds up *outputs*: partial
# sums of activations.
#
# **Common misconception:** the all-reduce "synchronizes the weights", or "partial activations are gathered
# after every layer". In fact the weights stay where they are, and the activations in the middle are shards,
# which need not be gathered.
#
# The backward pass, with the same symbols. ȳ is the same on all ranks:
#
# 1. z_r is a partial sum of y, so z̄_r = ȳ. **Nothing to do.**
# 2. B̄_r = a_rᵀ · z̄_r, ā_r = z̄_r · B_rᵀ, h̄_r = ā_r ⊙ GELU′(h_r), Ā_r = xᵀ · h̄_r. All local.
# 3. x̄ = Σ_r h̄_r · A_rᵀ: all ranks used x, and each has its partial sum. **An all-reduce.**
#
# Megatron puts this into two functions, **f** before A and **g** after B. The backward pass of each is the
# forward pass of the other:
#
# | | forward | backward |
# |---|---|---|
# | f | nothing | all-reduce |
# | g | all-reduce | nothing |
#
# Does g contradict section 3, where the transpose of all-reduce was all-reduce? No, it follows a different
# convention. The conventions differ in which loss is differentiated:
#
# | | section 3 | from here on, and in the exercise |
# |---|---|---|
# | a rank calls `backward` on | a loss of its own | the one loss, which all ranks compute alike |
# | the gradient wanted is that of | the *sum* of the ranks' losses | the one loss, once |
# | ȳ on a rank is | what its own loss makes of y: a partial sum | the whole gradient, replicated |
# | all-reduce (g), backward | all-reduce: add the partial sums | nothing: it is whole already |
# | all-gather, backward | reduce-scatter: add, and keep own columns | keep own columns |
# | with a replicated loss it gives | N times the gradient | the gradient |
#
# Both conventions are right, but mixing them gives errors by factors of N. Section 3 follows the first, and
# so it divided its loss by N.
#
# What happens under the second convention if f follows an all-gather, as between two layers of section 3? In
# backward, f all-reduces the gradient, and then the all-gather keeps this rank's columns: together that is a
# reduce-scatter, as in section 3. Only after the last layer is there no f, because ȳ is the whole gradient of
# the one loss.
#
# Here are both versions of g, on a loss that all ranks compute alike:


# %%
# %%ranks
class AllReduceBothWays(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        dist.all_reduce(x := x.clone())
        return x

    @staticmethod
    def backward(ctx, gradient):
        dist.all_reduce(gradient := gradient.clone())
        return gradient


class AllReduceForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        dist.all_reduce(x := x.clone())
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient


for g_of in (AllReduceBothWays, AllReduceForward):
    partial = torch.ones(1, device=device, requires_grad=True)
    (3 * g_of.apply(partial)).sum().backward()  # the loss is 3 · (sum of all ranks' partial sums)
    print(f"{g_of.__name__}: derivative 3, found {partial.grad.item():.0f}")

# %% [markdown]
# The first is the derivative of four equal losses together. Here are f and g of the second kind:


# %%
# %%ranks
class Copy(torch.autograd.Function):
    """f: every rank goes on with the same x; backward adds up the gradients of all ranks."""

    @staticmethod
    def forward(ctx, x, group=None):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient, None


# %%
# %%ranks
class Reduce(torch.autograd.Function):
    """g: the sum of all ranks' partial sums, for every rank; backward, each partial sum has the sum's gradient."""

    @staticmethod
    def forward(ctx, partial_sum, group=None):
        total = partial_sum.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


f, g = Copy.apply, Reduce.apply

# %% [markdown]
# The block is one line. Two of them, with 64 tokens of width 256:


# %%
# %%ranks
def block(x, a, b, group=None):
    """`a`: this rank's columns, `b`: this rank's rows. Replicated x to replicated y."""
    return g(gelu(f(x, group) @ a) @ b, group)


def own(w, dim):
    """This rank's part of a full matrix."""
    return w.chunk(world_size, dim)[rank].clone().requires_grad_()


torch.manual_seed(2)
tokens = torch.randn(64, 256).to(device)
names = ("A of block 1", "B of block 1", "A of block 2", "B of block 2")
shapes = ((256, 1024), (1024, 256)) * 2
matrices = [(torch.randn(*shape) / shape[0] ** 0.5).to(device) for shape in shapes]


# %%
# %%ranks
def two_blocks(x, matrices, block):
    a1, b1, a2, b2 = matrices
    return block(block(x, a1, b1), a2, b2)


whole = [w.clone().requires_grad_() for w in matrices]
reference = two_blocks(tokens, whole, lambda x, a, b: gelu(x @ a) @ b).square().mean()
reference.backward()


# %%
# %%ranks
def compare_with_one_process(block):
    """The loss of the two blocks, and each gradient's largest difference from one process's, relative."""
    shards = [own(w, 1 - number % 2) for number, w in enumerate(matrices)]
    loss = two_blocks(tokens, shards, block).square().mean()
    loss.backward()
    wrong = {}
    for number, name in enumerate(names):
        true = whole[number].grad.chunk(world_size, 1 - number % 2)[rank]
        wrong[name] = ((shards[number].grad - true).abs().max() / true.abs().max()).item()
    return loss.item(), wrong


loss, wrong = compare_with_one_process(block)
print(f"loss {loss:.6f}, one process {reference:.6f}")
print({name: f"{difference:.0e}" for name, difference in wrong.items()})

# %% [markdown]
# Everything agrees. f does nothing in the forward pass. Is it necessary?
#
# **Question.** We leave f out. Is the loss still right? Which of the four gradients are right?

# %%
# your predictions: True or False
right_without_f = {
    "loss": None,
    "A of block 1": None,
    "B of block 1": None,
    "A of block 2": None,
    "B of block 2": None,
}

# %%
# %%ranks
loss, wrong = compare_with_one_process(lambda x, a, b: g(gelu(x @ a) @ b))
wrong["loss"] = abs(loss - reference.item()) / reference.item()

# %%
wrong = world.pull("wrong")[0]
for name in ("loss", "A of block 1", "B of block 1", "A of block 2", "B of block 2"):
    about = f"without f, {name} is right"
    told = predicted(right_without_f, of=name, about=about, was=wrong[name] < 1e-3)
    print(f"{name}: {told}relative error {wrong[name]:.0e}")
compare(wrong, title="Without f: error relative to one process, rank 0")

# %% [markdown]
# The loss is right to the last digit, and so are the gradients of block 2. But its x̄ is only this rank's
# partial sum, so all gradients *before* that block are wrong, and different on each rank. Such a model
# trains, but worse than it should. The loss of the first step does not show it, and no exception is raised.
# So **compare gradients with one process, in a network of two blocks**; one is not enough.
#
# How many collectives does a block need, and how much does each rank send? The next cell traces two blocks:

# %%
# %%ranks
x = tokens.clone().requires_grad_()
a, b = own(matrices[0], 1), own(matrices[1], 0)
stack = [own(w, 1 - number % 2) for number, w in enumerate(matrices)]
two_blocks(x, stack, block).square().mean().backward()  # first calls are slower

# %%
# %%ranks --trace
two_blocks(x, stack, block).square().mean().backward()

# %% [markdown]
# The table has four all-reduces of 64 KiB, the size of x: for each block one in forward and one in backward.
# So each rank sends 2 · 2 (N − 1)/N times the size of x for a block, and the wide activation, the largest
# tensor of a Transformer layer, exists nowhere in full. In the exercise you compare that with a gather after
# each of the two matrices.
#
# Compare the timeline with that of DDP in lecture 04: there calls were in flight while the ranks computed.
# Here **each call delays the computation**: the next matrix needs y, and y needs all ranks. Nothing can hide
# the call, unless you split the work itself into smaller pieces.

# %% [markdown]
# ### What must be equal, and what must not
#
# Biases, dropout, normalization, the random state: in tensor parallelism each of them is either in a *sharded* region, between f and g,
# or in a *replicated* one, outside. Mistakes here are silent as well.
#
# **Question.** B has a bias, b₂ = 1 everywhere. Each rank adds it to its product, before g. By how much is the output wrong? And A's
# bias?

# %%
wrong_by = {"bias of B, before g": None, "bias of A, its shard": None}  # your predictions

# %%
# %%ranks
b1, b2 = torch.ones(1024, device=device), torch.ones(256, device=device)
full_a, full_b = matrices[:2]
right = gelu(tokens @ full_a + b1) @ full_b + b2

inside = gelu(tokens @ a + b1.chunk(world_size)[rank])
before_g, behind_g = g(inside @ b + b2), g(inside @ b) + b2
wrong_by = {
    "bias of B, before g": (before_g - right).abs().max().item(),
    "bias of A, its shard": (behind_g - right).abs().max().item(),
}

# %%
compare(world.pull("wrong_by")[0], {"bias of B, before g": 3.0}, wrong_by, "", "Largest error of the output")

# %% [markdown]
# B's bias was added four times. It must be added *after* g, replicated; A's bias is cut like A's columns.
# Does the gradient of b₂ need an all-reduce? No: b₂ and ȳ are replicated, so each rank computes the same
# gradient. Under section 3's convention, or if you add b₂/N before g instead, it would need one.
#
# **Dropout.** Lecture 04 gave each rank a seed of its own, so that no two ranks drop the same elements. Here
# all ranks hold *the same* y after g. If each rank dropped different elements of it, each would compute a
# different network from then on, and the next g would add partial sums that do not belong together. So after
# g all ranks must drop the same elements. Between f and g the ranks hold *different* neurons, and with the
# same seed each would always drop the same positions of its quarter. So tensor parallelism needs two random
# states:


# %%
# %%ranks
def kept(count, generator=None):
    return (torch.rand(count, generator=generator, device=device) > 0.5).int().tolist()


torch.manual_seed(0)  # for replicated regions: the same on all ranks
own_randomness = torch.Generator(device).manual_seed(1 + rank)  # for sharded ones
print("behind g:       ", kept(12))

# %%
# %%ranks
print("between f and g:", kept(12, own_randomness))

# %% [markdown]
# | | region | seed | gradient |
# |---|---|---|---|
# | A, B, A's bias, dropout on a | sharded | differs | local, complete |
# | B's bias, LayerNorm, residual, dropout on y | replicated | equal | equal on all ranks, complete |
#
# One consequence for **gradient clipping**: to compute the norm of all gradients, add the squares of sharded
# gradients over all ranks, but count replicated gradients only once.

# %% [markdown]
# ## 5. Attention by heads
#
# In **attention** a token takes information from the tokens before it. From each token's vector x we compute
# a query q = x Q, a key k = x K and a value v = x V. A token compares its query with the keys of all tokens
# up to itself; attention that hides the later tokens is called *causal*. A softmax turns the products into
# weights that add up to 1, and the result is the mixture of the values with these weights.
#
# That happens several times in parallel, in **heads**, each with its own columns of Q, K and V. The results
# of the heads are concatenated and multiplied by an output matrix O. The figure shows the weights of one head
# with random matrices, a row for each token:

# %%
# %%ranks 0
torch.manual_seed(3)
x, q, k = torch.randn(8, 16), torch.randn(16, 4) / 4, torch.randn(16, 4) / 4
scores = (x @ q) @ (x @ k).T / 2  # a row for each query; 2 is the root of the head's width
hidden = torch.ones(8, 8).triu(1).bool()
weights = scores.masked_fill(hidden, float("-inf")).softmax(dim=1)

# %%
attention_weights(
    world.pull("weights", [0])[0].tolist(), "What each token takes of the ones before it: one head"
)

# %% [markdown]
# So attention has its cut built in. Heads are independent: head i has its own columns of the matrices Q, K
# and V, computes softmax(q kᵀ) v, and multiplies the result by its own rows of the output matrix. That is
# columns, then rows, with attention in the place of GELU:

# %%
by_heads = [
    ("x", 0.6, 0.6, "replicate"),
    "·",
    ("Q, K, V", 0.6, 1.8, "columns"),
    "→ own heads →",
    ("o", 0.6, 0.6, "columns"),
    "·",
    ("O", 0.6, 0.6, "rows"),
    "=",
    ("z", 0.6, 0.6, "partial"),
    "→ all-reduce →",
    ("y", 0.6, 0.6, "replicate"),
]
placements(by_heads, "Attention: a rank has some of the heads")

# %% [markdown]
# So a rank needs no new function. It runs the function of one process, with fewer heads, between f and g:


# %%
# %%ranks
def attention(x, q, k, v, o, heads):
    """Causal attention of one process. x: (T, D); q, k, v: (D, heads · size); o: (heads · size, D)."""
    q, k, v = ((x @ w).unflatten(1, (heads, -1)).transpose(0, 1) for w in (q, k, v))  # (heads, T, size)
    out = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return out.transpose(0, 1).flatten(1) @ o


def attention_by_heads(x, q, k, v, o, heads, group=None):
    """Matrices of this rank, of its `heads`."""
    return g(attention(f(x, group), q, k, v, o, heads), group)


torch.manual_seed(3)
HEADS = 8
whole = [(torch.randn(256, 256) / 16).to(device).requires_grad_() for _ in range(4)]
x = tokens.clone().requires_grad_()
right = attention(x, *whole, HEADS)
right.square().mean().backward()

# %%
# %%ranks
cuts = (1, 1, 1, 0)  # Q, K, V by columns, O by rows
mine = [own(w.detach(), dim) for w, dim in zip(whole, cuts, strict=True)]
x_here = tokens.clone().requires_grad_()
y = attention_by_heads(x_here, *mine, HEADS // world_size)
y.square().mean().backward()

errors = {
    "y": (y - right).abs().max() / right.abs().max(),
    "gradient of x": (x_here.grad - x.grad).abs().max() / x.grad.abs().max(),
}
for name, here, w, dim in zip("QKVO", mine, whole, cuts, strict=True):
    true = w.grad.chunk(world_size, dim)[rank]
    errors[f"of {name}"] = (here.grad - true).abs().max() / true.abs().max()
print({name: f"{error:.0e}" for name, error in errors.items()})

# %% [markdown]
# Many models store Q, K and V as one matrix of 3 · 256 = 768 columns, `[Q | K | V]`, for one large product instead of three. 768
# divides by 4, so a rank could simply take 192 columns of it.
#
# **Question.** Which columns does rank 1 get then? And does that raise an error?

# %%
rank_1_gets = {"Q": None, "K": None, "V": None}  # your predictions: how many columns of each

# %%
# %%ranks
fused = torch.cat(whole[:3], dim=1).detach()
columns_of = ["Q"] * 256 + ["K"] * 256 + ["V"] * 256
first, last = (768 // world_size * edge for edge in (rank, rank + 1))
got = {name: columns_of[first:last].count(name) for name in "QKV"}

three = fused.chunk(world_size, dim=1)[rank].chunk(3, dim=1)  # taken for this rank's Q, K and V
y = attention_by_heads(tokens, *three, mine[3], HEADS // world_size)
print(got, f"  error {(y - right).abs().max() / right.abs().max():.0%} of the largest output")

# %%
print(predicted(rank_1_gets), end="")

# %% [markdown]
# All shapes fit, and the result is nonsense. A fused matrix has to be cut *within* Q, K and V, or stored head by head. The same trap
# waits in gated MLPs, whose gate and value are often fused.
#
# The number of heads is also a limit: 8 heads allow at most 8 ranks, and the number of heads must be
# divisible by the number of ranks. Models with **grouped queries** have fewer heads of K and V than of Q. If
# there are fewer K and V heads than ranks, several ranks must hold the same K and V, which are then
# *replicated* among them, and their gradients must be added up.

# %% [markdown]
# ## 6. A loss over a sharded vocabulary
#
# The last matrix of a language model is the widest: one column for each token of the vocabulary. If it is cut
# by columns, each rank has the logits of a quarter of the vocabulary. Should we gather them? For 128 tokens
# and a vocabulary of 32,768 they are 16 MiB, for real sizes gigabytes. But we need only one number for each
# token:
#
# > loss = log Σ_v exp(l_v) − l_target
#
# The sum goes over the whole vocabulary, but it is a *sum*: each rank adds up its own part. And the target's logit is on one rank; the
# others contribute 0.

# %% [markdown]
# **Question.** How many KiB does each rank send, for 128 tokens: gathering all logits, and adding up two numbers a token?

# %%
loss_kib = {"gather the logits": None, "add up": None}  # your predictions


# %%
# %%ranks
def loss_in_pieces(logits, target):
    """Cross-entropy of each token, forward only; `logits`: this rank's columns (T, V / N)."""
    first = rank * logits.shape[1]
    sums = logits.exp().sum(dim=1)
    here = (target >= first) & (target < first + logits.shape[1])
    place = torch.where(here, target - first, 0)
    picked = torch.where(here, logits.gather(1, place[:, None]).squeeze(1), 0.0)
    numbers = torch.stack([sums, picked])
    dist.all_reduce(numbers)
    return numbers[0].log() - numbers[1]


torch.manual_seed(4)
logits = torch.randn(128, 32768).to(device)
target = torch.randint(32768, (128,)).to(device)
logits_here = logits.chunk(world_size, dim=1)[rank].contiguous()
expected = nn.functional.cross_entropy(logits, target, reduction="none")
print(f"largest difference {(loss_in_pieces(logits_here, target) - expected).abs().max():.0e}")

# %%
sent = {}
for name, code in {
    "gather the logits": "gather(logits_here)",
    "add up": "loss_in_pieces(logits_here, target)",
}.items():
    with world.trace() as trace:
        world.execute(f"_ = {code}")
    sent[name] = 1024 * mebibytes_sent(trace)
formula = {"gather the logits": 3 / 4 * 128 * 32768 * 4 / 1024, "add up": 2 * 3 / 4 * 2 * 128 * 4 / 1024}
compare(sent, formula, loss_kib, "KiB", "Sent by each rank for a loss of 128 tokens")

# %% [markdown]
# Thousands of times less. Two things are missing.
#
# **Large logits.**

# %%
# %%ranks
print("logits 100 times as large:", loss_in_pieces(100 * logits_here, target)[:4].tolist())

# %% [markdown]
# exp(100) is too large for float32 even before it is summed. As in any softmax, subtract the largest logit of
# each token first. It is the largest on *all* ranks, so that takes one more all-reduce, with MAX, of one
# number for each token. The subtraction does not change the result, so no gradient flows through it.
#
# **The gradient.** By the formula, the derivative with respect to l_v is softmax_v, minus 1 if v is the
# target. Each rank already has the sum, so **backward needs no communication**. You will write both in the
# exercise.
#
# At the other end, the **embedding** is a matrix with a *row* for each token, cut by rows: each rank looks up
# the tokens that it has, uses zeros for the others, and g adds up. If the embedding is tied to the last
# matrix, the same shard serves both. The vocabulary must be divisible by the number of ranks, so it is
# padded: GPT-2's 50,257 tokens become 51,200 for 8 ranks in Megatron, which rounds up to a multiple of 128 ·
# N. The padded logits must never be chosen.

# %% [markdown]
# ## 7. Sequence parallelism
#
# *Optional: only the optional parts of the exercise need it.*
#
# Between the blocks, outside of f and g, every rank does the same work on the same tensor: residual, dropout,
# LayerNorm. Four ranks that do the same work are tolerable. Four ranks that keep the same tensors in *memory*
# are not: the **activations** that a layer keeps for backward take a large part of the memory, and only some
# of them shrink with the number of ranks.
#
# But these operations work on each token separately. So cut the *tokens* there, and let each rank keep a
# quarter of the rows:

# %%
sequence = [
    ("x", 1, 0.5, "rows"),
    "→ norm → all-gather →",
    ("n", 1, 0.5, "replicate"),
    "·",
    ("A", 0.5, 1.4, "columns"),
    "→ … →",
    ("z", 1, 0.5, "partial"),
    "→ reduce-scatter →",
    ("y", 1, 0.5, "rows"),
]
placements(sequence, "Sequence parallelism: outside of the block, each rank has some of the tokens")

# %% [markdown]
# f becomes an all-gather of rows, whose backward is a reduce-scatter. g becomes a reduce-scatter, whose
# backward is an all-gather. Now each rank has a different loss, that of its own tokens, and the sum of these
# losses is *the* loss. So here we need the true transposes of section 3.


# %%
# %%ranks
def gathered_rows(x):
    out = x.new_empty(world_size * len(x), x.shape[1])
    dist.all_gather_single(out, x.contiguous())
    return out


def scattered_rows(x):
    out = x.new_empty(len(x) // world_size, x.shape[1])
    dist.reduce_scatter_single(out, x.contiguous())
    return out


# %%
# %%ranks
class GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return gathered_rows(x)

    @staticmethod
    def backward(ctx, gradient):
        return scattered_rows(gradient)


class ScatterRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return scattered_rows(x)

    @staticmethod
    def backward(ctx, gradient):
        return gathered_rows(gradient)


# %% [markdown]
# A whole MLP sublayer, x + MLP(LayerNorm(x)), three ways:


# %%
# %%ranks
def normalized(x, scale):
    return nn.functional.layer_norm(x, x.shape[1:], scale)


def one_process(x, scale, a, b):
    return x + gelu(normalized(x, scale) @ a) @ b


def tensor_parallel(x, scale, a, b):
    return x + block(normalized(x, scale), a, b)


def sequence_parallel(x, scale, a, b):
    """x: this rank's tokens."""
    inside = gelu(GatherRows.apply(normalized(x, scale)) @ a)
    return x + ScatterRows.apply(inside @ b)


# %%
# %%ranks
ones = torch.ones(256, device=device)
rows = tokens.chunk(world_size)[rank]
full_a, full_b = matrices[:2]
ways = {
    "one process": (one_process, tokens, full_a, full_b),
    "tensor parallel": (tensor_parallel, tokens, a.detach(), b.detach()),
    "+ sequence parallel": (sequence_parallel, rows, a.detach(), b.detach()),
}

# %% [markdown]
# What does autograd keep? Torch reports each tensor that it saves, and we add up those that are not weights.
#
# **Question.** In units of x (64 tokens × 256): one process keeps x for the norm, n for the product with A, h for GELU (4 units), a for
# the product with B (4 units), so 10. What do the other two keep on each of 4 ranks?

# %%
kept_units = {"tensor parallel": None, "+ sequence parallel": None}  # your predictions


# %%
# %%ranks
def run(way):
    """The output, the leaves (x, scale, a, b), and bytes of activations kept for backward."""
    function, *leaves = way
    leaves = [leaf.clone().requires_grad_() for leaf in (leaves[0], ones, *leaves[1:])]
    weights, saved = {leaf.data_ptr() for leaf in leaves[1:]}, {}

    def note(tensor):
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        y = function(*leaves)
    return y, leaves, sum(nbytes for place, nbytes in saved.items() if place not in weights)


results = {name: run(way) for name, way in ways.items()}
kept_bytes = {name: nbytes / tokens.nbytes for name, (_, _, nbytes) in results.items()}

# %%
formula = {
    "one process": 1 + 1 + 8,
    "tensor parallel": 1 + 1 + 8 / 4,
    "+ sequence parallel": 1 / 4 + 1 + 8 / 4,
}
title = "Activations that rank 0 keeps for one sublayer"
compare(world.pull("kept_bytes")[0], formula, kept_units, "× x", title)

# %% [markdown]
# Tensor parallelism alone leaves the two replicated units in place, and with more ranks they soon dominate.
# Sequence parallelism cuts x, but n, which was *gathered*, is still kept whole. Megatron keeps only its shard
# of n and gathers n once more in backward. That brings the total down to 10/N = 2.5 units, for one more
# all-gather. The measured numbers are a little larger than the formula, because the norm also keeps means and
# deviations.
#
# For a whole layer in 16 bits Megatron's authors count, in bytes, with s tokens, batch b, width h, a heads and t ranks:
#
# | | bytes a layer | GPT-3's shape: s = 2048, b = 1, h = 12,288, a = 96, t = 8 | without stored scores | the same shape |
# |---|---|---|---|---|
# | one process | s b h (34 + 5 a s / h) | 2.87 GB | 34 s b h | 0.86 GB |
# | tensor parallel | s b h (10 + 24/t + 5 a s / (h t)) | 0.58 GB | s b h (10 + 24/t) | 0.33 GB |
# | + sequence parallel | s b h / t · (34 + 5 a s / h) | 0.36 GB | 34 s b h / t | 0.11 GB |
#
# The term 5 a s / h is attention's weights, a matrix of s × s for each head, before and after softmax and dropout: 80 of 114 units
# here. **FlashAttention** never stores this matrix. It goes through it tile by tile (lecture 01, section 5), keeps a number or two
# for each row, and computes the tiles again in backward. `scaled_dot_product_attention`, which section 5 has used, does that
# wherever it can; *selective recomputation* of attention alone saves the same memory. So today the columns on the right are the
# ones to plan with.
#
# **Question.** And the gradients? Each rank calls backward on the loss of its own tokens. Which of x, the norm's scale, A and B then
# have the right gradient already?

# %%
# your predictions: True or False
right_in_sequence_parallel = {"x": None, "scale": None, "A": None, "B": None}

# %%
# %%ranks
for y, _, _ in (results["one process"], results["+ sequence parallel"]):
    y.square().sum().backward()
true = [leaf.grad for leaf in results["one process"][1]]
true = [
    true[0].chunk(world_size)[rank],
    true[1],
    true[2].chunk(world_size, 1)[rank],
    true[3].chunk(world_size)[rank],
]
leaves = results["+ sequence parallel"][1]
wrong = {
    name: ((leaf.grad - right).abs().max() / right.abs().max()).item()
    for name, leaf, right in zip(("x", "scale", "A", "B"), leaves, true, strict=True)
}
dist.all_reduce(leaves[1].grad)
summed = ((leaves[1].grad - true[1]).abs().max() / true[1].abs().max()).item()

# %%
wrong, summed = world.pull("wrong")[0], world.pull("summed")[0]
for name, error in wrong.items():
    about = f"under sequence parallelism, {name} is right"
    told = predicted(right_in_sequence_parallel, of=name, about=about, was=error < 1e-3)
    print(f"{name}: {told}relative error {error:.0e}")
print(f"scale, after an all-reduce of its gradient: {summed:.0e}")

# %% [markdown]
# The scale of the norm is the same on all ranks, but each rank has now used it for different tokens, as in
# data parallelism. So its gradient must be summed over the ranks. It is a sum, not a mean, because the loss
# is the sum of the ranks' losses. The same holds for B's bias.
#
# How many bytes does it send? f and g took one all-reduce in each pass. Now there are an all-gather and a
# reduce-scatter in each pass, and an all-reduce *is* a reduce-scatter and an all-gather. So the bytes are the
# same; new is that between the two halves each rank works on its own tokens only.

# %% [markdown]
# ## 8. Why it wants NVLink
#
# The next cells run a whole Transformer layer: attention and MLP, each with f and g.


# %%
# %%ranks
def transformer_layer(x, weights, heads, group=None):
    """x: (T, D), replicated; `weights`: Q, K, V, O, A, B of this rank and its `heads`."""
    norm = nn.functional.layer_norm
    x = x + attention_by_heads(norm(x, x.shape[1:]), *weights[:4], heads, group)
    return x + block(norm(x, x.shape[1:]), *weights[4:], group)


# %%
# %%ranks
T, D, HEADS = 256, 512, 8
torch.manual_seed(5)
sizes = [(D, D)] * 4 + [(D, 4 * D), (4 * D, D)]
layer_cuts = (1, 1, 1, 0, 1, 0)
layer_weights = [
    own((torch.randn(*size) / size[0] ** 0.5).to(device), dim)
    for size, dim in zip(sizes, layer_cuts, strict=True)
]
layer_input = torch.randn(T, D).to(device).requires_grad_()


def step(group=None):
    y = transformer_layer(layer_input, layer_weights, HEADS // world_size, group)
    y.square().mean().backward()


step()

# %% [markdown]
# **Question.** How many all-reduces does it need, forward and backward together? Of how many KiB each? And
# how many KiB does each rank send in all?

# %%
# your predictions
layer_traffic = {"all-reduces": None, "KiB of each": None, "KiB sent by each rank": None}

# %%
with world.trace() as trace:
    world.execute("step()")
calls = trace.operations
measured = {
    "all-reduces": len(calls),
    "KiB of each": sum(call.size for call in calls) / len(calls) / 1024,
    "KiB sent by each rank": 1024 * mebibytes_sent(trace),
}
T, D = 256, 512
formula = {
    "all-reduces": 4,
    "KiB of each": T * D * 4 / 1024,
    "KiB sent by each rank": 8 * 3 / 4 * T * D * 4 / 1024,
}
for name, number in measured.items():
    told = predicted(layer_traffic, of=name, about=f"{name}, a transformer layer", was=number)
    print(f"{name}: {told}measured {number:.0f}, by the formula {formula[name]:.0f}")

# %% [markdown]
# **Four all-reduces of b · s · h elements a layer**, two forward and two backward: each rank sends 8 b s h (t − 1)/t elements, for each
# layer and each microbatch. For a layer of GPT-3 on 8 GPUs, in bfloat16:

# %%
bsh = 1 * 2048 * 12288
print(
    f"a tensor of {2 * bsh / 2**20:.0f} MiB, {2 * 8 * bsh * 7 / 8 / 1e6:.0f} MB sent by each GPU for each layer; there are 96 layers"
)

# %% [markdown]
# Whether this is much depends on what the GPU could have computed meanwhile. A layer has 12 h² weights: Q, K,
# V and O make 4 h², the MLP's two matrices 4 h² each. Each weight does a multiplication and an addition for
# each of the b · s tokens, 24 b s h² operations. Attention itself multiplies queries with keys, s × s
# products of h numbers, and weights with values, as many again: 4 b s² h operations, counting the half that a
# causal mask hides. So forward is 24 b s h² + 4 b s² h operations, and backward twice as many; each rank does
# 1/t of them. That gives a cost model. Communication is not hidden (section 4; section 9 tries), so the times
# add up:


# %%
def layer_seconds(shape, ranks, flops, bandwidth, latency=0.0, element=2):
    """Seconds of (computation, communication) of a layer, forward and backward; shape: (b · s, s, h)."""
    tokens, s, h = shape
    computation = 3 * (24 * tokens * h**2 + 4 * tokens * s * h) / ranks / flops
    all_reduce = latency + 2 * (ranks - 1) / ranks * element * tokens * h / bandwidth
    return computation, 4 * all_reduce if ranks > 1 else 0.0


# %% [markdown]
# We need one measured point to calibrate the model. How long does *our* layer take on *this* machine, with
# communication, and how long if each rank forms a group of its own, so that f and g do not communicate?

# %%
# %%ranks
from fourranks import bench

alone = [dist.new_group([member]) for member in range(world_size)][rank]
together_s, alone_s = [], []
for _ in range(11):  # in turns, so that other load on the machine slows both alike
    together_s += bench.samples(step, 0, 1, device)
    alone_s += bench.samples(lambda: step(alone), 0, 1, device)
one_call = bench.measure("all_reduce", T * D * 4)

# %%
import statistics

together_s, alone_s = (statistics.median(world.pull(name)[0]) for name in ("together_s", "alone_s"))
busbw = world.pull("one_call.busbw")[0]
share_here = max(0.0, 1 - alone_s / together_s)
computation, _ = layer_seconds((T, T, D), 4, flops=1.0, bandwidth=1.0)
flops_here = computation / alone_s  # of each rank, while all four compute
print(f"a step: {1000 * together_s:.1f} ms, without communication {1000 * alone_s:.1f} ms")
print(
    f"each rank computes {flops_here / 1e9:.0f} GFLOP/s; an all-reduce has a busbw of {busbw / 1e9:.2f} GB/s"
)

# %% [markdown]
# Now the same model over other links, and on other machines. An H100 at half of its peak computes 495 TFLOP/s. Inside a node a
# small all-reduce takes about 44 µs. Between nodes with one GPU each, a ring of t ranks sends 2 (t − 1) messages one after another,
# which take some 4 µs over InfiniBand and 30 µs over Ethernet and TCP.
#
# **Question.** 8 H100s train a layer of GPT-3. What share of the step goes into communication over NVLink (450 GB/s), over InfiniBand
# with one GPU a node (50 GB/s), and over Ethernet with 10 Gb/s?

# %%
# your predictions, from 0 to 1
share_of_step = {"NVLink 4": None, "InfiniBand NDR": None, "10 GbE": None}

# %%
from fourranks.figures.published import GPUS, LADDER, LINKS, SMALL_ALL_REDUCE

h100 = 0.5 * GPUS["H100 SXM"].bf16_flops
gpt3, ours = (2048, 2048, 12288), (T, T, D)
message_s = {"InfiniBand": LADDER[-2].latency, "Ethernet": LADDER[-1].latency}


def small_all_reduce(ranks, bandwidth):
    """Seconds of an all-reduce of a few bytes, over the kind of link that has this bandwidth."""
    if bandwidth > 100e9:
        return SMALL_ALL_REDUCE
    return 2 * (ranks - 1) * message_s["InfiniBand" if bandwidth > 25e9 else "Ethernet"]


def share(shape, ranks, flops, latency, element):
    def of_a_step(bandwidth):
        seconds = latency(ranks, bandwidth)
        computation, communication = layer_seconds(shape, ranks, flops, bandwidth, seconds, element)
        return communication / (computation + communication)

    return of_a_step


models = {
    "8 H100, GPT-3's layer": share(gpt3, 8, h100, small_all_reduce, 2),
    "4 H100, our small layer": share(ours, 4, h100, small_all_reduce, 2),
    "4 ranks here, our small layer": share(ours, 4, flops_here, lambda ranks, bandwidth: 0.0, 4),
}

# %%
names = ("NVLink 4", "InfiniBand NDR", "100 GbE", "10 GbE", "1 GbE")
marks = {name: link.bandwidth for name in names for link in LINKS if link.name.startswith(name)}
points = {"4 ranks here, measured": (busbw, share_here)}
title = "What tensor parallelism spends on communication, by the model and measured"
links(models, points, marks, share_of_step, title)

# %%
by_model = models["8 H100, GPT-3's layer"]
for name in ("NVLink 4", "InfiniBand NDR", "10 GbE"):
    said = by_model(marks[name])
    told = predicted(share_of_step, of=name, about=f"share of a step, {name}", was=said)
    print(f"{name}: {told}the model says {said:.0%}: 8 GPUs are {8 * (1 - said):.2f} times as fast as one")
expected_here = models["4 ranks here, our small layer"](busbw)
finding(
    share_here > expected_here,
    f"this machine spent {share_here:.0%} of a step on communication, the model says {expected_here:.0%}. What is beyond it are ranks that wait for each other before each call.",
    f"this machine spent {share_here:.0%} of a step on communication, the model says {expected_here:.0%}: the all-reduce measured alone was slower than those in the step.",
)

# %% [markdown]
# The black point is this machine, at the bandwidth that its all-reduce reaches. The line of "4 ranks here" is the model with this
# machine's rate of computing: it adds four all-reduces to the computation, and nothing more.
#
# - This machine manages with a link that would be hopeless for an H100, because it computes many thousands of
#   times more slowly. The **ratio** counts: communication / computation = (t − 1) · e/(9 h) · F/B, for
#   elements of e bytes, ranks that compute F operations a second and links that carry B bytes a second,
#   without latency and the s² term. The batch does not appear in it!
# - **Wider layers** help: h is in the denominator. GPT-3's layer is 24 times as wide as ours. For a small layer even NVLink does not
#   help an H100, because of the latency.
# - **More ranks** make it worse: t − 1.
# - And **a faster GPU** needs a faster link. That is the reason for NVLink: the same eight GPUs, with one in
#   each node, spend more than half of their time on communication.
#
# GPUs that communicate for a share c of the time compute for the rest, so t of them do t · (1 − c) times the
# work of one: the last number of each printed line. The pitfall has a **warning sign**: tensor parallelism
# over a slow link is *slower than one GPU*. So **keep it inside the domain of NVLink**, 8 GPUs in most nodes,
# and use data and pipeline parallelism between nodes, since they communicate less.
#
# The bandwidths are nominal, and large all-reduces reach about 80 percent of them. Between nodes with eight
# GPUs and eight cards each, a rank could reach up to 400 GB/s (lecture 03, section 7), but each of a layer's
# four all-reduces would still wait for messages between nodes. Where NVLink spans a rack, so may tensor
# parallelism.

# %% [markdown]
# ## 9. Multiply while the rest is on its way
#
# *Optional: the exercise does not need it.*
#
# Section 8 adds the two times up, because a product needs its whole input. But it does not need all of it *at
# once*: a block of rows of n · A needs only the same rows of n. Under sequence parallelism each rank has one
# block already. So take the collectives of section 7 apart into the ring that they are made of (lecture 02):
#
# - **Instead of the all-gather**: multiply the block of rows that you have, and meanwhile send it to the next
#   rank and receive another one from the previous rank. After N products each rank has multiplied all rows.
# - **Instead of the reduce-scatter**: the sum of one block travels around the ring. While it is on its way to
#   you, compute your own part of it; then add the part and send the sum on.
#
# This is **asynchronous tensor parallelism**, also called a *collective matmul*. To see what it hides, each
# rank imitates an accelerator as in lecture 05: the product of one block takes 10 ms, in which the CPU mostly
# sleeps. The tensors, the sums and the messages are real; a block has 4 MiB.


# %%
# %%ranks
import time

after, before = (rank + 1) % world_size, (rank - 1) % world_size
torch.manual_seed(9)
every_row = torch.randn(world_size * 1024, 1024).to(device)
whole_a, whole_b = torch.randn(1024, 64).to(device) / 32, torch.randn(64, 1024).to(device) / 8
my_rows = every_row.chunk(world_size)[rank].clone()
my_a, my_b = own(whole_a, 1).detach(), own(whole_b, 0).detach()


def multiply(block, weight):
    """The product of one block, in 10 ms."""
    begun = time.perf_counter()
    product = block @ weight
    bench.synchronize(device)
    time.sleep(max(0.0, begun + 0.010 - time.perf_counter()))
    return product


def one_after_another(rows):
    """Gathers all rows, multiplies, adds up."""
    hidden = [gelu(multiply(block, my_a)) for block in gathered_rows(rows).chunk(world_size)]
    return scattered_rows(torch.cat([multiply(block, my_b) for block in hidden]))


# %%
# %%ranks
def send_on(block):
    """Starts to send a block to the next rank, and to receive one from the previous rank."""
    arriving = torch.empty_like(block)
    messages = [dist.P2POp(dist.isend, block, after), dist.P2POp(dist.irecv, arriving, before)]
    return arriving, dist.batch_isend_irecv(messages)


def arrived(arriving, works):
    for work in works:
        work.wait()
    bench.synchronize(device)
    return arriving


def multiply_while_gathering(rows):
    """n · A in blocks, in the order of the ranks that the rows come from."""
    products = {}
    for step in range(world_size):
        moving = send_on(rows) if step < world_size - 1 else None
        products[(rank - step) % world_size] = multiply(rows, my_a)
        if moving:
            rows = arrived(*moving)
    return [products[owner] for owner in range(world_size)]


def multiply_while_scattering(blocks):
    """This rank's rows of the sum of all ranks' products with B."""
    moving = None
    for step in range(world_size):
        total = multiply(blocks[(rank - step - 1) % world_size], my_b)
        if moving:
            total += arrived(*moving)
        moving = send_on(total) if step < world_size - 1 else None
    return total


def overlapped(rows):
    return multiply_while_scattering([gelu(block) for block in multiply_while_gathering(rows)])


# %%
# %%ranks
right_rows = (gelu(every_row @ whole_a) @ whole_b).chunk(world_size)[rank]
largest = right_rows.abs().max()
off = {
    way.__name__: ((way(my_rows) - right_rows).abs().max() / largest).item()
    for way in (one_after_another, overlapped)
}
off

# %% [markdown]
# Both ways compute what one process does. What do the messages take by themselves?


# %%
# %%ranks
def milliseconds(run, times=9):
    """The median of the slowest rank's time."""
    return 1000 * torch.tensor(bench.samples(run, 2, times, device)).median().item()


alone_ms = {
    "the all-gather": milliseconds(lambda: gathered_rows(my_rows)),
    "the reduce-scatter": milliseconds(lambda: scattered_rows(every_row)),
    "one step of the ring": milliseconds(lambda: arrived(*send_on(my_rows))),
}

# %%
alone_ms = world.pull("alone_ms")[0]
for name, ms in alone_ms.items():
    print(f"{name}: {ms:.1f} ms")

# %% [markdown]
# **Question.** An MLP multiplies eight blocks, four with A and four with B. How many milliseconds does it
# take, one after another and overlapped?

# %%
mlp_ms = {"one after another": None, "overlapped": None}  # your predictions

# %%
# %%ranks
mlp_took = {
    "one after another": milliseconds(lambda: one_after_another(my_rows)),
    "overlapped": milliseconds(lambda: overlapped(my_rows)),
}

# %%
gather_ms, scatter_ms, step_ms = alone_ms.values()
formula = {
    "one after another": 8 * 10 + gather_ms + scatter_ms,
    "overlapped": 2 * (10 + 3 * max(10, step_ms)),
}
mlp_took = world.pull("mlp_took")[0]
compare(mlp_took, formula, mlp_ms, "ms", "An MLP under sequence parallelism, forward, on 4 ranks")

# %%
hidden_ms = mlp_took["one after another"] - mlp_took["overlapped"]
finding(
    hidden_ms > 0,
    f"overlapping hid {hidden_ms:.0f} ms of the {gather_ms + scatter_ms:.0f} ms that the two collectives take alone. The formula leaves out what this machine's processors do besides: copying blocks and adding them.",
    "here the ring's messages took longer than what they were to hide: on this machine all ranks' messages share the processors.",
)

# %%
with world.trace() as trace:
    world.execute("_ = overlapped(my_rows)")
trace.timeline("Overlapped: each rank multiplies while a block arrives", computing="computing: mostly asleep")

# %% [markdown]
# When is a message hidden altogether? Let T tokens of width h be spread over t ranks. A block of T/t rows has
# e · T h/t bytes, and its product with A, which has 4 h/t columns on each rank, takes 8 T h²/t² operations.
# Both grow with T, so the batch cancels: the product takes longer than the message if
#
# $$h \ge \frac{e\,t}{8}\cdot\frac{F}{B}$$
#
# for F operations and B bytes a second. The same holds for B. Attention's output matrix is a quarter as large,
# so its messages are hidden from four times this width on.
#
# **Question.** From which width on are the MLP's messages hidden on 8 H100s at half of their peak in bfloat16,
# over NVLink, and over InfiniBand with one GPU a node?

# %%
width_that_hides = {"NVLink 4": None, "InfiniBand NDR": None}  # your predictions

# %%
for name in ("NVLink 4", "InfiniBand NDR"):
    narrowest = 2 * 8 / 8 * h100 / marks[name]
    told = predicted(width_that_hides, of=name, about=f"width that hides messages, {name}", was=narrowest)
    print(f"{name}: {told}from h = {narrowest:,.0f} on; GPT-3 has h = {gpt3[2]:,}")

# %% [markdown]
# So GPT-3's products can hide the messages of NVLink, but not those of a slow link: the rule of section 8
# still holds. Overlapping also has a price. Smaller products use a GPU less well, each of the 2 (N − 1)
# messages has its own latency, and NCCL's messages are carried by some of the GPU's multiprocessors, which
# the products then lack.
#
# In torch, `torch.compile` can take a DTensor's collectives apart this way
# (`torch._inductor.config._micro_pipeline_tp`, marked as private). The blocks then travel through
# **symmetric memory**: buffers that all GPUs have allocated alike, and that each reads from the others over
# NVLink directly, without NCCL. Megatron has the option `--tp-comm-overlap`.

# %% [markdown]
# ## 10. DTensor beside ours
#
# *Optional: the exercise does not need it.*
#
# In practice you do not write f and g by hand in each model. In torch you specify how each layer is cut, and
# get **DTensors**: tensors that know their placement, `Shard(0)`, `Replicate()` or `Partial()`, and insert
# collectives where a placement has to change.
#
# `nn.Linear` stores its weight as (outputs, inputs), the transpose of our W. So a cut by columns of W is `Shard(0)` there.

# %%
# %%ranks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(256, 1024, bias=False), nn.Linear(1024, 256, bias=False)

    def forward(self, x):
        return self.down(nn.functional.gelu(self.up(x)))


torch.manual_seed(6)
theirs = MLP().to(device)
full_up, full_down = (layer.weight.detach().T.clone() for layer in (theirs.up, theirs.down))
mesh = init_device_mesh(device.type, (world_size,))
parallelize_module(theirs, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
print(theirs.up.weight.placements, tuple(theirs.up.weight.to_local().shape))
print(theirs.down.weight.placements, tuple(theirs.down.weight.to_local().shape))

# %%
# %%ranks
a, b = own(full_up, 1), own(full_down, 0)
ours_x, theirs_x = (tokens.clone().requires_grad_() for _ in range(2))


def ours_step():
    block(ours_x, a, b).square().mean().backward()


def theirs_step():
    theirs(theirs_x).square().mean().backward()


ours_step()
theirs_step()
pairs = {
    "x": (ours_x.grad, theirs_x.grad),
    "A": (a.grad, theirs.up.weight.grad.to_local().T),
    "B": (b.grad, theirs.down.weight.grad.to_local().T),
}
print({name: f"{(one - other).abs().max() / other.abs().max():.0e}" for name, (one, other) in pairs.items()})

# %% [markdown]
# The same gradients.
#
# **Question.** How many all-reduces does DTensor's step make? And whose step is faster, and by how much?

# %%
dtensor_all_reduces, dtensor_over_ours = None, None  # your predictions: a number and a ratio

# %%
with world.trace() as trace:
    world.execute("theirs_step()")
trace.table()

# %%
# %%ranks
step_ms = {
    "ours": 1000 * bench.benchmark(ours_step, warmup=3, iterations=15, device=device),
    "DTensor": 1000 * bench.benchmark(theirs_step, warmup=3, iterations=15, device=device),
}

# %%
step_ms = world.pull("step_ms")[0]
calls, ratio = len(trace.operations), step_ms["DTensor"] / step_ms["ours"]
print(f"{predicted(dtensor_all_reduces, about='all-reduces of DTensor', was=calls)}all-reduces: {calls}")
print(f"{predicted(dtensor_over_ours, about='time of DTensor over ours', was=ratio)}measured: {ratio:.2f}")
compare(step_ms, None, None, "ms", "A step of the block, 64 tokens, width 256, 4 ranks")
finding(
    step_ms["DTensor"] > 1.1 * step_ms["ours"],
    f"DTensor's step took {step_ms['DTensor'] / step_ms['ours']:.1f} times as long as ours.",
    f"DTensor's step took {step_ms['DTensor'] / step_ms['ours']:.1f} times as long as ours: on this machine waiting for each other hides the difference.",
)

# %% [markdown]
# DTensor makes one all-reduce in forward and one in backward, like our version: `RowwiseParallel` takes the
# columns that `ColwiseParallel` leaves, and adds up at the end. DTensor's extra work is Python: each
# operation first computes the placement of its result. In a step as small as this the extra work shows; the
# larger the matrices, the less it matters, and `torch.compile` does it only once. In return you change a
# plan, not a model. `SequenceParallel()` for the norms, and `PrepareModuleInput` where a placement has to
# change, turn it into section 7; `loss_parallel()` is section 6.
#
# If you want to stay close to the collectives, `torch.distributed._functional_collectives` has them with
# their true transposes. Then section 3's rule applies, with its factor of N.

# %% [markdown]
# ## 11. When to cut the width
#
# **For it**
#
# - Weights, gradients, optimizer state and most activations of a layer shrink by t, and a single layer may be
#   larger than a GPU.
# - All GPUs work all the time, without a pipeline's bubble, and the batch need not grow.
# - Each step becomes faster even for *one* sequence, which neither data parallelism nor a pipeline achieves.
#   That is why tensor parallelism also makes large models answer quickly.
#
# **Against it**
#
# - There are four all-reduces a layer; only fast links and wide layers let you hide a part of them.
# - You have to take the model apart, and to know what each dimension means.
# - Heads, widths and vocabulary must divide.
# - Matrices become narrower, and narrow products use a GPU less well.
#
# **Before a long run**
#
# - Compare with one process: outputs, *and gradients*, of at least two layers, in float64 if you can.
# - Ask of every tensor: replicated, sharded or partial? Of every random number: the same on all ranks or not?
# - Checkpoints: each rank has shards. Save them with their placement (`torch.distributed.checkpoint` does it for DTensors), or you can
#   only resume with the same number of ranks.
# - Warning signs: slower than one GPU (the link); a loss that is fine at step 0 and worse than one process's later (a sum is missing);
#   ranks whose replicated weights drift apart (the seed).

# %% [markdown]
# ## 12. The model that learns to write, cut along its width
#
# Lectures 04 and 05 have trained a transformer of 1.3 million parameters on the text of this course
# (`fourranks/learner/model.py`, a page of code). There each rank read different rows. Now all four read the
# same 16 rows, and each computes with one of the four heads and a quarter of the hidden units of each block.
# The block is written for that:

# %%
import inspect

from IPython.display import Code

from fourranks.figures import strategies
from fourranks.learner import model as learner

Code(inspect.getsource(learner.TransformerBlock.forward), language="python")

# %% [markdown]
# `enter` is our f and `leave` is our g. `share` gives a rank its heads and hidden units, and inserts the two
# functions. Embedding, norms and head are replicated: every rank computes the same. The training loop is the
# same as for a single process.
#
# **Question.** The model has four blocks of width 160 and 1.29 million parameters. A batch has 16 rows of 64 characters. How many MiB will
# each rank send in a step? And how many would it send in lecture 04's data parallelism?

# %%
step_sends = {"tensor parallel": None, "data parallel": None}  # your predictions, in MiB

# %%
# %%ranks
import fourranks
from fourranks.learner.corpus import course
from fourranks.learner.model import Config, share, transformer
from fourranks.learner.training import train

corpus, steps = course(), 250
config = Config(len(corpus.alphabet))


# %%
# %%ranks
def train_on_all_rows(model, name, **options):
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    return train(model, optimizer, corpus, fourranks.progress(range(steps), name), **options)


writer = share(transformer(config), config, rank, world_size, enter=Copy.apply, leave=Reduce.apply)
tp_losses = train_on_all_rows(writer.to(device), "tensor parallel")

# %%
parameters = world.pull("sum(weight.numel() for weight in transformer(config).parameters())", [0])[0]
with world.trace() as trace:
    world.execute("train(writer, torch.optim.AdamW(writer.parameters(), lr=0.0), corpus, [0])")
formula = {
    "tensor parallel": 4 * 8 * 3 / 4 * 16 * 64 * 160 * 4 / 2**20,
    "data parallel": 2 * 3 / 4 * parameters * 4 / 2**20,
}
in_a_step = {"tensor parallel": mebibytes_sent(trace), "data parallel": formula["data parallel"]}
compare(in_a_step, formula, step_sends, "MiB", "Sent by each rank in a step; data parallel by the formula")

# %% [markdown]
# Tensor parallelism sends more than data parallelism would, because the batch has 1,024 tokens and the model
# is narrow. In section 3 the two were equal at as many tokens as the width. A Transformer layer has 12 h²
# weights and 8 b s h elements of traffic, so there they are equal at three times the width, 480 tokens.
#
# ### With sequence parallelism
#
# *Optional: it uses the functions of section 7.*
#
# Sequence parallelism uses the same two hooks. `enter` gathers the text positions before attention
# and MLP, and `leave` sums and scatters them afterwards, as in section 7. Outside of these two, each rank has
# 16 of the 64 positions, so norms and residual sums are computed once instead of four times. Three things
# have to be added: the embedding's output is scattered, the head's input is gathered, and the norms see only
# the positions of their rank, so their gradients are partial sums that `before_step` adds up.


# %%
# %%ranks
class OwnRows(torch.autograd.Function):
    """From all rows on all ranks to each rank's own rows."""

    @staticmethod
    def forward(ctx, x):
        return x.chunk(world_size)[rank].clone()

    @staticmethod
    def backward(ctx, gradient):
        return gathered_rows(gradient)


class AllRows(torch.autograd.Function):
    """From each rank's own rows to all rows on all ranks."""

    @staticmethod
    def forward(ctx, x):
        return gathered_rows(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.chunk(world_size)[rank].clone()


# %%
# %%ranks
class AlongText(nn.Module):
    """Applies an operation on rows to the positions T of (B, T, width)."""

    def __init__(self, operation):
        super().__init__()
        self.operation = operation

    def forward(self, x):
        rows = self.operation.apply(x.transpose(0, 1).flatten(1))
        return rows.unflatten(1, (len(x), -1)).transpose(0, 1)


# %%
# %%ranks
gather, scatter = AlongText(GatherRows), AlongText(ScatterRows)
embedding, *blocks, head = share(transformer(config), config, rank, world_size, enter=gather, leave=scatter)
by_places = nn.Sequential(embedding, AlongText(OwnRows), *blocks, AlongText(AllRows), head).to(device)
norms = [weight for block in blocks for name, weight in block.named_parameters() if "norm" in name]


def add_up_norms():
    for weight in norms:
        dist.all_reduce(weight.grad)


sp_losses = train_on_all_rows(by_places, "+ sequence parallel", before_step=add_up_norms)

# %%
strategies.keep("+ sequence parallel", world.pull("sp_losses", [0])[0])

# %% [markdown]
# ### One curve
#
# We draw the losses over those of earlier lectures. If you have not run lecture 04 here, rank 0 first trains
# alone.

# %%
losses = world.pull("tp_losses", [0])[0]
strategies.keep("tensor parallel", losses)
known = strategies.kept(losses[0])

# %%
if "one process" not in known:
    world.execute("losses = train_on_all_rows(transformer(config).to(device), 'one process')", ranks=[0])
    strategies.keep("one process", world.pull("losses", [0])[0])

# %%
lines = strategies.kept(world.pull("tp_losses", [0])[0][0])
strategies.over_one_another(lines, "The model that learns to write, under each strategy so far")

# %%
largest = {name: max(apart) for name, apart in strategies.apart(lines, "one process").items()}
finding(
    max(largest.values()) < 1e-3,
    f"No strategy's losses differ from those of one process by more than {max(largest.values()):.0e}.",
    f"The losses differ by up to {max(largest.values()):.0e}: training has made differences in the last bit grow.",
)

# %% [markdown]
# All curves lie on top of one another. The weights at the start and the rows are the same, and each product
# of two matrices is the same sum, added up in different parts. A missing f, or norm gradients that are not
# added up, would move the curve away from the others: try it.
#
# The shards of the four ranks together are a whole model again. `joined` puts the heads and hidden units side
# by side:

# %%
# %%ranks
state = {name: tensor.cpu() for name, tensor in writer.state_dict().items()}

# %%
from fourranks.learner.corpus import course, write

corpus = course()
whole = learner.transformer(learner.Config(len(corpus.alphabet)))
whole.load_state_dict(learner.joined(world.pull("state")))
print(write(whole, corpus, "The columns ", seed=6))

# %% [markdown]
# **Train it with yours** (optional). Paste the cells of the exercise that define `copy_to_ranks`, `reduce_from_ranks` and what they use into
# this cell, and return the two functions. With `None` nothing happens.


# %%
# %%ranks
def my_functions():
    return None  # your own: return copy_to_ranks, reduce_from_ranks


# %%
# %%ranks
mine_cut = my_functions()
if mine_cut is None:
    print("No functions of yours yet.")
else:
    with_mine = share(transformer(config), config, rank, world_size, *mine_cut).to(device)
    by_mine = train_on_all_rows(with_mine, "yours")
    differences = [abs(one - other) for one, other in zip(by_mine, tp_losses, strict=True)]
    print(f"Your losses differ from those above by at most {max(differences):.0e}.")

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
# - **The all-gather MLP**, backward included: where the forward pass gathers, the backward pass
#   reduce-scatters; the gradients were those of one process, in shards, as soon as we counted the loss only
#   once.
# - **Columns, then rows**: f and g, one all-reduce in each pass for an MLP and for attention by heads; a few
#   numbers a token for a loss over a sharded vocabulary.
# - **Mistakes that no loss shows**: a missing f, a bias added four times, a fused matrix cut through, a seed in the wrong region.
# - **8 b s h (t − 1)/t** in a trace, and a cost model beside our own measurement: by the model, NVLink keeps a good part of the
#   speed, and over 10 Gb/s Ethernet eight GPUs are slower than one.
# - **Messages behind products**: a block multiplied while the next one arrives, and the width from which that hides a link.
# - **The model that learns to write**, with one head on each rank, and with its text positions sharded
#   between the blocks: the same curve.
#
# **Your turn**: [the exercise](../../exercises/06_tensor_parallelism/exercise.ipynb). You write the four functions, the layers,
# attention and the loss, for any number of ranks.
#
# **Next**: what if the link is slow, and the model still does not fit? Lecture 07 cuts between the layers,
# where the least data has to be sent.
#
# **Sources and further reading.** [Stanford CS336 (spring 2025), lecture
# 8](https://github.com/stanford-cs336/spring2025-lectures) · [Stanford CS229S (fall
# 2023)](https://cs229s.stanford.edu/fall2023/), on parallelism · Shoeybi and others, *Megatron-LM*, [arXiv
# 1909.08053](https://arxiv.org/abs/1909.08053) · Narayanan and others, *Efficient large-scale language model training on GPU
# clusters using Megatron-LM*, [arXiv 2104.04473](https://arxiv.org/abs/2104.04473) · Korthikanti and others, *Reducing activation
# recomputation in large transformer models*, [arXiv 2205.05198](https://arxiv.org/abs/2205.05198) · Wang and others, *Overlap
# communication with dependent computation via decomposition in large deep learning models*, [ASPLOS
# 2023](https://doi.org/10.1145/3567955.3567959) · Bekman, [*Machine Learning
# Engineering*](https://github.com/stas00/ml-engineering) · PyTorch 2.13, documentation of
# [`torch.distributed.tensor`](https://docs.pytorch.org/docs/stable/distributed.tensor.html) and
# [`torch.distributed.tensor.parallel`](https://docs.pytorch.org/docs/stable/distributed.tensor.parallel.html)

# %%
# %ranks stop
