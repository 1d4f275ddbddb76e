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
# # 04 Data parallelism: the same model everywhere
#
# **Four ranks hold the same model and read different data. What must they exchange, when, and what happens if
# one dies?**
#
# You will
#
# - turn a training loop into a data-parallel one with three additions, and know exactly which numbers are
#   equal on all ranks,
# - see the same step naive, overlapped and bucketed, by hand and by torch's DDP, in timelines of real ranks,
# - measure what happens to training when ranks do not wait for each other, or communicate less,
# - kill a rank in the middle of an epoch, and resume from a checkpoint as if nothing had happened,
# - train a small transformer that learns to write this course, on one rank and on four, to the same loss.
#
# 110 minutes, 25 of them optional · 4 ranks · Gloo on any laptop, NCCL on a machine with 4 GPUs
#
# [The exercise](../../exercises/04_data_parallelism/exercise.ipynb) · [notation](../../docs/notation.md) · [cheat sheet](../../docs/cheat_sheet.md) · [glossary](../../docs/glossary.md) · [concept map](../../docs/concept_map.md)
#
# As before, each run has a question and a variable for your answer.

# %%
# %load_ext fourranks
import fourranks
from fourranks.figures import compare, curves, finding, ledger, predicted, review
from fourranks.trace.bandwidth import busbw_factor

# %ranks start

# %% [markdown]
# ## Before you begin
#
# Three questions about earlier lectures. Answer them from memory, in the list below; `None` works, too.

# %%
ledger.begin("04")

# %%
remembered = [None, None, None]  # your answers

# %%
ledger.answers(remembered)

# %% [markdown]
# ## 1. One gradient, by hand
#
# Everything below rests on how gradients add up, so we begin with a model that fits on a napkin. It predicts
# the price of a house from its bedrooms x₁ and bathrooms x₂ as y = x₁w₁ + x₂w₂ + b, with the loss (y −
# price)². The weights start at w₁ = 0.773, w₂ = 0.321, b = 0.067; the learning rate is 0.001. The first house
# has 6 bedrooms and 2 bathrooms and costs 15; the second has 5 and 2 and costs 12.
#
# Autograd builds a **graph** of the forward pass, and goes through it backward by the chain rule. Each node multiplies the gradient
# that comes back with its own derivative:
#
# ```
# x₁ ─┐
#     × ── z₁ ─┐                        dl/dy  = 2 (y − price)
# w₁ ─┘        │                        dl/dz₁ = dl/dy · 1     dl/dw₁ = dl/dz₁ · x₁
# x₂ ─┐        + ── y ── (y − price)²   dl/dz₂ = dl/dy · 1     dl/dw₂ = dl/dz₂ · x₂
#     × ── z₂ ─┤                        dl/db  = dl/dy · 1
# w₂ ─┘        │
# b ───────────┘
# ```
#
# For the first house the forward pass gives y = 5.347. So dl/dy is 2 · (5.347 − 15) = −19.306, and dl/dw₁ is
# −19.306 · 6 = −115.836.
#
# A training loop has four calls, and their order matters: **forward, backward, step, zero**. In the usual
# loop each house gets all four. With **gradient accumulation** a batch is processed in parts, the
# *microbatches*, here one house each: `backward` *adds* to the existing gradients, and step and zero are
# called once, at the end.
#
# **Question.** What is w₁ after both houses: stepping after each, stepping once with the accumulated
# gradient, and stepping once with half of it?

# %%
# your predictions for w1, to four digits
w1 = {"a step for each": None, "accumulated": None, "accumulated, halved": None}

# %%
# %%ranks 0
HOUSES = [(6.0, 2.0, 15.0), (5.0, 2.0, 12.0)]


def start():
    return torch.tensor([0.773, 0.321, 0.067], requires_grad=True)  # w1, w2, b


def loss_of(w, house, note=True):
    z1, z2 = w[0] * house[0], w[1] * house[1]
    y = z1 + z2 + w[2]
    loss = (y - house[2]) ** 2
    if note:
        print(f"  z1 {z1:.3f}, z2 {z2:.3f}, y {y:.4f}, loss {loss:.4f}, dl/dy {2 * (y - house[2]):.4f}")
    return loss


# %%
# %%ranks 0
def step_and_zero(w):
    print("  gradients of w1, w2, b:", [f"{value:.4f}" for value in w.grad.tolist()])
    with torch.no_grad():
        w -= 0.001 * w.grad
    w.grad = None
    print("  after the step:        ", [f"{value:.4f}" for value in w.tolist()])


print("a step for each house")
each = start()
for house in HOUSES:
    loss_of(each, house).backward()
    step_and_zero(each)

# %%
# %%ranks 0
print("one step for both")
both = start()
for house in HOUSES:
    loss_of(both, house).backward()  # at the second house the gradients are not zero, and grow
step_and_zero(both)

# %%
# %%ranks 0
print("one step for both, each loss divided by 2")
mean = start()
for house in HOUSES:
    (loss_of(mean, house, note=False) / len(HOUSES)).backward()
step_and_zero(mean)

# %%
world = fourranks.world()
found = world.pull("[each[0].item(), both[0].item(), mean[0].item()]", [0])[0]
by_hand = {
    "a step for each": 0.773 + 0.001 * (115.8360 + 67.5029),
    "accumulated": 0.773 + 0.001 * (115.8360 + 74.2600),
    "accumulated, halved": 0.773 + 0.001 * (115.8360 + 74.2600) / 2,
}
measured = dict(zip(by_hand, found, strict=True))
compare(measured, by_hand, w1, title="w1 after two houses")

# %% [markdown]
# - **A step for each**: the second gradient is taken at the new weights, and is smaller: −67.5 against
#   −74.3. Its y is 5.2497; the slides from which this example comes print 5.249.
# - **Accumulated**: both gradients are taken at the old weights, and −115.8 − 74.3 = −190.1.
# - The slides stop there. But a batch's loss is normally the *mean* over its examples, so the accumulated step is twice as long as the
#   step of a batch of two. **Divide each microbatch's loss by the number of microbatches**, and accumulation is exactly a larger batch:
#   w₁ = 0.8680.
#
# Accumulation spreads a batch over *time*. Data parallelism spreads it over *ranks*: rank 0 takes the first house, rank 1 the second,
# and the gradients are averaged.

# %% [markdown]
# ## 2. Three additions
#
# The stand-in for a model is a deep multilayer perceptron (**MLP**): 4 layers of width 1024, each followed by a GELU. Its loss is the
# mean of its squared outputs. Matrix multiplications like these are most of what a Transformer computes. The batch has 128 rows. On
# purpose, every rank makes *different* weights.

# %%
# %%ranks
from torch import nn


def mlp(width=1024, layers=4):
    blocks = [(nn.Linear(width, width, bias=False), nn.GELU()) for _ in range(layers)]
    return nn.Sequential(*(module for block in blocks for module in block)).to(device)


torch.manual_seed(rank)
model = mlp()
torch.manual_seed(0)
batch = torch.randn(128, 1024).to(device)


# %% [markdown]
# Here is data parallelism, complete. A program for a single process is the same without the numbered lines:


# %%
# %%ranks
def data_parallel_step(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)  # 3: averaged gradients
    optimizer.step()
    return loss.detach()


for parameter in model.parameters():
    dist.broadcast(parameter.data, src=0)  # 1: rank 0's weights, for all
local = 128 // world_size
mine = batch[rank * local : (rank + 1) * local]  # 2: a shard of the batch
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
print(len(mine), "rows, weights from", model[0].weight[0, 0].item())

# %% [markdown]
# **Question.** After a step, which of these are equal on all four ranks, to the last bit: the losses, the gradients, the parameters?

# %%
# your predictions: True or False
equal_on_all_ranks = {"losses": None, "gradients": None, "parameters": None}

# %%
# %%ranks --trace
loss = data_parallel_step(model, optimizer, mine)
print(f"loss {loss:.6f}")

# %%
what = {
    "losses": "loss.cpu()",
    "gradients": "torch.cat([p.grad.flatten() for p in model.parameters()]).cpu()",
    "parameters": "torch.cat([p.detach().flatten() for p in model.parameters()]).cpu()",
}
for name, expression in what.items():
    first, *others = world.pull(expression)
    same = all(other.equal(first) for other in others)
    print(
        f"{name:10}  {predicted(equal_on_all_ranks, of=name, about=f'{name} are equal', was=same)}measured: {same}"
    )

