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
# # 03 Benchmarking: can you trust your own numbers?
#
# It is easy to print a bandwidth. Here you write a benchmark that you can trust, the formulas that make
# bandwidths comparable, and a model that predicts how long a collective will take.
#
# You will
#
# - time a collective so that warm-up, late ranks and unfinished GPU work do not distort the result,
# - turn seconds into algbw and busbw as nccl-tests does, and use them to audit a log,
# - fit latency and bandwidth to measurements, and predict when a tree beats a ring,
# - measure a cluster that you know nothing about, with a limited number of messages.
#
# **You may use** everything in Python and torch, but in your functions not `fourranks`, which contains the
# answers. It is missing when a check runs your code.
#
# 3 to 4 hours · 1 to 8 ranks (the checks start their own) · Gloo, no GPU needed
#
# [The lecture](../../lectures/03_benchmarking/lecture.ipynb) has the ideas; here you build them. On one page each:
# [notation](../../docs/notation.md) · [cheat sheet](../../docs/cheat_sheet.md) · [glossary](../../docs/glossary.md) · [concept map](../../docs/concept_map.md)

# %% nbgrader={"grade": false, "grade_id": "setup", "locked": true, "schema_version": 3, "solution": false, "task": false}
# %load_ext fourranks

import math
import statistics
import time
from collections.abc import Callable
from itertools import pairwise

import torch
import torch.distributed as dist

import fourranks
from autograder import check
from autograder.inside.drivers.simulated_cluster import SimulatedCluster

# %% [markdown]
# ## 1. A benchmark
#
# **Difficulty** ●●●○○ · **Importance** ●●●●● · **about 50 minutes**
#
# `benchmark(run, *, warmup, iterations, device, group=None)` calls `run()` on every rank of the group and returns how long one call takes,
# in seconds:
#
# - `warmup` calls come first, and are not timed;
# - then come `iterations` calls, each timed separately. Before each one the ranks **pass a barrier**, and
#   only then the clock starts;
# - on a GPU `run()` only queues work. **Synchronize** before each reading of the clock, the first as well as the second;
# - an iteration takes as long as its **slowest rank**; the answer is the **median** of that over the iterations, and every rank returns it.
#
# | argument | |
# |---|---|
# | `run` | a function without arguments, for instance `lambda: dist.all_reduce(x)` |
# | `device` | the `torch.device` that `run` works on: `cpu` or `cuda`. Create the tensor in which the ranks combine their times there, too: NCCL works only on GPU tensors |
# | `group` | the process group, `None` for all ranks. Ranks outside it do not call the function |
#
# **Budget:** `warmup + iterations` calls of `run`. Between the two readings of a clock, only `run()` and a
# synchronize.
#
# ```
#          warm-up      iteration 1         iteration 2
# rank 0   run run   │ [run....]         │ [run..]            │ maximum over ranks: 9 ms, 6 ms, …
# rank 1   run run   │ [run........] 9   │ [run...]           │ then the median over iterations
# rank 2   run run   │ [run...]          │ [run.....] 6       │
#                  barrier             barrier
# ```
#
# The check gives every rank a simulated clock, on which a call of `run` takes exactly as long as the check
# decides. So the expected result is exact, and there is no tolerance.
#
# <details><summary>Hint 1: the idea</summary>
# <code>time.perf_counter()</code> is the clock, <code>dist.barrier(group)</code> the barrier, <code>torch.cuda.synchronize(device)</code> waits
# for a GPU. On a CPU there is nothing to wait for, and torch may have been built without CUDA.
# </details>
# <details><summary>Hint 2: the skeleton</summary>
# <pre>warm up
# for each iteration: meet, read the clock, run, read the clock, keep this rank's seconds in a list
# combine the lists of all ranks: for each iteration the maximum
# return the median</pre>
# </details>
# <details><summary>Hint 3: a part of the solution</summary>
# One <code>dist.all_reduce(…, dist.ReduceOp.MAX)</code> of a tensor made of the whole list gives every rank
# the slowest rank's time of each iteration. float32 keeps seven digits. That is enough for the duration of
# one call, but not for a reading of the clock, which counts from an arbitrary moment in the past: subtract
# first.
# </details>


