# ruff: noqa: F821
FAILS_AS = {
    "never_prefetches": ("NOT_PREFETCHED", "one for forward"),
    "prefetches_in_forward_only": ("NOT_PREFETCHED", "one for backward"),
    "prefetches_in_backward_only": ("NOT_PREFETCHED", "one for forward"),
    "prefetches_when_a_layer_is_over": ("NOT_PREFETCHED", "before the layer computes"),
    "remembers_the_first_step_for_ever": ("OLD_ORDER", "again in every step"),
    "waits_at_once": ("PREFETCH_WAITED_FOR", "Wait when the parameter is read"),
    "prefetches_everything": ("TOO_FAR_AHEAD", "not of all that follow"),
    "keeps_every_weight": ("KEPT_FOR_BACKWARD", "Let pack return something small"),
    "keeps_what_came_in_vain": ("WRONG_AFTER_THE_FIRST_STEP", "Only several backwards"),
    "sums": ("SUMMED", "ReduceOp.AVG"),
}


class never_prefetches(RightPrefetching):
    def needed(self, direction, shard):
        pass


class prefetches_in_forward_only(RightPrefetching):
    def needed(self, direction, shard):
        if direction == "forward":
            super().needed(direction, shard)


class prefetches_in_backward_only(RightPrefetching):
    def needed(self, direction, shard):
        if direction == "backward":
            super().needed(direction, shard)


class prefetches_when_a_layer_is_over(RightPrefetching):
    def needed(self, direction, shard):
        if direction == "backward":
            super().needed(direction, shard)
        else:
            self.used = [shard]  # in a list, or it would be one of this module's parameters

    def after_forward(self, child, args, output):
        super().after_forward(child, args, output)
        if not [*child.children()]:
            super().needed("forward", *self.used)


class remembers_the_first_step_for_ever(RightPrefetching):
    def needed(self, direction, shard):
        remembered = dict(self.following[direction])
        super().needed(direction, shard)
        self.following[direction].update(remembered)


class waits_at_once(RightPrefetching):
    def begin(self, shard):
        super().begin(shard)
        self.coming[shard][1].wait()


class prefetches_everything(RightPrefetching):
    def needed(self, direction, shard):
        if direction == "forward" and not self.latest:
            for each in list(self.whole):
                if each not in self.held and each not in self.coming:
                    self.begin(each)
        super().needed(direction, shard)


class keeps_every_weight(RightPrefetching):
    def pack(self, tensor):
        return tensor


class keeps_what_came_in_vain(RightPrefetching):
    def clear(self):
        for _, work in self.coming.values():
            work.wait()


class sums(RightPrefetching):
    def reduce(self, shard, gradient):
        return super().reduce(shard, gradient, dist.ReduceOp.SUM)