# %% [markdown]
# In the timeline each rank computes, takes part in four all-reduces, one for each weight, and makes its AdamW
# step. Section 4 is about this picture. The 128 rows give each rank 32, beginning at row 32 · rank; 64 rows
# would give each 16.
#
# The losses differ, because every rank has read different rows. The gradients are equal, because all ranks
# hold the same average. So equal parameters stay equal with any optimizer, as long as its state also began
# equal. **The weights are never sent again.**
#
# **Common misconception:** data parallelism runs four trainings that converge to the same state. In fact they
# never diverge: after every step all four ranks hold the same state. It is *one* training run with the large
# batch, computed in four places. No rank is special, and no central node collects gradients. The weights
# change in `optimizer.step()`, not in `backward`.
#
# How exactly is it the large batch's gradient? Every rank can compute that for itself and compare.

# %%
# %%ranks
whole = mlp()
whole.load_state_dict(model.state_dict())
whole(batch).square().mean().backward()

data_parallel_step(model, torch.optim.SGD(model.parameters(), lr=0.0), mine)
pairs = zip(model.parameters(), whole.parameters(), strict=True)
difference = max((ours.grad - theirs.grad).abs().max() for ours, theirs in pairs)
largest = max(parameter.grad.abs().max() for parameter in whole.parameters())
print(f"largest gradient {largest:.1e}, largest difference {difference:.1e}")

# %% [markdown]
# They are equal except for rounding, because the 128 terms are added in a different order. The ranks agree
# with each other to the last bit, but not quite with a single process.
#
# **Question.** The four layers have 4 · 1024² float32 weights: 16 MiB. The table above says that 16 MiB were
# all-reduced. How many MiB did each rank *send* for that, if the ring of lecture 02 did the work? And how
# many with half the rows?

# %%
sent_mebibytes = {"128 rows": None, "64 rows": None}  # your predictions

# %%
sent = {}
for name, rows in {"128 rows": "mine", "64 rows": "mine[::2]"}.items():
    with world.trace() as trace:
        world.execute(f"data_parallel_step(model, optimizer, {rows})")
    sent[name] = sum(busbw_factor(call.op, 4) * call.nbytes for call in trace.calls[0]) / 2**20
compare(
    sent, dict.fromkeys(sent, 2 * 3 / 4 * 16), sent_mebibytes, "MiB", "Sent by each rank in a step, 4 ranks"
)

# %% [markdown]
# This one number characterizes data parallelism. Does it suit slow networks, or is it
# communication-intensive? You will read both, and both are half right. A step costs 2P elements of traffic
# for any batch size, so the traffic is cheap per token when each rank has many tokens, and expensive when it
# has few.
#
# For this course's MLP, with 4 ranks and a batch of 128, each rank sends 24 MiB in a whole step. Tensor
# parallelism (lecture 06) would send 3 MiB, 1.5 in each pass, and a pipeline (07) 1 MiB, half of it in each
# pass. With a batch 16 times as large, data parallelism would still send 24 MiB, and the other two 48 and 16.

# %% [markdown]
# ## 3. What DDP does with four gradients
#
# `torch.nn.parallel.DistributedDataParallel`, **DDP**, makes the first and the third of these additions: it
# broadcasts rank 0's parameters and buffers when it is made, and all-reduces the gradients during `backward`.
# The second addition is the job of the data loader: see section 7. A well-known set of slides shows this
# example: four ranks hold the weight 0.1; their gradients are 0.8, −0.2, −0.7 and 0.4; they sum to 0.3, and
# the weight becomes 0.2.
#
# **Question.** Which gradient does DDP leave on rank 2? And can a step of gradient descent with it end at 0.2?

# %%
gradient_on_rank_2 = None  # your prediction

# %%
# %%ranks
from torch.nn.parallel import DistributedDataParallel

one = nn.Linear(1, 1, bias=False).to(device)
nn.init.constant_(one.weight, 0.1)
ddp = DistributedDataParallel(one)
(ddp(torch.ones(1, 1, device=device)) * [0.8, -0.2, -0.7, 0.4][rank]).sum().backward()
gradient = one.weight.grad.item()
print(f"gradient {gradient:.3f}, weight after a step with lr 0.1: {0.1 - 0.1 * gradient:.4f}")

# %%
gradient = world.pull("gradient")[2]
print(
    f"{predicted(gradient_on_rank_2, about='gradient on rank 2', was=gradient)}rank 2 holds: {gradient:.4f}"
)

# %% [markdown]
# DDP **averages**: 0.3 / 4 = 0.075. And descent goes *against* the gradient, so the weight becomes smaller,
# 0.1 − lr · 0.075; for 0.2 the learning rate would have to be negative. Averaging turns the mean losses of
# the shards into the mean loss of the batch, but only if the shards have equal size:
#
# **Question.** Rank 0 has one example, with the gradient −11.9. Rank 1 has three: −0.3, −1, −2. What is the mean of the two ranks'
# means, and what is the mean of all four examples?

# %%
mean_of_means, mean_of_all = None, None  # your predictions

# %%
# %%ranks
pair = dist.new_group([0, 1])
if rank < 2:
    shard = torch.tensor([[-11.9], [-0.3, -1.0, -2.0]][rank], device=device)
    mean = shard.mean()
    dist.all_reduce(mean, op=dist.ReduceOp.AVG, group=pair)
    total = torch.stack([shard.sum(), torch.tensor(float(len(shard)), device=device)])
    dist.all_reduce(total, group=pair)  # the sum and the count

# %%
mean, mean_of_four = world.pull("(mean.item(), (total[0] / total[1]).item())", ranks=[0])[0]
print(f"mean of means: {predicted(mean_of_means, about='mean of means', was=mean)}found {mean:.2f}")
print(f"mean of all: {predicted(mean_of_all, about='mean of all', was=mean_of_four)}found {mean_of_four:.2f}")

# %% [markdown]
# The single example counted three times as much as each of the others. Keep shards equal, or sum and count.
# The same holds for every **metric**: an accuracy over all ranks is the sum of right answers divided by the
# sum of examples, in one small all-reduce, and not the average of four percentages.

# %% [markdown]
# ## 4. When to communicate
#
# In `data_parallel_step` the links are idle during the backward pass, and the processors are idle during the
# all-reduces. But the *last* layer's gradient is the first to be ready, and could be sent while earlier
# layers are still computing.
#
# A laptop needs some help to show that well. With fewer cores than ranks, computation and Gloo's additions
# compete for the same cores, and overlap cannot gain much. With a GPU they do not compete, since the GPU
# computes while the CPU has nothing to do. So here each layer also *waits* 5 ms in the forward pass and twice
# as long in the backward pass, as a CPU waits for its GPU. In the timelines of this section "computing" is
# mostly this imitated computation; the messages are real.
#
# We put the waiting into the model as a `torch.autograd.Function`. That is an operation of your own, for
# which you write both directions. `forward` gets the inputs and returns the output; `backward` gets the
# gradient of the output and returns that of each input. `ctx` keeps the values that backward needs from
# forward. Our function passes its data on unchanged, and only takes time:

# %%
# %%ranks
import time


class OnAnotherChip(torch.autograd.Function):
    """Passes everything on, after the time that an accelerator would take."""

    @staticmethod
    def forward(ctx, x):
        time.sleep(0.005)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(0.010)
        return gradient


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return nn.functional.gelu(OnAnotherChip.apply(self.linear(x)))


# %%
# %%ranks
def eight_layers():
    torch.manual_seed(0)  # equal seeds do what the broadcast does
    return nn.Sequential(*(Layer(512) for _ in range(8))).to(device)


few_rows = torch.randn(8, 512, device=device)

# %% [markdown]
# **Naive**: the backward pass, then one all-reduce after another, for 8 weights and 8 biases.

# %%
# %%ranks
naive_model = eight_layers()


def naive():
    naive_model(few_rows).square().mean().backward()
    for parameter in naive_model.parameters():
        dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)


naive()  # first calls are slower


