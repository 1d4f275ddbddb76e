# ruff: noqa: F821
FAILS_AS = {
    "forgets_the_broadcast": ("PARAMETERS_DIFFER", "drew different weights"),
    "forgets_the_buffers": ("BUFFERS_DIFFER", "module.buffers()"),
    "shards_small_parameters": ("SMALL_PARAMETER_SHARDED", "stays whole"),
    "forgets_small_parameters": ("OWN_GRADIENT", "still has its own gradient"),
    "shards_linear_layers_only": ("NOT_SHARDED", "Only attention"),
    "forgets_second_names": ("NAMES", "Only tied parameters"),
    "gathers_in_float32": ("NOT_IN_COMPUTE_DTYPE", "Cast the shard before"),
    "leaves_inputs_in_float32": ("RAISED", "Read the line"),
    "casts_integers": ("RAISED", "Read the line"),
    "gathers_at_each_look": ("GATHERED_TWICE", "several times"),
    "never_frees": ("NOT_FREED_IN_FORWARD", "drop every reference"),
    "keeps_the_latest": ("LEFT_OVER_AFTER_THE_STEP", "Drop handles"),
    "keeps_whole_parameters": ("WHOLE_PARAMETERS_HELD", "memory of the whole"),
    "gathers_everything_first": ("ALL_AT_ONCE or NOT_FREED_IN_FORWARD", "layer"),
    "sums": ("SUMMED", "ReduceOp.AVG"),
    "all_reduces": ("MORE_ALL_REDUCED", "reduce-scatter"),
    "averages_frozen_parameters": ("MORE_ALL_REDUCED", "a frozen parameter has none"),
    "replaces_gradients": ("WRONG_SHARDED_GRADIENT", "replace nothing"),
    "gathers_without_history": ("NO_SHARDED_GRADIENT", "takes the shard"),
    "keeps_what_a_parent_reads": ("WRONG_AFTER_THE_FIRST_STEP", "belongs to a child"),
    "prefixes_the_state": ("NAMES_OF_THE_STATE", "without a prefix"),
    "state_of_shards": ("NOT_THE_WHOLE_STATE", "gathers every shard"),
    "state_by_way_of_compute_dtype": ("MASTERS_NOT_KEPT", "does not bring back"),
}


class forgets_the_broadcast(RightModule):
    def broadcast_tensors(self):
        return self.module.buffers()


class forgets_the_buffers(RightModule):
    def broadcast_tensors(self):
        return self.module.parameters()


class shards_small_parameters(RightModule):
    def is_large(self, parameter):
        return parameter.numel() > 0


class forgets_small_parameters(RightModule):
    def finish_gradient_synchronization(self):
        pass


class shards_linear_layers_only(RightModule):
    def is_large(self, parameter):
        torchs = [child for child in self.module.modules() if type(child).__module__.startswith("torch.nn")]
        others = [child for child in torchs if not isinstance(child, nn.Linear)]
        inside = {p for child in others for p in child.parameters(recurse=False)}
        return parameter not in inside and super().is_large(parameter)


class forgets_second_names(RightModule):
    def replace(self, child, name, shard):
        names = child.__dict__.setdefault("replaced", {})
        if names.setdefault(shard, name) == name:
            super().replace(child, name, shard)


class gathers_in_float32(RightModule):
    def gather(self, shard):
        return self.all_gather(shard, shard.detach()).to(self.compute_dtype or shard.dtype)


class leaves_inputs_in_float32(RightModule):
    def cast(self, value):
        return value


class casts_integers(RightModule):
    def cast(self, value):
        return (
            value.to(self.compute_dtype) if isinstance(value, torch.Tensor) and self.compute_dtype else value
        )


class gathers_at_each_look(RightModule):
    def full(self, shard):
        self.held.pop(shard, None)
        return super().full(shard)


class never_frees(RightModule):
    def after_forward(self, child, args, output):
        if child is self.module:
            self.held.clear()


class keeps_the_latest(RightModule):
    def gather(self, shard):
        whole = super().gather(shard)
        self.latest = [*getattr(self, "latest", [])[-7:], whole]
        return whole


class keeps_whole_parameters(RightModule):
    def make_shard(self, parameter):
        self.__dict__.setdefault("originals", []).append(parameter)
        return super().make_shard(parameter)


class gathers_everything_first(RightModule):
    def forward(self, *args, **kwargs):
        for shard in self.whole:
            self.full(shard)
        return super().forward(*args, **kwargs)


class sums(RightModule):
    def reduce(self, shard, gradient):
        return super().reduce(shard, gradient, dist.ReduceOp.SUM)


class all_reduces(RightModule):
    def reduce(self, shard, gradient):
        padded = F.pad(gradient.flatten(), (0, self.n * shard.numel() - gradient.numel()))
        dist.all_reduce(padded, dist.ReduceOp.AVG, self.group)
        return padded.chunk(self.n)[self.rank].clone()


class averages_frozen_parameters(RightModule):
    def finish_gradient_synchronization(self):
        for parameter in self.small:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        super().finish_gradient_synchronization()


class replaces_gradients(RightModule):
    def add(self, shard, mean):
        shard.grad = mean


class gathers_without_history(RightModule):
    def full(self, shard):
        if shard not in self.held:
            self.held[shard] = self.gather(shard)
        return self.held[shard]


class keeps_what_a_parent_reads(RightModule):
    def after_forward(self, child, args, output):
        for shard in child.parameters(recurse=False):
            self.held.pop(shard, None)


class prefixes_the_state(RightModule):
    def full_state_dict(self):
        return {f"module.{name}": value for name, value in super().full_state_dict().items()}


class state_of_shards(RightModule):
    def full_state_dict(self):
        return {name: value.clone() for name, value in self.module.state_dict().items()}


class state_by_way_of_compute_dtype(RightModule):
    def full_state_dict(self):
        state = super().full_state_dict()
        return state | {
            name: self.gather(parameter).to(parameter.dtype)
            for name, parameter in self.module.named_parameters(remove_duplicate=False)
            if parameter in self.whole
        }
