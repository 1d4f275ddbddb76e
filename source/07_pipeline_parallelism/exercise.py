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
# # 07 Pipeline parallelism: can four ranks work on one batch, one after another?
#
# Every rank has a stage: some consecutive layers of the model. A batch goes through the stages in
# microbatches, forward and then backward. The order of these steps is a *schedule*. Here you write schedules,
# compute their cost before you run anything, and then run them on real ranks.
#
# You will
#
# - cut a model into stages, and write the schedules of GPipe and 1F1B,
# - simulate for what share of the time ranks are idle,
# - run any schedule on any number of ranks, without a deadlock, with sends that do not block, and with no
#   more activations than it needs,
# - optionally interleave several stages on a rank, and split the backward into two.
#
# 4 to 5 hours · 1 to 8 ranks (the checks start their own) · Gloo, no GPU needed
#
# [The lecture](../../lectures/07_pipeline_parallelism/lecture.ipynb) has the ideas; here you build them. On one page each:
# [notation](../../docs/notation.md) · [cheat sheet](../../docs/cheat_sheet.md) · [glossary](../../docs/glossary.md) · [concept map](../../docs/concept_map.md)

# %% [markdown]
# ## Rules
#
# **You may use** everything in `torch.distributed`, but not `torch.distributed.pipelining`, which contains
# the answers. It is missing when a check runs your code, and the check watches what the ranks really send. In
# cells of your own you may compare with anything on your machine.
#
# **Parallel must equal serial.** The checks train the same model on the same batch in one process and compare loss and gradients.
#
# | name | is |
# |---|---|
# | stage | a rank's layers; its number is the rank's position in the group. p of them |
# | microbatch | a part of the batch, numbered from 0. m of them, and m may be smaller than p |
# | schedule | the steps of one stage (the lecture calls them jobs) in their order: a list of `("F", microbatch)` for a forward and `("B", microbatch)` for a backward |
# | in flight | a microbatch on a stage between its forward and its backward: its activations are alive |
#
# A schedule has no steps for waiting. A rank waits automatically until the input of its next step has
# arrived: the activations from the previous stage for an F, the gradient from the next stage for a B.
#
# **`group=None`** is the group of all ranks. A smaller group must work in the same way.
#
# **Three facts** will save you an evening:
#
# 1. On Gloo a send ends when the message is *received*, even if it is tiny. `dist.isend` returns a handle
#    immediately; do not change or free the tensor until the handle's `wait()` returns.
# 2. Messages from one rank to another arrive in the order in which they were sent, so you need not number
#    them.
# 3. `group_src=` and `group_dst=` (for `P2POp`: `group_peer=`) count positions in the group, which is what stages are.

# %% nbgrader={"grade": false, "grade_id": "setup", "locked": true, "schema_version": 3, "solution": false, "task": false}
# %load_ext fourranks

import itertools
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import nn

import fourranks
from autograder import check

Step = tuple[str, int]  # "F" or "B", and a microbatch

# %% [markdown]
# ## 1. Assign the layers
#
# **Difficulty** ●○○○○ · **Importance** ●●●○○ · **about 10 minutes**
#
# `assign_layers(num_layers, num_stages, stage)` returns the layers of a stage.
#
# | | |
# |---|---|
# | returns | a `range`: every layer is in one stage, neighbours stay together, stage 0 has the first ones |
# | sizes | as equal as possible; if layers are left over, each of the first stages gets one more, as with `torch.tensor_split` |
# | raises | `ValueError` when there are more stages than layers; its text has both numbers and says what to do |
#
# ```
# 10 layers, 4 stages      0 1 2 │ 3 4 5 │ 6 7 │ 8 9
# ```
#
# Why as equal as possible? In a pipeline all ranks wait for the slowest one. If one stage has 4 layers and
# the others have 2, three ranks are idle half of the time.
#
# <details><summary>Hint</summary>
# <code>divmod(num_layers, num_stages)</code> gives the size and the remainder. Before stage s there are s · size layers, and one more for each
# earlier stage that has one more.
# </details>


# %% nbgrader={"grade": false, "grade_id": "assign_layers", "locked": false, "schema_version": 3, "solution": true, "task": false}
def assign_layers(num_layers: int, num_stages: int, stage: int) -> range:
    """The layers of a stage: contiguous, and as many as on the others, or one more."""
    ### BEGIN SOLUTION
    if num_stages > num_layers:
        raise ValueError(
            f"{num_layers} layers cannot fill {num_stages} stages: "
            f"choose at most {num_layers} stages, or a model with more layers"
        )
    size, remainder = divmod(num_layers, num_stages)
    first = stage * size + min(stage, remainder)
    return range(first, first + size + (stage < remainder))
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "assign_layers_check", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
check.assign_layers(assign_layers)
### BEGIN HIDDEN TESTS
check.assign_layers(assign_layers, num_stages=(1, 5, 7, 8), seed=2701)
### END HIDDEN TESTS

