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
# # 07 Pipeline parallelism: cut along the depth
#
# **Each of four ranks has some of a model's layers, and needs what the rank before it has computed. How do all
# four get something to do, and what must they keep in memory meanwhile?**
#
# You will
#
# - cut a batch into microbatches and train through four ranks, with the gradients of one process,
# - draw the schedules naive, GPipe, 1F1B, interleaved and zero-bubble, run each on real ranks, and compare
#   the run with the drawing and the bubble with its formula,
# - count the activations that each schedule keeps alive, and find and repair the deadlock of 1F1B,
# - see the same step done by `torch.distributed.pipelining`, and a pipeline that cuts a single sequence,
# - train the transformer of lecture 04 as four stages, to the same loss.
#
# 100 minutes, 30 of them optional · 4 ranks · Gloo on any laptop, NCCL on a machine with 4 GPUs
#
# [The exercise](../../exercises/07_pipeline_parallelism/exercise.ipynb) · [notation](../../docs/notation.md) · [cheat sheet](../../docs/cheat_sheet.md) · [glossary](../../docs/glossary.md) · [concept map](../../docs/concept_map.md)
#
# As before, each run has a question and a variable for your answer.

# %%
# %load_ext fourranks
import fourranks
from fourranks.figures import compare, finding, ledger, predicted, review, scaled, schedule

# %ranks start
world = fourranks.world()

# %% [markdown]
# ## Before you begin
#
# Three questions about earlier lectures. Answer them from memory, in the list below; `None` works, too.

# %%
ledger.begin("07")

# %%
remembered = [None, None, None]  # your answers

# %%
ledger.answers(remembered)

# %% [markdown]
# ## 1. The assembly line
#
# When a model does not fit on one GPU, the obvious cut is between its layers: of eight layers the first GPU
# takes 1 to 4, the second 5 to 8. Our MLP has four layers of width 1024. On two ranks each would take two of
# them; on four ranks, each takes one. Every rank **receives** a tensor from the previous rank, **computes**,
# and **sends** the result to the next rank.
#
# This is *inter*-layer parallelism; lecture 06 cut *inside* layers. Some texts call one of them "vertical"
# and the other "horizontal", and others do the reverse, so we avoid both words.

# %%
# %%ranks
import time
from contextlib import contextmanager

from torch import nn

before, after = (rank - 1) % world_size, (rank + 1) % world_size


def layer(number, width=1024):
    torch.manual_seed(number)  # layer 2 is the same on every rank that makes it
    return nn.Sequential(nn.Linear(width, width, bias=False), nn.GELU()).to(device)


mine = layer(rank)  # no rank ever makes the others
torch.manual_seed(100)
batch, targets = torch.randn(2, 128, 1024).to(device)

# %% [markdown]
# Only rank 0 needs the batch, and only the last rank needs the targets. For simplicity every rank creates
# both here, as in lecture 8 of CS336; the other ranks never use them.
#
# A laptop has fewer cores than we have ranks, and four stages that really computed would compete for them. So
# each rank imitates an accelerator: a job takes as many milliseconds as `takes` says, and meanwhile the CPU
# mostly sleeps. Four processes can sleep at the same time without slowing each other down. The tensors, the
# messages and the waiting for them are real, and `ran` records when each job began and ended. So in all
# timelines and drawn schedules of this lecture, "computing" and the length of a job are imitated.


# %%
# %%ranks
ran, takes = [], {}


def synchronize():
    if device.type == "cuda":  # waits until messages have arrived and computation is done
        torch.cuda.current_stream().synchronize()


@contextmanager
def busy(kind, k, chunk=0):
    """Makes what is computed inside last takes[kind] ms, as if the CPU waited for an accelerator."""
    synchronize()
    begun = time.perf_counter()
    yield
    synchronize()
    time.sleep(max(0.0, begun + takes[kind] / 1000 - time.perf_counter()))
    ran.append((kind, k, 1000 * begun, 1000 * time.perf_counter(), chunk))


# %%
# %%ranks
def forward_only(m):
    """The batch in m microbatches, one after the other."""
    for k, x in enumerate(batch.chunk(m)):
        if rank > 0:
            dist.recv(x := torch.empty_like(x), before)
        with busy("F", k), torch.no_grad():
            x = mine(x)
        if rank < world_size - 1:
            dist.send(x, after)


# %% [markdown]
# **Question.** The whole batch goes through four ranks as one piece; a layer takes 160 ms. For what share of
# the time do the ranks wait, on average? And how many times faster is that than one process that has all four
# layers?

# %%
idle_share, times_faster = None, None  # your predictions

# %%
# %%ranks --trace
takes["F"] = 160
forward_only(1)

# %%
jobs = world.pull("ran[-1]")  # of each rank: kind, microbatch, begin and end in ms, chunk
whole = max(job[3] for job in jobs) - min(job[2] for job in jobs)
working = sum(job[3] - job[2] for job in jobs)
still, speedup = 1 - working / (4 * whole), working / whole
print(
    f"{predicted(idle_share, about='share of time idle', was=still)}formula: (p-1)/p = 0.75  measured: {still:.2f}"
)
print(
    f"{predicted(times_faster, about='naive pipeline, times faster', was=speedup)}formula: 1  measured: {speedup:.2f}"
)

# %% [markdown]
# Four GPUs have the speed of one. Each has a quarter of the weights, so the *model* fits now, but at any time
# three of four ranks wait, which the hatched bars show. In a monitoring tool the utilization jumps from GPU
# to GPU, one after another. That is the sign of the **naive pipeline**.
#
# The traffic over the links is small: one tensor of 128 × 1024 numbers, 512 KiB, from each rank to the next.

# %% [markdown]
# ## 2. Microbatches
#
# While rank 1 computes, rank 0 could already work on the next *part of the batch*. Cut the 128 rows into m
# **microbatches**, for instance 4 of 32 rows each, and send one after another. Rank 1 begins after one
# microbatch instead of one batch.
#
# A slot is the time that one microbatch takes in one stage. The first microbatch leaves the last of p stages
# after p slots; from then on, one leaves in every slot. That makes m + p − 1 slots, and each rank works in m
# of them. The share of empty slots is the **bubble**:
#
# $$\text{bubble} = \frac{p-1}{m+p-1}$$
#
# Two stages and four microbatches: 5 slots, 4 of them used, 20 % empty, where the uncut batch had 50 %.
#
# **Question.** Four stages. How large is the bubble with 1, 2, 4, 8 and 16 microbatches?

# %%
# your predictions, between 0 and 1
empty = {"m = 1": None, "m = 2": None, "m = 4": None, "m = 8": None, "m = 16": None}


# %%
def duration(rows):
    """From the first job's start to the last one's end."""
    return max(row[-1][3] for row in rows) - min(row[0][2] for row in rows)


def bubble(rows):
    """Share of that time in which ranks have no job."""
    busy = sum(end - start for row in rows for _, _, start, end, _ in row)
    return 1 - busy / (len(rows) * duration(rows))


def quickest(run, times=2):
    """Return what the ranks did in the quickest of some runs; first calls are slower."""
    runs = []
    for _ in range(times):
        world.execute(f"ran.clear(); dist.barrier(); {run}")
        runs.append(world.pull("ran"))
    return min(runs, key=duration)


# %%
runs = {f"m = {m}": quickest(f"takes['F'] = 160 / {m}; forward_only({m})") for m in (1, 2, 4, 8, 16)}

# %%
schedule(runs["m = 4"], "Forward passes of 4 microbatches, as 4 ranks ran them", "ms")