# %%
def timeline_of(expression, title):
    """Draw what the ranks do in this time; the legend says that they only pretend to compute."""
    with world.trace() as trace:
        world.execute(expression)
    return trace.timeline(title, computing="computing: pretended, asleep")


timeline_of("naive()", "Naive: backward and all-reduces, 4 ranks")

# %% [markdown]
# **Question.** The computation takes 8 · (5 + 10) = 120 ms, and the timeline shows what communication adds to it. How many milliseconds
# will a step take when the two overlap? And when, in addition, the 16 all-reduces become a few large ones?

# %%
step_ms = {"overlapped": None, "bucketed (DDP)": None}  # your predictions

# %% [markdown]
# **Overlapped**: torch calls a *hook* as soon as a parameter's gradient is complete. It starts the all-reduce and does not wait; the
# waiting comes after backward.

# %%
# %%ranks
overlapped_model = eight_layers()
under_way = []


def start_all_reduce(parameter):
    under_way.append(dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG, async_op=True))


for parameter in overlapped_model.parameters():
    parameter.register_post_accumulate_grad_hook(start_all_reduce)


# %%
# %%ranks
def overlapped():
    overlapped_model(few_rows).square().mean().backward()
    while under_way:
        under_way.pop(0).wait()


overlapped()

# %%
timeline_of("overlapped()", "Overlapped: backward and all-reduces, 4 ranks")

# %% [markdown]
# The thin bars are calls in flight while the rank continues to compute. The all-reduce that is left at the
# end belongs to the first layer: its gradient is ready last, and no computation remains that could hide it.
#
# With NCCL the hook is the same, but `wait` makes the GPU's stream wait, and the CPU goes on; see lecture 02.
#
# **Bucketed**: each call also costs a fixed time, its latency α, and 16 calls cost 16 α. So collect gradients
# in buckets, and all-reduce each bucket when it is full. DDP does that, here with buckets of 2 MiB:

# %%
# %%ranks
ddp_model = DistributedDataParallel(eight_layers(), bucket_cap_mb=2)


def bucketed():
    ddp_model(few_rows).square().mean().backward()


for _ in range(2):  # it rearranges its buckets after the first step
    bucketed()

# %%
timeline_of("bucketed()", "Bucketed: backward and all-reduces, 4 ranks")

# %% [markdown]
# DDP's reducer is written in C++ and waits inside `backward`, for the last bucket only; the timeline shows
# that, too.
#
# Now we time each version several times. The formula for the naive step is computation plus all
# communication. For the others it is computation alone, which is a lower limit.


# %%
# %%ranks
from fourranks.bench import synchronize


def milliseconds(run, times=9):
    spent = []
    for _ in range(times):
        dist.barrier()
        begun = time.perf_counter()
        run()
        synchronize(device)  # NCCL's calls return when they are queued
        spent.append(1000 * (time.perf_counter() - begun))
    return sorted(spent)[times // 2]


def talk_only():
    for parameter in naive_model.parameters():
        dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)


# %%
# %%ranks
talking = milliseconds(talk_only)
steps = {
    "naive": milliseconds(naive),
    "overlapped": milliseconds(overlapped),
    "bucketed (DDP)": milliseconds(bucketed),
}

# %%
talking, measured = world.pull("talking")[0], world.pull("steps")[0]
formula = {"naive": 120 + talking, "overlapped": 120, "bucketed (DDP)": 120}
title = f"A step with 8 MiB of gradients; communication alone takes {talking:.0f} ms"
compare(measured, formula, step_ms, "ms", title)

# %%
hidden = {name: max(0, measured["naive"] - ms) / talking for name, ms in measured.items() if name != "naive"}
for name, share in hidden.items():
    finding(
        share > 0.2,
        f"{name}: {share:.0%} of the communication was hidden behind computing.",
        f"{name}: only {share:.0%} of the communication was hidden. With more ranks than free cores, or several on one GPU, adding needs the time that it should hide in.",
    )

# %% [markdown]
# The overlapped steps take longer than the formula because of the last bucket, and on a laptop because of the
# wait for a free core: some of the additions cannot be hidden there. DDP's share can exceed 100 %, because the
# naive step makes 16 all-reduces, and DDP's few large ones also save the latency of the others.
#
# When does overlap hide *all* of the communication? A backward pass over T tokens computes 4PT operations at F a second; a bfloat16
# all-reduce sends about 4P bytes from each rank, at a busbw of B bytes a second. So it hides if T ≥ F/B. Take H100s at half of
# their 989 TFLOP/s, and the two kinds of nodes from lecture 03:
#
# | a node has | busbw of a large all-reduce, at most | tokens on each rank |
# |---|---|---|
# | one GPU, one card of 50 GB/s | 50 GB/s | 9,900 |
# | eight GPUs, eight cards of 50 GB/s | 400 GB/s | 1,240 |
#
# In practice busbw reaches some 80 to 95 percent of that, and so you need proportionally more tokens. With
# fewer tokens, overlap cannot hide everything, and you have to communicate less: see section 10.

# %% [markdown]
# ### Which buckets?
#
# DDP's default is `bucket_cap_mb=25`, in MiB. Take a model of 8 layers of 4 MiB each.
#
# **Question.** How many all-reduces does DDP make in iterations 1, 2 and 3, and how large are they?

# %%
all_reduces = {"iteration 1": None, "iteration 2": None, "iteration 3": None}  # your predictions

# %%
# %%ranks
large = DistributedDataParallel(mlp(layers=8))

# %%
for iteration in ("iteration 1", "iteration 2", "iteration 3"):
    with world.trace() as trace:
        world.execute("large(mine).square().mean().backward()")
    mebibytes = [f"{call.nbytes / 2**20:.2f}" for call in trace.calls[0] if call.op == "all_reduce"]
    print(
        f"{iteration}: {predicted(all_reduces, of=iteration, about=f'all-reduces in {iteration}', was=len(mebibytes))}all-reduced MiB: {', '.join(mebibytes)}"
    )

# %% [markdown]
# You may read that DDP makes "equal buckets of 25 MB". The run shows otherwise:
#
# - **Iteration 1 has a single bucket with all gradients.** DDP does not know yet in which order gradients
#   will become ready. It records the order, and rebuilds its buckets after the first iteration, last layer
#   first. So never time or trace the first step.
# - **A bucket is closed when it has reached its cap**, so it may be larger: here 28 MiB. The first bucket's
#   cap is only 1 MiB, so that communication starts early; our layers are larger than that, so the first
#   bucket holds one layer.
#
# A parameter that took no part in the forward pass never has its gradient ready, so its bucket never fills. DDP
# raises at the next iteration; with `find_unused_parameters=True` it searches the graph for such parameters in
# every forward pass.
#
# Why buckets at all? Each all-reduce also pays its latency: in lecture 03, section 7, 256 small ones took many
# times as long as one large one with the same bytes. Buckets that are too large, on the other hand, start
# late and leave nothing to overlap: 25 MiB is a compromise.

# %% [markdown]
# ### When not to all-reduce
#
# DDP all-reduces in *every* backward pass. When gradients accumulate over four microbatches, three of those
# all-reduces are unnecessary. `model.no_sync()` turns them off.
#
# **Question.** Four microbatches, a model that fits in one bucket. How many all-reduces are there without `no_sync`, with the first
# three *backward* calls inside `no_sync`, and with the first three *forward and backward* calls inside?

# %%
syncs = {"nothing": None, "backward": None, "forward, backward": None}  # your predictions

# %%
# %%ranks
from contextlib import nullcontext

ddp = DistributedDataParallel(mlp(width=64))
rows = torch.randn(32, 64, generator=torch.Generator().manual_seed(rank)).to(device)


def accumulate(around_forward, around_backward):
    ddp.zero_grad()
    for number, microbatch in enumerate(rows.chunk(4)):
        quiet = ddp.no_sync if number < 3 else nullcontext
        with quiet() if around_forward else nullcontext():
            loss = ddp(microbatch).square().mean() / 4  # section 1: divide
        with quiet() if around_backward else nullcontext():
            loss.backward()


accumulate(False, False)

# %%
inside = {"nothing": "False, False", "backward": "False, True", "forward, backward": "True, True"}
counted = {}
for name, arguments in inside.items():
    with world.trace() as trace:
        world.execute(f"accumulate({arguments})")
    counted[name] = sum(call.op == "all_reduce" for call in trace.calls[0])