# %% [markdown]
# ## 2. GPipe: forward, then backward
#
# **Difficulty** ●○○○○ · **Importance** ●●●●○ · **about 5 minutes**
#
# `gpipe_schedule(stage, num_stages, num_microbatches)` returns this stage's steps: all forwards, then all backwards, both in the order of the microbatches.
#
# ```
# stage 0   F0 F1 F2 F3                            B0─── B1─── B2─── B3───
# stage 1      F0 F1 F2 F3                   B0─── B1─── B2─── B3───
# stage 2         F0 F1 F2 F3          B0─── B1─── B2─── B3───
# stage 3            F0 F1 F2 F3 B0─── B1─── B2─── B3───                    time →
# ```
#
# All stages have the same list, but they can begin at different times. In the drawing a backward takes twice
# as long as a forward. In the paper the backwards come in the opposite order, with the same bubble; here we
# follow PyTorch's `ScheduleGPipe`.


# %% nbgrader={"grade": false, "grade_id": "gpipe_schedule", "locked": false, "schema_version": 3, "solution": true, "task": false}
def gpipe_schedule(stage: int, num_stages: int, num_microbatches: int) -> list[Step]:
    """The steps of a stage under GPipe."""
    ### BEGIN SOLUTION
    return [(kind, microbatch) for kind in "FB" for microbatch in range(num_microbatches)]
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "gpipe_schedule_check", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
check.gpipe_schedule(gpipe_schedule)
### BEGIN HIDDEN TESTS
check.gpipe_schedule(gpipe_schedule, num_stages=(1, 5, 6, 8), seed=2702)
### END HIDDEN TESTS

# %% [markdown]
# ## 3. 1F1B: go back as soon as you can
#
# **Difficulty** ●●○○○ · **Importance** ●●●●● · **about 20 minutes**
#
# Under GPipe all m microbatches are in flight at the same time, on every stage. But the last stage can do B0
# right after F0, and then the stages before it can free microbatch 0 earlier.
#
# `one_f_one_b_schedule(stage, num_stages, num_microbatches)`: first a *warm-up*, as many forwards as there
# are stages behind this one, then one forward and one backward in turns, and at the end the remaining
# backwards. Microbatches stay in order.
#
# ```
# stage 0   F0 F1 F2 F3                   B0─── F4 B1─── F5 B2───    B3───    B4───    B5───
# stage 1      F0 F1 F2             B0─── F3 B1─── F4 B2─── F5 B3───    B4───    B5───
# stage 2         F0 F1       B0─── F2 B1─── F3 B2─── F4 B3─── F5 B4───    B5───
# stage 3            F0 B0─── F1 B1─── F2 B2─── F3 B3─── F4 B4─── F5 B5───
# ```
#
# **Budget:** on stage s at most min(p − s, m) microbatches are in flight, and no fewer than the schedule
# above has. There may be fewer microbatches than stages.
#
# <details><summary>Hint 1</summary>
# The warm-up is min(p − 1 − s, m) forwards long. How many forwards are left for the turns, and how many backwards for the end?
# </details>
# <details><summary>Hint 2</summary>
# The n-th turn is forward warm_up + n, then backward n.
# </details>


# %% nbgrader={"grade": false, "grade_id": "one_f_one_b_schedule", "locked": false, "schema_version": 3, "solution": true, "task": false}
def one_f_one_b_schedule(stage: int, num_stages: int, num_microbatches: int) -> list[Step]:
    """The steps of a stage under 1F1B."""
    ### BEGIN SOLUTION
    return in_turns(range(num_microbatches), warm_up=num_stages - 1 - stage)


def in_turns(microbatches: Sequence[int], warm_up: int) -> list[Step]:
    """A warm-up of forwards, then a forward and a backward in turns, then the backwards that are left."""
    warm_up = min(warm_up, len(microbatches))
    steps = [("F", microbatch) for microbatch in microbatches[:warm_up]]
    for forward, backward in zip(microbatches[warm_up:], microbatches, strict=False):
        steps += [("F", forward), ("B", backward)]
    return steps + [("B", microbatch) for microbatch in microbatches[len(microbatches) - warm_up :]]
    ### END SOLUTION


# %% [markdown]
# Look at your schedules before you run the check. Can you follow microbatch 0 through all stages and back?

# %%
for stage in range(4):
    steps = one_f_one_b_schedule(stage, 4, 6)
    print(f"stage {stage}: ", *[f"{kind}{microbatch}" for kind, microbatch in steps])

