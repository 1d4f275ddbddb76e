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
# # 06 Tensor parallelism: can four ranks be one layer?
#
# A layer that is too wide for one rank is sharded along its width: every rank has a part of each weight, all
# ranks work on the same batch, and they send each other activations. Here you build the layers, forward and
# backward, so that they give the same results as on one process.
#
# You will
#
# - write four functions that distribute or collect an activation, each with the matching backward,
# - cut a deep MLP so that it gathers after every layer, and a transformer's MLP so that it sums once,
# - cut attention by its heads, and the loss by its vocabulary,
# - count the collectives and their bytes, in forward and in backward,
# - optionally shard the remaining activations along the sequence.
#
# 4 to 5 hours · 1 to 8 ranks (the checks start their own) · Gloo, no GPU needed
#
# [The lecture](../../lectures/06_tensor_parallelism/lecture.ipynb) has the ideas; here you build them. On one page each:
# [notation](../../docs/notation.md) · [cheat sheet](../../docs/cheat_sheet.md) · [glossary](../../docs/glossary.md) · [concept map](../../docs/concept_map.md)

# %% [markdown]
# ## Rules
#
# **You may use** everything in `torch.distributed`, and `nn.Module`, but not `torch.distributed.tensor`,
# `torch.distributed.nn` and the functional collectives (`torch.distributed._functional_collectives`), which
# contain the answers. They are missing when a check runs your code, and the check watches what the ranks
# really send. In cells of your own you may compare with anything on your machine.
#
# **Parallel must equal serial.** The modules for one process are given. The checks compare your modules with
# them: the output, the gradient of the input, and the gradient of every weight.
#
# | one process | its parameters | you write |
# |---|---|---|
# | `nn.Linear(in_features, out_features)` | `weight`, `bias` | `ColumnParallelLinear`, `RowParallelLinear` |
# | `DeepMLP(width, num_layers)` | `layers.0.weight`, `layers.0.bias`, `layers.1.weight`, … | `AllGatherMLP` |
# | `MLP(width, hidden_width)` | `up.weight`, `up.bias`, `down.weight`, `down.bias` | `ParallelMLP` |
# | `Attention(width, num_heads, causal)` | `qkv.weight`, `qkv.bias`, `out.weight`, `out.bias` | `ParallelAttention` |
# | `PreNormMLP(width, hidden_width)` | `norm.weight`, `norm.bias`, and those of `MLP` | `SequenceParallelMLP` |
#
# Run `Attention??` in a cell of its own to see the source.
#
# **Replicated, sharded, partial** are DTensor's words, `Replicate`, `Shard(dim)` and `Partial`. A tensor is
# *replicated* when every rank has all of it, the same everywhere, and *sharded along `dim`* when rank r of N
# has the r-th of N equal parts. It is *partial* when each rank has a *partial sum* of full size, and the
# tensor is the sum of all of them. A replicated tensor has a replicated gradient, and for a sharded tensor
# each rank has its shard of the gradient. That holds for inputs, outputs and weights alike: a layer can rely
# on it for the gradient that it receives, and must guarantee it for the gradient that it returns.
#
# **Every module has `load_full(state_dict)`.** On every rank it gets the state dict of the whole module, and
# copies this rank's shards into the existing parameters, without communication. Until then a module's weights
# may have any values. Parameters have the names of those in the whole module, and the shape of the shard. Use
# no more of the state dict than these shards: in a check the other ranks' parts of it are other numbers.
#
# **No rank ever holds a whole weight** that is sharded: not in a parameter, not for a moment in the
# constructor, and not as the memory behind a view.
#
# **Refuse sizes that do not divide** with a `ValueError` that names the size and the number of ranks, and
# says what to do.
#
# **`group=None`** is the group of all ranks. A smaller group must work in the same way. With 1 rank
# everything must work, too.
#
# **Budgets are part of the task**: they limit the collectives in forward and in backward, and their bytes.
# Constructors and `load_full` do not communicate. Call `wait()` on the handle of every call that you start with
# `async_op=True`.

# %% nbgrader={"grade": false, "grade_id": "setup", "locked": true, "schema_version": 3, "solution": false, "task": false}
# %load_ext fourranks

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

import fourranks
from autograder import check
from autograder.unsharded import MLP, Attention, DeepMLP, PreNormMLP

# %% [markdown]
# ## 1. To the ranks and back, with gradients
#
# **Difficulty** ●●○○○ · **Importance** ●●●●● · **about 45 minutes**
#
# `dist.all_reduce` fills a tensor without autograd's knowledge: no gradient flows back through its result. So
# each of these functions needs a `torch.autograd.Function`, a class with its own forward and backward.
#
# | | x | forward returns | backward returns, from the gradient g of the output | Megatron calls it |
# |---|---|---|---|---|
# | `copy_to_ranks(x, group)` | replicated | x, as it is | the sum of all ranks' g | *f* |
# | `reduce_from_ranks(x, group)` | a partial sum on each rank | the sum over the ranks, replicated | g, as it is | *g* |
# | `gather_from_ranks(x, dim, group)` | sharded along `dim` | all parts, put together along `dim` | this rank's part of g | |
# | `scatter_to_ranks(x, dim, group)` | replicated | this rank's part along `dim` | all ranks' g, put together | |
#
# They come in pairs: the forward of one is the backward of the other. (Megatron's function *g* is not the
# gradient g.)
#
# ```
#             copy                    reduce                 gather                  scatter
# forward     x ─> x, x, x, x         x0+x1+x2+x3 <─ xr      x0|x1|x2|x3 <─ xr       x ─> xr
# backward    g0+g1+g2+g3 <─ gr       g ─> g, g, g, g        g ─> gr                 g0|g1|g2|g3 <─ gr
# ```
#
# Why does `reduce_from_ranks` not sum in backward? All ranks continue with the same sum and compute the same
# loss. It is *one* loss, and its derivative with respect to each partial sum is g. If backward added the four
# equal g, all gradients before this layer would be four times too large.
#
# - **Do not change x or g.** Autograd passes the same g to other functions as well. And x may have other uses: a
#   hook on it would change their gradients, too.
# - x may have any shape, even 0 elements, and any floating dtype, and need not be contiguous in memory; `dim`
#   may be negative.
# - **Budget:** one collective in one direction, nothing in the other: an all-reduce for the first two, an all-gather for the others.
# - `scatter_to_ranks` refuses a dimension that does not divide, with a `ValueError`.
#
# <details><summary>Hint 1: the form</summary>
# <pre>class _Double(torch.autograd.Function):
#     @staticmethod
#     def forward(ctx, x, factor):
#         ctx.factor = factor              # for backward
#         return x * factor
#     @staticmethod
#     def backward(ctx, gradient):
#         return gradient * ctx.factor, None   # one for each argument of forward
# y = _Double.apply(x, 2)</pre>
# </details>
# <details><summary>Hint 2: copies</summary>
# <code>x.clone(memory_format=torch.contiguous_format)</code> is a contiguous copy, always. <code>x.contiguous()</code> is x itself if it was contiguous before.
# </details>
# <details><summary>Hint 3: put together</summary>
# <code>dist.all_gather(parts, x.contiguous(), group=group)</code> fills a list of N tensors; <code>torch.cat(parts, dim)</code> puts them together.
# <code>dist.get_rank(group)</code> is the position in the group.
# </details>