compare(counted, None, syncs, "", "All-reduces for four microbatches, by what is inside no_sync")

# %% [markdown]
# The *forward* call records whether the next backward pass will synchronize. With only `backward` inside,
# `no_sync` has no effect on it, and there is no error.

# %% [markdown]
# ## 5. Not waiting at all
#
# *Optional: the exercise does not need it.*
#
# All of the above is **bulk synchronous** (BSP): all ranks take their gradients at the same weights, and the
# slowest rank sets the pace. Before all-reduce took over, **asynchronous** training (ASP) was common. A
# *parameter server* keeps the weights. A worker fetches them, computes a gradient, sends it, and gets the
# newest weights, without waiting for other workers. So no worker is held up. But by the time a gradient
# arrives, other workers have changed the weights: it is **stale**.
#
# We run both, for real: rank 0 is the server, ranks 1 to 3 work, and rank 3 is four times slower. The server
# receives messages from *any* source. Only Gloo supports that, so the group is one of Gloo and the tensors are on the CPU.

# %%
# %%ranks
mail = dist.new_group(backend="gloo")
truth = torch.randn(16, generator=torch.Generator().manual_seed(7))
own = torch.Generator()


def rows_of(generator, count=32):
    x = torch.randn(count, 16, generator=generator)
    return x, x @ truth + 0.1 * torch.randn(count, generator=generator)


test_x, test_y = rows_of(torch.Generator().manual_seed(99), 500)


def test_loss(w):
    return (test_x @ w - test_y).square().mean().item()


# %%
# %%ranks
def gradient(w):
    """The gradient of one minibatch; rank 3 is a straggler."""
    time.sleep(0.016 if rank == 3 else 0.004)
    x, y = rows_of(own)
    return x.T @ (x @ w - y) / len(y)


def bsp(lr, updates):
    own.manual_seed(rank)
    w, curve, begun = torch.zeros(16), [], time.perf_counter()
    for _ in range(updates):
        g = gradient(w) if rank > 0 else torch.zeros(16)
        dist.all_reduce(g, group=mail)
        w = w - lr * g / 3
        curve.append((time.perf_counter() - begun, test_loss(w), 0))
    return curve


# %%
# %%ranks
def serve(lr, updates):
    """Rank 0: apply each gradient as it comes; returns (seconds, loss, staleness) after each."""
    w, g, curve, begun = torch.zeros(16), torch.zeros(16), [], time.perf_counter()
    fetched = dict.fromkeys((1, 2, 3), 0)  # the update after which each worker got its weights
    for update in range(updates):
        worker = dist.recv(g, group=mail)  # from the first worker that sends one
        w = w - lr * g
        curve.append((time.perf_counter() - begun, test_loss(w), update - fetched[worker]))
        fetched[worker] = update + 1
        dist.send(w, worker, group=mail)
    for _ in range(3):
        dist.send(
            torch.full((16,), torch.nan), dist.recv(g, group=mail), group=mail
        )  # tells the worker to stop
    return curve


def work():
    own.manual_seed(rank)
    w = torch.zeros(16)
    while not w.isnan().all():
        dist.send(gradient(w), 0, group=mail)
        dist.recv(w, 0, group=mail)


# %% [markdown]
# Each run uses 180 gradients: 60 steps of three for BSP, 180 steps of one for ASP. ASP runs twice, with BSP's learning rate and with
# half of it.
#
# **Question.** ASP does not wait for rank 3. How many times faster does it process its 180 gradients? And how
# many gradients does each version need until the loss is below 0.02 and stays there?

# %%
# your predictions
times_faster = None
gradients_needed = {"BSP, lr 0.8": None, "ASP, lr 0.8": None, "ASP, lr 0.4": None}

# %%
# %%ranks
runs = {"BSP, lr 0.8": bsp(0.8, 60)}
for lr in (0.8, 0.4):
    dist.barrier(group=mail)
    runs[f"ASP, lr {lr}"] = serve(lr, 180) if rank == 0 else work()

# %%
runs = world.pull("runs")[0]
lines = {}
for name, curve in runs.items():
    each = 180 // len(curve)  # gradients a step: 3 or 1
    lines[name] = range(each, 181, each), [loss for _, loss, _ in curve]
    above = max((n for n, loss in zip(*lines[name], strict=True) if not loss < 0.02), default=0)
    needed = above + each if above < 180 else "more than 180"
    print(
        f"{name}: {curve[-1][0]:.2f} s, {predicted(gradients_needed, of=name, about=f'gradients needed, {name}', was=needed)}needed {needed}"
    )
curves(lines, "gradients used", "loss", "BSP and ASP, three workers, one of them slow", log=True, top=100)

# %%
staleness = sorted(stale for _, _, stale in runs["ASP, lr 0.4"])
faster = runs["BSP, lr 0.8"][-1][0] / runs["ASP, lr 0.4"][-1][0]
print(f"{predicted(times_faster, about='ASP over BSP', was=faster)}measured: {faster:.1f} times as fast")
print("staleness: median", staleness[90], ", largest", staleness[-1])
finding(
    faster > 1.2,
    f"ASP got through its gradients {faster:.1f} times as fast as BSP.",
    f"ASP was {faster:.1f} times as fast: with this load on the machine the server was the bottleneck.",
)


# %% [markdown]
# - **Hardware efficiency**: ASP processes its gradients faster, because it does not wait for rank 3.
# - **Statistical efficiency**: each gradient is worth less. A gradient that is two updates old is *right
#   about the past*; with a learning rate at which fresh gradients converge in a few steps, stale ones
#   overshoot again and again. For plain descent on curvature λ with gradients τ updates old, theory says that
#   it is stable only while lr · λ < 2 sin(π / (4τ + 2)). Here λ is about 1, and the limit is 2 for fresh
#   gradients, 1 for τ = 1, 0.62 for τ = 2 and 0.18 for τ = 8, about what the straggler's gradients have.
# - Smaller steps repair that, but use up the gain in speed. In wall-clock time ASP may win or lose, and two
#   runs give two different curves, because the order of arrival decides. BSP gives the same curve every time.
#
# So on equal machines with a fast network, synchronous training is used today. It avoids stragglers by equal
# shards, equal machines, and spare machines.

# %% [markdown]
# ## 6. What the average does not reach
#
# DDP makes *gradients* equal. Everything else that mixes examples, or depends on chance, stays local to its rank.
#
# **Batch normalization** normalizes each example by the mean and variance *of its batch*; layer normalization by the example's own.
#
# **Question.** We normalize 64 rows as a whole, and as four shards of 16. By how much do the results differ, at most, for each?

# %%
differ_by = {"BatchNorm": None, "LayerNorm": None}  # your predictions: zero, little, or much; as numbers

# %%
# %%ranks
norms = {"BatchNorm": nn.BatchNorm1d(8).to(device), "LayerNorm": nn.LayerNorm(8).to(device)}
torch.manual_seed(0)
all_rows = torch.randn(64, 8).to(device)
shard = all_rows.chunk(world_size)[rank]
differs = {}
for name, norm in norms.items():
    apart, together = norm(shard), norm(all_rows).chunk(world_size)[rank]
    differs[name] = (apart - together).abs().max().item()

# %%
title = "Shards against the whole batch: largest difference on rank 0"
compare(world.pull("differs")[0], {"LayerNorm": 0.0}, differ_by, "", title)

# %% [markdown]
# With BatchNorm four ranks train a different model than one: the statistics come from 16 rows instead of 64.
# Its running means and variances are buffers, which every rank updates with its own data. DDP overwrites them
# with rank 0's before each forward pass, so the statistics of three quarters of the data are lost. In torch
# 2.13 the option for that is `forward_sync_buffers`; before, it was `broadcast_buffers`.
#
# `nn.SyncBatchNorm` computes the statistics over all ranks, with a collective in each forward and each backward pass. Torch has it for
# GPUs only:

# %%
# %%ranks
try:
    synchronized = nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(8)).to(device)
    together = nn.BatchNorm1d(8).to(device)(all_rows).chunk(world_size)[rank]
    print("largest difference:", (synchronized(shard) - together).abs().max().item())
