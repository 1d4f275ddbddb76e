"""Libraries that hold the answers of this exercise, and that it therefore forbids."""

BANNED = ("torch.distributed.pipelining",)
