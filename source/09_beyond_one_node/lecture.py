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
# # 09 Beyond one node: leave the notebook
#
# **The code runs on four ranks of this machine. What has to change so that it runs on forty machines, for a week, while some of them die?**
#
# You will
#
# - save a cell as a program that torchrun starts, with nothing of this course in it,
# - run it on two nodes, played by two torchrun agents on this machine, and read RANK, LOCAL_RANK and GROUP_RANK from the run,
# - kill a process, and then a whole node, and watch the job resume from its checkpoint with the losses of an
#   undisturbed run,
# - find out where a job hangs, using only the records of torch itself,
# - profile a step with three mistakes in it, and read launch files for Slurm and Kubernetes line by line.
#
# 60 minutes · 4 ranks and 2 × 2 processes · Gloo on any laptop
#
# [notation](../../docs/notation.md) · [cheat sheet](../../docs/cheat_sheet.md) · [glossary](../../docs/glossary.md) · [concept map](../../docs/concept_map.md)

# %%
# %load_ext fourranks
import fourranks
from fourranks.figures import compare, curves, finding, ledger, predicted, review

# %ranks start --backend gloo
world = fourranks.world()

# %% [markdown]
# ## Before you begin
#
# Three questions about earlier lectures. Answer them from memory, in the list below; `None` works, too.

# %%
ledger.begin("09")

# %%
remembered = [None, None, None]  # your answers

# %%
ledger.answers(remembered)

# %% [markdown]
# ## 1. A cell becomes a program
#
# Notebooks are for exploring. A training run that lasts for days is a program: a scheduler starts it, and
# restarts it after a failure, while you are away. The cell below has three additions for that:
#
# - It forms its process group from the environment: the launcher tells each process its `RANK`, the
#   `WORLD_SIZE`, and the address of the rendezvous. Our ranks already have a group, so here
#   `init_process_group` attaches to it.
# - It **resumes where the last run ended**: a checkpoint has model, optimizer and step. One rank writes it,
#   under a different name first, so that a crash in the middle of writing leaves the old checkpoint intact.
# - Batch n is drawn from seed n. After a restart, even with a different number of ranks, batch n is the same
#   batch.
#
# `%%ranks --save-script train.py` runs the cell and writes it to a file. It refuses a cell that uses names
# from other cells, and lists these names.