except ValueError as error:
    print("ValueError:", error)

# %% [markdown]
# Transformers avoid all this with LayerNorm or RMSNorm.
#
# **Randomness** is the second trap. "The same seed on all ranks" is good advice for the initial weights, and
# bad advice for everything after that:

# %%
# %%ranks
torch.manual_seed(0)
print("seed 0:       ", nn.functional.dropout(torch.ones(8), 0.5).bool().int().tolist())

# %%
# %%ranks
torch.manual_seed(0 + rank)
print("seed 0 + rank:", nn.functional.dropout(torch.ones(8), 0.5).bool().int().tolist())

# %% [markdown]
# With one seed all ranks drop the same neurons and crop images in the same way: 128 examples with the variety
# of 32. So set one seed, make the model, and then set the seed again with the rank added.
#
# **Determinism.** With the same seeds, world size and software, Gloo's sums are the same bit for bit (section
# 11 relies on it). A different number of ranks adds in a different order, and the last bits change. On GPUs
# some kernels add in no fixed order; `torch.use_deterministic_algorithms(True)` replaces them by slower ones,
# or raises where there is none.

# %% [markdown]
# ## 7. Data and metrics
#
# A dataset is sharded like a batch: `DistributedSampler` gives each rank its share of the indices. You pass
# it to a data loader as `sampler=`.
#
# **Question.** Ten examples, four ranks. How many examples do the ranks read in an epoch, all together?

# %%
examples_read = None  # your prediction

# %%
# %%ranks
from torch.utils.data import DistributedSampler

in_order = list(DistributedSampler(range(10), shuffle=False))
dropped = list(DistributedSampler(range(10), shuffle=False, drop_last=True))
print(in_order, " with drop_last:", dropped)

# %%
read = sum(map(len, world.pull("in_order")))
print(f"{predicted(examples_read, about='examples read', was=read)}read:", read)

# %% [markdown]
# All ranks must make the same number of steps, or the last all-reduce waits forever. So the sampler **pads**:
# examples 0 and 1 are read twice. That is harmless in training. In *evaluation* it is wrong, because two
# examples count twice; drop the duplicates there, or sum and count over real examples only. For uneven inputs
# torch also has `Join`, which lets a finished rank take part with zeros.
#
# **Question.** The sampler shuffles by default. How many different orders does rank 0 see in three epochs, if
# the program never calls `set_epoch`?

# %%
different_orders = {"without set_epoch": None, "with set_epoch": None}  # your predictions

# %%
# %%ranks
sampler = DistributedSampler(range(10))
without = [list(sampler) for epoch in range(3)]
with_set_epoch = []
for epoch in range(3):
    sampler.set_epoch(epoch)
    with_set_epoch.append(list(sampler))
print(without, with_set_epoch)

# %%
orders = world.pull("[len(set(map(tuple, seen))) for seen in (without, with_set_epoch)]")[0]
measured = dict(zip(("without set_epoch", "with set_epoch"), orders, strict=True))
compare(measured, None, different_orders, "", "Orders that rank 0 sees in three epochs")

# %% [markdown]
# The order is drawn from seed + epoch, and `set_epoch` sets the epoch. If you forget
# `sampler.set_epoch(epoch)`, every epoch has the order of the first one.
#
# **Logging.** A rank's loss is the loss of its shard. Log the mean over ranks, and write it once. Every
# collective costs a latency, and `.item()` makes a CPU wait for its GPU, so log only every 50 steps, say:
#
# ```python
# if step % 50 == 0:
#     mean = loss.detach().clone()
#     dist.all_reduce(mean, op=dist.ReduceOp.AVG)      # all ranks take part ...
#     if rank == 0:
#         logger.log({"loss": mean.item()}, step)      # ... and one writes
# ```
#
# A classic deadlock puts the `all_reduce` inside the `if rank == 0`.

# %% [markdown]
# ## 8. A larger batch is a different training run
#
# Four ranks with 32 rows each are one training run with batch 128. It makes a quarter of the steps in an
# epoch. To make the same progress, each step must be about four times as long. That is the **linear scaling
# rule** (Goyal and others, 2017): lr × 4 for batch × 4.
#
# **Question.** 4096 examples, always in order. Which of the other three curves lie on that of batch 32, lr 0.02?

# %%
same_as_batch_32 = None  # your prediction: some of "128, lr 0.02", "128, lr 0.08", "1024, lr 0.64"

# %%
# %%ranks
teacher_rng = torch.Generator().manual_seed(0)
inputs = torch.randn(4096, 32, generator=teacher_rng)
targets = torch.tanh(inputs @ torch.randn(32, 8, generator=teacher_rng)).sum(1, keepdim=True) / 2
inputs, targets = inputs.to(device), targets.to(device)


def student():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(32, 128), nn.Tanh(), nn.Linear(128, 1)).to(device)


def loss_of(model, rows):
    return (model(inputs[rows]) - targets[rows]).square().mean()


# %%
# %%ranks
def train_with(batch_size, lr):
    model = student()
    optimizer = torch.optim.SGD(model.parameters(), lr)
    curve = []
    local = batch_size // world_size
    for begin in range(rank * local, 4096, batch_size):
        curve.append(loss_of(model, slice(0, 256)).item())
        optimizer.zero_grad()
        loss_of(model, slice(begin, begin + local)).backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        bucket = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(bucket, op=dist.ReduceOp.AVG)
        nn.utils.vector_to_parameters(bucket, gradients)
        optimizer.step()
    return [*curve, loss_of(model, slice(0, 256)).item()]


settings = [(32, 0.02), (128, 0.02), (128, 0.08), (1024, 0.64)]
trained = {f"{size}, lr {lr}": train_with(size, lr) for size, lr in settings}