# %%
formula = {f"m = {m}": 3 / (m + 3) for m in (1, 2, 4, 8, 16)}
compare({m: bubble(rows) for m, rows in runs.items()}, formula, empty, "", "Bubble, forward only, 4 ranks")

# %% [markdown]
# Each box is a job, and its number is the microbatch. The diagonal edge at the beginning shows the pipeline
# filling, and the one at the end shows it draining. The measured bubbles are larger than the formula's,
# most of all with many small microbatches: the formula leaves out messages, each of which takes time
# (sections 5 and 6).
#
# Papers often give a different ratio: the empty time divided by the *useful* time, (p − 1)/m. For p = 4, m =
# 8 that is 37.5 %, while the share of the total is 27 %. So always check what a percentage refers to.
#
# The first rule of pipelines is: **never push the whole batch**. A microbatch's rows are rows of the same
# batch, so for any m the outputs are the same as in one process.

# %% [markdown]
# ## 3. And back again
#
# Training needs gradients, but autograd ends at the boundary of a rank: data that `recv` writes into a tensor
# has no history. So we do by hand what autograd does between two layers:
#
# - In the **forward** job, a stage keeps its input and its output; both are *alive* until the backward job.
# - In the **backward** job it receives the gradient of its output from the next rank, calls
#   `output.backward(gradient)`, and sends the gradient of its *input* to the previous rank. The backward of a
#   send is a receive.
# - The last stage computes the loss, so it receives no gradient. Each microbatch's loss is divided by m, as
#   for accumulation in section 1 of lecture 04.


# %%
# %%ranks
class Stage:
    """A rank's part of a model, and the tensors of each microbatch between its forward and backward."""

    def __init__(self, module, chunk=0, chunks=1):
        self.module, self.chunk = module, chunk
        self.is_first = rank == 0 and chunk == 0
        self.is_last = rank == world_size - 1 and chunk == chunks - 1
        self.alive = {}


data = batch, targets


def cut(m):
    global microbatches, answers
    microbatches, answers = (tensor.chunk(m) for tensor in data)


def loss_of(y, k):
    return (y - answers[k]).square().mean() / len(microbatches)


# %%
# %%ranks
groups = {"F": None, "B": None}  # the default group for messages in either direction; section 4 needs two


def send(kind, x, dst):
    dist.send(x, dst, group=groups[kind])


def receive(kind, src):
    x = torch.empty_like(microbatches[0])
    dist.recv(x, src, group=groups[kind])
    return x


# %%
# %%ranks
def forward(stage, k):
    x = microbatches[k].clone() if stage.is_first else receive("F", before)
    with busy("F", k, stage.chunk):
        y = stage.module(x.requires_grad_())
        if stage.is_last:
            y = loss_of(y, k)
    stage.alive[k] = x, y
    if not stage.is_last:
        send("F", y.detach(), after)


def backward(stage, k):
    gradient = None if stage.is_last else receive("B", after)
    x, y = stage.alive.pop(k)
    with busy("B", k, stage.chunk):
        y.backward(gradient)
    if not stage.is_first:
        send("B", x.grad, before)


# %% [markdown]
# A **schedule** says in which order a rank does these jobs: a list of ("F", microbatch) and ("B",
# microbatch). **In this lecture each job has a third entry**, ("F", microbatch, chunk), which is 0 until
# section 7 gives a rank several chunks; the exercise's schedules are pairs throughout. The messages need no
# microbatch numbers: messages from one rank to another arrive in the order in which they were sent, so it is
# enough that both ranks process the microbatches in the same order.

# %%
# %%ranks
do, under_way = {"F": forward, "B": backward}, []


def run(order, stages):
    """Do a rank's jobs in their order; return the largest number of microbatches alive at the same time."""
    for stage in stages:
        stage.module.zero_grad()
        stage.alive.clear()
    under_way.clear()
    most = 0
    for kind, k, chunk in order:
        do[kind](stages[chunk], k)
        most = max(most, sum(len(stage.alive) for stage in stages))
    while under_way:  # sends that do not wait; there are none yet
        under_way.pop().wait()
    return most


# %% [markdown]
# ### GPipe, as drawn
#
# The simplest schedule with microbatches is **GPipe**'s: all forwards, then all backwards. Before we run it
# we draw it. `play` simulates four ranks that do each job as early as possible, with messages that take no
# time. A forward takes one tick and a backward two, because it computes two matrix products where the forward
# has one: for the gradient of the input and for that of the weights.


# %%
def needs(kind, k, stage, stages):
    """The jobs, as (kind, microbatch, stage), that must be over before this one can begin."""
    if kind == "F":
        return [("F", k, stage - 1)] if stage > 0 else []
    if kind == "B":
        return [("F", k, stage)] + ([("B", k, stage + 1)] if stage < stages - 1 else [])
    return [("B", k, stage)]  # "W", for section 11


def play(wants, m=8, p=4, v=1, ticks=(("F", 1), ("B", 2))):
    """Let p ranks with v stages each do the job that wants(rank, done) names; return jobs and times."""
    ticks, rows, over = dict(ticks), [[] for _ in range(p)], {}
    for now in range(10 * m * p * v):
        for rank, row in enumerate(rows):
            if len(row) == len(ticks) * m * v or (row and row[-1][3] > now):
                continue
            kind, k, chunk = wants(rank, [(kind, k, chunk) for kind, k, _, _, chunk in row])
            stage = chunk * p + rank
            if all(over.get(job, now + 1) <= now for job in needs(kind, k, stage, p * v)):
                over[kind, k, stage] = now + ticks[kind]
                row.append((kind, k, now, now + ticks[kind], chunk))
    return rows


# %%
def at_most(limit, m=8):
    """The rule: a forward as long as fewer than limit(rank) microbatches are alive, else a backward."""

    def wants(rank, done):
        forwards = sum(kind == "F" for kind, _, _ in done)
        backwards = len(done) - forwards
        another = forwards < m and forwards - backwards < limit(rank)
        return ("F", forwards, 0) if another else ("B", backwards, 0)

    return wants


gpipe = play(at_most(lambda rank: 8))
schedule(gpipe, "GPipe, as planned: 4 ranks, 8 microbatches", "ticks")

# %% [markdown]
# **Question.** On real ranks a forward takes 20 ms here, a backward 40 ms, so each microbatch takes 60 ms of each rank's time. How many
# milliseconds does a step take, and how large is its bubble?

# %%
step_ms, empty = None, None  # your predictions


# %%
def on_ranks(rows, m=8, forward=20, backward=40, steps=2):
    """Let the ranks do these jobs in order; return what they did in the quickest step, in ms."""
    world.push(orders=[[(kind, k, chunk) for kind, k, *_, chunk in row] for row in rows])
    world.execute(f"cut({m}); takes.update(F={forward}, B={backward})")
    return quickest("most = run(orders[rank], stages)", steps)


# %%
# %%ranks
stages = [Stage(mine)]

# %%
gpipe_ran = on_ranks(gpipe, steps=3)
schedule(gpipe_ran, "GPipe, as 4 ranks ran it", "ms")

# %%
took, idle = duration(gpipe_ran), bubble(gpipe_ran)
print(
    f"a step: {predicted(step_ms, about='ms of a GPipe step', was=took)}formula: {(8 + 3) * 60}  measured: {took:.0f} ms"
)
print(
    f"bubble: {predicted(empty, about='bubble of GPipe', was=idle)}formula: {3 / 11:.2f}  measured: {idle:.2f}"
)

# %% [markdown]
# Every rank did its jobs in the drawing's order. The bubble is larger than planned, because messages take
# time. Are the gradients right, too? We compute them in one process with all layers and the whole batch, and
# each rank compares the gradient of its own layer.


