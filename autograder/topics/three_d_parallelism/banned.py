"""Libraries that hold the answers of this exercise, and that it therefore forbids."""

BANNED = (
    "torch.distributed.device_mesh",
    "torch.distributed.tensor",
    "torch.distributed.nn",
    "torch.distributed._functional_collectives",
    "torch.distributed.pipelining",
    "torch.distributed.fsdp",
    "torch.nn.parallel",
    "torch.utils.checkpoint.checkpoint",
    "fourranks.plan",
    "fourranks.learner.on_mesh",
)
