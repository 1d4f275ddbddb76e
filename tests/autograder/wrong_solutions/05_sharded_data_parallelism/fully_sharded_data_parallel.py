# ruff: noqa: F821
FAILS_AS = {
    "forgets_the_broadcast": ("PARAMETERS_DIFFER", "drew different weights"),
    "forgets_the_buffers": ("BUFFERS_DIFFER", "module.buffers()"),
    "makes_shards_that_are_views": ("WHOLE_PARAMETERS_HELD", "clone() makes a shard"),
    "keeps_memory_to_gather_into": ("WHOLE_PARAMETERS_HELD", "kept for gathering"),
    "keeps_weights_for_backward": ("KEPT_FOR_BACKWARD", "Let pack return something small"),
    "keeps_transposes_for_backward": ("KEPT_FOR_BACKWARD or NOT_FREED_IN_FORWARD", "saves"),
    "never_frees": ("NOT_FREED_IN_FORWARD", "drop every reference"),
    "never_frees_in_backward": ("NOT_FREED_IN_BACKWARD", "free the parameter"),
    "uses_it_again_in_the_next_step": ("WRONG_AFTER_THE_FIRST_STEP", "after its last use"),
    "piles_up_gradients": ("NOT_FREED_IN_BACKWARD", "do not accumulate"),
    "keeps_the_last_gathered": ("LEFT_OVER_AFTER_THE_STEP", "Drop handles"),
    "sums": ("SUMMED", "ReduceOp.AVG"),
    "divides_twice": ("DIVIDED_TWICE", "divides already"),
    "shards_small_parameters": ("SMALL_PARAMETER_SHARDED", "stays whole"),
    "forgets_small_parameters": ("OWN_GRADIENT", "still has its own gradient"),
    "all_reduces": ("MORE_ALL_REDUCED", "reduce-scatter"),
    "gathers_in_float32": ("NOT_IN_COMPUTE_DTYPE", "Cast the shard before"),
    "keeps_shards_in_bfloat16": ("MASTERS_NOT_KEPT or NOT_THE_WHOLE_STATE", "own dtype"),
    "leaves_inputs_in_float32": ("RAISED", "Read the line"),
    "shards_linear_layers_only": ("NOT_SHARDED", "Only attention"),
    "gathers_for_forward_only": ("RAISED", "Read the line"),
    "keeps_frozen_parameters_whole": ("NOT_SHARDED", "Only frozen parameters"),
    "trains_frozen_parameters": ("WEIGHTS_MOVED", "Only frozen parameters"),
    "prefixes_the_state": ("NAMES_OF_THE_STATE", "without a prefix"),
    "state_without_buffers": ("NAMES_OF_THE_STATE", "with its buffers"),
    "state_of_shards": ("NOT_THE_WHOLE_STATE", "gathers every shard"),
    "keeps_the_padding": ("NOT_THE_WHOLE_STATE", "cuts the padding off"),
    "drops_the_remainder": ("RAISED", "Read the line"),
    "replaces_gradients": ("WRONG_SHARDED_GRADIENT", "replace nothing"),
    "replaces_gradients_in_finish": ("WRONG_SHARDED_GRADIENT", "Only several backwards"),
    "forgets_the_offset_of_views": ("WRONG_SHARDED_GRADIENT", "storage offset"),
    "gathers_at_each_look": ("GATHERED_TWICE", "several times"),
    "gathers_everything_first": ("ALL_AT_ONCE or NOT_FREED_IN_FORWARD", "layer"),
    "averages_over_the_world": ("OUT_OF_STEP or TIMED_OUT or DEADLOCK", "group"),
    "reduces_by_broadcast": ("ANOTHER_COLLECTIVE", "names the collectives"),
    "keeps_whole_parameters": ("WHOLE_PARAMETERS_HELD", "memory of the whole"),
    "gathers_too_early": ("WHOLE_PARAMETERS_HELD", "gathered before a forward"),
    "never_frees_frozen_parameters": ("NOT_FREED_IN_BACKWARD", "of a frozen parameter"),
    "waits_in_the_end": ("NOT_FREED_IN_BACKWARD", "Wait for an earlier one first"),
    "frees_in_backward_only": ("WRONG_AFTER_THE_FIRST_STEP", "Only several backwards"),
    "shards_empty_parameters": ("SMALL_PARAMETER_SHARDED", "An empty one"),
    "forgets_second_names": ("NAMES", "Only tied parameters"),
    "casts_integers": ("RAISED", "Read the line"),
    "casts_flags": ("RAISED", "Read the line"),
    "forgets_to_wait": ("NO_WAIT", "Keep every handle"),
    "wraps_torch_s": ("FORBIDDEN_LIBRARY", "cell of your own"),
}


