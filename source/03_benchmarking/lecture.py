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
# As always: put your prediction into the variable before you run on. `None` works too.

# %%
# %load_ext fourranks
import statistics

import fourranks
from fourranks import bench
from fourranks.figures import compare, nccl_tests
from fourranks.figures.alpha_beta import crossover_bytes, fit_alpha_beta, ring_all_reduce, tree_all_reduce
from fourranks.figures.timings import calls, ratios, sizes
from fourranks.trace.bandwidth import busbw, busbw_factor

# %ranks start

# %%
world = fourranks.world()
backend = {"gloo": "Gloo", "nccl": "NCCL"}[world.backend]
print(f"{world.world_size} ranks, {backend}, on {world.device}")

# %% [markdown]
# ## 1. A first try
#
# Begin in the simplest way: an all-reduce of one million float32, 4 MB, twenty times in a row, and every rank times every call.
#
# **Question.** How many times as long as a typical call does the very first one take?

# %%
first_over_typical = None  # your prediction: a factor

# %%
# %%ranks
import time

x = torch.zeros(1_000_000, device=device)
seconds = []
for _ in range(20):
    start = time.perf_counter()
    dist.all_reduce(x)
    seconds.append(time.perf_counter() - start)

# %%
seconds = world.pull("seconds")
first, typical = max(own[0] for own in seconds), statistics.median(map(max, *seconds))
print(f"you predicted: {first_over_typical}   measured: {first / typical:.2g}")
calls(seconds, f"20 calls of all_reduce, 4 MB, {backend}, 4 ranks")

# %% [markdown]
# Twenty calls of the same operation on the same tensor, and hardly any two take equally long. The first ones set up what the later ones
# find ready: memory that was never touched, connections, on GPUs the communicator itself (NCCL builds its rings at the first call, which
# takes from tens of milliseconds to seconds). They are not what a training run with a million steps will see.
#
# **Warm-up**: call the thing a few times before the clock matters, and throw these times away.
#
# The rest of the scatter is harder. Whose time is the right one, and which call's?

# %% [markdown]
# ## 2. Whose clock?
#
# In training the ranks do not arrive together: one of them had a longer sentence to read. Let rank 2 come 40 ms late to every call.
#
# **Question.** The all-reduce itself takes the few milliseconds of the figure above. What will rank 0's clock say, and what rank 2's?

# %%
late_ms = {"rank 0": None, "rank 2": None}  # your predictions, in ms


# %%
# %%ranks
def one_call(meet):
    """Seconds of one all-reduce on this rank, when rank 2 comes 40 ms late."""
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
yours = {f"{name}, no barrier": guess for name, guess in late_ms.items()}
compare(measured, yours=yours, unit="ms", title=f"One all_reduce of 4 MB, rank 2 late, {backend}")

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
# A few calls out of 33 decide the mean; the median hardly notices. (The minimum notices least, and describes a machine that nobody has: it
# is the luckiest call.) A median needs one time *per call*. One clock around all 33, divided by 33, is a mean, whatever comes later.

# %% [markdown]
# ## 5. The benchmark
#
# Warm-up, barrier, synchronize, slowest rank, median. That is all of it:

# %%
# %%ranks
import statistics


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def benchmark(run, *, warmup, iterations, device, group=None):
    """Seconds of one `run()`: the median over iterations of the slowest rank, the same on every rank."""
    for _ in range(warmup):
        run()
    seconds = []
    for _ in range(iterations):
        synchronize(device)
        dist.barrier(group)
        start = time.perf_counter()
        run()
        synchronize(device)
        seconds.append(time.perf_counter() - start)
    slowest = torch.tensor(seconds, dtype=torch.float64, device=device)
    dist.all_reduce(slowest, dist.ReduceOp.MAX, group=group)  # of each iteration
    return statistics.median(slowest.tolist())


# %% [markdown]
# `fourranks.bench` has the same function, so that it need not be typed again. Let them compete:

# %%
# %%ranks
from fourranks import bench

options = {"warmup": 3, "iterations": 21, "device": device}
ours = benchmark(lambda: dist.all_reduce(x), **options)
theirs = bench.benchmark(lambda: dist.all_reduce(x), **options)
print(f"{1000 * ours:.2f} ms here, {1000 * theirs:.2f} ms by fourranks.bench")

# %% [markdown]
# All ranks say the same (one line with the label `[0-3]`), and the two functions differ by no more than two runs of one of them: how much
# that is depends on what else this machine does. nccl-tests, NVIDIA's own benchmark, works in the same way but for two points: it puts 20
# calls on one reading of the clock, and reports a mean. For large tensors that makes no difference; for small ones it hides the time to
# launch a kernel (`bench.benchmark(…, calls=20)` does the same).

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
print(f"S = {run.num_bytes:,} bytes, t = {1000 * run.seconds:.2f} ms, n = {run.world_size}")
measured = {"algbw": run.algbw / 1e9, "busbw": run.busbw / 1e9}
compare(measured, yours=gb_per_s, unit="GB/s", title=f"all_reduce, {backend}, 4 ranks")

