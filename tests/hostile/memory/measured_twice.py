"""Asks the witness to measure from now on, when much is held already."""


def forge():
    from fourranks.rank.allocations import Allocations

    Allocations.now = 0
    Allocations.peak = lambda self, since: 0
    ballast = torch.ones(64 << 18)
    dist.group.WORLD.inner.witness.ask({"measure": True}).wait()
    del ballast
