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
# # 02 Collectives: one pattern, many ranks
#
# **Four processes share no memory. How do they come to hold the same sum, and what does that cost?**
#
# You will
#
# - run the ten operations that all distributed training is made of, and see what each rank holds before and
#   after,
# - count messages and bytes of chains, trees and rings, and know why a ring all-reduce moves 2(N−1)/N of the data,
# - make four ranks deadlock in three ways, and read what stopped them.
#
# 75 minutes · 4 ranks, and 8 in one section · Gloo on any laptop, NCCL on a machine with 4 GPUs
#
# [The exercise](../../exercises/02_collectives/exercise.ipynb) · [notation](../../docs/notation.md) · [cheat sheet](../../docs/cheat_sheet.md) · [glossary](../../docs/glossary.md) · [concept map](../../docs/concept_map.md)
#
# Before each run there is a question with a variable for your answer. Fill it in before you go on. If you leave it at
# `None`, everything still works, but even a wrong guess teaches more than none.

# %%
# %load_ext fourranks
import fourranks
from fourranks.figures import compare, ledger, predicted, review

# %ranks start

# %% [markdown]
# ## Before you begin
#
# Three questions about earlier lectures. Answer them from memory, in the list below; `None` works, too.

# %%
ledger.begin("02")

# %%
remembered = [None, None, None]  # your answers

# %%
ledger.answers(remembered)

# %% [markdown]
# ## 1. Who is there?
#
# A cell that starts with `%%ranks` runs on every rank; `%%ranks 2` runs on rank 2 alone. Cells without it run here, in the
# notebook. The next two cells give a name to a value on rank 2, and then ask all the ranks about it.
#
# **Question.** How many of the four ranks will know the name `secret`?

# %%
ranks_that_know = None  # your prediction: a number from 0 to 4

# %%
# %%ranks 2
secret = 42

# %%
# %%ranks
import os

knows = "secret" in globals()
print(f"I am rank {rank} of {world_size}, process {os.getpid()}. Do I know the secret? {knows}")

# %%
know = sum(fourranks.world().pull("knows"))
print(f"{predicted(ranks_that_know, about='ranks that know', was=know)}counted:", know)

# %% [markdown]
# The ranks are four operating-system processes, each with its own Python and its own memory. One rank learns
# the values of another only if they are *sent*. All the difficulties of distributed training come from that.
# A few words describe who takes part:
#
# | word | meaning |
# |---|---|
# | **node** | one machine, with its CPUs and typically 8 GPUs. Some texts say node where they mean GPU; here a node is a machine |
# | **rank** | the number of one process, counted from 0 over all nodes. Usually one process drives one GPU |
# | **local rank** | the number of a process on its own node; it chooses the GPU |
# | **world size** | how many ranks there are |
# | **process group** | a set of ranks that communicate together, and torch's object for it. The *default group* has all of them |
# | **backend** | the library that moves the bytes: Gloo for tensors in CPU memory, NCCL for tensors on GPUs |
# | **rendezvous** | how the ranks find each other at the start: all go to one agreed address |
# | **barrier** | a point that no rank passes before all have reached it |
#
# In formulas the whole course uses the same letters:
#
# | letter | meaning |
# |---|---|
# | N | ranks; d, t and p for the ranks of data, tensor and pipeline parallelism, where they are combined. nccl-tests writes n |
# | S | bytes of a tensor; for a reduce-scatter of the whole input, for an all-gather of the whole output |
# | α | latency: seconds that even the smallest message takes |
# | β, B | seconds that each byte adds, and bytes per second: B = 1/β, for one direction of a link |
# | P, m | parameters of a model; microbatches of a pipeline |
#
# You can ask for most of the words above:

# %%
# %%ranks
print(f"rendezvous at {os.environ['MASTER_ADDR']}, backend {dist.get_backend()},", end=" ")
print(f"world size {dist.get_world_size()}, default group {dist.get_process_group_ranks(dist.group.WORLD)}")

# %% [markdown]
# Here `%ranks start` did the set-up that a script has to do for itself. This is such a script, nearly
# complete:
#
# ```python
# def main(rank, world_size):
#     os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "15623"
#     dist.init_process_group("gloo", rank=rank, world_size=world_size)  # returns when all have come
#     ...  # train
#     dist.destroy_process_group()
#
# if __name__ == "__main__":
#     torch.multiprocessing.spawn(main, args=(4,), nprocs=4)
# ```
#
# - `MASTER_ADDR` and `MASTER_PORT` serve **only for finding each other**. Rank 0 keeps a small key-value
#   store there, in which each rank leaves its address. Tensors travel directly from rank to rank and never
#   through that port.
# - Before `init_process_group` a process has no rank to ask for: `dist.get_rank()` raises a `ValueError`. Launchers such as
#   `torchrun` therefore put `RANK`, `LOCAL_RANK` and `WORLD_SIZE` into the environment; read them there. A second
#   `init_process_group` raises as well: one default group a process.
# - `spawn` cannot ship a function that was defined in a notebook. That is one reason why this course has `%%ranks`.

# %% [markdown]
# ## 2. The first collective
#
# Each rank makes `[0, 1, 2, 3] + rank`. Then all call `dist.all_reduce`, which adds the four tensors, element by element, and
# leaves the sum on every rank.
#
# **Question.** What does rank 2 hold afterwards?