# %% nbgrader={"grade": false, "grade_id": "benchmark", "locked": false, "schema_version": 3, "solution": true, "task": false}
def benchmark(
    run: Callable[[], object],
    *,
    warmup: int,
    iterations: int,
    device: torch.device,
    group: dist.ProcessGroup | None = None,
) -> float:
    """Seconds of one `run()`: the median over iterations of the slowest rank, the same on every rank."""

    ### BEGIN SOLUTION
    def synchronize():
        if torch.device(device).type == "cuda":
            torch.cuda.synchronize(device)

    for _ in range(warmup):
        run()
    seconds = []
    for _ in range(iterations):
        synchronize()
        dist.barrier(group)
        start = time.perf_counter()
        run()
        synchronize()
        seconds.append(time.perf_counter() - start)
    slowest = torch.tensor(seconds, dtype=torch.float64, device=device)
    dist.all_reduce(slowest, dist.ReduceOp.MAX, group=group)
    return statistics.median(slowest.tolist())
    ### END SOLUTION


# %% [markdown]
# Try it before you run the check, on an all-reduce of 4 MB on four ranks. Do all ranks return the same time?
# And how much does it change if you run the cell again?


# %%
def try_benchmark(benchmark):
    device = torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")
    x = torch.ones(1_000_000, device=device)
    seconds = benchmark(lambda: dist.all_reduce(x), warmup=3, iterations=11, device=device)
    return f"{1000 * seconds:.3f} ms"


fourranks.world().run(try_benchmark, benchmark)

# %% nbgrader={"grade": true, "grade_id": "benchmark_check", "locked": true, "points": 20, "schema_version": 3, "solution": false, "task": false}
check.benchmark(benchmark)
### BEGIN HIDDEN TESTS
check.benchmark(benchmark, world_sizes=(2, 3, 8), seed=3301)
### END HIDDEN TESTS

# %% [markdown]
# **Question 1 (graded by hand).** Four colleagues have measured all-reduces on eight GPUs of one node, whose
# links carry 450 GB/s. Each sends you the recorded times, but not the script. For each script, say which line
# is missing, how the numbers show it, and how long the operation takes, as far as the numbers tell.
#
# ```
# A   64 MiB    one call each, in µs            11.8   12.1   11.9   12.0
#     1 GiB     one call each, in µs            12.2   11.9   12.4   12.1
# B   256 MiB   ten calls, on rank 0, in ms     1.31   9.74   1.30   6.22   1.29   12.05   1.31   3.87   1.30   8.11
#               the same, on rank 5, in ms      1.30   1.31   1.29   1.30   1.31    1.30   1.30   1.29   1.31   1.30
# C   1 KiB     six calls, slowest rank, in µs  842,300   47   46   48   47   46
# D   256 MiB   "40 calls took 92.4 ms", and a plot of them: 38 points at 1.3 ms, two at 21.5 ms
# ```

# %% [markdown] nbgrader={"grade": true, "grade_id": "lies_explained", "locked": false, "points": 8, "schema_version": 3, "solution": true, "task": false}
# **Answer to question 1**
#
# <!-- BEGIN SOLUTION -->
# Two points each, one for the missing line, one for the evidence and the time:
#
# A. No synchronize before the second reading. Sixteen times the bytes take the same 12 µs: that is what it takes to queue a kernel. 1 GiB in
#    12 µs would be 90 TB/s, 200 times the link. The time of the operation is not in these numbers at all; by the link, 1 GiB takes at least
#    2 · 7/8 · 1.07 GB / 450 GB/s = 4.2 ms.
# B. No barrier before the clock. Rank 5 always arrives last and so sees the operation alone, 1.3 ms; rank 0 arrives up to 11 ms early and
#    times its waiting. The maximum over ranks does not repair that: it would choose rank 0's. The operation takes about 1.3 ms.
# C. No warm-up. The first call made connections and communicator, 0.84 s. The operation takes 47 µs.
# D. A clock around each call, and a median. The mean is 92.4 / 40 = 2.3 ms, decided by two disturbed calls; the median is 1.3 ms.
# <!-- END SOLUTION -->

