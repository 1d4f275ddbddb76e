# ruff: noqa: F821
FAILS_AS = {
    "ReturnsATuple": ("NO_WORK", "Work(rows, microbatch, recompute)"),
    "CountsInFloats": ("NO_WORK", "how many sequences"),
    "TakesAHugeMicrobatch": ("OUT_OF_MEMORY", "cluster.fits"),
    "ForgetsToReturn": ("NO_WEIGHTS", "new weights"),
    "DividesByNothing": ("DIVERGED", "divided by zero"),
    "SendsMessages": ("POINT_TO_POINT", "group of two ranks"),
    "NeverWaits": ("UNWAITED", "wait()"),
    "NeverExchanges": ("NOT_LEARNED or RANKS_APART", ""),
    "TrainsFourModels": ("MODELS_APART", "one model"),
    "HidesFourModels": ("MODELS_APART", "one model"),
    "TrainsOneRank": ("RANKS_APART", "All ranks"),
    "ReturnsAConstant": ("NOT_LEARNED", "learning rate"),
    "SharesEqually": ("TOO_DEAR_COMPUTING", "straggler"),
    "LeavesTheWorkToOneRank": ("TOO_DEAR_COMPUTING", "without rows"),
    "CrossesEveryLink": ("TOO_DEAR_COMMUNICATING", "slowest link"),
}


class ReturnsATuple(Frugal):
    def work(self):
        return 10, 4


class CountsInFloats(Frugal):
    def work(self):
        return Work(10.0, 4)


class TakesAHugeMicrobatch(Frugal):
    def work(self):
        return Work(200, 200)


class ForgetsToReturn(Frugal):
    def step(self, weights, gradient):
        super().step(weights, gradient)


class DividesByNothing(Frugal):
    def averaged(self, gradient):
        return super().averaged(gradient) / 0


class SendsMessages(Frugal):
    def averaged(self, gradient):
        left, right = (self.rank - 1) % 4, (self.rank + 1) % 4
        arriving = torch.empty_like(gradient)
        pair = [dist.P2POp(dist.isend, gradient, right), dist.P2POp(dist.irecv, arriving, left)]
        for work in dist.batch_isend_irecv(pair):
            work.wait()
        return super().averaged(gradient)


class NeverWaits(Frugal):
    def averaged(self, gradient):
        dist.all_reduce(gradient.clone(), async_op=True)
        return super().averaged(gradient)


class NeverExchanges(Frugal):
    RATE = 1e-4

    def averaged(self, gradient):
        return gradient


class TrainsFourModels(Frugal):
    def work(self):
        return Work(8, 4)

    def averaged(self, gradient):
        return gradient


class HidesFourModels(TrainsFourModels):
    """Has almost all of the norm in a hidden unit that nothing reads, and that is the same on all ranks."""

    UP = 3 * 12 * 24 + 2 * 24 + 4 * 24 * 24  # in front of it are embeddings, norms and attention
    DOWN = UP + 96 * 24
    INTO, OUT_OF = slice(UP, UP + 24), slice(DOWN, DOWN + 96 * 24, 96)

    def averaged(self, gradient):
        gradient = gradient.clone()
        gradient[self.INTO] = gradient[self.OUT_OF] = 0
        return gradient

    def step(self, weights, gradient):
        if self.adam is None:
            weights[self.INTO], weights[self.OUT_OF] = 10_000, 0
        return super().step(weights, gradient)


class TrainsOneRank(Frugal):
    def work(self):
        return Work(24 if self.rank == 0 else 0, 4)

    def averaged(self, gradient):
        return gradient


class ReturnsAConstant(Frugal):
    def step(self, weights, gradient):
        return torch.zeros_like(weights)


class SharesEqually(Frugal):
    def __init__(self, cluster):
        super().__init__(cluster)
        self.rows = [30] * 4

    def work(self):
        return Work(30, 1)


class LeavesTheWorkToOneRank(Frugal):
    def __init__(self, cluster):
        super().__init__(cluster)
        fastest = cluster.flops.index(max(cluster.flops))
        self.rows = [16 * (rank == fastest) for rank in range(4)]

    def work(self):
        return Work(self.rows[self.rank], 4)


class CrossesEveryLink(Frugal):
    def averaged(self, gradient):
        part = gradient * self.rows[self.rank] / sum(self.rows)
        dist.all_reduce(part)
        return part
