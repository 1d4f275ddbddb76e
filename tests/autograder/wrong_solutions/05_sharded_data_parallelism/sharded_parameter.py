# ruff: noqa: F821
FAILS_AS = {
    "keeps_a_view": ("VIEW_OF_THE_WHOLE", "clone() makes a shard"),
    "keeps_the_parameter": ("VIEW_OF_THE_WHOLE", "Keep neither"),
    "keeps_a_tensor": ("NO_PARAMETER", "nn.Parameter"),
    "trains_what_is_frozen": ("NO_PARAMETER", "requires_grad=False"),
    "takes_the_first_part": ("ANOTHER_SHARD", "position in the group"),
    "deals_out_in_turn": ("ANOTHER_SHARD", "append zeros"),
    "drops_the_remainder": ("RAISED", "Read the line"),
    "keeps_the_padding": ("ANOTHER_WHOLE", "cut the padding off"),
    "gathers_at_each_call": ("GATHERED_TWICE", "several times"),
    "gathers_again_after_full": ("GATHERED_TWICE", "several times"),
    "keeps_the_gradient_that_it_sends": ("WHOLE_GRADIENT_KEPT", "forget the gradient"),
    "gathers_what_it_was_made_of": ("OLD_VALUES", "must send its new values"),
    "never_forgets": ("OLD_VALUES", "must send its new values"),
    "keeps_what_full_has_gathered": ("OLD_VALUES", "every full()"),
    "keeps_the_parts": ("NOT_FREED", "neither an attribute"),
    "casts_what_it_has_gathered": ("NOT_IN_COMPUTE_DTYPE", "Cast the shard before"),
    "starts_and_waits": ("START_WAITS", "async_op=True"),
    "starts_nothing": ("START_WAITS", "async_op=True"),
    "reduces_in_the_end": ("START_WAITS", "async_op=True"),
    "sums": ("ANOTHER_GRADIENT", "ReduceOp.AVG"),
    "replaces_the_gradient": ("GRADIENT_NOT_ADDED", "holds already"),
    "forgets_what_is_on_its_way": ("NO_WAIT", "Keep every handle"),
    "keeps_gradients_in_compute_dtype": ("MASTERS_NOT_KEPT or RAISED", ""),
    "adds_up_in_compute_dtype": ("ADDED_IN_COMPUTE_DTYPE", "Cast the mean"),
    "all_reduces": ("ALL_REDUCED", "reduce-scatter"),
    "full_by_way_of_compute_dtype": ("MASTERS_NOT_KEPT", "the digits"),
    "full_in_compute_dtype": ("MASTERS_NOT_KEPT", "own dtype"),
    "gives_away_what_is_gathered": ("FULL_IS_GATHERED", "outlast free()"),
    "frees_what_is_on_its_way": ("NO_WAIT", "Keep every handle"),
    "asks_the_world": ("RAISED or OUT_OF_STEP or ANOTHER_SHARD", "group"),
    "views_the_gradient": ("RAISED", "Read the line"),
    "finishes_what_it_has_not_begun": ("RAISED", "Read the line"),
}


class keeps_a_view(RightParameter):
    def make_shard(self, parameter):
        return nn.Parameter(self.own(parameter.detach()), parameter.requires_grad)


class gathers_again_after_full(RightParameter):
    def full(self):
        self.free()
        return super().full()


class keeps_the_gradient_that_it_sends(RightParameter):
    def start_reducing(self, gradient):
        super().start_reducing(gradient)
        self.copy = torch.cat(self.parts(gradient))


class keeps_the_parameter(RightParameter):
    def make_shard(self, parameter):
        self.parameter = parameter
        return super().make_shard(parameter)


class keeps_a_tensor(RightParameter):
    def make_shard(self, parameter):
        return super().make_shard(parameter).detach().requires_grad_(parameter.requires_grad)


class trains_what_is_frozen(RightParameter):
    def make_shard(self, parameter):
        return super().make_shard(parameter).requires_grad_(True)


class takes_the_first_part(RightParameter):
    def own(self, tensor):
        return self.parts(tensor)[0]