# %% [markdown]
# ## 2. Two bandwidths
#
# **Difficulty** ●○○○○ · **Importance** ●●●●○ · **about 10 minutes**
#
# `algbw(num_bytes, seconds)` is S / t, in bytes per second. `busbw(collective, num_bytes, seconds,
# world_size)` multiplies that by the share of S that each rank has to send, so that you can compare it with
# the bandwidth of a link. An unknown name raises a `ValueError`.
#
# These are the operations of nccl-tests. `num_bytes` is S; N is the world size. The lecture has worked out
# the factor of the all-reduce; for each of the others ask: *how many bytes does a rank have to send?* For
# broadcast and reduce, take a rank in the middle of a chain.
#
# | `collective` | S |
# |---|---|
# | `"all_reduce"`, `"broadcast"`, `"reduce"` | the tensor |
# | `"reduce_scatter"`, `"all_to_all"` | one rank's whole input, N chunks |
# | `"all_gather"` | one rank's whole output, N chunks |
# | `"scatter"`, `"gather"` | all N parts together; count the bytes of the root |
# | `"sendrecv"` | one message |
# | `"hypercube"` | the N − 1 parts that a rank has received in the end |
#
# nccl-tests has one more program, `alltoallv`, an all-to-all with parts of different sizes; its S is that of
# the rank with the most bytes. It is not part of this exercise.
#
# <details><summary>Hint 1</summary>
# Each rank keeps one of N chunks, so it sends (N − 1)/N of S. In which rows does this factor appear, and in
# which one twice?
# </details>
# <details><summary>Hint 2</summary>
# Bytes that a rank receives are not added: a link carries as much the other way at the same time.
# </details>


# %% nbgrader={"grade": false, "grade_id": "bandwidths", "locked": false, "schema_version": 3, "solution": true, "task": false}
def algbw(num_bytes: float, seconds: float) -> float:
    """Algorithm bandwidth, in bytes per second."""
    ### BEGIN SOLUTION
    return num_bytes / seconds
    ### END SOLUTION


def busbw(collective: str, num_bytes: float, seconds: float, world_size: int) -> float:
    """Bus bandwidth as nccl-tests defines it, in bytes per second."""
    ### BEGIN SOLUTION
    share = (world_size - 1) / world_size
    factors = {
        "all_reduce": 2 * share,
        "reduce_scatter": share,
        "all_gather": share,
        "all_to_all": share,
        "scatter": share,
        "gather": share,
        "broadcast": 1,
        "reduce": 1,
        "sendrecv": 1,
        "hypercube": 1,
    }
    if collective not in factors:
        raise ValueError(f"there is no collective {collective!r}")
    return algbw(num_bytes, seconds) * factors[collective]
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "algbw_check", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
check.algbw(algbw)
### BEGIN HIDDEN TESTS
check.algbw(algbw, seed=3302)
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "busbw_check", "locked": true, "points": 8, "schema_version": 3, "solution": false, "task": false}
check.busbw(busbw)
### BEGIN HIDDEN TESTS
check.busbw(busbw, world_sizes=(1, 2, 3, 5, 16, 1000), seed=3303)
### END HIDDEN TESTS

# %% [markdown]
# ## 3. An audit
#
# **Difficulty** ●●●○○ · **Importance** ●●●●○ · **about 50 minutes**
#
# The lecture's puzzle was one log with one mistake. Now you write a function that finds such mistakes in any
# log.
#
# First the mistake of the lecture, as a formula: `corrected_reduce_scatter_busbw(reported, world_size)` takes
# the figure of a reduce-scatter that was computed as *output bytes* · (N − 1) / (N · t), and returns the
# busbw that nccl-tests would have reported for the same run, in the same unit.


