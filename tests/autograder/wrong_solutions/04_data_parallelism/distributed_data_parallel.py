# ruff: noqa: F821
FAILS_AS = {
    "forgets_the_broadcast": ("PARAMETERS_DIFFER", "drew different weights"),
    "forgets_the_buffers": ("BUFFERS_DIFFER", "module.buffers()"),
    "forgets_frozen_parameters": ("PARAMETERS_DIFFER", "Only frozen parameters"),
    "broadcasts_the_state_dict": ("BUFFERS_DIFFER", "module.buffers()"),
    "broadcasts_from_global_rank_0": ("RAISED", "Only a group"),
    "broadcasts_twice": ("COPIED_TWICE", "broadcast once"),
    "broadcasts_objects": ("COPIED_TWICE", "as a tensor"),
    "gathers_from_all_ranks": ("COPIED_TWICE", "broadcast once"),
    "sums": ("SUMMED", "ReduceOp.AVG"),
    "averages_twice": ("DIVIDED_TWICE", "divides already"),
    "divides_by_the_world": ("DIVIDED_WRONGLY", "Only a group"),
    "averages_in_the_default_group": ("OUT_OF_STEP or TIMED_OUT or DEADLOCK", "group"),
    "starts_in_finish": ("LATE", "hook"),
    "waits_in_the_hook": ("NO_OVERLAP", "async_op=True"),
    "forgets_to_wait": ("NO_WAIT", "Keep every handle"),
    "waits_in_the_next_step": ("OWN_GRADIENT or WRONG_GRADIENT", "wait"),
    "skips_what_was_not_used": ("OUT_OF_STEP or NO_GRADIENT", "Only unused parameters"),
    "starts_in_its_own_order": ("WRONG_GRADIENT or OWN_GRADIENT", "Only unused parameters"),
    "averages_frozen_parameters": ("SENT_TWICE", "Only frozen parameters"),
    "averages_tied_parameters_twice": ("SENT_TWICE", "Only tied parameters"),
    "sends_as_float32": ("CAST", "bucket has one dtype"),
    "ignores_no_sync": ("SENT_IN_NO_SYNC", "check whether it is on"),
    "no_sync_clears": ("LOST_IN_NO_SYNC", "neither clear"),
    "no_sync_clears_on_entering": ("LOST_IN_NO_SYNC", "on entering"),
    "no_sync_without_finally": ("NO_SYNC_STAYS_ON", "finally"),
    "averages_what_the_last_backward_adds": ("PARTLY_AVERAGED", "register_hook"),
    "clears_what_the_last_backward_did_not_use": ("LOST_AFTER_NO_SYNC", "only where .grad is None"),
    "two_names": ("NAMES", "self.module"),
    "keeps_the_handles": ("MEMORY_GROWS", "Forget all handles"),
    "keeps_copies": ("MEMORY", "keep only its buckets"),
    "only_the_first_step": ("OWN_GRADIENT", "still has its own gradient"),
    "finishes_in_no_sync": ("SENT_IN_NO_SYNC", "check whether it is on"),
    "lets_gradients_be_ready_twice": ("READY_TWICE", "RuntimeError"),
    "refuses_with_a_value_error": ("ANOTHER_ERROR", "RuntimeError yourself"),
    "takes_no_names": ("RAISED", "Read the line"),
    "flattens_all": ("ALL_REDUCES", "buckets come later"),
    "wraps_torch_s": ("FORBIDDEN_LIBRARY", "cell of your own"),
    "takes_inputs_only": ("RAISED", "one more argument"),
    "sends_slices": ("RAISED", "no dimension"),
    "notes_what_is_ready_in_no_sync": ("RAISED", "Only no_sync()"),
    "needs_a_finish_in_no_sync": ("REFUSED_IN_NO_SYNC", "follow one another"),
}


class forgets_the_broadcast(Right):
    def broadcast_tensors(self):
        return self.module.buffers()


class forgets_the_buffers(Right):
    def broadcast_tensors(self):
        return self.module.parameters()


class forgets_frozen_parameters(Right):
    def broadcast_tensors(self):
        return [*self.synchronized(), *self.module.buffers()]


class broadcasts_the_state_dict(Right):
    def broadcast_tensors(self):
        return self.module.state_dict().values()


class broadcasts_from_global_rank_0(Right):
    def broadcast(self, tensor):
        dist.broadcast(tensor, src=0, group=self.group)


class broadcasts_twice(Right):
    def broadcast(self, tensor):
        super().broadcast(tensor)
        super().broadcast(tensor)


class broadcasts_objects(Right):
    def broadcast(self, tensor):
        copies = [tensor]
        dist.broadcast_object_list(copies, group_src=0, group=self.group)
        tensor.copy_(copies[0])


class gathers_from_all_ranks(Right):
    def broadcast(self, tensor):
        of_ranks = [torch.empty_like(tensor) for _ in range(dist.get_world_size(self.group))]
        dist.all_gather(of_ranks, tensor, group=self.group)
        tensor.copy_(of_ranks[0])


class sums(Right):
    def average(self, tensor):
        super().average(tensor, dist.ReduceOp.SUM)


class averages_twice(Right):
    def wait(self):
        super().wait()
        for parameter in self.order:
            parameter.grad /= dist.get_world_size(self.group)


class divides_by_the_world(Right):
    def average(self, tensor):
        tensor /= dist.get_world_size()
        super().average(tensor, dist.ReduceOp.SUM)


class averages_in_the_default_group(Right):
    def average(self, tensor):
        self.works.append(dist.all_reduce(tensor, dist.ReduceOp.AVG, async_op=True))


class starts_in_finish(Right):
    def on_ready(self, parameter):
        pass


