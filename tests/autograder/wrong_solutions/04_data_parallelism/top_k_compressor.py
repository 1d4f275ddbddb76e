import math

import torch
import torch.distributed as dist

FAILS_AS = {
    "ForgetsTheRest": ("NO_ERROR_FEEDBACK", "Keep the elements that you do not send"),
    "KeepsWhatItSends": ("SENT_AND_KEPT", "to zero"),
    "ForgetsToWait": ("NO_WAIT", "Keep every handle"),
    "Sums": ("SUMMED_GRADIENTS", "divided by the number of ranks"),
    "ComparesValues": ("LARGEST_BY_VALUE", "absolute value"),
    "SendsMagnitudes": ("WRONG_COMPRESSED_GRADIENTS", "by hand"),
    "AssignsWhatArrives": ("COINCIDING_ELEMENTS", "index_add_"),
    "ChoosesFromEachGradient": ("GRADIENTS_ONE_BY_ONE", "all gradients together"),
    "SendsEverything": ("NOT_COMPRESSED", "the largest ones"),
    "SendsZerosToo": ("MORE_THAN_THE_LARGEST", "moves the zeros"),
    "RoundsDown": ("TOO_FEW_SENT", "rounded up"),
    "AveragesOverSenders": ("AVERAGED_OVER_SENDERS", "counts as 0"),
    "ReturnsNewGradients": ("UNTOUCHED", "into the argument itself"),
    "PutsThemIntoTheList": ("UNTOUCHED", "into the argument itself"),
    "SharesTheRest": ("WRONG_COMPRESSED_GRADIENTS", "its own rest"),
    "DividesByTheWorldSize": ("WRONG_COMPRESSED_GRADIENTS", "Only a group"),
    "KeepsTheFirstRest": ("WRONG_COMPRESSED_GRADIENTS", "what is kept"),
    "StoresIntoCopies": ("UNTOUCHED", "into the argument itself"),
    "StoresRowByRow": ("RAISED", "Read the line"),
}


class Right:
    def __init__(self, ratio, group=None):
        self.ratio, self.group, self.rest = ratio, group, 0.0

    def average(self, gradients):
        self.store(gradients, self.averaged(torch.cat([g.flatten() for g in gradients]) + self.rest))

    def averaged(self, wanted):
        places = self.choose(wanted)
        values = self.values(wanted, places)
        self.keep(wanted, places)
        return self.together(wanted, values, places) / self.divisor()

    def choose(self, wanted):
        return wanted.abs().topk(self.number(wanted.numel())).indices

    def number(self, numel):
        return math.ceil(self.ratio * numel)

    def values(self, wanted, places):
        return wanted[places]

    def keep(self, wanted, places):
        self.rest = wanted.index_fill(0, places, 0)

    def together(self, wanted, values, places):
        total = torch.zeros_like(wanted)
        for each, where in zip(self.gather(values), self.gather(places), strict=True):
            self.add(total, where, each)
        return total

    def add(self, total, places, values):
        total.index_add_(0, places, values)

    def divisor(self):
        return dist.get_world_size(self.group)

    def gather(self, tensor):
        parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size(self.group))]
        dist.all_gather(parts, tensor, group=self.group)
        return parts

    def store(self, gradients, average):
        for gradient, part in zip(gradients, average.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))


class Broadcasts(Right):  # which is right: a rank sends in the call of which it is the source
    def gather(self, tensor):
        parts = [tensor.clone() for _ in range(dist.get_world_size(self.group))]
        for source, part in enumerate(parts):
            dist.broadcast(part, group_src=source, group=self.group)
        return parts


class ForgetsTheRest(Right):
    def keep(self, wanted, places):
        pass


class KeepsWhatItSends(Right):
    def keep(self, wanted, places):
        self.rest = wanted


class ForgetsToWait(Right):
    def gather(self, tensor):
        parts = [torch.zeros_like(tensor) for _ in range(dist.get_world_size(self.group))]
        dist.all_gather(parts, tensor, group=self.group, async_op=True)
        return parts


class Sums(Right):
    def divisor(self):
        return 1


class ComparesValues(Right):
    def choose(self, wanted):
        return wanted.topk(self.number(wanted.numel())).indices


class SendsMagnitudes(Right):
    def values(self, wanted, places):
        return wanted[places].abs()


class AssignsWhatArrives(Right):
    def add(self, total, places, values):
        total[places] = values


class ChoosesFromEachGradient(Right):
    def average(self, gradients):
        if not isinstance(self.rest, list):
            self.rest = [0.0] * len(gradients)
        rests = self.rest
        for index, gradient in enumerate(gradients):
            self.rest = rests[index]
            super().average([gradient])
            rests[index] = self.rest
        self.rest = rests


class SendsEverything(Right):
    def number(self, numel):
        return numel


class SendsZerosToo(Right):
    def together(self, wanted, values, places):
        total = torch.zeros_like(wanted)
        total[places] = values
        dist.all_reduce(total, group=self.group)
        return total


class RoundsDown(Right):
    def number(self, numel):
        return int(self.ratio * numel)


class AveragesOverSenders(Right):
    def add(self, total, places, values):
        super().add(total, places, values)
        self.senders = getattr(self, "senders", 0) + torch.zeros_like(total).index_fill_(0, places, 1)

    def divisor(self):
        senders, self.senders = self.senders, 0
        return senders.clamp(min=1)


class ReturnsNewGradients(Right):
    def store(self, gradients, average):
        return list(average.split([g.numel() for g in gradients]))


class PutsThemIntoTheList(Right):
    def store(self, gradients, average):
        parts = average.split([g.numel() for g in gradients])
        gradients[:] = [part.view_as(g) for part, g in zip(parts, gradients, strict=True)]


class SharesTheRest(Right):
    shared = [0.0]

    def average(self, gradients):
        self.rest = self.shared[0]
        super().average(gradients)
        self.shared[0] = self.rest


class DividesByTheWorldSize(Right):
    def divisor(self):
        return dist.get_world_size()


class KeepsTheFirstRest(Right):
    def keep(self, wanted, places):
        if isinstance(self.rest, float):
            super().keep(wanted, places)


class StoresIntoCopies(Right):
    def store(self, gradients, average):  # flatten() copies what is not contiguous
        for gradient, part in zip(gradients, average.split([g.numel() for g in gradients]), strict=True):
            gradient.flatten().copy_(part)


class StoresRowByRow(Right):
    def store(self, gradients, average):
        for gradient, part in zip(gradients, average.split([g.numel() for g in gradients]), strict=True):
            gradient[:] = part.view_as(gradient)