# %% [markdown]
# These are the two bandwidths of **nccl-tests**, which the whole field quotes:
#
# - **algbw** = S / t: how fast the operation got through the array. S is the *whole* array.
# - **busbw** = algbw · factor: how many bytes each rank had to send in that second. This is what can be compared with the speed of a
#   **link**, and it stays the same when ranks are added, as long as the links are the limit.
#
# The factor is the share of S that has to leave a rank:
#
# | operation | S | factor | because |
# |---|---|---|---|
# | all-reduce | the tensor | 2 (n − 1)/n | a reduce-scatter and an all-gather, each (n − 1)/n |
# | reduce-scatter | a rank's whole *input* | (n − 1)/n | all chunks but its own |
# | all-gather | a rank's whole *output* | (n − 1)/n | all chunks but its own |
# | all-to-all | a rank's whole input | (n − 1)/n | all chunks but its own |
# | scatter, gather | all parts together | (n − 1)/n | at the root; its own part stays |
# | broadcast, reduce, send | the tensor | 1 | a rank that passes it on passes on all of it |
#
# So where do other formulas come from? One measurement, five ways to print it:

# %%
n, alg = run.world_size, run.algbw
printed = {
    "busbw: 2 (n−1)/n · S/t": run.busbw / 1e9,
    "2 S / (n t)": 2 * alg / n / 1e9,
    "2 n S / t": 2 * n * alg / 1e9,
    "sent + received": 2 * run.busbw / 1e9,
    "busbw, divided by 1024³": run.busbw / 1024**3,
}
compare(printed, unit="GB/s", title="One measurement, printed in five ways")

# %% [markdown]
# - **2 S / (n t)**, from one set of lecture notes, forgets that each rank sends n − 1 of n chunks; the lecture's 277 would be 93. The
#   reason given, "n ranks, so the total time is n · t", is wrong: the n in the denominator counts the links that *share* 2 (n − 1) S
#   bytes, at the same time.
# - **2 n S / t**, from another, adds up all ranks and divides by nothing. It prints 1,480 for the same run: more than any link of that
#   machine can do, which should make anybody stop.
# - **The 2 is not "send and receive"**: it counts two *phases*. Links carry bytes in both directions at once, and what a rank receives is
#   not added.
# - **1024³** bytes are a GiB. The famous 277 "GB/s" are 277.7 GiB/s: 298 GB/s. The unit alone makes a difference of seven percent.
#
# And what to compare with? That lecture says "far below 900 GB/s". An H100's 900 is the sum of both directions of its 18 links; busbw is
# one direction, 450. So 298 of 450, 66 %, at 4 GPUs and 400 MiB. For larger arrays 80 % is usual. More than 100 % occurs as well: with
# NVLink SHARP the *switch* adds, a rank sends less than a ring would, and busbw, which counts a ring's bytes, reports 480.

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
models = {
    "fit: α + β S": [(s, own[0] + own[1] * s) for s in grid],
    "ring of messages": [(s, ring_all_reduce(4, s, alpha, beta)) for s in grid],
    "tree of messages": [(s, tree_all_reduce(4, s, alpha, beta)) for s in grid],
}
times = {f"{name} all_reduce": points(name, "all_reduce") for name in worlds}
sizes(times, models, "s", f"all_reduce on 4 ranks, and models from {backend}", own[0] / own[1], turning_point)

# %% [markdown]
# Points are measured, lines are models. On the left the points lie flat: a thousand bytes or a hundred thousand, the price is the same. On
# the right they rise with S.
#
# | all-reduce by | messages one after another | time |
# |---|---|---|
# | ring | 2 (n − 1), of S/n bytes each | 2 (n − 1) α + 2 (n − 1)/n · β S |
# | tree, up and down | 2 ⌈log₂ n⌉, of S bytes each | 2 ⌈log₂ n⌉ (α + β S) |
#
# Where the tree's line is below the ring's, it pays to send few messages; where it is above, it pays to send few bytes. Gloo uses a ring;
# its points follow the ring's slope on the right, and at the left they may beat it, because a message inside Gloo's ring costs less than
# one that Python has sent. (All four ranks share this machine's cores and memory, so take the models for shapes, not for digits.) NCCL has
# both algorithms, and some more, and chooses for each size from a model like this one.
#
# **Question.** For 4 ranks ring and tree are equal at one size. Where does this crossover move for 64 ranks, and for 1,024?

