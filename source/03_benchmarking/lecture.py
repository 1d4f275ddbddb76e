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
# **Everybody who trains on many GPUs quotes a bandwidth. How do you get one that is true, and how do you see that one is not?**
#
# You will
#
# - build a benchmark step by step, each step because the one before gave a wrong answer,
# - turn seconds into bandwidths that can be compared, model them with two numbers, and predict when a tree beats a ring,
# - settle a puzzle from a well-known lecture, "277 GB/s for all-reduce, but 70 for reduce-scatter", and measure how large the lies of bad
#   benchmarks are.
#
# 75 minutes · 4 ranks · Gloo on any laptop, NCCL on a machine with 4 GPUs (the same cells then show its numbers, beside Gloo's)
#
# [The exercise](../../exercises/03_benchmarking/exercise.ipynb) · [notation](../../docs/notation.md) · [cheat sheet](../../docs/cheat_sheet.md) · [glossary](../../docs/glossary.md) · [concept map](../../docs/concept_map.md)
#
# As always: put your prediction into the variable before you run on. `None` works too.

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
# Begin in the simplest way: a new process group, a new tensor of ten million float32, 40 MB, an all-reduce of it, twelve times in a row,
# and every rank times every call.
#
# **Question.** How many times as long as a typical call does the very first one take?

# %%
first_over_typical = None  # your prediction: a factor

# %%
# %%ranks
import time

group = dist.new_group()  # one that has never been used, as at the start of a training
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
# Twelve calls of the same operation on the same tensor, and hardly any two take equally long. The first one sets up what the later ones
# find ready: connections, and memory that was never touched, which the operating system hands out page by page. On GPUs NCCL builds the
# communicator itself at the first call, with its rings, which takes from tens of milliseconds to seconds. None of it is what a training run
# with a million steps will see.
#
# **Warm-up**: call the thing a few times before the clock matters, and throw these times away.
#
# The rest of the scatter is harder. Whose time is the right one, and which call's?

# %% [markdown]
# ## 2. Whose clock?
#
# In training the ranks do not arrive together: one of them had a longer sentence to read. Let rank 2 come 40 ms late to every call.
#
# **Question.** An all-reduce of 4 MB takes a tenth of the time in the figure above. What will
# rank 2's clock say? And what will rank 0's say if all meet in a barrier before they start it?

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
# Without a barrier rank 0 has mostly timed its own waiting: 40 ms of it, and a little communication. Rank 2 saw only the end of an
# operation that the others had begun. Neither is a property of the network.
#
# **Barrier, then the clock**: meet first, so that all start together. Then the operation takes as long as its **slowest rank**: what comes
# next needs the result everywhere. So the ranks' times are combined by their *maximum*. A mean over ranks, or rank 0's own clock, would say
# that the operation is over before it is.

# %% [markdown]
# ## 3. When is it over?
#
# **Question.** An all-reduce of 40 MB is started with `async_op=True`. After how many milliseconds does the call return, and after how many
# is the sum there?

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
# If you stop the clock when the call returns, you measure how long it takes to ask for the sum, not to get it. On Gloo that needs
# `async_op=True`. **On a GPU every call is like that**: it puts a kernel into a queue and returns, in some 10 µs, whether the tensor has 4
# bytes or 4 GB. Hence
#
# **Synchronize**: `torch.cuda.synchronize()` before the clock stops, so that the work is done; *and* before it starts, so that work from
# earlier lines is not counted. On a CPU there is nothing to wait for, and code for both asks `device.type` first. (CUDA events are the
# other way: the GPU notes the times itself.)

# %% [markdown]
# ## 4. Mean or median?
#
# Measurements are disturbed: a backup starts, a neighbour's job wakes up, a clock is throttled. We do it on purpose. In three of 33 calls
# rank 1 finds its processor taken away for 200 ms.
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
all_33 = list(map(max, *world.pull("seconds")))  # of each call the slowest rank
other_30 = [t for call, t in enumerate(all_33) if call not in (5, 15, 25)]
factors = {
    "mean": statistics.mean(all_33) / statistics.mean(other_30),
    "median": statistics.median(all_33) / statistics.median(other_30),
}
compare(factors, yours=moved, unit="×", title="All 33 calls, divided by the 30 that nobody disturbed")

# %% [markdown]
# A few calls out of 33 decide the mean; the median hardly notices. The minimum notices least. It answers another question: what a machine
# *can* do when nothing interferes, as in lecture 01's copies. What a training will *get* is the median. A median needs one time *per call*.
# One clock around all 33, divided by 33, is a mean, whatever comes later.