# %% nbgrader={"grade": false, "grade_id": "copy_to_ranks", "locked": false, "schema_version": 3, "solution": true, "task": false}
def copy_to_ranks(x: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """Hand a whole tensor to the ranks, each of which uses it in its own way: backward sums their gradients."""
    ### BEGIN SOLUTION
    return _CopyToRanks.apply(x, group)


def summed(x: torch.Tensor, group: dist.ProcessGroup | None) -> torch.Tensor:
    """The sum over the ranks, as a new tensor."""
    total = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=group)
    return total


class _CopyToRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return summed(gradient, ctx.group), None

    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "copy_to_ranks_check", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
check.copy_to_ranks(copy_to_ranks)
### BEGIN HIDDEN TESTS
check.copy_to_ranks(copy_to_ranks, world_sizes=(6,), seed=2601)
### END HIDDEN TESTS


# %% nbgrader={"grade": false, "grade_id": "reduce_from_ranks", "locked": false, "schema_version": 3, "solution": true, "task": false}
def reduce_from_ranks(x: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """The sum of the ranks' partial sums, replicated."""
    ### BEGIN SOLUTION
    return _ReduceFromRanks.apply(x, group)


class _ReduceFromRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        return summed(x, group)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None

    ### END SOLUTION


# %% [markdown]
# Try it before you run the check. Each rank has a number; the numbers are summed, the sum is squared, and
# backward computes the gradients. What is the sum of 1, 2, 3 and 4, squared? And what is its derivative with
# respect to each of the four?


# %%
def try_reduce(reduce_from_ranks):
    x = torch.tensor(dist.get_rank() + 1.0, requires_grad=True)
    y = reduce_from_ranks(x).square()
    y.backward()
    return y.item(), x.grad.item()


fourranks.world("gloo").run(try_reduce, reduce_from_ranks)

# %% nbgrader={"grade": true, "grade_id": "reduce_from_ranks_check", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
check.reduce_from_ranks(reduce_from_ranks)
### BEGIN HIDDEN TESTS
check.reduce_from_ranks(reduce_from_ranks, world_sizes=(6,), seed=2602)
### END HIDDEN TESTS


# %% nbgrader={"grade": false, "grade_id": "gather_from_ranks", "locked": false, "schema_version": 3, "solution": true, "task": false}
def gather_from_ranks(x: torch.Tensor, dim: int, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """The whole tensor of which each rank has a part along `dim`."""
    ### BEGIN SOLUTION
    return _GatherFromRanks.apply(x, dim, group)


def put_together(x: torch.Tensor, dim: int, group: dist.ProcessGroup | None) -> torch.Tensor:
    """The parts of all ranks, one behind the other along `dim`."""
    x = x.contiguous()
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, x, group=group)
    return torch.cat(parts, dim)


def share(size: int, group: dist.ProcessGroup | None) -> int:
    """Each rank's share of so many elements."""
    world_size = dist.get_world_size(group)
    if size % world_size:
        raise ValueError(
            f"{size} cannot be cut into {world_size} equal parts, one for each rank: "
            f"choose a size that is a multiple of {world_size}, or another number of ranks"
        )
    return size // world_size


def own_part(x: torch.Tensor, dim: int, group: dist.ProcessGroup | None) -> torch.Tensor:
    """This rank's part along `dim`, as a view."""
    return equal_parts(x, dim, group)[dist.get_rank(group)]


def equal_parts(x: torch.Tensor, dim: int, group: dist.ProcessGroup | None) -> tuple[torch.Tensor, ...]:
    """The parts of all ranks along `dim`, as views."""
    share(x.shape[dim], group)  # which refuses what does not divide
    return x.tensor_split(dist.get_world_size(group), dim)


class _GatherFromRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim, group):
        ctx.dim, ctx.group = dim, group
        return put_together(x, dim, group)

    @staticmethod
    def backward(ctx, gradient):
        return own_part(gradient, ctx.dim, ctx.group), None, None

    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "gather_from_ranks_check", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
check.gather_from_ranks(gather_from_ranks)
### BEGIN HIDDEN TESTS
check.gather_from_ranks(gather_from_ranks, world_sizes=(6,), seed=2603)
### END HIDDEN TESTS


