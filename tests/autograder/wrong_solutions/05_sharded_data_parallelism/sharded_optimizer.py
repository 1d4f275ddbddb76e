# ruff: noqa: F821
FAILS_AS = {
    "has_the_whole_state": ("STATE_NOT_SHARDED", "only the parameters that this rank owns"),
    "deals_out_in_turn": ("STATE_NOT_SHARDED", "not in turn"),
    "rank_0_owns_everything": ("STATE_NOT_SHARDED", "only the parameters that this rank owns"),
    "forgets_to_send": ("NOT_SENT_BY_ITS_OWNER", "broadcast every parameter"),
    "sends_from_rank_0": ("NOT_SENT_BY_ITS_OWNER", "src=owner"),
    "averages_the_gradients": ("AVERAGED_AGAIN", "averaged before"),
    "sends_twice": ("PARAMETERS_SENT_TWICE", "once, by its owner"),
    "sends_frozen_parameters": ("PARAMETERS_SENT_TWICE", "a frozen one never changes"),
    "sends_by_all_reduce": ("AVERAGED_AGAIN", "new parameters"),
    "sends_by_scatter": ("ANOTHER_COLLECTIVE", "names the collectives"),
    "ignores_schedules": ("LEARNING_RATE_UNCHANGED", "before each step"),
    "knows_no_defaults": ("LEARNING_RATE_MISSING", "copy the options of its group to yours"),
    "copies_the_options_after_the_step": ("LEARNING_RATE_LATE", "not after it"),
    "never_steps": ("NOTHING_UPDATED", "step() of its inner optimizer"),
    "updates_copies": ("NOTHING_UPDATED", "not copies"),
    "ignores_the_options_of_groups": ("GROUP_OPTIONS_LOST", "A group is a dict"),
    "ignores_late_groups": ("GROUP_NOT_ADDED", "in the middle of training"),
    "cannot_own_nothing": ("RAISED", "Read the line"),
    "steps_twice": ("WRONG_UPDATE", "once a step"),
    "other_owners": ("ANOTHER_OWNER", "assign_owner(loads, parameter)"),
    "counts_anew_for_each_group": ("ANOTHER_OWNER", "assign_owner(loads, parameter)"),
    "counts_frozen_parameters": ("ANOTHER_OWNER", "frozen ones too"),
    "calls_the_closure_last": ("CLOSURE_CALLED_LATE", "the closure first"),
    "calls_the_closure_without_gradients": ("CLOSURE_WITHOUT_GRADIENTS", "torch.enable_grad()"),
    "calls_the_closure_twice": ("CLOSURE_CALLED_AGAIN", "without it"),
    "loses_the_loss": ("LOSS_NOT_RETURNED", "returns its result"),
    "lists_only_its_own": ("NOT_CLEARED or NOT_SENT_BY_ITS_OWNER", "param"),
    "forgets_to_wait": ("NO_WAIT", "Keep every handle"),
    "forgets_the_arguments": ("RAISED", "Read the line"),
    "takes_zeros_for_none": ("WRONG_UPDATE", "without a gradient"),
    "wraps_torch_s": ("FORBIDDEN_LIBRARY", "cell of your own"),
    "sends_float32": ("WRONG_UPDATE", ""),
    "sends_slices": ("RAISED", "Read the line"),
}


class knows_no_defaults(RightOptimizer):
    def add_own(self, own):
        if self.inner is None:
            self.inner = self.cls([own], **self.kwargs)
        else:
            self.inner.add_param_group(own)


class has_the_whole_state(RightOptimizer):
    def owns(self, parameter):
        return True


class deals_out_in_turn(RightOptimizer):
    def choose(self, parameter):
        return len(self.owners) % self.n


class rank_0_owns_everything(RightOptimizer):
    def choose(self, parameter):
        return 0


class forgets_to_send(RightOptimizer):
    def send(self, parameter):
        pass


class sends_from_rank_0(RightOptimizer):
    def send(self, parameter):
        dist.broadcast(parameter.data, src=0)


class averages_the_gradients(RightOptimizer):
    def step(self, closure=None):
        for parameter in self.sent():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad, dist.ReduceOp.AVG)
        return super().step(closure)


class sends_twice(RightOptimizer):
    def send(self, parameter):
        super().send(parameter)
        super().send(parameter)


class sends_frozen_parameters(RightOptimizer):
    def sent(self):
        return list(self.owners)


class sends_by_all_reduce(RightOptimizer):
    def send(self, parameter):
        if not self.owns(parameter):
            parameter.data.zero_()
        dist.all_reduce(parameter.data)