# %% [markdown]
# ## 5. The benchmark
#
# Warm-up, barrier, synchronize, slowest rank, median: `fourranks.bench` does all five, and the exercise has you write what it does. Put it
# beside the first try, one clock around one call, for the 4 MB of `x`.
#
# **Question.** Each is done five times. By which factor do the five answers of the first try differ, the largest over the smallest, and
# by which those of the benchmark?

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
# All ranks say the same of the benchmark (one line with the label `[0-3]`), and its answers differ by what this machine does at this moment.
# nccl-tests, NVIDIA's own benchmark, works in the same way but for three points. It
# puts 20 calls on one reading of the clock, after 5 for warm-up, and reports a mean over calls: for large tensors that makes no difference,
# for small ones it hides the time to launch a kernel (`bench.benchmark(…, calls=20)` does the same). And by default it *averages* over the
# ranks, which section 2 has called wrong; with `-a 3` it reports the slowest rank's time.

# %% [markdown]
# ## 6. From seconds to bandwidths
#
# The lecture that this course grew from all-reduces 100 · 1024² float32 on 4 H100s: 419 MB (not 400, as some retell it) in 2.11 ms. Ours is
# a sixteenth of that: 26 MB.
#
# **Question.** How many GB/s does this machine reach? (GB are 10⁹ bytes.) Guess both: tensor bytes over time, and bytes that each rank has
# to send over time.

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
# - **algbw** = S / t: how fast the operation got through the array. S is the *whole* array.
# - **busbw** = algbw · factor: how many bytes each rank had to send in that second. This is what can be compared with the speed of a
#   **link**, and it stays the same when ranks are added, as long as the links are the limit.
#
# The factor is the share of S that has to leave a rank. For the all-reduce that is 2 (N − 1)/N: it is a reduce-scatter and an all-gather, and
# in each a rank sends all chunks but one. For every other operation ask the same question; in the exercise you answer it for all of
# nccl-tests'. Two things are easily taken for something else. S is always the *whole* array: a rank's whole **input** of a reduce-scatter,
# its whole **output** of an all-gather. And a rank in the middle of a broadcast passes on all of S, so its factor is 1.
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
# - **2 S / (N t)**, from one set of lecture notes, forgets that each rank sends N − 1 of N chunks; the lecture's 277 would be 93. The
#   reason given, "N ranks, so the total time is N · t", is wrong: the N in the denominator counts the links that *share* 2 (N − 1) S
#   bytes, at the same time.
# - **2 N S / t**, from another, adds up all ranks and divides by nothing. It prints 1,480 for the same run: more than any link of that
#   machine can do, which should make anybody stop.
# - **The 2 is not "send and receive"**: it counts two *phases*. Links carry bytes in both directions at once, and what a rank receives is
#   not added.
# - **1024³** bytes are a GiB. The famous 277 "GB/s" are 277.7 GiB/s: 298 GB/s. The unit alone makes a difference of seven percent.
#
# And what to compare with? That lecture says "far below 900 GB/s". An H100's 900 is the sum of both directions of its 18 links; busbw is
# one direction, 450. So 298 of 450, 66 %, at 4 GPUs and 400 MiB. For larger arrays 80 % is usual. More than 100 % occurs as well, in three
# ways. With NVLink SHARP the *switch* adds, a rank sends less than a ring would, and busbw, which counts a ring's bytes, reports 482. A
# tree on two nodes sends less through the border than a ring, too. And in nodes with several network cards busbw may be many times *one
# card's* bandwidth, since it counts a rank's bytes and all cards share them (section 7).