# %% nbgrader={"grade": true, "grade_id": "one_f_one_b_schedule_check", "locked": true, "points": 8, "schema_version": 3, "solution": false, "task": false}
check.one_f_one_b_schedule(one_f_one_b_schedule)
### BEGIN HIDDEN TESTS
check.one_f_one_b_schedule(one_f_one_b_schedule, num_stages=(1, 5, 6, 7, 8), seed=2703)
### END HIDDEN TESTS

# %% [markdown]
# ## 4. The bubble, before anything runs
#
# **Difficulty** ●●●○○ · **Importance** ●●●●○ · **about 45 minutes**
#
# `bubble_fraction(schedules, forward=1.0, backward=2.0)` simulates the ranks, and returns the share of time
# in which they are idle.
#
# | | |
# |---|---|
# | `schedules` | for each rank its schedule, *any* schedule: their order need not be one of those above |
# | `forward`, `backward` | seconds of one step; messages take no time |
# | returns | the share of all ranks' time in which they wait, between 0 and 1. For all ranks the time runs from 0 until the last step of any rank ends |
# | raises | `ValueError` when ranks wait for one another forever; its text names a step that cannot begin, such as B0 |
#
# A step begins as soon as its rank has done all earlier steps, and the step that it needs is done:
#
# | step | of | needs |
# |---|---|---|
# | F of microbatch i | stage 0 | nothing |
# | | stage s | F of i on stage s − 1 |
# | B of microbatch i | the last stage | F of i on this stage |
# | | stage s | B of i on stage s + 1 |
#
# For GPipe and for 1F1B, with equal stages, the result is (p − 1)/(m + p − 1). A simulation also works for
# all other schedules. So you can invent one and see in a second whether it is any good.
#
# <details><summary>Hint 1</summary>
# Keep a clock for each rank, and the end time of each finished step in a dictionary with (kind, microbatch,
# stage) as keys.
# </details>
# <details><summary>Hint 2</summary>
# Go round the ranks, and let each do all the steps that it can. If no rank could do a step in a whole round
# and steps are left, they wait forever.
# </details>
# <details><summary>Hint 3</summary>
# A step begins at the maximum of two times: its rank's clock, and the end time of the step that it needs.
# </details>


# %% nbgrader={"grade": false, "grade_id": "bubble_fraction", "locked": false, "schema_version": 3, "solution": true, "task": false}
def bubble_fraction(
    schedules: Sequence[Sequence[Step]], forward: float = 1.0, backward: float = 2.0
) -> float:
    """The share of time in which ranks have nothing to do, under these schedules."""
    ### BEGIN SOLUTION
    seconds = {"F": forward, "B": backward}
    waiting = [deque(with_stages(steps, rank, len(schedules))) for rank, steps in enumerate(schedules)]
    last_stage = max(stage for steps in waiting for _, _, stage in steps)
    clocks = [0.0] * len(schedules)
    finished = {None: 0.0}
    while any(waiting):
        stuck = True
        for rank, steps in enumerate(waiting):
            while steps and (needed := what_it_needs(*steps[0], last_stage)) in finished:
                step = steps.popleft()
                clocks[rank] = finished[step] = max(clocks[rank], finished[needed]) + seconds[step[0]]
                stuck = False
        if stuck:
            kind, microbatch, stage = next(steps[0] for steps in waiting if steps)
            raise ValueError(
                f"the ranks wait for one another: {kind}{microbatch} of stage {stage} cannot begin"
            )
    computing = sum(seconds[kind] for steps in schedules for kind, _ in steps)
    return 1 - computing / (len(schedules) * max(clocks))


def what_it_needs(kind: str, microbatch: int, stage: int, last_stage: int) -> tuple[str, int, int] | None:
    """The step of another stage that has to be over before."""
    if kind == "F":
        return ("F", microbatch, stage - 1) if stage > 0 else None
    return ("B", microbatch, stage + 1) if stage < last_stage else ("F", microbatch, stage)


def with_stages(steps: Sequence[Step], rank: int, num_ranks: int) -> list[tuple[str, int, int]]:
    """The steps with their stages: a rank may have several, one for each time that a microbatch comes by."""
    num_chunks = Counter(microbatch for kind, microbatch in steps if kind == "F")
    times: Counter[Step] = Counter()
    found = []
    for kind, microbatch in steps:
        chunk = times[kind, microbatch]
        times[kind, microbatch] += 1
        if kind == "B":  # from the last to the first
            chunk = num_chunks[microbatch] - 1 - chunk
        found.append((kind, microbatch, chunk * num_ranks + rank))
    return found
    ### END SOLUTION


# %% [markdown]
# Four stages, and more and more microbatches. From which m on is the bubble below 10 %?

