# ruff: noqa: F821
FAILS_AS = {
    "gathers_all_logits": ("BYTES_IN_FORWARD", "whole tensors sent"),
    "without_a_maximum": ("CROSS_ENTROPY_NOT_FINITE", "Only large logits"),
    "with_its_own_maximum": ("WRONG_CROSS_ENTROPY or CROSS_ENTROPY_NOT_FINITE", "target"),
    "over_its_own_words": ("OWN_LOGITS_ONLY", "sum the exponentials"),
    "every_rank_adds_a_logit": ("WRONG_CROSS_ENTROPY or CROSS_ENTROPY_NOT_FINITE", "target"),
    "counts_padding": ("PADDING_COUNTED", "-100"),
    "adds_losses_up": ("LOSSES_ADDED_UP", "the mean over the tokens"),
    "one_loss_a_token": ("ANOTHER_SHAPE_OF_A_PART", "Compare with the table"),
    "forgets_a_derivative": ("WRONG_GRADIENT_OF_LOGITS", "The gradient is the softmax"),
    "sums_gradients_over_ranks": ("GRADIENT_OF_EVERY_RANK_ADDED", "one loss, not N"),
    "ignores_its_gradient": ("GRADIENT_NOT_SCALED", "use the gradient that backward gets"),
    "divides_its_gradient_in_float32": ("WRONG_GRADIENT_OF_LOGITS", "something is rounded"),
    "rescales_by_its_own_maximum": ("CROSS_ENTROPY_NOT_FINITE", "Only a shard of -inf"),
    "counts_words_of_the_world": ("WRONG_CROSS_ENTROPY or CROSS_ENTROPY_NOT_FINITE", "Only a group"),
    "sums_a_fourth_time": ("COLLECTIVES_IN_FORWARD", "gather nothing in between"),
    "computes_in_float64": ("ANOTHER_SHAPE_OF_A_PART", "keeps the dtype of its input"),
    "shifts_the_target": ("MODIFIED", "belongs to the caller"),
    "computes_in_float32": ("WRONG_CROSS_ENTROPY", "something is rounded"),
    "takes_the_mean_over_its_own_words": ("WRONG_CROSS_ENTROPY", "the same on all ranks"),
    "goes_back_through_the_maximum": ("WRONG_GRADIENT_OF_LOGITS", "detach()"),
    "has_no_history": ("CUT_GRAPH", "torch.autograd.Function"),
}


class Loss:
    """A right vocab_parallel_cross_entropy whose parts can be replaced one by one."""

    def __call__(self, logits, target, group=None):
        self.group, self.size = group, logits.shape[-1]
        largest = self.maximum(logits.detach())
        shifted = logits - largest.unsqueeze(-1)
        total = self.total(shifted.exp().sum(-1))
        return self.mean(total.log() - self.of_target(shifted, target), target)

    def maximum(self, logits):
        largest = logits.amax(-1)
        dist.all_reduce(largest, dist.ReduceOp.MAX, self.group)
        return largest

    def total(self, own):
        return self.reduce(own)

    def reduce(self, own):
        return reduce(own, group=self.group)

    def rank(self):
        return dist.get_rank(self.group)

    def of_target(self, shifted, target):
        place = target - self.rank() * self.size
        is_here = (place >= 0) & (place < self.size)
        found = shifted.gather(-1, place.where(is_here, 0).unsqueeze(-1)).squeeze(-1)
        return self.reduce(self.own(found, is_here))

    def own(self, found, is_here):
        return torch.where(is_here, found, 0)

    def mean(self, losses, target):
        return losses[target != -100].mean()


def gathers_all_logits(logits, target, group=None):
    logits = gather(logits, -1, group=group)
    return F.cross_entropy(logits.flatten(0, -2), target.flatten())


class _WithoutMaximum(Loss):
    def maximum(self, logits):
        return torch.zeros_like(logits[..., 0])


def without_a_maximum(logits, target, group=None):
    return _WithoutMaximum()(logits, target, group)


class _OwnMaximum(Loss):
    def maximum(self, logits):
        return logits.amax(-1)


def with_its_own_maximum(logits, target, group=None):
    return _OwnMaximum()(logits, target, group)


class _OwnWords(Loss):
    def total(self, own):
        return own


def over_its_own_words(logits, target, group=None):
    return _OwnWords()(logits, target, group)


class _EveryRankAdds(Loss):
    def own(self, found, is_here):
        return found


def every_rank_adds_a_logit(logits, target, group=None):
    return _EveryRankAdds()(logits, target, group)


class _CountsPadding(Loss):
    def mean(self, losses, target):
        return losses[target != -100].sum() / target.numel()


