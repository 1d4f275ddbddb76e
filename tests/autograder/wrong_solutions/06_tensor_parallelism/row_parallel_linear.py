# ruff: noqa: F821
FAILS_AS = {
    "adds_the_bias_on_every_rank": ("BIAS_ADDED_BY_EVERY_RANK", "after the sum"),
    "adds_a_share_of_the_bias": ("SHARE_OF_THE_BIAS_ADDED", "divides its gradient"),
    "adds_the_bias_on_one_rank": ("NO_GRADIENT_OF_A_PART", "None"),
    "forgets_the_sum": ("PARTIAL_OUTPUT", "Where are the partial sums added up"),
    "sums_the_gradient_too": ("GRADIENT_OF_EVERY_RANK_ADDED", "one loss, not N"),
    "cuts_the_bias": ("ANOTHER_SHAPE_OF_A_PART", "Compare with the table"),
    "cuts_its_input_plainly": ("GRADIENT_OF_ONE_PART", "scatter_to_ranks cuts it"),
    "copies_its_parts": ("WRONG_PART_OF_A_GRADIENT", "The output is right"),
    "keeps_the_state_dict": ("WHOLE_WEIGHT_HELD", "do not keep the state dict"),
    "takes_the_bias_itself": ("SHARED_WITH_THE_STATE_DICT", "Copy into the parameter"),
    "transposes_the_whole": ("WHOLE_WEIGHT_MADE", "transpose"),
    "accepts_any_input": ("INDIVISIBLE_ACCEPTED", "Raise a ValueError"),
    "same_columns_everywhere": ("WRONG_SHARD", "Which dimension is sharded"),
    "sums_at_the_first": ("COLLECTIVES_IN_FORWARD", "gather nothing in between"),
    "sums_over_the_world": ("UNEVEN_COLLECTIVES or TIMED_OUT", "Only a group"),
    "cuts_unless_told": ("RAISED", "Read the line"),
    "bias_comes_twice": ("ANOTHER_OUTPUT", "one by one"),
}


class adds_the_bias_on_every_rank(Row):
    def forward(self, x):
        return self.sum(F.linear(self.enter(x), self.weight, self.bias))


class adds_a_share_of_the_bias(Row):
    def forward(self, x):
        y = F.linear(self.enter(x), self.weight)
        return self.sum(y if self.bias is None else y + self.bias / dist.get_world_size(self.group))


class adds_the_bias_on_one_rank(Row):
    def forward(self, x):
        y = F.linear(self.enter(x), self.weight)
        return self.sum(y if self.bias is None or dist.get_rank(self.group) else y + self.bias)


class forgets_the_sum(Row):
    def sum(self, y):
        return y


class sums_the_gradient_too(Row):
    def sum(self, y):
        return made_of(summed, summed)(y, group=self.group)


class cuts_the_bias(Row):
    def __init__(self, in_features, out_features, bias=True, input_is_parallel=True, group=None):
        super().__init__(in_features, out_features, bias, input_is_parallel, group)
        self.bias = nn.Parameter(torch.empty(1)) if bias else None

    def load_full(self, state):
        with torch.no_grad():
            self.weight.copy_(part(state["weight"], 1, self.group))
            if self.bias is not None:
                self.bias.copy_(state["bias"][:1])


class cuts_its_input_plainly(Row):
    def enter(self, x):
        return x if self.input_is_parallel else part(x, -1, self.group)


class copies_its_parts(Row):
    def enter(self, x):
        return copy(super().enter(x), group=self.group)


class keeps_the_state_dict(Row):
    def load_full(self, state):
        super().load_full(state)
        self.state = state


class takes_the_bias_itself(Row):
    def load_full(self, state):
        super().load_full(state)
        if self.bias is not None:
            self.bias.data = state["bias"]


class transposes_the_whole(Row):
    def load_full(self, state):
        turned = state | {"weight": state["weight"].t().contiguous().t()}
        super().load_full(turned)


class accepts_any_input(Row):
    def own(self, size):
        return size // dist.get_world_size(self.group)


class same_columns_everywhere(Row):
    def load_full(self, state):
        super().load_full(state)
        with torch.no_grad():
            self.weight.copy_(state["weight"].chunk(dist.get_world_size(self.group), 1)[0])


class sums_at_the_first(Row):
    def sum(self, y):
        def to_first_and_back(x, group):
            total = x.clone()
            dist.reduce(total, group_dst=0, group=group)
            dist.broadcast(total, group_src=0, group=group)
            return total

        return made_of(to_first_and_back, identity)(y, group=self.group)


class sums_over_the_world(Row):
    def sum(self, y):
        return reduce(y)


class bias_comes_twice(Row):
    def add_bias(self, y):
        return super().add_bias(super().add_bias(super().add_bias(super().add_bias(y))))


class cuts_unless_told(Row):
    def __init__(self, in_features, out_features, bias=True, input_is_parallel=False, group=None):
        super().__init__(in_features, out_features, bias, input_is_parallel, group)