# %%
for num_microbatches in (1, 4, 8, 16, 32):
    schedules = [one_f_one_b_schedule(stage, 4, num_microbatches) for stage in range(4)]
    formula = 3 / (num_microbatches + 3)
    print(
        f"m = {num_microbatches:2}: bubble {bubble_fraction(schedules):5.1%}, by the formula {formula:5.1%}"
    )

# %% nbgrader={"grade": true, "grade_id": "bubble_fraction_check", "locked": true, "points": 14, "schema_version": 3, "solution": false, "task": false}
check.bubble_fraction(bubble_fraction)
### BEGIN HIDDEN TESTS
check.bubble_fraction(bubble_fraction, num_stages=(1, 2, 5, 7), seed=2704)
### END HIDDEN TESTS

# %% [markdown]
# **Question 1 (graded by hand).** A pipeline has p = 8 stages. The activations of one microbatch take 1.5 GiB
# on a stage, and 16 GiB are free for them on every GPU.
#
# - (a) How many microbatches can GPipe have at most, and how large is its bubble then?
# - (b) And 1F1B, with m = 64: bubble, and memory on the first and on the last stage?
# - (c) Interleaved with two chunks on a rank, m = 64: bubble, and does it fit on rank 0? Its warm-up there has
#   (v − 1)p + 2(p − 1) forwards, each of a chunk with half the activations.
# - (d) By the formulas, m = 1000 would make every bubble vanish. What are the arguments against it?

# %% [markdown] nbgrader={"grade": true, "grade_id": "memory_explained", "locked": false, "points": 8, "schema_version": 3, "solution": true, "task": false}
# **Answer to question 1**
#
# <!-- BEGIN SOLUTION -->
# (a) All m are in flight, so m · 1.5 ≤ 16: m = 10, and the bubble is 7/(10 + 7) = 41 %.
#
# (b) At most min(8 − s, 64) in flight on stage s: 12 GiB on the first, 1.5 GiB on the last, whatever m is. The bubble is 7/(64 + 7) = 9.9 %. With the
# same m GPipe would have the same bubble: 1F1B is not faster, but makes room for more microbatches.
#
# (c) The bubble is 7/(2 · 64 + 7) = 5.2 %. On rank 0 there are 8 + 14 = 22 forwards of warm-up and the first of the turns, 23 chunks of 0.75 GiB:
# 17.25 GiB. It does not fit.
#
# (d) The batch is m microbatches. Either it grows with m, and a very large batch learns less from each sample; or the microbatches shrink, and small
# matrices use a GPU badly (each stage's time no longer falls with them), while every message still costs its latency.
#
# 2 points each.
# <!-- END SOLUTION -->

# %% [markdown]
# ## 5. Run it
#
# **Difficulty** ●●●●● · **Importance** ●●●●● · **about 110 minutes**
#
# `run_pipeline(schedule, stage_module, microbatches, loss_fn, group=None)` is called by every rank of the group, with its own schedule and its own stage.
#
# | | |
# |---|---|
# | `schedule` | this rank's steps; the schedules of all ranks fit together. Not always GPipe or 1F1B |
# | `stage_module` | this rank's layers, an `nn.Module`, called once for each microbatch: nothing is computed again in backward |
# | `microbatches` | a list of pairs `(inputs, targets)`, samples along dimension 0, not all of the same size. Every rank gets it, but only the first stage may *read* inputs and only the last one targets: the other stages may use only their shapes |
# | `loss_fn(outputs, targets)` | the mean loss over the samples that it is given |
# | afterwards | each parameter's `.grad`, `None` before, is the gradient of the mean loss over *all* samples |
# | returns | this mean loss, a Python float, on every rank |
#
# The output of a stage has the shape and dtype of its input, except for the last stage, whose output may
# differ. So a rank knows the size of a message in advance: `torch.empty_like(inputs)` has room for it. A
# stage may be frozen as a whole; the messages are the same.
#
# **Budget**
#
# - **Messages between neighbours only**: for each microbatch one to the next stage and one back. The last
#   stage knows the loss, and sends it back from stage to stage like the gradients, as one message of one
#   float64, in which no digit of it is lost.
# - **No send blocks.** The result of a step is sent before the next step begins, and the rank continues while
#   it is in flight.
# - **No unnecessary waits.** A rank waits for a message right before the step that needs it.
# - **Memory.** No more microbatches may be alive than the schedule has in flight: graphs, inputs, outputs and
#   their gradients, with the buffers for them. In addition one may be arriving, and the one that was finished
#   last may still be being sent. Call `wait()` on every handle, sooner or later.
# - **No deadlock**, for any number of stages and microbatches.
#
# ```
# a step        then, in one go             then wait for what is asked for only, and
# F1         send activations 1 down, ask for gradient 0        B0
# B0         send gradient 0 up, ask for activations 2          F2
# ```
#
# **Two neighbours that both send first with a blocking `send` wait forever.** Under 1F1B exactly that would
# happen: one sends an activation down while the other sends a gradient up. With handles neither has to wait.
# NCCL has one more trap: the messages between two ranks run in the order in which each rank has started them.
# So start a send and a receive that belong together with one `dist.batch_isend_irecv`.
#
# <details><summary>Hint 1: the idea</summary>
# Keep the inputs and outputs of each microbatch in flight in a dictionary by its number. Between two steps
# start a send of this step's result and a receive of the next step's input, and wait only for the receive.
# Keep the send's handle.
# </details>
# <details><summary>Hint 2: the skeleton</summary>
# <pre>for each step, and the step that follows it:
#     computed = forward or backward of its microbatch, with what was received
#     received = exchange(step, computed, following)   # isend and irecv in one batch_isend_irecv; wait for the irecv
# pass the loss back, wait for all sends</pre>
# The first stage receives no activations and sends no gradients; the last one has a loss in the place of its outputs, each scaled by
# <code>len(inputs)</code> over all samples. With one rank a stage is both.
# </details>
# <details><summary>Hint 3: a part of the solution</summary>
# One microbatch on one stage:
# <pre>inputs = received.requires_grad_()           # a leaf
# outputs = self.module(inputs)
# self.alive[microbatch] = inputs, outputs     # and send outputs.detach().contiguous()
# …
# inputs, outputs = self.alive.pop(microbatch)
# outputs.backward(gradient)                   # and send inputs.grad</pre>
# </details>
# <details><summary>Hint 4: when to wait for a send</summary>
# When a microbatch's gradient comes back, its activations have certainly been received: wait for their send
# then, which takes no time. For gradients, wait for the previous send when you start the next.
# </details>
# <details><summary>Hint 5: a frozen stage</summary>
# If nothing in the first stage requires a gradient, its outputs do not, either
# (<code>outputs.requires_grad</code>), and there is no backward. The gradient still arrives, and has to be
# received. A later frozen stage has no gradients of its own, but passes on that of its inputs.
# </details>


