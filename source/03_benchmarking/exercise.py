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
# Anybody can print a bandwidth. Here you write a benchmark whose answer you would bet on, the formulas that make bandwidths comparable, and
# a model that says before the run how long it will take.
#
# You will
#
# - time a collective so that warm-up, stragglers and unfinished GPU work are not in the answer,
# - turn seconds into algbw and busbw as nccl-tests does, and settle a famous puzzle about 277 and 70 GB/s,
# - fit latency and bandwidth to measurements, and predict when a tree beats a ring.
#
# **Allowed** is everything in Python and torch, but not `fourranks`, which holds the answers. Where a check runs your code, these are not
# there.
#
# 2 hours · 1 to 8 ranks (the checks start their own) · Gloo, no GPU needed

# %% nbgrader={"grade": false, "grade_id": "setup", "locked": true, "schema_version": 3, "solution": false, "task": false}
# %load_ext fourranks

import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

import fourranks
from autograder import check

# %% [markdown]
# ## 1. A benchmark
#
# `benchmark(run, *, warmup, iterations, device, group=None)` calls `run()` on every rank of the group and returns how long one call takes,
# in seconds:
#
# - `warmup` calls first, which count for nothing;
# - then `iterations` calls, each timed by itself. Before each one the ranks **meet in a barrier**, and only then the clock starts;
# - on a GPU `run()` only queues work. **Synchronize** before each reading of the clock, the first as well as the second;
# - an iteration takes as long as its **slowest rank**; the answer is the **median** of that over the iterations, and every rank returns it.
#
# | argument | |
# |---|---|
# | `run` | a function without arguments, for instance `lambda: dist.all_reduce(x)` |
# | `device` | a `torch.device`, what `run` works on: `cpu` or `cuda`. The tensor in which the ranks combine their times belongs there too: NCCL cannot see the CPU's |
# | `group` | the process group, `None` for all ranks. Ranks outside it do not call the function |
#
# **Budget:** `warmup + iterations` calls of `run`, and nothing but `run()` and a synchronize between the two readings of a clock.
#
# ```
#          warm-up      iteration 1         iteration 2
# rank 0   run run   │ [run....]         │ [run..]            │ maximum over ranks: 9 ms, 6 ms, …
# rank 1   run run   │ [run........] 9   │ [run...]           │ then the median over iterations
# rank 2   run run   │ [run...]          │ [run.....] 6       │
#                  barrier             barrier
# ```
#
# The check gives every rank a clock of its own, on which a call of `run` takes exactly as long as the check wants it to. So there is no
# luck, and no tolerance.
#
# <details><summary>Hint 1</summary>
# <code>time.perf_counter()</code> is the clock, <code>dist.barrier(group)</code> the barrier, <code>torch.cuda.synchronize(device)</code> waits
# for a GPU. On a CPU there is nothing to wait for, and torch may have been built without CUDA.
# </details>
# <details><summary>Hint 2</summary>
# Collect this rank's seconds in a list, one number for each iteration. At the end, one
# <code>dist.all_reduce(…, dist.ReduceOp.MAX)</code> of a tensor made of that list gives every rank the slowest rank's time of each iteration.
# </details>
# <details><summary>Hint 3</summary>
# float32 keeps seven digits of a time, which is enough for seconds of one call and too few for a moment since the computer was switched on:
# subtract first. <code>statistics.median</code> takes a list.
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
# Try it before the check does: an all-reduce of 4 MB on four ranks. Do all of them say the same? And again, if you run the cell once more?


# %%
def try_benchmark(benchmark):
    device = torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")
    x = torch.ones(1_000_000, device=device)
    seconds = benchmark(lambda: dist.all_reduce(x), warmup=3, iterations=11, device=device)
    return f"{1000 * seconds:.3f} ms"


fourranks.world().run(try_benchmark, benchmark)