# %% nbgrader={"grade": false, "grade_id": "corrected", "locked": false, "schema_version": 3, "solution": true, "task": false}
def corrected_reduce_scatter_busbw(reported: float, world_size: int) -> float:
    """The busbw of a reduce-scatter whose reported figure counted the bytes of its output only."""
    ### BEGIN SOLUTION
    return world_size * reported
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "corrected_check", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
check.corrected_reduce_scatter_busbw(corrected_reduce_scatter_busbw)
### BEGIN HIDDEN TESTS
check.corrected_reduce_scatter_busbw(corrected_reduce_scatter_busbw, world_sizes=(3, 4, 16, 256), seed=3304)
### END HIDDEN TESTS

# %% [markdown]
# `audit(log, link)` looks at each line of a log and returns a list with one verdict for each. `link` is the
# bandwidth of that machine's links in one direction, in bytes per second. The runs are from single nodes
# whose switches do not add, so no correct busbw can be above it. A line is a dict:
#
# ```python
# {"collective": "all_gather", "num_bytes": 268435456, "seconds": 0.000652, "world_size": 8, "reported": 3.6e11}
# ```
#
# `num_bytes` is the correct S. `reported` is in bytes per second, and its author called it busbw. It was
# rounded to three digits, so a formula explains it if the two differ by at most 1 %. The verdict is the first
# of these that applies:
#
# | verdict | when |
# |---|---|
# | `"not finished"` | the correct busbw is above `link`, whatever was reported: the clock was stopped too early |
# | `"right"` | the figure is busbw |
# | `"algbw"` | it is S / t |
# | `"GiB"` | it is busbw in GiB/s, and was called GB/s: 10⁹ / 2³⁰ times as much |
# | `"part"` | reduce-scatter, all-gather, all-to-all only: the bytes of one rank's part, S / N, were counted in place of S |
# | `"both directions"` | the bytes that a rank receives were added to those that it sends: 2 times busbw |
# | `"all ranks"` | the bytes were added up over all ranks, as if each sent as many: N times busbw |
# | `"unexplained"` | none of these |
#
# <details><summary>Hint 1: the idea</summary>
# Compute busbw from the line's own bytes and seconds. For each verdict except the first and the last, that
# gives the figure that would have been reported.
# </details>
# <details><summary>Hint 2: the skeleton</summary>
# <pre>for each line:
#     right = busbw(…)
#     if right > link: "not finished"
#     else the first of {verdict: figure, …} whose figure is near line["reported"], or "unexplained"</pre>
# </details>
# <details><summary>Hint 3: a part of the solution</summary>
# A dict keeps its order, and <code>math.isclose(a, b, rel_tol=0.01)</code> compares. Only three collectives have a part:
# <code>if line["collective"] in (…): figures["part"] = right / n</code>, between "GiB" and "both directions".
# </details>


# %% nbgrader={"grade": false, "grade_id": "audit", "locked": false, "schema_version": 3, "solution": true, "task": false}
def audit(log: list[dict], link: float) -> list[str]:
    """A verdict for each line of a log, on the figure that it reports as busbw."""
    ### BEGIN SOLUTION
    return [verdict(line, link) for line in log]


def verdict(line: dict, link: float) -> str:
    """The verdict on one line's figure."""
    name, size, seconds, n = (line[key] for key in ("collective", "num_bytes", "seconds", "world_size"))
    right = busbw(name, size, seconds, n)
    if right > link:
        return "not finished"
    figures = {"right": right, "algbw": algbw(size, seconds), "GiB": right * 1e9 / 2**30}
    if name in ("reduce_scatter", "all_gather", "all_to_all"):
        figures["part"] = right / n
    figures |= {"both directions": 2 * right, "all ranks": n * right}
    explained = (
        name for name, figure in figures.items() if math.isclose(figure, line["reported"], rel_tol=0.01)
    )
    return next(explained, "unexplained")
    ### END SOLUTION


