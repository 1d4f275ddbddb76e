"""Trains a gated MLP block under tensor parallelism: its hidden features are divided over the ranks."""

from typing import Any

import torch
import torch.distributed as dist

WIDTH, HIDDEN, BATCH, STEPS = 32, 128, 64, 40

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()


class Summed(torch.autograd.Function):
    """Sums over the ranks in the forward pass; the gradient is replicated already."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


class Shared(torch.autograd.Function):
    """Passes a replicated tensor on; its gradient is a partial sum on each rank, and is summed."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        total = gradient.clone()
        dist.all_reduce(total)
        return total


class GatedBlock(torch.nn.Module):
    """Has a replicated norm, and columns of two weights and rows of a third on each rank."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.gate = torch.nn.Linear(WIDTH, HIDDEN // world_size, bias=False)
        self.up = torch.nn.Linear(WIDTH, HIDDEN // world_size, bias=False)
        self.down = torch.nn.Linear(HIDDEN // world_size, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output, replicated, for a replicated input (batch, width)."""
        normed = self.norm(x)
        gate = torch.nn.functional.silu(self.gate(Shared.apply(normed)))
        hidden = gate * self.up(normed)
        return x + Summed.apply(self.down(hidden))


torch.manual_seed(rank)  # other columns and rows on each rank; the norm starts at ones and zeros everywhere
block = GatedBlock()
optimizer = torch.optim.AdamW(block.parameters(), lr=0.01)
generator = torch.Generator().manual_seed(9)
inputs = torch.randn(BATCH, WIDTH, generator=generator)
wanted = inputs.roll(1, dims=1).sin()

for step in range(STEPS):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(block(inputs), wanted)
    loss.backward()
    optimizer.step()
    if rank == 0 and step % 10 == 0:
        print(f"step {step}: loss {loss.item():.3f}")

mean = block.norm.weight.detach().clone()
dist.all_reduce(mean, op=dist.ReduceOp.AVG)
apart = (block.norm.weight - mean).abs().max().detach()
dist.all_reduce(apart, op=dist.ReduceOp.MAX)
if rank == 0:
    print(f"weights of the norm, which should be equal on all ranks, differ by up to {2 * apart.item():.3f}")