# %%
# %%ranks --save-script train.py
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
names = ("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
print(" ".join(f"{name}={os.environ.get(name)}" for name in names), f"pid={os.getpid()}", flush=True)

torch.manual_seed(0)  # the same weights on every rank
model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
first, steps, pause = 0, 24, float(os.environ.get("PAUSE", 0))
checkpoint = os.environ.get("CHECKPOINT", "")
if checkpoint and os.path.exists(checkpoint):
    saved = torch.load(checkpoint)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    first = saved["step"]

ddp = DistributedDataParallel(model)
for step in range(first, steps):
    rows = torch.randn(64, 32, generator=torch.Generator().manual_seed(step)).chunk(world_size)[rank]
    loss = (ddp(rows) - rows.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(pause)
    total = loss.detach().clone()
    dist.all_reduce(total)
    if rank == 0:
        print(f"step {step}: loss {total.item() / world_size:.6f} on {world_size} ranks", flush=True)
        if checkpoint:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
            torch.save(state, checkpoint + ".new")
            os.replace(checkpoint + ".new", checkpoint)
    dist.barrier()  # no rank goes on before the checkpoint is complete
dist.destroy_process_group()

# %% [markdown]
# And what about a cell that uses a name from another cell?

# %% tags=["raises-exception"]
# %%ranks --save-script evaluate.py
accuracy = evaluate(model, held_out)

# %% [markdown]
# ## 2. Two nodes
#
# Each machine of a job runs one **agent**, `torchrun`. It starts the processes of its machine, watches
# them, and meets the other agents at the **rendezvous**, an address that all of them know. There the agents
# agree on the members of the job, and each gets its number, the *group rank*. These variables follow from
# it:
#
# | variable | is | two nodes of two |
# |---|---|---|
# | `GROUP_RANK` | the number of the node | 0, 0, 1, 1 |
# | `LOCAL_RANK` | the number of the process on its node: choose the GPU by it | 0, 1, 0, 1 |
# | `RANK` | the number of the process in the job | 0, 1, 2, 3 |
# | `WORLD_SIZE`, `LOCAL_WORLD_SIZE` | how many, in the job and on the node | 4, 2 |
# | `MASTER_ADDR`, `MASTER_PORT` | where the process group forms, chosen by the rendezvous | |
#
# Two agents on one machine behave like two nodes, except for the cable between them. `--nnodes 1:2` allows
# the job to run on one node as well: it is *elastic*.
#
# **Question.** A job with `--nnodes 1:2 --nproc-per-node 2`. A *process* of node 1 is killed. What happens to the three others? Choose
# one: "they continue", "they end", "one is replaced" or "all are started again".

# %%
after_a_process_dies = None  # your prediction, in words

# %%
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

folder = Path(tempfile.mkdtemp())
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]

# A container may set PYTHONUNBUFFERED; then lines of several processes would run into one another.
WHOLE_LINES = {"PYTHONUNBUFFERED": ""}
RENDEZVOUS = "keep_alive_interval=1,keep_alive_max_attempt=5,last_call_timeout=5"


def start_node(number, program="train.py", nodes="1:2", **variables):
    """A torchrun agent with two processes; what they print goes to a file."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", nodes, "--nproc-per-node", "2"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "course"]
    command += ["--rdzv-conf", RENDEZVOUS, "--local-addr", "127.0.0.1", "--max-restarts", "5", program]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    variables |= WHOLE_LINES
    with open(folder / f"node{number}.log", "a") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=log, env=environment | variables, start_new_session=True
        )


def log_of(number):
    return (folder / f"node{number}.log").read_text()


def wait_until(holds, seconds=150):
    """Wait until something holds."""
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            raise TimeoutError(log_of(0)[-2000:])
        time.sleep(0.2)


def the_rendezvous_is_open():
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def last_step(number=0):
    return max(map(int, re.findall(r"^step (\d+)", log_of(number), re.MULTILINE)), default=-1)


# %%
variables = {"CHECKPOINT": str(folder / "checkpoint.pt"), "PAUSE": "0.3"}
nodes = [start_node(0, **variables)]
wait_until(the_rendezvous_is_open)  # it lives in node 0's agent
nodes.append(start_node(1, **variables))
wait_until(lambda: last_step() >= 4)
started = [line for number in (0, 1) for line in re.findall(r"^RANK=.*", log_of(number), re.MULTILINE)]
print("\n".join(sorted(started)))

# %% [markdown]
# Here LOCAL_RANK and RANK differ: `torch.cuda.set_device(rank)` would ask for a GPU 3 on a node that has only
# 0 and 1. The rendezvous decides which agent becomes node 0, so the order of the ranks need not follow the
# names of the machines.

# %% [markdown]
# ## 3. A process is killed
#
# Now we send SIGKILL to one process of node 1, as the operating system does when memory runs out.

# %%
victim = int(re.findall(r"^RANK=\d+ LOCAL_RANK=1 .*pid=(\d+)", log_of(1), re.MULTILINE)[-1])
before, begun = last_step(), time.monotonic()
os.kill(victim, signal.SIGKILL)
wait_until(lambda: len(re.findall(r"^RANK=0 |^RANK=2 ", log_of(0), re.MULTILINE)) == 2)
seconds = time.monotonic() - begun
told = predicted(after_a_process_dies, about="after a process dies", was="all are started again")
print(f"{told}killed after step {before}; all four processes were started again {seconds:.0f} s later")
print("\n".join(re.findall(r"^(?:RANK|step).*", log_of(0), re.MULTILINE)[-6:]))

# %% [markdown]
# One process died, and **all** were started again. The reason is the collectives: the three others wait for
# the dead process in an all-reduce, and a process group cannot be repaired while it runs. On Gloo they see
# their connection closed and raise; on NCCL they would wait until torch's watchdog, a thread that looks for
# calls that take too long, ends them. Each agent then stops its remaining processes, the agents meet again,
# and the program resumes from the checkpoint. Only the steps since that checkpoint are lost.
#
# Three things to know, all tried with torch 2.13:
#
# - `TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1` is set above. Without it a second attempt on Gloo can hang or fail, since the new process group finds the addresses of the old one in the store that agents and processes share. A `PrefixStore` with another prefix in each attempt helps, too.
# - The rendezvous lives in one agent, the one on the endpoint's machine. If *that* machine dies, all other agents end with an error, and the scheduler has to start the job again.
# - `--max-restarts` counts failures. A change of members, such as a node that comes or goes, does not count.
#
# **Question.** Now the whole node 1 dies, with its agent. How many ranks continue? And will the losses be
# those of the undisturbed run?

# %%
ranks_that_go_on, same_losses = None, None  # your predictions: a number, and "yes" or "no"

# %%
wait_until(lambda: last_step() >= before + 2)
begun = time.monotonic()
os.killpg(nodes[1].pid, signal.SIGKILL)
for pid in re.findall(r"pid=(\d+)", log_of(1)):  # the processes of a node that is gone are gone, too
    try:
        os.kill(int(pid), signal.SIGKILL)
    except ProcessLookupError:
        continue
wait_until(lambda: "GROUP_RANK=0 WORLD_SIZE=2" in log_of(0))
print(f"node 0 goes on alone {time.monotonic() - begun:.0f} s later")
nodes[0].wait(timeout=150)
print(f"and ends with exit code {nodes[0].returncode}")

# %%
survived = {
    int(step): (float(loss), int(n))
    for step, loss, n in re.findall(r"step (\d+): loss ([\d.]+) on (\d+)", log_of(0))
}
print(f"{predicted(ranks_that_go_on, about='ranks that go on', was=2)}ranks at the end: {survived[23][1]}")

# %% [markdown]
# For comparison the same program without any disturbance, on one node of two processes.

# %%
quiet = start_node(2, nodes="1", PAUSE="0")
quiet.wait(timeout=150)
undisturbed = {int(step): float(loss) for step, loss in re.findall(r"step (\d+): loss ([\d.]+)", log_of(2))}
lines = {
    "undisturbed": [undisturbed[step] for step in range(24)],
    "two failures": [survived[step][0] for step in range(24)],
}
curves(lines, title="Losses of the job that lost a process and a node, and of one that lost nothing")

# %%
worst = max(abs(one - other) for one, other in zip(*lines.values(), strict=True))
print(
    f"{predicted(same_losses, about='losses after failures are the same', was='yes')}largest difference: {worst:.0e}"
)
finding(
    worst < 1e-3,
    f"Four ranks, four again, then two: the losses differ from those of an undisturbed run by at most {worst:.0e}.",
    f"The losses differ by up to {worst:.0e}.",
)

# %% [markdown]
# The losses agree because the *global* batch stayed the same: 64 rows, on four ranks or on two. Last bits may
# differ, since sums are in a different order. If each rank kept 16 rows, a job on fewer nodes would train
# with a smaller batch, and its learning rate would be wrong for it. In an elastic job you have to choose one
# of the two.
#
# **Checkpoints of sharded models.** With FSDP, tensor or pipeline parallelism every rank writes its own
# shards, at the same time. `torch.distributed.checkpoint` does that (`dcp.save`, `dcp.load`), and can load
# them onto a different mesh. `dcp.async_save` writes while training continues. How often should you save?
# With a failure every M hours, and a checkpoint that takes c hours, the least time is lost with an interval
# of about √(2·c·M), which is Young's rule: for c = 1 minute and a failure every 4 hours, save every 22
# minutes.

# %%
failure_hours, checkpoint_minutes = 4, 1  # change them
print(f"every {(2 * checkpoint_minutes / 60 * failure_hours) ** 0.5 * 60:.0f} minutes")

# %% [markdown]
# ## 4. Where does it hang?
#
# In the notebook a deadlock explains itself. In a job outside it does not, but torch has a **Flight
# Recorder**: it keeps the last collectives of each process, with sequence number, sizes, and state. It is on
# from the start, for NCCL and Gloo, and keeps 2,000 calls; `TORCH_FR_BUFFER_SIZE` sets another number, and 0
# turns it off. On NCCL, `TORCH_NCCL_DUMP_ON_TIMEOUT=1` writes it to files when the watchdog ends a process,
# and `torchfrtrace` (in torch) compares them. Here a timer in each process prints it after five seconds.
#
# **Question.** Four processes; one of them leaves out its fifth all-reduce, which is easy to do with an `if`. From the last entry of each recorder: how do you find it?

# %%
how_to_find = None  # your prediction, in words

# %%
# %%writefile hang.py
import json
import os
import threading

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()


def report():
    """Print what the recorder knows about this process, and end the process."""
    entries = json.loads(torch._C._distributed_c10d._dump_fr_trace_json())["entries"]
    numbers = {entry["collective_seq_id"]: entry["retired"] for entry in entries}
    waiting = [number for number, retired in numbers.items() if not retired]
    where = f"waits in number {waiting[-1]}" if waiting else "waits in nothing"
    print(f"rank {rank}: {len(numbers) - len(waiting)} finished, {where}", flush=True)
    os._exit(0)


threading.Timer(5, report).start()
x = torch.ones(2)
for step in range(8):
    if rank == 2 and step == 4:
        continue  # the mistake
    dist.all_reduce(x)

# %%
command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4", "hang.py"]
recorder = os.environ | {"TORCH_FR_BUFFER_SIZE": "2000", "OMP_NUM_THREADS": "1"} | WHOLE_LINES
done = subprocess.run(command, env=recorder, capture_output=True, text=True, timeout=150)
print("\n".join(sorted(re.findall(r"^rank.*", done.stdout, re.MULTILINE))))

# %% [markdown]
# Rank 2 is one collective behind: the others wait in number 8, and it has finished seven and waits in none.
# It left one out, but which? The numbers do not show it, since all eight have the same shape: rank 2's fifth
# call, in its step 5, was matched with the fifth call of the others, in their step 4. In a training job every
# sum from there on would add gradients of different steps: **wrong without an error**. You are lucky if such
# a job hangs.
#
# So first compare the *sequence numbers*, group by group. Then look at the rank with the smallest number: its
# stack shows the line. `py-spy dump --pid …` shows the stack of any process, without preparation.
#
# | symptom | first look |
# |---|---|
# | all ranks in the same collective, none returns | the network: `NCCL_DEBUG=INFO`, which interface, firewall between nodes |
# | ranks in different collectives of one group | the lines that they are in: an `if`, an exception that was caught, uneven data |
# | one rank is missing | did it die? the agent's log, `dmesg` (out of memory), `nvidia-smi` (Xid errors) |
# | one rank is slow, all wait for it | data loading, a hot GPU: compare times per rank, not means |
# | different *results* but no hang | the same shapes in a different order; `TORCH_DISTRIBUTED_DEBUG=DETAIL` finds it only if shape, dtype or operation differ |

# %% [markdown]
# ## 5. Slurm, line by line
#
# A cluster's scheduler starts one task a node, and each task is a torchrun agent. The file begins with the line `#!/bin/bash`; then follow the requests to the scheduler, which are comments to bash, and the program:
#
# ```bash
# #SBATCH --job-name=train
# #SBATCH --nodes=2
# #SBATCH --ntasks-per-node=1
# #SBATCH --gpus-per-node=8
# #SBATCH --cpus-per-task=64
# #SBATCH --time=24:00:00
# #SBATCH --requeue
# #SBATCH --output=%x-%j.log
#
# set -euo pipefail
# head_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
# export OMP_NUM_THREADS=8
# export TORCH_FR_BUFFER_SIZE=2000
# export TORCH_NCCL_DUMP_ON_TIMEOUT=1
# export CHECKPOINT="$SLURM_SUBMIT_DIR/checkpoint.pt"
#
# srun --label --cpus-per-task="$SLURM_CPUS_PER_TASK" torchrun \
#   --nnodes="$SLURM_NNODES" \
#   --nproc-per-node=8 \
#   --rdzv-backend=c10d \
#   --rdzv-endpoint="$head_node:29500" \
#   --rdzv-id="$SLURM_JOB_ID" \
#   --max-restarts=3 \
#   train.py
# ```
#
# - `--ntasks-per-node=1`: one *agent* a node. With 8 and torchrun you would start 64 processes on 8 GPUs.
# - `--cpus-per-task`: data loaders need cores; 8 for each GPU are usual. From Slurm 22.05 on `srun` does not
#   inherit the value, so it is given again; otherwise the agent and its 8 ranks may get a single core.
#   `OMP_NUM_THREADS` keeps 8 ranks from starting 8 × 64 threads.
# - `--requeue`: after a node failure Slurm puts the job back into the queue, and the program resumes from its
#   checkpoint. So the checkpoint must be on a disk that all nodes share.
# - `scontrol show hostnames` expands `node[01-02]`; the agents meet on the first of these nodes. The port
#   must be free and open between the nodes.
# - `--rdzv-id`: it keeps two jobs on the same nodes apart.
# - `srun --label` puts the number of the node in front of each line of output.

# %% [markdown]
# ## 6. Kubernetes, line by line
#
# ```yaml
# apiVersion: v1
# kind: Service
# metadata:
#   name: train
# spec:
#   clusterIP: None
#   selector:
#     job-name: train
# ---
# apiVersion: batch/v1
# kind: Job
# metadata:
#   name: train
# spec:
#   completions: 2
#   parallelism: 2
#   completionMode: Indexed
#   backoffLimit: 10
#   template:
#     spec:
#       subdomain: train
#       restartPolicy: OnFailure
#       containers:
#         - name: agent
#           image: registry.example/train:2024-11
#           command:
#             - torchrun
#             - --nnodes=2
#             - --nproc-per-node=8
#             - --rdzv-backend=c10d
#             - --rdzv-endpoint=train-0.train:29500
#             - --rdzv-id=train
#             - --max-restarts=3
#             - train.py
#           resources:
#             limits:
#               nvidia.com/gpu: 8
#           volumeMounts:
#             - name: shared-memory
#               mountPath: /dev/shm
#       volumes:
#         - name: shared-memory
#           emptyDir:
#             medium: Memory
# ```
#
# - The **Service** without a cluster IP gives each pod a name: `train-0.train`, where the agents meet.
# - `completionMode: Indexed` numbers the pods, and a pod that fails is started again under its own number.
# - `/dev/shm` in memory: a container has 64 MB of shared memory by default, and NCCL and data loaders need
#   more. Without it a process ends with a bus error, which does not name the cause.
# - `nvidia.com/gpu: 8`: the whole node. Pods that share nodes share links, too.
# - You also need two things that are not in this file: a volume for checkpoints that all pods share; and, for
#   InfiniBand, the device plugin of your cluster. Without it traffic goes over TCP, with no warning.
#
# [Ray](https://docs.ray.io) and operators such as Kubeflow's trainer do this set-up for you. Behind them are
# settings like these.

# %% [markdown]
# ## 7. A profile with three mistakes in it
#
# This step is slower than it should be. `torch.profiler` shows where the time goes, operation by operation,
# and `schedule(wait, warmup, active)` leaves out the first steps, which are not typical. The step contains
# three frequent mistakes.

# %%
os.environ["KINETO_LOG_LEVEL"] = "99"  # the profiler says when it starts and stops

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

torch.set_num_threads(1)  # so that other programs matter less
torch.manual_seed(0)
layers = nn.Sequential(*[nn.Linear(256, 256) for _ in range(8)])
optimizer = torch.optim.SGD(layers.parameters(), lr=1e-3)
text = torch.randn(256, 256)


def slow_step():
    rows = torch.stack([torch.tensor(row.tolist()) for row in text])  # 1
    mask = torch.ones(256, 256).tril().double().softmax(-1).float()  # 2
    for row in range(0, 256, 4):  # 3
        loss = (
            layers(mask @ rows)[row : row + 4].square().mean()
            if row == 0
            else layers(rows[row : row + 4]).square().mean()
        )
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()


# %% [markdown]
# **Question.** Read the step. Which of the three lines costs most?

# %%
costs_most = None  # your prediction: 1, 2 or 3


# %%
def profiled(step, name):
    """Profile two steps, after one that does not count; write a trace for ui.perfetto.dev."""
    with profile(
        activities=[ProfilerActivity.CPU], schedule=schedule(wait=0, warmup=1, active=2), acc_events=True
    ) as found:
        for _ in range(3):
            step()
            found.step()
    found.export_chrome_trace(str(folder / f"{name}.json"))
    return found.key_averages()


averages = profiled(slow_step, "slow")
print(
    averages.table(sort_by="self_cpu_time_total", row_limit=7, max_name_column_width=32).partition(
        "Self CPU time"
    )[0]
)

# %% [markdown]
# How to read it:
#
# - **Look at # of Calls first.** `addmm` was called 1,024 times in the two steps, but 8 layers need only
#   eight calls a step. Each small operation has a fixed cost, on a GPU a kernel launch of some µs. Mistake 3
#   processes four rows at a time, where the whole batch would be one product.
# - **Look for operations that do not belong in a step**, also below these seven rows: `aten::tril`,
#   `_softmax`, `_to_copy` of a tensor that never changes. Mistake 2 makes it again in every step; make it
#   once.
# - **Look for time that does not appear**: the time between operations, in which Python works. Mistake 1 is
#   `tolist` and back; on a GPU it would also wait for the device. In
#   [ui.perfetto.dev](https://ui.perfetto.dev) that time shows as gaps in the trace.

# %%
mask = torch.ones(256, 256).tril().softmax(-1)


def without_conversion():
    step_with(text, torch.ones(256, 256).tril().double().softmax(-1).float(), 4)


def without_mask():
    step_with(text, mask, 4)


def quick_step():
    step_with(text, mask, 256)


def step_with(rows, mask, size):
    for row in range(0, 256, size):
        inputs = mask @ rows if row == 0 else rows[row : row + size]
        layers(inputs)[:size].square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def milliseconds(steps):
    """The quickest of seven runs of each step, in turns, so that other load on the machine slows all alike."""
    times = {name: [] for name in steps}
    for _ in range(7):
        for name, step in steps.items():
            begun = time.perf_counter()
            step()
            times[name].append(1000 * (time.perf_counter() - begun))
    return {name: min(each) for name, each in times.items()}


measured = milliseconds(
    {
        "as it was": slow_step,
        "1 fixed": without_conversion,
        "1 and 2 fixed": without_mask,
        "all fixed": quick_step,
    }
)
compare(measured, None, None, "ms", "A step, with one mistake after another fixed")

# %%
times = list(measured.values())
saved = {number: before - after for number, before, after in zip((1, 2, 3), times, times[1:], strict=False)}
largest = max(saved, key=saved.get)
print(
    f"{predicted(costs_most, about='mistake that costs most', was=largest)}mistake {largest} cost most: {saved[largest]:.0f} ms"
)

# %% [markdown]
# Profile a single rank first, then compare ranks: the slowest one sets the pace, and the others spend that
# time in a collective. In the notebook `trace.to_chrome("trace.json")` writes all ranks' communication into
# one file for Perfetto.
#
# **Memory** has a recorder as well. Use it on a GPU, around a step that runs out of memory:
#
# ```python
# torch.cuda.memory._record_memory_history(max_entries=100_000)
# train_step()
# torch.cuda.memory._dump_snapshot("snapshot.pickle")   # open it at pytorch.org/memory_viz
# torch.cuda.memory._record_memory_history(enabled=None)
# ```
#
# The page shows each allocation as a band over time, with the stack of the line that made it. Weights and
# optimizer state are bands that never end; activations are a mountain that backward takes down again, as in
# the saw of lecture 05. Memory that climbs from step to step is a leak. The usual cause is a list that keeps
# `loss` instead of `loss.item()`: each loss holds its whole graph.

# %%
if torch.cuda.is_available():
    torch.cuda.memory._record_memory_history(max_entries=100_000)
    keep = [nn.Linear(512, 512, device="cuda")(torch.randn(64, 512, device="cuda")).mean() for _ in range(3)]
    torch.cuda.memory._dump_snapshot(str(folder / "snapshot.pickle"))
    torch.cuda.memory._record_memory_history(enabled=None)
    print(f"{(folder / 'snapshot.pickle').stat().st_size / 2**10:.0f} KiB for pytorch.org/memory_viz")
else:
    print("No GPU here: the snapshot is one of the GPU's memory.")

# %% [markdown]
# ## 8. The first hour on a rented 4×H100
#
# A rented machine costs money by the minute, and not every one is as advertised. Proceed in this order:
#
# 1. **Look** (5 minutes). `nvidia-smi`: are there four GPUs, no other processes, no errors? `nvidia-smi topo
#    -m`: is there NV18 between all pairs, or only PCIe? Which driver?
# 2. **Is it fit?** `fourranks doctor` checks GPUs, links, NCCL, shared memory, open files and bandwidth, and
#    says what to do about each problem. The cell below runs it here.
# 3. **Measure** (10 minutes). Run `make gpu` in this repository, or `all_reduce_perf -b 8 -e 1G -f 2 -g 4` of
#    nccl-tests: busbw should be about 80 % of 450 GB/s for large sizes. Half of that means a slow link; a
#    tenth means no NVLink.
# 4. **One GPU** (15 minutes). Run your program on one GPU for 50 steps. Does the loss fall? Note the tokens
#    per second, and the MFU (lecture 01): 6·P·tokens a second divided by 989 TFLOP/s.
# 5. **Four GPUs** (10 minutes). With the same global batch the losses must agree to three digits. Then
#    compare the speed: if it is below three times that of one GPU, profile.
# 6. **Fail on purpose** (5 minutes). Kill a process. Does the job resume, at the right step? Is the
#    checkpoint on a disk that outlives the machine?
# 7. **Only then start the long run.** Log loss, gradient norm, tokens per second and the slowest rank, to
#    Weights & Biases, TensorBoard or a file, and set up an alert for when the job stops.

# %%
# !{sys.executable!r} -m fourranks doctor --quick

# %% [markdown]
# ## How good were your predictions?

# %%
review()

# %% [markdown]
# ## We saw
#
# - **A cell became a program** that gets its rank from the launcher and resumes from its checkpoint.
# - **Two agents, four processes**: GROUP_RANK, LOCAL_RANK and RANK from the run. One process died, and all
#   were started again. A node died, and the rest continued, with the losses of an undisturbed run.
# - **Hangs** are found by sequence numbers: the rank that is behind is the one to look at.
# - **Launch files** have a handful of lines that matter: agents per node, the rendezvous, restarts, cores and
#   shared memory.
# - **A profile** is read by the number of calls, by operations that do not belong in a step, and by the gaps.
#
# ## Where to go next
#
# You have seen five pillars: collectives, the hardware under them, PyTorch's machinery, the kinds of
# parallelism, and performance. The [concept map](../../docs/concept_map.md) shows how they are related.
#
# - Do [CS336's assignment 2](https://github.com/stanford-cs336/assignment2-systems): gradient
#   synchronization, sharding and benchmarking for a transformer. Like this course, it assumes that you know
#   neural networks and PyTorch.
# - Read [torchtitan](https://github.com/pytorch/torchtitan) and
#   [Megatron-LM](https://github.com/NVIDIA/Megatron-LM): you know what each setting does. [Stas Bekman's ML
#   engineering](https://github.com/stas00/ml-engineering) describes what happens in practice.
# - Papers: [Megatron-LM](https://arxiv.org/abs/1909.08053), [ZeRO](https://arxiv.org/abs/1910.02054) and the DeepSpeed blog, [mixed precision](https://arxiv.org/abs/1710.03740) (Micikevicius and others), PipeDream (SOSP '19), [Alpa](https://arxiv.org/abs/2201.12023), [Megatron-Turing NLG 530B](https://arxiv.org/abs/2201.11990), [Llama 3](https://arxiv.org/abs/2407.21783) (section 3: what fails on 16,384 GPUs).
# - Lectures: Stanford CS336; CS229S, lectures 8 and 10; CS224N, lecture 12; CS149 and CS244B; [Levanter](https://github.com/stanford-crfm/levanter) for JAX.
#
# **Sources and further reading.** PyTorch, [documentation of torchrun](https://docs.pytorch.org/docs/stable/elastic/run.html) and of [distributed checkpoints](https://docs.pytorch.org/docs/stable/distributed.checkpoint.html) · [Flight Recorder](https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html) · Slurm,
# [sbatch](https://slurm.schedmd.com/sbatch.html) · Kubernetes, [Indexed Jobs](https://kubernetes.io/docs/tasks/job/indexed-parallel-processing-static/) · Umar Jamil, [pytorch-transformer-distributed](https://github.com/hkproj/pytorch-transformer-distributed) · Young, *A first order approximation to the optimum checkpoint interval*, CACM 1974 · [CS336 lecture
# 8](https://github.com/stanford-cs336/spring2025-lectures)

# %%
for program in ("train.py", "hang.py"):
    Path(program).unlink(missing_ok=True)

# %ranks stop