# %%
rank_2_holds = None  # your prediction: a list of four numbers

# %%
# %%ranks
before = torch.arange(4.0, device=device) + rank
after = before.clone()
dist.all_reduce(after)
after


# %%
def picture(title):
    """Pull from the ranks which values they held `before` and hold `after`."""
    world = fourranks.world()
    backend = {"gloo": "Gloo", "nccl": "NCCL"}[world.backend]
    title = f"{title}, {backend}, {world.world_size} ranks"
    return fourranks.show(world.pull("before"), world.pull("after"), title)


holds = fourranks.world().pull("after")[2].tolist()
print(f"{predicted(rank_2_holds, about='rank 2 after the all-reduce', was=holds)}rank 2 holds:", holds)
picture("all_reduce (sum)")

# %% [markdown]
# The label `[0-3]` says that four ranks printed the same. In the figure each rank has a colour that it keeps
# through the whole course; a cell with four stripes contains a contribution from all four.
#
# A **collective** is such a pattern of communication, over all ranks of a group, under one name. It may span
# 4 ranks or 256 GPUs on 32 nodes; the line of code is the same. Parallel programming has known these patterns
# since the 1980s. You say *what* should happen, and the library chooses *how*: which links, in which order,
# in how many pieces.
#
# Data-parallel training needs little more than the line above: every rank computes gradients from its own part of the batch, and
# `all_reduce` adds them up.

# %% [markdown]
# ## 3. The ten operations
#
# ### One rank gives, or one rank gets
#
# From here on the numbers show where they came from. Rank `r` holds `[1, 2, 3, 4] * 10**r`: the **place** of
# a digit tells the rank, the **digit** tells the element. 30 is rank 1's third element; 1111 is the sum of
# the first elements of all ranks.

# %%
# %%ranks
mine = torch.arange(1.0, 5.0, device=device) * 10**rank
mine

# %% [markdown]
# **Broadcast**: one rank, `src`, gives the same to all. Training uses it to give all ranks the same initial weights and hyper-parameters.

# %%
# %%ranks
before = mine
after = mine.clone()
dist.broadcast(after, src=0)

# %%
picture("broadcast(src=0)")

# %% [markdown]
# **Scatter**: `src` cuts its tensor into one chunk for each rank, and rank `i` gets chunk `i`. Rank 0, the
# source here, keeps chunk 0 for itself. The other ranks contribute nothing and pass `None`.

# %%
# %%ranks
before = mine if rank == 0 else None
chunks = list(mine.split(1)) if rank == 0 else None
after = torch.zeros(1, device=device)
dist.scatter(after, chunks, src=0)

# %%
picture("scatter(src=0)")

# %% [markdown]
# **Gather** is the inverse of scatter: `dst` collects one chunk from each rank. The others get nothing; their list is `None`.

# %%
# %%ranks
before = mine[:1]
after = [torch.zeros(1, device=device) for _ in range(world_size)] if rank == 0 else None
dist.gather(before, after, dst=0)

# %%
picture("gather(dst=0)")

# %% [markdown]
# **Reduce**: like all-reduce, but only `dst` gets the sum.
#
# **Question.** `reduce` works in place. What will rank 1 find in its tensor: its input, the sum, or neither?

# %%
rank_1_holds = None  # your prediction: "input", "sum" or "neither"

# %%
# %%ranks
before = mine
after = mine.clone()
dist.reduce(after, dst=0)

# %%
print(f"{predicted(rank_1_holds)}rank 1 holds:", fourranks.world().pull("after")[1].tolist())
picture("reduce(dst=0, sum)")

# %% [markdown]
# On Gloo, neither: the buffers of the other ranks are left with the sums of *some* ranks. Read the stripes
# from the bottom up, and they show Gloo's algorithm: the first two numbers started on rank 3 and gathered one
# more colour at each stop on their way to rank 0. After `reduce`, only `dst` may use its tensor. And if all
# ranks need the sum, as with gradients, `reduce` is the wrong operation.

# %% [markdown]
# ### All ranks give and all ranks get
#
# **All-gather**: every rank gives a chunk, every rank gets all the chunks, in the order of the ranks. It puts a sharded tensor together
# again.

# %%
# %%ranks
before = mine[:1]
after = torch.zeros(4, device=device)
dist.all_gather_single(after, before)

# %%
picture("all_gather_single")

# %% [markdown]
# **Reduce-scatter**: every rank gives *all* of its input, not just a part of it. The inputs are added, and rank `i` gets chunk `i` of the
# sum.
#
# **Question.** Which one number will rank 2 hold?

# %%
rank_2_gets = None  # your prediction: a number

# %%
# %%ranks
before = mine
after = torch.zeros(1, device=device)
dist.reduce_scatter_single(after, before)

# %%
gets = fourranks.world().pull("after")[2].item()
print(f"{predicted(rank_2_gets, about='rank 2 after the reduce-scatter', was=gets)}rank 2 holds:", gets)
picture("reduce_scatter_single (sum)")

# %% [markdown]
# **All-to-all**: rank `i`'s chunk `j` goes to rank `j`, which puts it in place `i`. Written as a matrix with one row a rank, it is a
# transpose. Mixture-of-experts models send tokens to their experts this way.

# %%
# %%ranks
before = mine
after = torch.zeros(4, device=device)
dist.all_to_all_single(after, before)

# %%
picture("all_to_all_single")