def counts_padding(logits, target, group=None):
    return _CountsPadding()(logits, target, group)


class _AddsUp(Loss):
    def mean(self, losses, target):
        return losses[target != -100].sum()


def adds_losses_up(logits, target, group=None):
    return _AddsUp()(logits, target, group)


class _OneAToken(Loss):
    def mean(self, losses, target):
        return losses


def one_loss_a_token(logits, target, group=None):
    return _OneAToken()(logits, target, group)


class _InFloat32(Loss):
    def reduce(self, own):
        return super().reduce(own.float()).to(own.dtype)


def computes_in_float32(logits, target, group=None):
    return _InFloat32()(logits, target, group)


class _MeanOfOwnWords(Loss):
    def mean(self, losses, target):
        place = target - self.rank() * self.size
        return losses[(place >= 0) & (place < self.size)].mean()


def takes_the_mean_over_its_own_words(logits, target, group=None):
    return _MeanOfOwnWords()(logits, target, group)


class _ThroughTheMaximum(Loss):
    def __call__(self, logits, target, group=None):
        self.whole = logits
        return super().__call__(logits, target, group)

    def maximum(self, logits):
        return self.whole.amax(-1) - logits.amax(-1) + super().maximum(logits)


def goes_back_through_the_maximum(logits, target, group=None):
    return _ThroughTheMaximum()(logits, target, group)


class _ForgetsDerivative(Loss):
    def total(self, own):
        return super().total(own).detach()


def forgets_a_derivative(logits, target, group=None):
    return _ForgetsDerivative()(logits, target, group)


class _SumsGradients(Loss):
    def reduce(self, own):
        return made_of(summed, lambda g, group: g * dist.get_world_size(group))(own, group=self.group)


def sums_gradients_over_ranks(logits, target, group=None):
    return _SumsGradients()(logits, target, group)


class _OwnBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target, group):
        with torch.enable_grad():
            own = logits.detach().requires_grad_()
            loss = Loss()(own, target, group)
        (gradient,) = torch.autograd.grad(loss, own)
        ctx.save_for_backward(gradient)
        return loss.detach()

    @staticmethod
    def backward(ctx, gradient):
        return ctx.saved_tensors[0], None, None


def ignores_its_gradient(logits, target, group=None):
    return _OwnBackward.apply(logits, target, group)


class _DividesInFloat32(torch.autograd.Function):
    @staticmethod
    def forward(ctx, losses, counts):
        ctx.save_for_backward(counts)
        return losses[counts].mean()

    @staticmethod
    def backward(ctx, gradient):
        (counts,) = ctx.saved_tensors
        return counts / counts.sum() * gradient, None  # bool over int64 is float32


class _RoundedGradient(Loss):
    def mean(self, losses, target):
        return _DividesInFloat32.apply(losses, target != -100)


def divides_its_gradient_in_float32(logits, target, group=None):
    return _RoundedGradient()(logits, target, group)


def rescales_by_its_own_maximum(logits, target, group=None):
    """exp(own - own maximum), summed, and put right afterwards."""
    own_largest = logits.detach().amax(-1)
    largest = own_largest.clone()
    dist.all_reduce(largest, dist.ReduceOp.MAX, group)
    own = (logits - own_largest.unsqueeze(-1)).exp().sum(-1) * (own_largest - largest).exp()
    loss = Loss()
    loss.group, loss.size = group, logits.shape[-1]
    of_target = loss.of_target(logits - largest.unsqueeze(-1), target)
    return loss.mean(reduce(own, group=group).log() - of_target, target)


class _WorldWords(Loss):
    def rank(self):
        return dist.get_rank()


def counts_words_of_the_world(logits, target, group=None):
    return _WorldWords()(logits, target, group)


class _FourthTime(Loss):
    def mean(self, losses, target):
        summed(losses.detach(), self.group)
        return super().mean(losses, target)


def sums_a_fourth_time(logits, target, group=None):
    return _FourthTime()(logits, target, group)


def has_no_history(logits, target, group=None):
    return Loss()(logits.detach(), target, group)


class _ShiftsTarget(Loss):
    def of_target(self, shifted, target):
        self.counts = target != -100
        target -= self.rank() * self.size
        is_here = (target >= 0) & (target < self.size)
        found = shifted.gather(-1, target.where(is_here, 0).unsqueeze(-1)).squeeze(-1)
        return self.reduce(self.own(found, is_here))

    def mean(self, losses, target):
        return losses[self.counts].mean()


def shifts_the_target(logits, target, group=None):
    return _ShiftsTarget()(logits, target, group)


def computes_in_float64(logits, target, group=None):
    return Loss()(logits.double(), target, group)
