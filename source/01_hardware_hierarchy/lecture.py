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
# # 01 Hardware hierarchy: where the bytes live
#
# **A processor can add two numbers in less than a nanosecond. Why does it spend most of its life waiting for them?**
#
# You will
#
# - see the caches of your own machine, and draw its roofline beside those of an H100 and other GPUs,
# - know how far away data is, from a register to another node, in bytes per second and in seconds, and read
#   from `nvidia-smi topo -m` which path it will take,
# - decide with numbers whether to replicate, shard or recompute a tensor.
#
# 70 minutes · 4 ranks · Gloo on any laptop; on a machine with GPUs the same cells measure these
#
# [The exercise](../../exercises/01_hardware_hierarchy/exercise.ipynb) · [notation](../../docs/notation.md) · [cheat sheet](../../docs/cheat_sheet.md) · [glossary](../../docs/glossary.md) · [concept map](../../docs/concept_map.md)
#
# Before each run there is a question with a variable for your answer. Fill it in before you go on. If you
# leave it at `None`, everything still works, but even a wrong guess teaches more than none.
#
# **Words that this lecture uses before lecture 02 explains them.** You know ranks, `%%ranks`, `device` and
# `world.pull` from lecture 00. New are:
#
# - `dist.barrier()` makes all ranks wait for one another, `isend` and `recv` pass a message between two of
#   them, and `all_gather_single` collects a piece from each.
# - `--trace` draws which ranks computed and which waited. In its drawings and tables the *bubble* is the
#   share of time that a rank waits, *lost* is that time added up over the ranks, *algbw* is bytes divided by
#   time, and *busbw* is the bandwidth that a link had to deliver for it.

# %%
# %load_ext fourranks
import fourranks
from fourranks import hardware
from fourranks.doctor import topology
from fourranks.figures import compare, finding, ledger, predicted, published, review, scaled
from fourranks.figures.machine import copies, ladder, roofline
from fourranks.figures.machine import topology as draw_topology

# %ranks start

# %% [markdown]
# ## Before you begin
#
# Three questions about earlier lectures. Answer them from memory, in the list below; `None` works, too.

# %%
ledger.begin("01")

# %%
remembered = [None, None, None]  # your answers

# %%
ledger.answers(remembered)

# %% [markdown]
# ## 1. Why more than one?
#
# There are three reasons for distributed training. The model **does not fit** into one GPU. Or it fits, but
# leaves memory only for **batches so tiny** that training is slow and noisy. Or it fits, but training on all
# of Wikipedia, say, **would take years**.
#
# The first and the third deserve a number. Training costs about 6 floating-point operations (FLOPs) for each
# parameter and token.
# Forward, each weight is multiplied with one number of the token and added to a sum: 2 operations. Backward
# does two such products, one for the gradient of the layer's input and one for that of its weights: 4 more.
# And with mixed-precision Adam, training keeps about 16 bytes for each parameter (weights, gradients, and
# Adam's moments). GPT-3 has 175 billion parameters and was trained on 300 billion tokens.
#
# **Question.** How many years would one H100 take at half of its peak, and how many H100s are needed just to
# hold those bytes?

# %%
gpt3 = {"years": None, "GPUs": None}  # your predictions

# %%
h100 = published.GPUS["H100 SXM"]
seconds = 6 * 175e9 * 300e9 / (0.5 * h100.bf16_flops)
years, gpus = seconds / (365 * 86400), 16 * 175e9 / h100.hbm_bytes
print(f"years: {predicted(gpt3, of='years', about='years for GPT-3 on one GPU', was=years)}it is {years:.0f}")
print(
    f"GPUs:  {predicted(gpt3, of='GPUs', about='GPUs to hold GPT-3', was=gpus)}it is {gpus:.0f}, before a single activation"
)

# %% [markdown]
# There are two ways out:
#
# - **Vertical scaling**: a bigger machine. A server with 8 GB of memory and a GPU of 4 GB becomes one with 64 GB and 32 GB. Not a line of code changes; *money is all
#   you need*, until there is no bigger machine to buy.
# - **Horizontal scaling**: more machines. Four servers with 8 GB and two GPUs of 4 GB each. A little code changes, and *strategy is all you need*: this course.
#
# The first way ends soon. The loss of language models falls steadily with compute, data and parameters (Kaplan et al. 2020), abilities appear at scale that were not there before
# (GPT-3), and models outgrow machines. You may read that "GPU FLOPS double every 2.5 years": the study behind it found that FLOP/s **per dollar** doubled in 2.46 years (in 2.07 for
# the GPUs used in machine learning, 2.95 for the fastest ones).
#
# Many machines bring two costs that one machine does not have. **Communication** is time in which bytes
# travel and no rank computes. **Synchronization** is time in which ranks wait for the slowest one. The rest
# of the course is about keeping both small. Its first part teaches the building blocks: this lecture,
# collectives, benchmarking. Its second part teaches the strategies: data, sharded, tensor and pipeline
# parallelism, then all of them together. Each strategy is written from scratch, run, and compared with its
# theory.
#
# One sentence sums it up: **organize the computation so that data moves as little, and over as short a
# distance, as possible.** For a *single* GPU that means fusion and tiling, so that fewer bytes pass between
# memory and chip. The rest of the course applies the same idea beyond a single GPU.