# %% nbgrader={"grade": true, "grade_id": "benchmark_check", "locked": true, "points": 28, "schema_version": 3, "solution": false, "task": false}
check.benchmark(benchmark)
### BEGIN HIDDEN TESTS
check.benchmark(benchmark, world_sizes=(2, 3, 8), seed=3301)
### END HIDDEN TESTS

# %% [markdown]
# **Question 1 (graded by hand).** A colleague measures on four GPUs and reports "all-reduce of 400 MB: 41 TB/s". This is the code, run by
# every rank:
#
# ```python
# x = torch.zeros(100_000_000, device="cuda")
# start = time.time()
# dist.all_reduce(x)
# seconds = time.time() - start
# if rank == 0:
#     print("all-reduce of 400 MB:", 4 * x.numel() / seconds / 1024**4, "TB/s")
# ```
#
# Name **five** things that are wrong with the measurement or with the number that it prints. For each, say whether it makes the bandwidth
# look higher or lower than it is (or either), and which line you would add or change.

# %% [markdown] nbgrader={"grade": true, "grade_id": "lies_explained", "locked": false, "points": 10, "schema_version": 3, "solution": true, "task": false}
# **Answer to question 1**
#
# <!-- BEGIN SOLUTION -->
# Two points for each of five, for instance:
#
# 1. **No synchronize after the call**: what is timed is putting a kernel into a queue. Much too high; this alone explains 41 TB/s.
#    `torch.cuda.synchronize()` before the second reading.
# 2. **No synchronize before the clock**: `torch.zeros` may still be running, and its time would count as soon as 1 is mended. Too low.
#    `torch.cuda.synchronize()` before the first reading.
# 3. **No warm-up**: the first call makes NCCL's connections and buffers, which takes far longer than the call. Too low. A few calls before
#    the clock.
# 4. **No barrier**: a rank that comes early times its wait for the others (too low); one that comes last, and rank 0 may be that one, sees
#    only the end. `dist.barrier()`, then the clock.
# 5. **One sample**, of rank 0 alone: anything can disturb one call, and another rank may have taken longer. Either way. Many iterations,
#    maximum over ranks, median.
# 6. **Units**: 1024⁴ are TiB; printed as TB the number is 9 % too low.
# 7. **algbw, not busbw**: S / t cannot be compared with the speed of a link; for four ranks a link has carried 2 · 3/4 of it. Too low.
# 8. `time.time()` may be set back or forth while it runs; `time.perf_counter()`.
# <!-- END SOLUTION -->

# %% [markdown]
# ## 2. Two bandwidths
#
# `algbw(num_bytes, seconds)` is S / t, in bytes per second. `busbw(collective, num_bytes, seconds, world_size)` multiplies that by the
# share of S that has to leave each rank, so that it can be compared with the speed of a link. An unknown name raises a `ValueError`.
#
# These are the operations of nccl-tests. `num_bytes` is S; n is the world size. Fill in the factors in your head, by asking each time: *how
# many bytes does a rank have to send?* (For broadcast, reduce: a rank in the middle of a chain.)
#
# | `collective` | S | what a rank sends |
# |---|---|---|
# | `"all_reduce"` | the tensor | two phases round the ring, each with all chunks but one |
# | `"reduce_scatter"` | one rank's whole input, n chunks | all chunks but its own |
# | `"all_gather"` | one rank's whole output, n chunks | n − 1 chunks |
# | `"all_to_all"` | one rank's whole input, n chunks | all chunks but its own |
# | `"scatter"`, `"gather"` | all n parts together | at the root, all parts but its own cross the link |
# | `"broadcast"`, `"reduce"` | the tensor | passes on all of it |
# | `"sendrecv"` | one message | all of it |
# | `"hypercube"` | what a rank has received in the end, n − 1 parts | as much |
#
# (nccl-tests has a tenth program, `alltoallv`, for parts of different sizes: an all-to-all, with S of the rank that has most.)
#
# <details><summary>Hint 1</summary>
# Each rank keeps one chunk of n to itself: (n − 1)/n of S travels. In which rows does this appear, and in which one twice?
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


