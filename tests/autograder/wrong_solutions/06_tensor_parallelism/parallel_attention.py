# ruff: noqa: F821
FAILS_AS = {
    "cuts_qkv_as_one": ("CUT_ACROSS_HEADS", "every rank takes its heads"),
    "takes_every_nth_head": ("WRONG_SHARD", "equal parts along that dimension"),
    "uses_all_heads": ("ANOTHER_OUTPUT", "one by one"),
    "forgets_causal": ("ANOTHER_OUTPUT", "Only causal attention goes wrong"),
    "always_causal": ("ANOTHER_OUTPUT", "Only attention with causal=False"),
    "scales_by_the_width": ("ANOTHER_OUTPUT", "scaled by its own width"),
    "copies_for_q_k_and_v": ("COLLECTIVES_IN_BACKWARD", "applied to it once"),
    "accepts_any_number_of_heads": ("INDIVISIBLE_ACCEPTED", "Raise a ValueError"),
    "reorders_the_whole": ("WHOLE_WEIGHT_MADE", "cut the loaded tensor before"),
    "projects_parts_apart": ("PARTIAL_OUTPUT", "Where are the partial sums added up"),
    "puts_heads_in_the_sequence": ("ANOTHER_OUTPUT", "several heads"),
    "attends_with_copied_x": ("GRADIENT_OF_EVERY_RANK_ADDED", "one loss, not N"),
    "sees_later_tokens_unless_told": ("ANOTHER_OUTPUT", "one by one"),
    "keeps_its_first_mask": ("FROM_AN_EARLIER_CALL", "an attribute"),
    "gathers_heads": ("COLLECTIVES_IN_FORWARD", "one layer's output is the next one's input"),
}


class Attending(nn.Module):
    """A right ParallelAttention whose parts can be replaced one by one."""

    def __init__(self, width, num_heads, causal=True, group=None):
        super().__init__()
        self.causal, self.group, self.num_heads = causal, group, self.own(num_heads, group)
        self.qkv = Column(width, 3 * width, group=group)
        self.out = Row(width, width, group=group)

    def own(self, num_heads, group):
        return share(num_heads, group)

    def q_k_v(self, x):
        return self.qkv(x)

    def attend(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)

    def forward(self, x):
        q, k, v = self.q_k_v(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        return self.project(self.attend(q, k, v).transpose(1, 2).flatten(2))

    def project(self, attended):
        return self.out(attended)

    def shard(self, tensor):
        return part(tensor.unflatten(0, (3, -1)), 1, self.group).flatten(0, 1)

    def load_full(self, state):
        with torch.no_grad():
            for name, parameter in self.qkv.named_parameters():
                parameter.copy_(self.shard(state[f"qkv.{name}"]))
        self.out.load_full(entries(state, "out"))


class MasksByABuffer(Attending):
    """Right, too: the mask is larger than any weight."""

    def __init__(self, width, num_heads, causal=True, group=None):
        super().__init__(width, num_heads, causal, group)
        self.register_buffer("mask", torch.tril(torch.ones(64, 64)), persistent=False)

    def attend(self, q, k, v):
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if self.causal:
            scores = scores.masked_fill(self.mask[: q.shape[2], : q.shape[2]] == 0, -torch.inf)
        return scores.softmax(-1) @ v


class cuts_qkv_as_one(Attending):
    def shard(self, tensor):
        return part(tensor, 0, self.group)


class takes_every_nth_head(Attending):
    def shard(self, tensor):
        n = dist.get_world_size(self.group)
        by_head = tensor.unflatten(0, (3, self.num_heads * n, -1))
        return by_head[:, dist.get_rank(self.group) :: n].flatten(0, 2)


class uses_all_heads(Attending):
    def own(self, num_heads, group):
        share(num_heads, group)
        return num_heads


class forgets_causal(Attending):
    def attend(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v)


class always_causal(Attending):
    def attend(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class scales_by_the_width(Attending):
    def attend(self, q, k, v):
        scale = (q.shape[-1] * self.num_heads) ** -0.5
        return F.scaled_dot_product_attention(q, k, v, is_causal=self.causal, scale=scale)


class copies_for_q_k_and_v(Attending):
    def q_k_v(self, x):
        weights, biases = self.qkv.weight.chunk(3), self.qkv.bias.chunk(3)
        own = [F.linear(copy(x, group=self.group), *each) for each in zip(weights, biases, strict=True)]
        return torch.cat(own, -1)


class accepts_any_number_of_heads(Attending):
    def own(self, num_heads, group):
        return max(1, num_heads // dist.get_world_size(group))


class reorders_the_whole(Attending):
    def shard(self, tensor):
        n = dist.get_world_size(self.group)
        by_rank = tensor.unflatten(0, (3, n, -1)).transpose(0, 1).flatten(0, 2)
        return part(by_rank, 0, self.group)


class projects_parts_apart(Attending):
    def project(self, attended):
        own = F.linear(attended, self.out.weight)
        return own if dist.get_rank(self.group) else own + self.out.bias


class puts_heads_in_the_sequence(Attending):
    def forward(self, x):
        q, k, v = self.q_k_v(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        return self.project(self.attend(q, k, v).reshape(*x.shape[:2], -1))


class attends_with_copied_x(Attending):
    def forward(self, x):
        return super().forward(copy(x, group=self.group))


class keeps_its_first_mask(Attending):
    mask = None

    def attend(self, q, k, v):
        if self.mask is None:
            self.mask = torch.tril(torch.ones(q.shape[2], q.shape[2], dtype=torch.bool))
        return F.scaled_dot_product_attention(q, k, v, self.mask if self.causal else None)


class gathers_heads(Attending):
    def project(self, attended):
        return self.out(scatter(gather(attended, -1, group=self.group), -1, group=self.group))


class sees_later_tokens_unless_told(Attending):
    def __init__(self, width, num_heads, causal=False, group=None):
        super().__init__(width, num_heads, causal, group)