# %% nbgrader={"grade": false, "grade_id": "run_pipeline", "locked": false, "schema_version": 3, "solution": true, "task": false}
def run_pipeline(
    schedule: Sequence[Step],
    stage_module: nn.Module,
    microbatches: Sequence[tuple[torch.Tensor, torch.Tensor]],
    loss_fn: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    group: dist.ProcessGroup | None = None,
) -> float:
    """Do this rank's steps, add up gradients of the mean loss over all samples, and return this loss."""
    ### BEGIN SOLUTION
    stage = Stage(stage_module, microbatches, loss_fn, group)
    arrived = stage.exchange(None, None, schedule[0])
    for step, following in itertools.zip_longest(schedule, schedule[1:]):
        kind, microbatch = step
        compute = stage.forward if kind == "F" else stage.backward
        arrived = stage.exchange(step, compute(microbatch, arrived), following)
    return stage.pass_loss_back()


class Stage:
    """A rank's part of a pipeline: its tasks, its messages, and its microbatches that are alive."""

    TOWARDS = {"F": 1, "B": -1}  # activations go to the next stage, gradients to the one before

    def __init__(self, module: nn.Module, microbatches: Sequence, loss_fn: Callable, group: object) -> None:
        self.module, self.microbatches, self.loss_fn, self.group = module, microbatches, loss_fn, group
        self.index, self.last = dist.get_rank(group), dist.get_world_size(group) - 1
        self.num_samples = sum(len(inputs) for inputs, _ in microbatches)
        self.alive: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # inputs and outputs
        self.sending: dict[Step, dist.Work] = {}
        self.loss: torch.Tensor | float = 0.0

    def forward(self, microbatch: int, arrived: torch.Tensor | None) -> torch.Tensor:
        """Compute outputs, on the last stage a loss, to be sent on."""
        inputs, targets = self.microbatches[microbatch]
        if arrived is not None:
            inputs = arrived.requires_grad_()
        outputs = self.module(inputs)
        if self.index == self.last:
            outputs = self.loss_fn(outputs, targets) * (len(inputs) / self.num_samples)
            self.loss += outputs.detach()
        self.alive[microbatch] = inputs, outputs
        return outputs.detach().contiguous()

    def backward(self, microbatch: int, gradient: torch.Tensor | None) -> torch.Tensor | None:
        """Compute gradients; that of the inputs is to be sent back."""
        inputs, outputs = self.alive.pop(microbatch)
        if outputs.requires_grad:
            outputs.backward(gradient)
        # These have been received, or will be without anything more of this rank: no wait in a circle.
        for step in [step for step in self.sending if step == ("F", microbatch) or step[0] == "B"]:
            self.sending.pop(step).wait()
        return inputs.grad

    def exchange(
        self, step: Step | None, computed: torch.Tensor | None, following: Step | None
    ) -> torch.Tensor | None:
        """Send what a step has computed, receive what the following one needs, and wait for that alone."""
        outgoing, incoming = [], []
        if step and self.exists(destination := self.index + self.TOWARDS[step[0]]):
            outgoing.append(dist.P2POp(dist.isend, computed, group=self.group, group_peer=destination))
        if following and self.exists(source := self.index - self.TOWARDS[following[0]]):
            buffer = torch.empty_like(self.microbatches[following[1]][0])
            incoming.append(dist.P2POp(dist.irecv, buffer, group=self.group, group_peer=source))
        works = dist.batch_isend_irecv(outgoing + incoming) if outgoing or incoming else []
        if outgoing:
            self.sending[step] = works[0]
        if not incoming:
            return None
        works[-1].wait()
        return buffer

    def exists(self, stage: int) -> bool:
        return 0 <= stage <= self.last

    def pass_loss_back(self) -> float:
        """Hand the loss on from the last stage to the first, and wait for all that is still being sent."""
        device = self.microbatches[0][0].device
        loss = torch.as_tensor(self.loss, dtype=torch.float64, device=device)
        if self.index < self.last:
            dist.recv(loss, group=self.group, group_src=self.index + 1)
        if self.index > 0:
            dist.send(loss, group=self.group, group_dst=self.index - 1)
        for work in self.sending.values():
            work.wait()
        return loss.item()

    ### END SOLUTION


