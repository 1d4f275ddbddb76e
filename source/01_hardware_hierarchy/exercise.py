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
# # 01 Hardware hierarchy: can you say how long it takes before you run it?
#
# Before you write distributed code, you have to know what limits it: arithmetic, memory, or a link. Here you
# write five small tools that tell you.
#
# You will
#
# - say from shapes alone whether a matrix multiplication is limited by arithmetic or by memory,
# - compute how long bytes take over any chain of links,
# - read how a machine's GPUs are connected, and measure how fast its memory is.
#
# 1 to 2 hours · 1 rank (the checks start their own) · no GPU needed
#
# [The lecture](../../lectures/01_hardware_hierarchy/lecture.ipynb) has the ideas; here you build them. On one page each:
# [notation](../../docs/notation.md) · [cheat sheet](../../docs/cheat_sheet.md) · [glossary](../../docs/glossary.md) · [concept map](../../docs/concept_map.md)

# %% [markdown]
# ## Rules
#
# **Units.** Everything is in base units: bytes, seconds, bytes per second, operations per second. The bandwidth of a link is that
# of *one* direction. Convert to GB/s (10⁹) when you print, never before.
#
# **Operations.** A multiplication is one operation and an addition is one, so a multiply-add is two. Vendors
# count FLOP/s in the same way.
#
# **Numbers** are plain Python floats, not tensors.

# %% nbgrader={"grade": false, "grade_id": "setup", "locked": true, "schema_version": 3, "solution": false, "task": false}
# %load_ext fourranks

import itertools
import re
import statistics
import time

import torch

from autograder import check
from fourranks.figures import published

# %% [markdown]
# ## 1. Arithmetic intensity
#
# **Difficulty** ●○○○○ · **Importance** ●●●●○ · **about 10 minutes**
#
# `matmul_intensity(m, n, k, bytes_per_element)` returns how many operations a matrix multiplication (m × k) @
# (k × n) does for each byte that passes between memory and chip, if each matrix passes exactly once.
#
# ```
#            k              n              n
#        ┌───────┐      ┌───────┐      ┌───────┐
#      m │ read  │    k │ read  │  = m │written│       each result: k multiplications, k additions
#        └───────┘      └───────┘      └───────┘
# ```
#
# | | |
# |---|---|
# | `m`, `n`, `k` | the sizes, as above; `k` may be 0 |
# | `bytes_per_element` | 4 for float32, 2 for bfloat16 |
# | returns | operations per byte |
#
# <details><summary>Hint 1</summary>
# Operations: m · n results, each the sum of k products.
# </details>
# <details><summary>Hint 2</summary>
# Bytes: (m·k + k·n + m·n) elements. The first two matrices are read, the third is written.
# </details>


# %% nbgrader={"grade": false, "grade_id": "matmul_intensity", "locked": false, "schema_version": 3, "solution": true, "task": false}
def matmul_intensity(m: int, n: int, k: int, bytes_per_element: int) -> float:
    """Operations per byte of a matrix multiplication (m, k) @ (k, n) whose matrices pass the memory once."""
    ### BEGIN SOLUTION
    return 2 * m * n * k / (bytes_per_element * (m * k + k * n + m * n))
    ### END SOLUTION


# %% [markdown]
# Try it: the model of lectures 04 to 07, a multilayer perceptron (MLP), has layers of 1024 × 1024 and a batch of
# 128. What do you expect in bfloat16, and for a batch of 1?

# %%
for batch in (1, 128, 4096):
    print(
        f"batch {batch:5}: {matmul_intensity(batch, 1024, 1024, bytes_per_element=2):7.1f} operations per byte"
    )

# %% nbgrader={"grade": true, "grade_id": "matmul_intensity_check", "locked": true, "points": 10, "schema_version": 3, "solution": false, "task": false}
check.matmul_intensity(matmul_intensity)
### BEGIN HIDDEN TESTS
check.matmul_intensity(matmul_intensity, cases=40, seed=1301)
### END HIDDEN TESTS