# %% nbgrader={"grade": false, "grade_id": "scatter_to_ranks", "locked": false, "schema_version": 3, "solution": true, "task": false}
def scatter_to_ranks(x: torch.Tensor, dim: int, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """This rank's part along `dim` of a whole tensor."""
    ### BEGIN SOLUTION
    return _ScatterToRanks.apply(x, dim, group)


class _ScatterToRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dim, group):
        ctx.dim, ctx.group = dim, group
        return own_part(x, dim, group)

    @staticmethod
    def backward(ctx, gradient):
        return put_together(gradient, ctx.dim, ctx.group), None, None

    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "scatter_to_ranks_check", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
check.scatter_to_ranks(scatter_to_ranks)
### BEGIN HIDDEN TESTS
check.scatter_to_ranks(scatter_to_ranks, world_sizes=(6,), seed=2604)
### END HIDDEN TESTS

# %% [markdown]
# ## 2. Cut the width: a gather after every layer
#
# **Difficulty** ●●●○○ · **Importance** ●●●●○ · **about 45 minutes**
#
# This is the simplest way to cut a deep MLP: every rank computes its part of each layer's outputs, and all
# ranks gather them, since the next layer reads them all. With a width of 1,024 and 4 ranks, each rank has 256
# rows of every weight.
#
# ```
#         ┌ W1, rows of rank r ┐                 ┌ W2, rows of rank r ┐
# x ──────┤                    ├─ GELU ─ gather ─┤                    ├─ GELU ─ gather ── …
# repl.   └                    ┘ sharded  repl.  └                    ┘ sharded  repl.
# ```
#
# `AllGatherMLP(width, num_layers, group=None)` equals `DeepMLP(width, num_layers)`.
#
# | | |
# |---|---|
# | x, and the output | replicated, (…, width) |
# | `layers.i.weight` | sharded along dimension 0: (width / N, width) |
# | `layers.i.bias` | sharded along dimension 0: (width / N) |
# | refused | a width that does not divide by the ranks |
#
# **Budget**, with S the bytes of x. Forward: an all-gather (to S bytes) for each layer. Backward: an all-reduce of S bytes for the gradient of x, and for each layer but
# the last a *reduce-scatter* of S bytes.
#
# Why a reduce-scatter? From its rows of the next weight, each rank computes a partial sum of the gradient of
# the gathered activation, over the full width. It needs the sum over all ranks, but only for the columns that
# it has computed itself. `gather_from_ranks` followed by `copy_to_ranks` is also correct. But it sums the
# full width with an all-reduce and then discards all but one part: twice the bytes. Only after the last
# gather do all ranks continue with the same computation.
#
# <details><summary>Hint 1: the third function</summary>
# You need one more function with a gradient: all-gather in forward, reduce-scatter in backward. <code>dist.reduce_scatter(output, list_of_N, group=group)</code> takes
# contiguous tensors, such as those of <code>[part.contiguous() for part in gradient.chunk(N, dim)]</code>.
# </details>
# <details><summary>Hint 2: which function where</summary>
# The input x is replicated, and each rank uses it with different weights. In between, an activation is
# gathered, and again each rank uses it with different weights. At the end it is gathered, and all ranks use
# it in the same way.
# </details>
# <details><summary>Hint 3: the shards</summary>
# <code>nn.Linear(width, width // N)</code> has parameters of the right names and shapes. For <code>load_full</code>, <code>self.named_parameters()</code> has all
# their names, <code>layers.0.weight</code> and so on.
# </details>


# %% nbgrader={"grade": false, "grade_id": "all_gather_mlp", "locked": false, "schema_version": 3, "solution": true, "task": false}
class AllGatherMLP(nn.Module):
    """A DeepMLP of which every rank has some rows of each weight; activations are gathered after every layer."""

    def __init__(self, width: int, num_layers: int, group: dist.ProcessGroup | None = None) -> None:
        """Make this rank's shards."""
        ### BEGIN SOLUTION
        super().__init__()
        self.group = group
        own_width = share(width, group)
        self.layers = nn.ModuleList([nn.Linear(width, own_width) for _ in range(num_layers)])
        ### END SOLUTION

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (..., width), replicated; and so is what comes out."""
        ### BEGIN SOLUTION
        *inner, last = self.layers
        x = copy_to_ranks(x, self.group)
        for layer in inner:
            x = _AllGather.apply(F.gelu(layer(x)), -1, self.group)
        return gather_from_ranks(F.gelu(last(x)), -1, self.group)
        ### END SOLUTION

    def load_full(self, state_dict: Mapping[str, torch.Tensor]) -> None:
        """Copy this rank's shards out of the state dict of a DeepMLP."""
        ### BEGIN SOLUTION
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                parameter.copy_(own_part(state_dict[name], 0, self.group))


def sum_of_own_part(x: torch.Tensor, dim: int, group: dist.ProcessGroup | None) -> torch.Tensor:
    """This rank's part, along `dim`, of the sum over the ranks."""
    parts = [part.contiguous() for part in equal_parts(x, dim, group)]
    total = torch.empty_like(parts[0])
    dist.reduce_scatter(total, parts, group=group)
    return total


class _AllGather(torch.autograd.Function):
    """For a gathered tensor that each rank then uses in its own way."""

    @staticmethod
    def forward(ctx, x, dim, group):
        ctx.dim, ctx.group = dim, group
        return put_together(x, dim, group)

    @staticmethod
    def backward(ctx, gradient):
        return sum_of_own_part(gradient, ctx.dim, ctx.group), None, None
        ### END SOLUTION


# %% [markdown]
# Does it compute the same? Four ranks do a forward and a backward pass with shards of one DeepMLP, and
# compare with the whole module. The two numbers should be tiny:


# %%
def try_all_gather(AllGatherMLP):
    torch.manual_seed(0)  # the same whole weights on every rank, here for comparison only
    whole, x = DeepMLP(64, 4), torch.randn(8, 64)
    parallel = AllGatherMLP(64, 4)
    parallel.load_full(whole.state_dict())
    expected, got = whole(x), parallel(x)
    expected.square().mean().backward()
    got.square().mean().backward()
    own_rows = whole.layers[0].weight.grad.chunk(dist.get_world_size())[dist.get_rank()]
    return [
        (expected - got).abs().max().item(),
        (own_rows - parallel.layers[0].weight.grad).abs().max().item(),
    ]


with fourranks.world("gloo").trace() as trace:
    print(fourranks.world("gloo").run(try_all_gather, AllGatherMLP))
trace.timeline("four layers: gathers forward, reduce-scatters backward")

# %% nbgrader={"grade": true, "grade_id": "all_gather_mlp_check", "locked": true, "points": 12, "schema_version": 3, "solution": false, "task": false}
check.all_gather_mlp(AllGatherMLP)
### BEGIN HIDDEN TESTS
check.all_gather_mlp(AllGatherMLP, world_sizes=(6,), seed=2605)
### END HIDDEN TESTS

# %% [markdown]
# ## 3. Columns: cut the outputs
#
# **Difficulty** ●●○○○ · **Importance** ●●●●○ · **about 20 minutes**
#
# In the formula y = xA, Megatron cuts the matrix A into columns: each rank computes some of the outputs from all of the inputs. `nn.Linear` keeps A transposed, as
# `weight` of shape (out_features, in_features), so that columns of A are *rows* of `weight`.
#
# `ColumnParallelLinear(in_features, out_features, bias=True, gather_output=False, group=None)` equals `nn.Linear(in_features, out_features, bias)`.
#
# | | |
# |---|---|
# | x | replicated, (…, in_features) |
# | output | sharded along the last dimension: (…, out_features / N). With `gather_output=True` replicated: (…, out_features) |
# | `weight` | sharded along dimension 0: (out_features / N, in_features) |
# | `bias` | sharded along dimension 0, or None with `bias=False` |
# | refused | `out_features` that do not divide by the ranks |
#
# **Budget.** Forward: nothing, or with `gather_output` an all-gather of the output. Backward: an all-reduce of the gradient of x.
#
# <details><summary>Hint</summary>
# Two of your four functions, and <code>F.linear(x, weight, bias)</code> between them. <code>self.bias = None</code> is how <code>nn.Linear</code> does without.
# </details>


# %% nbgrader={"grade": false, "grade_id": "column_parallel_linear", "locked": false, "schema_version": 3, "solution": true, "task": false}
class ColumnParallelLinear(nn.Module):
    """A linear layer of which each rank computes some outputs."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        gather_output: bool = False,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        """Make this rank's shards."""
        ### BEGIN SOLUTION
        super().__init__()
        self.gather_output, self.group = gather_output, group
        own_features = share(out_features, group)
        self.weight = nn.Parameter(torch.empty(own_features, in_features))
        self.bias = nn.Parameter(torch.empty(own_features)) if bias else None
        ### END SOLUTION

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (..., in_features), replicated. Returns this rank's outputs, or with `gather_output` all of them."""
        ### BEGIN SOLUTION
        y = F.linear(copy_to_ranks(x, self.group), self.weight, self.bias)
        return gather_from_ranks(y, -1, self.group) if self.gather_output else y
        ### END SOLUTION

    def load_full(self, state_dict: Mapping[str, torch.Tensor]) -> None:
        """Copy this rank's shards out of the state dict of an nn.Linear."""
        ### BEGIN SOLUTION
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                parameter.copy_(own_part(state_dict[name], 0, self.group))
        ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "column_parallel_linear_check", "locked": true, "points": 10, "schema_version": 3, "solution": false, "task": false}
check.column_parallel_linear(ColumnParallelLinear)
### BEGIN HIDDEN TESTS
check.column_parallel_linear(ColumnParallelLinear, world_sizes=(6,), seed=2606)
### END HIDDEN TESTS

# %% [markdown]
# ## 4. Rows: cut the inputs
#
# **Difficulty** ●●○○○ · **Importance** ●●●●○ · **about 20 minutes**
#
# Here each rank has some of the inputs, and the part of the matrix that multiplies them. Its result has the
# full width, but is only a *partial sum* of the output.
#
# `RowParallelLinear(in_features, out_features, bias=True, input_is_parallel=True, group=None)` equals `nn.Linear(in_features, out_features, bias)`.
#
# | | |
# |---|---|
# | x | sharded along the last dimension: (…, in_features / N). With `input_is_parallel=False` replicated, and the layer cuts it itself |
# | output | replicated, (…, out_features) |
# | `weight` | sharded along dimension 1: (out_features, in_features / N) |
# | `bias` | replicated: (out_features), or None with `bias=False` |
# | refused | `in_features` that do not divide by the ranks |
#
# **Budget.** Forward: an all-reduce of the output. Backward: nothing; with `input_is_parallel=False` an all-gather of the gradient of x.
#
# <details><summary>Hint</summary>
# The bias belongs to the sum, not to each partial sum.
# </details>


# %% nbgrader={"grade": false, "grade_id": "row_parallel_linear", "locked": false, "schema_version": 3, "solution": true, "task": false}
class RowParallelLinear(nn.Module):
    """A linear layer of which each rank has some inputs."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        input_is_parallel: bool = True,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        """Make this rank's shard of the weight, and the bias."""
        ### BEGIN SOLUTION
        super().__init__()
        self.input_is_parallel, self.group = input_is_parallel, group
        self.weight = nn.Parameter(torch.empty(out_features, share(in_features, group)))
        self.bias = nn.Parameter(torch.empty(out_features)) if bias else None
        ### END SOLUTION

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: this rank's inputs, or without `input_is_parallel` all of them. Returns the whole output."""
        ### BEGIN SOLUTION
        if not self.input_is_parallel:
            x = scatter_to_ranks(x, -1, self.group)
        y = reduce_from_ranks(F.linear(x, self.weight), self.group)
        return y if self.bias is None else y + self.bias
        ### END SOLUTION

    def load_full(self, state_dict: Mapping[str, torch.Tensor]) -> None:
        """Copy this rank's shard of the weight, and the whole bias, out of the state dict of an nn.Linear."""
        ### BEGIN SOLUTION
        with torch.no_grad():
            self.weight.copy_(own_part(state_dict["weight"], 1, self.group))
            if self.bias is not None:
                self.bias.copy_(state_dict["bias"])
        ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "row_parallel_linear_check", "locked": true, "points": 10, "schema_version": 3, "solution": false, "task": false}