# %%
trained = world.pull("trained")[0]
by_examples = {}
for name, losses in trained.items():
    by_examples[f"batch {name}"] = range(0, 4097, 4096 // (len(losses) - 1)), losses
print(predicted(same_as_batch_32), end="")
curves(by_examples, "examples seen", "loss", "The same 4096 examples, 4 ranks", log=True, top=3)

# %% [markdown]
# - Batch 128 with the old learning rate needs about four times as many examples for the same loss. With four
#   times the rate it lies on batch 32's curve: four small steps in nearly the same direction equal one step
#   four times as long.
# - The rule has a limit. Batch 1024 would need a step so long that it leaves the region in which the gradient
#   is a good guide.
#
# In practice: scale lr linearly for SGD (for Adam rather with the square root of the batch), **warm up** from a small rate over the
# first steps, and expect that beyond a *critical batch size* more ranks no longer mean fewer steps. Data parallelism scales as far as
# the batch does.

# %% [markdown]
# ## 9. Mixed precision: what is sent?
#
# *Optional: the exercise does not need it.*
#
# Under `autocast` matrix multiplications run in bfloat16, with half of the bytes. Weights and optimizer stay in float32.
#
# **Question.** The model has 16 MiB of float32 weights. How many MiB does DDP all-reduce in a step under autocast?

# %%
mebibytes_under_autocast = None  # your prediction

# %%
# %%ranks
half = DistributedDataParallel(mlp())


def step_under_autocast():
    with torch.autocast(device.type, dtype=torch.bfloat16):
        loss = half(mine).square().mean()
    loss.backward()


for _ in range(2):
    step_under_autocast()

# %%
with world.trace() as trace:
    world.execute("step_under_autocast()")
reduced = sum(call.nbytes for call in trace.calls[0] if call.op == "all_reduce") / 2**20
print(
    f"{predicted(mebibytes_under_autocast, about='MiB under autocast', was=reduced)}all-reduced MiB: {reduced:.0f}"
)
trace.table()

# %% [markdown]
# It is still 16, because gradients have the dtype of their *parameters*. Autocast saves computation, not
# communication. To send half the bytes, use a DDP **communication hook**, which replaces the all-reduce of a
# bucket. Torch's ready-made `bf16_compress_hook` needs a GPU; the one below runs anywhere. Its second
# parameter must be called `bucket`.


# %%
# %%ranks
def in_bfloat16(state, bucket):
    small = (bucket.buffer() / world_size).bfloat16()
    future = dist.all_reduce(small, async_op=True).get_future()
    return future.then(lambda done: bucket.buffer().copy_(done.value()[0]))


half.register_comm_hook(None, in_bfloat16)
step_under_autocast()

# %%
with world.trace() as trace:
    world.execute("step_under_autocast()")
trace.table()

# %% [markdown]
# That sends half the bytes, at a price: bfloat16 has 8 bits of precision, so 256 + 1 is 256. Sums over many
# ranks lose small gradients. That is why many systems send bfloat16 but *add* in float32, or keep float32 for
# gradients.
#
# With **float16** one more thing is needed. Its small gradients vanish, so the loss is multiplied by a large
# scale (`GradScaler`) and the gradients are divided by it before the step. If one rank overflows, the
# all-reduce spreads its `inf` to all ranks, so all skip the same step, and the ranks stay equal. bfloat16 has
# float32's range and needs no scaling.

# %% [markdown]
# ## 10. Communicating less
#
# *Optional: only the optional parts of the exercise need it.*
#
# Between cities, or over home connections, even half of the bytes are far too many. There are two ideas:
#
# - **Communicate less often.** *Local SGD*: each rank trains alone for H steps, then parameters are averaged.
#   *DiLoCo* treats the ranks' average movement as a gradient, and gives it to a second, *outer* optimizer
#   with Nesterov momentum; in the paper H is 500.
# - **Send only the largest entries.** *Top-k*: send the largest 1 % of the gradient's entries, as values and
#   positions. The other entries are not lost: the rank keeps them and adds them to the next gradient, which
#   is called **error feedback**.
#
# For a fair test the ranks get *different kinds* of data: on rank r the inputs 8r to 8r + 7 are four times as large.

# %%
# %%ranks
inputs = torch.randn(4, 1024, 4, 8, generator=torch.Generator().manual_seed(2))
inputs[range(4), :, range(4)] *= 4  # features 8r to 8r + 7 of rank r's rows
inputs = inputs.view(4096, 32).to(device)
teacher = torch.randn(32, 8, generator=torch.Generator().manual_seed(3)).to(device)
targets = torch.tanh(inputs @ teacher).sum(1, keepdim=True) / 2


class Largest:
    """Average the largest entries of the ranks' gradients; `memory` keeps the rest for the next step.

    It sends zeros in the place of the others: training goes as with top-k, and the bytes are an all-reduce's.
    """

    def __init__(self, share, memory):
        self.share, self.memory, self.rest = share, memory, 0.0

    def __call__(self, gradient):
        wanted = gradient + self.rest
        smallest = wanted.abs().topk(int(self.share * wanted.numel())).values[-1]
        largest = torch.where(wanted.abs() >= smallest, wanted, 0.0)
        if self.memory:
            self.rest = wanted - largest
        return all_reduced(largest)


# %%
# %%ranks
def all_reduced(gradient):
    dist.all_reduce(gradient, op=dist.ReduceOp.AVG)
    return gradient


def sgd_step(model, step, average=None):
    """One step of SGD on this rank's own data, with the averaged gradient if there is an `average`."""
    model.zero_grad()
    begin = 1024 * rank + 16 * step % 1024
    loss_of(model, slice(begin, begin + 16)).backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    flat = nn.utils.parameters_to_vector(gradients)
    nn.utils.vector_to_parameters(average(flat) if average else flat, gradients)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.003 * parameter.grad


def train_every_step(average, steps=200):
    model, curve = student(), []
    for step in range(steps):
        curve.append(loss_of(model, slice(0, 4096, 16)).item())
        sgd_step(model, step, average)
    return curve


# %%
# %%ranks
def train_in_rounds(lr, momentum, steps=200, H=10):
    """Train in rounds: local SGD has an outer lr of 1 and no momentum, DiLoCo other values of both."""
    model, curve = student(), []
    shared = nn.utils.parameters_to_vector(model.parameters()).detach()
    outer = torch.optim.SGD([shared], lr, momentum, nesterov=momentum > 0)
    for step in range(steps):
        curve.append(loss_of(model, slice(0, 4096, 16)).item())
        sgd_step(model, step)
        if (step + 1) % H == 0:
            shared.grad = all_reduced(shared - nn.utils.parameters_to_vector(model.parameters()).detach())
            outer.step()
            nn.utils.vector_to_parameters(shared.clone(), model.parameters())
    return curve


# %% [markdown]
# The model has 4,353 parameters. An all-reduce on four ranks sends 2 · 3/4 · 4 · 4,353 bytes a rank; top-k
# gathers 43 values and 43 positions of 4 bytes each, which a rank sends to three others. Here top-k is only
# imitated, and its zeros are sent, too. The exercise sends only values and positions.
#
# **Question.** How many KiB does a rank send *per step*, on average? And which curve will be worst?

# %%
kibibytes_per_step = {"every step": None, "local SGD, H = 10": None, "top 1 %": None}  # your predictions

# %%
ways = {
    "every step": "train_every_step(all_reduced)",
    "never": "train_every_step(None)",
    "local SGD, H = 10": "train_in_rounds(lr=1.0, momentum=0.0)",
    "DiLoCo, H = 10": "train_in_rounds(lr=0.7, momentum=0.9)",
    "top 1 %": "train_every_step(Largest(0.01, memory=False))",
    "top 1 %, error feedback": "train_every_step(Largest(0.01, memory=True))",
}
losses, tables = {}, {}
for name, way in ways.items():
    with world.trace() as trace:
        world.execute(f"curve = {way}")
    losses[name], tables[name] = world.pull("curve")[0], trace.table()

# %%
curves(losses, "step", "loss", "Ways to average, 4 ranks with different data")

# %%
sent = {  # an all-reduce of S sends 2 · 3/4 · S from each rank
    name: sum(2 * 3 / 4 * row.nbytes for row in table.rows) / 200 / 1024
    for name, table in tables.items()
    if not name.startswith("top")
}
sent["top 1 %"] = 3 * 43 * 8 / 1024
every_step = 1.5 * 4 * 4353 / 1024
formula = {"every step": every_step, "local SGD, H = 10": every_step / 10}
title = "Sent by each rank per step; top-k by its formula"
compare(sent, formula, kibibytes_per_step, "KiB", title)

# %% [markdown]
# - **Top-k** needs a twenty-fifth of the bytes. Without a memory it is slow, because 99 % of each gradient is thrown away; with error feedback it
#   follows the full gradient closely.
# - **Local SGD** sends a tenth, and lags a little: between two averages each rank moves towards the optimum
#   of *its own* data, and the average has to bring it back. Ranks that never average stay there.
# - **DiLoCo**'s momentum more than makes up for that. In fairness, momentum would help the others, too.
#
# Three warnings. Top-k's *gathered* bytes grow with the number of ranks, while an all-reduce's do not: with
# 100 ranks and 1 %, top-k sends just as much. Choosing the largest entries also costs time. And inside one
# node with NVLink none of this pays off. Measure first.

# %% [markdown]
# ## 11. A rank dies
#
# A large job loses a machine every few hours or days. In data parallelism all other ranks then wait for its
# gradients. There are two ways to continue: from zero, or from a **checkpoint**. Here is a complete training
# program with checkpoints. Note how the work is divided: **one rank writes**, because all ranks hold the same
# state; **every rank reads**; and the file appears under its name *complete* or not at all.

# %%
import os
import signal

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler


def save(path, model, optimizer, step):
    if dist.get_rank() == 0:
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, f"{path}.partial")
        os.replace(f"{path}.partial", path)  # a rank that dies before this leaves the older file


def load(path, model, optimizer):
    state = torch.load(path, map_location="cpu")
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["step"]