# %%
# %%ranks
def in_one_process(depth=4):
    """A step without a pipeline: all layers, the whole batch."""
    layers = [layer(number) for number in range(depth)]
    (nn.Sequential(*layers)(batch) - targets).square().mean().backward()
    return layers


def difference(ours, theirs):
    """Largest difference between the gradients of two lists of modules, relative to the largest."""
    ours = [p.grad for module in ours for p in module.parameters()]
    theirs = [p.grad for module in theirs for p in module.parameters()]
    apart = max((a - b).abs().max() for a, b in zip(ours, theirs, strict=True))
    return (apart / max(b.abs().max() for b in theirs)).item()


# %%
# %%ranks
alone = in_one_process()
print(f"{difference([mine], [alone[rank]]):.0e}")

# %% [markdown]
# They are equal except for rounding, because there are eight partial sums instead of one. Each rank then runs
# its own optimizer; its weights and their state are on no other rank. Only two values concern all ranks: the
# loss, which the last rank usually sends to the others, and the norm for gradient clipping, an all-reduce of
# one number.
#
# **Question.** A boundary between two stages carries 128 rows of 1024 float32 numbers, cut into microbatches. How many KiB does rank 1
# send in a step, to its two neighbours together?

# %%
kibibytes_of_rank_1 = None  # your prediction

# %%
with world.trace() as trace:
    on_ranks(gpipe, 8, 2, 4, steps=1)
trace.traffic("Sent in one step of GPipe, 8 microbatches, 4 ranks")

# %%
sent = trace.bytes_sent(1) // 1024
print(f"{predicted(kibibytes_of_rank_1, about='KiB that rank 1 sends', was=sent)}rank 1 sent: {sent} KiB")

# %% [markdown]
# It sends one activation forward and its gradient backward, 512 KiB each, for any m, and to neighbours only.
# The traffic depends on rows and width, not on the number of weights in a stage. For the same model and batch
# a whole step of data parallelism sends 24 MiB a rank, one of tensor parallelism 3 MiB, and this one 1 MiB.
# That is why people use pipelines *between* machines, on the slow links.

# %% [markdown]
# ## 4. One forward, one backward
#
# Look at GPipe's drawing once more, and count the activations that rank 0 must keep: before its first
# backward, it has done all eight forwards. With more microbatches the bubble shrinks, but this memory grows.
# Can we avoid that?
#
# The rule in `at_most` has one number: how many microbatches a rank keeps in flight. For GPipe it is m. But
# rank 3 could do the backward of each microbatch immediately; rank 2 needs one microbatch more to keep busy,
# and so on. So let the limit be p − rank: 4, 3, 2, 1.
#
# **Question.** How large will the bubble be with these limits, and with a limit of 1 on all ranks?

# %%
# your predictions, between 0 and 1
empty = {"GPipe": None, "limits 4, 3, 2, 1": None, "limit 1": None}

# %%
one_f_one_b = play(at_most(lambda rank: 4 - rank))
schedule(one_f_one_b, "Limits 4, 3, 2, 1 (1F1B), as planned: 4 ranks, 8 microbatches", "ticks")

# %%
one_at_a_time = play(at_most(lambda rank: 1))
planned = {"GPipe": gpipe, "limits 4, 3, 2, 1": one_f_one_b, "limit 1": one_at_a_time}
formula = {"GPipe": 3 / 11, "limits 4, 3, 2, 1": 3 / 11, "limit 1": 3 / 4}
bubbles = {name: bubble(rows) for name, rows in planned.items()}
compare(bubbles, formula, empty, "", "Bubble, as planned: 4 ranks, 8 microbatches", label="planned")

# %% [markdown]
# The bubble is the same as GPipe's, with at most four microbatches in flight instead of all. The schedule is
# called **1F1B**: after the first few forwards each rank alternates one forward and one backward. With a
# limit of 1 it is the naive pipeline again.
#
# 1F1B does not shrink the bubble. It allows many microbatches, and *they* shrink it. 1F1B comes from
# PipeDream. The original has no pause between steps, so it has no bubble, but its gradients belong to older
# weights, of which it keeps several versions: they are the stale gradients of lecture 04. Today's systems use
# the variant that waits at the end of each step, with a *flush*.
#
# Move the sliders: how long does a step take if ranks have memory for 3 microbatches, or for 2? Here a rank
# does a backward as soon as it can, and a forward only while it has memory for another microbatch; it never
# keeps more than p − rank, as in 1F1B. More would not help: the last rank cannot begin before tick p − 1, it
# computes for 3m ticks, and its last gradient takes 2(p − 1) ticks to rank 0. So no schedule takes fewer than
# 3(m + p − 1) ticks, as many as 1F1B, unless ranks have several chunks (section 7) or the backward is split
# (section 11). The [puzzles](../../play/puzzles.ipynb) let you plan schedules by hand.

# %%
from fourranks.figures import playgrounds

playgrounds.pipeline_schedules()

# %% [markdown]
# ### On real ranks
#
# Our functions run jobs in any order. Can they run this one, too?

# %% tags=["raises-exception"]
one_f_one_b_ran = on_ranks(one_f_one_b)

# %% [markdown]
# This is a deadlock, and the error explains it: rank 2 sends an activation down while rank 3 sends a gradient
# up. Each waits until the other one receives, and neither will; ranks 1 and 0 wait for them. On Gloo
# `dist.send` returns only when the receiver has asked for the message, even if it has only four bytes. NCCL
# has buffers for small messages, so on GPUs this cell may run through, but larger messages hang there, too.
#
# Many pages show pipelines with blocking `send` and `recv`. For forward passes alone that is correct: each
# rank receives before it sends, so no cycle of waits can form. GPipe is safe as well: first all messages go
# down, then all go up. In 1F1B neighbours send to each other at the same time. On a cluster you would see
# ranks that hang in `send`, and a timeout after half an hour.
#
# The remedy is to send without waiting, with `isend`. The rank goes on, and waits for all its sends only at
# the end of the step.

# %%
# %%ranks
groups = {"F": dist.new_group(), "B": dist.new_group()}
stages = [Stage(layer(rank))]


def send(kind, x, dst):
    under_way.append(dist.isend(x, dst, group=groups[kind]))


# %% [markdown]
# Why two groups? On Gloo one would be enough. NCCL puts all messages between two ranks of one group into
# *one* queue on the GPU, where an `isend` that waits for its receiver blocks all later messages: the same
# deadlock, on the GPU. With a group for each direction there are two queues. Another solution is
# `batch_isend_irecv`, which starts a send and a receive at the same time.

# %%
one_f_one_b_ran = on_ranks(one_f_one_b)
schedule(one_f_one_b_ran, "1F1B, as 4 ranks ran it", "ms")

# %%
# %%ranks
print(f"gradients: {difference([stages[0].module], [alone[rank]]):.0e}, alive at most: {most}")

# %% [markdown]
# ### Activation memory
#
# So far we counted microbatches; now we count their bytes. Torch reports every tensor that autograd keeps for the backward pass, and `Kept` adds up the tensors that are kept at the same time. It leaves out the weights, which are in memory anyway.
#
# **Question.** A microbatch has 16 rows, so an activation takes 64 KiB. Autograd keeps the input of the matrix multiplication and that of
# GELU. How many KiB are kept at most on ranks 0 and 2, under GPipe and under 1F1B?

# %%
# your predictions
kibibytes = {"GPipe, rank 0": None, "GPipe, rank 2": None, "1F1B, rank 0": None, "1F1B, rank 2": None}


