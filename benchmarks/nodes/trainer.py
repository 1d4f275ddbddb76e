"""The actor that peers have on each rank: it joins a process group, and runs code that it is sent."""

from __future__ import annotations

import os
from typing import Any


class Trainer:
    """One rank."""

    def __init__(self) -> None:
        self._variables: dict[str, Any] = {}

    def form(self, port: int, rank: int, world_size: int) -> float:
        """Join the process group; returns what an all-reduce of ones gives."""
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # all nodes are on this machine
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=world_size)
        x = torch.ones(1)
        dist.all_reduce(x)
        return x.item()

    def run(self, code: str) -> None:
        """Run what a cell has."""
        exec(code, self._variables)
