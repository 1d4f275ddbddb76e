# ruff: noqa: F401
import math
from contextlib import suppress
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F


def broadcast_all(tensors, group):
    for tensor in tensors:
        dist.broadcast(tensor.detach(), group_src=0, group=group)


class RightOptimizer(torch.optim.Optimizer):
    """A right ShardedOptimizer whose parts can be replaced one by one; it sends by all-gather what fits."""

    def __init__(self, params, optimizer_cls, **kwargs):
        self.rank, self.n = dist.get_rank(), dist.get_world_size()
        self.cls, self.kwargs, self.inner = optimizer_cls, kwargs, None
        self.owners, self.loads = {}, [0] * self.n
        super().__init__(params, kwargs)

    def choose(self, parameter):
        owner = min(range(self.n), key=lambda rank: self.loads[rank])
        self.loads[owner] += parameter.numel() * parameter.requires_grad
        return owner

    def owns(self, parameter):
        return self.owners[parameter] == self.rank

    def add_param_group(self, group):
        super().add_param_group(group)
        group = self.param_groups[-1]
        for parameter in group["params"]:
            self.owners[parameter] = self.choose(parameter)
        self.add_own({**group, "params": [p for p in group["params"] if self.owns(p)]})

    def add_own(self, own):
        if self.inner is None:
            self.inner = self.cls([own], **self.kwargs)
        else:
            self.inner.add_param_group(own)
        for name, value in self.inner.param_groups[-1].items():
            self.param_groups[-1].setdefault(name, value)

    def options(self, group):
        return {name: value for name, value in group.items() if name != "params"}

    def step(self, closure=None):
        with torch.enable_grad():
            loss = closure() if closure else None
        for group, own in zip(self.param_groups, self.inner.param_groups, strict=True):
            own.update(self.options(group))
        self.inner.step()
        for parameter in self.sent():
            self.send(parameter)
        return loss

    def sent(self):
        return [parameter for parameter in self.owners if parameter.requires_grad]

    def send(self, parameter):
        dist.broadcast(parameter.data, src=self.owners[parameter])


class RightGradients(nn.Module):
    """A right ShardedGradients whose parts can be replaced one by one."""

    def __init__(self, module, group=None):
        super().__init__()
        self.module, self.group = module, group
        self.rank, self.n = dist.get_rank(group), dist.get_world_size(group)
        broadcast_all(self.broadcast_tensors(), group)
        self.loads = [0] * self.n
        self.owners = {parameter: self.choose(parameter) for parameter in module.parameters()}
        self.order = [p for p in module.parameters() if p.requires_grad][::-1]
        self.begin()
        for parameter in self.order:
            parameter.register_post_accumulate_grad_hook(self.on_ready)

    def broadcast_tensors(self):
        return [*self.module.parameters(), *self.module.buffers()]

    def choose(self, parameter):
        owner = min(range(self.n), key=lambda rank: self.loads[rank])
        self.loads[owner] += parameter.numel() * parameter.requires_grad
        return owner

    def begin(self):
        self.started, self.ready, self.works = 0, set(), []

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def on_ready(self, parameter):
        self.ready.add(parameter)
        self.start_in_order()

    def start_in_order(self):
        while self.started < len(self.order) and self.order[self.started] in self.ready:
            self.start(self.order[self.started])
            self.started += 1

    def start(self, parameter):
        self.let_go(1)
        self.works.append((parameter, self.reduce(parameter)))

    def reduce(self, parameter, op=dist.ReduceOp.AVG):
        return dist.reduce(
            parameter.grad, group_dst=self.owners[parameter], op=op, group=self.group, async_op=True
        )

    def let_go(self, most):
        while len(self.works) > most:
            parameter, work = self.works.pop(0)
            self.wait(work)
            self.arrived(parameter)

    def wait(self, work):
        work.wait()

    def arrived(self, parameter):
        if self.owners[parameter] != self.rank:
            parameter.grad = None

    def finish_gradient_synchronization(self):
        for parameter in self.order:
            if parameter not in self.ready and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        self.ready.update(self.order)
        self.start_in_order()
        self.let_go(0)
        self.begin()


def on_access(module, name, get):
    module.__class__ = type(type(module).__name__, (type(module),), {name: property(lambda _: get())})


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, shard, owner):
        ctx.shard, ctx.owner = shard, owner
        return owner.gather(shard)

    @staticmethod
    def backward(ctx, gradient):
        ctx.owner.arrived(ctx.shard, gradient)
        return None, None


