"""Trains, and collects a histogram of activations over all ranks while the next steps run."""

import resource

import torch
import torch.distributed as dist

WIDTH, BATCH, STEPS, LOG_EVERY, BINS = 64, 64, 80, 20, 1 << 16

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()


def memory_mib() -> float:
    """Return what this process has in memory now."""
    with open("/proc/self/statm") as fields:
        return int(fields.read().split()[1]) * resource.getpagesize() / 2**20


torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(WIDTH, WIDTH),
    torch.nn.Tanh(),
    torch.nn.Linear(WIDTH, WIDTH),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
generator = torch.Generator().manual_seed(rank)
at_first = memory_mib()
histograms: list[tuple[dist.Work, torch.Tensor]] = []

for step in range(STEPS):
    batch = torch.randn(BATCH, WIDTH, generator=generator)
    optimizer.zero_grad()
    output = model(batch)
    torch.nn.functional.mse_loss(output, batch.roll(1, dims=1)).backward()
    for weight in model.parameters():
        dist.all_reduce(weight.grad, op=dist.ReduceOp.AVG)
    optimizer.step()

    counts = torch.histc(output.detach(), BINS)
    histograms.append((dist.all_reduce(counts, async_op=True), counts))
    if step % LOG_EVERY == LOG_EVERY - 1 and rank == 0:
        for work, _ in histograms:
            work.wait()
        largest = max(counts.max().item() for _, counts in histograms)
        print(f"step {step}: fullest bin {largest:.0f}")
        histograms.clear()

more = torch.zeros(world_size)
more[rank] = memory_mib() - at_first
dist.all_reduce(more)
if rank == 0:
    print(f"after {STEPS} steps the ranks use up to {more.max().item():.0f} MiB more than at first")