# %% [markdown]
# Three rules explain all of these names:
#
# - **reduce** means: combine with an operation whose order does not matter (sum, product, minimum, maximum).
#   An average is not such an operation, because an average of averages is wrong when the groups differ in
#   size. `ReduceOp.AVG` divides a sum by the world size, but the backend decides when. NCCL scales
#   floating-point numbers *before* it adds them, and integers afterwards; Gloo adds first. The last bits may
#   differ, and a float16 sum that overflows on Gloo may not overflow on NCCL. On Gloo AVG works for floating
#   point and raises on integers, although torch's docstring still says "NCCL only".
# - **scatter** is the inverse of **gather**. Broadcast has no inverse, but it has a mirror image: broadcast
#   copies in the forward pass, so its gradient is a sum in the backward pass, which is a reduce. All-gather
#   and reduce-scatter mirror each other in the same way, and all-reduce mirrors itself. You will need this in
#   lecture 06.
# - **all** means: every rank is a destination, and there is no `src` or `dst` to name.
#
# | operation | rank *i* gives | rank *i* gets | training uses it for |
# |---|---|---|---|
# | broadcast | `src`: x | x | equal weights at the start |
# | scatter | `src`: x₀ … x₃ | xᵢ | handing out work |
# | gather | xᵢ | `dst`: x₀ … x₃ | collecting metrics |
# | reduce | xᵢ | `dst`: Σx | logging one loss |
# | all-gather | xᵢ | x₀ … x₃ | weights of FSDP before a layer |
# | reduce-scatter | all of its input | chunk *i* of Σx | gradients of FSDP |
# | all-reduce | xᵢ | Σx | gradients of DDP |
# | all-to-all | chunks for 0 … 3 | chunks from 0 … 3 | tokens for experts |
# | send, recv | x | x | activations of a pipeline |
# | barrier | – | – | order |
#
# DDP is PyTorch's data parallelism (lecture 04), FSDP its sharded data parallelism (05); a pipeline passes
# activations from rank to rank (07), and experts are in lecture 08.
#
# **Shapes.** All ranks must call the same operations in the same order with matching sizes and dtypes. In
# all-gather and reduce-scatter, dimension 0 is divided among the ranks: N ranks with inputs of shape (k, m)
# gather into (N·k, m). To have the shards side by side along another dimension, gather and then rearrange.
# Try new code on tensors as tiny as these first: every mistake shows immediately.
#
# **Names.** Torch 2.13 calls the flat variants `all_gather_single` and `reduce_scatter_single`. Before, they were
# `all_gather_into_tensor` and `reduce_scatter_tensor`; those still work and warn. `all_gather(list, tensor)`,
# `reduce_scatter(tensor, list)` and `all_to_all(list, list)` take lists of tensors.

# %% [markdown]
# ### Two ranks, and none at all
#
# `send` and `recv` are **point-to-point**: two ranks take part, and the others are not involved. A collective
# moves its data inside the library, so we see only the state before and after it. Messages can be watched on
# their way: with `--steps x` a cell is followed by a picture that shows every message with its sender and
# receiver, and the contents of `x` in between. Elements that are sent have a frame.

# %%
# %%ranks --steps x
x = mine.clone()
if rank == 1:
    dist.send(x[2:], dst=3)
if rank == 3:
    dist.recv(x[:2], src=1)

# %% [markdown]
# A **barrier** moves no data at all. It only makes the ranks wait for one another.
#
# **Question.** Rank `r` arrives `20 * r` ms late. How many ms does each rank spend in the barrier?

# %%
# your predictions, in ms
in_barrier = {"rank 0": None, "rank 1": None, "rank 2": None, "rank 3": None}

# %%
# %%ranks --trace
import time

dist.barrier()  # start together
time.sleep(0.020 * rank)
arrived = time.perf_counter()
dist.barrier()
waited_ms = 1000 * (time.perf_counter() - arrived)

# %%
waited = {f"rank {rank}": ms for rank, ms in enumerate(fourranks.world().pull("waited_ms"))}
arrivals = {f"rank {rank}": 60 - 20 * rank for rank in range(4)}
compare(waited, formula=arrivals, yours=in_barrier, unit="ms", title="Time in the barrier")

# %% [markdown]
# `--trace` has drawn the timeline above. Hatched bars are time in which a rank waits for another one, and the
# **bubble** on the right is the share of time that a rank waits. All ranks leave when the last one arrives:
# the slowest rank sets the pace, here in a barrier, in lecture 04 in every training step. The table under the
# timeline adds up what that cost: `lost` is 20 + 40 + 60 ms and a little more.
#
# Use barriers to put output in order, to start clocks together, or to let rank 0 prepare a file that the
# others read. A collective needs no barrier in front of it. Is every collective a barrier by itself? Only
# those in which every rank's result depends on every rank's input: all-reduce, all-gather, reduce-scatter,
# all-to-all. In a broadcast, the source may leave before the last rank arrives:

# %%
# %%ranks --trace
dist.barrier()
time.sleep(0.020 if rank == 3 else 0)
dist.broadcast(after, src=0)

# %% [markdown]
# On Gloo, ranks 0 and 2 have left before rank 3 arrives. Rank 1 also has its data, but it must stay: in
# Gloo's tree it passes the data on to rank 3.