check.row_parallel_linear(RowParallelLinear)
### BEGIN HIDDEN TESTS
check.row_parallel_linear(RowParallelLinear, world_sizes=(6,), seed=2607)
### END HIDDEN TESTS

# %% [markdown]
# ## 5. Columns, then rows: a transformer's MLP with one all-reduce
#
# **Difficulty** ●●○○○ · **Importance** ●●●●● · **about 30 minutes**
#
# Now combine the two. The output of the first layer is sharded along the same dimension as the input of the
# second, and GELU works on each element separately, so it does not need the elements of other ranks. That
# makes two matrix products with one all-reduce.
#
# ```
#          f           sharded                  partial       g
# x ─ copy_to_ranks ─ up (columns) ─ GELU ─ down (rows) ─ reduce_from_ranks ─ + bias ── y
# replicated                                                                     replicated
# ```
#
# `ParallelMLP(width, hidden_width, group=None)` equals `MLP(width, hidden_width)`.
#
# | | |
# |---|---|
# | x, and what comes out | replicated, (…, width) |
# | `up.weight`, `up.bias` | sharded along dimension 0 |
# | `down.weight` | sharded along dimension 1 |
# | `down.bias` | replicated |
# | refused | a `hidden_width` that does not divide by the ranks (`width` need not) |
#
# **Budget**, with S the bytes of x: an all-reduce of S bytes forward, and one backward.
#
# <details><summary>Hint</summary>
# For <code>load_full</code> each layer needs a state dict with its own names: those that begin with
# <code>up.</code>, without that prefix. The function <code>part_of</code> is given.
# </details>


# %% nbgrader={"grade": false, "grade_id": "parallel_mlp", "locked": false, "schema_version": 3, "solution": true, "task": false}
def part_of(state_dict: Mapping[str, torch.Tensor], module: str) -> dict[str, torch.Tensor]:
    """The entries of one submodule, under the names that it has itself (this function is given)."""
    prefix = f"{module}."
    return {
        name.removeprefix(prefix): tensor for name, tensor in state_dict.items() if name.startswith(prefix)
    }


class ParallelMLP(nn.Module):
    """A transformer's MLP, sharded along its hidden width."""

    def __init__(self, width: int, hidden_width: int, group: dist.ProcessGroup | None = None) -> None:
        """Make this rank's shards."""
        ### BEGIN SOLUTION
        super().__init__()
        self.up = ColumnParallelLinear(width, hidden_width, group=group)
        self.down = RowParallelLinear(hidden_width, width, group=group)
        ### END SOLUTION

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (..., width), replicated; and so is what comes out."""
        ### BEGIN SOLUTION
        return self.down(F.gelu(self.up(x)))
        ### END SOLUTION

    def load_full(self, state_dict: Mapping[str, torch.Tensor]) -> None:
        """Copy this rank's shards out of the state dict of an MLP."""
        ### BEGIN SOLUTION
        self.up.load_full(part_of(state_dict, "up"))
        self.down.load_full(part_of(state_dict, "down"))
        ### END SOLUTION


# %% [markdown]
# Look at one step of it. How many collectives are there, and of how many bytes, when x is 8 × 64 in float32?


# %%
def try_parallel_mlp(ParallelMLP):
    torch.manual_seed(0)
    whole, x = MLP(64, 256), torch.randn(8, 64, requires_grad=True)
    parallel = ParallelMLP(64, 256)
    parallel.load_full(whole.state_dict())
    parallel(x).square().mean().backward()


with fourranks.world("gloo").trace() as trace:
    fourranks.world("gloo").run(try_parallel_mlp, ParallelMLP)
trace.table()

# %% nbgrader={"grade": true, "grade_id": "parallel_mlp_check", "locked": true, "points": 8, "schema_version": 3, "solution": false, "task": false}
check.parallel_mlp(ParallelMLP)
### BEGIN HIDDEN TESTS
check.parallel_mlp(ParallelMLP, world_sizes=(6,), seed=2608)
### END HIDDEN TESTS

# %% [markdown]
# **Question 1 (graded by hand).**
#
# - (a) Between the two layers of the MLP there is a GELU. Could it be a LayerNorm over the hidden width?
#   Could the GELU be applied *after* `down`, before the all-reduce?
# - (b) What would it cost, in forward and in backward, to cut both layers along their columns?
# - (c) A transformer layer has dropout in two places: on the hidden activation between `up` and `down`, and
#   on the output. Should the ranks draw the same random numbers or different ones, for each of the two, and
#   what goes wrong otherwise?

