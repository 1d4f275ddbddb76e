# ruff: noqa: F821
FAILS_AS = {
    "all_reduces": ("ALL_REDUCED", "only the rank that holds the parameter"),
    "keeps_them_everywhere": ("GRADIENT_KEPT", "sets its grad to None"),
    "drops_them_everywhere": ("NO_OWNER", "The owner keeps"),
    "sums": ("SUMMED", "ReduceOp.AVG"),
    "divides_twice": ("DIVIDED_TWICE", "divides already"),
    "divides_by_the_world": ("DIVIDED_WRONGLY", "Only a group"),
    "lets_go_in_the_end": ("TOO_MANY_GRADIENTS_AT_ONCE", "Free gradients during backward"),
    "keeps_copies": ("TOO_MANY_GRADIENTS_AT_ONCE", "copies must not keep it alive"),
    "keeps_the_handles": ("TOO_MANY_GRADIENTS_AT_ONCE", "list of handles"),
    "starts_in_finish": ("LATE", "Start the collective in the hook"),
    "waits_in_the_hook": ("NO_OVERLAP", "async_op=True"),
    "other_owners": ("ANOTHER_OWNER", "assign_owner(loads, parameter)"),
    "everything_on_rank_0": ("UNFAIR_SHARE", "not in turn"),
    "starts_in_its_own_order": ("WRONG_GRADIENT or OWN_GRADIENT or OUT_OF_STEP", "Only unused parameters"),
    "skips_what_was_not_used": ("OUT_OF_STEP or NO_OWNER or WRONG_GRADIENT", "Only unused parameters"),
    "forgets_the_broadcast": ("PARAMETERS_DIFFER", "drew different weights"),
    "forgets_the_buffers": ("BUFFERS_DIFFER", "module.buffers()"),
    "forgets_to_wait": ("NO_WAIT", "Keep every handle"),
    "takes_positions_for_ranks": ("RAISED or OUT_OF_STEP or DEADLOCK", "Only a group"),
    "reduces_twice": ("GRADIENTS_REDUCED_TWICE", "once in a step"),
    "reduces_tied_parameters_twice": ("GRADIENTS_REDUCED_TWICE", "Only tied parameters"),
    "two_names": ("NAMES", "self.module"),
    "takes_what_is_left_for_sent": ("OUT_OF_STEP or NO_OWNER or WRONG_GRADIENT", "Only unused parameters"),
}


class all_reduces(RightGradients):
    def reduce(self, parameter):
        return dist.all_reduce(parameter.grad, dist.ReduceOp.AVG, self.group, async_op=True)


class keeps_them_everywhere(RightGradients):
    def arrived(self, parameter):
        pass


class drops_them_everywhere(RightGradients):
    def arrived(self, parameter):
        parameter.grad = None


class sums(RightGradients):
    def reduce(self, parameter):
        return super().reduce(parameter, dist.ReduceOp.SUM)


class divides_twice(RightGradients):
    def arrived(self, parameter):
        parameter.grad /= self.n
        super().arrived(parameter)


class divides_by_the_world(RightGradients):
    def reduce(self, parameter):
        parameter.grad /= dist.get_world_size()
        return super().reduce(parameter, dist.ReduceOp.SUM)


class lets_go_in_the_end(RightGradients):
    def start(self, parameter):
        self.works.append((parameter, self.reduce(parameter)))


class keeps_copies(RightGradients):
    def begin(self):
        super().begin()
        self.copies = []

    def start(self, parameter):
        self.copies.append(parameter.grad.clone())
        super().start(parameter)


class keeps_the_handles(RightGradients):
    def begin(self):
        super().begin()
        self.all_works = []

    def reduce(self, parameter):
        self.all_works.append(super().reduce(parameter))
        return self.all_works[-1]


class starts_in_finish(RightGradients):
    def on_ready(self, parameter):
        pass


class waits_in_the_hook(RightGradients):
    def start(self, parameter):
        super().start(parameter)
        self.let_go(0)


class other_owners(RightGradients):
    def choose(self, parameter):
        return self.n - 1 - super().choose(parameter)


class everything_on_rank_0(RightGradients):
    def choose(self, parameter):
        return 0


class starts_in_its_own_order(RightGradients):
    def on_ready(self, parameter):
        self.ready.add(parameter)
        self.start(parameter)

    def finish_gradient_synchronization(self):
        for parameter in self.order:
            if parameter not in self.ready:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                self.start(parameter)
        self.let_go(0)
        self.begin()


class skips_what_was_not_used(RightGradients):
    def on_ready(self, parameter):
        self.start(parameter)

    def finish_gradient_synchronization(self):
        self.let_go(0)
        self.begin()


class forgets_the_broadcast(RightGradients):
    def broadcast_tensors(self):
        return self.module.buffers()


class forgets_the_buffers(RightGradients):
    def broadcast_tensors(self):
        return self.module.parameters()


class forgets_to_wait(RightGradients):
    def wait(self, work):
        pass


class takes_positions_for_ranks(RightGradients):
    def reduce(self, parameter):
        owner = self.owners[parameter]
        return dist.reduce(parameter.grad, owner, dist.ReduceOp.AVG, self.group, async_op=True)


class reduces_twice(RightGradients):
    def reduce(self, parameter):
        super().reduce(parameter).wait()
        return super().reduce(parameter)


class reduces_tied_parameters_twice(RightGradients):
    def start(self, parameter):
        names = [p for _, p in self.module.named_parameters(remove_duplicate=False) if p is parameter]
        for _ in names[1:]:
            self.reduce(parameter).wait()
        super().start(parameter)


class two_names(RightGradients):
    def __init__(self, module, group=None):
        super().__init__(module, group)
        self.a_copy = module


class takes_what_is_left_for_sent(RightGradients):
    def finish_gradient_synchronization(self):
        self.order, order = [p for p in self.order if p in self.ready or p.grad is None], self.order
        super().finish_gradient_synchronization()
        self.order = order