class forgets_the_broadcast(RightShards):
    def broadcast_tensors(self):
        return self.module.buffers()


class forgets_the_buffers(RightShards):
    def broadcast_tensors(self):
        return self.module.parameters()


class makes_shards_that_are_views(RightShards):
    def make_shard(self, parameter):
        numel = math.ceil(parameter.numel() / self.n)
        flat = F.pad(parameter.detach().flatten(), (0, self.n * numel - parameter.numel()))
        shard = nn.Parameter(flat.chunk(self.n)[self.rank], requires_grad=parameter.requires_grad)
        self.whole[shard] = parameter.shape
        return shard


class keeps_memory_to_gather_into(RightShards):
    def make_shard(self, parameter):
        shard = super().make_shard(parameter)
        flat = shard.new_empty(self.n * shard.numel(), dtype=self.compute_dtype)
        self.memory = {**getattr(self, "memory", {}), shard: flat}
        return shard

    def gather(self, shard):
        flat = self.memory[shard]
        dist.all_gather_single(flat, shard.detach().to(flat.dtype), group=self.group)
        return self.cut(flat, self.whole[shard])


class keeps_weights_for_backward(RightShards):
    def pack(self, tensor):
        return tensor


class keeps_transposes_for_backward(RightShards):
    def pack(self, tensor):
        whole = any(tensor.shape == full.shape for full in self.held.values())
        return super().pack(tensor) if whole else tensor


class forgets_the_offset_of_views(RightShards):
    def pack(self, tensor):
        kept = super().pack(tensor)
        return kept if isinstance(kept, torch.Tensor) else (*kept[:3], 0)


class never_frees(RightShards):
    def after_forward(self, child, args, output):
        if child is self.module:
            self.held.clear()


class never_frees_in_backward(RightShards):
    def arrived(self, shard, gradient):
        self.add(shard, self.reduce(shard, gradient).to(shard.dtype))

    def finish_gradient_synchronization(self):
        super().finish_gradient_synchronization()
        self.regathered.clear()


class uses_it_again_in_the_next_step(RightShards):
    def arrived(self, shard, gradient):
        self.add(shard, self.reduce(shard, gradient).to(shard.dtype))


class piles_up_gradients(RightShards):
    def arrived(self, shard, gradient):
        self.regathered.pop(shard, None)
        self.waiting = [*getattr(self, "waiting", []), (shard, gradient)]

    def finish_gradient_synchronization(self):
        for shard, gradient in self.waiting:
            self.add(shard, self.reduce(shard, gradient).to(shard.dtype))
        self.waiting = []
        super().finish_gradient_synchronization()


class keeps_the_last_gathered(RightShards):
    def arrived(self, shard, gradient):
        self.latest = [*getattr(self, "latest", [])[-7:], self.regathered.get(shard)]
        super().arrived(shard, gradient)


class sums(RightShards):
    def reduce(self, shard, gradient):
        return super().reduce(shard, gradient, dist.ReduceOp.SUM)


class divides_twice(RightShards):
    def reduce(self, shard, gradient):
        return super().reduce(shard, gradient) / self.n