# %% [markdown]
# Look at a timeline. The layer of this stage is slowed down, so that its computation is visible beside the
# messages. Where is the bubble, and what changes from GPipe to 1F1B?


# %%
class SlowLayer(nn.Linear):
    """Takes 10 ms forward and 20 ms backward."""

    def forward(self, inputs):
        time.sleep(0.01)
        outputs = super().forward(inputs)
        outputs.register_hook(lambda _: time.sleep(0.02))
        return outputs


def try_pipeline(run_pipeline, make_schedule, num_microbatches):
    torch.manual_seed(dist.get_rank())
    schedule = make_schedule(dist.get_rank(), dist.get_world_size(), num_microbatches)
    microbatches = [(torch.randn(8, 16), torch.randn(8, 16)) for _ in range(num_microbatches)]
    loss = nn.functional.mse_loss
    return run_pipeline(schedule, SlowLayer(16, 16), microbatches, loss)


with fourranks.world("gloo").trace() as gpipe:
    losses = fourranks.world("gloo").run(try_pipeline, run_pipeline, gpipe_schedule, 6)
with fourranks.world("gloo").trace() as one_f_one_b:
    losses = fourranks.world("gloo").run(try_pipeline, run_pipeline, one_f_one_b_schedule, 6)
print("the loss on each rank:", losses)
gpipe.timeline("GPipe, 6 microbatches")

# %%
one_f_one_b.timeline("1F1B, 6 microbatches")

# %% nbgrader={"grade": true, "grade_id": "run_pipeline_check", "locked": true, "points": 40, "schema_version": 3, "solution": false, "task": false}
check.run_pipeline(run_pipeline)
### BEGIN HIDDEN TESTS
check.run_pipeline(run_pipeline, world_sizes=(6,), seed=2705)
### END HIDDEN TESTS

# %% [markdown]
# **Question 2 (graded by hand).** A colleague writes `run_pipeline` with `dist.send` and `dist.recv`: before
# a step, receive its input; after it, send its result. On Gloo, p = 4, m = 8.
#
# - (a) Under 1F1B it stops. Which two ranks are the first that can never go on, in which steps, and with
#   which messages?
# - (b) Under GPipe the same code runs through. Why, and what is still wrong with it?
# - (c) It also runs through under 1F1B with a backend that copies small messages into a buffer of its own.
#   Why is that no repair?
# - (d) Name two repairs, and say for each when the tensor that was sent may be written to again.

# %% [markdown] nbgrader={"grade": true, "grade_id": "deadlock_explained", "locked": false, "points": 8, "schema_version": 3, "solution": true, "task": false}
# **Answer to question 2**
#
# <!-- BEGIN SOLUTION -->
# (a) Ranks 2 and 3. Rank 3 has received activation 0, done F0 and B0, and sends gradient 0 to rank 2. Rank 2, with a warm-up of one, has done F0 and F1 and sends activation 1
# to rank 3. Each send ends only when it is received, and both ranks come to their receives only after their sends.
#
# (b) Under GPipe all messages go down before the first goes up. A rank sends an activation to one that only
# has to receive it and send its own further down. The last rank sends nothing down, so the chain always
# moves; the same holds for gradients. (A pipeline that only goes forward is the first half of that.) The
# fault that remains: a rank is idle until its neighbour is ready to receive, instead of computing its next
# microbatch. Nothing overlaps.
#
# (c) The size up to which messages are buffered is no promise: with larger microbatches, another backend or
# another version it hangs again, in the middle of a training run. The program is wrong even where it happens
# to run.
#
# (d) isend, and wait() for the handle later, for instance when the microbatch's gradient comes back; or batch_isend_irecv for the activation down and the gradient up
# together. (Or: one of every two neighbours receives first.) With handles the tensor may be written to when
# wait() has returned (on a GPU: by work that the stream does after it), with a blocking send when it returns.
#
# 2 points each.
# <!-- END SOLUTION -->