# %%
crossover_mib = {"4 ranks": None, "64 ranks": None, "1024 ranks": None}  # your predictions, in MiB

# %%
crossover = {f"{n} ranks": crossover_bytes(n, alpha, beta) / 2**20 for n in (4, 64, 1024)}
compare(
    crossover,
    yours=crossover_mib,
    unit="MiB",
    title="Below this size the tree is faster",
    label="by the model",
)

# %% [markdown]
# With more ranks a ring has more stops to make, whatever it carries, and the crossover grows about like n / log₂ n: what is large on one
# node is small on a thousand ranks.
#
# Now in bandwidths. Each collective has its factor, so that equal links should give equal busbw:

# %%
bandwidths = {f"{name} {c}": points(name, c, "busbw") for name in worlds for c in names[:3]}
sizes(bandwidths, unit="B/s", title=f"busbw over S, {' and '.join(worlds)}, 4 ranks")

# %% [markdown]
# On NCCL the three curves meet at large S, as on the machine with eight H200s that others have measured (16 GiB, rings): **367**
# GB/s for all-reduce, **363** for reduce-scatter, **361** for all-gather.
#
# On Gloo they do not, and reduce-scatter falls behind. That is Gloo, not the operation: **Gloo's reduce-scatter is an all-reduce of the
# whole input followed by a copy of one chunk** (its source says so). So it takes no less time than the operation of which it is half; with
# the copies, rather more. Remember this for the next section: whatever Gloo says about reduce-scatter is no evidence about NVLink.
#
# For orientation, others' numbers on NCCL, as busbw of a large all-reduce:
#
# | machine | busbw | of the link's one direction |
# |---|---|---|
# | 8 × A100, NVLink 3 | 235 GB/s | 78 % of 300 |
# | 8 × H200, NVLink 4, ring | 367 GB/s | 82 % of 450 |
# | the same with SHARP | 482 GB/s | 107 %: the switch adds |
# | 8 × B200, NVLink 5 | 846 GB/s | 94 % of 900 |
# | 32 × B200 in 4 nodes | 382 GB/s | InfiniBand between them |
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
    f"one: {one_ms:.1f} ms, many: {many_ms:.1f} ms; you predicted: {many_over_one}, measured: {many_ms / one_ms:.1f}"
)

# %% [markdown]
# The bytes are the same; α was paid 256 times. (On GPUs: one all-reduce of 4 GB against a thousand of 4 MB, about 3 times.) So gradients
# are not sent tensor by tensor but in *buckets*: lecture 04.
#
# What else moves these numbers: the layout of tensors, the number of ranks, which links lie between them, the algorithm, switches that add.
# Take every number for what it is: *this* operation, size, machine, version. Compare runs of one benchmark with each other, and be careful
# when you compare them with somebody else's.

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
# **Clue 3: the code.** For reduce-scatter it computes bytes = output.element_size() · output.numel(), and then bytes · (n − 1) / (n · t) /
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
# **Question.** Take the table of section 6. What is S of this reduce-scatter, in multiples of `out`? And what is the busbw that nccl-tests
# would have printed, in the same unit? Write your own figure down before you run on.

# %%
s_over_out = None  # your answer: a multiple
your_busbw = None  # your corrected figure for reduce-scatter, in GiB/s

# %%
corrected = {
    "all_reduce": busbw("all_reduce", out, 2.11e-3, 4) / gib,
    "reduce_scatter": busbw("reduce_scatter", 4 * out, 4.06e-3, 4) / gib,
}
print(f"S / out: you said {s_over_out}, it is 4;  reported · n = {4 * reported['reduce_scatter']:.1f}")
title = "4 × H100: as printed, and by nccl-tests' formula"
compare(reported, corrected, {"reduce_scatter": your_busbw}, "GiB/s", title)

# %% [markdown]
# **There is no gap.** S of a reduce-scatter is the whole input, n times the output; the lecture counted the output. So what it printed is
# busbw / n, and times four it is 289 GiB/s, **310 GB/s**: a little *faster* than the all-reduce's 298. The times say the same without any
# definition: the reduce-scatter got through four times the data in twice the time, so for equal data it takes half. Half an all-reduce
# takes half the time of an all-reduce.
#
# Two checks from elsewhere:
#
# - On 8 H200s, measured by nccl-tests with rings, all-reduce and reduce-scatter have the same busbw: 367 and 363 GB/s.
# - SHARP does exist, and does lift all-reduce alone: from 367 to 480 there, with eight GPUs. With **four**, as in the lecture, NCCL chose a
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

# %% [markdown]
# NCCL: about a half. Gloo: more than one, and it would have "confirmed" that reduce-scatter is slow, for its own reason (section 7). A
# wrong explanation can always find a measurement that agrees with it. Here the evidence is the algebra.

