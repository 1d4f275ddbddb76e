"""A training script for torchrun, as people write them: prints on rank 0 the seconds of its median step."""

import statistics
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

WIDTH, LAYERS, BATCH, WARM_UP, STEPS = 384, 4, 64, 10, 150


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    layers = [module for _ in range(LAYERS) for module in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.AdamW(model.parameters())
    seconds = []
    for _ in range(WARM_UP + STEPS):
        inputs = torch.randn(BATCH, WIDTH)
        began = time.perf_counter()
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
        seconds.append(time.perf_counter() - began)
    if dist.get_rank() == 0:
        print("step", statistics.median(seconds[WARM_UP:]))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