# %% [markdown]
# ## 2. How far is the data?
#
# A **GPU** is some hundred **streaming multiprocessors** (SMs) around one cache and one memory. You may hear
# that "the SMs are the ALUs"; an SM is closer to a small processor. It has arithmetic units and tensor cores,
# schedulers that hand them work, a **register file** of 256 KB, and 256 KB of **L1** cache, a part of which a
# program can use as a scratchpad called *shared memory*. All SMs share the **L2** cache and the **HBM**, the
# memory whose size is advertised. Eight such GPUs, two CPUs and some network cards make a **node**.
#
# A program for a GPU is called a **kernel**: a function that thousands of threads of the GPU run at the same
# time, for instance one matrix multiplication or one addition. The CPU *launches* kernels, one after another,
# and does not wait for them. (The process in which a notebook runs is also called a kernel. The two have
# nothing to do with each other.)
#
# Operands are far away from the units that need them. Everything further down in this list is larger and slower:
#
# | | of an H100 SXM | what it is |
# |---|---|---|
# | registers | 132 SMs × 256 KB | operands of the next instructions |
# | L1 and shared memory | 132 × 256 KB | what one block of threads works on |
# | L2 | 50 MB | shared by all SMs |
# | HBM | 80 GB | weights, gradients, activations |
# | NVLink through NVSwitch | 7 other GPUs | **inside the node** |
# | PCIe | the CPUs and their memory | inside the node |
# | InfiniBand or Ethernet | all other nodes | between nodes |
#
# **Question.** HBM delivers 3,350 GB/s. How many times more is that than what the GPU can send over all of its NVLinks together?

# %%
hbm_over_nvlink = None  # your prediction

# %%
ratio = h100.hbm_bandwidth / h100.nvlink_bandwidth
print(f"{predicted(hbm_over_nvlink, about='HBM over NVLink', was=ratio)}published: {ratio:.1f}")
ladder(published.LADDER, "How far is the data? An H100 SXM and what is around it")

# %%
print(f"to launch a kernel: {1e6 * published.KERNEL_LAUNCH:.0f} µs")
print(f"to all-reduce 32 KiB on 8 GPUs of a node: {1e6 * published.SMALL_ALL_REDUCE:.0f} µs")

# %% [markdown]
# The axes are logarithmic: one step to the right is a factor of ten. The sizes, and the bandwidths from HBM
# on, are as published. The bandwidths of registers and L1 are computed: 132 SMs each read 1,536 bytes of
# registers and 128 bytes of L1 in a cycle, at 1.98 GHz. The bandwidth of L2 was measured by third parties.
# Latencies are orders of magnitude, for the first byte from GPU to GPU; the port of an InfiniBand adapter
# alone takes 0.6 µs. Bandwidth falls by about a hundred from registers to HBM, and by more than seven at the
# step to the next GPU.
#
# Did you say 3.7, or 4? Then you divided by **900 GB/s**, the advertised figure. It adds up *both directions*
# of 18 links. Data that leaves this GPU uses only one direction: 450 GB/s. HBM's 3,350 GB/s are 7.4 times
# that. This factor of two is a frequent misunderstanding. These are others:
#
# | you may read | published |
# |---|---|
# | "an H100 has 3.9 TB/s of HBM" (or "4,000 GB/s") "and 900 GB/s of NVLink" | no product has both. SXM5: 3.35 TB/s and 900. NVL: 3.9 TB/s and 600. PCIe card: 2.0 TB/s and 600, by a bridge to one other card |
# | "HBM is 4 × NVLink" | 7.4 × if you only read. For a copy 3.7 ×: HBM's 3,350 GB/s are reads and writes together, so it copies 1,675 GB/s, and NVLink carries 450 out of the GPU |
# | "1,979 TFLOP/s" | with every other weight being zero (2:4 sparsity). Dense: 989 |
# | "NVSwitch connects GPUs across nodes" | in an HGX or DGX H100 the 4 NVSwitch chips are **inside** the node and join its 8 GPUs. Between nodes there is a network card of 50 GB/s for each GPU, 9 × slower. (The exceptions have names: NVLink Switch System, NVL72 racks.) |
#
# You need not know these by heart. But a plan that relies on both 3.9 TB/s and 900 GB/s needs a machine that
# does not exist. In the next list **bf16**, or bfloat16, is a floating-point number of 2 bytes, with the range of
# float32 and fewer digits. A TFLOP/s is 10¹² floating-point operations a second.

# %%
for name, gpu in published.GPUS.items():
    print(
        f"{name:10} HBM {gpu.hbm_bytes / 1e9:3.0f} GB at {gpu.hbm_bandwidth / 1e12:.2f} TB/s, bf16 {gpu.bf16_flops / 1e12:5,.0f} TFLOP/s,"
        f" NVLink {gpu.nvlink_bandwidth / 1e9:3.0f} GB/s and PCIe {gpu.pcie_bandwidth / 1e9:4.1f} GB/s one way"
    )

# %% [markdown]
# ## 3. This machine measures itself
#
# Published figures are promises. What does the machine in front of you achieve? We let rank 0 copy memory:
# first pieces small enough for its caches, then larger and larger ones. A copy of n bytes moves 2n bytes,
# because it reads n and writes n.
#
# Two details decide whether the result means anything. First, we take the *shortest* of several
# runs, as memory benchmarks do: it shows what the machine can do when nothing interferes. If you ask instead
# what you will *get* in a long run, the median is the answer; lecture 03 and the exercise use it. Second, a
# call from Python takes a microsecond, in which an L1 cache delivers 200 KB; so each call copies the same
# piece many times over.


# %%
# %%ranks
import time


