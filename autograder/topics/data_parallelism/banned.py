"""Libraries that hold the answers of this exercise, and that it therefore forbids."""

BANNED = ("torch.nn.parallel", "torch.distributed.fsdp", "torch.distributed.algorithms")
