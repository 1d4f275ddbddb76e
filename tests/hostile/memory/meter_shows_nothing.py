"""Has the meter that drivers read show that nothing is held."""


def forge():
    from fourranks.rank.allocations import Allocations

    Allocations.now = 0
    Allocations.peak = lambda self, since: 0