# %% [markdown]
# ## 7. The sweep
#
# One size is one point. From here on: many sizes, several collectives, each backend that there is.
#
# **Question.** 1 KiB takes almost as long as 64 KiB: what is paid there is the call itself. From which size on, roughly, does an all-reduce
# on this machine pay mainly for bytes?

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
# The **α–β model** has two numbers: t = α + β · S. α is what a call costs however small it is, β what each byte adds, and at S = α/β both
# are equal: left of it you are **latency-bound**, right of it **bandwidth-bound**. (The fit minimizes *relative* errors. With absolute
# ones, a few percent of the largest time would be more than all of the small times, and α would be noise; the exercise lets you see that.)
#
# `sendrecv` is one message to the right while one comes from the left. From its α and β follow predictions for algorithms that are made of
# messages:

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
# Points are measured, lines are models. Left of α/β a call costs about α whatever it carries, right of it the time rises with S.
#
# | all-reduce by | messages one after another | time |
# |---|---|---|
# | ring | 2 (N − 1), of S/N bytes each | 2 (N − 1) α + 2 (N − 1)/N · β S |
# | tree, up and down | 2 ⌈log₂ N⌉, of S bytes each | 2 ⌈log₂ N⌉ (α + β S) |
# | tree, pipelined | 2 ⌈log₂ N⌉, then a piece at a time | 2 ⌈log₂ N⌉ α + 2 β S |
# | halving and doubling | 2 log₂ N, of S/2, S/4, … bytes | 2 log₂ N α + 2 (N − 1)/N · β S |
#
# Where a line is low at the left, few messages pay off; where it is low at the right, few bytes do. Gloo uses a ring. (All four ranks share
# this machine's cores and memory, so take the models for shapes, not for digits.) NCCL has a ring, the pipelined tree (two of them at a
# time, see lecture 02) and some more, and chooses for each size by a model like this one: latencies and bandwidths of each, from a table.
#
# The other operations follow from the same two numbers. A broadcast along a chain of k pieces takes (N − 2 + k)(α + β S/k). A scatter or
# gather takes (N − 1) α + (N − 1)/N · β S at the root, one message after another, and ⌈log₂ N⌉ α + (N − 1)/N · β S in a tree that passes on
# halves. (nccl-tests has one more pattern, `hypercube`: an all-gather by doubling, log₂ N messages, N − 1 parts.)
#
# **Question.** For 4 ranks, ring and *unpipelined* tree are equal at one size. Where does this crossover move for 64 ranks, and for 1,024?

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
            f"{name}, {n:5,} ranks: tree {plain / 2**20:10,.2f} MiB, pipelined {pipelined / 2**20:12,.0f} MiB"
        )

# %% [markdown]
# With more ranks a ring has more stops to make, whatever it carries. The unpipelined tree pays for all bytes in every round, so its
# crossover grows like N / log₂ N only: 54 MiB on 1,024 ranks behind network cards. The pipelined tree pays for them twice, hardly more than
# a ring, and its crossover grows like N²: there it is some 480 GiB. So on a thousand ranks trees win at nearly every size that occurs, and
# on one node rings win at nearly every size that matters. (The crossovers of this machine follow from Python's α, which is far above a
# GPU's; only their growth is worth remembering.)
#
# Move the sliders: how many ranks does it take until the pipelined tree wins up to 1 GiB, behind network cards of 10 µs and 50 GB/s and
# inside a node? And which way do α and β move a crossover?

# %%
from fourranks.figures import playgrounds

playgrounds.all_reduce_algorithms()

# %% [markdown]
# ### Nodes with eight cards
#
# All of this took links to be equal. They are not: inside a node NVLink carries 450 GB/s, and at its border there is one network card of 50
# GB/s *for each GPU*. A ring through all GPUs of four nodes has to leave each node once. Through one card, all of its bytes would pass at
# 50 GB/s. So NCCL plans **eight rings**, each for an eighth of the tensor, and each leaves the node through another card. A byte passes a
# border once in its own ring, and eight cards share the work: busbw, which counts what a *rank* sends, can come near 8 · 50 = **400 GB/s**,
# though no card carries more than 50.
#
# The same can be planned as a **hierarchical all-reduce**:
#
# 1. a reduce-scatter inside each node, over NVLink, after which each GPU has the node's sum of one eighth,
# 2. an all-reduce of this eighth among the GPUs of the same number in all nodes (a *rail*), each through its own card,
# 3. an all-gather inside each node.
#
# As it stands the phases come one after another; NCCL cuts the tensor into pieces, so that NVLink and cards work at the same time. Let our
# four ranks play two nodes of two.
#
# **Question.** An all-reduce of S bytes. How much crosses the border of a node through one card, in a flat ring through one card, and in a
# hierarchical all-reduce?

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
# A third for each card: half of the tensor, all-reduced between two nodes instead of four ranks. And four nodes of eight B200, from
# published bandwidths, beside what others have measured there with 16 GiB:

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
# So there are two rules for the border of a node. With **one GPU and one card** in each node, a rank's bytes pass at 50 GB/s. With **eight
# GPUs and eight cards**, collectives over all ranks get up to 400 GB/s for each rank. But a *single* pair of ranks that talks across the
# border (a pipeline's neighbours) still has its one card. For small tensors the hierarchy has another advantage: it crosses the border in 2
# (nodes − 1) steps instead of 2 (ranks − 1).
#
# Now in bandwidths. Each collective has its factor, so that equal links should give equal busbw:

# %%
bandwidths = {f"{name} {c}": points(name, c, "busbw") for name in worlds for c in names[:3]}
sizes(bandwidths, unit="B/s", title=f"busbw over S, {' and '.join(worlds)}, 4 ranks")

# %% [markdown]
# On NCCL the three curves meet at large S, as on the machine with eight H200s that others have measured (16 GiB, rings): **367**
# GB/s for all-reduce, **363** for reduce-scatter, **361** for all-gather.
#
# On Gloo reduce-scatter must fall behind: **Gloo's reduce-scatter is an all-reduce of the whole input followed by a copy of one chunk**
# (its source says so). It takes about as long as the operation of which it is half, plus the copy. Remember this for the next section:
# whatever Gloo says about reduce-scatter is no evidence about NVLink.
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
# The bytes are the same; α was paid 256 times. (On GPUs: one all-reduce of 4 GB against a thousand of 4 MB, about 3 times.) So gradients
# are not sent tensor by tensor but in *buckets*: lecture 04.
#
# What else moves these numbers? Three of them can be varied here: a tensor's layout (one that is not contiguous has to be copied), the
# number of ranks, and who is in the group.

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
# What cannot be varied on one machine is at least as important: which links lie between the ranks, and switches that add. Take every number
# for what it is: *this* operation, size, machine, version. Compare runs of one benchmark with each other, and be careful when you compare
# them with somebody else's.

# %% [markdown]
# ## 8. The puzzle: 277 against 70
#
# The lecture's second measurement is a reduce-scatter, on the same 4 H100s. It printed 72 to 75 "GB/s" (students wrote down 70), against
# 272 to 278 for all-reduce. The retellings explain it with hardware that helps all-reduce only (SHARP), with "optimization patterns", or
# with a reduce-scatter that "naturally reports less". Investigate.
#
# **Clue 1: the times.** The lecture's log has 2.11 ms for the all-reduce and 4.06 ms for the reduce-scatter. Suspicious already: half an
# operation takes twice as long.
#
# **Clue 2: the shapes.** The all-reduce works on 100 · 1024² float32. The reduce-scatter's *input* has the shape (world size, 100 · 1024²),
# its *output* (100 · 1024²).
#
# **Clue 3: the code.** For reduce-scatter it computes bytes = output.element_size() · output.numel(), and then bytes · (N − 1) / (N · t) /
# 1024³. The all-reduce gets a 2 in front.
#
# First, can we reproduce what was printed?

# %%
out, gib = 4 * 100 * 1024**2, 1024**3
reported = {
    "all_reduce": out * 2 * 3 / (4 * 2.11e-3) / gib,
    "reduce_scatter": out * 3 / (4 * 4.06e-3) / gib,
}
print({name: f"{value:.1f}" for name, value in reported.items()})

# %% [markdown]
# To the digit. So the question is whether the formula is right.
#
# **Question.** Take the definitions of section 6. What is S of this reduce-scatter, in multiples of `out`? And what is the busbw that nccl-tests
# would have printed, in the same unit? Write your own figure down before you run on.

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
    reported,
    corrected,
    {"reduce_scatter": your_busbw},
    "GiB/s",
    title,
    "as printed",
    "by nccl-tests' formula",
)

# %% [markdown]
# **There is no gap.** S of a reduce-scatter is the whole input, N times the output; the lecture counted the output. So what it printed is
# busbw / N: 72.2, and times four that is 289 GiB/s, **310 GB/s**: a little *faster* than the all-reduce's 298. The times say the same
# without any definition: the reduce-scatter got through four times the data in twice the time, so for equal data it takes half. Half an
# all-reduce takes half the time of an all-reduce.
#
# Two checks from elsewhere:
#
# - On 8 H200s, measured by nccl-tests with rings, all-reduce and reduce-scatter have the same busbw: 367 and 363 GB/s.
# - SHARP does exist, and does lift all-reduce alone: from 367 to 482 there, with eight GPUs. With **four**, as in the lecture, NCCL chose a
#   ring, and the gain was 1.00×. So it cannot explain a factor of four on that machine.
#
# Could we have confirmed it here? Let us see what this machine says, for equal S:

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
# NCCL needs about a half. Gloo cannot, since its reduce-scatter is an all-reduce (section 7), and it would have "confirmed" that
# reduce-scatter is slow, for a reason of its own. A wrong explanation can always find a measurement that agrees with it. Here the evidence
# is the algebra.

# %% [markdown]
# ## 9. How benchmarks lie
#
# Five lies, told on purpose, each beside a correct measurement from the same minute. The ranks arrive up to 90 ms apart, as in training
# they may.
#
# **Question.** By which factor does the *bandwidth* come out wrong: above 1 too high, below 1 too low?

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
    """This rank's seconds of one call, with a barrier before it or without."""
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