# %% nbgrader={"grade": true, "grade_id": "algbw_check", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
check.algbw(algbw)
### BEGIN HIDDEN TESTS
check.algbw(algbw, seed=3302)
### END HIDDEN TESTS

# %% nbgrader={"grade": true, "grade_id": "busbw_check", "locked": true, "points": 15, "schema_version": 3, "solution": false, "task": false}
check.busbw(busbw)
### BEGIN HIDDEN TESTS
check.busbw(busbw, world_sizes=(1, 2, 3, 5, 16, 1000), seed=3303)
### END HIDDEN TESTS

# %% [markdown]
# ## 3. The puzzle
#
# A university lecture measured two collectives on 4 H100s and reported
#
# | | one rank's input | one rank's output | time | reported |
# |---|---|---|---|---|
# | all-reduce | 400 MiB | 400 MiB | 2.11 ms | 277 "GB/s" |
# | reduce-scatter | 4 × 400 MiB | 400 MiB | 4.06 ms | 72 "GB/s" |
#
# The reduce-scatter's figure was computed as *output bytes* · (n − 1) / (n · t), and both were divided by 1024³. Why should half of an
# all-reduce be four times slower than all of it? (Several retellings blame the hardware.)
#
# `corrected_reduce_scatter_busbw(reported, world_size)` takes a figure that was computed in this way, and returns the busbw that nccl-tests
# would have reported for the same run, in the same unit.
#
# <details><summary>Hint 1</summary>
# Put the row of the table into your <code>busbw</code>. What is S?
# </details>
# <details><summary>Hint 2</summary>
# Write both formulas below each other and divide.
# </details>


# %% nbgrader={"grade": false, "grade_id": "corrected", "locked": false, "schema_version": 3, "solution": true, "task": false}
def corrected_reduce_scatter_busbw(reported: float, world_size: int) -> float:
    """The busbw of a reduce-scatter whose reported figure counted the bytes of its output only."""
    ### BEGIN SOLUTION
    return world_size * reported
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "corrected_check", "locked": true, "points": 8, "schema_version": 3, "solution": false, "task": false}
check.corrected_reduce_scatter_busbw(corrected_reduce_scatter_busbw)
### BEGIN HIDDEN TESTS
check.corrected_reduce_scatter_busbw(corrected_reduce_scatter_busbw, world_sizes=(3, 4, 16, 256), seed=3304)
### END HIDDEN TESTS

# %% [markdown]
# **Question 2 (graded by hand).** Explain the puzzle to somebody who believes that the switch helps all-reduce only. Which of the two
# collectives was faster on that machine, by busbw, in GB/s of 10⁹ bytes, and which share of a link's 450 GB/s is that? How would you *show*
# that it is the accounting and not the hardware, on a machine with four GPUs; and why not with Gloo on your laptop?

# %% [markdown] nbgrader={"grade": true, "grade_id": "puzzle_explained", "locked": false, "points": 10, "schema_version": 3, "solution": true, "task": false}
# **Answer to question 2**
#
# <!-- BEGIN SOLUTION -->
# - (3) S of a reduce-scatter is the whole input of a rank, n times its output. Only the output was counted, so the reported figure is busbw
#   / n: 72 · 4 = 288 GiB/s. The all-reduce was counted as nccl-tests does. There is no gap.
# - (2) In GB/s: 277 · 1.074 = 297 for all-reduce, 288 · 1.074 = 309 for reduce-scatter, which is the slightly faster one: 66 % and 69 % of
#   450 GB/s. (900 GB/s is the sum of both directions, and busbw is one direction.)
# - (1) Per byte of input: the reduce-scatter worked on four times the data in twice the time. For equal data it takes half the time of the
#   all-reduce, as it should: it is its first phase.
# - (2) Show it: run both with equal input and compare the times (about 1 : 2), or run nccl-tests' reduce_scatter_perf and all_reduce_perf,
#   whose busbw agree; and switch the switch's help off (`NCCL_NVLS_ENABLE=0`), which changes nothing if it is the accounting. On 4 GPUs
#   NCCL chose a ring anyway where this was measured.
# - (2) Not with Gloo: its reduce-scatter *is* an all-reduce of the whole input and a copy of one chunk, so it really takes as long. It
#   would seem to confirm a gap, for a reason that has nothing to do with the lecture's.
# <!-- END SOLUTION -->