class shards_small_parameters(RightShards):
    def is_large(self, parameter):
        return parameter.numel() > 0


class forgets_small_parameters(RightShards):
    def finish_gradient_synchronization(self):
        pass


class all_reduces(RightShards):
    def reduce(self, shard, gradient):
        padded = F.pad(gradient.flatten(), (0, self.n * shard.numel() - gradient.numel()))
        dist.all_reduce(padded, dist.ReduceOp.AVG, self.group)
        return padded.chunk(self.n)[self.rank].clone()


class gathers_in_float32(RightShards):
    def gather(self, shard):
        return self.all_gather(shard, shard.detach()).to(self.compute_dtype or shard.dtype)


class keeps_shards_in_bfloat16(RightShards):
    def stored(self, own):
        return own.to(self.compute_dtype or own.dtype)


class leaves_inputs_in_float32(RightShards):
    def cast(self, value):
        return value


class shards_linear_layers_only(RightShards):
    def is_large(self, parameter):
        torchs = [child for child in self.module.modules() if type(child).__module__.startswith("torch.nn")]
        others = [child for child in torchs if not isinstance(child, nn.Linear)]
        inside = {p for child in others for p in child.parameters(recurse=False)}
        return parameter not in inside and super().is_large(parameter)


class gathers_for_forward_only(RightShards):
    def replace(self, child, name, shard):
        setattr(child, name, shard)
        child.register_forward_pre_hook(lambda *_: self.place(child, name, shard))
        child.register_forward_hook(lambda *_: self.remove(child, name, shard))

    def place(self, child, name, shard):
        del child._parameters[name]
        setattr(child, name, self.full(shard))

    def remove(self, child, name, shard):
        delattr(child, name)
        child.register_parameter(name, shard)


class keeps_frozen_parameters_whole(RightShards):
    def is_large(self, parameter):
        return parameter.requires_grad and super().is_large(parameter)


class trains_frozen_parameters(RightShards):
    def make_shard(self, parameter):
        return super().make_shard(parameter).requires_grad_(True)


class prefixes_the_state(RightShards):
    def full_state_dict(self):
        return {f"module.{name}": value for name, value in super().full_state_dict().items()}


class state_without_buffers(RightShards):
    def full_state_dict(self):
        names = dict(self.module.named_parameters(remove_duplicate=False))
        return {name: value for name, value in super().full_state_dict().items() if name in names}


class state_of_shards(RightShards):
    def full_state_dict(self):
        return {name: value.clone() for name, value in self.module.state_dict().items()}


class keeps_the_padding(RightShards):
    def full_state_dict(self):
        state = dict(self.module.state_dict())
        for name, parameter in self.module.named_parameters(remove_duplicate=False):
            if parameter in self.whole:
                parts = [torch.empty_like(parameter) for _ in range(self.n)]
                dist.all_gather(parts, parameter.detach(), group=self.group)
                state[name] = torch.cat(parts)
        return state


class drops_the_remainder(RightShards):
    def make_shard(self, parameter):
        numel = parameter.numel() // self.n
        own = parameter.detach().flatten()[self.rank * numel : (self.rank + 1) * numel].clone()
        shard = nn.Parameter(own, requires_grad=parameter.requires_grad)
        self.whole[shard] = parameter.shape
        return shard


class replaces_gradients(RightShards):
    def add(self, shard, mean):
        shard.grad = mean


class replaces_gradients_in_finish(RightShards):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.sums = {}

    def add(self, shard, mean):
        self.sums[shard] = self.sums[shard] + mean if shard in self.sums else mean

    def finish_gradient_synchronization(self):
        super().finish_gradient_synchronization()
        while self.sums:
            shard, total = self.sums.popitem()
            shard.grad = total


class gathers_at_each_look(RightShards):
    def full(self, shard):
        self.held.pop(shard, None)
        return super().full(shard)


