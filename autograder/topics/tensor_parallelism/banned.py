"""Libraries that hold the answers of this exercise, and that it therefore forbids."""

BANNED = ("torch.distributed.tensor", "torch.distributed.nn", "torch.distributed._functional_collectives")
