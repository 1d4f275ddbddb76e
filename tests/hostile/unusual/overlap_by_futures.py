"""Averages gradients in the futures that torch makes of its calls, as DDP's own communication hooks do."""

import contextlib


class DistributedDataParallel(torch.nn.Module):
    def __init__(self, module, group=None):
        super().__init__()
        self.module, self.group, self.synchronizes = module, group, True
        for tensor in (*module.parameters(), *module.buffers()):
            dist.broadcast(tensor.detach(), group_src=0, group=group)
        self.order = [p for p in reversed(list(module.parameters())) if p.requires_grad]
        self.ready, self.next, self.futures = set(), 0, []
        for parameter in self.order:
            parameter.register_post_accumulate_grad_hook(self.note)

    def note(self, parameter):
        if not self.synchronizes:
            return
        if id(parameter) in self.ready:
            raise RuntimeError("a second backward in the same step")
        self.ready.add(id(parameter))
        self.start()

    def start(self, all_of_them=False):
        size = dist.get_world_size(self.group)
        while self.next < len(self.order) and (all_of_them or id(self.order[self.next]) in self.ready):
            parameter, self.next = self.order[self.next], self.next + 1
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            future = dist.all_reduce(parameter.grad, group=self.group, async_op=True).get_future()
            self.futures.append(future.then(lambda done: done.value()[0].div_(size)))

    def forward(self, *arguments, **keywords):
        return self.module(*arguments, **keywords)

    @contextlib.contextmanager
    def no_sync(self):
        before, self.synchronizes = self.synchronizes, False
        try:
            yield self
        finally:
            self.synchronizes = before

    def finish_gradient_synchronization(self):
        if self.synchronizes:
            self.start(all_of_them=True)
            torch.futures.collect_all(self.futures).wait()
            self.ready, self.next, self.futures = set(), 0, []
