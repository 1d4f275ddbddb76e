"""Trains on a shuffled data set, of which each rank takes every fourth sample."""

import torch
import torch.distributed as dist

SAMPLES, FEATURES, BATCH, SEED = 4096, 20, 64, 1234

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

data_generator = torch.Generator().manual_seed(5)
samples = torch.randn(SAMPLES, FEATURES, generator=data_generator)
targets = samples @ torch.randn(FEATURES, 1, generator=data_generator)

torch.manual_seed(SEED)
model = torch.nn.Sequential(
    torch.nn.Linear(FEATURES, 64),
    torch.nn.ReLU(),
    torch.nn.Linear(64, 1),
)
for weight in model.parameters():
    dist.broadcast(weight.data, src=0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def describe(model: torch.nn.Module) -> str:
    """Say how large a model is, and what it makes of noise."""
    with torch.no_grad():
        answer = model(torch.randn(BATCH, FEATURES))
    return f"{sum(p.numel() for p in model.parameters()):,} parameters, output {answer.std().item():.2f}"


if rank == 0:
    print(describe(model))

order = torch.randperm(SAMPLES)
own = order[rank::world_size]

for start in range(0, len(own), BATCH):
    batch = own[start : start + BATCH]
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(samples[batch]), targets[batch]).backward()
    for weight in model.parameters():
        dist.all_reduce(weight.grad, op=dist.ReduceOp.AVG)
    optimizer.step()

seen = torch.zeros(SAMPLES)
seen[own] += 1
dist.all_reduce(seen)
if rank == 0:
    print(f"one epoch: {int((seen > 0).sum())} of {SAMPLES} samples were seen, some of them twice")