# %% [markdown] nbgrader={"grade": true, "grade_id": "columns_then_rows_explained", "locked": false, "points": 6, "schema_version": 3, "solution": true, "task": false}
# **Answer to question 1**
#
# <!-- BEGIN SOLUTION -->
# (a) A LayerNorm needs the mean and the variance over the whole hidden width, but a rank has only a part of
# it. Without a collective (two numbers for each token would do) it would compute a different function. GELU
# needs one element at a time, so it can be applied to a part. After `down` each rank has a partial sum of the
# output, and GELU is not linear: the sum of GELU(partial sum) is not GELU(sum). It has to wait for the
# all-reduce. That is why the layers come in this order: columns first, where the nonlinearity follows, then
# rows.
#
# (b) The output of `up` would have to be gathered before `down` could read it, and that of `down` at the end: two all-gathers forward, for T tokens of
# T × hidden and T × width elements; backward a reduce-scatter of T × hidden and an all-reduce of T × width. Columns then rows has one all-reduce of T × width each way. With hidden = 4 × width the gather
# after `up` alone moves 4 (N−1)/N · T × width elements, twice what the all-reduce does.
#
# (c) The hidden activation is sharded: each rank drops elements of its own part. With the same random numbers
# all ranks would drop the same positions of their parts, and the masks would be correlated. So the seeds must
# differ. The output is replicated and must stay the same on every rank, so all ranks have to drop the same
# elements, with the same seed. With different seeds the ranks' activations would differ from then on,
# although every layer relies on x being the same; the sums would mix different networks, and no error would
# be raised.
# <!-- END SOLUTION -->

# %% [markdown]
# ## 6. Attention: cut by heads
#
# **Difficulty** ●●●○○ · **Importance** ●●●●○ · **about 40 minutes**
#
# Heads are independent until the output projection. So each rank takes some heads, with the rows of q, k and
# v that belong to them, and the columns of the output projection that read them. Again there is one
# all-reduce.
#
# `ParallelAttention(width, num_heads, causal=True, group=None)` equals `Attention(width, num_heads, causal)`. The first rank has the first `num_heads` / N heads.
#
# | | |
# |---|---|
# | x, and what comes out | replicated, (batch, sequence, width) |
# | `qkv.weight` | (3 · width / N, width): the rows of this rank's heads of q, then those of k, then those of v |
# | `qkv.bias` | likewise: (3 · width / N) |
# | `out.weight` | sharded along dimension 1: (width, width / N) |
# | `out.bias` | replicated |
# | refused | a number of heads that does not divide by the ranks, even if the width does |
#
# ```
# qkv.weight of 4 heads, 2 ranks      q0 q1 q2 q3 k0 k1 k2 k3 v0 v1 v2 v3
#   rank 0                            q0 q1       k0 k1       v0 v1
#   rank 1                                  q2 q3       k2 k3       v2 v3
# ```
#
# **Budget**, with S the bytes of x: an all-reduce of S bytes forward, and one backward.
#
# <details><summary>Hint 1</summary>
# In forward, <code>ColumnParallelLinear(width, 3 * width)</code> and <code>RowParallelLinear(width,
# width)</code> do all the communication. Between them, the code is that of <code>Attention</code>, with this
# rank's number of heads.
# </details>
# <details><summary>Hint 2</summary>
# Only in <code>load_full</code> is a plain cut wrong. <code>tensor.unflatten(0, (3, width))</code> separates
# q, k and v without a copy, and then the heads lie along dimension 1. Cut there first, and then flatten the
# result.
# </details>


# %% nbgrader={"grade": false, "grade_id": "parallel_attention", "locked": false, "schema_version": 3, "solution": true, "task": false}
class ParallelAttention(nn.Module):
    """Self-attention of which each rank has some heads."""

    def __init__(
        self, width: int, num_heads: int, causal: bool = True, group: dist.ProcessGroup | None = None
    ) -> None:
        """Make this rank's shards."""
        ### BEGIN SOLUTION
        super().__init__()
        self.own_heads, self.causal, self.group = share(num_heads, group), causal, group
        self.qkv = ColumnParallelLinear(width, 3 * width, group=group)
        self.out = RowParallelLinear(width, width, group=group)
        ### END SOLUTION

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch, sequence, width), replicated; and so is what comes out."""
        ### BEGIN SOLUTION
        by_head = self.qkv(x).unflatten(-1, (3, self.own_heads, -1))
        q, k, v = by_head.permute(2, 0, 3, 1, 4)  # each: (batch, own heads, sequence, width of a head)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(attended.transpose(1, 2).flatten(2))
        ### END SOLUTION

    def load_full(self, state_dict: Mapping[str, torch.Tensor]) -> None:
        """Copy this rank's shards out of the state dict of an Attention."""
        ### BEGIN SOLUTION
        with torch.no_grad():
            for name, parameter in self.qkv.named_parameters():
                q_k_v = state_dict[f"qkv.{name}"].unflatten(0, (3, -1))
                parameter.copy_(own_part(q_k_v, 1, self.group).flatten(0, 1))
        self.out.load_full(part_of(state_dict, "out"))
        ### END SOLUTION


# %% [markdown]
# The largest difference from the whole module, for the heads of four ranks together:


# %%
def try_attention(ParallelAttention):
    torch.manual_seed(0)
    whole, x = Attention(32, 8), torch.randn(2, 6, 32)
    parallel = ParallelAttention(32, 8)
    parallel.load_full(whole.state_dict())
    return (parallel(x) - whole(x)).abs().max().item()


fourranks.world("gloo").run(try_attention, ParallelAttention)

# %% nbgrader={"grade": true, "grade_id": "parallel_attention_check", "locked": true, "points": 13, "schema_version": 3, "solution": false, "task": false}
check.parallel_attention(ParallelAttention)
### BEGIN HIDDEN TESTS
check.parallel_attention(ParallelAttention, world_sizes=(6,), seed=2609)
### END HIDDEN TESTS