# %% [markdown]
# ## 4. Seven friends
#
# Why not write everything with `send` and `recv`? A thought experiment: you have a 5 MB file, you can upload
# 1 MB/s, and seven friends with connections like yours want the file. Together you are 8 ranks.
#
# - **One by one**: 7 × 5 = 35 s. Serving all seven simultaneously does not help: each gets a seventh of your
#   upload, some 143 KB/s, and the total is again 35 s.
# - **Tree**: every friend who has the file passes it on. After 5 s two have it, after 10 s four, after 15 s
#   all eight: log₂ 8 = 3 rounds.
# - **Chain in 5 chunks**: you send the first megabyte to rank 1, which passes it to rank 2 while you send it the second, and so on.
#
# **Question.** How many seconds does the chain take? To find out, ask when the last friend gets the first
# megabyte, and when the fifth.

# %%
chain_seconds = None  # your prediction

# %% [markdown]
# Now on real ranks. One element of the tensor stands for one megabyte; before each message the sender sleeps
# for as long as its upload would take. One second of the story lasts 20 ms here. The ranks use Gloo even
# where there are GPUs: its `recv` returns when the data is there, so no rank passes on data that it does not
# have yet.

# %%
# %ranks start -n 8 --backend gloo

# %%
# %%ranks
import time

SECOND = 0.020


def upload(x, to):
    time.sleep(SECOND * x.numel())
    return dist.isend(x, dst=to)


# %%
# %%ranks
def one_by_one(x):
    for friend in range(1, world_size):
        if rank == 0:
            upload(x, friend).wait()
        elif rank == friend:
            dist.recv(x, src=0)


def tree(x):
    for distance in (4, 2, 1):
        if rank % (2 * distance) == 0:
            upload(x, rank + distance).wait()
        elif rank % (2 * distance) == distance:
            dist.recv(x, src=rank - distance)


# %%
# %%ranks
def chain(x):
    under_way = []
    for chunk in x.split(1):
        if rank > 0:
            dist.recv(chunk, src=rank - 1)
        if rank < world_size - 1:
            under_way.append(upload(chunk, rank + 1))
    for message in under_way:
        message.wait()


# %%
# %%ranks
def seconds(algorithm):
    file = torch.full((5,), 7.0 if rank == 0 else 0.0, device=device)
    dist.barrier()
    start = time.perf_counter()
    algorithm(file)
    dist.barrier()
    assert file.eq(7).all()
    return (time.perf_counter() - start) / SECOND


measured = {
    "one by one": seconds(one_by_one),
    "tree": seconds(tree),
    "chain, 5 chunks": seconds(chain),
}

# %%
compare(
    fourranks.world().pull("measured")[0],
    formula={"one by one": 35, "tree": 15, "chain, 5 chunks": 11},
    yours={"chain, 5 chunks": chain_seconds},
    unit="s",
    title="5 MB to 7 friends, 50 times faster than in the story",
)

# %% [markdown]
# If a bar is longer than its formula, the reason is that each message also costs a fixed time, its
# **latency** α, and that eight processes share this machine. With k chunks the chain takes (k + 6) · 5/k
# seconds: 11 s for 5 chunks, 5.6 s for 50, and never less than the 5 s of uploading the file once.
#
# So the tree's 15 s is not the best that a collective can do; even a scatter followed by an all-gather would
# need only 2 · 7/8 · 5 = 8.75 s. The tree has the fewest rounds, which is what counts for small messages; the
# chain keeps every connection busy, which is what counts for large ones.
#
# Watch the tree. Nothing here is drawn by hand: the arrows are the messages that the ranks really sent, and
# the numbers are the values that they held. When you have run the cell, use the slider above the picture to
# go through the rounds one by one.

# %%
# %%ranks --steps file
file = torch.arange(1.0, 6.0, device=device) * (rank == 0)
tree(file)

# %% [markdown]
# And the chain:

# %%
# %%ranks --steps file
file = torch.arange(1.0, 6.0, device=device) * (rank == 0)
chain(file)

# %% [markdown]
# In the tree most ranks are idle most of the time. In the chain, once it is filled, every rank sends and
# receives in every round, each a different megabyte. You will meet this diagonal again as the pipeline of
# lecture 07.

# %% [markdown]
# ### A tree that adds
#
# Run a broadcast tree backward and add wherever two ranks meet: that is a reduce. Eight ranks hold 0.1, −0.2,
# −0.3, 0.5, −0.6, −0.1, 0.2, 0.3.
#
# **Question.** Which four numbers are there after the first of three steps?

# %%
after_step_1 = None  # your prediction: neighbours add up; a list of four numbers


# %%
# %%ranks
def tree_reduce(x):
    other = torch.zeros_like(x)
    for distance in (1, 2, 4):
        if rank % (2 * distance) == distance:
            dist.send(x, dst=rank - distance)
        elif rank % (2 * distance) == 0:
            dist.recv(other, src=rank + distance)
            x += other


# %%
# %%ranks --steps x
x = torch.tensor([0.1, -0.2, -0.3, 0.5, -0.6, -0.1, 0.2, 0.3], device=device)[rank]
tree_reduce(x)

# %%
print(f"{predicted(after_step_1)}(ranks 0, 2, 4 and 6 hold them between round 1 and round 2)")