# %% [markdown]
# ## 4. Alpha and beta
#
# A message of S bytes takes about α + β · S seconds: α is what it costs however small it is (latency), β what every byte adds (1/β is the
# bandwidth).
#
# `fit_alpha_beta(num_bytes, seconds)` gets two lists, sizes and times, and returns the tuple `(alpha, beta)` that fits them best. Times
# that follow the model exactly give α and β exactly. With sizes from 1 KiB to 4 GiB, each measured four times with up to 10 % of noise,
# both must be right to 5 %.
#
# <details><summary>Hint 1</summary>
# Ordinary least squares minimizes the sum of (α + β·S − t)². Ten percent of the time of 4 GiB are more than <i>all</i> of the small times:
# the fit does not care about them, and α comes out as anything. What should be small are the <i>relative</i> errors, (α + β·S − t) / t.
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


# %% nbgrader={"grade": true, "grade_id": "fit_check", "locked": true, "points": 15, "schema_version": 3, "solution": false, "task": false}
check.fit_alpha_beta(fit_alpha_beta)
### BEGIN HIDDEN TESTS
check.fit_alpha_beta(fit_alpha_beta, seed=3305)
check.fit_alpha_beta(fit_alpha_beta, seed=3306)
### END HIDDEN TESTS

# %% [markdown]
# ## 5. Ring or tree?
#
# An all-reduce of S bytes on n ranks, made of messages that each take α + β · (their bytes):
#
# - **ring**: 2 (n − 1) messages one after another, each of S / n bytes;
# - **tree**: a reduce and a broadcast, each ⌈log₂ n⌉ messages one after another, each of S bytes.
#
# Small tensors are a case for the tree, large ones for the ring. `crossover_bytes(world_size, alpha, beta)` returns the S at which both
# take equally long; 0 if the tree is faster for no S at all.
#
# Before you write it: for which world sizes is it 0?
#
# <details><summary>Hint 1</summary>
# Write down both times, set them equal, and solve for S. Terms with α go to one side.
# </details>
# <details><summary>Hint 2</summary>
# <code>(n - 1).bit_length()</code> is ⌈log₂ n⌉, without rounding errors. With 2 and 3 ranks the ring sends no more messages than the tree.
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


# %% nbgrader={"grade": true, "grade_id": "crossover_check", "locked": true, "points": 10, "schema_version": 3, "solution": false, "task": false}
check.crossover_bytes(crossover_bytes)
### BEGIN HIDDEN TESTS
check.crossover_bytes(crossover_bytes, world_sizes=(2, 3, 6, 7, 32, 1000), seed=3307)
### END HIDDEN TESTS

# %% [markdown]
# ## 6. All of it together
#
# Your five functions on real ranks: messages give α and β, these give the crossover for as many ranks as you like.


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
for n in (4, 8, 64, 1024):
    print(f"{n:>5} ranks: the tree is faster below {crossover_bytes(n, alpha, beta) / 2**20:.3g} MiB")

# %% [markdown]
# ## What you have now
#
# - You timed collectives with warm-up, barrier, synchronize and the median of the slowest rank, and can name what is wrong with benchmarks
#   that do without.
# - You turned seconds into algbw and busbw, and settled a puzzle that was about bytes and not about hardware.
# - You fitted α and β, and know why many ranks and few bytes are a case for a tree.
#
# Next: *04 data parallelism* puts an all-reduce into a training step, and hides it.