class deals_out_in_turn(RightParameter):
    def parts(self, tensor):
        flat = torch.cat(super().parts(tensor))
        return [flat[rank :: self.n] for rank in range(self.n)]


class drops_the_remainder(RightParameter):
    def parts(self, tensor):
        numel = tensor.numel() // self.n
        return tensor.flatten()[: self.n * numel].split(max(1, numel))


class keeps_the_padding(RightParameter):
    def put_together(self, parts):
        return torch.cat(parts)


class gathers_at_each_call(RightParameter):
    def gathered(self):
        if self.coming is None:
            self.free()
        return super().gathered()


class gathers_what_it_was_made_of(RightParameter):
    def sent(self):
        self.first = getattr(self, "first", self.shard.detach().clone())
        return self.first.to(self.dtype)


class never_forgets(RightParameter):
    def free(self):
        pass


class keeps_what_full_has_gathered(RightParameter):
    kept = None

    def full(self):
        if self.kept is None:
            self.kept = super().full()
        return self.kept.clone()


class keeps_the_parts(RightParameter):
    def put_together(self, parts):
        self.latest = parts
        return super().put_together(parts)


class casts_what_it_has_gathered(RightParameter):
    def sent(self):
        return self.shard.detach()

    def put_together(self, parts):
        return super().put_together(parts).to(self.dtype)

    def full(self):
        parts, work = self.all_gather(self.shard.detach())
        work.wait()
        return super().put_together(parts)


class starts_and_waits(RightParameter):
    def all_gather(self, part):
        parts, work = super().all_gather(part)
        work.wait()
        return parts, work


class starts_nothing(RightParameter):
    def start_gathering(self):
        pass

    def gathered(self):
        super().start_gathering()
        return super().gathered()


class reduces_in_the_end(RightParameter):
    def start_reducing(self, gradient):
        self.later = [*getattr(self, "later", []), gradient]

    def finish_reducing(self):
        super().finish_reducing()
        while getattr(self, "later", []):
            super().start_reducing(self.later.pop())
            super().finish_reducing()


class sums(RightParameter):
    def reduce(self, mean, gradient):
        return super().reduce(mean, gradient, dist.ReduceOp.SUM)


class replaces_the_gradient(RightParameter):
    def add(self, mean):
        self.shard.grad = mean


class forgets_what_is_on_its_way(RightParameter):
    def before_the_next(self):
        pass


class keeps_gradients_in_compute_dtype(RightParameter):
    def add(self, mean):
        super().add(mean.to(self.dtype))


class adds_up_in_compute_dtype(RightParameter):
    def add(self, mean):
        super().add(mean)
        self.shard.grad = self.shard.grad.to(self.dtype).to(self.shard.dtype)


class all_reduces(RightParameter):
    def reduce(self, mean, gradient):
        total = torch.cat(self.parts(gradient))
        dist.all_reduce(total, dist.ReduceOp.AVG, self.group)
        mean.copy_(self.own(total))
        return dist.barrier(self.group, async_op=True)


class full_by_way_of_compute_dtype(RightParameter):
    def full(self):
        return self.gathered().to(self.shard.dtype, copy=True)


class full_in_compute_dtype(RightParameter):
    def full(self):
        return super().full().to(self.dtype)


class gives_away_what_is_gathered(RightParameter):
    def full(self):
        return self.gathered() if self.dtype == self.shard.dtype else super().full()


class frees_what_is_on_its_way(RightParameter):
    def free(self):
        self.whole = self.coming = None


class asks_the_world(RightParameter):
    def __init__(self, parameter, compute_dtype=None, group=None):
        super().__init__(parameter, compute_dtype)


class views_the_gradient(RightParameter):
    def start_reducing(self, gradient):
        super().start_reducing(gradient.view(-1))


class finishes_what_it_has_not_begun(RightParameter):
    def before_the_next(self):
        if self.reducing is not None:
            self.finish_reducing()

    def finish_reducing(self):
        self.reducing[1].wait()
        super().finish_reducing()