# %%
# %%ranks
class Kept:
    """A tensor that autograd keeps for the backward pass; the class knows how many bytes there are."""

    now = most = 0

    def __init__(self, tensor):
        self.tensor = tensor
        self.nbytes = 0 if tensor.shape == (1024, 1024) else tensor.nbytes
        Kept.now += self.nbytes
        Kept.most = max(Kept.most, Kept.now)

    def __del__(self):
        Kept.now -= self.nbytes


def watched_forward(stage, k):
    with torch.autograd.graph.saved_tensors_hooks(Kept, lambda kept: kept.tensor):
        forward(stage, k)


do["F"] = watched_forward

# %%
measured, counted = {}, {}
for name, rows in {"GPipe": gpipe, "1F1B": one_f_one_b}.items():
    world.execute("Kept.most = 0")
    on_ranks(rows)
    counted[name] = world.pull("most")
    measured |= {f"{name}, rank {rank}": most / 1024 for rank, most in enumerate(world.pull("Kept.most"))}

# %%
each = [128, 128, 128, 128 + 64]  # KiB of a microbatch; the loss keeps what it squares
formula = {f"GPipe, rank {rank}": 8 * each[rank] for rank in range(4)}
formula |= {f"1F1B, rank {rank}": (4 - rank) * each[rank] for rank in range(4)}
compare(measured, formula, kibibytes, "KiB", "Most that autograd kept of activations: m = 8, p = 4")

# %%
world.execute("do['F'] = forward")
print("microbatches alive at most, on ranks 0 to 3:", counted)

# %% [markdown]
# GPipe keeps m microbatches on every rank. 1F1B keeps p − rank, or m if that is less. On the last rank a
# microbatch needs half as much memory again, because of the loss. More microbatches are also smaller ones.
# Under 1F1B a rank never keeps more than p of them, so the activations of a *fixed* batch shrink as m grows;
# under GPipe they are always those of the whole batch. The GPipe paper keeps only the inputs of a stage and
# recomputes the rest in the backward pass: `torch.utils.checkpoint.checkpoint(stage, x,
# use_reentrant=False)`.
#
# ### Your own schedule
#
# Replace this function with your own schedule, for example the one from the exercise. As it stands it
# finishes each microbatch before it starts the next. If the orders of two ranks contradict each other, the
# drawing stops where no rank can go on, and the ranks report a deadlock. In that case run the cell with
# `new_group` again before you go on, because a deadlock closes the groups. If neighbours process the
# microbatches in different orders, there is no error, but gradients meet the wrong activations: that is why
# the third cell compares them.


# %%
def my_schedule(stage, num_stages, num_microbatches):
    """Yours: the jobs of a stage, ("F", microbatch) and ("B", microbatch), in their order."""
    return [(kind, k) for k in range(num_microbatches) for kind in "FB"]


my_orders = [[(kind, k, 0) for kind, k in my_schedule(stage, 4, 8)] for stage in range(4)]
assert all(len(order) == 16 for order in my_orders), "Every stage has 8 forwards and 8 backwards to do."
schedule(play(lambda rank, done: my_orders[rank][len(done)]), "Your schedule, as planned", "ticks")

# %%
schedule(on_ranks(my_orders, 8, 10, 20), "Your schedule, as 4 ranks ran it", "ms")

# %%
# %%ranks
print(f"gradients: {difference([stages[0].module], [alone[rank]]):.0e}")

# %% [markdown]
# ## 5. Overlapping messages
#
# So far messages were small. 2048 tokens of width 1024 in float32 are 8 MiB, and take some time. A rank that receives, computes and sends in sequence is idle during both transfers, and sender and receiver both wait for the same message.


# %%
# %%ranks
sequence = torch.randn(2048, 1024).to(device)  # 8 MiB
takes["F"] = 20


def blocking():
    for k in range(8):
        x = torch.empty_like(sequence)
        if rank > 0:
            dist.recv(x, before)
        with busy("F", k):
            y = x + 1
        if rank < 3:
            dist.send(y, after)


# %% [markdown]
# In the overlapped version, the send continues while the rank computes the next microbatch, and the rank
# starts the *receive* of the next microbatch before it computes the current one. It needs a second buffer,
# since the first one must not be overwritten while it is read. The cell after that times a single message
# from rank 0 to rank 1. Ranks 2 and 3 take no part in it and print the time of two barriers.


# %%
# %%ranks
def overlapped():
    buffers = [torch.empty_like(sequence) for _ in range(2)]
    arriving = dist.irecv(buffers[0], before) if rank > 0 else None
    for k in range(8):
        if rank > 0:
            arriving.wait()
            if k < 7:
                arriving = dist.irecv(buffers[(k + 1) % 2], before)
        with busy("F", k):
            y = buffers[k % 2] + 1
        if rank < 3:
            under_way.append(dist.isend(y, after))
    while under_way:
        under_way.pop().wait()


# %%
# %%ranks
def milliseconds(step, times=5):
    spent = []
    for _ in range(times):
        dist.barrier()
        begun = time.perf_counter()
        step()
        synchronize()
        dist.barrier()
        spent.append(1000 * (time.perf_counter() - begun))
    return min(spent)  # the others were disturbed


def one_message():
    if rank < 2:
        (dist.recv if rank else dist.send)(sequence, 1 - rank)


message = milliseconds(one_message)
print(f"a message of 8 MiB takes {message:.0f} ms")

# %% [markdown]
# **Question.** Eight forwards of 20 ms on four stages take 11 · 20 = 220 ms if messages cost nothing. How long do they take with
# messages, blocking and overlapped? In the blocking version a stage in the middle needs one message, 20 ms and another message for each
# microbatch.

# %%
forwards_ms = {"blocking": None, "overlapped": None}  # your predictions

# %%
# %%ranks
spent = {"blocking": milliseconds(blocking), "overlapped": milliseconds(overlapped)}

# %%
message = world.pull("message")[0]
formula = {"blocking": 220 + 17 * message, "overlapped": 220 + 3 * message}
title = "8 forwards of 20 ms with messages of 8 MiB, 4 ranks"
spent = world.pull("spent")[0]
compare(spent, formula, forwards_ms, "ms", title)
saved = max(0, spent["blocking"] - spent["overlapped"])
finding(
    spent["overlapped"] < 0.9 * spent["blocking"],
    f"overlapping saved {saved:.0f} of {spent['blocking'] - 220:.0f} ms that messages cost.",
    f"overlapping saved {saved:.0f} ms only: the messages share cores, or a GPU, with everything else.",
)

# %%
# %%ranks --trace
blocking()

# %%
# %%ranks --trace
overlapped()

# %% [markdown]
# In the blocking version, each of the seven microbatches after the first costs a rank in the middle two
# messages, one in and one out. With the three messages on the way through the ranks that makes 17. In the
# overlapped version only these three are left; the thin bars are messages in flight while the rank computes.
# A laptop takes longer than the formula, because all messages in flight share its cores; a network card would
# not need them.
#
# `isend` alone is only half of the solution. A message needs both ends: if the receiver asks for it only when
# it is done with the last microbatch, the transfer begins only then.
#
# Is the order preserved? Yes: messages from one rank to another arrive in the order in which they were sent,
# even asynchronous ones. Handles come with two rules: do not touch the tensor before `wait`, and do not throw
# the handle away. Here we keep them until the end of the step, and with them every tensor that was sent; in
# the exercise that would take too much memory.

# %% [markdown]
# ## 6. How small is a microbatch?
#
# More microbatches mean a smaller bubble. Why not use one row each? We first time a layer that really
# computes, without any sleeping. Its width is 4096, and its 64 MiB of weights are more than the caches of
# most CPUs hold. They have to be read for a microbatch of one row just as for one of 128.
#
# **Question.** By what factor does the time *per row* grow, from microbatches of 128 rows to microbatches of 1 row?