# %% [markdown]
# ## 9. How benchmarks lie
#
# Five lies, told on purpose, each beside a correct measurement from the same minute. The ranks arrive up to 9 ms apart, as in training they do.
#
# **Question.** By which factor does the *bandwidth* come out wrong: above 1 too high, below 1 too low?

# %%
lie_factors = {  # your predictions
    "no warm-up": None,
    "no synchronize": None,
    "no barrier (rank 0's clock)": None,
    "one sample, the luckiest": None,
    "one sample, the unluckiest": None,
    "wrong bytes: 2 n S": None,
}


# %%
# %%ranks
def clock(run, meet=True):
    """This rank's seconds of one call, with a barrier before it or without."""
    time.sleep(0.003 * rank)
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
z = torch.empty(1_000_000, device=device)


def all_reduce():
    dist.all_reduce(z, group=group)


told = {"no warm-up": clock(lambda: finished(all_reduce))}

# %%
# %%ranks
truth = bench.benchmark(all_reduce, warmup=3, iterations=31, device=device)
handles = []
told["no synchronize"] = clock(lambda: handles.append(dist.all_reduce(z, group=group, async_op=True)))
handles[0].wait()
told["no barrier (rank 0's clock)"] = statistics.median(
    clock(lambda: finished(all_reduce), meet=False) for _ in range(9)
)
samples = bench.samples(all_reduce, 0, 31, device)
told["one sample, the luckiest"], told["one sample, the unluckiest"] = min(samples), max(samples)

# %%
truth, told = world.pull("truth")[0], world.pull("told")[0]
lies = {name: truth / seconds for name, seconds in told.items()}
lies["wrong bytes: 2 n S"] = 2 * 4 / busbw_factor("all_reduce", 4)
ratios(lies, lie_factors, f"Bandwidth told / true, all_reduce of 4 MB, {backend}, 4 ranks")

# %% [markdown]
# | lie | direction | mended by |
# |---|---|---|
# | no warm-up | too low; on NCCL by orders of magnitude | calls before the clock |
# | no synchronize | far too high, and the more so the larger the tensor: the time does not depend on it | synchronize before both readings |
# | no barrier | too low on ranks that came early, too high on the last one | barrier, then the clock |
# | one sample | anything | many, and their median |
# | wrong bytes | a factor that follows from n: n²/(n − 1) too high here, n too low in the puzzle | S and factor of nccl-tests |
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
# within 3 %. Elsewhere it reads a listing that someone recorded on eight H100s.

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
# is SHARP). The two halves of a line are **out of place** and **in place**; torch's all-reduce is in place. `#wrong` must be 0, and `N/A`
# means that nobody looked.

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
print(f"you predicted: {communication_share}   measured: {parts['gradients'] / sum(parts.values()):.2f}")
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
# ranks shows it. So here are all four:

# %%
# %%ranks --trace
step()

# %% [markdown]
# Eight gradients, eight all-reduces, one after another, and all of them after the backward pass is over. The weights' are large and the
# biases' tiny, and the tiny ones pay α as well. Lecture 04 sends them in one piece, and while the backward pass still runs. But that is an
# optimization, and the order is always the same: **measure first**, then change one thing, then measure again.

# %% [markdown]
# ## We saw
#
# - **A benchmark, step by step**: warm-up (the first call is another operation), barrier (a rank must not time how long it waits for
#   others), synchronize (asking is not doing), the slowest rank, the median. `fourranks.bench` is those twenty lines.
# - **algbw and busbw** as nccl-tests defines them; α and β, the latency-bound and the bandwidth-bound side, ring against tree, one large
#   against many small.
# - **The puzzle** was the accounting: reduce-scatter's S is its input, and 72 · 4 = 289 GiB/s. And the lies of benchmarks have sizes: from
#   7 % for a unit to orders of magnitude for a missing synchronize.
#
# **Your turn**: [the exercise](../../exercises/03_benchmarking/exercise.ipynb). You write `benchmark` against clocks that cannot be fooled,
# the bandwidths, the fit and the crossover. Then lecture 04 puts an all-reduce into training.
#
# **Sources and further reading.** Stanford CS336 (spring 2025), lecture 8, with its log · NVIDIA, *nccl-tests*, `doc/PERFORMANCE.md` and
# `src/*.cu` · Bekman, *Machine Learning Engineering*, chapter on networks · Hockney, *The communication challenge for MPP* (1994), for α
# and β · Thakur, Rabenseifner and Gropp, *Optimization of collective communication operations in MPICH* (2005), for rings against trees ·
# PyTorch 2.13, `ProcessGroupGloo.cpp`, and pull request 118911

# %%
# %ranks stop