# %% [markdown]
# ## 2. The roofline
#
# **Difficulty** ●●○○○ · **Importance** ●●●●● · **about 20 minutes**
#
# `attainable_flops(intensity, peak_flops, bandwidth)`: the most operations per second that a machine can reach with work of this intensity.
#
# ```
#  operations/s
#    peak_flops │            ┌──────────────   arithmetic is the limit
#               │          ╱
#               │        ╱                     memory is the limit
#               │      ╱
#               └────┴───────┴──────────────
#                          ridge     intensity
# ```
#
# | | |
# |---|---|
# | `intensity` | operations per byte |
# | `peak_flops` | operations per second of the arithmetic units |
# | `bandwidth` | bytes per second of the memory |
# | returns | operations per second |
#
# <details><summary>Hint</summary>
# In one second the memory delivers <code>bandwidth</code> bytes. For how many operations is that enough? And what if that is more than the peak?
# </details>


# %% nbgrader={"grade": false, "grade_id": "attainable_flops", "locked": false, "schema_version": 3, "solution": true, "task": false}
def attainable_flops(intensity: float, peak_flops: float, bandwidth: float) -> float:
    """Operations per second that memory and arithmetic allow for work of this intensity."""
    ### BEGIN SOLUTION
    return min(peak_flops, intensity * bandwidth)
    ### END SOLUTION


# %% [markdown]
# The next cell uses both functions on published figures. Which GPU needs the largest batch?

# %%
for gpu in published.GPUS.values():
    for batch in (128, 4096):
        intensity = matmul_intensity(batch, 4096, 4096, bytes_per_element=2)
        share = attainable_flops(intensity, gpu.bf16_flops, gpu.hbm_bandwidth) / gpu.bf16_flops
        print(f"{gpu.name:10} batch {batch:4}: at most {share:4.0%} of its peak")

# %% nbgrader={"grade": true, "grade_id": "attainable_flops_check", "locked": true, "points": 10, "schema_version": 3, "solution": false, "task": false}
check.attainable_flops(attainable_flops)
### BEGIN HIDDEN TESTS
check.attainable_flops(attainable_flops, cases=40, seed=1302)
### END HIDDEN TESTS

# %% [markdown]
# **Question 1 (graded by hand).** A layer multiplies activations of (b × 4096) by weights of (4096 × 4096) in
# bfloat16 on an H100 SXM, then adds a bias and applies GELU, each as a kernel of its own.
#
# - (a) Below which batch size b is the multiplication limited by memory? Give the inequality and an
#   approximate number.
# - (b) What is the intensity of the bias addition alone, and what does that say about buying a faster GPU for
#   it?
# - (c) How many passes over the activations does fusing all three into one kernel save, and why does that not
#   change the answer to (a)?

# %% [markdown] nbgrader={"grade": true, "grade_id": "roofline_explained", "locked": false, "points": 10, "schema_version": 3, "solution": true, "task": false}
# **Answer to question 1**
#
# <!-- BEGIN SOLUTION -->
# (a) Intensity = 2·b·4096² / (2·(2·4096·b + 4096²)) = 4096·b / (2·b + 4096). The ridge of an H100 SXM is 989e12 / 3.35e12 ≈ 295 operations per byte, so the
# memory is the limit while 4096·b < 295·(2·b + 4096), that is b < 295·4096 / (4096 − 590) ≈ 345. (Accept "about b ≈ 300 to 350", and the
# short argument that for b much smaller than 4096 the intensity is about b.)
#
# (b) One addition for each element, which is read (2 bytes) and written (2 bytes): about 1/4 operation per byte, a thousandth of the ridge. More FLOP/s do not
# help at all; more bandwidth does, in proportion.
#
# (c) Separately the activations are written by the multiplication, read and written by the bias, read and written by GELU: five passes over b × 4096
# elements. Fused there is one, the final write: four are saved. The multiplication itself still reads X and W and writes one result, which is what (a) counted.
#
# 4 points for (a), 3 each for (b) and (c); full points for (c) need both halves.
# <!-- END SOLUTION -->

