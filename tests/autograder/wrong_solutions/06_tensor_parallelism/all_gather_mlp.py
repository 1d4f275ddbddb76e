# ruff: noqa: F821
FAILS_AS = {
    "all_reduces_between_layers": ("BYTES_IN_BACKWARD", "half the bytes"),
    "takes_its_part_of_gradients": ("WRONG_PART_OF_A_GRADIENT", "have to be added up"),
    "gathers_without_gradients": ("NO_GRADIENT_OF_A_PART", "Which step has no backward"),
    "forgets_the_last_gelu": ("ANOTHER_OUTPUT", "one by one"),
    "same_rows_everywhere": ("WRONG_SHARD", "Rank r takes"),
    "sums_at_the_end_too": ("GRADIENT_OF_EVERY_RANK_ADDED", "one loss, not N"),
    "makes_a_whole_mlp": ("WHOLE_WEIGHT_MADE", "shard's shape from the start"),
    "forgets_the_first_copy": ("GRADIENT_OF_ONE_PART", "copy_to_ranks adds them up"),
    "accepts_any_layers": ("INDIVISIBLE_ACCEPTED", "Raise a ValueError"),
    "returns_its_part": ("ANOTHER_SHAPE_OF_A_PART", "Compare with the table"),
    "gathers_everything_twice": ("COLLECTIVES_IN_FORWARD", "gather nothing in between"),
    "shares_one_layer": ("NAMES_OF_SHARDS", "named as the whole parameter"),
}


class Gathering(nn.Module):
    """A right AllGatherMLP whose parts can be replaced one by one."""

    def __init__(self, width, num_layers, group=None):
        super().__init__()
        self.group = group
        own = self.own(width)
        self.layers = nn.ModuleList([nn.Linear(width, own) for _ in range(num_layers)])

    def own(self, width):
        return share(width, self.group)

    def enter(self, x):
        return copy(x, group=self.group)

    def between(self, x):
        return all_gather(x, -1, group=self.group)

    def leave(self, x):
        return gather(x, -1, group=self.group)

    def activate(self, x, layer):
        return F.gelu(x)

    def forward(self, x):
        x = self.enter(x)
        for layer in self.layers[:-1]:
            x = self.between(self.activate(layer(x), layer))
        return self.leave(self.activate(self.layers[-1](x), self.layers[-1]))

    def shard(self, tensor):
        return part(tensor, 0, self.group)

    def load_full(self, state):
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                parameter.copy_(self.shard(state[name]))


class GathersBeforeGelu(Gathering):
    """Right, too: GELU takes each element by itself."""

    def forward(self, x):
        x = self.enter(x)
        for layer in self.layers[:-1]:
            x = F.gelu(self.between(layer(x)))
        return F.gelu(self.leave(self.layers[-1](x)))


class all_reduces_between_layers(Gathering):
    def between(self, x):
        return copy(gather(x, -1, group=self.group), group=self.group)


class takes_its_part_of_gradients(Gathering):
    def between(self, x):
        return gather(x, -1, group=self.group)


class gathers_without_gradients(Gathering):
    def between(self, x):
        return together(x.detach(), -1, self.group)


class forgets_the_last_gelu(Gathering):
    def activate(self, x, layer):
        return x if layer is self.layers[-1] else F.gelu(x)


class same_rows_everywhere(Gathering):
    def shard(self, tensor):
        return tensor.chunk(dist.get_world_size(self.group))[0]


class sums_at_the_end_too(Gathering):
    def leave(self, x):
        return all_gather(x, -1, group=self.group)


class makes_a_whole_mlp(Gathering):
    def __init__(self, width, num_layers, group=None):
        super().__init__(width, num_layers, group)
        whole = nn.Linear(width, width)
        self.layers[0].weight = nn.Parameter(self.shard(whole.weight.detach()).clone())


class forgets_the_first_copy(Gathering):
    def enter(self, x):
        return x


class accepts_any_layers(Gathering):
    def own(self, width):
        return width // dist.get_world_size(self.group)


class returns_its_part(Gathering):
    def leave(self, x):
        return x


class gathers_everything_twice(Gathering):
    def leave(self, x):
        together(x.detach(), -1, self.group)
        return super().leave(x)


class shares_one_layer(Gathering):
    def __init__(self, width, num_layers, group=None):
        super().__init__(width, num_layers, group)
        self.layers = nn.ModuleList([self.layers[0]] * num_layers)