class RightShards(nn.Module):
    """A right FullyShardedDataParallel that always waits, and whose parts can be replaced one by one."""

    def __init__(self, module, compute_dtype=None, min_shard_numel=1024, group=None):
        super().__init__()
        self.module, self.compute_dtype, self.group = module, compute_dtype, group
        self.min_shard_numel = min_shard_numel
        self.rank, self.n = dist.get_rank(group), dist.get_world_size(group)
        broadcast_all(self.broadcast_tensors(), group)
        self.whole, self.held, self.regathered = {}, {}, {}
        parameters = self.parameters_to_replace()
        shards = {p: self.make_shard(p) for p in parameters if self.is_large(p)}
        self.small = [p for p in parameters if p not in shards]
        for child in module.modules():
            for name, parameter in [*child._parameters.items()]:
                if parameter in shards:
                    self.replace(child, name, shards[parameter])
                elif parameter is not None and compute_dtype is not None:
                    on_access(child, name, partial(parameter.to, compute_dtype))
        for child in module.modules():
            child.register_forward_hook(self.after_forward)

    def broadcast_tensors(self):
        return [*self.module.parameters(), *self.module.buffers()]

    def parameters_to_replace(self):
        return list(self.module.parameters())

    def is_large(self, parameter):
        return parameter.numel() >= max(1, self.min_shard_numel)

    def make_shard(self, parameter):
        numel = math.ceil(parameter.numel() / self.n)
        flat = F.pad(parameter.detach().flatten(), (0, self.n * numel - parameter.numel()))
        own = flat[self.rank * numel : (self.rank + 1) * numel].clone()
        shard = nn.Parameter(self.stored(own), requires_grad=parameter.requires_grad)
        self.whole[shard] = parameter.shape
        return shard

    def stored(self, own):
        return own

    def replace(self, child, name, shard):
        setattr(child, name, shard)
        on_access(child, name, partial(self.full, shard))

    def full(self, shard):
        if shard not in self.held:
            self.held[shard] = Gather.apply(shard, self)
        return self.held[shard]

    def all_gather(self, shard, part):
        parts = [torch.empty_like(part) for _ in range(self.n)]
        dist.all_gather(parts, part, group=self.group)
        return self.cut(torch.cat(parts), self.whole[shard])

    def cut(self, flat, shape):
        return flat[: shape.numel()].view(shape)

    def gather(self, shard):
        return self.all_gather(shard, shard.detach().to(self.compute_dtype or shard.dtype))

    def after_forward(self, child, args, output):
        for shard in child.parameters():
            self.held.pop(shard, None)

    def pack(self, tensor):
        for shard, full in self.held.items():
            if full.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr():
                return shard, tensor.size(), tensor.stride(), tensor.storage_offset()
        return tensor

    def unpack(self, kept):
        if isinstance(kept, torch.Tensor):
            return kept
        shard, *view = kept
        if shard not in self.regathered:
            self.regathered[shard] = self.gather(shard)
        full = self.regathered[shard]
        self.unpacked(shard)
        return full.as_strided(*view)

    def unpacked(self, shard):
        if not shard.requires_grad:
            del self.regathered[shard]

    def cast(self, value):
        is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.to(self.compute_dtype) if self.compute_dtype and is_float else value

    def forward(self, *args, **kwargs):
        args = [self.cast(value) for value in args]
        kwargs = {name: self.cast(value) for name, value in kwargs.items()}
        with torch.autograd.graph.saved_tensors_hooks(self.pack, self.unpack):
            return self.module(*args, **kwargs)

    def arrived(self, shard, gradient):
        self.regathered.pop(shard, None)
        self.add(shard, self.reduce(shard, gradient).to(shard.dtype))

    def reduce(self, shard, gradient, op=dist.ReduceOp.AVG):
        padded = F.pad(gradient.flatten(), (0, self.n * shard.numel() - gradient.numel()))
        mean = gradient.new_empty(shard.numel())
        dist.reduce_scatter(mean, list(padded.chunk(self.n)), op=op, group=self.group)
        return mean

    def add(self, shard, mean):
        shard.grad = mean if shard.grad is None else shard.grad + mean

    def finish_gradient_synchronization(self):
        for parameter in self.small:
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad, dist.ReduceOp.AVG, self.group)

    def full_state_dict(self):
        state = dict(self.module.state_dict())
        for name, parameter in self.module.named_parameters(remove_duplicate=False):
            if parameter in self.whole:
                state[name] = self.all_gather(parameter, parameter.detach())
        return state  # small parameters and buffers themselves, as torch's own has them