# %% [markdown]
# A tree needs three rounds for 8 ranks, and ten for 1,024. In each round whole tensors move, which takes log₂
# N · (α + S/B) seconds for S bytes over links of B bytes per second. The number of rounds grows slowly, but a
# tree that is not pipelined pays for all S bytes in every round.
#
# Floating-point addition is not associative. The tree adds (0.1 − 0.2) + (−0.3 + 0.5), a loop adds from left to right, and the last bit may
# differ. After an all-reduce the ranks agree to the last bit with each other, but not necessarily with a sum on one process.

# %% [markdown]
# ## 5. Rings
#
# Put the ranks in a circle. Each sends to its right neighbour and receives from its left one, all at the same time, and
# every link is busy in every round. With four ranks the tensor is cut into four chunks. Here is one step on every rank:

# %%
# %ranks start

# %%
# %%ranks
mine = torch.arange(1.0, 5.0, device=device) * 10**rank
right, left = (rank + 1) % world_size, (rank - 1) % world_size


def step(give, take):
    """Send `give` to the right while `take` fills from the left."""
    both = [dist.P2POp(dist.isend, give, right), dist.P2POp(dist.irecv, take, left)]
    for work in dist.batch_isend_irecv(both):
        work.wait()


# %% [markdown]
# **First phase.** In each of N − 1 steps a rank sends one chunk and receives another, whose number is one
# lower; it *adds* the received chunk to its own copy of that chunk. The sums travel around the ring and grow.
#
# **Question.** After 3 steps, how many of its 4 chunks does a rank hold as the full sum of all ranks?

# %%
complete_chunks = None  # your prediction: a number from 0 to 4


# %%
# %%ranks
def add_around(x):
    chunks = x.chunk(world_size)
    inbox = torch.empty_like(chunks[0])
    for turn in range(world_size - 1):
        step(chunks[(rank - turn) % world_size], inbox)
        chunks[(rank - turn - 1) % world_size].add_(inbox)


# %%
# %%ranks --steps x
x = mine.clone()
add_around(x)

# %%
complete = fourranks.world().pull("sum(value % 1111 == 0 for value in x.tolist())")
print(
    f"{predicted(complete_chunks, about='complete chunks of a rank', was=complete[0])}counted on each rank:",
    complete,
)

# %% [markdown]
# On each rank exactly one chunk has all four colours, and together the ranks hold the whole sum. That is a
# reduce-scatter, with the chunks shifted by one place: rank 0 ends up with chunk 1.
#
# **Second phase.** N − 1 more steps around the same ring. Now a received chunk *replaces* the old one: an all-gather of the finished chunks.


# %%
# %%ranks
def pass_around(x):
    chunks = x.chunk(world_size)
    for turn in range(world_size - 1):
        step(chunks[(rank + 1 - turn) % world_size], chunks[(rank - turn) % world_size])


def ring(x):
    add_around(x)
    pass_around(x)


# %% [markdown]
# Both phases from the beginning: in rounds 1 to 3 sums grow, in rounds 4 to 6 they spread.

# %%
# %%ranks --steps x
x = mine.clone()
ring(x)

# %% [markdown]
# **Question.** Four ranks all-reduce a tensor of S bytes. How many bytes does the busiest rank send, as a
# multiple of S, if every rank sends its whole tensor to every other rank and each adds them up? And in the
# ring that you have just seen?

# %%
sent_over_s = {"everyone to everyone": None, "ring": None}  # your predictions, as multiples of S


# %%
# %%ranks
def everyone_to_everyone(x):
    others = [other for other in range(world_size) if other != rank]
    inbox = {other: torch.empty_like(x) for other in others}
    both = [dist.P2POp(dist.isend, x, other) for other in others]
    both += [dist.P2POp(dist.irecv, inbox[other], other) for other in others]
    for work in dist.batch_isend_irecv(both):
        work.wait()
    return x + sum(inbox.values())


# %%
world = fourranks.world()
world.execute("x = torch.ones(1_000_000, device=device)")
traces = {}
for algorithm in ("everyone_to_everyone", "ring"):
    with world.trace() as traces[algorithm.replace("_", " ")]:
        world.execute(f"{algorithm}(x)")

# %%
sent = {name: max(map(trace.bytes_sent, range(4))) / 4_000_000 for name, trace in traces.items()}
formula = {"everyone to everyone": 3, "ring": 2 * 3 / 4}
compare(sent, formula, sent_over_s, "S", "Bytes sent by the busiest rank, 4 ranks")

# %% [markdown]
# The next two tables show how much each rank sent to each other rank in the same two runs:

# %%
traces["everyone to everyone"].traffic("everyone to everyone, S = 4 MB = 3.81 MiB")

# %%
traces["ring"].traffic("ring, S = 4 MB = 3.81 MiB")

