# ruff: noqa: F821
FAILS_AS = {
    "hooks_its_input": ("GRADIENT_OF_OTHER_USES", "Return a new tensor"),
    "forgets_f": ("GRADIENT_OF_ONE_PART", "copy_to_ranks adds them up"),
    "applies_f_twice": ("GRADIENT_OF_EVERY_RANK_ADDED", "one loss, not N"),
    "same_shard_everywhere": ("WRONG_SHARD", "Rank r takes"),
    "deals_out_rows": ("WRONG_SHARD", "equal parts"),
    "makes_new_parameters": ("REPLACED_BY_LOAD_FULL", "parameter.copy_"),
    "keeps_views": ("WHOLE_WEIGHT_HELD", "A slice is a view"),
    "cuts_a_whole_layer": ("WHOLE_WEIGHT_MADE", "make parameters of the shard's shape from the start"),
    "copies_the_whole_first": ("WHOLE_WEIGHT_MADE", "cut the loaded tensor before"),
    "keeps_the_bias_whole": ("ANOTHER_SHAPE_OF_A_PART", "Compare with the table"),
    "loads_from_the_first_rank": ("COLLECTIVES_BEFORE_FORWARD", "without communication"),
    "never_gathers": ("ANOTHER_SHAPE_OF_A_PART", "Compare with the table"),
    "gathers_the_second_dimension": ("ANOTHER_SHAPE_OF_A_PART", "Compare with the table"),
    "sums_behind_the_gather": ("GRADIENT_OF_EVERY_RANK_ADDED", "one loss, not N"),
    "accepts_any_width": ("INDIVISIBLE_ACCEPTED", "Raise a ValueError"),
    "wraps_a_linear": ("NAMES_OF_SHARDS", "so that a state dict fits"),
    "gathers_its_weight": ("COLLECTIVES_IN_FORWARD", "Weights are never sent"),
    "cuts_for_the_world": (
        "WRONG_SHARD or RAISED or ANOTHER_SHAPE_OF_A_PART or UNEVEN_COLLECTIVES",
        "Only a group",
    ),
    "gathers_unless_told": ("ANOTHER_SHAPE_OF_A_PART", "Compare with the table"),
    "forgets_the_bias": ("ANOTHER_OUTPUT", "one by one"),
    "returns_nothing": ("WRONG_TYPE", "without `return`"),
    "returns_a_pair": ("WRONG_TYPE", "what the function returns"),
    "wraps_torch_s": ("FORBIDDEN_LIBRARY", "cell of your own"),
}


class forgets_f(Column):
    def enter(self, x):
        return x


class applies_f_twice(Column):
    def enter(self, x):
        return copy(copy(x, group=self.group), group=self.group)


class same_shard_everywhere(Column):
    def shard(self, tensor):
        return tensor.chunk(dist.get_world_size(self.group))[0]


class deals_out_rows(Column):
    def shard(self, tensor):
        return tensor[dist.get_rank(self.group) :: dist.get_world_size(self.group)]


class makes_new_parameters(Column):
    def load_full(self, state):
        for name in state:
            setattr(self, name, nn.Parameter(self.shard(state[name]).clone()))


class keeps_views(Column):
    def load_full(self, state):
        for name, parameter in self.named_parameters():
            parameter.data = self.shard(state[name])


class cuts_a_whole_layer(Column):
    def __init__(self, in_features, out_features, bias=True, gather_output=False, group=None):
        super().__init__(in_features, out_features, bias, gather_output, group)
        whole = nn.Linear(in_features, out_features)
        self.weight = nn.Parameter(self.shard(whole.weight.detach()).clone())


class copies_the_whole_first(Column):
    def shard(self, tensor):
        return super().shard(tensor.clone())


class keeps_the_bias_whole(Column):
    def __init__(self, in_features, out_features, bias=True, gather_output=False, group=None):
        super().__init__(in_features, out_features, bias, gather_output, group)
        self.bias = nn.Parameter(torch.empty(out_features)) if bias else None

    def shard(self, tensor):
        return tensor if tensor.dim() == 1 else super().shard(tensor)

    def forward(self, x):
        bias = None if self.bias is None else part(self.bias, 0, self.group)
        return self.leave(F.linear(self.enter(x), self.weight, bias))


class loads_from_the_first_rank(Column):
    def load_full(self, state):
        super().load_full(state)
        for tensor in state.values():
            dist.broadcast(tensor, group_src=0, group=self.group)


class never_gathers(Column):
    def leave(self, y):
        return y


class gathers_the_second_dimension(Column):
    def leave(self, y):
        return gather(y, 1, group=self.group) if self.gather_output else y


class sums_behind_the_gather(Column):
    def leave(self, y):
        return all_gather(y, -1, group=self.group) if self.gather_output else y


class accepts_any_width(Column):
    def own(self, size):
        return size // dist.get_world_size(self.group)


class wraps_a_linear(nn.Module):
    def __init__(self, in_features, out_features, bias=True, gather_output=False, group=None):
        super().__init__()
        self.linear = Column(in_features, out_features, bias, gather_output, group)

    def forward(self, x):
        return self.linear(x)

    def load_full(self, state):
        self.linear.load_full(state)


class gathers_its_weight(Column):
    def forward(self, x):
        together(self.weight.detach(), 0, self.group)
        return super().forward(x)


class cuts_for_the_world(Column):
    def shard(self, tensor):
        return part(tensor, 0, None)


class returns_nothing(Column):
    def forward(self, x):
        super().forward(x)


class returns_a_pair(Column):
    def forward(self, x):
        return super().forward(x), self.bias


class forgets_the_bias(Column):
    def forward(self, x):
        return self.leave(F.linear(self.enter(x), self.weight))


class wraps_torch_s(nn.Module):
    def __init__(self, in_features, out_features, bias=True, gather_output=False, group=None):
        from torch.distributed.tensor import DeviceMesh, parallel

        super().__init__()
        mesh = DeviceMesh.from_group(group or dist.group.WORLD, "cpu")
        linear = nn.Linear(in_features, out_features, bias)
        self.linear = parallel.parallelize_module(linear, mesh, parallel.ColwiseParallel())

    def forward(self, x):
        return self.linear(x)


class hooks_its_input(Column):
    def enter(self, x):
        x.register_hook(lambda gradient: summed(gradient, self.group))
        return x


class gathers_unless_told(Column):
    def __init__(self, in_features, out_features, bias=True, gather_output=True, group=None):
        super().__init__(in_features, out_features, bias, gather_output, group)