# %% [markdown]
# ## 6. Optional: several stages on a rank
#
# **Difficulty** ●●●○○ · **Importance** ●●●○○ · **about 30 minutes** · optional
#
# The bubble is p − 1 steps long because a microbatch takes that many steps to get to the last rank. Make the steps shorter: cut the model into v · p stages, and
# give each rank v of them, *chunks*: rank r has the stages r, p + r, 2p + r and so on. A microbatch goes round the ranks v times, and the bubble becomes
# (p − 1)/(v·m + p − 1), for v times as many messages.
#
# `interleaved_schedule(stage, num_stages, num_microbatches, num_chunks=2)`: `stage` and `num_stages` are the rank and the number of ranks, as before. Steps are pairs, as
# before: the chunk need not be written down, because a microbatch's first F on a rank can only be of its first chunk, and its first B only of its last.
#
# - **Forwards** go in rounds: p microbatches through the rank's first chunk, the same p through the second, and so on through all v; then the next p
#   microbatches. Backwards go in the same order of microbatches.
# - **Warm-up** on rank r: (v − 1) · p + 2 · (p − 1 − r) forwards, or all forwards if there are fewer. Then
#   one forward and one backward in turns, and the remaining backwards.
# - **m must be a multiple of p**; otherwise raise a `ValueError` with both numbers. Megatron-LM requires the
#   same.
#
# ```
# p = 2, m = 4, v = 2
# rank 0     F0 F1 F0 F1 F2 B0 F3 B1 F2 B0 F3 B1 B2 B3 B2 B3
# chunk      0  0  1  1  0  1  0  1  1  0  1  0  1  1  0  0
# ```
#
# <details><summary>Hint</summary>
# It is 1F1B with a different order of the microbatches and a different warm-up. Put their common part into
# one function.
# </details>


# %% nbgrader={"grade": false, "grade_id": "interleaved_schedule", "locked": false, "schema_version": 3, "solution": true, "task": false}
def interleaved_schedule(
    stage: int, num_stages: int, num_microbatches: int, num_chunks: int = 2
) -> list[Step]:
    """The steps of a rank with several chunks of the model under interleaved 1F1B."""
    ### BEGIN SOLUTION
    if num_microbatches % num_stages:
        raise ValueError(
            f"{num_microbatches} microbatches do not go round {num_stages} ranks: "
            f"choose a multiple of {num_stages}"
        )
    rounds = range(0, num_microbatches, num_stages)
    order = [first + at for first in rounds for _ in range(num_chunks) for at in range(num_stages)]
    return in_turns(order, warm_up=(num_chunks - 1) * num_stages + 2 * (num_stages - 1 - stage))
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "interleaved_schedule_check", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
check.interleaved_schedule(interleaved_schedule)
### BEGIN HIDDEN TESTS
check.interleaved_schedule(interleaved_schedule, num_stages=(1, 2, 5, 8), num_chunks=(2, 4), seed=2706)
### END HIDDEN TESTS

# %% [markdown]
# Is the bubble as expected? Extend `bubble_fraction` (part 4) to such schedules. The n-th F of a
# microbatch on rank r, n from 0, is of stage n·p + r; the n-th B is of stage (v − 1 − n)·p + r. `forward` and
# `backward` are the times of one step, that is of one chunk. Then compare it with the formula:

# %%
for num_chunks in (2, 4):
    schedules = [interleaved_schedule(stage, 4, 8, num_chunks) for stage in range(4)]
    print(
        f"v = {num_chunks}: bubble {bubble_fraction(schedules):5.1%}, by the formula {3 / (8 * num_chunks + 3):5.1%}"
    )

# %% nbgrader={"grade": true, "grade_id": "interleaved_bubble_check", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
check.bubble_fraction(bubble_fraction, num_stages=(1, 2, 3), num_chunks=(2,))
### BEGIN HIDDEN TESTS
check.bubble_fraction(bubble_fraction, num_stages=(2, 4, 5), num_chunks=(2, 3), seed=2707)
### END HIDDEN TESTS

