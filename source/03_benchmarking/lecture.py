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
# # 03 Benchmarking: what does a byte cost?
#
# **Every report on training with many GPUs quotes a bandwidth. How do you measure one correctly, and how do
# you recognize a wrong one?**
#
# You will
#
# - build a benchmark step by step, where each step repairs a wrong answer of the one before,
# - turn seconds into bandwidths that you can compare, model them with two numbers, and predict when a tree
#   beats a ring,
# - solve a puzzle from a well-known lecture, "277 GB/s for all-reduce, but 70 for reduce-scatter", and
#   measure how far off bad benchmarks are.
#
# 75 minutes · 4 ranks · Gloo on any laptop; on a machine with 4 GPUs the same cells show NCCL's numbers
# beside Gloo's
#
# [The exercise](../../exercises/03_benchmarking/exercise.ipynb) · [notation](../../docs/notation.md) · [cheat sheet](../../docs/cheat_sheet.md) · [glossary](../../docs/glossary.md) · [concept map](../../docs/concept_map.md)
#
# As always, put your prediction into the variable before you go on. `None` works, too.

# %%
# %load_ext fourranks
import statistics

import fourranks
from fourranks import bench
from fourranks.figures import alpha_beta, compare, finding, ledger, nccl_tests, predicted, review
from fourranks.figures.alpha_beta import AlphaBeta, fit_alpha_beta
from fourranks.figures.timings import calls, ratios, sizes
from fourranks.trace.bandwidth import busbw, busbw_factor

# %ranks start

# %%
world = fourranks.world()
backend = {"gloo": "Gloo", "nccl": "NCCL"}[world.backend]
print(f"{world.world_size} ranks, {backend}, on {world.device}")

# %% [markdown]
# ## Before you begin
#
# Three questions about earlier lectures. Answer them from memory, in the list below; `None` works, too.

# %%
ledger.begin("03")

# %%
remembered = [None, None, None]  # your answers

# %%
ledger.answers(remembered)

# %% [markdown]
# ## 1. A first try
#
# We begin in the simplest way. We make a new process group and a new tensor of ten million float32, which is
# 40 MB, and all-reduce it twelve times in a row. Every rank times every call.
#
# **Question.** How many times as long as a typical call does the very first one take?

# %%
first_over_typical = None  # your prediction: a factor

# %%
# %%ranks
import time

group = dist.new_group()  # a group that has never been used, as at the start of training
fresh = torch.empty(10_000_000, device=device)  # memory that was never touched
seconds = []
for _ in range(12):
    start = time.perf_counter()
    dist.all_reduce(fresh, group=group)
    seconds.append(time.perf_counter() - start)

# %%
seconds = world.pull("seconds")
first, typical = max(own[0] for own in seconds), statistics.median(map(max, *seconds))
print(
    f"{predicted(first_over_typical, about='first call over a typical one', was=first / typical)}measured: {first / typical:.2g}"
)
finding(
    first > 1.5 * typical,
    f"the first call took {first / typical:.1f} times as long as a typical one.",
    f"the first call took {first / typical:.1f} times as long as a typical one: other work on this machine hid its cost.",
)
calls(seconds, f"12 calls of all_reduce, 40 MB, {backend}, 4 ranks")

# %% [markdown]
# These are twelve calls of the same operation on the same tensor, and hardly any two take the same time. The
# first call opens connections, and it touches new memory, which the operating system provides page by page;
# the later calls reuse both. On GPUs NCCL builds the communicator with its rings during the first call, which
# takes from tens of milliseconds to seconds. In a training run with a million steps none of this matters.
#
# **Warm-up**: make a few calls before you measure, and discard their times.
#
# The rest of the scatter is harder to deal with. Which rank's time is the right one, and which call's?

# %% [markdown]
# ## 2. Whose clock?
#
# In training the ranks do not arrive together: one of them may have had a longer sentence to process. Let
# rank 2 arrive 40 ms late at every call.
#
# **Question.** An all-reduce of 4 MB takes about a tenth of the time in the figure above. What will rank 2's clock
# say? And what will rank 0's clock say if all ranks pass a barrier before they start it?

# %%
late_ms = {"rank 2, no barrier": None, "rank 0, barrier": None}  # your predictions, in ms


# %%
# %%ranks
x = torch.zeros(1_000_000, device=device)


def one_call(meet):
    """Seconds of one all-reduce of 4 MB on this rank, when rank 2 comes 40 ms late."""
    time.sleep(0.040 if rank == 2 else 0)
    if meet:
        dist.barrier()
    start = time.perf_counter()
    dist.all_reduce(x)
    return time.perf_counter() - start


alone = [one_call(meet=False) for _ in range(9)]
together = [one_call(meet=True) for _ in range(9)]

# %%
measured = {}
for name, own in (("no barrier", world.pull("alone")), ("barrier", world.pull("together"))):
    for r in (0, 2):
        measured[f"rank {r}, {name}"] = 1000 * statistics.median(own[r])
compare(measured, yours=late_ms, unit="ms", title=f"One all_reduce of 4 MB, rank 2 late, {backend}")

# %% [markdown]
# Without a barrier rank 0 has mostly timed its own waiting: 40 ms of waiting, and a little communication.
# Rank 2 timed only the end of an operation that the others had begun. Neither is a property of the network.
#
# **Barrier, then the clock**: a barrier makes all ranks start together. Then the operation takes as long as
# its **slowest rank**, because the next operation needs the result everywhere. So the ranks' times are
# combined by their *maximum*. A mean over ranks, or rank 0's own clock, would say that the operation was over
# before it really was.

# %% [markdown]
# ## 3. When is it over?
#
# **Question.** An all-reduce of 40 MB is started with `async_op=True`. After how many milliseconds does the
# call return, and after how many is the sum ready?

# %%
asynchronous_ms = {"the call returns": None, "the sum is there": None}  # your predictions