# %% [markdown]
# These are the lecture's two measurements, as it printed them, and three others from a node of eight H200.
# Which verdicts do you expect? One line will stay unexplained, because it contains two mistakes.

# %%
log = [
    {"collective": name, "num_bytes": size, "seconds": t, "world_size": n, "reported": reported}
    for name, size, t, n, reported in (
        ("all_reduce", 419_430_400, 2.11e-3, 4, 277e9),
        ("reduce_scatter", 4 * 419_430_400, 4.06e-3, 4, 72.1e9),
        ("all_gather", 2**34, 41.6e-3, 8, 413e9),
        ("all_reduce", 2**34, 81.9e-3, 8, 2.94e12),
        ("all_reduce", 2**34, 12.3e-6, 8, 2.44e15),
    )
]
for line, own in zip(log, audit(log, link=450e9), strict=True):
    print(
        f"{line['collective']:15} on {line['world_size']} ranks, {line['reported'] / 1e9:12,.1f} GB/s: {own}"
    )

# %% nbgrader={"grade": true, "grade_id": "audit_check", "locked": true, "points": 14, "schema_version": 3, "solution": false, "task": false}
check.audit(audit)
### BEGIN HIDDEN TESTS
check.audit(audit, world_sizes=(2, 3, 5, 64), seed=3308)
### END HIDDEN TESTS

# %% [markdown]
# **Question 2 (graded by hand).** A blog compares three collectives on eight H100s. By "1 GiB" it means each
# rank's *own* tensor before the call, and it prints the bytes of that tensor · factor / seconds, with the
# right factors:
#
# | collective | seconds | printed |
# |---|---|---|
# | all-reduce | 5.12 ms | 367 GB/s |
# | all-gather | 20.9 ms | 45 GB/s |
# | all-to-all | 2.61 ms | 360 GB/s |
#
# It concludes: "all-gather is the weak spot of this machine; avoid ZeRO-3."
#
# - (a) What are the three busbw, as nccl-tests counts them? Which figures are wrong, by which factor, and why
#   is the all-to-all's not?
# - (b) An all-gather and a reduce-scatter of *equal S* make an all-reduce. What does that predict for the
#   all-gather's time at S = 1 GiB, and how does the blog's own table confirm it?
# - (c) How would you show the author on the machine that it is the accounting, with one more run? And why not
#   on a laptop with Gloo and a reduce-scatter?

# %% [markdown] nbgrader={"grade": true, "grade_id": "puzzle_explained", "locked": false, "points": 8, "schema_version": 3, "solution": true, "task": false}
# **Answer to question 2**
#
# <!-- BEGIN SOLUTION -->
# (a) 3 points. All-reduce: S is the tensor, 367 GB/s is right. All-to-all: S is a rank's whole input, which is what was counted: 360. All-gather: S
# is a rank's whole *output*, eight times its own tensor; 8 · 45 = 360 GB/s. So only the all-gather is wrong, by N = 8.
#
# (b) 3 points. Half of the all-reduce's time, about 2.6 ms for S = 1 GiB. The blog gathered S = 8 GiB in 20.9
# ms, so 1 GiB takes about 20.9 / 8 = 2.61 ms: about half of 5.12.
#
# (c) 2 points. Run the all-gather with an eighth of the input, so that its output is 1 GiB: it takes an eighth of the time, and busbw is the same. (Or run
# nccl-tests' all_gather_perf.) On Gloo a reduce-scatter is an all-reduce and a copy, so there it does take as
# long as a whole all-reduce: that gap comes from the library, not from the machine.
# <!-- END SOLUTION -->