# %%
def build(device):
    torch.manual_seed(0)
    layers = nn.Linear(16, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 1)
    model = DistributedDataParallel(nn.Sequential(*layers).to(device))
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def training_loss(model, step, device):
    """Loss of this rank's 4 examples of a step; 16 steps are an epoch of 256 examples."""
    x = torch.randn(256, 16, generator=torch.Generator().manual_seed(1))
    sampler = DistributedSampler(range(256))
    sampler.set_epoch(step // 16)
    rows = list(sampler)[4 * (step % 16) :][:4]
    torch.manual_seed(1000 * step + dist.get_rank())  # dropout follows from the step: nothing to save
    return (model(x[rows].to(device)) - x[rows].sin().sum(1, keepdim=True).to(device)).square().mean()


# %%
def train(folder, device, steps, dies=None):
    """`dies`: (rank, step) at which that rank is killed, as by a machine that fails."""
    model, optimizer = build(device)
    path = f"{folder}/checkpoint.pt"
    first = load(path, model, optimizer) if os.path.exists(path) else 0
    for step in range(first, steps):
        if dies == (dist.get_rank(), step):
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        loss = training_loss(model, step, device)
        loss.backward()
        optimizer.step()
        log(folder, step, loss.detach())
        if (step + 1) % 10 == 0:
            save(path, model, optimizer, step + 1)


def log(folder, step, loss):
    dist.all_reduce(loss, op=dist.ReduceOp.AVG)
    if dist.get_rank() == 0:
        with open(f"{folder}/log.txt", "a") as file:
            print(step, loss.item(), file=file)


# %% [markdown]
# First a run of 60 steps in which nothing happens, to compare with. Then one in which rank 2 is killed at step 37, in the middle of its
# third epoch.

# %%
import tempfile

folders = [tempfile.TemporaryDirectory() for _ in range(2)]  # removed when this notebook's kernel ends
undisturbed, disturbed = (folder.name for folder in folders)
# %ranks push train undisturbed disturbed

# %%
# %%ranks
train(undisturbed, device, steps=60)

# %% [markdown]
# **Question.** With which step will the restarted job begin, and how many steps are computed twice?

# %%
first_step_again, steps_twice = None, None  # your predictions

# %% tags=["raises-exception"]
# %%ranks
train(disturbed, device, steps=60, dies=(2, 37))

# %% [markdown]
# The error says which rank died, by which signal, and on which line it was last seen or the others waited for
# it. Outside this course you would see one process gone, three that hang until a timeout, and messages about
# closed connections. The four new ranks have no variables, so we send the function again, and the same call
# continues the training:

# %%
# %ranks restart
# %ranks push train undisturbed disturbed

# %%
# %%ranks
train(disturbed, device, steps=60)


# %%
def logged(folder):
    with open(f"{folder}/log.txt") as file:
        pairs = [line.split() for line in file]
    return [int(step) for step, _ in pairs], [float(loss) for _, loss in pairs]


steps, losses = logged(disturbed)
again = steps.index(36) + 1  # the first line after the death
lines = {
    "undisturbed": logged(undisturbed),
    "until rank 2 died": (steps[:again], losses[:again]),
    "resumed": (steps[again:], losses[again:]),
}
curves(lines, title="A rank dies at step 37", log=True, marks={37: "rank 2 dies", steps[again]: "checkpoint"})

# %%
reference = logged(undisturbed)[1]
differences = [abs(loss - reference[step]) for step, loss in zip(steps, losses, strict=True)]
first, twice = steps[again], 37 - steps[again]
print(
    f"{predicted(first_step_again, about='first step after the restart', was=first)}it began with step {first}"
)
print(f"{predicted(steps_twice, about='steps computed twice', was=twice)}it computed {twice} steps twice")
print("largest difference from the undisturbed losses:", max(differences))

# %% [markdown]
# The curve continues as if nothing had happened. If the losses differ in the last bit, the checkpoint is not
# the cause. Section 4 has shown that DDP's first iteration has different buckets than all later ones, and in
# a different bucket Gloo adds the same four numbers in a different order. After two forward and backward
# passes before `load`, whose results are discarded, the losses agree bit for bit.
#
# To resume a training run, you need:
#
# - **Everything that the next step depends on** belongs in the checkpoint: parameters, *optimizer state*,
#   learning-rate schedule, step, random state, and the position in the data. Without Adam's moments the loss
#   jumps, in this and in any other training that is resumed. Here dropout and data order follow from the
#   step, so saving the step is enough for both.
# - **Every rank loads.** DDP does broadcast rank 0's parameters and buffers when it is made, always from rank 0, but never the
#   optimizer's state.
# - **Every rank can find the file**, because it is on storage that all nodes share. After a restart a rank
#   may run on a different machine. Rank 0 is always the one that broadcasts, but which machine has rank 0 can
#   change.
# - **Save `model.module`.** The wrapped model's keys begin with `module.` and do not match the bare model.
# - Choose the interval by what you can afford to lose: here at most 10 steps. With sharded models (lecture
#   05) no rank has the whole state, so each writes its shard; `torch.distributed.checkpoint` does that.
#
# `torchrun --max-restarts 3` starts the ranks again by itself. On torch 2.13 with Gloo that needs a setting:
# see lecture 09, section 3, which does it on two nodes.

# %% [markdown]
# ## 12. From here to many machines
#
# Nothing in `train` depends on the number of machines. With several machines a launcher starts the processes,
# and each gets two numbers:
#
# | machine | process | `LOCAL_RANK`: chooses the GPU | `RANK`: chooses the data, and the rank that writes |
# |---|---|---|---|
# | A | first | 0 | 0 |
# | A | second | 1 | 1 |
# | B | first | 0 | 2 |
# | B | second | 1 | 3 |
#
# The same script serves all three layouts: one server with many GPUs (`LOCAL_RANK` equals `RANK`), many
# servers with one GPU each (`LOCAL_RANK` is 0 everywhere), and many with many, as in the table. Use
# `LOCAL_RANK` in `torch.cuda.set_device`, and `RANK == 0` for checkpoints and for logging to a dashboard such
# as Weights & Biases. A process may get a different rank after a restart, so derive nothing permanent from
# it.
#
# All our ranks are on one machine, where the two numbers are equal; lecture 09, section 2, shows them on two.
# This is a complete training script:
#
# ```python
# # torchrun --nproc-per-node 4 train.py
# dist.init_process_group("nccl")                                  # "gloo" without GPUs
# local_rank = int(os.environ["LOCAL_RANK"])
# torch.cuda.set_device(local_rank)
#
# model = DistributedDataParallel(Model().cuda(), device_ids=[local_rank])
# optimizer = torch.optim.AdamW(model.parameters())                # made when the model is on its device
# sampler = DistributedSampler(dataset)
# loader = DataLoader(dataset, batch_size=32, sampler=sampler)     # 32 on each rank
# first_epoch = load("checkpoint.pt", model, optimizer) if os.path.exists("checkpoint.pt") else 0
#
# for epoch in range(first_epoch, epochs):
#     sampler.set_epoch(epoch)
#     for number, batch in enumerate(loader):
#         last = (number + 1) % 8 == 0 or number + 1 == len(loader)  # 8 microbatches a step; the last may have fewer
#         with nullcontext() if last else model.no_sync():
#             (model(batch.cuda()).mean() / 8).backward()          # forward inside, too; divided, too
#         if last:
#             optimizer.step()
#             optimizer.zero_grad()
#     save("checkpoint.pt", model, optimizer, epoch + 1)
# dist.destroy_process_group()
# ```
#
# `save` and `load` are those of section 11; the exercise makes them safer. The last step of an epoch may have
# fewer than 8 microbatches. It still divides by 8, so its gradient is smaller in proportion. Without `number + 1 ==
# len(loader)` its microbatches would stay in `.grad` and be added to the next epoch's first step.
#
# A widely copied template makes three mistakes that this one avoids. It saves `model.state_dict()`, with `module.` in front of each
# name, and loads it into the bare model, where no name fits. It never calls `set_epoch`, so every epoch has the first one's order.
# And it accumulates over 100 microbatches without dividing the loss by 100, which makes each gradient 100 times as large.
#
# **Not to be confused**: `nn.DataParallel`, without "Distributed", is older.
#
# | | `DataParallel` | `DistributedDataParallel` |
# |---|---|---|
# | processes | one, with a thread for each GPU; the threads compete for Python's interpreter lock | one for each GPU |
# | machines | one | any number |
# | the model | copied from GPU 0 to all others in *every* forward pass | copied once |
# | outputs, gradients | gathered on GPU 0; gradients are **summed** there | stay where they are; averaged by all-reduce |
# | bottleneck | GPU 0, and the lock | the slowest link or rank |
#
# **When data parallelism?** When the model fits on one GPU with its gradients and optimizer: 16 bytes for
# each parameter with Adam (lecture 05 counts them). Data parallelism is simple, works for any model, and its
# throughput grows with the ranks. But it saves no memory at all: GPT-3's 175 billion parameters need 2.8 TB
# *on every rank*, and a GPU has 80 GB. And every step moves a gradient for every weight. When the model does
# not fit, shard it (05), cut its layers (06), or cut it into stages (07).
#
# **Before a long run**
#
# - Debug with Gloo on a laptop: 2 ranks, a tiny model, and the comparison of section 2 with a single process.
# - Seeds as in section 6; equal shards, `set_epoch` and metrics as in section 7; every tensor on its rank's own
#   device.
# - A shorter timeout (`init_process_group(timeout=…)`) than 10 or 30 minutes, so that a hang costs little.
# - A checkpoint that you have *tried* to resume from.

# %% [markdown]
# ## 13. A model that learns to write
#
# So far our models had nothing to learn. From here on the course has one that does: a transformer with 1.3 million parameters that
# reads this course's own lectures, character by character, and learns to predict the next one. Lectures 05 to 08 train it again under
# each of their strategies. It is small, but complete: an embedding, four blocks of causal attention and an MLP, and a head that scores
# the characters. This is a block:

# %%
import inspect

from IPython.display import Code

from fourranks.figures import strategies
from fourranks.learner import model as learner
from fourranks.learner.corpus import course, write

Code(inspect.getsource(learner.TransformerBlock), language="python")

# %% [markdown]
# `enter` and `leave` change nothing here; lecture 06 puts its collectives there. The whole model is a page of code in
# `fourranks/learner/model.py`: `Code(learner.__file__)` shows it. The training loop is the usual one:

# %%
from fourranks.learner import training

Code(inspect.getsource(training.train), language="python")

# %% [markdown]
# The step and a seed determine the 16 rows of a batch, 64 characters each. So every rank can draw the same
# batch without communication, and keep its own rows of it. We train twice with this loop: first on rank 0
# alone, with all rows, and then on four ranks with DDP, with four rows each.
#
# **Question.** Both trainings make 250 steps with AdamW. By how much will their losses differ at most? The loss of the first step is
# about ln 89 ≈ 4.5, because the model still guesses among 89 characters. What will it be after 250 steps?

# %%
differ_at_most, last_loss = None, None  # your predictions; 1e-3 is a number, too

# %%
# %%ranks
from torch.nn.parallel import DistributedDataParallel

import fourranks
from fourranks.learner.corpus import course
from fourranks.learner.model import Config, transformer
from fourranks.learner.training import train

corpus, steps = course(), 250
config = Config(len(corpus.alphabet))


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=3e-3)


