# ruff: noqa: F401
from contextlib import contextmanager, nullcontext

import torch
import torch.distributed as dist
from torch import nn


class Right(nn.Module):
    """A right DistributedDataParallel whose parts can be replaced one by one."""

    def __init__(self, module, group=None):
        super().__init__()
        self.module, self.group, self.enabled = module, group, True
        for tensor in self.broadcast_tensors():
            self.broadcast(tensor.detach())
        self.order = self.synchronized()[::-1]
        self.begin()
        for parameter in self.order:
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self.on_ready)

    def broadcast(self, tensor):
        dist.broadcast(tensor, group_src=0, group=self.group)

    def broadcast_tensors(self):
        return [*self.module.parameters(), *self.module.buffers()]

    def synchronized(self):
        return [p for p in self.module.parameters() if p.requires_grad]

    def begin(self):
        self.started, self.ready, self.works = 0, set(), []

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    @contextmanager
    def no_sync(self):
        self.enabled = False
        try:
            yield
        finally:
            self.enabled = True

    def on_ready(self, parameter):
        if self.enabled:
            self.refuse_twice(parameter)
            self.ready.add(parameter)
            self.start_in_order()

    def refuse_twice(self, parameter):
        if parameter in self.ready:
            raise RuntimeError("a gradient is ready twice")

    def start_in_order(self):
        while self.started < len(self.order) and self.order[self.started] in self.ready:
            self.send(self.order[self.started])
            self.started += 1

    def send(self, parameter):
        self.average(parameter.grad)

    def average(self, tensor, op=dist.ReduceOp.AVG):
        self.works.append(dist.all_reduce(tensor, op, self.group, async_op=True))

    def finish_gradient_synchronization(self):
        if self.enabled:
            self.finish()

    def finish(self):
        for parameter in self.order:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        self.ready.update(self.order)
        self.start_in_order()
        self.wait()
        self.begin()

    def wait(self):
        for work in self.works:
            work.wait()


class RightBucketed(Right):
    """A right BucketedDistributedDataParallel that copies gradients in, all at once, and back."""

    def __init__(self, module, bucket_size_mb=25.0, group=None):
        super().__init__(module, group)
        self.limit = bucket_size_mb * 2**20
        self.buckets = self.fill()
        self.last = {bucket[-1]: bucket for bucket in self.buckets}

    def key(self, parameter):
        return parameter.dtype

    def fits(self, bucket, parameter):
        return sum(p.nbytes for p in [*bucket, parameter]) <= self.limit

    def fill(self):
        buckets, still_open = [], {}
        for parameter in self.order:
            bucket = still_open.get(self.key(parameter))
            if bucket is None or not self.fits(bucket, parameter):
                bucket = still_open[self.key(parameter)] = []
                buckets.append(bucket)
            bucket.append(parameter)
        return buckets

    def begin(self):
        super().begin()
        self.flats = []

    def send(self, parameter):
        if parameter in self.last:
            self.send_bucket(self.last[parameter])

    def send_bucket(self, bucket):
        flat = torch.cat([p.grad.flatten() for p in bucket])
        self.flats.append((flat, bucket))
        self.average(flat)

    def wait(self):
        super().wait()
        for flat, bucket in self.flats:
            for parameter, part in zip(bucket, flat.split([p.numel() for p in bucket]), strict=True):
                parameter.grad.copy_(part.view_as(parameter))