# %% [markdown]
# ## 4. Alpha and beta
#
# **Difficulty** ●●●○○ · **Importance** ●●●●○ · **about 25 minutes**
#
# A message of S bytes takes about α + β · S seconds. α is the latency, the time of even the smallest message.
# β is the time that every byte adds, so 1/β is the bandwidth.
#
# `fit_alpha_beta(num_bytes, seconds)` gets two lists, sizes and times, and returns the tuple `(alpha, beta)`
# that fits them best. If the times follow the model exactly, α and β must be exact. With sizes from 1 KiB to
# 4 GiB, each measured four times with up to 10 % of noise, both must be right to within 5 %.
#
# <details><summary>Hint 1</summary>
# Ordinary least squares minimizes the sum of (α + β·S − t)². Ten percent of the time of 4 GiB is more than
# <i>all</i> of the small times together, so the fit ignores them, and α is noise. Minimize the
# <i>relative</i> errors instead: (α + β·S − t) / t.
# </details>
# <details><summary>Hint 2</summary>
# That is least squares again, of the equations α · (1/t) + β · (S/t) = 1. Two unknowns: with a = 1/t and b = S/t, solve α·Σa² + β·Σab = Σa
# and α·Σab + β·Σb² = Σb.
# </details>


# %% nbgrader={"grade": false, "grade_id": "fit", "locked": false, "schema_version": 3, "solution": true, "task": false}
def fit_alpha_beta(num_bytes: list[float], seconds: list[float]) -> tuple[float, float]:
    """The alpha (seconds) and beta (seconds per byte) with the smallest relative errors."""
    ### BEGIN SOLUTION
    a = [1 / t for t in seconds]
    b = [size / t for size, t in zip(num_bytes, seconds, strict=True)]
    aa, ab, bb = (sum(x * y for x, y in zip(*pair, strict=True)) for pair in ((a, a), (a, b), (b, b)))
    determinant = aa * bb - ab * ab
    return (sum(a) * bb - sum(b) * ab) / determinant, (sum(b) * aa - sum(a) * ab) / determinant
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "fit_check", "locked": true, "points": 12, "schema_version": 3, "solution": false, "task": false}
check.fit_alpha_beta(fit_alpha_beta)
### BEGIN HIDDEN TESTS
check.fit_alpha_beta(fit_alpha_beta, seed=3305)
check.fit_alpha_beta(fit_alpha_beta, seed=3306)
### END HIDDEN TESTS

# %% [markdown]
# ## 5. Ring or tree?
#
# **Difficulty** ●●○○○ · **Importance** ●●●○○ · **about 20 minutes**
#
# An all-reduce of S bytes on N ranks, made of messages that each take α + β · (their bytes):
#
# - **ring**: 2 (N − 1) messages one after another, each of S / N bytes;
# - **tree**, not pipelined: a reduce and a broadcast, each ⌈log₂ N⌉ messages one after another, each of S
#   bytes. NCCL's tree sends pieces, which costs 2 ⌈log₂ N⌉ α + 2 β S; the lecture compares the two, but here
#   you use the plain one.
#
# The tree is better for small tensors, the ring for large ones. `crossover_bytes(world_size, alpha, beta)`
# returns the S at which both take the same time, or 0 if the tree is never faster.
#
# Before you write it: for which world sizes is it 0?
#
# <details><summary>Hint 1</summary>
# Write down both times, set them equal, and solve for S. Terms with α go to one side.
# </details>
# <details><summary>Hint 2</summary>
# <code>(N - 1).bit_length()</code> is ⌈log₂ N⌉, without rounding errors. With 2 and 3 ranks the ring sends no more messages than the tree.
# </details>


# %% nbgrader={"grade": false, "grade_id": "crossover", "locked": false, "schema_version": 3, "solution": true, "task": false}
def crossover_bytes(world_size: int, alpha: float, beta: float) -> float:
    """The size in bytes at which a ring and a tree all-reduce take equally long; 0 if the tree is never faster."""
    ### BEGIN SOLUTION
    rounds = (world_size - 1).bit_length()  # log₂, rounded up
    fewer_messages = (world_size - 1) - rounds  # 2 alpha for each of them is what the tree saves
    more_bytes = rounds - (world_size - 1) / world_size  # and 2 beta S for these what it costs
    return fewer_messages * alpha / (more_bytes * beta)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "crossover_check", "locked": true, "points": 9, "schema_version": 3, "solution": false, "task": false}
