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
# # 00 Hello: four ranks in fifteen minutes
#
# **What changes when your program runs four times at once?**
#
# You will
#
# - start four processes from a notebook and run code on all of them,
# - add up numbers that live in four different memories with one line,
# - make all four wait forever, read why, and go on as if nothing had happened.
#
# 15 minutes · 4 ranks · Gloo on any laptop, NCCL on a machine with 4 GPUs
#
# [The exercise](../../exercises/00_hello/exercise.ipynb) · [notation](../../docs/notation.md) · [cheat sheet](../../docs/cheat_sheet.md) · [glossary](../../docs/glossary.md) · [concept map](../../docs/concept_map.md)
#
# Run the cells from top to bottom with Shift+Enter. Before some of them there is a question and a variable
# for your answer. Replace `None` by your prediction before you go on. Nothing breaks if you leave it, but
# even a wrong prediction teaches more than none.

# %%
# %load_ext fourranks
import os

import fourranks
from fourranks.figures import ledger, predicted, review

ledger.begin("00")

# %ranks start

# %% [markdown]
# ## 1. One cell, four processes
#
# The line `%ranks start` has started four Python processes. Each process is called a **rank**, and so is its
# number, from 0 to 3. Together the ranks are the **world**, and the **world size** is 4.
#
# A cell that begins with `%%ranks` runs on every rank. The names `rank`, `world_size`, `torch` and `dist` (short for
# `torch.distributed`) are there already, and so is `device`, where a rank's tensors live: its GPU, or the CPU. All
# other cells run here, in the notebook's own process.

# %%
# %%ranks
print(f"I am rank {rank} of {world_size}.")

# %% [markdown]
# The label in brackets says which rank printed a line. Ranks that print the same share one line, with a label such as `[0-3]`.
#
# **Question.** The next cells ask the four ranks and the notebook for their process numbers, which the
# operating system assigns. How many different numbers will there be?

# %%
processes = None  # your prediction

# %%
# %%ranks
import os

process = os.getpid()
print(process)

# %%
different = {os.getpid(), *fourranks.world().pull("process")}
print(
    f"{predicted(processes, about='different processes', was=len(different))}{len(different)} different numbers"
)

# %% [markdown]
# There are five processes: four ranks and the notebook. `fourranks.world().pull("process")` fetched the value of a variable
# from each rank. It is a tool of this notebook. A real training job has no process that can look into the others.
#
# ## 2. Four memories
#
# Every rank has variables of its own. The cell below runs the same line on each rank, with four different results.

# %%
# %%ranks
x = torch.arange(4.0, device=device) + rank
x

# %% [markdown]
# **Question.** `%%ranks 2` runs a cell on rank 2 alone. What will `x[0]` be on ranks 0, 1, 2 and 3 after the next cell?

# %%
first_elements = None  # your prediction: a list of four numbers

# %%
# %%ranks 2
x[0] = 100

# %%
held = [tensor[0].item() for tensor in fourranks.world().pull("x")]
print(f"{predicted(first_elements, about='x[0] on the ranks', was=held)}x[0] on the four ranks: {held}")

# %% [markdown]
# A rank can neither read nor change the variables of another rank. Data gets from one rank to another only
# when it is **sent**. Most of the difficulties of distributed training follow from that, and it is the reason
# why this course counts bytes.
#
# ## 3. One line that all ranks call
#
# A **collective** is a call that all ranks make together. `dist.all_reduce(x)` adds up the tensors `x` of all ranks, element by
# element, and replaces `x` by the sum on every rank.
#
# **Question.** Each rank makes `[0, 1, 2, 3] + rank` once more. What does rank 3 hold after the all-reduce?

# %%
rank_3_holds = None  # your prediction: a list of four numbers

# %%
# %%ranks
before = torch.arange(4.0, device=device) + rank
after = before.clone()
dist.all_reduce(after)
after

# %%
world = fourranks.world()
holds = world.pull("after")[3].tolist()
print(f"{predicted(rank_3_holds, about='rank 3 after the all-reduce', was=holds)}rank 3 holds: {holds}")
fourranks.show(world.pull("before"), world.pull("after"), "all_reduce gives the sum to every rank")

# %% [markdown]
# Each rank has a colour. After the call every number of the figure has four stripes, because it contains a
# contribution from all four ranks.
#
# The library that moved the numbers is called the **backend**: Gloo for tensors in the memory of the CPU, NCCL for tensors on GPUs.
# The code is the same for both.
#
# ## 4. A deadlock, survived
#
# A collective needs every rank. The next cell contains a mistake that also happens in real training jobs:
# only some of the ranks reach the call.
#
# **Question.** Which ranks will wait, and for which rank?

# %%
who_waits = None  # your prediction, in words

# %% tags=["raises-exception"]
# %%ranks
total = torch.ones(1, device=device)
if rank != 3:  # "rank 3 has no data left, so it can skip this"
    dist.all_reduce(total)

# %% [markdown]
# Ranks 0, 1 and 2 waited for rank 3, which had already reached the end of its cell and would never make the
# call. That is a **deadlock**: the ranks wait for something that can no longer happen. A training job with a
# deadlock stops making progress, until a timeout ends it many minutes later. Here the ranks report where they
# wait. As soon as it is certain that none of them can go on, the cell ends and names the reason and the
# lines.
#
# The ranks are free again, and they still have their variables:

# %%
# %%ranks
dist.all_reduce(total)
print(f"The sum of {world_size} ones is {total.item():g}, and x is still {x.tolist()}.")

# %% [markdown]
# If a cell takes too long for another reason, press the stop button above the notebook. It interrupts the
# ranks, and they keep their variables here, too. `%ranks` shows the state of each rank, and `%ranks restart`
# starts all of them again, with empty memories.

# %% [markdown]
# ## How good were your predictions?
#
# The next cell compares each number that you predicted with the result of the run. Your predictions are kept
# beside this notebook, in the folder `.fourranks`. If you change a prediction and run its cells again, the
# last one counts.

# %%
review()

# %% [markdown]
# ## 5. Your turn
#
# You have met these words, and the rest of the course uses them:
#
# | word | meaning |
# |---|---|
# | **rank** | one process of the job, and its number, counted from 0 |
# | **world**, **world size** | all ranks together, and how many there are |
# | **collective** | a call that all ranks make together, such as an all-reduce |
# | **all-reduce** | gives every rank the sum of all ranks' tensors |
# | **backend** | the library that moves the data: Gloo or NCCL |
# | **deadlock** | ranks wait for something that can no longer happen |
#
# Every other term is explained where it is first needed, and in the [glossary](../../docs/glossary.md).
#
# In [the exercise](../../exercises/00_hello/exercise.ipynb) you write two functions of a few lines. The cell below each of them
# runs your function on 1, 2, 3 and 4 ranks and says whether the results are right, or what went wrong.
#
# **Next**: 01, hardware hierarchy. How far away is the data, and what does that cost?

# %%
# %ranks stop
