# ruff: noqa: F821
FAILS_AS = {
    "SkipsWhatIsMasked": ("UNEVEN_RING", "masked"),
    "SendsFirst": ("UNEVEN_RING", "a blocking send waits"),
    "ReceivesWithoutHistory": ("ATTENTION_CUT", "no history"),
    "gathers_heads": ("NO_OUTPUT", "shape and dtype of q"),
    "OwnBlock": ("OWN_BLOCK_ONLY", "earlier ranks"),
    "MasksEachBlockAlike": ("WRONG_ATTENTION", "two ranks"),
    "TakesTheOthersWay": ("WRONG_ATTENTION", "two ranks"),
    "LooksOneAhead": ("WRONG_ATTENTION", "Without the mask it is right"),
    "LooksAheadInItsOwnBlockToo": ("WRONG_ATTENTION", "Without the mask it is right"),
    "HidesTheQuerysOwnKey": ("ATTENTION_NOT_FINITE", "all keys up to its own"),
    "ForgetsTheMask": ("MASK_OF_THE_BLOCK", "all keys of earlier blocks"),
    "AveragesBlocks": ("BLOCKS_AVERAGED", "rescale"),
    "NeverRescales": ("WRONG_ATTENTION", "two ranks"),
    "DoesNotScale": ("WRONG_ATTENTION", "root of a head's width"),
    "ScalesByHalfTheWidth": ("WRONG_ATTENTION", "root of a head's width"),
    "ComputesInFloat32": ("ROUNDED_ATTENTION", "in their dtype"),
    "SubtractsNoMaximum": ("ATTENTION_NOT_FINITE", "Subtract the largest score"),
    "KeepsTheFirstMaximum": ("ATTENTION_NOT_FINITE", "when a block brings a larger one"),
    "receives_into_k_and_v": ("MODIFIED", "belongs to the caller"),
    "GradientStaysWhereItIs": ("WRONG_RING_GRADIENT", "on the way back"),
    "KeepsItsFirstMask": ("FROM_AN_EARLIER_CALL", "filled again"),
    "GathersAll": ("WHOLE_SEQUENCE_HELD or RING_COLLECTIVE", ""),
    "SendsBackwards": ("RING_COLLECTIVE", "next"),
    "SendsTheQueriesToo": ("RING_BYTES", "N − 1 times"),
}


class SkipsWhatIsMasked(Ring):
    """Right in forward; in backward the first ranks pass fewer gradients on."""

    def used(self, owner):
        return not self.causal or owner <= self.rank


class SendsFirst(Ring):
    def passed(self, block, turn):
        if turn:
            arriving = torch.empty_like(block)
            dist.send(block.detach(), group=self.group, group_dst=(self.rank + 1) % self.size)
            dist.recv(arriving, group=self.group, group_src=(self.rank - 1) % self.size)
        return block


class ReceivesWithoutHistory(Ring):
    def passed(self, block, turn):
        return passed_on(block.detach(), self.group, 1) if turn else block.detach()


def gathers_heads(q, k, v, group, causal=True):
    return Ring(q, k, v, group, causal).transpose(1, 2).flatten(2)


class OwnBlock(Ring):
    def attend(self, block):
        scores = self.masked(self.scores(block[0]), self.rank)
        return scores.softmax(-1) @ block[1]


class MasksEachBlockAlike(Ring):
    def masked(self, scores, owner):
        return super().masked(scores, self.rank)


class TakesTheOthersWay(Ring):
    """The block after n turns is taken for that of rank r + n."""

    def masked(self, scores, owner):
        return super().masked(scores, (2 * self.rank - owner) % self.size)


class LooksOneAhead(Ring):
    """Across ranks; in a block of its own each query sees what it should."""

    def masked(self, scores, owner):
        if owner != self.rank + 1 or not self.causal:
            return super().masked(scores, owner)
        return torch.cat((scores[..., :1], torch.full_like(scores[..., 1:], -torch.inf)), -1)


class LooksAheadInItsOwnBlockToo(Ring):
    ahead = 1

    def masked(self, scores, owner):
        own, places = self.rank * scores.shape[-2], torch.arange(scores.shape[-1])
        unseen = owner * scores.shape[-1] + places > own + places[:, None] + self.ahead
        return scores.masked_fill(unseen, -torch.inf) if self.causal else scores


class HidesTheQuerysOwnKey(LooksAheadInItsOwnBlockToo):
    ahead = -1


class ForgetsTheMask(Ring):
    def masked(self, scores, owner):
        return scores


class AveragesBlocks(Ring):
    def attend(self, block):
        total = torch.zeros_like(self.q)
        for turn in range(self.size):
            block = self.passed(block, turn)
            total = (
                total
                + self.masked(self.scores(block[0]), (self.rank - turn) % self.size).softmax(-1) @ block[1]
            )
        return total / self.size


class NeverRescales(Ring):
    def rescale(self, largest, new):
        return torch.where(largest.isinf(), 0.0, 1.0)


class DoesNotScale(Ring):
    def scores(self, k):
        return self.q @ k.transpose(-1, -2)


class ScalesByHalfTheWidth(Ring):
    def scores(self, k):
        return self.q @ k.transpose(-1, -2) / (self.q.shape[-1] * 0.5)


class ComputesInFloat32(Ring):
    def __new__(cls, q, k, v, group, causal=True):
        return super().__new__(cls, q.float(), k.float(), v.float(), group, causal).double()


class SubtractsNoMaximum(Ring):
    def largest(self, largest, scores):
        return torch.zeros_like(largest)


class KeepsTheFirstMaximum(Ring):
    def largest(self, largest, scores):
        return super().largest(largest, scores) if largest.isinf().all() else largest


def receives_into_k_and_v(q, k, v, group, causal=True):
    attended = Ring(q, k.clone(), v.clone(), group, causal)
    if dist.get_world_size(group) > 1:  # what stays in the buffers is another rank's block
        k.data, v.data = k.detach().flip(2), v.detach().flip(2)
    return attended


class Stays(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group):
        return passed_on(tensor, group, 1)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class GradientStaysWhereItIs(Ring):
    def passed(self, block, turn):
        return Stays.apply(block, self.group) if turn else block


class GatherBlocks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group = group
        parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, tensor, group=group)
        return torch.cat(parts, -2)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient.chunk(dist.get_world_size(ctx.group), -2)[dist.get_rank(ctx.group)], None


class KeepsItsFirstMask(Ring):
    masks = {}

    def masked(self, scores, owner):
        if owner not in self.masks:
            self.masks[owner] = super().masked(torch.zeros_like(scores), owner)
        return scores + self.masks[owner]


class GathersAll(Ring):
    def attend(self, block):
        k, v = GatherBlocks.apply(block, self.group)
        places = torch.arange(k.shape[-2])
        own = self.rank * self.q.shape[2] + torch.arange(self.q.shape[2])
        scores = self.scores(k)
        if self.causal:
            scores = scores.masked_fill(places > own[:, None], -torch.inf)
        return scores.softmax(-1) @ v


class Back(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group = group
        return passed_on(tensor, group, -1)

    @staticmethod
    def backward(ctx, gradient):
        return passed_on(gradient, ctx.group, 1), None


class SendsBackwards(Ring):
    def passed(self, block, turn):
        return Back.apply(block, self.group) if turn else block

    def masked(self, scores, owner):
        return super().masked(scores, (2 * self.rank - owner) % self.size)


class SendsTheQueriesToo(Ring):
    def passed(self, block, turn):
        if turn:
            passed_on(self.q.detach(), self.group, 1)
        return super().passed(block, turn)