# %%
slower_per_row = None  # your prediction


# %%
# %%ranks 0
wide = layer(0, width=4096)


def microseconds_per_row(rows, times=5):
    x, spent = torch.randn(rows, 4096).to(device), []
    for _ in range(times):
        begun = time.perf_counter()
        with torch.no_grad():
            wide(x)
        synchronize()
        spent.append(1e6 * (time.perf_counter() - begun) / rows)
    return min(spent)


per_row = {rows: microseconds_per_row(rows) for rows in (1, 2, 4, 8, 16, 32, 64, 128)}

# %%
per_row = world.pull("per_row", [0])[0]
yours = {1: scaled(slower_per_row, per_row[128])}
compare(per_row, None, yours, "µs", "Time per row of one layer's forward, by the rows of a microbatch")

# %% [markdown]
# The reason is arithmetic intensity (lecture 01): with few rows, a layer reads its weights and hardly
# computes with them. If 2 rows do worse than 1, that is because CPU libraries have a special routine for a
# matrix times a vector. On a GPU each job also needs kernel launches, and every message has its latency.
#
# So a job takes a + b/m: a fixed part, and its share of the work. A step has m + p − 1 slots of this length:
#
# $$T(m) = (m + p - 1)\left(a + \frac{b}{m}\right), \qquad \text{smallest for } m = \sqrt{(p-1)\,b/a}$$
#
# **Question.** Forward 2 + 80/m ms, backward twice that, on four ranks with 1F1B. How long is a step with 1 to 32 microbatches, and which
# is the best m?

# %%
# your predictions
step_ms = {"m = 1": None, "m = 2": None, "m = 4": None, "m = 8": None, "m = 16": None, "m = 32": None}

# %%
measured, formula = {}, {}
for m in (1, 2, 4, 8, 16, 32):
    slot = 2 + 80 / m
    ran = on_ranks(play(at_most(lambda rank: 4 - rank, m), m), m, slot, 2 * slot)
    measured[f"m = {m}"], formula[f"m = {m}"] = duration(ran), (m + 3) * 3 * slot
title = "A step of 1F1B, 4 ranks: a forward takes 2 + 80/m ms, a backward twice that"
compare(measured, formula, step_ms, "ms", title)

# %% [markdown]
# Few microbatches have a large bubble, many have a large overhead. By the formula the best m is √(3 · 80/2) ≈
# 11, and the minimum is flat: 8 and 16 are about equally good. The formula leaves out the messages, two for
# each microbatch and boundary, and their time grows with m.
#
# In practice you make the microbatch as small as possible without making the GPU inefficient, often a single
# sequence, and m follows from the batch: m = batch / (replicas · microbatch). A pipeline wants m to be
# several times p. When the batch does not have that many microbatches, the bubble stays, and a larger batch
# costs training (lecture 04, section 8).

# %% [markdown]
# ## 7. Interleaved: several chunks a rank
#
# *Optional: only the optional parts of the exercise need it.*
#
# The bubble comes from filling and emptying, p − 1 slots, and a slot is the time of one *stage*. So make
# stages shorter: give each rank v **chunks** of the model instead of one. Of eight layers, rank 0 takes
# layers 0 and 4, rank 1 layers 1 and 5. A microbatch goes round the ranks twice, and each job is half as
# long:
#
# $$\text{bubble} = \frac{p-1}{v\,m+p-1}$$
#
# A rank sends p microbatches through its first chunk, then the same ones through its second, then the next p.
# It has to begin with more forwards than before: 2(p − rank − 1) + (v − 1) p of them before it alternates one
# forward and one backward. m must be a multiple of p. Now the third entry of a job matters, its chunk. The
# exercise's pairs do not need it, since the order determines the chunk.


# %%
def turn(n, p=4, v=2):
    """Microbatch and chunk of a rank's n-th forward."""
    return n // (p * v) * p + n % p, n // p % v


def interleaved(rank, done, m=8, p=4, v=2):
    forwards = sum(kind == "F" for kind, _, _ in done)
    backwards = len(done) - forwards
    if forwards < m * v and forwards - backwards <= 2 * (p - rank - 1) + (v - 1) * p:
        return "F", *turn(forwards)
    k, chunk = turn(backwards)
    return "B", k, v - 1 - chunk  # the last chunk goes back first


two_chunks = play(interleaved, v=2)
schedule(two_chunks, "Interleaved, as planned: 4 ranks with 2 chunks each (upper and lower lane)", "ticks")

# %% [markdown]
# **Question.** Eight layers of 20 ms forward and 40 ms backward. In 1F1B a rank has two neighbouring layers, so a job takes 40 and 80 ms.
# What happens to bubble, activations and traffic when the two are interleaved?

# %%
# your predictions
empty = {"1F1B": None, "interleaved": None}
alive_on_rank_0 = {"1F1B": None, "interleaved": None}  # inputs of layers; each rank has two layers
rank_1_sends = {"1F1B": None, "interleaved": None}  # MiB

# %%
# %%ranks
stages = [Stage(nn.Sequential(layer(2 * rank), layer(2 * rank + 1)))]
alone = in_one_process(8)

# %%
deep_ran = on_ranks(one_f_one_b, 8, 40, 80)
with world.trace() as trace:
    on_ranks(one_f_one_b, 8, 4, 8, steps=1)
sent, alive = {"1F1B": trace.bytes_sent(1) / 2**20}, {"1F1B": 2 * world.pull("most")[0]}

# %%
# %%ranks
print(f"1F1B: {difference(stages[0].module, alone[2 * rank : 2 * rank + 2]):.0e}")
stages = [Stage(layer(rank), 0, 2), Stage(layer(4 + rank), 1, 2)]

# %%
two_chunks_ran = on_ranks(two_chunks, 8, 20, 40)
with world.trace() as trace:
    on_ranks(two_chunks, 8, 2, 4, steps=1)
sent["interleaved"], alive["interleaved"] = trace.bytes_sent(1) / 2**20, world.pull("most")[0]
schedule(two_chunks_ran, "Interleaved, as 4 ranks ran it: 8 layers, 2 chunks a rank", "ms")

# %%
# %%ranks
ours = [stage.module for stage in stages]
print(f"interleaved: {difference(ours, [alone[rank], alone[4 + rank]]):.0e}")

# %%
measured = {"1F1B": bubble(deep_ran), "interleaved": bubble(two_chunks_ran)}
compare(measured, {"1F1B": 3 / 11, "interleaved": 3 / 19}, empty, "", "Bubble, 8 layers on 4 ranks, m = 8")

# %%
title = "Inputs of layers alive on rank 0, 8 layers on 4 ranks"
compare(alive, {"1F1B": 8, "interleaved": 8 * (1 + 3 / 8)}, alive_on_rank_0, "", title)

# %%
compare(sent, {"1F1B": 1, "interleaved": 2}, rank_1_sends, "MiB", "Sent by rank 1 in a step")

# %%
print(f"a step: 1F1B {duration(deep_ran):.0f} ms, interleaved {duration(two_chunks_ran):.0f} ms")

# %% [markdown]
# The bubble should go from 3/11 to 3/19, and the other two figures show the price: rank 0 keeps 1 + (p −
# 1)/(pv) times as many activations, and there are v times as many messages, now also from the last rank to
# the first. Megatron-LM trains like this. It pays off if links are fast enough for the messages, and for
# small v.

# %% [markdown]
# ## 8. The slowest stage
#
# All formulas assumed p *equal* stages.
#
# **Question.** Rank 1's stage takes twice as long as the others, 40 and 80 ms. How long is a step of GPipe, which was 660 ms?