# %%
# %%ranks
y = torch.zeros(10_000_000, device=device)
dist.all_reduce(y)  # warm-up
dist.barrier()
start = time.perf_counter()
handle = dist.all_reduce(y, async_op=True)
returned = time.perf_counter() - start
handle.wait()
if device.type == "cuda":
    torch.cuda.synchronize()
done = time.perf_counter() - start

# %%
returned, done = (1000 * max(world.pull(name)) for name in ("returned", "done"))
measured = {"the call returns": returned, "the sum is there": done}
compare(measured, yours=asynchronous_ms, unit="ms", title=f"all_reduce of 40 MB, {backend}, 4 ranks")

# %% [markdown]
# If you stop the clock when the call returns, you measure how long it takes to request the sum, not to get
# it. On Gloo that happens only with `async_op=True`. **On a GPU every call behaves like that**: it puts a
# kernel into a queue and returns in some 10 µs, whether the tensor has 4 bytes or 4 GB. So the next rule is:
#
# **Synchronize**: `torch.cuda.synchronize()` before the clock stops, so that the work is done; *and* before
# it starts, so that work from earlier lines is not counted. On a CPU there is nothing to wait for, so code
# for both checks `device.type` first. CUDA events are an alternative: with them the GPU records the times
# itself.

# %% [markdown]
# ## 4. Mean or median?
#
# Measurements are disturbed: a backup starts, another job wakes up, a clock is throttled. Here we disturb
# them on purpose: in three of 33 calls we stall rank 1 for 200 ms.
#
# **Question.** By which factor do these three move the mean over the calls, and by which the median?

# %%
moved = {"mean": None, "median": None}  # your predictions, as factors


# %%
# %%ranks
DISTURBED = (5, 15, 25)
seconds = []
for call in range(33):
    dist.barrier()
    start = time.perf_counter()
    if call in DISTURBED and rank == 1:
        time.sleep(0.200)
    dist.all_reduce(x)
    seconds.append(time.perf_counter() - start)

# %%
all_33 = list(map(max, *world.pull("seconds")))  # the slowest rank of each call
other_30 = [t for call, t in enumerate(all_33) if call not in (5, 15, 25)]
factors = {
    "mean": statistics.mean(all_33) / statistics.mean(other_30),
    "median": statistics.median(all_33) / statistics.median(other_30),
}
compare(factors, yours=moved, unit="×", title="All 33 calls, divided by the 30 that nobody disturbed")

# %% [markdown]
# A few calls out of 33 decide the mean; the median hardly changes. The minimum changes least, but it answers
# another question: it shows what a machine *can* do when nothing interferes, as in lecture 01's copies. The
# median shows what a training run will *get*. A median needs one time *per call*: one clock around all 33
# calls, divided by 33, can only give a mean.

# %% [markdown]
# ## 5. The benchmark
#
# Warm-up, barrier, synchronize, slowest rank, median: `fourranks.bench` does all five, and in the exercise
# you write such a benchmark yourself. Here we compare it with the first try, one clock around one call, for
# the 4 MB of `x`.
#
# **Question.** Each rank does both five times. What is the largest answer divided by the smallest, for the
# first try and for the benchmark?

# %%
spread = {"first try": None, "benchmark": None}  # your predictions, as factors

# %%
# %%ranks
import statistics

from fourranks import bench
from fourranks.bench import synchronize

options = {"warmup": 3, "iterations": 21, "device": device}
first_tries, benchmarks = [], []
for _ in range(5):
    time.sleep(0.005 * rank)  # as in training, ranks come when they are ready
    start = time.perf_counter()
    dist.all_reduce(x)
    first_tries.append(time.perf_counter() - start)
    benchmarks.append(bench.benchmark(lambda: dist.all_reduce(x), **options))
print("benchmark:", ", ".join(f"{1000 * seconds:.2f} ms" for seconds in benchmarks))

# %%
answers = {"first try": sum(world.pull("first_tries"), []), "benchmark": sum(world.pull("benchmarks"), [])}
measured = {name: max(seconds) / min(seconds) for name, seconds in answers.items()}
compare(measured, yours=spread, unit="×", title="Largest answer over smallest, of all ranks and five times")

# %% [markdown]
# All ranks report the same benchmark times, in one line with the label `[0-3]`, and the answers differ only
# as much as the load of this machine changes. nccl-tests, NVIDIA's own benchmark, works in the same way
# except for three points:
#
# - It warms up with a single call at each doubling of the size (until August 2025 with five; `-w` sets the
#   number).
# - It times 20 calls together, so it reports a mean over calls: for large tensors that makes no difference,
#   for small ones it hides the time to launch a kernel. `bench.benchmark(…, calls=20)` does the same.
# - With several processes it *averages* over their times by default, which section 2 showed to be wrong; with
#   `-a 3` it reports the slowest one's.

# %% [markdown]
# ## 6. From seconds to bandwidths
#
# Stanford's CS336, lecture 8, the lecture from which this course grew, all-reduces 100 · 1024² float32 on 4
# H100s: 419 MB in 2.11 ms. Some retellings say 400 MB. We take a sixteenth of that: 26 MB.
#
# **Question.** How many GB/s (10⁹ bytes a second) does this machine reach? Predict two numbers: the bytes of
# the tensor divided by the time, and the bytes that each rank has to send divided by the time.

# %%
gb_per_s = {"algbw": None, "busbw": None}  # your predictions