# %% [markdown]
# ## 7. The loss: cut the vocabulary
#
# **Difficulty** ●●●●○ · **Importance** ●●●●○ · **about 45 minutes**
#
# The last layer of a language model maps to the vocabulary, 50,000 or 200,000 logits for each token: often
# the largest tensor of all. Cut along its columns, every rank has the logits of some words. It would be
# wasteful to gather them only to compute one number for each token.
#
# `vocab_parallel_cross_entropy(logits_shard, target, group)` equals `F.cross_entropy` with all logits.
#
# | | |
# |---|---|
# | `logits_shard` | (…, V / N): the logits of words r · V/N to (r + 1) · V/N − 1, of floating dtype |
# | `target` | replicated, (…), int64: words from 0 to V − 1, or −100 for padding, which does not count |
# | returns | replicated: the mean over all tokens that count, a tensor of no dimensions |
#
# **Budget.** Forward: three all-reduces with one number for each token. Backward: nothing.
#
# For one token with logits z and target t, the loss is log Σ exp(zᵢ) − z_t. Keep two things in mind:
#
# - exp(1000) is infinite. Subtract the largest logit of the *whole* vocabulary from all logits first; the
#   loss does not change.
# - Vocabularies are padded until they divide, with words that never occur and have a logit of −inf. A rank
#   may have only such words.
#
# <details><summary>Hint 1: the idea</summary>
# The three all-reduces: the maximum (<code>op=dist.ReduceOp.MAX</code>), the sum of exponentials, and the target's logit, to which all ranks but one
# contribute 0. The last two need gradients, and you have a function for that. The first needs none: <code>detach()</code>.
# </details>
# <details><summary>Hint 2: the skeleton</summary>
# <pre>shifted = logits_shard - the largest logit of all ranks
# total   = the sum over all ranks of exp(shifted)
# found   = the sum over all ranks of the target's shifted logit, where it is here, else 0
# loss    = mean of log(total) - found, over the tokens that count</pre>
# </details>
# <details><summary>Hint 3: a part of the solution</summary>
# <code>place = target - first_word</code> is a position in this rank's shard, if it is from 0 to V/N − 1. Otherwise look up any valid position, and replace the result by 0:
# <pre>found = shifted.gather(-1, place.where(is_here, 0).unsqueeze(-1)).squeeze(-1)
# found = torch.where(is_here, found, 0)</pre>
# </details>


# %% nbgrader={"grade": false, "grade_id": "vocab_parallel_cross_entropy", "locked": false, "schema_version": 3, "solution": true, "task": false}
def vocab_parallel_cross_entropy(
    logits_shard: torch.Tensor, target: torch.Tensor, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """The mean cross-entropy of tokens whose logits are cut over the ranks; targets of -100 do not count."""
    ### BEGIN SOLUTION
    num_words = logits_shard.shape[-1]
    largest = logits_shard.detach().amax(-1)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
    shifted = logits_shard - largest.unsqueeze(-1)
    total = reduce_from_ranks(shifted.exp().sum(-1), group)
    place = target - dist.get_rank(group) * num_words
    is_here = (place >= 0) & (place < num_words)
    found = shifted.gather(-1, place.where(is_here, 0).unsqueeze(-1)).squeeze(-1)
    of_target = reduce_from_ranks(torch.where(is_here, found, 0), group)
    counts = target != -100
    return (total.log() - of_target)[counts].mean()
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "vocab_parallel_cross_entropy_check", "locked": true, "points": 13, "schema_version": 3, "solution": false, "task": false}
check.vocab_parallel_cross_entropy(vocab_parallel_cross_entropy)
### BEGIN HIDDEN TESTS
check.vocab_parallel_cross_entropy(vocab_parallel_cross_entropy, world_sizes=(6,), seed=2610)
### END HIDDEN TESTS

# %% [markdown]
# **Question 2 (graded by hand).** A layer of a transformer of GPT-3's size: width h = 12,288, one sequence of
# s = 2,048 tokens, bfloat16, 8 ranks. Forward and backward together take 72 · s · h² FLOPs (attention scores
# left out), shared by the ranks, which reach 50 % of 989 TFLOP/s each.
#
# - (a) How many bytes does each rank send for this layer, with one all-reduce for attention and one for the
#   MLP, each way?
# - (b) How long does that take with 450 GB/s, as NVLink has in one direction, and how long with 50 GB/s, a
#   network card for each GPU? Compare both with the computation.
# - (c) The batch is doubled: what happens to the comparison? And what if you take 16 ranks instead of 8? What
#   does this say about where to use tensor parallelism, and why does data parallelism behave otherwise?

# %% [markdown] nbgrader={"grade": true, "grade_id": "links_explained", "locked": false, "points": 6, "schema_version": 3, "solution": true, "task": false}
# **Answer to question 2**
#
# <!-- BEGIN SOLUTION -->
# (a) An activation has s · h · 2 bytes = 50.3 MB (48 MiB). A ring all-reduce sends 2 · 7/8 of that from each rank, 88 MB, and there are four: **352 MB**.
#
# (b) 352 MB / 450 GB/s = **0.78 ms**, and at 50 GB/s **7.0 ms**. The computation: 72 · 2048 · 12288² = 2.23 · 10¹³ FLOPs, an eighth of it for each rank, 2.78 · 10¹², at 4.95 · 10¹⁴ FLOP/s: **5.6 ms**. Over NVLink
# communication adds a seventh, over the network more than the computation itself takes. And it cannot hide behind it easily: the next layer needs the sum.
#
# (c) Twice the batch is twice the FLOPs *and* twice the bytes: nothing changes. 16 ranks halve the computation of each (2.8 ms), while the bytes that each sends stay nearly the same (2 · 15/16 instead of
# 2 · 7/8): communication weighs twice as much, and the 16 ranks are hardly ever on one NVLink. So tensor
# parallelism stays inside a node, where links are fast, and is no wider than it has to be. Data parallelism
# sends gradients: as many bytes as there are weights, whatever the batch. There a larger batch on each rank
# makes communication weigh less, and it can overlap with backward.
# <!-- END SOLUTION -->