# %% [markdown]
# Each of the two phases sends N − 1 chunks of S/N bytes, so a rank sends **2 (N−1)/N · S** bytes: 1.5 S for 4
# ranks, less than 2 S for any number of ranks. The naive way sends (N−1) S. In the ring, each rank sends to
# *one* neighbour and receives from the other; it does not send to both.
#
# With latency α for a message and B bytes per second and direction for a link, for N ranks and S bytes:
#
# | all-reduce by | rounds | time |
# |---|---|---|
# | reduce to a root, one by one, then broadcast the same way | 2(N−1) | 2(N−1) α + 2(N−1) S/B |
# | tree, then tree back | 2 log₂ N | 2 log₂ N (α + S/B) |
# | the same trees, in many small pieces | 2 log₂ N until the first piece is back | 2 log₂ N α + 2 S/B |
# | halving and doubling | 2 log₂ N | 2 log₂ N α + 2 (N−1)/N · S/B |
# | ring | 2(N−1) | 2(N−1) α + 2 (N−1)/N · S/B |
#
# - **Ring.** The second term hardly grows with N, so a ring is good for **large** tensors on equal links. The
#   first term grows with N: with many ranks or tiny tensors a tree wins. How tiny depends on the tree.
# - **Tree.** In the unpipelined tree above, whole tensors move in every round, and a rank is idle in most
#   rounds. Cut the tensor into pieces, as in the chain of section 4, and let two trees share the work, so
#   that a leaf of one is an inner rank of the other. Then each byte passes a link once up and once down, and
#   only the latencies count log₂ N times. NCCL uses this *double binary tree*.
# - **Halving and doubling** works in pairs: partners at distance N/2 exchange halves and add, then partners
#   at distance N/4 exchange quarters, and so on. After log₂ N rounds each rank has one N-th of the sum, and
#   the same exchanges in reverse spread it. It has the tree's latency and the ring's bytes, if N is a power
#   of two and if distant partners have links as good as neighbours'.
#
# Horovod made the ring popular for training in 2018; Patarasuk and Yuan had shown in 2009 that no algorithm
# moves fewer bytes. Lecture 03 measures α and B.

# %% [markdown]
# ## 6. All-reduce is reduce-scatter plus all-gather
#
# The two phases of the ring are collectives of their own, and FSDP will use them separately.
#
# **Question.** Which pairs make an all-reduce: (a) reduce-scatter and all-gather, (b) reduce and all-gather, (c) reduce and broadcast?

# %%
pairs_that_work = None  # your prediction, for instance "ab"

# %%
# %%ranks
wanted = mine.clone()
dist.all_reduce(wanted)

part, a = torch.zeros(1, device=device), torch.zeros(4, device=device)
dist.reduce_scatter_single(part, mine)
dist.all_gather_single(a, part)

# %%
# %%ranks
summed = mine.clone()
dist.reduce(summed, dst=0)

b = torch.zeros(16, device=device)
dist.all_gather_single(b, summed)

c = summed.clone()
dist.broadcast(c, src=0)

# %%
# %%ranks
results = {"a": a, "b": b, "c": c}
works = "".join(name for name, result in results.items() if torch.equal(result, wanted))

# %%
works = fourranks.world().pull("works")
print(f"{predicted(pairs_that_work, about='pairs that work', was=works[0])}what works on each rank:", works)

# %% [markdown]
# The answer is (a) and (c). After a reduce the sum is on one rank only, and gathering one right answer and
# three leftovers does not help; the sum has to be *broadcast*.
#
# Do (a) and (c) cost the same? Added up over all links they move the same bytes: 2(N−1) S. But they do not
# take the same time. In (c) all bytes pass through the root's one link: 2(N−1) S/B if the root serves one
# rank at a time, 2 S/B if it is pipelined well. In (a) the links share the load: 2(N−1)/N · S/B. In the same
# way a fused reduce-scatter is cheaper than a reduce followed by a scatter, because no rank ever needs to
# hold the whole sum.
#
# One warning before you time it: **Gloo's reduce-scatter is an all-reduce of the whole input followed by a
# copy of one chunk.** So on Gloo it cannot take half of the all-reduce's time. Count bytes in formulas, and
# time them with NCCL. The next cell runs all three on 16 MB a rank, ten times. In the table, **algbw** is
# bytes divided by time, and **busbw** is the bandwidth that each link of a ring would need for it; lecture 03
# explains both.

# %%
# %%ranks
whole, shard = torch.ones(4_000_000, device=device), torch.empty(1_000_000, device=device)


def three_collectives(rounds):
    for _ in range(rounds):
        dist.all_reduce(whole.fill_(1))
        dist.reduce_scatter_single(shard, whole)
        dist.all_gather_single(whole, shard)


three_collectives(2)  # the first calls are slower

# %%
with world.trace() as trace:
    world.execute("three_collectives(10)")
trace.table()

# %% [markdown]
# ## 7. Not waiting
#
# With `async_op=True` a collective returns a handle immediately, and the result is ready after
# `handle.wait()`. In between the rank can compute.
#
# **Question.** Every rank all-reduces ten million ones. What does `x[0]` read right after the call, and what after the wait?

# %%
reads = {"right after the call": None, "after the wait": None}  # your predictions

# %%
# %%ranks
x = torch.ones(10_000_000, device=device)
busy = torch.rand(300, 300, device=device)
read = {}

# %%
# %%ranks --trace
dist.barrier()
handle = dist.all_reduce(x, async_op=True)
read["right after the call"] = x[0].item()
for _ in range(20):
    busy = torch.tanh(busy @ busy)
handle.wait()
read["after the wait"] = x[0].item()

# %%
print(predicted(reads), end="")
print("rank 0 read:  ", fourranks.world().pull("read")[0])

