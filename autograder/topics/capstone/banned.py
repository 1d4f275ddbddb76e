"""Libraries that the capstone forbids: those that communicate in a student's place."""

from __future__ import annotations

BANNED = (
    "torch.distributed.nn",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "torch.nn.parallel",
)