class gathers_everything_first(RightShards):
    def forward(self, *args, **kwargs):
        with torch.autograd.graph.saved_tensors_hooks(self.pack, self.unpack):
            for shard in self.whole:
                self.full(shard)
        return super().forward(*args, **kwargs)


class averages_over_the_world(RightShards):
    def finish_gradient_synchronization(self):
        for parameter in self.small:
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad, dist.ReduceOp.AVG)


class reduces_by_broadcast(RightShards):
    def finish_gradient_synchronization(self):
        super().finish_gradient_synchronization()
        for parameter in self.small:
            dist.broadcast(parameter.data, group_src=0, group=self.group)


class forgets_to_wait(RightShards):
    def finish_gradient_synchronization(self):
        for parameter in self.small:
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad, dist.ReduceOp.AVG, self.group, async_op=True)


class keeps_whole_parameters(RightShards):
    def make_shard(self, parameter):
        self.__dict__.setdefault("originals", []).append(parameter)
        return super().make_shard(parameter)


class gathers_too_early(RightShards):
    def replace(self, child, name, shard):
        super().replace(child, name, shard)
        getattr(child, name)


class never_frees_frozen_parameters(RightShards):
    def unpacked(self, shard):
        pass

    def finish_gradient_synchronization(self):
        super().finish_gradient_synchronization()
        self.regathered.clear()


class waits_in_the_end(RightShards):
    def arrived(self, shard, gradient):
        self.regathered.pop(shard, None)
        padded = F.pad(gradient.flatten(), (0, self.n * shard.numel() - gradient.numel()))
        mean = gradient.new_empty(shard.numel())
        parts = list(padded.chunk(self.n))
        work = dist.reduce_scatter(mean, parts, dist.ReduceOp.AVG, self.group, async_op=True)
        self.waiting = [*getattr(self, "waiting", []), (shard, mean, work)]

    def finish_gradient_synchronization(self):
        for shard, mean, work in self.waiting:
            work.wait()
            self.add(shard, mean.to(shard.dtype))
        self.waiting = []
        super().finish_gradient_synchronization()


class frees_in_backward_only(RightShards):
    """Gathers what the last backward needed first, and keeps it until it is used."""

    def unpack(self, kept):
        if not isinstance(kept, torch.Tensor) and kept[0].requires_grad:
            latest, following = getattr(self, "latest", None), self.__dict__.setdefault("following", {})
            following[latest] = self.latest = kept[0]
            coming = following.get(kept[0])
            if coming is not None and coming not in self.regathered:
                self.regathered[coming] = self.gather(coming)
        return super().unpack(kept)

    def finish_gradient_synchronization(self):
        super().finish_gradient_synchronization()
        self.latest = None


class shards_empty_parameters(RightShards):
    def is_large(self, parameter):
        return parameter.numel() >= self.min_shard_numel


class forgets_second_names(RightShards):
    def replace(self, child, name, shard):
        names = child.__dict__.setdefault("replaced", {})
        if names.setdefault(shard, name) == name:
            super().replace(child, name, shard)


class casts_integers(RightShards):
    def cast(self, value):
        return (
            value.to(self.compute_dtype) if isinstance(value, torch.Tensor) and self.compute_dtype else value
        )


class casts_flags(RightShards):
    def cast(self, value):
        return value.to(self.compute_dtype) if self.compute_dtype and value.is_floating_point() else value


class wraps_torch_s(nn.Module):
    def __init__(self, module, group=None, min_shard_numel=1024, compute_dtype=None):
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        super().__init__()
        for layer in module.children():
            fully_shard(layer, mp_policy=MixedPrecisionPolicy(param_dtype=compute_dtype))
        self.module = fully_shard(module, mp_policy=MixedPrecisionPolicy(param_dtype=compute_dtype))

    def forward(self, *arguments, **keywords):
        return self.module(*arguments, **keywords)

    def finish_gradient_synchronization(self):
        pass