# %% [markdown]
# ## 8. Optional: shard the rest along the sequence
#
# **Difficulty** ●●●●○ · **Importance** ●●●○○ · **about 45 minutes** · optional
#
# The activations between the blocks are still replicated: all N ranks compute their LayerNorms and dropouts,
# and keep them for backward. *Sequence parallelism* shards them along the sequence. An all-reduce is a
# reduce-scatter and an all-gather; between the two, each rank has some tokens with their full width. The
# LayerNorm is computed there.
#
# ```
# tokens sharded       tokens replicated, width sharded          tokens sharded
# x ── norm ── all-gather ── up ── GELU ── down ── reduce-scatter ── + bias ── y
# ```
#
# `SequenceParallelMLP(width, hidden_width, group=None)` equals `PreNormMLP(width, hidden_width)`.
#
# | | |
# |---|---|
# | x, and what comes out | sharded along dimension 1: (batch, sequence / N, width) |
# | `up.weight`, `up.bias`, `down.weight`, `down.bias` | as in `ParallelMLP` |
# | `norm.weight`, `norm.bias` | replicated |
# | refused | a `hidden_width` that does not divide by the ranks |
#
# **Budget**, with S the bytes of the whole x. Forward: an all-gather and a reduce-scatter, each of S bytes. Backward: the same, and up to three all-reduces of `width` elements.
#
# That is no more bytes than in `ParallelMLP`, with 1/N of the activations outside. Inside, autograd keeps the
# gathered tokens for the gradient of `up.weight`. Megatron-LM keeps only the rank's own tokens and gathers
# them again in backward, with one more all-gather. The three small all-reduces are for replicated parameters,
# which every rank uses only on *its* tokens: a replicated parameter must have a replicated gradient.
#
# <details><summary>Hint 1: the idea</summary>
# You have an all-gather whose backward is a reduce-scatter. Its mirror image is a reduce-scatter whose backward is an all-gather.
# </details>
# <details><summary>Hint 2: the skeleton</summary>
# <pre>norm of the own tokens → all-gather along dimension 1 → up → GELU → down without its bias
# → reduce-scatter along dimension 1 → + bias</pre>
# </details>
# <details><summary>Hint 3: a part of the solution</summary>
# <code>copy_to_ranks</code> takes parameters, too: <code>F.layer_norm(x, (width,), copy_to_ranks(weight), …)</code>.
# </details>


# %% nbgrader={"grade": false, "grade_id": "sequence_parallel_mlp", "locked": false, "schema_version": 3, "solution": true, "task": false}
class SequenceParallelMLP(nn.Module):
    """A PreNormMLP, sharded along its hidden width inside, and along the sequence outside."""

    def __init__(self, width: int, hidden_width: int, group: dist.ProcessGroup | None = None) -> None:
        """Make this rank's shards."""
        ### BEGIN SOLUTION
        super().__init__()
        self.group = group
        self.norm = nn.LayerNorm(width)
        self.up = ColumnParallelLinear(width, hidden_width, group=group)
        self.down = RowParallelLinear(hidden_width, width, group=group)
        ### END SOLUTION

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch, sequence / N, width), sharded along the sequence; and so is what comes out."""
        ### BEGIN SOLUTION
        norm_weight, norm_bias, down_bias = (
            copy_to_ranks(parameter, self.group)
            for parameter in (self.norm.weight, self.norm.bias, self.down.bias)
        )
        x = F.layer_norm(x, self.norm.normalized_shape, norm_weight, norm_bias, self.norm.eps)
        tokens = _AllGather.apply(x, 1, self.group)
        hidden = F.gelu(F.linear(tokens, self.up.weight, self.up.bias))
        return _ReduceScatter.apply(F.linear(hidden, self.down.weight), 1, self.group) + down_bias
        ### END SOLUTION

    def load_full(self, state_dict: Mapping[str, torch.Tensor]) -> None:
        """Copy this rank's shards, and the parameters that are whole, out of the state dict of a PreNormMLP."""
        ### BEGIN SOLUTION
        self.norm.load_state_dict(part_of(state_dict, "norm"))
        self.up.load_full(part_of(state_dict, "up"))
        self.down.load_full(part_of(state_dict, "down"))


class _ReduceScatter(torch.autograd.Function):
    """For partial sums, of whose sum each rank keeps its part."""

    @staticmethod
    def forward(ctx, x, dim, group):
        ctx.dim, ctx.group = dim, group
        return sum_of_own_part(x, dim, group)

    @staticmethod
    def backward(ctx, gradient):
        return put_together(gradient, ctx.dim, ctx.group), None, None
        ### END SOLUTION


# %% [markdown]
# How many tokens does a rank have before the block, and how many bytes does each collective move?


# %%
def try_sequence_parallel(SequenceParallelMLP):
    torch.manual_seed(0)
    whole = PreNormMLP(64, 256)
    parallel = SequenceParallelMLP(64, 256)
    parallel.load_full(whole.state_dict())
    own_tokens = torch.randn(1, 16 // dist.get_world_size(), 64, requires_grad=True)
    parallel(own_tokens).square().mean().backward()


with fourranks.world("gloo").trace() as trace:
    fourranks.world("gloo").run(try_sequence_parallel, SequenceParallelMLP)
trace.table()

# %% nbgrader={"grade": true, "grade_id": "sequence_parallel_mlp_check", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
check.sequence_parallel_mlp(SequenceParallelMLP)
### BEGIN HIDDEN TESTS
check.sequence_parallel_mlp(SequenceParallelMLP, world_sizes=(6,), seed=2611)
### END HIDDEN TESTS

# %% [markdown]
# ## What you have now
#
# - Four functions with the right backward, and you know why `reduce_from_ranks` does not sum in its backward.
# - A deep MLP that gathers, and a transformer's MLP and attention that sum once, in forward and in backward.
#   No rank ever held a whole weight.
# - A loss over a vocabulary that no rank holds completely.
# - The number of bytes of each, and so a reason to keep tensor parallelism on fast links.
#
# Next: cut the depth instead of the width. *07 pipeline parallelism* sends activations from layer to layer.