# %%
uneven_ms = None  # your prediction

# %%
# %%ranks
stages = [Stage(layer(rank))]

# %%
uneven = on_ranks(gpipe, 8, "20 * (1 + (rank == 1))", "40 * (1 + (rank == 1))")
schedule(uneven, "GPipe with a slow rank 1, as 4 ranks ran it", "ms")

# %%
took = duration(uneven)
print(
    f"{predicted(uneven_ms, about='ms with a slow stage', was=took)}formula: {8 * 120 + 3 * 60}  measured: {took:.0f} ms"
)

# %% [markdown]
# All ranks work at the pace of the slow stage: a step takes m times the slowest stage, plus once the others.
# That is a quarter more work in all, but 73 % more time. So distribute layers as evenly as possible. Six
# layers on four ranks are 2, 2, 1, 1 at best; and the first stage's embedding and the last one's output layer
# and loss count as layers, too. Balance *time*, not numbers of layers, and measure it.

# %% [markdown]
# ## 9. One sequence, cut by tokens
#
# *Optional: the exercise does not need it.*
#
# If only one long sequence fits in memory, the batch is one, and cannot be cut into microbatches. But in a
# model with *causal* attention, a token depends only on earlier tokens. So rank 0 can pass on the first
# tokens while it computes the next ones. This pipeline over the **tokens of one sequence** is called
# TeraPipe.
#
# In each layer, each piece needs the keys and values of all earlier pieces, which the rank keeps. In
# backward, the pieces go in reverse order: the gradient of a piece's keys and values is complete only when
# every later piece has done its backward.


# %%
# %%ranks
class Attention(nn.Module):
    """One causal head; `seen` holds keys and values, (tokens so far, 2 · width)."""

    def __init__(self, number, width=64):
        super().__init__()
        torch.manual_seed(number)
        self.query, self.key_value = nn.Linear(width, width), nn.Linear(width, 2 * width)

    def forward(self, x, seen):
        keys, values = seen.chunk(2, dim=1)
        scores = self.query(x) @ keys.T / 8
        later = torch.ones_like(scores).triu(len(seen) - len(x) + 1).bool()
        return x + scores.masked_fill(later, -torch.inf).softmax(1) @ values


tokens, answer = torch.randn(2, 512, 64, generator=torch.Generator().manual_seed(0)).to(device)


# %%
# %%ranks
def forward_piece(stage, k):
    x = microbatches[k].clone() if stage.is_first else receive("F", before)
    with busy("F", k):
        key_value = stage.module.key_value(x.requires_grad_())
        own = key_value.detach().requires_grad_()  # later pieces attend to it, too
        seen = torch.cat([*(stage.alive[j][2] for j in range(k)), own])
        y = stage.module(x, seen)
        if stage.is_last:
            y = loss_of(y, k)
    stage.alive[k] = x, key_value, own, y
    if not stage.is_last:
        send("F", y.detach(), after)


def backward_piece(stage, k):
    gradient = None if stage.is_last else receive("B", after)
    x, key_value, own, y = stage.alive.pop(k)
    with busy("B", k):
        y.backward(gradient)  # also into the keys and values of all earlier pieces
        key_value.backward(own.grad)  # to which all later pieces have already added
    if not stage.is_first:
        send("B", x.grad, before)


# %% [markdown]
# **Question.** One sequence of 512 tokens in 8 pieces, on 4 ranks with a layer each. How large is the bubble, and how large was it for the
# uncut sequence?

# %%
empty = {"1 piece": None, "8 pieces": None}  # your predictions

# %%
# %%ranks
do, data = {"F": forward_piece, "B": backward_piece}, (tokens, answer)
stages = [Stage(Attention(rank).to(device))]


# %%
def there_and_back(pieces):
    """Every rank's order: forward from the first piece to the last, backward from the last to the first."""
    forwards = [("F", k, 0) for k in range(pieces)]
    return [[*forwards, *(("B", k, 0) for _, k, _ in reversed(forwards))]] * 4


whole_sequence = on_ranks(there_and_back(1), 1, 80, 160)
in_pieces = on_ranks(there_and_back(8), 8, 10, 20)
schedule(in_pieces, "One sequence of 512 tokens in 8 pieces, as 4 ranks ran it", "ms")

# %%
measured = {"1 piece": bubble(whole_sequence), "8 pieces": bubble(in_pieces)}
compare(measured, {"1 piece": 3 / 4, "8 pieces": 3 / 11}, empty, "", "Bubble of one sequence, 4 ranks")

# %%
# %%ranks
alone, x = [Attention(number).to(device) for number in range(4)], tokens
for attention in alone:
    x = attention(x, attention.key_value(x))
(x - answer).square().mean().backward()
print(f"{difference([stages[0].module], [alone[rank]]):.0e}")
do, data = {"F": forward, "B": backward}, (batch, targets)

# %% [markdown]
# The pieces give the gradients of the whole sequence. All pieces stay in flight until the last forward, as in
# GPipe, because the last piece must go back first.
#
# Here all pieces take the same time. In a real model a late piece attends to more keys than an early one and
# takes longer, so equal pieces make unequal slots; TeraPipe chooses the lengths by dynamic programming, and
# makes the first pieces longer than the last. It can be combined with microbatches. In *ring attention*, by
# contrast, each rank keeps a part of the sequence for all layers, and keys and values are sent around a ring.

# %% [markdown]
# ## 10. torch.distributed.pipelining
#
# *Optional: the exercise does not need it.*
#
# Torch has all of these schedules. A `PipelineStage` has one stage's module; a schedule takes stages, the
# number of microbatches and the loss function; `step` is forward and backward of a whole batch. Rank 0 gives
# the inputs, the last rank the targets.
#
# Torch calls our modules itself, so we record the jobs inside the module: one hook records when a backward
# begins, another when it ends.

# %%
# %%ranks
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


class Watched(nn.Module):
    """Layers whose forward and backward are busy() for `ran`, whoever calls them."""

    def __init__(self, layers):
        super().__init__()
        self.layers = layers
        self.register_forward_pre_hook(self.prepare)
        self.register_full_backward_pre_hook(self.begin)
        self.register_full_backward_hook(self.end)

    def prepare(self, module, inputs):
        inputs[0].requires_grad_()  # a hook sees the end of backward only if the input needs a gradient

    def job(self, kind):
        return busy(kind, sum(job[0] == kind for job in ran))

    def forward(self, x):
        with self.job("F"):
            return self.layers(x)

    def begin(self, *_):
        self.backward_job = self.job("B")
        self.backward_job.__enter__()

    def end(self, *_):
        self.backward_job.__exit__(None, None, None)


# %%
# %%ranks
theirs = Watched(layer(rank))
stage = PipelineStage(theirs, rank, world_size, device)
pipeline = Schedule1F1B(stage, n_microbatches=8, loss_fn=nn.functional.mse_loss)


def torch_step():
    theirs.zero_grad()
    inputs = [batch] if rank == 0 else []
    pipeline.step(*inputs, target=targets if rank == world_size - 1 else None)


takes.update(F=20, B=40)
torch_step()  # the first step also determines shapes

# %% [markdown]
# **Question.** The same four layers, 20 and 40 ms, 8 microbatches. How many times as long as ours does
# torch's step take?

# %%
torch_over_ours = None  # your prediction

# %%
torch_ran = quickest("torch_step()")
schedule(torch_ran, "torch's Schedule1F1B, as 4 ranks ran it", "ms")

# %%
# %%ranks
alone = in_one_process()
print(f"torch's gradients from those of one process: {difference([theirs], [alone[rank]]):.0e}")

