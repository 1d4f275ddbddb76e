"""Trains a classifier of sensor readings. Each rank has the readings of one site."""

import torch
import torch.distributed as dist

BATCH, READINGS, CHANNELS, CLASSES = 32, 1312, 12, 4

dist.init_process_group("gloo")
rank = dist.get_rank()


def load_site(site: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a site's readings and their classes."""
    generator = torch.Generator().manual_seed(400 + site)
    readings = torch.rand(READINGS, CHANNELS, generator=generator)
    labels = (readings[:, :CLASSES] + 0.1 * torch.rand(READINGS, CLASSES, generator=generator)).argmax(1)
    broken = torch.rand(READINGS, generator=generator) < (0.004, 0.007, 0.085, 0.002)[site]
    readings[broken, 0] = float("nan")  # the sensor was not connected
    return readings, labels


def prepare(readings: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Leave out readings that are no numbers, and scale the others."""
    is_fine = readings.isfinite().all(dim=1)
    readings, labels = readings[is_fine], labels[is_fine]
    return (readings - 0.5) / 0.29, labels


torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(CHANNELS, 64),
    torch.nn.ReLU(),
    torch.nn.Linear(64, CLASSES),
)
for weight in model.parameters():
    dist.broadcast(weight.data, src=0)

optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
readings, labels = prepare(*load_site(rank))
num_steps = len(readings) // BATCH

for step in range(num_steps):
    batch = slice(step * BATCH, (step + 1) * BATCH)
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(readings[batch]), labels[batch])
    loss.backward()
    for weight in model.parameters():
        dist.all_reduce(weight.grad, op=dist.ReduceOp.AVG)
    optimizer.step()
    if rank == 0 and step % 4 == 0:
        print(f"step {step}: loss {loss.item():.3f}")

dist.barrier()
if rank == 0:
    print("done; the model is saved")