# %% [markdown]
# Right after the call the tensor belongs to the library: it may hold old values, new values or a mixture. Do
# not read, write or free it before `wait`. The thin bar in the timeline is the gain: the transfer is in
# flight while the rank computes.
#
# `wait` does not mean the same everywhere, and neither does "blocking". A GPU has queues, called **streams**. It
# runs the kernels of one stream one after another, and those of different streams at the same time.
#
# | | Gloo, CPU tensors | NCCL, GPU tensors |
# |---|---|---|
# | the plain call | returns when the result is there | **enqueues** a kernel on the GPU's current stream and returns; what comes next on the stream waits for it, the CPU goes on |
# | `async_op=True` | a background thread works | the same kernel on a stream of its own, so the current stream does not wait |
# | `handle.wait()` | blocks the CPU until done | makes the current stream wait; the CPU goes on |
# | to stop a clock | after the call | after `torch.cuda.synchronize()` |
#
# So on GPUs even a "synchronous" collective returns to Python immediately. The CPU only queues work; NCCL's
# kernels move and add the data on the GPUs. If you forget this, you measure a collective that seems to take
# no time at all: lecture 03 shows it.

# %% [markdown]
# ## 8. Smaller groups, and the backends
#
# A collective runs over a process group. `dist.new_group` makes one from some of the ranks, and then `[0, 1]` and `[2, 3]` can add up separately, at the
# same time.
#
# **Question.** The pairs all-reduce `mine`. What does rank 3 hold as its first element?

# %%
rank_3_first = None  # your prediction: a number

# %%
# %%ranks
low, high = dist.new_group([0, 1]), dist.new_group([2, 3])
before = mine
after = mine.clone()
dist.all_reduce(after, group=low if rank < 2 else high)

# %%
holds = fourranks.world().pull("after")[3][0].item()
print(
    f"{predicted(rank_3_first, about='rank 3 after an all-reduce in pairs', was=holds)}rank 3 holds:", holds
)
picture("all_reduce in pairs")

# %% [markdown]
# - **Every** rank calls `new_group` for every group, in the same order, even if it is not a member: making a
#   group is itself a collective. A rank that calls a collective of a group to which it does not belong gets a
#   warning, and its tensor does not change.
# - `src` and `dst` are always **global** ranks; `group_src` and `group_dst` count inside the group.
# - `init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))` makes such groups along the axes of a grid of ranks: one axis adds gradients
#   while another shares a layer.
#
# **Division of labour.** `torch.distributed` is the Python interface: process groups, handles, the names
# above. The backend does the work:
#
# | | Gloo | NCCL |
# |---|---|---|
# | tensors | CPU | NVIDIA GPUs; none on CPU |
# | processes | any number on any cores | one GPU each; from NCCL 2.30 on several can share one |
# | moves bytes by | TCP sockets | NVLink, PCIe, InfiniBand, RoCE, sockets as a last resort |
# | adds with | the CPU | CUDA kernels on the GPUs; some switches add in the network (SHARP) |
# | `send` of a few bytes | waits for the receiver | enqueues |
# | `monitored_barrier` | yes | no |
# | bitwise reductions (BAND, BOR, BXOR) | yes, on integers | no |
# | use it for | laptops, tests, CPU-side control messages | training |
#
# NCCL is the NVIDIA Collective *Communications* Library. It works in four steps:
#
# 1. **Initialize.** Each process selects its GPU, and all connect to an address that rank 0 provides.
# 2. **Optimize.** Each reads its node's topology; together they choose paths, and plan several rings and
#    trees, each of which is a *channel*. With eight network cards in a node there are usually eight or more
#    channels, so that each card gets its share: see lecture 03, section 7. `NCCL_DEBUG=INFO` prints them.
# 3. **Execute.** A call launches a kernel in which some SMs send, receive and add. Depending on the size of
#    the tensor NCCL chooses a ring, a tree or a reduction in the switch (NVLS). It also chooses a *protocol*:
#    LL for low latency, Simple for high bandwidth, or LL128 for a compromise.
# 4. **Coordinate.** All ranks make the same calls in the same order; streams determine which work waits for
#    which.
#
# A third backend, MPI, exists only if you build torch from source against an MPI library; the packages from
# PyPI raise "doesn't have MPI built in".
#
# The same code runs on both backends, at very different speeds. The rule is short: NCCL for GPUs, Gloo for
# CPUs.

# %% [markdown]
# ## 9. Deadlocks, on purpose
#
# A collective is a promise that *all* ranks of the group make. If one rank breaks it, the others wait for a
# call that never comes, until a timeout ends the program: by default after 30 minutes on Gloo and after 10 on
# NCCL. Here the ranks are watched. As soon as it is certain that the missing ranks can no longer make the
# call, the cell ends and says why. The ranks keep their variables.
#
# Three cells, three mistakes: rank 3 *skips* a collective, rank 0 *swaps* two of them, rank 1 *reshapes* its tensor.
#
# **Question.** Before you run each cell: which ranks will wait, in which line, and for which other ranks?

# %% tags=["raises-exception"]
# %%ranks
x = torch.ones(4, device=device)
if rank != 3:
    dist.all_reduce(x)  # "rank 3 has no data left, so it need not take part"

# %% tags=["raises-exception"]
# %%ranks
if rank == 0:
    dist.barrier()
    dist.all_reduce(x)
else:
    dist.all_reduce(x)
    dist.barrier()

# %% tags=["raises-exception"]
# %%ranks
x = torch.ones(5 if rank == 1 else 4, device=device)
dist.all_reduce(x)