# %%
# %%ranks
stages = [Stage(layer(rank))]

# %%
ours_ran = on_ranks(one_f_one_b)
from_torch = max(world.pull("difference([stages[0].module], [theirs])"))
print(f"gradients of ours and torch's differ by {from_torch:.0e}")

# %%
steps = {"ours": duration(ours_ran), "torch": duration(torch_ran)}
ratio = steps["torch"] / steps["ours"]
print(f"{predicted(torch_over_ours, about='time of torch over ours', was=ratio)}measured: {ratio:.2f}")
compare(steps, {"ours": 660, "torch": 660}, None, "ms", "A step of 1F1B, 4 ranks, 8 microbatches")

# %% [markdown]
# The order of the boxes is the same, and so are the gradients, because the sums are added in the same
# order. Torch avoids the deadlock of section 4 in another way: it sends a forward's result together with
# the request for a gradient, in one `batch_isend_irecv`, and waits for both before it goes on. It divides
# the gradients by m for you (`scale_grads`); we divided the loss.
#
# There are `ScheduleGPipe`, `Schedule1F1B`, `ScheduleInterleaved1F1B` (a rank gives a list of stages) and
# several that hardly have a bubble; `pipeline()` cuts a model for you at `split_spec`. torchtitan trains
# with this library. Before you use it on a new model, compare with one process, as each section here has
# done.

# %% [markdown]
# ## 11. A backward in two halves
#
# *Optional: only the optional parts of the exercise need it.*
#
# Why does rank 2 wait for rank 3's backward? It needs the gradient of rank 3's *input*. But a backward also
# computes the gradient of the *weights*, which no other rank needs: it is used only in the optimizer's step.
# So split the job:
#
# - **B**: the gradient of the input, which is sent immediately,
# - **W**: the gradient of the weights, computed whenever there is time, for instance in the bubble.
#
# Torch's `backward` has an argument for that, `inputs`: it accumulates gradients only in these tensors.


# %%
# %%ranks
def input_gradient(stage, k):
    gradient = None if stage.is_last else receive("B", after)
    x, y = stage.alive[k]
    with busy("B", k):
        torch.autograd.backward(y, gradient, inputs=[x], retain_graph=True)
    stage.alive[k] = y, gradient
    if not stage.is_first:
        send("B", x.grad, before)


def weight_gradient(stage, k):
    y, gradient = stage.alive.pop(k)
    with busy("W", k):
        torch.autograd.backward(y, gradient, inputs=list(stage.module.parameters()))


do = {"F": forward, "B": input_gradient, "W": weight_gradient}
stages = [Stage(layer(rank))]
takes["W"] = 20

# %% [markdown]
# The rule is the same as for 1F1B, with a W added as soon as more than `rank` of them are pending. The last
# rank postpones the most, because all others wait for the gradients that it sends.
#
# **Question.** Forward, B and W take one tick each; 1F1B's backward took two. How large is the bubble now?

# %%
empty = {"1F1B": None, "split backward": None}  # your predictions


# %%
def split_backward(rank, done, m=8, p=4):
    forwards, backwards, weights = (sum(job[0] == kind for job in done) for kind in "FBW")
    if weights < backwards and (backwards - weights > rank or backwards == m):
        return "W", weights, 0
    if forwards < m and forwards - backwards < p - rank:
        return "F", forwards, 0
    return "B", backwards, 0


split = play(split_backward, ticks=(("F", 1), ("B", 1), ("W", 1)))
schedule(split, "Split backward, as planned: 4 ranks, 8 microbatches", "ticks")

# %%
split_ran = on_ranks(split, 8, 20, 20)
schedule(split_ran, "Split backward, as 4 ranks ran it", "ms")

# %%
measured = {"1F1B": bubble(one_f_one_b_ran), "split backward": bubble(split_ran)}
formula = {"1F1B": 3 / 11, "split backward": 3 / (3 * 8 + 3)}
compare(measured, formula, empty, "", "Bubble, 4 ranks, 8 microbatches; backward in one job or in two")

# %%
# %%ranks
alone = in_one_process()
print(f"gradients: {difference([stages[0].module], [alone[rank]]):.0e}, alive at most: {most}")

# %% [markdown]
# The bubble shrinks to a third: (p − 1) ticks instead of 3 (p − 1). The price is memory: a microbatch stays
# in flight until its W, so the last ranks keep as many as the first one, p. This is schedule ZB-H1 of *Zero
# bubble pipeline parallelism*. With twice as many microbatches in flight the rest of the bubble disappears,
# too, and successive steps follow each other without a gap, as long as the optimizer does not have to wait
# for all ranks, for instance for the norm of the gradient. Our W repeats a little of B's work, GELU's
# derivative; a real implementation keeps it.
#
# In torch these are `ScheduleInterleavedZeroBubble` and `ScheduleZBVZeroBubble`; `ScheduleDualPipeV` is of the family.

# %% [markdown]
# ## 12. When pipelines?
#
# | | bubble, share of the step | microbatches in flight, rank i | messages |
# |---|---|---|---|
# | naive | (p − 1)/p | 1, of the whole batch | 1 |
# | GPipe | (p − 1)/(m + p − 1) | m | 1 |
# | 1F1B | the same | min(p − i, m) | 1 |
# | interleaved, v chunks | (p − 1)/(vm + p − 1) | on rank 0 × (1 + (p − 1)/(pv)) | × v |
# | split backward (F = B = W) | (p − 1)/(3m + p − 1) | at most p | 1 |
#
# **For them**: little traffic, between neighbours only, so they work over slow links and across machines. The
# model is divided in memory: weights, gradients, optimizer state. Nothing inside a layer changes, so it works
# with any kind of layer.
#
# **Against them**: there is a bubble, unless there are many microbatches. You have to find equal stages.
# Schedules need bookkeeping and can deadlock, but libraries hide most of that. And more stages do not make a
# single microbatch faster.
#
# A rule of thumb: use tensor parallelism inside a machine with fast links, pipelines across machines, and
# data parallelism over the remaining ranks. A mesh holds the three together: `init_device_mesh("cpu", (data,
# pipeline, tensor), mesh_dim_names=("data", "pipeline", "tensor"))`, and `mesh["tensor"].get_group()` is one
# rank's group.
#
# **Before a long run**
#
# - Compare gradients with one process, with a model of a few layers and with *this* schedule; try p = 2 and m < p.
# - Draw a timeline of the ranks. A bubble larger than the formula's has a reason: an uneven stage, or
#   messages for which a rank waits.
# - **Shared weights.** When the embedding on the first stage is also the output layer on the last, both have a gradient, and the two must
#   be added: an all-reduce between two ranks.
# - **Dropout and batch statistics** now work on microbatches. Each rank has its own seed; a recomputed
#   forward needs the same seed again.
# - **The loss** is on the last rank. Send it to the rank that logs.
# - **Checkpoints**: each rank writes its own stage; no rank has the whole model.

# %% [markdown]
# ## 13. The model that learns to write, cut along its depth
#
# Lectures 04 to 06 have trained a transformer of 1.3 million parameters on the text of this course
# (`fourranks/learner/model.py`, a page of code). It is a list of six layers: an embedding, four blocks, and a
# head. Four stages of one block each, the embedding with the first and the head with the last, are four
# slices of that list. Torch's 1F1B trains them (section 10), with the 16 rows of a batch in 8 microbatches.
# Here all computation is real: the four ranks share what your machine has, cores or GPUs.
#
# **Question.** The model's width is 160, and each of the 16 rows has 64 characters. How many MiB will rank 1 send in a step, to both
# neighbours together?

# %%
rank_1_sends = None  # your prediction, in MiB