# %% [markdown]
# ## 3. Over one link, and over several
#
# **Difficulty** ●●○○○ · **Importance** ●●●●○ · **about 15 minutes**
#
# `transfer_seconds(num_bytes, hops, pipelined=False)` returns how long bytes take from one end of a chain of
# links to the other.
#
# | | |
# |---|---|
# | `num_bytes` | how many; may be 0 |
# | `hops` | a list of `(latency_seconds, bytes_per_second)`, one for each link on the way; may be empty: then the bytes have already arrived |
# | `pipelined` | see below |
# | returns | seconds from the start until the last byte has arrived |
#
# Without pipelining (*store and forward*), each hop waits until it has the whole message. With pipelining, it
# passes on the first bytes while more come in. The first byte still pays every latency; after that bytes flow
# through all links simultaneously, as fast as the slowest link allows.
#
# ```
# not pipelined                                   pipelined
# GPU to CPU      ████████                        ████████
# CPU to CPU              ████████████████         ████████████████
# CPU to GPU                              ████████   ██ ██ ██ ██ ██ ██
# ```
#
# <details><summary>Hint 1</summary>
# One hop takes latency + num_bytes / bandwidth. With one hop, pipelining makes no difference.
# </details>
# <details><summary>Hint 2</summary>
# Pipelined: the sum of all latencies, plus num_bytes over the smallest bandwidth. Python's <code>min</code>
# needs a <code>default</code> for an empty list.
# </details>


# %% nbgrader={"grade": false, "grade_id": "transfer_seconds", "locked": false, "schema_version": 3, "solution": true, "task": false}
def transfer_seconds(num_bytes: int, hops: list[tuple[float, float]], pipelined: bool = False) -> float:
    """Seconds for bytes over hops of (latency in seconds, bytes per second) each."""
    ### BEGIN SOLUTION
    latency = sum((latency for latency, _ in hops), 0.0)
    each = [num_bytes / bandwidth for _, bandwidth in hops]
    return latency + (max(each, default=0.0) if pipelined else sum(each))
    ### END SOLUTION


# %% [markdown]
# 350 MB of gradients, from a GPU to one in another machine: over the CPUs and 10-gigabit Ethernet, over
# InfiniBand straight from GPU memory, and, in the same machine, over NVLink. Bandwidths are as published;
# latencies are rough and include the software. Which step of the classic path would you improve first?

# %%
pcie, ethernet, infiniband, nvlink = (10e-6, 63e9), (30e-6, 1.25e9), (5e-6, 50e9), (2e-6, 450e9)
ways = {"classic": [pcie, ethernet, pcie], "InfiniBand, GPU to GPU": [infiniband], "NVLink": [nvlink]}
for name, hops in ways.items():
    one_by_one, pipelined = (transfer_seconds(350e6, hops, flag) for flag in (False, True))
    print(f"{name:23} {1000 * one_by_one:7.2f} ms, pipelined {1000 * pipelined:7.2f} ms")

# %% nbgrader={"grade": true, "grade_id": "transfer_seconds_check", "locked": true, "points": 20, "schema_version": 3, "solution": false, "task": false}
check.transfer_seconds(transfer_seconds)
### BEGIN HIDDEN TESTS
check.transfer_seconds(transfer_seconds, cases=30, seed=1303)
### END HIDDEN TESTS

# %% [markdown]
# ## 4. Read a machine
#
# **Difficulty** ●●●○○ · **Importance** ●●●○○ · **about 30 minutes**
#
# `parse_topology(text)` turns the output of `nvidia-smi topo -m` into a dictionary that a program can use.
#
# | | |
# |---|---|
# | `text` | the whole output: a header line, a row for each device, then a legend |
# | returns | for each row and column its entry: `{("GPU0", "GPU1"): "NV18", ("GPU0", "NIC0"): "PIX", …}`, devices with themselves (`"X"`) included |
# | raises | `ValueError` that says what is wrong, if the text is anything other than a complete listing |
#
# Entries are `X`, `NV` with a number, `PIX`, `PXB`, `PHB`, `NODE`, `SYS`, and `SOC` for `SYS` in old drivers. This is a real listing:

# %%
print(published.topology("4_a100"))

