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
# # Puzzles: sixteen boards
#
# Each board takes ten to fifteen minutes. Eight boards are about pipelines: put the work of each rank in an
# order that takes the fewest ticks. Eight are about collectives: send messages so that all ranks have the
# data that they need after the fewest rounds. Change the moves in a cell and run it (Shift+Enter): the board
# plays them, draws what happened, and shows where a rule was broken. Each board has a **par**, the lowest
# score that is possible: once you reach it, the board tells you why.
#
# Your records are kept in `puzzle_records.json` beside this notebook. Below each attempt there is a line that
# you can share: it does not reveal your solution. You need no ranks for this notebook, only Python: write
# moves as strings and lists, or as a function that computes them.

# %%
from fourranks.puzzles import board, scores

# %% [markdown]
# ## Pipelines
#
# A schedule is a list with one order for each rank. `F3` is the forward of microbatch 3, and `B3` its
# backward. A rank does its tasks in your order, each as soon as it can: a forward needs the forward of the
# previous rank, and a backward needs the backward of the next rank. A microbatch's activations take memory on
# a rank from the start of its forward to the end of its backward; the strip below each rank shows how many
# are there. [Lecture 07](../lectures/07_pipeline_parallelism/lecture.ipynb) has the ideas.
#
# ### 1. Two and four

# %%
board("Two and four")

# %%
board("Two and four").play(
    [
        "F0 B0 F1 B1 F2 B2 F3 B3",  # rank 0
        "F0 B0 F1 B1 F2 B2 F3 B3",  # rank 1
    ]
)

# %% [markdown]
# ### 2. Four of eight
#
# You can also pass a function that takes the rank and returns its order, as a string or as a list of `("F",
# microbatch)` and `("B", microbatch)`. So you can play the schedules that you wrote in [exercise
# 07](../exercises/07_pipeline_parallelism/exercise.ipynb).

# %%
board("Four of eight")


# %%
def one_by_one(rank):
    return " ".join(f"F{k} B{k}" for k in range(8))


board("Four of eight").play(one_by_one)

# %% [markdown]
# ### 3. Three alive

# %%
board("Three alive")

# %%
board("Three alive").play(lambda rank: "F0 F1 F2 B0 B1 B2 F3 F4 F5 B3 B4 B5 F6 F7 F8 B6 B7 B8")

# %% [markdown]
# ### 4. Long wires

# %%
board("Long wires")

# %%
board("Long wires").play(lambda rank: "F0 F1 B0 B1 F2 F3 B2 B3 F4 F5 B4 B5")

# %% [markdown]
# ### 5. The slow rank

# %%
board("The slow rank")

# %%
board("The slow rank").play(lambda rank: "F0 F1 F2 B0 B1 B2 F3 F4 F5 B3 B4 B5 F6 F7 B6 B7")

# %% [markdown]
# ### 6. Split backward

# %%
board("Split backward")

# %%
board("Split backward").play(lambda rank: " ".join(f"F{k} B{k} W{k}" for k in range(8)))

# %% [markdown]
# ### 7. Two visits
#
# A rank with two chunks has two lanes in the drawing. `F3.1` is the forward of microbatch 3 in the rank's chunk 1, or `("F", 3, 1)`.

# %%
board("Two visits")

# %%
board("Two visits").play(lambda rank: " ".join(f"F{k}.0 F{k}.1 B{k}.1 B{k}.0" for k in range(6)))

# %% [markdown]
# ### 8. There and back

# %%
board("There and back")

# %%
board("There and back").play(
    lambda rank: " ".join(f"F{k}.0 F{k}.1 B{k}.1 W{k}.1 B{k}.0 W{k}.0" for k in range(4))
)

# %% [markdown]
# ## Collectives
#
# A plan is a list of rounds, and a round is a list of messages `(src, dst, parts)`. In a round each rank sends at most one message and receives at most one, and
# it sends what it had before the round. A rank keeps what it sends. [Lecture 02](../lectures/02_collectives/lecture.ipynb) has the ideas.
#
# ### 9. Telephone tree
#
# There is one part only, so a message is `(src, dst)`.

# %%
board("Telephone tree")

# %%
board("Telephone tree").play([[(0, dst)] for dst in range(1, 8)])

# %% [markdown]
# ### 10. In four pieces

# %%
board("In four pieces")

# %%
board("In four pieces").play(
    [
        [(0, 1, "A")],
        [(0, 1, "B"), (1, 2, "A")],
    ]
)

# %% [markdown]
# ### 11. Six at a table

# %%
board("Six at a table")

# %%
board("Six at a table").play(
    [[(rank, (rank + 1) % 6, "ABCDEF"[(rank - n) % 6]) for rank in range(6)] for n in range(5)]
)

# %% [markdown]
# ### 12. Five friends

# %%
board("Five friends")

# %%
board("Five friends").play(
    [
        [(1, 0), (3, 2)],
        [(2, 0)],
        [(0, 1), (4, 2)],
    ]
)

# %% [markdown]
# ### 13. Short cut

# %%
board("Short cut")

# %%
board("Short cut").play(
    [
        [(0, 1, "CD"), (1, 0, "AB")],
    ]
)

# %% [markdown]
# ### 14. One part at a time

# %%
board("One part at a time")

# %%
board("One part at a time").play(
    [
        [(0, 1, "A"), (1, 2, "B")],
    ]
)

# %% [markdown]
# ### 15. By way of a friend

# %%
board("By way of a friend")

# %%
board("By way of a friend").play(
    [
        [(0, 1, "01"), (1, 0, "10"), (2, 3, "23"), (3, 2, "32")],
        [(0, 2, "02"), (2, 0, "20"), (1, 3, "13"), (3, 1, "31")],
    ]
)

# %% [markdown]
# ### 16. Two nodes

# %%
board("Two nodes")

# %%
board("Two nodes").play(
    [
        [(rank, rank + 4, "ABCD"[rank]) for rank in range(4)],
    ]
)

# %% [markdown]
# ## Your records

# %%
scores()