# %%
# %%ranks
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

import fourranks
from fourranks.learner.corpus import batch as batch_of
from fourranks.learner.corpus import course
from fourranks.learner.model import Config, loss, transformer
from fourranks.learner.training import train

corpus, steps = course(), 250
config = Config(len(corpus.alphabet))
layers_of = [slice(0, 2), slice(2, 3), slice(3, 4), slice(4, 6)]


def train_alone():
    """The losses of one process, which has all layers and reads all rows."""
    model = transformer(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    return train(model, optimizer, corpus, fourranks.progress(range(steps), "one process"))


# %%
# %%ranks
part = transformer(config)[layers_of[rank]].to(device)
optimizer = torch.optim.AdamW(part.parameters(), lr=3e-3)
stage = PipelineStage(part, rank, world_size, device)
pipeline = Schedule1F1B(stage, n_microbatches=8, loss_fn=loss)


def train_step(step):
    """The loss of a step, which the last rank knows; 0 on the others."""
    characters, following = (tensor.to(device) for tensor in batch_of(corpus, step))
    of_microbatches = []
    optimizer.zero_grad()
    inputs = [characters] if rank == 0 else []
    target = following if rank == world_size - 1 else None
    pipeline.step(*inputs, target=target, losses=of_microbatches)
    optimizer.step()
    return sum(each.item() for each in of_microbatches) / 8


pipeline_losses = [train_step(step) for step in fourranks.progress(range(steps), "pipeline")]

# %%
with world.trace() as trace:
    world.execute("train_step(steps)")
sent = {"rank 1": trace.bytes_sent(1) / 2**20}
compare(
    sent,
    {"rank 1": 2 * 16 * 64 * 160 * 4 / 2**20},
    {"rank 1": rank_1_sends},
    "MiB",
    "Sent in a step of the pipeline",
)

# %% [markdown]
# We draw the losses, which the last rank knows, over those of earlier lectures. If you have not run lecture
# 04 here, rank 0 first trains alone.

# %%
from fourranks.figures import strategies

losses = world.pull("pipeline_losses", [3])[0]
strategies.keep("pipeline", losses)
known = strategies.kept(losses[0])

# %%
if "one process" not in known:
    world.execute("losses = train_alone()", ranks=[0])
    strategies.keep("one process", world.pull("losses", [0])[0])

# %%
lines = strategies.kept(losses[0])
strategies.over_one_another(lines, "The model that learns to write, under each strategy so far")

# %%
largest = {name: max(apart) for name, apart in strategies.apart(lines, "one process").items()}
finding(
    max(largest.values()) < 1e-3,
    f"No strategy's losses differ from those of one process by more than {max(largest.values()):.0e}.",
    f"The losses differ by up to {max(largest.values()):.0e}: training has made differences in the last bit grow.",
)

# %% [markdown]
# All curves lie on top of one another: we have cut the batch, the storage, the width and the depth, and each
# time it was the same training. A pipeline adds up the gradients of 8 microbatches one after another, where
# one process adds up 16 rows.
#
# No rank has the whole model. The names of the weights say which layer they belong to, so the four dictionaries together are one:

# %%
# %%ranks
state = {name: tensor.cpu() for name, tensor in part.state_dict().items()}

# %%
from fourranks.learner.corpus import course, write
from fourranks.learner.model import Config, transformer

corpus = course()
writer = transformer(Config(len(corpus.alphabet)))
writer.load_state_dict({name: tensor for part in world.pull("state") for name, tensor in part.items()})
print(write(writer, corpus, "The pipeline ", seed=7))

# %% [markdown]
# **Train it with yours** (optional). Paste the cells of the exercise that define `one_f_one_b_schedule`,
# `run_pipeline` and what they use into this cell, and return the two functions. With `None` nothing happens.
# In the exercise's pipelines all stages receive tensors of the same shape, even the first one, so here each
# character enters as a vector.


# %%
# %%ranks
def my_pipeline():
    return None  # your own: return one_f_one_b_schedule, run_pipeline


# %%
# %%ranks
class OutOfVectors(nn.Module):
    """Turns vectors of equal numbers into these numbers: (B, T, width) into (B, T)."""

    def forward(self, x):
        return x[..., 0].long()


# %%
# %%ranks
own = my_pipeline()
if own is None:
    print("No pipeline of yours yet.")
else:
    schedule_of, run_mine = own
    part = transformer(config)[layers_of[rank]].to(device)
    if rank == 0:
        part.insert(0, OutOfVectors())
    optimizer = torch.optim.AdamW(part.parameters(), lr=3e-3)
    by_mine = []
    for step in fourranks.progress(range(steps), "yours"):
        characters, following = (tensor.to(device).chunk(8) for tensor in batch_of(corpus, step))
        vectors = [each[..., None].repeat(1, 1, config.width).float() for each in characters]
        pairs = list(zip(vectors, following, strict=True))
        optimizer.zero_grad()
        by_mine.append(run_mine(schedule_of(rank, world_size, 8), part, pairs, loss))
        optimizer.step()
    if rank == world_size - 1:
        differences = [abs(one - other) for one, other in zip(by_mine, pipeline_losses, strict=True)]
        print(f"Your losses differ from those of torch's 1F1B by at most {max(differences):.0e}.")

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
# - **Microbatches** turn an assembly line in which one station works at a time into one in which all work.
#   Forward sends activations down, backward sends gradients up, and the sum is the gradient of one process.
# - **Schedules drawn, then run**: GPipe and 1F1B have the same bubble; interleaved schedules and split
#   backwards have a smaller one. Real ranks followed the drawing, and spent the rest of their time on
#   messages.
# - **In flight**: m microbatches under GPipe, p − rank under 1F1B. In 1F1B neighbours send to each other at
#   the same time, so their sends must not block. `isend` and `irecv`, started early, overlap messages with
#   computation.
# - **Torch's** 1F1B draws the same picture, with the same gradients. Pieces of one sequence can also be a
#   pipeline's microbatches.
# - **The model that learns to write**, as four stages: the curve that every other strategy has drawn, too.
#
# **Your turn**: [the exercise](../../exercises/07_pipeline_parallelism/exercise.ipynb). You write the
# schedules, measure their bubble without ranks, and run them with any number of stages and microbatches, with
# overlap and without a deadlock. Optionally you interleave them, and split the backward pass.
#
# **Next**: so far we cut batch, width and depth separately. Large training runs cut along all three at the
# same time.
#
# **Sources and further reading.** [Stanford CS336 (spring 2025), lecture
# 8](https://github.com/stanford-cs336/spring2025-lectures) · [Stanford CS229S (fall
# 2023)](https://cs229s.stanford.edu/fall2023/), on parallelism · Huang and others, *GPipe*, [arXiv
# 1811.06965](https://arxiv.org/abs/1811.06965) · Narayanan and others, *Memory-efficient pipeline-parallel DNN training*
# (PipeDream-Flush, 1F1B), [arXiv 2006.09503](https://arxiv.org/abs/2006.09503) · Narayanan and others, *Efficient large-scale
# language model training on GPU clusters using Megatron-LM* (interleaving), [arXiv 2104.04473](https://arxiv.org/abs/2104.04473)
# · Li and others, *TeraPipe*, [arXiv 2102.07988](https://arxiv.org/abs/2102.07988) · Qi and others, *Zero bubble pipeline
# parallelism*, [arXiv 2401.10241](https://arxiv.org/abs/2401.10241) · PyTorch 2.13, [documentation of
# `torch.distributed.pipelining`](https://docs.pytorch.org/docs/stable/distributed.pipelining.html)

# %%
# %ranks stop
