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
# # 00 Hello: your first functions for four ranks
#
# Here you write two functions that run on every rank at the same time, and see your first checks turn green.
#
# You will
#
# - compute the mean and the maximum of numbers that live on different ranks,
# - see how a check runs your code, and how it explains what is wrong.
#
# 15 minutes · 1 to 8 ranks (the checks start their own) · Gloo, no GPU needed
#
# You may use everything in `torch` and `torch.distributed`.
#
# [The lecture](../../lectures/00_hello/lecture.ipynb) has the ideas; here you build them. On one page each:
# [notation](../../docs/notation.md) · [cheat sheet](../../docs/cheat_sheet.md) · [glossary](../../docs/glossary.md) · [concept map](../../docs/concept_map.md)
#
# Each part says how difficult it is and how important it is for later topics, on a scale of five, and how
# long it takes if you have read the lecture. You can skip *optional* parts: nothing later depends on them.

# %% nbgrader={"grade": false, "grade_id": "setup", "locked": true, "schema_version": 3, "solution": false, "task": false}
# %load_ext fourranks

import torch
import torch.distributed as dist

from autograder import check

# %% [markdown]
# ## 1. The mean of all ranks
#
# **Difficulty** ●○○○○ · **Importance** ●●●●● · **about 5 minutes**
#
# `average(tensor)` is called on every rank, each time with a tensor of the same shape and dtype. It returns a new tensor: the mean
# of the tensors of all ranks, element by element. `tensor` itself stays as it was.
#
# | | `tensor` | returned, on every rank |
# |---|---|---|
# | rank 0 | `[1., 2.]` | `[2., 4.]` |
# | rank 1 | `[3., 6.]` | `[2., 4.]` |
#
# Your function must work in a world of any size, even with a single rank. `dist.get_world_size()` returns the
# number of ranks. **Budget:** one collective call. The checks of this course also count the calls and bytes
# that your code sends.
#
# <details><summary>Hint 1</summary>
# <code>dist.all_reduce(x)</code> replaces <code>x</code> by the sum over all ranks, so it needs a copy: <code>tensor.clone()</code>.
# </details>
# <details><summary>Hint 2</summary>
# The mean is the sum, divided by the number of ranks.
# </details>


# %% nbgrader={"grade": false, "grade_id": "average", "locked": false, "schema_version": 3, "solution": true, "task": false}
def average(tensor: torch.Tensor) -> torch.Tensor:
    """Return the mean of the tensors of all ranks."""
    ### BEGIN SOLUTION
    total = tensor.clone()
    dist.all_reduce(total)
    return total / dist.get_world_size()
    ### END SOLUTION


# %% [markdown]
# The next cell is the check. It starts ranks of its own, calls your function on each of them, and compares
# the results. Run it once before you write anything to see what it says. After each change, run the cell of
# your function first, so that the notebook knows the new version, and then this one.

# %% nbgrader={"grade": true, "grade_id": "average_check", "locked": true, "points": 40, "schema_version": 3, "solution": false, "task": false}
check.average(average)
### BEGIN HIDDEN TESTS
check.average(average, world_sizes=(1, 2, 5, 8), numels=(1, 13), seed=2301)
### END HIDDEN TESTS

# %% [markdown]
# ## 2. The largest number of all ranks
#
# **Difficulty** ●○○○○ · **Importance** ●●●●○ · **about 5 minutes**
#
# `largest(value)` is called on every rank with a Python `float`. It returns the largest of these numbers,
# again as a `float`, on every rank and with all its digits.
#
# | | `value` | returned, on every rank |
# |---|---|---|
# | rank 0 | `-0.5` | `0.1` |
# | rank 1 | `0.1` | `0.1` |
# | rank 2 | `-7.0` | `0.1` |
#
# Collectives work on tensors, so turn the number into a tensor first, and the result back into a number. An
# all-reduce adds by default; its argument `op` selects another operation. **Budget:** one collective call.
#
# <details><summary>Hint 1</summary>
# <code>torch.tensor(value, dtype=torch.float64)</code> makes a tensor that holds all digits of a <code>float</code>, and
# <code>tensor.item()</code> gives the number back.
# </details>
# <details><summary>Hint 2</summary>
# <code>op=dist.ReduceOp.MAX</code>
# </details>


# %% nbgrader={"grade": false, "grade_id": "largest", "locked": false, "schema_version": 3, "solution": true, "task": false}
def largest(value: float) -> float:
    """Return the largest of the numbers of all ranks."""
    ### BEGIN SOLUTION
    tensor = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return tensor.item()
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "largest_check", "locked": true, "points": 40, "schema_version": 3, "solution": false, "task": false}
check.largest(largest)
### BEGIN HIDDEN TESTS
check.largest(largest, world_sizes=(2, 5, 8), seed=2302)
### END HIDDEN TESTS

# %% [markdown]
# ## 3. In your own words
#
# **Difficulty** ●○○○○ · **Importance** ●●●●○ · **about 5 minutes**
#
# **Question 1 (graded by hand).** Only rank 0 should print the mean, so a colleague writes the cell below for
# four ranks. What happens on each rank, and why? Write a correct version of the cell.
#
# ```python
# if rank == 0:
#     print(average(x))
# ```

# %% [markdown] nbgrader={"grade": true, "grade_id": "print_on_one_rank", "locked": false, "points": 20, "schema_version": 3, "solution": true, "task": false}
# **Answer to question 1**
#
# <!-- BEGIN SOLUTION -->
# Rank 0 calls `average`, and so `all_reduce`, and waits there for the other three. Ranks 1, 2 and 3 skip the call, come to the end
# of their cell and never join: a deadlock. All ranks have to call `average`; only the `print` belongs under the `if`:
#
# ```python
# mean = average(x)
# if rank == 0:
#     print(mean)
# ```
#
# 10 points for rank 0, which waits for ranks that never call; 10 for the cell.
# <!-- END SOLUTION -->

# %% [markdown]
# ## What you have now
#
# - You can write a function that runs on all ranks at once and gives each of them the same result.
# - You know why every rank has to call a collective.
#
# Next: the [lecture of topic 01](../../lectures/01_hardware_hierarchy/lecture.ipynb), *hardware hierarchy*.