group = dist.new_group()  # one that has never been used
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
# | lie | direction | mended by |
# |---|---|---|
# | no warm-up | too low; on NCCL, whose first call builds the communicator, by orders of magnitude | calls before the clock |
# | no synchronize | far too high, and the more so the larger the tensor: the time does not depend on it | synchronize before both readings |
# | no barrier | too low on ranks that came early, too high on the last one | barrier, then the clock |
# | one sample | anything | many, and their median |
# | wrong bytes | a factor that follows from N: N²/(N − 1) too high here, N too low in the puzzle | S and factor of nccl-tests |
#
# The lecture's own measurement timed *one* call, by `time.time()` (which may be set while you measure; `time.perf_counter()` may not), with
# the closing barrier *inside* the timed region, and on a CPU without a barrier before the clock. A retelling left out the synchronize
# before the start as well. None of that changed its picture much, because 2 ms are long compared with a barrier; the bytes did.
#
# When you read somebody's number, ask: which S? which factor? GB or GiB? what was the clock around? how many times? When it is above the
# speed of the link, do not be impressed.

# %% [markdown]
# ## 10. Beside nccl-tests
#
# On a rented machine the first number to take is NVIDIA's own, so that you know what the hardware can do before you blame your code:
#
# ```
# git clone https://github.com/NVIDIA/nccl-tests && make -C nccl-tests
# export NCCL_TESTS=$PWD/nccl-tests/build
# $NCCL_TESTS/all_reduce_perf -b 1M -e 256M -f 4 -g 4
# ```
#
# Where there are GPUs, and `NCCL_TESTS` names that folder, the next cell runs it and puts `fourranks.bench` beside it: they should agree
# within 3 %. Elsewhere it reads a listing that someone recorded on eight H100s, and then there is nothing of ours to put beside it.

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
# Check that you can read it: 2 GiB in 7,985 µs are 269 GB/s, times 2 · 7/8 gives 471. More than the link's 450: the switch has added (this
# is SHARP, on one node). The two halves of a line are **out of place** and **in place**; torch's all-reduce is in place. `#wrong` must be
# 0, and `N/A` means that nobody looked.

# %% [markdown]
# ## 11. Profiling a step
#
# A benchmark says what a collective can do. A **profile** says what it does in your step. Here is one: a small multilayer perceptron,
# forward, backward, and then all gradients added up, tensor by tensor.
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
# | the collective shows up as | `c10d::allreduce_` and a CPU thread `gloo:all_reduce` | a launch of µs on the CPU, and a kernel `ncclDevKernel_AllReduce_Sum_f32_RING_LL` on a stream of its own |
# | "gradients" on the CPU | the whole communication: the CPU waits | the time to *launch* it; look at the GPU's rows |
# | waiting for a slow rank | a long call | a long kernel: it spins until the others have come, and keeps the GPU "100 % utilized" |
#
# The last line is the trap: a kernel that waits looks busy. A long NCCL kernel on rank 0 may mean a slow rank 3, and only a look at *all*
# ranks shows it.
#
# One step is one sample. For a profile to keep, let the profiler wait a step, warm up in the next, and record three; let it count memory,
# and write its timeline into a file.

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
# Eight gradients, eight all-reduces, one after another, and all of them after the backward pass is over. The weights' are large and the
# biases' tiny, and the tiny ones pay α as well. Lecture 04 sends them in one piece, and while the backward pass still runs. But that is an
# optimization, and the order is always the same: **measure first**, then change one thing, then measure again.

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
# - **A benchmark, step by step**: warm-up (the first call sets up what later ones find), barrier (a rank must not time how long it waits
#   for others), synchronize (asking is not doing), the slowest rank, the median. `fourranks.bench` does all of them.
# - **algbw and busbw** as nccl-tests defines them; α and β, the latency-bound and the bandwidth-bound side, a ring against trees with and
#   without a pipeline, one large against many small; and why 32 GPUs in nodes with eight cards reach nearly eight times one card.
# - **The puzzle** was the accounting: reduce-scatter's S is its input, and 72.2 · 4 = 289 GiB/s. And the lies of benchmarks have sizes:
#   from 7 % for a unit to orders of magnitude for a missing synchronize.
#
# **Your turn**: [the exercise](../../exercises/03_benchmarking/exercise.ipynb). You write `benchmark` against clocks that cannot be fooled,
# audit a log, and measure a cluster that nobody has described. Then lecture 04 puts an all-reduce into training.
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