# %%
[run] = bench.sweep(world, ("all_reduce",), [4 * 100 * 1024**2 // 16], iterations=9)
print(f"S = {run.num_bytes:,} bytes, t = {1000 * run.seconds:.2f} ms, N = {run.world_size}")
measured = {"algbw": run.algbw / 1e9, "busbw": run.busbw / 1e9}
compare(measured, yours=gb_per_s, unit="GB/s", title=f"all_reduce, {backend}, 4 ranks")

# %% [markdown]
# These are the two bandwidths of **nccl-tests**, which the whole field quotes:
#
# - **algbw** = S / t: how fast the operation processed the array. S is the *whole* array.
# - **busbw** = algbw · factor: how many bytes each rank had to send in a second. You can compare it with the
#   speed of a **link**, and it stays the same when ranks are added, as long as the links are the limit.
#
# The factor is the share of S that each rank has to send. For the all-reduce that is 2 (N − 1)/N: it is a
# reduce-scatter and an all-gather, and in each a rank sends all chunks but one. For every other operation ask
# the same question; in the exercise you answer it for all operations of nccl-tests. Two points are easily
# misunderstood. S is always the *whole* array: a rank's whole **input** of a reduce-scatter, its whole
# **output** of an all-gather. And a rank in the middle of a broadcast passes on all of S, so the factor of a
# broadcast is 1.
#
# So where do other formulas come from? One measurement, five ways to print it:

# %%
n, alg = run.world_size, run.algbw
printed = {
    "busbw: 2 (N−1)/N · S/t": run.busbw / 1e9,
    "2 S / (N t)": 2 * alg / n / 1e9,
    "2 N S / t": 2 * n * alg / 1e9,
    "sent + received": 2 * run.busbw / 1e9,
    "busbw, divided by 1024³": run.busbw / 1024**3,
}
compare(printed, unit="GB/s", title="One measurement, printed in five ways")

# %% [markdown]
# - **2 S / (N t)**, from one set of lecture notes, forgets that each rank sends N − 1 of N chunks; the
#   lecture's 277 would be 93. The stated reason, "N ranks, so the total time is N · t", is wrong: the N in
#   the denominator counts the links that *share* 2 (N − 1) S bytes, at the same time.
# - **2 N S / t**, from another set of notes, sums over all ranks without dividing by their number. It gives
#   1,480 for the same run. No link of that machine is that fast, which should make you suspicious.
# - **The 2 is not "send and receive"**: it counts two *phases*. Links carry bytes in both directions
#   simultaneously, and the bytes that a rank receives are not added.
# - **1024³** bytes are a GiB. The famous 277 "GB/s" are 277.7 GiB/s: 298 GB/s. The unit alone makes a difference of seven percent.
#
# What should you compare busbw with? The lecture says "far below 900 GB/s". An H100's 900 is the sum of both
# directions of its 18 links, but busbw counts one direction, which has 450. So 4 GPUs reach 298 of 450, or 66
# %, with 400 MiB. For larger arrays 80 % is usual. More than 100 % also occurs, in three cases:
#
# - With NVLink SHARP the *switch* does the addition, and a rank sends less than in a ring; busbw, which
#   counts a ring's bytes, reports 482.
# - A tree on two nodes also sends less between the nodes than a ring.
# - In nodes with several network cards busbw may be many times the bandwidth of *one card*, since it counts a
#   rank's bytes and all cards share them: see section 7.

# %% [markdown]
# ## 7. The sweep
#
# One size is one point. From here on we measure many sizes, several collectives, and every available backend.
#
# **Question.** 1 KiB takes almost as long as 64 KiB: for both, the call itself takes most of the time. From
# which size on, roughly, do the bytes take most of the time of an all-reduce on this machine?

# %%
turning_point = None  # your prediction, in bytes; for instance 256 * 1024

# %%
worlds = {backend: world}
if world.backend == "nccl":
    worlds["Gloo"] = fourranks.start(4, "gloo")
names = ("all_reduce", "reduce_scatter", "all_gather", "sendrecv")
measured = {name: bench.sweep(group, names) for name, group in worlds.items()}
for group in worlds.values():
    if group is not world:
        group.stop()


# %%
def points(name, collective, quantity="seconds"):
    return [(m.num_bytes, getattr(m, quantity)) for m in measured[name] if m.collective == collective]


def fit(name, collective):
    return fit_alpha_beta(*zip(*points(name, collective), strict=True))


for name in worlds:
    for collective in ("all_reduce", "sendrecv"):
        alpha, beta = fit(name, collective)
        print(
            f"{name} {collective}: α = {1e6 * alpha:.0f} µs, 1/β = {1e-9 / beta:.2f} GB/s, α/β = {alpha / beta / 1024:.0f} KiB"
        )

# %% [markdown]
# The **α–β model** has two numbers: t = α + β · S. α is the time of even the smallest call, and β is the time
# that each byte adds. At S = α/β both parts are equal: for smaller S you are **latency-bound**, for larger S
# **bandwidth-bound**. The fit minimizes *relative* errors. With absolute errors, a few percent of the largest
# time would outweigh all of the small times, and α would be noise; the exercise lets you see that.
#
# In `sendrecv` each rank sends one message to the right while it receives one from the left. Its α and β let
# us predict the time of any algorithm that is made of messages:

# %%
alpha, beta = fit(backend, "sendrecv")
grid = [2 ** (10 + step / 4) for step in range(57)]  # 1 KiB to 16 MiB
own = fit(backend, "all_reduce")
algorithms = {
    "ring": alpha_beta.ring_all_reduce,
    "tree": alpha_beta.tree_all_reduce,
    "tree, pipelined": alpha_beta.pipelined_tree_all_reduce,
    "halving and doubling": alpha_beta.halving_doubling_all_reduce,
}
models = {"fit: α + β S": [(s, own[0] + own[1] * s) for s in grid]}
models |= {name: [(s, time(4, s, alpha, beta)) for s in grid] for name, time in algorithms.items()}
times = {f"{name} all_reduce": points(name, "all_reduce") for name in worlds}
sizes(times, models, "s", f"all_reduce on 4 ranks, and models from {backend}", own[0] / own[1], turning_point)

# %%
smallest, seconds = points(backend, "all_reduce")[0]
over_ring = seconds / alpha_beta.ring_all_reduce(4, smallest, alpha, beta)
largest, seconds = points(backend, "all_reduce")[-1]
over_ring_right = seconds / alpha_beta.ring_all_reduce(4, largest, alpha, beta)
print(f"measured over the ring's line: {over_ring:.2f} at the left, {over_ring_right:.2f} at the right")
finding(
    over_ring < 1,
    "at the left the measured points lie below the ring of messages: a message inside the library costs less than one that Python sends.",
    "at the left the measured points lie above the ring of messages: here the library's call costs more than the six messages that Python would send.",
)

# %% [markdown]
# Points are measured, lines are models. Left of α/β every call takes about α, whatever its size; right of it
# the time rises with S.
#
# | all-reduce by | messages one after another | time |
# |---|---|---|
# | ring | 2 (N − 1), of S/N bytes each | 2 (N − 1) α + 2 (N − 1)/N · β S |
# | tree, up and down | 2 ⌈log₂ N⌉, of S bytes each | 2 ⌈log₂ N⌉ (α + β S) |
# | tree, pipelined | 2 ⌈log₂ N⌉, then a piece at a time | 2 ⌈log₂ N⌉ α + 2 β S |
# | halving and doubling | 2 log₂ N, of S/2, S/4, … bytes | 2 log₂ N α + 2 (N − 1)/N · β S |
#
# A line that is low at the left belongs to an algorithm with few messages; a line that is low at the right,
# to one with few bytes. Gloo uses a ring. All four ranks share this machine's cores and memory, so trust the
# shapes of the models, not their digits. NCCL has a ring, the pipelined tree of lecture 02, and some more
# algorithms. It chooses one for each size by a model like this one, with a table of their latencies and
# bandwidths.
#
# The other operations follow from the same two numbers. A broadcast along a chain of k pieces takes (N − 2 +
# k)(α + β S/k). A scatter or gather takes (N − 1) α + (N − 1)/N · β S at the root, one message after another,
# and ⌈log₂ N⌉ α + (N − 1)/N · β S in a tree that passes on halves. nccl-tests has one more pattern,
# `hypercube`: an all-gather by doubling, with log₂ N messages and N − 1 parts. NCCL has had an algorithm with
# as few steps since version 2.23, PAT ("parallel aggregated trees"), for all-gathers and reduce-scatters
# with one GPU a node.
#
# **Question.** There is a size at which ring and *unpipelined* tree take the same time. With the α and β of `sendrecv` above, which
# is it for 4 ranks? And where does this crossover move for 64 ranks, and for 1,024?

# %%
crossover_mib = {"4 ranks": None, "64 ranks": None, "1024 ranks": None}  # your predictions, in MiB

# %%
crossover = {f"{n} ranks": alpha_beta.crossover_bytes(n, alpha, beta) / 2**20 for n in (4, 64, 1024)}
title = f"Below this size the unpipelined tree is faster than the ring: {backend} on this machine"
compare(crossover, yours=crossover_mib, unit="MiB", title=title, label="by the model")

# %%
some = {
    f"{backend} on this machine": (alpha, beta),
    "InfiniBand NDR (10 µs, 50 GB/s)": (10e-6, 1 / 50e9),
    "NVLink 4 (3 µs, 450 GB/s)": (3e-6, 1 / 450e9),
}
for name, link in some.items():
    for n in (4, 64, 1024):
        plain, pipelined = (
            alpha_beta.crossover_bytes(n, *link),
            alpha_beta.pipelined_crossover_bytes(n, *link),
        )
        print(
            f"{name:31} {n:5,} ranks: tree {plain / 2**20:10,.2f} MiB, pipelined {pipelined / 2**20:12,.0f} MiB"
        )

# %% [markdown]
# With more ranks a ring needs more steps, whatever the size of the tensor. The unpipelined tree pays for all
# bytes in every round, so its crossover grows only like N / log₂ N: 54 MiB on 1,024 ranks behind network
# cards. The pipelined tree pays for the bytes twice, hardly more than a ring, and its crossover grows like
# N²: some 480 GiB on the same ranks.
#
# So by this model trees win on a thousand ranks at nearly every size that occurs, and rings win on one node
# at nearly every size that matters. The crossovers of this machine follow from Python's α, which is far above
# a GPU's; only their growth is worth remembering.
#
# Move the sliders. From how many ranks on does the pipelined tree win up to 1 GiB, with network cards of 10
# µs and 50 GB/s, and inside a node? And in which direction do α and β move a crossover?

# %%
from fourranks.figures import playgrounds

playgrounds.all_reduce_algorithms()

# %% [markdown]
# ### Nodes with eight cards
#
# So far all links were equal. In reality they are not: inside a node NVLink carries 450 GB/s, and to other
# nodes there is one network card of 50 GB/s *for each GPU*. A ring through all GPUs of four nodes has to
# leave each node once. If it used one card, all of its bytes would pass at 50 GB/s.
#
# So NCCL plans **eight rings**, each for an eighth of the tensor, and each leaves the node through a
# different card. Then a card carries only an eighth of the bytes that a *rank* sends. busbw counts all of a
# rank's bytes, and can come near 8 · 50 = **400 GB/s**, though no card carries more than 50.
#
# A **hierarchical all-reduce** achieves the same:
#
# 1. a reduce-scatter inside each node, over NVLink, after which each GPU has the node's sum of one eighth,
# 2. an all-reduce of this eighth among the GPUs of the same number in all nodes (a *rail*), each through its own card,
# 3. an all-gather inside each node.
#
# In this form the phases run one after another. NCCL cuts the tensor into pieces, so that NVLink and cards
# work at the same time. Let our four ranks play two nodes of two.
#
# **Question.** In an all-reduce of S bytes, how many bytes leave a node through one card: in a flat ring that
# uses one card, and in a hierarchical all-reduce that uses two?

# %%
crosses_over_s = {
    "flat ring, one card": None,
    "hierarchical, two cards": None,
}  # your predictions, as multiples of S

# %%
# %%ranks
nodes = [dist.new_group([0, 1]), dist.new_group([2, 3])]
rails = [dist.new_group([0, 2]), dist.new_group([1, 3])]
node, rail = nodes[rank // 2], rails[rank % 2]


def hierarchical_all_reduce(tensor):
    part = torch.empty_like(tensor.chunk(2)[0])
    dist.reduce_scatter_single(part, tensor, group=node)
    dist.all_reduce(part, group=rail)
    dist.all_gather_single(tensor, part, group=node)


mine = torch.arange(8.0, device=device) * 10**rank
expected = mine.clone()
dist.all_reduce(expected)
hierarchical_all_reduce(mine)
print("equal to all_reduce:", torch.equal(mine, expected), mine[:4].tolist())

# %%
with world.trace() as trace:
    world.execute("hierarchical_all_reduce(torch.ones(1_000_000, device=device))")
through_rail = next(call.nbytes for call in trace.calls[0] if call.op == "all_reduce")
crossing = {  # busbw's factor: what each rank of a ring sends
    "flat ring, one card": busbw_factor("all_reduce", 4),
    "hierarchical, two cards": busbw_factor("all_reduce", 2) * through_rail / 4_000_000,
}
compare(
    crossing,
    yours=crosses_over_s,
    unit="S",
    title="Through each card of a node, 2 nodes of 2 ranks",
    label="by the ring's formula, for the bytes in the trace",
)

# %% [markdown]
# In the hierarchical all-reduce each card carries a third of the flat ring's bytes: half of the tensor,
# all-reduced between two nodes instead of four ranks. The next cell shows the same for four nodes of eight
# B200, from published bandwidths, beside a published measurement with 16 GiB:

# %%
inside, border = AlphaBeta(1e-6, 1 / 900e9), AlphaBeta(5e-6, 1 / 50e9)  # NVLink 5, a card of 400 Gb/s
S, factor = 16 * 2**30, busbw_factor("all_reduce", 32)
seconds = {
    "one ring, one card": alpha_beta.ring_all_reduce(32, S, border.alpha, border.beta),
    "hierarchical": alpha_beta.hierarchical_all_reduce(4, 8, S, inside, border),
    "eight rings, eight cards": alpha_beta.ring_all_reduce(32, S, border.alpha, border.beta / 8),
}
compare(
    {name: factor * S / t / 1e9 for name, t in seconds.items()},
    {"eight rings, eight cards": 382},
    unit="GB/s",
    title="busbw of an all-reduce of 16 GiB, 4 nodes of 8 × B200",
    label="by the model",
    mark="measured by others",
)

# %% [markdown]
# So there are two rules for traffic between nodes. With **one GPU and one card** in each node, a rank's bytes
# pass at 50 GB/s. With **eight GPUs and eight cards**, collectives over all ranks get up to 400 GB/s for each
# rank. But a *single* pair of ranks in two nodes, such as two neighbours in a pipeline, still has only its
# one card. For small tensors the hierarchy has another advantage: it crosses the border in 2 (nodes − 1)
# steps instead of 2 (ranks − 1).
#
# Now the same measurements as bandwidths. Each collective has its factor, so equal links should give equal
# busbw:

# %%
bandwidths = {f"{name} {c}": points(name, c, "busbw") for name in worlds for c in names[:3]}
sizes(bandwidths, unit="B/s", title=f"busbw over S, {' and '.join(worlds)}, 4 ranks")

# %% [markdown]
# On NCCL the three curves meet at large S. Published measurements on eight H200s with rings and 16 GiB show
# it: **367** GB/s for all-reduce, **363** for reduce-scatter, **361** for all-gather.
#
# On Gloo reduce-scatter must fall behind: **Gloo's reduce-scatter is an all-reduce of the whole input
# followed by a copy of one chunk**, as its source code shows. So a reduce-scatter takes about as
# long as a whole all-reduce, plus the copy. Remember this for the next section: Gloo's time for a
# reduce-scatter is no evidence about NVLink.
#
# For orientation, others' numbers on NCCL, as busbw of a large all-reduce:
#
# | machine | busbw | of the link's one direction |
# |---|---|---|
# | 8 × A100, NVLink 3 | 235 GB/s | 78 % of 300 |
# | 8 × H200, NVLink 4, ring | 367 GB/s | 82 % of 450 |
# | the same with SHARP | 482 GB/s | 107 %: the switch adds |
# | 8 × B200, NVLink 5 | 846 GB/s | 94 % of 900 |
# | 32 × B200 in 4 nodes | 382 GB/s | 96 % of the 400 of eight cards; 7.6 times one card |
#
# A small all-reduce (32 KiB) takes 40 to 50 µs on eight GPUs in a node: hundreds of times longer than 32 KiB at full speed.
#
# ### One large, or many small?
#
# **Question.** 16 MiB in one all-reduce, or as 256 all-reduces of 64 KiB: how many times as long do the many take?

# %%
many_over_one = None  # your prediction, a factor

# %%
# %%ranks
whole = torch.zeros(4 * 2**20, device=device)
parts = whole.chunk(256)


def many():
    for part in parts:
        dist.all_reduce(part)


one_s = bench.benchmark(lambda: dist.all_reduce(whole), warmup=1, iterations=5, device=device)
many_s = bench.benchmark(many, warmup=1, iterations=3, device=device)

# %%
one_ms, many_ms = (1000 * world.pull(name)[0] for name in ("one_s", "many_s"))
print(
    f"one: {one_ms:.1f} ms, many: {many_ms:.1f} ms; {predicted(many_over_one, about='256 calls over one', was=many_ms / one_ms)}measured: {many_ms / one_ms:.1f}"
)

# %% [markdown]
# The bytes are the same, but α was paid 256 times. On GPUs a thousand all-reduces of 4 MB take about 3 times
# as long as one of 4 GB. So gradients are not sent tensor by tensor but in *buckets*: see lecture 04.
#
# What else changes these numbers? Three influences can be varied here: the layout of a tensor, since one that
# is not contiguous has to be copied; the number of ranks; and which ranks are in the group.

# %%
# %%ranks
grid = torch.zeros(2048, 2048, device=device)  # 16 MiB
options = {"warmup": 2, "iterations": 7, "device": device}
varied = {"4 ranks": bench.benchmark(lambda: dist.all_reduce(grid), **options)}
varied["4 ranks, transpose"] = bench.benchmark(lambda: dist.all_reduce(grid.T.contiguous()), **options)
varied["2 pairs at a time"] = bench.benchmark(lambda: dist.all_reduce(grid, group=node), **options)

# %%
compare(
    {name: 1000 * t for name, t in world.pull("varied")[0].items()},
    unit="ms",
    title=f"all_reduce of 16 MiB, {backend}",
)

# %% [markdown]
# Two more influences cannot be varied on one machine, but are at least as important: the links between the
# ranks, and switches that add. Every number holds for *this* operation, size, machine and version only.
# Compare runs of one benchmark with each other, and be careful when you compare them with other people's
# numbers.

# %% [markdown]
# ## 8. The puzzle: 277 against 70
#
# The lecture's second measurement is a reduce-scatter, on the same 4 H100s. It printed 72 to 75 "GB/s",
# against 272 to 278 for all-reduce; some notes of the lecture say 70. These notes explain the gap with
# hardware that helps all-reduce only (SHARP), with "optimization patterns", or with a reduce-scatter that
# "naturally reports less". Let us investigate.
#
# **Clue 1: the times.** The lecture's log has 2.11 ms for the all-reduce and 4.06 ms for the reduce-scatter.
# That is already suspicious: half an operation takes twice as long.
#
# **Clue 2: the shapes.** The all-reduce works on 100 · 1024² float32. The reduce-scatter's *input* has the shape (world size, 100 · 1024²),
# its *output* (100 · 1024²).
#
# **Clue 3: the code.** For reduce-scatter it computes bytes = output.element_size() · output.numel(), and then bytes · (N − 1) / (N · t) /
# 1024³. The all-reduce gets a 2 in front.
#
# First, can we reproduce the printed numbers?

# %%
out, gib = 4 * 100 * 1024**2, 1024**3
reported = {
    "all_reduce": out * 2 * 3 / (4 * 2.11e-3) / gib,
    "reduce_scatter": out * 3 / (4 * 4.06e-3) / gib,
}
print({name: f"{value:.1f}" for name, value in reported.items()})

# %% [markdown]
# We can, to the digit. So the question is whether the formula is right.
#
# **Question.** Take the definitions of section 6. What is S of this reduce-scatter, in multiples of `out`?
# And what is the busbw that nccl-tests would have printed, in the same unit? Write your own figure down
# before you go on.

# %%
s_over_out = None  # your answer: a multiple
your_busbw = None  # your corrected figure for reduce-scatter, in GiB/s

# %%
corrected = {
    "all_reduce": busbw("all_reduce", out, 2.11e-3, 4) / gib,
    "reduce_scatter": busbw("reduce_scatter", 4 * out, 4.06e-3, 4) / gib,
}
print(
    f"{predicted(s_over_out, about='S over the output, reduce-scatter', was=4)}S / out is 4;  reported · N = {4 * reported['reduce_scatter']:.1f}"
)
title = "4 × H100, from the lecture's times"
compare(
    corrected,
    reported,
    {"reduce_scatter": your_busbw},
    "GiB/s",
    title,
    "by nccl-tests' formula",
    "as printed",
)

# %% [markdown]
# **There is no gap.** S of a reduce-scatter is the whole input, N times the output, but the lecture counted
# the output. So its 72.2 is busbw / N. Four times that is 289 GiB/s, or **310 GB/s**: a little *faster* than
# the all-reduce's 298. The times say the same without any definition: the reduce-scatter processed four times
# the data in twice the time, so for equal data it takes half the time. Half an all-reduce takes half the time
# of an all-reduce.
#
# Two checks from elsewhere:
#
# - On 8 H200s, measured by nccl-tests with rings, all-reduce and reduce-scatter have the same busbw: 367 and 363 GB/s.
# - SHARP does exist, and it speeds up all-reduce alone: from 367 to 482 on that machine, with eight GPUs.
#   With **four**, as in the lecture, NCCL chose a ring, and the gain was 1.00×. So SHARP cannot explain a
#   factor of four.
#
# Could we have confirmed it here? This is what this machine measures for equal S:

# %%
largest = {
    (m.collective, name): m for name in worlds for m in measured[name] if m.num_bytes == bench.SIZES[-1]
}
for name in worlds:
    ratio = largest["reduce_scatter", name].seconds / largest["all_reduce", name].seconds
    print(
        f"{name}: reduce_scatter / all_reduce, {bench.SIZES[-1] // 2**20} MiB each: {ratio:.2f} of the time"
    )
    takes = f"on {name} reduce_scatter takes {'about half of' if ratio < 0.75 else 'more than half of'} an all_reduce's time."
    finding((ratio < 0.75) == (name == "NCCL"), takes, f"{takes} Measure again, with nothing else running.")

# %% [markdown]
# NCCL needs about half the time. Gloo cannot, since its reduce-scatter is an all-reduce, as section 7 said.
# So Gloo would have "confirmed" that reduce-scatter is slow, for a completely different reason. You can find
# a measurement to agree with almost any wrong explanation. Here the evidence is the algebra.

# %% [markdown]
# ## 9. How benchmarks lie
#
# Here are five lies, told on purpose, each beside a correct measurement from the same minute. The ranks
# arrive up to 90 ms apart, as they may in training.
#
# **Question.** By which factor is the *bandwidth* wrong? Above 1 means too high, below 1 too low.

# %%
lie_factors = {  # your predictions
    "no warm-up": None,
    "no synchronize": None,
    "no barrier (rank 0's clock)": None,
    "one sample, the luckiest": None,
    "one sample, the unluckiest": None,
    "wrong bytes: 2 N S": None,
}


# %%
# %%ranks
def clock(run, meet=True):
    """Return this rank's seconds of one call, with or without a barrier before it."""
    time.sleep(0.030 * rank)
    synchronize(device)
    if meet:
        dist.barrier()
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def finished(run):
    run()
    synchronize(device)


group = dist.new_group()  # a group that has never been used
z = torch.empty(10_000_000, device=device)  # 40 MB, never touched


def all_reduce():
    dist.all_reduce(z, group=group)


told = {"no warm-up": clock(lambda: finished(all_reduce))}

# %%
# %%ranks
truth = bench.benchmark(all_reduce, warmup=3, iterations=11, device=device)
handles = []
told["no synchronize"] = clock(lambda: handles.append(dist.all_reduce(z, group=group, async_op=True)))
handles[0].wait()
told["no barrier (rank 0's clock)"] = statistics.median(
    clock(lambda: finished(all_reduce), meet=False) for _ in range(9)
)
samples = bench.samples(all_reduce, 0, 11, device)
told["one sample, the luckiest"], told["one sample, the unluckiest"] = min(samples), max(samples)

# %%
truth, told = world.pull("truth")[0], world.pull("told")[0]
lies = {name: truth / seconds for name, seconds in told.items()}
lies["wrong bytes: 2 N S"] = 2 * 4 / busbw_factor("all_reduce", 4)
expected = {
    "no warm-up": lies["no warm-up"] < 0.8,
    "no synchronize": lies["no synchronize"] > 1.5,
    "no barrier (rank 0's clock)": lies["no barrier (rank 0's clock)"] < 0.9,
}
shows = [name for name, holds in expected.items() if holds]
finding(
    len(shows) == len(expected),
    "each of the first three is off in the direction that the table below says.",
    f"only {shows or 'none'} of {list(expected)} are off in the direction that the table below says; a busy machine drowns the others.",
)
ratios(lies, lie_factors, f"Bandwidth told / true, all_reduce of 40 MB, {backend}, 4 ranks")

# %% [markdown]
# | lie | direction | remedy |
# |---|---|---|
# | no warm-up | too low; on NCCL, whose first call builds the communicator, by orders of magnitude | calls before the clock |
# | no synchronize | far too high, and more so for larger tensors: the time does not depend on the size | synchronize before both readings |
# | no barrier | too low on ranks that came early, too high on the last one | barrier, then the clock |
# | one sample | anything | many, and their median |
# | wrong bytes | a factor that follows from N: N²/(N − 1) too high here, N too low in the puzzle | S and factor of nccl-tests |
#
# The lecture's own measurement timed *one* call, with the closing barrier *inside* the timed region, and on a
# CPU without a barrier before the clock. It used `time.time()`, which may be set while you measure;
# `time.perf_counter()` cannot be set. A retelling also left out the synchronize before the start. None of
# that changed the result much, because 2 ms are long compared with a barrier. Counting the wrong bytes did.
#
# When you read a published bandwidth, ask: Which S? Which factor? GB or GiB? What did the clock include? How
# many calls? If the number is above the speed of the link, do not be impressed.

# %% [markdown]
# ## 10. Beside nccl-tests
#
# On a rented machine, run NVIDIA's own benchmark first, so that you know what the hardware can do before you
# blame your code:
#
# ```
# git clone https://github.com/NVIDIA/nccl-tests && make -C nccl-tests
# export NCCL_TESTS=$PWD/nccl-tests/build
# $NCCL_TESTS/all_reduce_perf -b 1M -e 256M -f 4 -g 4
# ```
#
# On a machine with GPUs where `NCCL_TESTS` names that folder, the next cell runs it and shows
# `fourranks.bench` beside it: they should agree within 3 %. On other machines it reads a listing recorded on
# eight H100s, without a measurement of ours to compare.

# %%
RECORDED = """\
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
   268435456      67108864     float     sum      -1   1119.8  239.71  419.49      0   1117.4  240.24  420.42      0
   536870912     134217728     float     sum      -1   2157.5  248.83  435.46      0   2154.8  249.16  436.02      0
  1073741824     268435456     float     sum      -1   4027.3  266.61  466.57      0   4029.1  266.50  466.37      0
  2147483648     536870912     float     sum      -1   7983.5  268.99  470.73      0   7985.2  268.93  470.63      0
"""
here = world.backend == "nccl" and nccl_tests.find("all_reduce") is not None
ours, report = {}, nccl_tests.parse(RECORDED)
if here:
    large = [4**exponent * 2**20 for exponent in range(5)]
    report = nccl_tests.run("all_reduce", large, gpus=4)
    ours = {m.num_bytes: m.busbw for m in bench.sweep(world, ("all_reduce",), large, calls=20)}
print("nccl-tests on this machine" if here else "needs 4 GPUs and nccl-tests; recorded on 8 × H100:")
for row in report.rows:
    beside = f", fourranks.bench {ours[row.num_bytes] / 1e9:.1f}" if row.num_bytes in ours else ""
    print(f"{row.num_bytes / 2**20:6.0f} MiB: busbw {row.in_place.busbw / 1e9:.1f} GB/s{beside}")

# %% [markdown]
# Check that you can read it: 2 GiB in 7,985 µs are 269 GB/s, and times 2 · 7/8 that is 471. It is more than
# the link's 450, because the switch has added: this is SHARP, on one node. The two halves of a line are **out
# of place** and **in place**; torch's all-reduce is in place. `#wrong` must be 0, and `N/A` means that
# results were not checked.

# %% [markdown]
# ## 11. Profiling a step
#
# A benchmark shows what a collective can do. A **profile** shows what it does in your training step. The step
# here is the forward and backward pass of a small multilayer perceptron, and then an all-reduce of each
# gradient.
#
# **Question.** Which share of the step's time will be communication?

# %%
communication_share = None  # your prediction, 0 to 1


# %%
# %%ranks
torch.manual_seed(0)
layers = [layer for _ in range(4) for layer in (torch.nn.Linear(512, 512), torch.nn.GELU())]
model = torch.nn.Sequential(*layers).to(device)
data = torch.randn(64, 512, device=device)


def step():
    with torch.profiler.record_function("forward"):
        loss = model(data).square().mean()
    with torch.profiler.record_function("backward"):
        loss.backward()
    with torch.profiler.record_function("gradients"):
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
    model.zero_grad()
    synchronize(device)


step()

# %%
# %%ranks 0
import os

os.environ["KINETO_LOG_LEVEL"] = "6"  # else the profiler prints that it starts and stops
from torch.profiler import ProfilerActivity, profile

activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device.type == "cuda")
profiler = profile(activities=activities)

# %%
# %%ranks
dist.barrier()
if rank == 0:
    profiler.start()
start = time.perf_counter()
step()
step_ms = 1000 * (time.perf_counter() - start)
if rank == 0:
    profiler.stop()

# %%
# %%ranks 0
found = {event.key: event for event in profiler.key_averages()}
parts = {name: found[name].cpu_time_total / 1000 for name in ("forward", "backward", "gradients")}
by_time = sorted(found.values(), key=lambda event: -event.self_cpu_time_total)[:8]
for event in by_time:
    print(f"{event.key[:44]:44} {event.count:4} calls {event.self_cpu_time_total / 1000:8.2f} ms on the CPU")

# %%
parts = world.pull("parts", [0])[0]
share = parts["gradients"] / sum(parts.values())
print(f"{predicted(communication_share, about='share of communication', was=share)}measured: {share:.2f}")
compare(parts, unit="ms", title=f"One step on rank 0, CPU time, {backend}")

# %% [markdown]
# Read a profile of **Gloo** and of **NCCL** in different ways:
#
# | | Gloo | NCCL |
# |---|---|---|
# | the collective shows up as | `c10d::allreduce_` and a CPU thread `gloo:all_reduce` | a launch of µs on the CPU, and a kernel `ncclDevKernel_AllReduce_Sum_f32_RING_LL`: here on the stream that computes, with `async_op=True` and in DDP on a stream of its own |
# | "gradients" on the CPU | the whole communication: the CPU waits | the time to *launch* it; look at the GPU's rows |
# | waiting for a slow rank | a long call | a long kernel: it spins until the others have come, and keeps the GPU "100 % utilized" |
#
# The last row is the trap: a kernel that waits looks busy. A long NCCL kernel on rank 0 may mean that rank 3
# is slow, and you see that only in the profiles of *all* ranks.
#
# One step is one sample. For a profile worth keeping, let the profiler skip one step, warm up in the next,
# and record three. Let it count memory, too, and write its timeline into a file.

# %%
# %%ranks 0
import tempfile

from torch.profiler import schedule

folder = tempfile.TemporaryDirectory()
trace_file = f"{folder.name}/rank{rank}.json"
profiler = profile(
    activities=activities,
    schedule=schedule(wait=1, warmup=1, active=3),
    on_trace_ready=lambda done: done.export_chrome_trace(trace_file),
    profile_memory=True,
)

# %%
# %%ranks
if rank == 0:
    profiler.start()
for _ in range(5):
    step()
    if rank == 0:
        profiler.step()
if rank == 0:
    profiler.stop()

# %%
# %%ranks 0
import json

with open(trace_file) as file:
    events = [event for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]
steps = sorted({event["name"] for event in events if event["name"].startswith("ProfilerStep")})
print(f"{len(events):,} events of {', '.join(steps)}, {os.path.getsize(trace_file) / 1e6:.1f} MB")
most = max(profiler.key_averages(), key=lambda event: event.self_cpu_memory_usage)
print(f"most memory: {most.key}, {most.self_cpu_memory_usage / 2**20:.1f} MiB in {most.count} calls")

# %% [markdown]
# Open such a file at ui.perfetto.dev, or in a browser at `chrome://tracing`: a row for each thread and each stream of a GPU. It is one
# rank's view. `%%ranks --trace` shows the collectives of all ranks on one clock:

# %%
# %%ranks --trace
step()

# %% [markdown]
# There are eight gradients and eight all-reduces, one after another, and all of them start only when the
# backward pass is over. The gradients of the weights are large and those of the biases tiny, but each tiny
# one also pays α. Lecture 04 sends them together, while the backward pass is still running. But that is an
# optimization, and the order is always the same: **measure first**, then change one thing, then measure
# again.

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
# - **A benchmark, step by step**: warm-up, because the first call opens connections; a barrier, because a
#   rank must not time its own waiting; synchronize, because a queued kernel is not a finished one; the
#   slowest rank; the median. `fourranks.bench` does all of them.
# - **algbw and busbw** as nccl-tests defines them; α and β, and the latency-bound and the bandwidth-bound
#   regimes; a ring against trees with and without pipelining; one large tensor against many small ones; and
#   why 32 GPUs in nodes with eight cards reach nearly eight times the bandwidth of one card.
# - **The puzzle** was a matter of accounting: reduce-scatter's S is its input, and 72.2 · 4 = 289 GiB/s. And
#   you measured how far off bad benchmarks are: from 7 % for a wrong unit to orders of magnitude for a
#   missing synchronize.
#
# **Your turn**: [the exercise](../../exercises/03_benchmarking/exercise.ipynb). You write `benchmark` against
# clocks that cannot be fooled, audit a log, and measure an unknown cluster. Then lecture 04 puts an
# all-reduce into training.
#
# **Sources and further reading.** [Stanford CS336 (spring 2025), lecture
# 8](https://github.com/stanford-cs336/spring2025-lectures), with its log · NVIDIA,
# [*nccl-tests*](https://github.com/NVIDIA/nccl-tests),
# [`doc/PERFORMANCE.md`](https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md) and `src/*.cu` · Bekman, [*Machine
# Learning Engineering*](https://github.com/stas00/ml-engineering), [chapter on
# networks](https://github.com/stas00/ml-engineering/tree/master/network) · Hockney, [*The communication challenge for
# MPP*](https://doi.org/10.1016/S0167-8191%2806%2980021-9) (1994), for α and β · Thakur, Rabenseifner and Gropp, [*Optimization of
# collective communication operations in MPICH*](https://doi.org/10.1177/1094342005051521) (2005), for rings against trees ·
# PyTorch 2.13,
# [`ProcessGroupGloo.cpp`](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/csrc/distributed/c10d/ProcessGroupGloo.cpp), and
# [pull request 118911](https://github.com/pytorch/pytorch/pull/118911)

# %%
# %ranks stop
