"""Trains with a validation every few steps. A rank may take 96 MiB for it."""

import torch
import torch.distributed as dist

from fourranks.incidents.container import at_most

WIDTH, BATCH, STEPS, VALIDATE_EVERY = 256, 1024, 60, 2

dist.init_process_group("gloo")
rank = dist.get_rank()

torch.manual_seed(0)
layers = [layer for _ in range(4) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU())]
model = torch.nn.Sequential(*layers)
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
generator = torch.Generator().manual_seed(rank)
held_out = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(77))
curve: list[torch.Tensor] = []


def loss_of(samples: torch.Tensor) -> torch.Tensor:
    """Return how badly the model turns samples round."""
    return torch.nn.functional.mse_loss(model(samples), samples.flip(1))


def train_step() -> None:
    """Do one step on fresh samples."""
    optimizer.zero_grad()
    loss_of(torch.randn(BATCH, WIDTH, generator=generator)).backward()
    for weight in model.parameters():
        dist.all_reduce(weight.grad, op=dist.ReduceOp.AVG)
    optimizer.step()


train_step()  # threads and their buffers are there from now on, and count no more
with at_most(mebibytes=96):
    for step in range(STEPS):
        train_step()
        if step % VALIDATE_EVERY == 0 and rank == 0:
            curve.append(loss_of(held_out))
            print(f"step {step}: validation loss {curve[-1].item():.4f}")
        dist.barrier()  # validation is over