# %% [markdown]
# ## 7. Optional: a backward in two halves
#
# **Difficulty** ●●●○○ · **Importance** ●●○○○ · **about 30 minutes** · optional
#
# The previous stage waits for a gradient of *activations*. The gradients of the weights are not needed until
# the optimizer's step. So a backward can be split: first the part that the other ranks need, and the rest
# when there is time, for instance in the bubble. *Zero bubble* schedules (2401.10241) do that.
#
# For a linear layer Y = X Wᵀ + b with gradient G of Y:
#
# | half | computes | when |
# |---|---|---|
# | backward | G W, the gradient of X | in `loss.backward()`, as usual |
# | `backward_weight()` | Gᵀ X and the column sums of G, the gradients of W and b | when it is called |
#
# `SplitBackwardLinear` is an `nn.Linear` with the same arguments, parameters and outputs, whose backward does
# not change `weight.grad` and `bias.grad`. It keeps the tensors from which they are computed. Each call of
# `backward_weight()` adds the gradients of one microbatch, the one with the earliest backward of those
# pending, and frees its tensors; if none is pending, it raises a `RuntimeError`. X may have any number of
# dimensions, with the features in the last. It need not require a gradient: that of a model's first layer does
# not. The microbatches of a frozen layer are pending, too, but there is nothing to add for them.
#
# **Budget:** for each microbatch one matrix multiplication in the forward, one in the backward, one in `backward_weight()`: no more than `nn.Linear` takes.
#
# <details><summary>Hint 1</summary>
# A <code>torch.autograd.Function</code> has a <code>forward(ctx, …)</code> and a <code>backward(ctx, gradient)</code>, which returns a gradient or None for
# each argument of forward. An argument may be a list to which backward appends.
# </details>
# <details><summary>Hint 2</summary>
# <code>tensor.reshape(-1, features)</code> makes one dimension of all but the last.
# </details>


# %% nbgrader={"grade": false, "grade_id": "split_backward_linear", "locked": false, "schema_version": 3, "solution": true, "task": false}
class SplitBackwardLinear(nn.Linear):
    """A linear layer whose backward computes the gradient of its input; those of its parameters come later."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        ### BEGIN SOLUTION
        self.waiting: deque[tuple[torch.Tensor, torch.Tensor]] = deque()  # inputs, gradient of the outputs
        ### END SOLUTION

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Apply the layer; its backward computes the gradient of `inputs` only."""
        ### BEGIN SOLUTION
        return InputGradientOnly.apply(inputs, self.weight, self.bias, self.waiting)
        ### END SOLUTION

    def backward_weight(self) -> None:
        """Add the gradients of weight and bias for the microbatch that has waited longest."""
        ### BEGIN SOLUTION
        if not self.waiting:
            raise RuntimeError("no microbatch waits: call backward_weight() once after each backward")
        inputs, gradient = self.waiting.popleft()
        gradient = gradient.reshape(-1, self.out_features)
        if self.weight.requires_grad:
            add_gradient(self.weight, gradient.t() @ inputs.reshape(-1, self.in_features))
        if self.bias is not None and self.bias.requires_grad:
            add_gradient(self.bias, gradient.sum(0))


class InputGradientOnly(torch.autograd.Function):
    """A linear layer; its backward notes what the parameters' gradients need."""

    @staticmethod
    def forward(ctx, inputs, weight, bias, waiting):
        ctx.save_for_backward(inputs, weight)
        ctx.waiting = waiting
        return nn.functional.linear(inputs, weight, bias)

    @staticmethod
    def backward(ctx, gradient):
        inputs, weight = ctx.saved_tensors
        ctx.waiting.append((inputs.detach(), gradient))
        return gradient @ weight, None, None, None


def add_gradient(parameter: nn.Parameter, gradient: torch.Tensor) -> None:
    """Add to a parameter's gradient, as a backward does."""
    parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "split_backward_linear_check", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
check.split_backward_linear(SplitBackwardLinear)
### BEGIN HIDDEN TESTS
check.split_backward_linear(
    SplitBackwardLinear, shapes=(((7, 3), 2, True), ((2, 2, 2, 3), 4, False), ((5,), 1, True)), seed=2708
)
### END HIDDEN TESTS

# %% [markdown]
# ## What you have now
#
# - You cut a model into stages, and wrote GPipe and 1F1B: they have the same bubble, but m against p − s
#   microbatches in flight.
# - You simulated ranks in a few lines, and know the cost of a schedule before it runs.
# - You ran any schedule on any number of ranks, with messages that overlap with computing, in the memory that the schedule promises.
# - Perhaps you made the bubble v times smaller, or split the backward.
#
# So far you cut batch, width and depth separately. Large training runs cut along all three at the same time.
