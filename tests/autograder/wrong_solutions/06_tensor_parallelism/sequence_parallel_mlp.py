# ruff: noqa: F821
FAILS_AS = {
    "forgets_the_gradients_of_the_norm": ("GRADIENT_OF_ONE_PART", "every rank uses this tensor"),
    "forgets_the_gradient_of_the_bias": ("GRADIENT_OF_ONE_PART", "every rank uses this tensor"),
    "adds_the_bias_to_summands": ("BIAS_ADDED_BY_EVERY_RANK", "after the sum"),
    "sums_for_everybody": ("BYTES_IN_FORWARD", "a reduce-scatter"),
    "gathers_for_all_alike": ("WRONG_PART_OF_A_GRADIENT", "have to be added up"),
    "hands_on_all_tokens": ("ANOTHER_SHAPE_OF_A_PART", "Compare with the table"),
    "copies_gathered_tokens": ("GRADIENT_OF_EVERY_RANK_ADDED", "one loss, not N"),
    "cuts_gradients": ("WRONG_PART_OF_A_GRADIENT", "replicated gradients must not be"),
    "forgets_the_norm": ("ANOTHER_OUTPUT", "one by one"),
    "accepts_any_hidden_width": ("INDIVISIBLE_ACCEPTED", "Raise a ValueError"),
    "gathers_again": ("COLLECTIVES_IN_FORWARD", "gather nothing in between"),
    "copies_each_use": ("COLLECTIVES_IN_BACKWARD", "mirrors"),
}


class Sequence(nn.Module):
    """A right SequenceParallelMLP whose parts can be replaced one by one."""

    def __init__(self, width, hidden_width, group=None):
        super().__init__()
        self.group = group
        self.norm = nn.LayerNorm(width)
        self.up, self.down = self.layers(width, hidden_width, group)

    def layers(self, width, hidden_width, group):
        return Column(width, hidden_width, group=group), Row(hidden_width, width, group=group)

    def whole(self, parameter):
        return copy(parameter, group=self.group)

    def normalized(self, x):
        weight, bias = self.whole(self.norm.weight), self.whole(self.norm.bias)
        return F.layer_norm(x, self.norm.normalized_shape, weight, bias)

    def tokens(self, x):
        return all_gather(x, 1, group=self.group)

    def own(self, y):
        return reduce_scatter(y, 1, group=self.group)

    def hidden(self, tokens):
        return F.gelu(F.linear(tokens, self.up.weight, self.up.bias))

    def add_bias(self, y):
        return y + self.whole(self.down.bias)

    def forward(self, x):
        hidden = self.hidden(self.tokens(self.normalized(x)))
        return self.add_bias(self.own(F.linear(hidden, self.down.weight)))

    def load_full(self, state):
        self.norm.load_state_dict(entries(state, "norm"))
        self.up.load_full(entries(state, "up"))
        self.down.load_full(entries(state, "down"))


class forgets_the_gradients_of_the_norm(Sequence):
    def normalized(self, x):
        return self.norm(x)


class forgets_the_gradient_of_the_bias(Sequence):
    def add_bias(self, y):
        return y + self.down.bias


class adds_the_bias_to_summands(Sequence):
    def own(self, y):
        return super().own(y + self.down.bias)

    def add_bias(self, y):
        return y


class sums_for_everybody(Sequence):
    def own(self, y):
        return scatter(reduce(y, group=self.group), 1, group=self.group)


class gathers_for_all_alike(Sequence):
    def tokens(self, x):
        return gather(x, 1, group=self.group)


class hands_on_all_tokens(Sequence):
    def own(self, y):
        return reduce(y, group=self.group)


class copies_gathered_tokens(Sequence):
    def hidden(self, tokens):
        return F.gelu(self.up(tokens))


class cuts_gradients(Sequence):
    def own(self, y):
        def padded(gradient, dim, group):
            parts = [torch.zeros_like(gradient) for _ in range(dist.get_world_size(group))]
            parts[dist.get_rank(group)] = gradient
            return torch.cat(parts, dim)

        return made_of(part_of_sum, padded)(y, 1, group=self.group)


class forgets_the_norm(Sequence):
    def normalized(self, x):
        return x


class accepts_any_hidden_width(Sequence):
    def layers(self, width, hidden_width, group):
        hidden_width -= hidden_width % dist.get_world_size(group)
        return super().layers(width, hidden_width, group)


class gathers_again(Sequence):
    def tokens(self, x):
        together(x.detach(), 1, self.group)
        return super().tokens(x)


class copies_each_use(Sequence):
    def whole(self, parameter):
        return copy(parameter / 2, group=self.group) + copy(parameter / 2, group=self.group)