# %% [markdown]
# There are more of them, from eleven machines: `published.TOPOLOGIES` lists them. They differ, so look at a
# few before you write anything; `print(repr(…))` shows invisible characters. Network cards have names of
# their own or are called `NIC0`. Columns are separated by tabs or by spaces. A new driver underlines the
# header line with terminal codes, `\x1b[4m` before it and `\x1b[0m` after it. The columns after the entries
# of a row, such as CPU affinity, may be missing. A job that was given one GPU, or a slice of one (MIG), sees
# a table of one row. In a log, other lines may stand above the header line, such as the command itself.
#
# Every listing that is parsed correctly earns its share of the points, independently of the others.
#
# Raise `ValueError` for anything else, for example "No devices were found", a table with a missing row, a row
# that breaks off in the middle, or a table with other entries than those above.
#
# <details><summary>Hint 1</summary>
# <code>line.split()</code> splits at tabs and at spaces. The devices are the words of the header line before <code>CPU</code>.
# </details>
# <details><summary>Hint 2</summary>
# The header line is the first one whose first word is <code>GPU0</code> after the terminal codes are removed:
# <code>re.sub(r"\x1b\[\d*m", "", text)</code>. The rows follow right below it, as many as there are devices.
# </details>
# <details><summary>Hint 3</summary>
# A row is valid if its first word is the expected device, and the next words, one for each device, are all
# known entries: <code>re.fullmatch(r"X|NV\d+|PIX|…", entry)</code>. For everything else raise
# <code>ValueError</code>.
# </details>


