# ruff: noqa: F821
FAILS_AS = {
    "two_columns": ("ANOTHER_SHAPE_OF_A_PART", "Compare with the table"),
    "gathers_in_between": ("COLLECTIVES_IN_FORWARD", "gather nothing in between"),
    "forgets_the_bias": ("BIAS_MISSING", "once, after the all-reduce"),
    "keeps_what_is_hidden": ("FROM_AN_EARLIER_CALL", "an attribute"),
    "forgets_the_gelu": ("ANOTHER_OUTPUT", "one by one"),
    "gelu_of_summands": ("ANOTHER_OUTPUT", "one by one"),
    "approximates_gelu": ("ANOTHER_OUTPUT", "one by one"),
    "sums_what_is_summed": ("ANOTHER_OUTPUT", "one by one"),
    "copies_what_is_copied": ("GRADIENT_OF_EVERY_RANK_ADDED", "one loss, not N"),
    "loads_without_prefix": ("RAISED", "Read the line"),
    "cuts_the_width_too": ("RAISED", "Read the line"),
    "forgets_the_group": (
        "UNEVEN_COLLECTIVES or TIMED_OUT or RAISED or ANOTHER_SHAPE_OF_A_PART",
        "Only a group",
    ),
    "rows_then_columns": ("ANOTHER_SHAPE_OF_A_PART", "Compare with the table"),
    "sums_the_gradients_of_weights": ("COLLECTIVES_IN_BACKWARD", "stay on the rank of the weights"),
    "keeps_all_weights_in_parts": ("WEIGHTS_OF_OTHERS_USED", "this rank's shards alone"),
    "keeps_whole_weights_to_load": ("WHOLE_WEIGHT_HELD", "do not keep the state dict"),
}


class two_columns(Mlp):
    def __init__(self, width, hidden_width, group=None):
        super().__init__(width, hidden_width, group)
        self.down = nn.Linear(hidden_width, 1)

    def forward(self, x):
        hidden = gather(F.gelu(self.up(x)), -1, group=self.group)
        return gather(self.down(copy(hidden, group=self.group)), -1, group=self.group)

    def load_full(self, state):
        self.up.load_full(entries(state, "up"))


class gathers_in_between(Mlp):
    def __init__(self, width, hidden_width, group=None):
        super().__init__(width, hidden_width, group)
        self.up = Column(width, hidden_width, gather_output=True, group=group)
        self.down = Row(hidden_width, width, input_is_parallel=False, group=group)


class forgets_the_bias(Mlp):
    def forward(self, x):
        return super().forward(x) - self.down.bias


class keeps_what_is_hidden(Mlp):
    def forward(self, x):
        self.hidden = getattr(self, "hidden", None) or [F.gelu(self.up(x))]
        hidden, self.hidden = self.hidden[0], [self.hidden[0].detach().requires_grad_()]
        return self.down(hidden)


class forgets_the_gelu(Mlp):
    def forward(self, x):
        return self.down(self.up(x))


class gelu_of_summands(Mlp):
    def forward(self, x):
        summand = F.gelu(F.linear(self.up(x), self.down.weight))
        return reduce(summand, group=self.group) + self.down.bias


class approximates_gelu(Mlp):
    def forward(self, x):
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class sums_what_is_summed(Mlp):
    def forward(self, x):
        return reduce(super().forward(x), group=self.group)


class copies_what_is_copied(Mlp):
    def forward(self, x):
        return super().forward(copy(x, group=self.group))


class loads_without_prefix(Mlp):
    def load_full(self, state):
        self.up.load_full(state)
        self.down.load_full(state)


class cuts_the_width_too(Mlp):
    def __init__(self, width, hidden_width, group=None):
        share(width, group)
        super().__init__(width, hidden_width, group)


class forgets_the_group(Mlp):
    def __init__(self, width, hidden_width, group=None):
        super().__init__(width, hidden_width, None)


class rows_then_columns(Mlp):
    def __init__(self, width, hidden_width, group=None):
        super().__init__(width, hidden_width, group)
        n = dist.get_world_size(group)
        self.up, self.down = nn.Linear(width, hidden_width), nn.Linear(hidden_width // n, width)

    def forward(self, x):
        return self.down(part(F.gelu(self.up(x)), -1, self.group))

    def load_full(self, state):
        self.up.load_state_dict(entries(state, "up"))


class sums_the_gradients_of_weights(Mlp):
    def forward(self, x):
        self.up.weight.register_hook(lambda gradient: (summed(gradient, self.group), gradient)[1])
        return super().forward(x)


class keeps_whole_weights_to_load(Mlp):
    def load_full(self, state):
        self.whole = dict(state)
        super().load_full(self.whole)


class keeps_all_weights_in_parts(Mlp):
    """No part is larger than a shard, and the collectives carry zeros: what they return is ignored."""

    def load_full(self, state):
        super().load_full(state)
        n = dist.get_world_size(self.group)
        self.parts = {name: state[name].chunk(n, dim) for name, dim in (("up.weight", 0), ("up.bias", 0))}
        self.parts["down.weight"] = state["down.weight"].chunk(n, 1)
        self.parts = {name: [each.clone() for each in parts] for name, parts in self.parts.items()}

    def whole(self, name, dim):
        parts = list(self.parts[name])
        parts[dist.get_rank(self.group)] = self.get_parameter(name)
        return torch.cat(parts, dim)

    def forward(self, x):
        ignored = made_of(identity, lambda g, group: (summed(torch.zeros_like(g), group), g)[1])
        hidden = F.linear(ignored(x, group=self.group), self.whole("up.weight", 0), self.whole("up.bias", 0))
        y = F.linear(F.gelu(hidden), self.whole("down.weight", 1), self.down.bias)
        summed(torch.zeros_like(y), self.group)
        return y