# %%
# %%ranks 0
writer = transformer(config).to(device)
losses = train(writer, adamw(writer), corpus, fourranks.progress(range(steps), "one process"))

# %%
strategies.keep("one process", world.pull("losses", [0])[0])


# %%
# %%ranks
def averaged(losses):
    """The loss on the whole batch in each step: the mean of what the ranks saw."""
    dist.all_reduce(losses := torch.tensor(losses, device=device))
    return (losses / world_size).tolist()


def train_on_my_rows(model, name, **options):
    counted = fourranks.progress(range(steps), name)
    return averaged(train(model, adamw(model), corpus, counted, rank, world_size, **options))


writer = DistributedDataParallel(transformer(config).to(device))
losses = train_on_my_rows(writer, "DDP")

# %%
losses = world.pull("losses", [0])[0]
strategies.keep("DDP", losses)
lines = strategies.kept(losses[0])
strategies.over_one_another(lines, "The model that learns to write, under each strategy so far")

# %%
largest = max(strategies.apart(lines, "one process")["DDP"])
print(
    f"{predicted(differ_at_most, about='losses of DDP and one process differ by', was=largest)}at most {largest:.1e}"
)
print(f"{predicted(last_loss, about='loss after 250 steps', was=losses[-1])}it ended at {losses[-1]:.2f}")
finding(
    largest < 1e-3,
    f"Both learn the same: in {len(losses)} steps the losses never differ by more than {largest:.1e}.",
    f"The losses come to differ by {largest:.1e}. They begin {abs(lines['one process'][0] - losses[0]):.0e} apart: training has made a difference in the last bit grow.",
)

# %% [markdown]
# The curves lie on top of one another because only the order of a sum is different. Both runs have the same
# weights at the start, the same 16 rows in each step, and a gradient that is the mean over these rows. DDP
# adds it up in four parts. If you see only one line, that is the result.
#
# What has it learned? We bring the weights of rank 0 to the notebook, give the model the beginning of a
# sentence, and let it continue:

# %%
# %%ranks 0
state = {name: tensor.cpu() for name, tensor in writer.module.state_dict().items()}

# %%
corpus = course()
writer = learner.transformer(learner.Config(len(corpus.alphabet)))
writer.load_state_dict(world.pull("state", [0])[0])
print(write(writer, corpus, "The ranks "))

# %% [markdown]
# It has read 16 · 64 · 250 = 256,000 characters, fewer than the text has. It has learned words, brackets and what a sentence looks
# like. It does not know what any of it means.
#
# **Train it with yours** (optional). Paste the cells of the exercise that define `DistributedDataParallel` and what it uses into this cell,
# with the imports from the exercise's first code cell, and return the model wrapped in it. With `None` nothing happens.


# %%
# %%ranks
def my_wrapper(model):
    return None  # your own: return DistributedDataParallel(model)


# %%
# %%ranks
mine_wraps = my_wrapper(transformer(config).to(device))
if mine_wraps is None:
    print("No wrapper of yours yet.")
else:
    by_mine = train_on_my_rows(mine_wraps, "yours", before_step=mine_wraps.finish_gradient_synchronization)
    differences = [abs(one - other) for one, other in zip(by_mine, losses, strict=True)]
    print(f"Your losses differ from DDP's by at most {max(differences):.0e}.")

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
# - **Three additions**: broadcast the weights, shard the batch, average the gradients. Losses differ, gradients and parameters are
#   equal to the last bit, and the whole is one training with the large batch. DDP averages; the mean of unequal shards' means is wrong.
# - **Naive, overlapped, bucketed** in timelines: gradients travel while earlier layers compute, and only the last bucket
#   cannot be hidden. The first iteration has one bucket; `no_sync` belongs around the forward call, too.
# - **Not waiting** makes gradients stale: there are more of them in a second, but each is worth less.
#   **Communicating less**: local SGD sends a tenth of the bytes, top-k with error feedback a twenty-fifth.
# - **A killed rank**, a checkpoint, and a loss curve that does not show it.
# - **A model that learns to write**, trained alone and with DDP: one curve.
#
# **Your turn**: [the exercise](../../exercises/04_data_parallelism/exercise.ipynb). You write DDP yourself: hooks, buckets, `no_sync`,
# tied and unused parameters, checkpoints.
#
# **Next**: all ranks hold the same optimizer state, the same gradients, the same weights. Is that necessary?
# Lecture 05 keeps each of them in one place only.
#
# **Sources and further reading.** [Stanford CS336 (spring 2025), lecture
# 8](https://github.com/stanford-cs336/spring2025-lectures) · [Stanford CS229S (fall
# 2023)](https://cs229s.stanford.edu/fall2023/), on parallelism · Jamil,
# [*pytorch-transformer-distributed*](https://github.com/hkproj/pytorch-transformer-distributed) · Li and others, *PyTorch
# Distributed*, [arXiv 2006.15704](https://arxiv.org/abs/2006.15704) · Goyal and others, *Accurate, large minibatch SGD*, [arXiv
# 1706.02677](https://arxiv.org/abs/1706.02677) · McCandlish and others, *An empirical model of large-batch training*, [arXiv
# 1812.06162](https://arxiv.org/abs/1812.06162) · Stich, *Local SGD*, [arXiv 1805.09767](https://arxiv.org/abs/1805.09767) ·
# Douillard and others, *DiLoCo*, [arXiv 2311.08105](https://arxiv.org/abs/2311.08105) · Lin and others, *Deep gradient
# compression*, [arXiv 1712.01887](https://arxiv.org/abs/1712.01887) · PyTorch 2.13, [documentation of
# `DistributedDataParallel`](https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html)

# %%
# %ranks stop