check.crossover_bytes(crossover_bytes)
### BEGIN HIDDEN TESTS
check.crossover_bytes(crossover_bytes, world_sizes=(2, 3, 6, 7, 32, 1000), seed=3307)
### END HIDDEN TESTS

# %% [markdown]
# ## 6. An unknown cluster
#
# **Difficulty** ●●●●○ · **Importance** ●●●○○ · **about 60 minutes**
#
# You have rented ranks, and you do not know which of them share a node. You can only send messages and
# measure their time.
#
# `measure_cluster(send, num_ranks)` returns `(nodes, inside, across)`: the nodes, each a list of its ranks, and (α, β) of a link inside a node and
# of one between nodes, in seconds and seconds per byte.
#
# | | |
# |---|---|
# | `send(source, destination, num_bytes)` | sends a message between two different ranks, and returns the seconds that it took |
# | the nodes | there are at least two, each with at least two ranks, and the ranks are spread over them in any order |
# | a link | takes α + β · S, with 5 % of noise in either direction; links of the same kind differ by up to 2 % |
# | the first message | from one rank to another also opens their connection, which takes tens of milliseconds |
# | disturbances | after that, one in every four messages of a pair takes 3 to 10 times as long |
# | wanted | the nodes exactly, and each α and β to 10 % |
#
# **Budget:** 40 · N + 200 messages. That is too few for every pair at every size.
#
# <details><summary>Hint 1: the idea</summary>
# Answer two questions, one after another. Which ranks share a node? Small messages show it, since α differs.
# How fast are the links? Measure one pair of each kind at many sizes, and use <code>fit_alpha_beta</code>.
# </details>
# <details><summary>Hint 2: the skeleton</summary>
# <pre>typical(source, destination, num_bytes)   one message that does not count, then the median of five or more
# latency of rank 0 to every other rank; sort; the largest jump, as a factor, parts inside from across
# every other rank: near a rank of a node that is known? then it belongs there, else it founds a new one
# a pair inside, a pair across: fit</pre>
# </details>
# <details><summary>Hint 3: a part of the solution</summary>
# The limit between both kinds, from sorted latencies:
# <pre>low, high = max(pairwise(latencies), key=lambda pair: pair[1] / pair[0])
# limit = (low * high) ** 0.5</pre>
# </details>


# %% nbgrader={"grade": false, "grade_id": "measure_cluster", "locked": false, "schema_version": 3, "solution": true, "task": false}
def measure_cluster(
    send: Callable[[int, int, int], float], num_ranks: int
) -> tuple[list[list[int]], tuple[float, float], tuple[float, float]]:
    """The nodes of a cluster, and (alpha, beta) of links inside a node and across."""
    ### BEGIN SOLUTION
    to_first = {rank: typical(send, 0, rank, 8) for rank in range(1, num_ranks)}
    low, high = max(pairwise(sorted(to_first.values())), key=lambda pair: pair[1] / pair[0])
    limit = (low * high) ** 0.5
    nodes = [[0, *(rank for rank, latency in to_first.items() if latency < limit)]]
    for rank in (rank for rank, latency in to_first.items() if latency > limit):
        for node in nodes[1:]:
            if typical(send, node[0], rank, 8) < limit:
                node.append(rank)
                break
        else:
            nodes.append([rank])
    inside, across = (fitted(send, *pair) for pair in (nodes[0][:2], (nodes[0][0], nodes[1][0])))
    return nodes, inside, across


