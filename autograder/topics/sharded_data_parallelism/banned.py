"""Libraries that hold the answers of this exercise, and that it therefore forbids."""

BANNED = ("torch.distributed.fsdp", "torch.distributed.optim", "torch.nn.parallel")