# %% [markdown]
# Read each message once, slowly. It says which ranks wait, in which call and line, for which other ranks, and
# what the mistake probably is. The small figure shows on its left the last collective that all ranks made
# together, and on its right where each rank is now. The first cell would hang until its timeout. The second
# and the third are worse than a hang: without a watcher, depending on operation and sizes, Gloo hangs, raises
# about a wrong size, ends the process, or returns **wrong numbers on some ranks**.
#
# One mistake cannot be seen from outside: two all-reduces of equal shape, swapped on rank 3.
#
# **Question.** `a` should become 10 on every rank and `b` 1000. What do they become on rank 0?

# %%
a_and_b = None  # your prediction: two numbers

# %%
# %%ranks
a = torch.tensor([1.0 + rank], device=device)  # the sum is 10
b = torch.tensor([100.0 * (1 + rank)], device=device)  # the sum is 1000
for x in (b, a) if rank == 3 else (a, b):
    dist.all_reduce(x)
print("a:", a.item(), " b:", b.item())

# %%
holds = fourranks.world().pull("(a.item(), b.item())")[0]
print(f"{predicted(a_and_b, about='a and b after swapped calls', was=holds)}rank 0 holds:", holds)

# %% [markdown]
# There is no error and no wait, and no rank is right: collectives are matched by their *order*, not by the
# names of your variables. Different shapes with the same number of elements pass silently, too. The usual
# cause is a loop whose order differs between ranks: over a `set` of strings, whose order depends on a hash
# that is different in each process, or over a `dict` that was filled in a different order. Sort before you
# loop.
#
# Smaller mistakes raise an error immediately, on the rank that makes them:

# %%
# %%ranks
attempts = {
    "one tensor where a list belongs": lambda: dist.reduce_scatter(mine[:1], mine),
    "a list where one tensor belongs": lambda: dist.all_gather_single(tensor_list=[mine], tensor=mine),
    "int64 in, float32 out": lambda: dist.all_gather(list(mine.split(1)), mine[:1].long()),
    "the average of integers": lambda: dist.all_reduce(mine.long(), dist.ReduceOp.AVG),
    "a message to oneself": lambda: dist.send(mine, dst=rank),
}
for mistake, call in attempts.items():
    try:
        call()
    except Exception as error:
        print(f"{mistake}: {type(error).__name__}: {str(error).splitlines()[0]}")

# %% [markdown]
# One more mistake is specific to Gloo. The docstrings of the flat variants also describe a *stacked* form,
# `reduce_scatter_single(out (k), in (N, k))`, but Gloo rejects it. Flatten the input to (N·k), and the same
# line runs on both backends.
#
# **Outside this course** no notebook watches your ranks, and one day you will meet a job that has been
# hanging since 3 a.m. These are the tools, roughly in the order in which to try them:
#
# | tool | what it tells you |
# |---|---|
# | `py-spy dump --pid <pid>` on every rank | which Python line each rank is on. The odd one out is the culprit |
# | `TORCH_DISTRIBUTED_DEBUG=DETAIL` | checks op, shape and dtype of every collective before it runs; slow. Blind to the swapped pair above |
# | `dist.monitored_barrier(timeout=…)` | on Gloo: a barrier that names the missing rank, "Rank 2 failed to pass monitoredBarrier in 3000 ms" |
# | Flight Recorder | each rank's last 2,000 collectives with sequence numbers, to be compared after a timeout (lecture 09) |
# | `NCCL_DEBUG=INFO` | which links, rings and trees NCCL chose, and its errors |
# | `init_process_group(timeout=timedelta(minutes=2))` | a shorter wait; also per group in `new_group` |

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
# - **Ten operations**, before and after, on real ranks. *Reduce* combines, *scatter* cuts, *all* makes every rank a destination; `[0, 1, 2, 3] + rank`
#   became `[6, 10, 14, 18]` everywhere.
# - **Chains, trees and rings**, with their messages counted: 35 s became 15 s and then 11 s; a tree needs log₂ N rounds; a ring all-reduce is a
#   reduce-scatter and an all-gather, and sends 2(N−1)/N · S bytes a rank.
# - **Three deadlocks**: skipped, swapped, reshaped, each named with rank and line; and one silent mistake
#   that only care prevents.
#
# **Your turn**: [the exercise](../../exercises/02_collectives/exercise.ipynb). You build broadcast, reduce,
# scatter, gather, all-to-all and the ring yourself, using only messages, and the checks count every byte.
#
# **Sources and further reading.** [Stanford CS336 (spring 2025), lecture
# 8](https://github.com/stanford-cs336/spring2025-lectures) · [Stanford CS229S (fall
# 2023)](https://cs229s.stanford.edu/fall2023/), on parallelism · Patarasuk and Yuan, [*Bandwidth optimal all-reduce algorithms
# for clusters of workstations*](https://doi.org/10.1016/j.jpdc.2008.09.002) (2009) · Sergeev and Del Balso, *Horovod*, [arXiv
# 1802.05799](https://arxiv.org/abs/1802.05799) · NVIDIA, [*nccl-tests*](https://github.com/NVIDIA/nccl-tests),
# [`doc/PERFORMANCE.md`](https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md) · PyTorch 2.13, [documentation of
# `torch.distributed`](https://docs.pytorch.org/docs/stable/distributed.html) · Bekman, [*Machine Learning
# Engineering*](https://github.com/stas00/ml-engineering)

# %%
# %ranks stop