def typical(send: Callable[[int, int, int], float], source: int, destination: int, num_bytes: int) -> float:
    """The median of five messages, behind one that does not count."""
    send(source, destination, num_bytes)
    return statistics.median(send(source, destination, num_bytes) for _ in range(5))


def fitted(send: Callable[[int, int, int], float], source: int, destination: int) -> tuple[float, float]:
    """Alpha and beta of a link."""
    sizes = [8 * 8**exponent for exponent in range(9)]  # to 128 MiB
    return fit_alpha_beta(sizes, [typical(send, source, destination, size) for size in sizes])
    ### END SOLUTION


# %% [markdown]
# Try it on this cluster of six ranks: 0, 3 and 4 share one node, and 1, 2 and 5 the other.

# %%
cluster = SimulatedCluster.of_nodes([0, 1, 1, 0, 0, 1], inside=(3e-6, 1 / 400e9), across=(12e-6, 1 / 45e9))
nodes, inside, across = measure_cluster(cluster.send, 6)
print(f"nodes {nodes}, after {cluster.sent} of {40 * 6 + 200} messages")
for name, (alpha, beta) in {"inside": inside, "across": across}.items():
    print(f"{name}: alpha {1e6 * alpha:.1f} µs, 1/beta {1e-9 / beta:.0f} GB/s")

# %% nbgrader={"grade": true, "grade_id": "measure_cluster_check", "locked": true, "points": 15, "schema_version": 3, "solution": false, "task": false}
check.measure_cluster(measure_cluster)
### BEGIN HIDDEN TESTS
check.measure_cluster(measure_cluster, nodes=((3, 2), (2, 6), (2, 2, 2, 2), (8, 8)), seed=3309)
### END HIDDEN TESTS

# %% [markdown]
# ## 7. All of it together
#
# **Difficulty** ●○○○○ · **Importance** ●●○○○ · **about 5 minutes**
#
# The next cell uses your functions on real ranks: messages give α and β, and these give the crossover for any
# number of ranks.


# %%
def time_messages(benchmark, sizes):
    """Seconds of a message of each size, to the right neighbour while one comes from the left."""
    rank, n = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")
    seconds = []
    for size in sizes:
        x, received = torch.zeros(size // 4, device=device), torch.zeros(size // 4, device=device)
        both = [dist.P2POp(dist.isend, x, (rank + 1) % n), dist.P2POp(dist.irecv, received, (rank - 1) % n)]

        def run(both=both):
            for work in dist.batch_isend_irecv(both):
                work.wait()

        seconds.append(benchmark(run, warmup=3, iterations=11, device=device))
    return seconds


sizes = [4**exponent for exponent in range(5, 13)]  # 1 KiB to 16 MiB
seconds = fourranks.world().run(time_messages, benchmark, sizes)[0]
alpha, beta = fit_alpha_beta(sizes, seconds)
print(f"alpha {1e6 * alpha:.0f} µs, 1/beta {1e-9 / beta:.2f} GB/s")
for size, t in zip(sizes, seconds, strict=True):
    print(f"{size:>10,} B  {1e3 * t:8.3f} ms, busbw {busbw('sendrecv', size, t, 4) / 1e9:.3f} GB/s")
if beta > 0:
    for n in (4, 8, 64, 1024):
        print(
            f"{n:>5} ranks: the unpipelined tree is faster below {crossover_bytes(n, alpha, beta) / 2**20:.3g} MiB"
        )
else:
    print(
        "Other programs decided these times, not the sizes: no crossover. Run the cell again when they have ended."
    )

# %% [markdown]
# ## What you have now
#
# - You timed collectives with warm-up, barrier, synchronize and the median of the slowest rank, and can say
#   what is wrong with benchmarks that lack one of them.
# - You turned seconds into algbw and busbw, and wrote an audit that finds the mistake behind a figure.
# - You fitted α and β, and know why a tree is better for many ranks and few bytes.
# - You found the nodes and links of an unknown cluster by measuring messages.
#
# Next: *04 data parallelism* puts an all-reduce into a training step, and hides it.
