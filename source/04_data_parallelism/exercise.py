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

# %% nbgrader={"grade": false, "grade_id": "setup", "locked": true, "schema_version": 3, "solution": false, "task": false}
# %load_ext fourranks

import math
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

import fourranks
from autograder import check

# %% [markdown]
# ## 6. Checkpoints: lose an hour, not a month
#
# When one rank dies, the run is over, and the more ranks there are, the sooner one dies. So what counts is how much of the run is on the disk, and whether it
# goes on from there *exactly*. All ranks of this exercise share one disk, as the machines of a cluster share a file system.
#
# `save_checkpoint(path, model, optimizer, step)` is called by all ranks, with the same arguments. It leaves one file at `path`
# (a `str` or a `Path`), which `torch.load(path, weights_only=True)` reads as a dict:
#
# | key | value |
# |---|---|
# | `"model"` | the model's `state_dict()`, with the model's own names |
# | `"optimizer"` | the optimizer's `state_dict()`: momenta, step counts, learning rates |
# | `"step"` | `step`, an int |
# | `"random_states"` | a list: what `random_state()` (given below) returns on each rank, by rank |
#
# - **The model may be wrapped.** A wrapper keeps its model in `.module`, and its own state dict puts `module.` in front of every name. Saved like
#   that, the weights fit no bare model any more.
# - **One writer.** After the last all-reduce all ranks hold the same weights and momenta, so rank 0 of the world writes and nobody else does. Only their
#   random numbers differ: with dropout, ranks that drew alike would all drop the same neurons.
# - **The others wait.** On every rank the checkpoint is there when `save_checkpoint` returns.
# - **All or nothing.** Whatever happens in the middle (the disk is full, the process is killed with `kill -9`), there is a whole checkpoint at `path`: the
#   earlier one, until the new one is. When all went well, the folder holds nothing else. Missing folders are made.
# - **A failure is nobody's secret.** When rank 0 cannot write, `save_checkpoint` raises on *every* rank, instead of leaving the others waiting.
#
# Where each rank holds a shard of the model instead of a copy (topics 05 to 08), each writes its own: that is what `torch.distributed.checkpoint` is for.
#
# ```
# rank 0   ──┬─ write run/last.pt.tmp ─ rename to run/last.pt ─┬──> goes on
# rank 1   ──┤ random states                                   ├──> goes on
# rank 2   ──┘                              it is there, or not └──> goes on
# ```
#
# <details><summary>Hint 1</summary>
# <code>dist.all_gather_object(list_of_N, thing)</code> fills the list with the things of all ranks. Only one collective more is needed: the one that tells the
# others how it ended.
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
        file.flush()
        os.fsync(file.fileno())  # on the disk itself, before it counts: the machine may lose power, too
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
    print(fourranks.world().run(try_save, save_checkpoint, f"{folder}/last.pt")[0])

# %% nbgrader={"grade": true, "grade_id": "save_checkpoint_check", "locked": true, "points": 8, "schema_version": 3, "solution": false, "task": false}
check.save_checkpoint(save_checkpoint)
### BEGIN HIDDEN TESTS
check.save_checkpoint(save_checkpoint, world_sizes=(2, 3, 8), widths=(7, 16, 4), seed=2406)
### END HIDDEN TESTS

# %% [markdown]
# `load_checkpoint(path, model, optimizer)` is the way back, called by all ranks. Each of them reads the file.
#
# | | before | after |
# |---|---|---|
# | `model` | of the same layers, any weights; perhaps wrapped | the saved weights and buffers, bit by bit, in the parameters that it has |
# | `optimizer` | of the same kind, over these parameters | the saved state and settings |
# | random numbers | anything | those of this rank go on where they were |
# | returns | | the saved step, an int |
#
# - **With another number of ranks** the run goes on, too. A rank for which there is no random state keeps its own.
# - **All or nothing**, again: if there is no file, if it is cut short, from another program or of another model or optimizer, `load_checkpoint` raises an
#   exception whose text names the file, and model, optimizer and random numbers are as before. (A `FileNotFoundError` names the file by itself.)
# - **Nothing in the file is executed.** A pickle can run any program when it is read, and checkpoints are passed around.
#
# A checkpoint without the optimizer is a trap: the run goes on, but its momenta are zero and its learning rate starts over. And one that is loaded by rank 0
# alone is another: a wrapper broadcasts rank 0's weights when it is made, but nobody broadcasts the optimizer's state.
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
check.load_checkpoint(load_checkpoint, world_sizes=(2, 3, 8), widths=(7, 16, 4), seed=2407)
### END HIDDEN TESTS

# %% [markdown]
# ## 7. For those who want more: local SGD
#
# Averaging gradients in every step costs 2·(N − 1)/N·X bytes a rank and step. What if the ranks trained alone for a while, and only then averaged what
# they have become? With H steps in between, that is H times less. It is no longer the same as one process, but it works surprisingly well; DiLoCo
# does it with hundreds of steps, and with a second optimizer for the averages.
#
# `local_sgd_round(model, optimizer, batches, loss_fn, group=None)` is one such round.
#
# | | before | after |
# |---|---|---|
# | `model` | not wrapped; the same weights on all ranks | each trained parameter is the mean over the ranks of what it had become there |
# | `optimizer` | this rank's | has taken one step for each of this rank's `batches`; its state stays on this rank |
# | `batches` | pairs `(inputs, targets)`, of this rank alone; ranks may have different numbers of them, or none | |
# | gradients | anything | anything |
#
# **Budget:** no communication before the last step, and then X bytes a rank: each trained parameter (those with `requires_grad`) goes once into an all-reduce.
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
check.local_sgd_round(local_sgd_round, world_sizes=(2, 3, 8), seed=2408)
### END HIDDEN TESTS

# %% [markdown]
# ## 8. For those who want more: send the largest, remember the rest
#
# Most elements of a gradient are small. A compressor sends only the largest, a hundredth of them perhaps. What it does not send is not lost: it is kept,
# and added to the gradients of the next step. This *error feedback* is what makes it work: an element that is small but always of one sign adds up,
# until it is large enough to be sent.
#
# `TopKCompressor(ratio, group=None)` has one method, `average(gradients)`. `gradients` is a list of float32 tensors, of the same shapes in every step and on every
# rank.
#
# | | |
# |---|---|
# | wanted | all gradients together, as one long vector, plus what this rank kept in the step before |
# | sent | the k = ⌈`ratio` · numel⌉ elements of it with the largest absolute values (`math.ceil`; numel counts all gradients together) |
# | kept | the others, for this compressor's next step |
# | afterwards | `gradients` hold, in place, the mean over the N ranks of what they sent; what a rank did not send counts as 0 |
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
    """Averages gradients over the ranks by their largest elements; what is not sent is kept and sent later.

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
    TopKCompressor, world_sizes=(2, 3, 8), ratios=(0.02, 0.5), shapes=((31,), (0, 4), (6, 7)), seed=2409
)
### END HIDDEN TESTS