def settle():
    """Wait for the GPU, if there is one: when a call returns, it has only been told what to do."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def seconds(run, repeats=7):
    """Return the shortest of some runs; the first one warms up and does not count."""
    times = []
    for _ in range(1 + repeats):
        start = time.perf_counter()
        run()
        settle()
        times.append(time.perf_counter() - start)
    return min(times[1:])


# %%
# %%ranks
def copies_of(nbytes):
    """A call that copies a piece many times, half of `nbytes` read and half written; and its bytes."""
    numel, shift = nbytes // 8, 16
    rows = max(1, 2**22 // nbytes)  # copies in one call, each written 64 bytes further on than the one before
    source = torch.ones(numel, device=device).expand(rows, numel)
    target = torch.ones(numel + shift * rows, device=device).as_strided((rows, numel), (shift, 1))
    return lambda: target.copy_(source), 8 * numel * rows


def copy_bandwidth(nbytes):
    copy, moved = copies_of(nbytes)
    return moved / seconds(copy)


# %% [markdown]
# **Question.** How many times faster is a copy inside the fastest cache than a copy in memory?

# %%
cache_over_memory = None  # your prediction

# %%
# %%ranks 0
alone = {2**exponent: copy_bandwidth(2**exponent) for exponent in range(12, 29)}

# %%
world = fourranks.world()
alone = world.pull("alone", ranks=[0])[0]
memory = max(alone[2**27], alone[2**28])
faster = max(alone.values()) / memory
print(f"{predicted(cache_over_memory, about='caches over memory', was=faster)}measured: {faster:.1f}")

on_gpus = world.pull("device.type")[0] == "cuda"
caches = {"L2": int(h100.l2_bytes)} if on_gpus else hardware.caches()
copies({"rank 0 alone": alone}, caches, scaled(cache_over_memory, memory), "Copies by rank 0 of this machine")

# %% [markdown]
# The curve is a staircase, and each step is a cache that has become too small: the dotted lines are the sizes
# that the operating system reports. The program knows nothing about caches. The same line of code is faster
# or slower by the factor printed above, depending only on *where its data is*. A last-level cache that is
# shared with other programs, or with other virtual machines, ends before its nominal size. On a GPU the first
# step is the L2 cache.
#
# Now all four ranks at once, each with data of its own.
#
# **Question.** Added up over four ranks, how many times the bandwidth of one rank do you expect, in the caches and in memory?

# %%
four_over_one = {"in the caches": None, "in memory": None}  # your predictions, as multiples of one rank


# %%
# %%ranks
def bandwidth_among_others(nbytes, window=0.1):
    """Bytes per second of this rank, while all ranks copy as much as they can for `window` seconds."""
    copy, moved = copies_of(nbytes)
    calls = 0
    dist.barrier()
    start = time.perf_counter()
    while time.perf_counter() - start < window:
        copy()
        settle()
        calls += 1
    return calls * moved / (time.perf_counter() - start)


together = {
    2**exponent: [bandwidth_among_others(2**exponent) for _ in range(5)] for exponent in range(12, 29, 2)
}

# %%
every = world.pull("together")
windows = {size: zip(*(own[size] for own in every), strict=True) for size in every[0]}
sums = {size: max(map(sum, five)) for size, five in windows.items()}  # of five windows the best
compare(
    {"in the caches": sums[2**14] / alone[2**14], "in memory": sums[2**28] / alone[2**28]},
    formula={"in the caches": min(world.world_size, hardware.processors())},
    yours=four_over_one,
    unit="×",
    title=f"Copies by four ranks at once, over copies by one; {hardware.processors()} processors",
)

# %%
memories = {f"HBM of {name}": gpu.hbm_bandwidth for name, gpu in published.GPUS.items() if "SXM" in name}
curves = {"rank 0 alone": alone, "four ranks, added up": sums}
copies(curves, caches, title="Copies on this machine, and published memories of GPUs", others=memories)

# %%
processors = min(world.world_size, hardware.processors())
caches_grew, memory_grew = sums[2**14] / alone[2**14], sums[2**28] / alone[2**28]
finding(
    caches_grew > 1.5 and memory_grew < 0.75 * caches_grew,
    f"the ranks together copied {caches_grew:.1f} times as fast as one in the caches and {memory_grew:.1f} times in memory.",
    f"{caches_grew:.1f} times in the caches and {memory_grew:.1f} times in memory. With {processors} idle processors the caches would give"
    f" {processors} times; other programs had a part of them, "
    + ("while rank 0 copied alone." if caches_grew > processors else "while all four copied."),
)
finding(
    h100.hbm_bandwidth > max(sums.values()),
    f"an H100's HBM is {h100.hbm_bandwidth / max(sums.values()):.0f} times as fast as the fastest caches that these ranks used.",
    "these ranks copied faster in their caches than an H100 does in its HBM.",
)

# %% [markdown]
# Each processor has its own private caches, so two idle processors copy twice as fast as one. The mark in the
# chart counts processors, not ranks. Memory is shared. One processor alone may not use all of its bandwidth,
# but once the bandwidth is used up, each further rank takes a part of the others' share. That is why
# distributed training measures everything *per link*: every added rank adds arithmetic, but it adds bandwidth
# only if it brings a link of its own.
#
# Look at the top of the chart, too. HBM is the *slow* memory of a GPU, from which kernels fetch as rarely as
# possible; the sentence above compares it with the fastest caches that these ranks used.

# %% [markdown]
# ## 4. The roofline
#
# Memory delivers bytes, and arithmetic units consume them. Which of the two is the limit depends on one
# property of the work, its **arithmetic intensity**: operations for each byte that passes between memory and
# chip. A multiplication of matrices (m × k) @ (k × n) does 2·m·n·k operations on (m·k + k·n + m·n) elements.
# If a machine has a peak of π operations per second and a bandwidth of B bytes per second, work of intensity
# I runs at no more than
#
# $$\min(\pi,\ I \cdot B)$$
#
# operations per second. Plotted against I, this limit is a roof with a slope and a flat part. They meet at
# the **ridge**, I = π/B.
#
# We measure both parts of the roof on rank 0. Then we climb it: we multiply a batch of 1, 2, 4, … rows by one
# matrix of 4096 × 4096, as a layer does. With a batch of one, each weight is read for a single multiply-add;
# with a batch of 512 it serves 512 of them.
#
# **Question.** Where is this machine's ridge? In other words: how many operations does it do in the time in which one byte comes from memory?

# %%
ridge = None  # your prediction, in operations per byte

# %%
# %%ranks 0
dtype = torch.bfloat16 if device.type == "cuda" else torch.float32


def matmul_flops(m, n, k, repeats=7):
    a, b = torch.rand(m, k, device=device, dtype=dtype), torch.rand(k, n, device=device, dtype=dtype)
    out = torch.empty(m, n, device=device, dtype=dtype)
    return 2 * m * n * k / seconds(lambda: torch.mm(a, b, out=out), repeats)


def intensity(m, n, k):
    return 2 * m * n * k / (dtype.itemsize * (m * k + k * n + m * n))


peak = max(
    matmul_flops(size, size, size) for size in ((1024, 1536) if device.type == "cpu" else (4096, 8192))
)
batches = [2**exponent for exponent in range(10)]
climb = {intensity(batch, 4096, 4096): matmul_flops(batch, 4096, 4096, repeats=9) for batch in batches}
peak = max(peak, *climb.values())  # the fastest run: a roof is what the machine can do
kind = str(dtype).removeprefix("torch.")

# %%
peak, climb, kind = (world.pull(name, ranks=[0])[0] for name in ("peak", "climb", "kind"))
print(
    f"measured: {peak / 1e9:,.0f} GFLOP/s and {memory / 1e9:.0f} GB/s: the ridge is at {peak / memory:.1f} operations per byte. {predicted(ridge, about='ridge, operations per byte', was=peak / memory)}"
)
roofs = {f"this machine, {kind}": (peak, memory)}
for name in ("A100 SXM", "H100 SXM", "H200 SXM", "B200 SXM"):
    roofs[name] = published.GPUS[name].bf16_flops, published.GPUS[name].hbm_bandwidth
roofline(
    roofs,
    climb,
    ridge,
    "A batch of 1 to 512 rows × (4096 × 4096), measured on this machine; published roofs of GPUs in bfloat16",
)

# %%
one_row, *between, rows_512 = climb.values()
first, *_, last = reached = [rate / min(peak, at * memory) for at, rate in climb.items()]
finding(
    rows_512 > 3 * one_row,
    f"512 rows ran at {rows_512 / one_row:.0f} times the rate of one row.",
    f"512 rows ran at {rows_512 / one_row:.1f} times the rate of one: something else had the processors.",
)
print(
    f"Of the roof, one row reached {first:.0%}, 512 rows {last:.0%}, and the lowest point {min(reached):.0%}."
)

# %% [markdown]
# Points with few rows belong under the slope, points with many rows under the flat part. Two things to
# remember:
#
# - **A roof is a limit, not a promise.** A point is below it when a library is not at its best for a shape: a
#   few rows neither fill a kernel's tiles nor let it stream like a copy. At the left a point may also be
#   above the slope. The slope was measured with copies, but a product with one row hardly writes anything,
#   and reading alone is faster.
# - **A larger batch buys intensity.** The course's example later on, 128 rows × (1024 × 1024), has 51 operations per byte in float32 and 102 in bfloat16. That is beyond the ridge of a laptop and far below the 295 of
#   an H100, which would run it at a third of its peak, at best.
#
# GPUs have a *higher* ridge than CPUs. The roofs above compare this processor's float32 with the tensor
# cores' bfloat16, but the ridge is also higher when both use float32: an H100 without its tensor cores does
# 67 TFLOP/s, so its ridge is at 67 / 3.35 = 20. From A100 to H100 the ridge nearly doubled, since arithmetic
# grew faster than bandwidth; an H200 has the same arithmetic and a faster memory. Memory is only the first
# slope. Divide an H100's peak by the bandwidth of its NVLink instead of its HBM, and then by that of its
# network card:

# %%
for name, bandwidth in {
    "HBM": h100.hbm_bandwidth,
    "NVLink": h100.nvlink_bandwidth,
    "a 400 Gb/s network card": 50e9,
}.items():
    print(f"{name:24} {h100.bf16_flops / bandwidth:7,.0f} operations per byte")

# %% [markdown]
# So for each byte that leaves the GPU for another node, the GPU must have some 19,800 operations to do, or
# the tensor cores wait. "Keep intensity high" is the same advice at every level; only the price differs.

# %% [markdown]
# ## 5. Bytes that need not move: fusion and tiling
#
# If traffic is the limit, saving traffic makes the program faster. Inside one GPU there are two ways to do
# that.
#
# **Fusion.** A chain of elementwise operations, each a kernel of its own, reads and writes the whole tensor
# each time. If one kernel does the whole chain, each element is read once, goes through all operations in
# registers, and is written once. A compiler such as `torch.compile` does that. Here we get most of the gain
# by hand: take a piece that fits into the cache, do *all* operations on it, and only then take the next.
#
# Our chain evaluates a polynomial: one multiplication into a new tensor (reads X, writes X), then four times a multiplication (reads 2X, writes X) and an addition (reads X, writes X): 22·X bytes of traffic where 2·X would do.
#
# **Question.** Exactly the same operations, piece by piece: how many times faster?

# %%
fused_speedup = None  # your prediction; 11 if traffic were all that counts


# %%
# %%ranks 0
def polynomial(x, out):
    torch.mul(x, 0.5, out=out)
    for _ in range(4):
        out.mul_(x)
        out.add_(1.0)


def piece_by_piece(x, out, numel):
    for x_piece, out_piece in zip(x.split(numel), out.split(numel), strict=True):
        polynomial(x_piece, out_piece)


x = torch.rand(2**24, device=device)
whole, pieces = torch.empty_like(x), torch.empty_like(x)
piece = 2**16 if device.type == "cpu" else 2**21  # 256 KiB for a processor's L2, 8 MiB for a GPU's
timed = {
    "all at once": 1000 * seconds(lambda: polynomial(x, whole)),
    "piece by piece": 1000 * seconds(lambda: piece_by_piece(x, pieces, piece)),
    "copy, for comparison": 1000 * seconds(lambda: whole.copy_(x)),
}
polynomial(x, whole)
same = torch.equal(whole, pieces)

# %%
timed = world.pull("timed", ranks=[0])[0]
speedup = timed["all at once"] / timed["piece by piece"]
print(
    f"{predicted(fused_speedup, about='speed-up of fusion', was=speedup)}measured: {speedup:.1f}   equal results: {world.pull('same', ranks=[0])[0]}"
)
compare(timed, unit="ms", title="A polynomial of 16 million numbers")

# %% [markdown]
# Is memory still the limit? To find out, divide each bar's bytes and operations by its time, and place both
# bars on the roofline of section 4. Each element takes 9 operations, and 22 or 2 passes of 4 bytes.

# %%
elements, passes = 2**24, {"all at once": 22, "piece by piece": 2}
for name, count in passes.items():
    rates = 4 * count * elements / timed[name] / 1e6, 9 * elements / timed[name] / 1e6
    print(f"{name:14} {rates[0]:5.1f} GB/s of memory traffic, {rates[1]:5.1f} GFLOP/s")
polynomials = {9 / (4 * count): 9e3 * elements / timed[name] for name, count in passes.items()}
of_memory = 4e3 * 2 * elements / timed["piece by piece"] / memory
finding(
    of_memory < 0.7,
    f"piece by piece uses {of_memory:.0%} of the memory's bandwidth. Memory is no longer the limit, the arithmetic and its calls are.",
    f"piece by piece uses {of_memory:.0%} of the memory's bandwidth: memory is still the limit.",
)
roofline(
    {f"this machine, {kind}": (peak, memory)},
    polynomials,
    None,
    "The polynomial: 22 passes (left) and 2 passes (right)",
)

# %% [markdown]
# The left point may be above the roof. The slope was measured with copies, and a pass that changes a tensor in
# place needs less of the memory than a copy does.
#
# Same operations, same order, same bits. Only the *time between* the uses of an element has changed: while
# its piece is in the cache, eight of nine operations do not touch memory at all.
#
# The factor of 11 is out of reach as soon as something else becomes the limit. The roof was measured with
# matrix products, which multiply and add in one instruction; single multiplications and additions, each a
# pass through the cache, cannot come near it. On a GPU, working piece by piece in L2 gains less, because
# every piece costs kernel launches of 5 to 10 µs. That is why on GPUs the chain becomes *one* kernel, in
# which each element stays in a register.
#
# **Tiling** does the same for a multiplication of matrices. Each element of an n × n matrix is needed n
# times. If each use fetches it from memory, the traffic is 2n³ elements. But if a block of T × T results is
# computed together, from tiles that lie in shared memory, each fetched element serves T results, and the
# traffic falls to 2n³/T.
#
# **Question.** n = 8192 in bfloat16 on an H100. How many milliseconds does the traffic take with tiles of 32 × 32? And with tiles of 197 × 197, the largest of which three fit into the 228 KB that one SM has?

# %%
tiles_ms = {32: None, 197: None}  # your predictions

# %%
n = 8192
largest = int((228 * 1024 / 2 / 3) ** 0.5)
arithmetic = 1000 * 2 * n**3 / h100.bf16_flops
print(f"arithmetic takes {arithmetic:.2f} ms")
for tile in (1, 32, largest):
    traffic = 1000 * 2 * 2 * n**3 / tile / h100.hbm_bandwidth
    print(
        f"tiles of {tile:3}: {predicted(tiles_ms, of=tile, about=f'ms of traffic, tiles of {tile}', was=traffic)}traffic takes {traffic:7.2f} ms, so the limit is {'traffic' if traffic > arithmetic else 'arithmetic'}"
    )

# %% [markdown]
# Without tiles a GPU would spend more than half a second fetching operands for a millisecond of arithmetic. Tiles in one SM bring that down to three times the arithmetic; the L2 cache, from which neighbouring SMs get
# the same tiles, does the rest. You saw the effect in the roofline: one row at a time reads all weights again for each row; 512 rows together read them once.
#
# So much for one GPU: *fuse and tile, to save traffic between memory and chip*. The rest of the lecture is
# about traffic **between** GPUs. The idea is the same; the means are new: replicate, shard, recompute.

# %% [markdown]
# ## 6. The way to another GPU
#
# How does a tensor get from one GPU to another? On the **classic path**, everything goes through the processors:
#
# ```
# GPU ──PCIe── CPU ──Ethernet── CPU ──PCIe── GPU
# ```
#
# Each stage has its price: transitions into the operating system's kernel, copies between its buffers and
# yours, a transport protocol (TCP) that splits the data into packets, numbers them and acknowledges them, and
# a PCIe bus that is shared with all other devices. On the **modern path** a GPU writes directly into the
# memory of another. Inside a node it does so over NVLink and NVSwitch. Between nodes a network card reads GPU
# memory by itself (GPUDirect RDMA), and the CPU takes no part.
#
# | link, one direction | GB/s | you may read instead |
# |---|---|---|
# | NVLink 4, 18 links | 450 | "900": both directions |
# | PCIe 4 / 5 / 6 x16 | 31.5 / 63 / 121 | "PCIe 7.0, 242 GB/s": a specification of June 2025 without products, or the two directions of PCIe 6. "24 GB/s" is plausible: *measured*, on PCIe 4 |
# | InfiniBand HDR / NDR / XDR | 25 / 50 / 100 | |
# | Ethernet 10 / 100 / 400 / 800 Gb/s | 1.25 / 12.5 / 50 / 100 | "Ethernet, 200 MB/s": that is between 1 and 2.5 Gb/s, an office. Data centres have 100 to 800 Gb/s, and with RDMA (RoCE) it bypasses the CPU as well |
#
# Real transfers reach some 80 to 90 percent of these: 55 of 63 GB/s from host to an H200, 396 of 450 between two of them.
#
# For one link of latency α and bandwidth B, n bytes take α + n/B seconds. Over several links there are two
# cases. With **store and forward**, each station in the middle waits for the whole message, so the times add
# up. If the transfer is **pipelined**, each station passes on the first bytes while more come in: the
# latencies add up, and after that the slowest link sets the pace. Our ranks can show both. A message travels
# from rank 0 over ranks 1 and 2 to rank 3, whole, and then in 16 pieces.
#
# The messages are real, but on one machine the same few processors copy all of them, and no rank has a link
# of its own. So each rank imitates a gigabit Ethernet link: before it sends, it sleeps for as long as the
# link would be busy. 8 MiB take 67 ms.
#
# **Question.** Three hops. If one takes 1, how long does the message take in one piece, and how long in 16?

# %%
hops_predicted = {"3 hops, whole": None, "3 hops, 16 pieces": None}  # your predictions, in units of one hop


# %%
# %%ranks
GIGABIT_ETHERNET = 125e6  # bytes per second


def relay(message, pieces, last):
    """Send pieces from rank to rank, up to rank `last`; each passes a piece on as soon as it has it."""
    under_way = []
    for piece in message.chunk(pieces) if rank <= last else []:
        if rank > 0:
            dist.recv(piece, src=rank - 1)
            settle()
        if rank < last:
            time.sleep(piece.nbytes / GIGABIT_ETHERNET)
            under_way.append(dist.isend(piece, dst=rank + 1))
    for sending in under_way:
        sending.wait()


message = torch.full((2**21,), float(rank == 0), device=device)  # 8 MiB
dist.barrier()


# %%
# %%ranks
def relay_seconds(pieces, last):
    times = []
    for _ in range(4):
        dist.barrier()
        start = time.perf_counter()
        relay(message, pieces, last)
        settle()
        dist.barrier()
        times.append(time.perf_counter() - start)
    return min(times[1:])


one_hop = relay_seconds(1, last=1)
hops = {
    "3 hops, whole": relay_seconds(1, last=3) / one_hop,
    "3 hops, 16 pieces": relay_seconds(16, last=3) / one_hop,
}
arrived = message[-1].item()

# %%
hops, one_hop = world.pull("hops")[0], world.pull("one_hop")[0]
print(f"8 MiB arrived on every rank: {world.pull('arrived')}; one hop takes {1000 * one_hop:.0f} ms")
ideal = {"3 hops, whole": 3, "3 hops, 16 pieces": 1 + 2 / 16}
compare(hops, ideal, hops_predicted, "hops", "8 MiB from rank 0 to rank 3, in units of one hop")

# %% [markdown]
# In 16 pieces it would ideally take 1 + 2/16: the first piece needs three steps, and after that one piece
# arrives in each step. The rest of the measured time goes to the messages themselves, and to waking up from
# sleep 16 times on a machine that has other work.
#
# The next two cells draw timelines of the same bytes, first whole, then in pieces. A light bar is a rank
# whose link is busy, a hatched bar is a rank that waits for a message. The bandwidths in the tables below the
# timelines are those of the messages alone, which this machine copies in its memory: the imitated link is the
# sleep before them, and a trace counts sleep as work of the rank.

# %%
# %%ranks --trace
dist.barrier()
relay(message, 1, last=3)

# %%
# %%ranks --trace
dist.barrier()
relay(message, 16, last=3)

# %% [markdown]
# A staircase, then a diagonal band. The exercise asks for the formula behind both; here it is at work on published bandwidths, for 350 MB (the gradients of a small model):


# %%
def transfer_seconds(nbytes, *bandwidths, pipelined):
    each = [nbytes / bandwidth for bandwidth in bandwidths]
    return max(each) if pipelined else sum(each)


pcie, nvlink, infiniband = h100.pcie_bandwidth, h100.nvlink_bandwidth, 50e9
ways = {
    "PCIe, 10 GbE, PCIe: whole": transfer_seconds(350e6, pcie, 1.25e9, pcie, pipelined=False),
    "PCIe, 10 GbE, PCIe: pipelined": transfer_seconds(350e6, pcie, 1.25e9, pcie, pipelined=True),
    "PCIe, 100 GbE, PCIe: whole": transfer_seconds(350e6, pcie, 12.5e9, pcie, pipelined=False),
    "PCIe, 100 GbE, PCIe: pipelined": transfer_seconds(350e6, pcie, 12.5e9, pcie, pipelined=True),
    "GPU to GPU over InfiniBand NDR": transfer_seconds(350e6, infiniband, pipelined=True),
    "GPU to GPU over NVLink": transfer_seconds(350e6, nvlink, pipelined=True),
}
compare(
    {name: 1000 * seconds for name, seconds in ways.items()},
    unit="ms",
    label="worked out, not measured",
    title="350 MB between two H100s, from published bandwidths",
)

# %% [markdown]
# Read the chart from the bottom. Inside the node the transfer hardly matters. The modern path between nodes
# takes 9 times as long. On the classic path over 10-gigabit Ethernet the same bytes take *hundreds of
# milliseconds*, in which an H100 could have done 10¹⁴ operations. Pipelining helps little there, since one
# link is so much slower than the others: compare the two bars of 10 GbE, and then the two of 100 GbE.
#
# How much of a published bandwidth do whole collectives reach? On 8 A100 an all-reduce runs at 235 of 300
# GB/s, on 8 H200 at 367 of 450: about 80 percent, for large messages. Even 482 of 450 has been measured:
# there the *switch* does the addition, and fewer bytes travel than the formula assumes. Lecture 03 explains
# that case. For 32 KiB latency decides: an all-reduce takes some 44 µs inside a node. One message of 4 GB is
# about 3 times as fast as a thousand of 4 MB.
#
# If you have GPUs, the next cell measures your own links. Otherwise it says that there are none.

# %%
# %%ranks 0-1
if device.type == "cuda" and torch.cuda.device_count() > 1:
    host = torch.empty(2**28, dtype=torch.uint8, pin_memory=True)  # 256 MiB that the GPU may read by itself
    here, there = (
        torch.empty(2**28, dtype=torch.uint8, device=f"cuda:{number}") for number in (rank, 1 - rank)
    )
    print(f"GPU {rank}: from the host {2**28 / seconds(lambda: here.copy_(host)) / 1e9:.1f} GB/s", end=", ")
    print(f"to GPU {1 - rank} {2**28 / seconds(lambda: there.copy_(here)) / 1e9:.1f} GB/s")
elif rank == 0:
    print("fewer than two GPUs here: the table above has to do")

# %% [markdown]
# ## 7. Reading a machine: `nvidia-smi topo -m`
#
# Before you plan anything on a rented machine, ask it how its GPUs are connected. This is the answer of a
# node with eight H100 and network cards. The listing comes with the course, so you need no such machine to
# read it:

# %%
print("\n".join(published.topology("8_h100").splitlines()[:12]))

# %% [markdown]
# A matrix with a row and a column for each GPU and each network card (NIC):
#
# | entry | the way between the two |
# |---|---|
# | `NV18` | 18 NVLinks |
# | `PIX` | one PCIe switch |
# | `PXB` | several PCIe switches |
# | `PHB` | up to the processor's PCIe bridge and down again |
# | `NODE` | several PCIe bridges of one processor |
# | `SYS` | over to the other processor (old drivers say `SOC`) |
#
# **Question.** GPU 5 has to send to another node. Which NIC should it use, and which ones would be the worst?

# %%
nic_of_gpu_5 = None  # your prediction, for instance "NIC3"

# %%
h100_node = topology.parse(published.topology("8_h100"))
nearest = min(h100_node.devices[8:], key=lambda nic: topology.distance(h100_node.entries["GPU5", nic]))
print(f"{predicted(nic_of_gpu_5, about='nearest card of GPU 5', was=nearest)}nearest:", nearest)
draw_topology(h100_node, published.TOPOLOGIES["8_h100"])

# %% [markdown]
# The green square says that any GPU reaches any other over 18 NVLinks: inside this node, placement does not
# matter. The orange diagonal says that for *leaving* the node it does. Each GPU has one NIC behind the same
# PCIe switch (`PIX`); its bytes go from GPU memory to the wire without passing a CPU. The NICs marked `SYS`
# belong to the other CPU, and bytes would cross the link between the two CPUs. NCCL reads the same table and
# chooses its paths by it. Your part is to start one process per GPU, and not to renumber devices in a way
# that separates a rank from its NIC.
#
# The CPUs still have work to do: they run the Python that launches all of this, help the ranks find each other at
# the start, load data, write checkpoints, and run backends that do not use GPUs (Gloo).
#
# Now a machine that promises more than it delivers.
#
# **Question.** Eight GPUs without NVLink sit behind two PCIe switches on the same CPU. A ring passes through all
# eight, from each to the next and from the last to the first. Which is the slowest link of the best ring?

# %%
slowest_link = None  # your prediction: an entry from the table

# %%
p40_node = topology.parse(published.topology("8_p40"))
print(
    f"{predicted(slowest_link, about='slowest link', was=p40_node.bottleneck())}it is:",
    topology.meaning(p40_node.bottleneck()),
)
draw_topology(p40_node, published.TOPOLOGIES["8_p40"])

# %% [markdown]
# A collective over all eight GPUs has to squeeze through the one connection between the two switches, which
# all of them share. This is the first **pitfall** of distributed training: *on a cluster with only PCIe or
# only Ethernet between its GPUs, the GPUs starve.* Strategies that communicate a lot, such as tensor
# parallelism, are hopeless there. Strategies that communicate little, such as pipelines and large batches,
# may work.
#
# Slices of a GPU (**MIG**) have no links at all, not even to each other: if you were given slices of one GPU,
# the table has a single row. And this is your machine:

# %%
from fourranks.doctor.tool import NoAnswer, ask

try:
    print(ask("nvidia-smi", "topo", "-m"))
except NoAnswer as reason:
    print(f"No table here: {reason}. Others to read: {', '.join(published.TOPOLOGIES)}")

# %% [markdown]
# ## 8. Replicate, shard or recompute?
#
# The hierarchy turns into decisions as soon as several ranks need the same tensor. Each of them can
#
# - **replicate**: keep all of it. That costs memory on every rank, and only a local read when the tensor is
#   needed;
# - **shard**: keep one part in four, and gather the rest when it is needed. That costs communication;
# - **recompute**: keep nothing, and compute it again. That costs arithmetic.
#
# Which is best follows from *relative* cost, so it differs from machine to machine. We time all three on four ranks, for the output of a layer, 512 rows × (2048 × 2048).
#
# **Question.** How does a local read rank against gathering, and gathering against recomputing? Guess the three times.

# %%
plan_ms = {"replicate": None, "shard": None, "recompute": None}  # your predictions, in ms

# %%
# %%ranks
inputs, weights = torch.rand(512, 2048, device=device), torch.rand(2048, 2048, device=device)
output = inputs @ weights
shard = output.chunk(world_size)[rank].clone()
full, used = torch.empty_like(output), torch.empty_like(output)

plans = {}
for name, plan in {
    "replicate": lambda: used.copy_(output),
    "shard": lambda: dist.all_gather_single(full, shard),
    "recompute": lambda: torch.mm(inputs, weights, out=used),
}.items():
    dist.barrier()
    plans[name] = 1000 * seconds(plan)

# %%
held = {"replicate": 4.0, "shard": 1.0, "recompute": 0.0}
slowest = {name: max(plans[name] for plans in world.pull("plans")) for name in held}
print("MiB held on each rank in the meantime:", held)
compare(
    slowest,
    yours=plan_ms,
    unit="ms",
    title="To have 4 MiB when they are needed, on the slowest of four ranks",
)

# %% [markdown]
# And on eight A100, in one node, or in eight nodes with HDR cards of 25 GB/s? The next cell compares the same
# three plans for 1 GB that takes 3 · 10¹² operations to compute, at half the peak. The exercise asks you for
# H100s and other sizes.

# %%
a100 = published.GPUS["A100 SXM"]
for where, link in {"8 GPUs in one node": a100.nvlink_bandwidth, "8 GPUs in 8 nodes": 25e9}.items():
    times = {
        "replicate": 1e9 / a100.hbm_bandwidth,
        "shard": 7 / 8 * 1e9 / link,
        "recompute": 3e12 / (0.5 * a100.bf16_flops),
    }
    print(where + ":", ", ".join(f"{name} {1000 * time:.1f} ms" for name, time in times.items()))

# %% [markdown]
# With the same tensor and the same GPUs, the order of *shard* and *recompute* is reversed, because the link is
# a different one. No strategy is best on every machine. Lectures 04 to 07 mostly apply this one decision, to
# parameters, to optimizer states, to activations: data parallelism (DDP, lecture 04) replicates, sharded data
# parallelism (ZeRO and FSDP, 05) shards, activation checkpointing (05) recomputes.

# %% [markdown]
# ## 9. Busy is not useful
#
# How do you notice that GPUs starve? A rule of thumb says: "GPU utilization below 30 % means that
# communication is the limit." Let us test the instrument before we trust it. Rank 3 comes late to an
# all-reduce. Rank 0 waits for it as NCCL's kernels wait on a GPU: in a loop that checks again and again
# whether the data has arrived.
#
# **Question.** How busy, in percent, does an observer find rank 0 meanwhile? And how much of its peak does it use for work?

# %%
rank_0 = {"busy": None, "useful": None}  # your predictions, in percent

# %%
# %%ranks
gradients = torch.ones(1000)
dist.barrier()
if rank == world_size - 1:
    time.sleep(0.5)  # a slow data loader, say
start, processor = time.perf_counter(), time.process_time()
handle = dist.all_reduce(gradients.to(device), async_op=True)
while rank == 0 and not handle.is_completed():
    pass
handle.wait()
elapsed = time.perf_counter() - start
busy = 100 * (time.process_time() - processor) / elapsed

# %%
observed = {
    "busy": world.pull("busy")[0],
    "useful": 100 * 3 * 1000 / world.pull("elapsed")[0] / peak,  # three additions for each of 1,000 elements
}
compare(observed, yours=rank_0, unit="%", title="Rank 0, while it waits for rank 3")

# %% [markdown]
# A rank that spins looks busy for as long as it has a processor, and does nothing useful. `nvidia-smi`'s
# *GPU-Util* is the same kind of number: the share of time in which **any** kernel was running. NCCL's kernels
# spin while they wait, so it can read 100 % on a GPU that does nothing but wait; a low value shows a problem,
# but a high one does not show that all is well. Look at these instead:
#
# - **MFU**, model FLOPs utilization: the operations that the model needs, divided by those that the GPU could
#   have done in that time at its peak. The "useful" bar above is such a share. Waiting does not count.
# - SM activity (DCGM's `sm_active`), which counts how many SMs have work, instead of whether any kernel runs.
# - A profiler's timeline, or this course's: `%%ranks --trace` shows waiting as hatched.

# %% [markdown]
# ## 10. Can hardware make this go away?
#
# **Other hardware.** Cerebras puts a wafer's worth of memory next to its arithmetic units, and Groq
# keeps whole models in on-chip memory. If everything fits, data hardly moves. The price
# is flexibility, and data that does not fit has to travel over links again. Hardware and software are
# designed for each other: tensor cores because networks are multiplications, bfloat16 because networks
# tolerate it, NVLink because they outgrew one chip. Each generation is faster, and the hierarchy stays,
# because models grow into it.
#
# **Control flow or data flow?** CPUs were built for programs that decide at every step what comes next.
# Training is the opposite: the same graph of operations over and over, known beforehand. Given a *static*
# graph, a compiler can decide where each tensor lives, what to fuse, and when a transfer has to start to be
# in time. `torch.compile` and JAX do a part of that. It is an open question how much should be planned in
# advance, and how much decided at run time.

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
# - **Caches as a staircase** in copies on this very machine, memory that four ranks had to share, and the
#   **roofline** of this machine beside those of four GPUs. A larger batch bought intensity, and fusion by
#   hand saved time without saving an operation.
# - **How far away data is**: 3,350 GB/s from HBM, then, in one direction, 450 over NVLink, 63 over PCIe and
#   50 to another node; three hops in one piece and in sixteen; and a table, `nvidia-smi topo -m`, that says
#   which path bytes will take.
# - **Replicate, shard or recompute** as three bars, whose order changed with the link; and a rank that looked
#   busy while it only waited.
#
# **Your turn**: [the exercise](../../exercises/01_hardware_hierarchy/exercise.ipynb). Intensity, roofline, transfers, a parser for that table, and a measurement that cannot be fooled.
#
# **Next**: 02, collectives. Four ranks, and everything they send to each other.
#
# **Sources and further reading.** [Stanford CS336 (spring 2025), lecture 8](https://github.com/stanford-cs336/spring2025-lectures) · [Stanford CS229S (fall
# 2023)](https://cs229s.stanford.edu/fall2023/), on parallelism · Kaplan et al., *Scaling laws for neural language models*, [arXiv 2001.08361](https://arxiv.org/abs/2001.08361) · Brown et
# al. (GPT-3), [arXiv 2005.14165](https://arxiv.org/abs/2005.14165) · Epoch, [*Trends in GPU price-performance*](https://epoch.ai/blog/trends-in-gpu-price-performance) · NVIDIA, datasheets
# and tuning guides of Ampere, Hopper and Blackwell, [*Upgrading multi-GPU interconnectivity with the third-generation NVIDIA
# NVSwitch*](https://developer.nvidia.com/blog/upgrading-multi-gpu-interconnectivity-with-the-third-generation-nvidia-nvswitch/) · Bekman, [*Machine Learning
# Engineering*](https://github.com/stas00/ml-engineering) · Williams, Waterman and Patterson, [*Roofline*](https://doi.org/10.1145/1498765.1498785) (2009)

# %%
# %ranks stop