class RightModule(RightShards):
    """A right ShardedModule: autograd keeps for backward what it saves."""

    def pack(self, tensor):
        return tensor


class RightPrefetching(RightShards):
    """A right PrefetchingFullyShardedDataParallel whose parts can be replaced one by one."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.coming, self.latest, self.following = {}, {}, {"forward": {}, "backward": {}}

    def begin(self, shard):
        part = shard.detach().to(self.compute_dtype or shard.dtype)
        flat = part.new_empty(self.n * part.numel())
        self.coming[shard] = flat, dist.all_gather_single(flat, part, group=self.group, async_op=True)

    def gather(self, shard):
        if shard not in self.coming:
            self.begin(shard)
        flat, work = self.coming.pop(shard)
        work.wait()
        return self.cut(flat, self.whole[shard])

    def needed(self, direction, shard):
        self.following[direction][self.latest.get(direction)] = shard
        self.latest[direction] = shard
        following = self.following[direction].get(shard)
        if following is not None and not any(following in each for each in (self.coming, self.regathered)):
            self.begin(following)

    def full(self, shard):
        new = shard not in self.held
        whole = super().full(shard)
        if new:
            self.needed("forward", shard)
        return whole

    def unpack(self, kept):
        tensor = super().unpack(kept)
        if not isinstance(kept, torch.Tensor):
            self.needed("backward", kept[0])
        return tensor

    def forward(self, *args, **kwargs):
        self.latest = {}
        return super().forward(*args, **kwargs)

    def finish_gradient_synchronization(self):
        super().finish_gradient_synchronization()
        self.clear()

    def clear(self):
        for _, work in self.coming.values():
            work.wait()
        self.coming.clear()


class RightParameter:
    """A right ShardedParameter whose parts can be replaced one by one."""

    def __init__(self, parameter, compute_dtype=None, group=None):
        self.group, self.rank, self.n = group, dist.get_rank(group), dist.get_world_size(group)
        self.shape, self.dtype = parameter.shape, compute_dtype or parameter.dtype
        self.shard = self.make_shard(parameter)
        self.coming = self.whole = self.reducing = None

    def make_shard(self, parameter):
        return nn.Parameter(self.own(parameter.detach()).clone(), parameter.requires_grad)

    def own(self, tensor):
        return self.parts(tensor)[self.rank]

    def parts(self, tensor):
        numel = math.ceil(tensor.numel() / self.n)
        return F.pad(tensor.flatten(), (0, self.n * numel - tensor.numel())).chunk(self.n)

    def all_gather(self, part):
        parts = [torch.empty_like(part) for _ in range(self.n)]
        return parts, dist.all_gather(parts, part, group=self.group, async_op=True)

    def start_gathering(self):
        if self.whole is None and self.coming is None:
            self.coming = self.all_gather(self.sent())

    def sent(self):
        return self.shard.detach().to(self.dtype)

    def put_together(self, parts):
        return torch.cat(parts)[: self.shape.numel()].view(self.shape)

    def gathered(self):
        self.start_gathering()
        if self.coming is not None:
            parts, work = self.coming
            work.wait()
            self.whole, self.coming = self.put_together(parts), None
        return self.whole

    def free(self):
        if self.coming is not None:
            self.coming[1].wait()
        self.whole = self.coming = None

    def start_reducing(self, gradient):
        self.before_the_next()
        mean = gradient.new_empty(self.shard.numel())
        self.reducing = mean, self.reduce(mean, gradient)

    def reduce(self, mean, gradient, op=dist.ReduceOp.AVG):
        parts = [part.contiguous() for part in self.parts(gradient)]
        return dist.reduce_scatter(mean, parts, op, self.group, async_op=True)

    def before_the_next(self):
        self.finish_reducing()

    def finish_reducing(self):
        if self.reducing is not None:
            mean, work = self.reducing
            work.wait()
            self.add(mean.to(self.shard.dtype))
        self.reducing = None

    def add(self, mean):
        self.shard.grad = mean if self.shard.grad is None else self.shard.grad + mean

    def full(self):
        parts, work = self.all_gather(self.shard.detach())
        work.wait()
        return self.put_together(parts)
