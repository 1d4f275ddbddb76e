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
# # Incident room: eight broken jobs
#
# Each of these training jobs is a real program that runs on four real ranks, and each has one fault. You are
# on call. Find out **on which rank** the fault shows, **which line** is wrong and **what** the cause is.
#
# 1. `incidents.start(...)` shows the alarm, copies the program into the folder `incidents/` beside this
#    notebook, and starts the clock.
# 2. Run the program in the cell below, as often as you like. Its variables are on the ranks afterwards: look at them in `%%ranks` cells of your own. You may
#    edit your copy of the program; line numbers are those of the copy as it was handed out.
# 3. Give your answer **once**. It is worth 3 points for the rank, 3 for the line, 4 for the cause, and 2 for speed if it is right. Then the explanation follows: how the tools show
#    the fault, and what would have caught it earlier.
#
# | tool | shows |
# |---|---|
# | `%%ranks --trace` | when each rank computed, communicated and waited; every collective with its bytes and its line |
# | `%ranks dashboard` | live: each rank's call, the ranks that it waits for, and its memory |
# | `%ranks` | the ranks' states and memory now |
# | a deadlock's explanation | which rank waits where, and for which other rank |
# | `%%ranks` with a variable's name | the variable on every rank; equal values are shown once |
#
# A program runs for a few seconds. No incident takes your machine down: the program that runs out of memory
# has a small limit of its own.

# %%
from fourranks import incidents

# %load_ext fourranks
# %ranks start

# %% [markdown]
# ## 1. Hang at step 37

# %%
job = incidents.start("Hang at step 37")
job

# %% tags=["skip-execution"]
# %%ranks --trace
# %run incidents/hang_at_step_37.py

# %% tags=["skip-execution"]
job.answer(rank=0, line=1, cause="A")

# %% [markdown]
# ## 2. Slow steps

# %%
job = incidents.start("Slow steps")
job

# %% tags=["skip-execution"]
# %%ranks --trace
# %run incidents/slow_steps.py

# %% tags=["skip-execution"]
job.answer(rank=0, line=1, cause="A")

# %% [markdown]
# ## 3. Unseen samples

# %%
job = incidents.start("Unseen samples")
job

# %% tags=["skip-execution"]
# %%ranks --trace
# %run incidents/unseen_samples.py

# %% tags=["skip-execution"]
job.answer(rank=0, line=1, cause="A")

# %% [markdown]
# ## 4. Memory that climbs

# %%
job = incidents.start("Memory that climbs")
job

# %% tags=["skip-execution"]
# %%ranks --trace
# %run incidents/memory_that_climbs.py

# %% tags=["skip-execution"]
job.answer(rank=0, line=1, cause="A")

# %% [markdown]
# ## 5. Out of memory

# %%
job = incidents.start("Out of memory")
job

# %% tags=["skip-execution"]
# %%ranks --trace
# %run incidents/out_of_memory.py

# %% tags=["skip-execution"]
job.answer(rank=0, line=1, cause="A")

# %% [markdown]
# ## 6. Too good to be true

# %%
job = incidents.start("Too good to be true")
job

# %% tags=["skip-execution"]
# %%ranks --trace
# %run incidents/too_good_to_be_true.py

# %% tags=["skip-execution"]
job.answer(rank=0, line=1, cause="A")

# %% [markdown]
# ## 7. Copies that drift

# %%
job = incidents.start("Copies that drift")
job

# %% tags=["skip-execution"]
# %%ranks --trace
# %run incidents/copies_that_drift.py

# %% tags=["skip-execution"]
job.answer(rank=0, line=1, cause="A")

# %% [markdown]
# ## 8. Worse on four ranks

# %%
job = incidents.start("Worse on four ranks")
job

# %% tags=["skip-execution"]
# %%ranks --trace
# %run incidents/worse_on_four_ranks.py

# %% tags=["skip-execution"]
job.answer(rank=0, line=1, cause="A")

# %% [markdown]
# ## Afterwards

# %%
# %ranks stop