# %% nbgrader={"grade": false, "grade_id": "parse_topology", "locked": false, "schema_version": 3, "solution": true, "task": false}
def parse_topology(text: str) -> dict[tuple[str, str], str]:
    """The entries of a listing of `nvidia-smi topo -m`, by row and column.

    Raises:
        ValueError: it is no complete listing.
    """
    ### BEGIN SOLUTION
    lines = [line.split() for line in re.sub(r"\x1b\[\d*m", "", text).splitlines()]
    head = next((number for number, words in enumerate(lines) if words[:1] == ["GPU0"]), None)
    if head is None:
        raise ValueError("there is no table of GPUs in it")
    words = lines[head]
    devices = words[: words.index("CPU")] if "CPU" in words else words
    rows = lines[head + 1 : head + 1 + len(devices)]
    if [row[:1] for row in rows] != [[device] for device in devices]:
        raise ValueError(f"there is not a row for each of {', '.join(devices)}")
    entries = {}
    for device, *links in rows:
        for other, link in itertools.zip_longest(devices, links[: len(devices)], fillvalue=""):
            if not re.fullmatch(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC", link):
                raise ValueError(f"{link!r} is no link, but stands for {device} and {other}")
            entries[device, other] = link
    return entries
    ### END SOLUTION


# %% [markdown]
# Use it for a question that matters when you place ranks on machines: which network card is close to which
# GPU?

# %%
links = parse_topology(published.topology("8_h200"))
for gpu in (f"GPU{number}" for number in range(8)):
    near = [
        card for (one, card), link in links.items() if one == gpu and card.startswith("NIC") and link == "PIX"
    ]
    print(gpu, "talks to other machines through", *near)

# %% nbgrader={"grade": true, "grade_id": "parse_topology_check", "locked": true, "points": 20, "schema_version": 3, "solution": false, "task": false}
check.parse_topology(parse_topology)
### BEGIN HIDDEN TESTS
check.parse_topology(parse_topology, names=("8_v100", "4_h100"), seed=1304)
### END HIDDEN TESTS

# %% [markdown]
# ## 5. Measure a machine
#
# **Difficulty** ●●●○○ · **Importance** ●●●●○ · **about 30 minutes**
#
# `measure_copy_bandwidth(num_bytes)` returns the bytes per second at which this machine copies memory. Each
# byte counts twice, because it is read *and* written.
#
# | | |
# |---|---|
# | `num_bytes` | the size of each of two tensors of `torch.uint8`, one byte an element |
# | returns | 2 · `num_bytes` over the **median** duration of at least 5 copies, `destination.copy_(source)` |
#
# Measuring is harder than it looks. The check runs your function on a simulated machine with three problems
# that real machines have, too. The **first copy into new memory** takes 20 times as long, since the operating
# system hands out pages only when they are touched. **Now and then** a copy takes 15 times as long, since
# another program had the processor, or 0.7 times as long, since a cache had the bytes. None of these may
# change your result by more than 1 %.
#
# On the simulated machine every clock of the module `time` advances only while you copy, so the check knows
# the right answer. Then it runs your function once more, with real clocks on the real machine, and compares
# the result with its own measurement.
#
# <details><summary>Hint 1</summary>
# Allocate everything and copy once before you start the clock. Then time each copy separately:
# <code>time.perf_counter()</code> before and after.
# </details>
# <details><summary>Hint 2</summary>
# Collect the durations in a list. A few that are too long or too short do not change <code>statistics.median</code>,
# but they do change a mean or a minimum.
# </details>
# <details><summary>Hint 3</summary>
# <code>torch.ones(num_bytes, dtype=torch.uint8)</code> and <code>torch.zeros_like</code> of it.
# </details>


# %% nbgrader={"grade": false, "grade_id": "measure_copy_bandwidth", "locked": false, "schema_version": 3, "solution": true, "task": false}
def measure_copy_bandwidth(num_bytes: int) -> float:
    """Bytes per second, read plus written, at which this machine copies a tensor of `num_bytes`."""
    ### BEGIN SOLUTION
    source = torch.ones(num_bytes, dtype=torch.uint8)
    destination = torch.zeros_like(source)
    destination.copy_(source)  # the operating system hands out the pages here
    durations = []
    for _ in range(11):
        start = time.perf_counter()
        destination.copy_(source)
        durations.append(time.perf_counter() - start)
    return 2 * num_bytes / statistics.median(durations)
    ### END SOLUTION


# %%
for exponent in (12, 16, 20, 24, 27):
    print(f"{2**exponent:11,} bytes: {measure_copy_bandwidth(2**exponent) / 1e9:6.1f} GB/s")

# %% [markdown]
# Where are the caches? For small tensors you mostly measure the cost of a call from Python; the lecture shows
# how to avoid that. And on a GPU, what would be missing between the copy and the second reading of the clock?

# %% nbgrader={"grade": true, "grade_id": "measure_copy_bandwidth_check", "locked": true, "points": 20, "schema_version": 3, "solution": false, "task": false}
check.measure_copy_bandwidth(measure_copy_bandwidth)
### BEGIN HIDDEN TESTS
check.measure_copy_bandwidth(measure_copy_bandwidth, num_bytes=(1, 4099, 30_000_001), seed=1305)
### END HIDDEN TESTS

# %% [markdown]
# **Question 2 (graded by hand).** The backward pass needs a tensor of 2 GB that the forward pass computed
# with 10¹³ operations from inputs that are still in memory. You have 8 H100 SXM in one node. Compare three
# plans: *keep* it in the GPU's own memory; *shard* it, so that each GPU keeps an eighth and gathers the other
# seven eighths over NVLink when they are needed; *recompute* it at half the peak rate. For each plan, give
# the memory that it occupies on each GPU in the meantime, and estimate the time that it adds. When would you
# choose which plan, and what changes if the 8 GPUs are in 8 different nodes?

# %% [markdown] nbgrader={"grade": true, "grade_id": "replicate_shard_recompute", "locked": false, "points": 10, "schema_version": 3, "solution": true, "task": false}
# **Answer to question 2**
#
# <!-- BEGIN SOLUTION -->
# | plan | memory | added time |
# |---|---|---|
# | keep | 2 GB | 0.6 ms to read it from HBM (2 GB / 3.35 TB/s), which every plan pays |
# | shard | 0.25 GB, and 2 GB while it is used | 7/8 · 2 GB / 450 GB/s ≈ 3.9 ms |
# | recompute | only the inputs, which are there anyway | 10¹³ / (0.5 · 989e12) ≈ 20 ms |
#
# Keep it while it fits. If it does not, sharding is the cheaper way inside a node: NVLink is fast in
# comparison with the arithmetic that it saves. Part of either can be hidden behind other work, if a link or
# the tensor cores are idle at that time.
#
# In 8 different nodes a GPU has a NIC of 50 GB/s: gathering takes 7/8 · 2 GB / 50 GB/s = 35 ms, more than the 20 ms of recomputing. Now recomputing wins. The order of the plans follows from the ratio of
# link speed to arithmetic, not from the plans themselves.
#
# 4 points for the numbers (a factor of two is near enough), 3 for a choice that follows from them, 3 for the change across nodes.
# <!-- END SOLUTION -->

# %% [markdown]
# ## What you have now
#
# - You can say from shapes alone what limits a matrix multiplication, and by how much.
# - You can compute the cost of a transfer over any chain of links, and explain why the slowest link decides
#   when it is pipelined.
# - You can read a machine's topology with a program, and measure its memory without fooling yourself.
#
# Next: *02 collectives*. Many ranks, and what they say to each other.