class sends_by_scatter(RightOptimizer):
    def send(self, parameter):
        parts = [parameter.data.clone() for _ in range(self.n)] if self.owns(parameter) else None
        dist.scatter(parameter.data, parts, src=self.owners[parameter])


class ignores_schedules(RightOptimizer):
    def options(self, group):
        return {}


class ignores_the_options_of_groups(RightOptimizer):
    def add_own(self, own):
        super().add_own({"params": own["params"]})

    def options(self, group):
        return {}


class ignores_late_groups(RightOptimizer):
    def step(self, closure=None):
        self.is_training = True
        return super().step(closure)

    def add_param_group(self, group):
        if not getattr(self, "is_training", False):
            super().add_param_group(group)


class cannot_own_nothing(RightOptimizer):
    def add_own(self, own):
        if not own["params"] and self.inner is None:
            self.inner = self.cls([], **self.kwargs)
        super().add_own(own)


class steps_twice(RightOptimizer):
    def step(self, closure=None):
        self.inner.step()
        return super().step(closure)


class other_owners(RightOptimizer):
    def choose(self, parameter):
        return self.n - 1 - super().choose(parameter)


class counts_anew_for_each_group(RightOptimizer):
    def add_param_group(self, group):
        self.loads = [0] * self.n
        super().add_param_group(group)


class counts_frozen_parameters(RightOptimizer):
    def choose(self, parameter):
        owner = self.loads.index(min(self.loads))
        self.loads[owner] += parameter.numel()
        return owner


class calls_the_closure_last(RightOptimizer):
    def step(self, closure=None):
        super().step()
        with torch.enable_grad():
            return closure() if closure else None


class calls_the_closure_without_gradients(RightOptimizer):
    @torch.no_grad()
    def step(self, closure=None):
        loss = closure() if closure else None
        super().step()
        return loss


class calls_the_closure_twice(RightOptimizer):
    def step(self, closure=None):
        with torch.enable_grad():
            if closure:
                closure()
        return super().step(closure)


class loses_the_loss(RightOptimizer):
    def step(self, closure=None):
        super().step(closure)


class lists_only_its_own(RightOptimizer):
    def add_own(self, own):
        super().add_own(own)
        self.param_groups[-1]["params"] = own["params"]


class forgets_to_wait(RightOptimizer):
    def send(self, parameter):
        dist.broadcast(parameter.data, src=self.owners[parameter], async_op=True)


class takes_zeros_for_none(RightOptimizer):
    def step(self, closure=None):
        for parameter in self.owners:
            if parameter.grad is None and parameter.requires_grad:
                parameter.grad = torch.zeros_like(parameter)
        return super().step(closure)


class forgets_the_arguments(RightOptimizer):
    def __init__(self, params, optimizer_cls, **kwargs):
        super().__init__(params, lambda groups, **_: optimizer_cls(groups), **kwargs)


class wraps_torch_s:
    def __new__(cls, parameters, optimizer_class, group=None, **defaults):
        from torch.distributed.optim import ZeroRedundancyOptimizer

        return ZeroRedundancyOptimizer(parameters, optimizer_class, process_group=group, **defaults)


class sends_float32(RightOptimizer):
    def send(self, parameter):
        sent = parameter.data.float()
        dist.broadcast(sent, src=self.owners[parameter])
        parameter.data.copy_(sent)


class sends_slices(RightOptimizer):
    def send(self, parameter):
        dist.broadcast(parameter.data[:], src=self.owners[parameter])


class copies_the_options_after_the_step(RightOptimizer):
    def options(self, group):
        return {}

    def step(self, closure=None):
        loss = super().step(closure)
        for group, own in zip(self.param_groups, self.inner.param_groups, strict=True):
            own.update(super().options(group))
        return loss


class never_steps(RightOptimizer):
    def step(self, closure=None):
        loss = closure() if closure else None
        for parameter in self.sent():
            self.send(parameter)
        return loss


class updates_copies(RightOptimizer):
    def add_own(self, own):
        super().add_own({**own, "params": [nn.Parameter(p.detach().clone()) for p in own["params"]]})


class hands_the_closure_on(RightOptimizer):  # which is right: every optimizer may be called with one
    def step(self, closure=None):
        for group, own in zip(self.param_groups, self.inner.param_groups, strict=True):
            own.update(self.options(group))
        loss = self.inner.step(closure)
        for parameter in self.sent():
            self.send(parameter)
        return loss