class waits_in_the_hook(Right):
    def average(self, tensor):
        dist.all_reduce(tensor, dist.ReduceOp.AVG, self.group)


class forgets_to_wait(Right):
    def wait(self):
        pass


class waits_in_the_next_step(Right):
    def wait(self):
        for work in getattr(self, "earlier", []):
            work.wait()
        self.earlier = self.works


class skips_what_was_not_used(Right):
    def on_ready(self, parameter):
        if self.enabled:
            self.refuse_twice(parameter)
            self.ready.add(parameter)
            self.send(parameter)

    def finish(self):
        self.wait()
        self.begin()


class starts_in_its_own_order(Right):
    def on_ready(self, parameter):
        if self.enabled:
            self.refuse_twice(parameter)
            self.ready.add(parameter)
            self.send(parameter)

    def finish(self):
        for parameter in self.order:
            if parameter not in self.ready:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                self.send(parameter)
        self.wait()
        self.begin()


class averages_frozen_parameters(Right):
    def synchronized(self):
        return list(self.module.parameters())


class averages_tied_parameters_twice(Right):
    def synchronized(self):
        return [p for _, p in self.module.named_parameters(remove_duplicate=False) if p.requires_grad]

    def refuse_twice(self, parameter):
        if sum(p is parameter for p in self.order) == 1:
            super().refuse_twice(parameter)


class sends_as_float32(Right):
    def begin(self):
        super().begin()
        self.copies = []

    def send(self, parameter):
        self.copies.append((parameter, parameter.grad.float()))
        self.average(self.copies[-1][1])

    def wait(self):
        super().wait()
        for parameter, copy in self.copies:
            parameter.grad.copy_(copy)


class ignores_no_sync(Right):
    @contextmanager
    def no_sync(self):
        yield


class no_sync_clears(Right):
    def on_ready(self, parameter):
        if self.enabled:
            super().on_ready(parameter)
        else:
            parameter.grad = None


class no_sync_clears_on_entering(Right):
    def no_sync(self):
        self.module.zero_grad()
        return super().no_sync()


class no_sync_without_finally(Right):
    @contextmanager
    def no_sync(self):
        self.enabled = False
        yield
        self.enabled = True


class averages_what_the_last_backward_adds(Right):
    def __init__(self, module, group=None):
        super().__init__(module, group)
        for parameter in self.order:
            parameter.register_hook(lambda gradient, parameter=parameter: self.keep(parameter, gradient))

    def begin(self):
        super().begin()
        self.added, self.copies = {}, []

    def keep(self, parameter, gradient):
        self.added[parameter] = gradient.clone()

    def send(self, parameter):
        added = self.added.get(parameter, torch.zeros_like(parameter))
        self.copies.append((parameter, added, added.clone()))
        self.average(self.copies[-1][2])

    def wait(self):
        super().wait()
        for parameter, added, averaged in self.copies:
            parameter.grad += averaged - added


class clears_what_the_last_backward_did_not_use(Right):
    def finish(self):
        for parameter in self.order:
            if parameter not in self.ready:
                parameter.grad = None
        super().finish()


class two_names(Right):
    def __init__(self, module, group=None):
        nn.Module.__init__(self)
        self.a_copy = module
        super().__init__(module, group)
        self.a_copy = module


class keeps_the_handles(Right):
    def begin(self):
        super().begin()
        self.all_works = getattr(self, "all_works", [])

    def average(self, tensor):
        super().average(tensor)
        self.all_works.append(self.works[-1])


class keeps_copies(Right):
    def begin(self):
        super().begin()
        self.copies = {}

    def wait(self):
        super().wait()
        self.copies = {parameter: parameter.grad.clone() for parameter in self.order}

    def finish(self):
        super().finish()
        self.copies = {parameter: parameter.grad.clone() for parameter in self.order}


class only_the_first_step(Right):
    def finish(self):
        if self.started < len(self.order):
            super().finish()
            self.started = len(self.order)
        else:
            self.wait()
            self.ready.clear()


class finishes_in_no_sync(Right):
    def finish_gradient_synchronization(self):
        self.finish()


class lets_gradients_be_ready_twice(Right):
    def refuse_twice(self, parameter):
        pass


class refuses_with_a_value_error(Right):
    def refuse_twice(self, parameter):
        if parameter in self.ready:
            raise ValueError("a gradient is ready twice")


class takes_no_names(Right):
    def forward(self, *args):
        return self.module(*args)


class flattens_all(RightBucketed):
    pass


class communicates_in_company(Right):  # which is right
    def average(self, tensor):
        if dist.get_world_size(self.group) > 1:
            super().average(tensor)


class wraps_torch_s(nn.Module):
    def __init__(self, module, group=None):
        super().__init__()
        self.module = module
        self.wrapped = [nn.parallel.DistributedDataParallel(module, process_group=group)]

    def forward(self, *arguments, **keywords):
        return self.wrapped[0](*arguments, **keywords)

    def no_sync(self):
        return self.wrapped[0].no_sync()

    def finish_gradient_synchronization(self):
        pass


class takes_inputs_only(Right):
    def forward(self, inputs):
        return self.module(inputs)


class sends_slices(Right):
    def send(self, parameter):
        self.average(parameter.grad[:])


class notes_what_is_ready_in_no_sync(Right):
    def on_ready(self, parameter):
        self.ready.add(parameter)
        if self.enabled:
            self.start_in_order()


class needs_a_finish_in_no_sync(Right):
    def on_ready(self, parameter):
        self.refuse_twice(parameter)
        self.ready.add(parameter)
        if self.enabled:
            self.start_in_order()

    def finish_gradient_synchronization(self):
        if self.enabled:
            self.finish()
        else:
            self.begin()
