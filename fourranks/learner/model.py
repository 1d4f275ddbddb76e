"""A character transformer, small enough to be read at one sitting and trained on a laptop in a minute.

Lectures 04 to 08 train it under every strategy, so it can be cut in each direction: the rows of its batches,
its layers, which are the list of an `nn.Sequential`, and its heads and hidden units, of which each rank can
have its `share`. Nothing here communicates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Config:
    """How large a model is; the defaults give 1.3 million parameters."""

    characters: int
    width: int = 160
    heads: int = 4
    blocks: int = 4


def unchanged(x: Tensor) -> Tensor:
    """Return x: between the parts of a block that one rank has alone, nothing happens."""
    return x


class Embedding(nn.Module):
    """Turns each character and the two before it into a vector: (B, T) into (B, T, width).

    Attention alone would need many more steps to find out that neighbours matter most.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(config.characters, config.width) for _ in range(3))

    def forward(self, characters: Tensor) -> Tensor:
        length = characters.shape[1]
        shifted = (F.pad(characters, (back, 0))[:, :length] for back in range(len(self.tables)))
        return torch.stack([table(each) for table, each in zip(self.tables, shifted, strict=True)]).sum(0)


def rotated(x: Tensor) -> Tensor:
    """Turn pairs of numbers by an angle that grows with the place in the text: (B, heads, T, head_size).

    Products of two rotated vectors depend on their distance. Su and others, arXiv 2104.09864.
    """
    places, half = torch.arange(x.shape[-2], device=x.device), x.shape[-1] // 2
    angles = places[:, None] / 100 ** (torch.arange(half, device=x.device) / half)
    a, b = x.chunk(2, -1)
    return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)


class Attention(nn.Module):
    """Lets each character look back at those before it: (B, T, width) to the same, with some heads."""

    def __init__(self, width: int, heads: int, head_size: int) -> None:
        super().__init__()
        self.head_size = head_size
        # The rows of one head's q, k and v lie together, so that a share of the rows is whole heads.
        self.qkv = nn.Linear(width, heads * 3 * head_size, bias=False)
        self.out = nn.Linear(heads * head_size, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        by_head = self.qkv(x).unflatten(-1, (-1, 3, self.head_size))  # (B, T, heads, 3, head_size)
        q, k, v = by_head.transpose(1, 3).unbind(1)  # each (B, heads, T, head_size)
        seen = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
        return self.out(seen.transpose(1, 2).flatten(-2))


class MLP(nn.Module):
    """Computes on each character by itself: (B, T, width) to the same, with some hidden units."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.gelu(self.up(x))
        return self.down(hidden)


class TransformerBlock(nn.Module):
    """Attention, then an MLP, each added to what came in; whole, or the share of one of several ranks.

    A share has some of the heads and hidden units, so what its two parts return are partial sums. `enter` is
    applied to what goes into them, `leave` to what comes out: tensor parallelism puts its collectives there.
    """

    def __init__(
        self,
        config: Config,
        ranks: int = 1,
        enter: Callable[[Tensor], Tensor] = unchanged,
        leave: Callable[[Tensor], Tensor] = unchanged,
    ) -> None:
        super().__init__()
        if config.heads % ranks or config.width % config.heads:
            raise ValueError(
                f"{config.heads} heads must divide the width {config.width}, and {ranks} ranks the heads."
            )
        self.enter, self.leave = enter, leave
        self.norm_1, self.norm_2 = (nn.LayerNorm(config.width, bias=False) for _ in range(2))
        self.attention = Attention(config.width, config.heads // ranks, config.width // config.heads)
        self.mlp = MLP(config.width, 4 * config.width // ranks)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.leave(self.attention(self.enter(self.norm_1(x))))
        return x + self.leave(self.mlp(self.enter(self.norm_2(x))))


class Head(nn.Module):
    """Scores each character that may come next: (B, T, width) into (B, T, characters)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width, bias=False)
        self.scores = nn.Linear(config.width, config.characters, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(self.norm(x))


def transformer(config: Config, seed: int = 0) -> nn.Sequential:
    """Make a model, the same for the same seed: an embedding, the blocks, a head, in this order."""
    torch.manual_seed(seed)
    return nn.Sequential(
        Embedding(config),
        *(TransformerBlock(config) for _ in range(config.blocks)),
        Head(config),
    )


def layers_of(config: Config, stage: int, num_stages: int) -> range:
    """Return the layers of a pipeline stage: blocks, on the first the embedding, on the last the head."""
    blocks = config.blocks // num_stages
    begin = 1 + stage * blocks if stage else 0
    return range(begin, 1 + (stage + 1) * blocks + (stage == num_stages - 1))


def loss(scores: Tensor, targets: Tensor) -> Tensor:
    """Return the mean of -log p of the characters that came next; log(characters) is as good as guessing."""
    return F.cross_entropy(scores.flatten(0, -2), targets.flatten())


# Along which dimension ranks share a weight of a block; they all have the whole of any other parameter.
SHARED_ALONG = {"attention.qkv": 0, "attention.out": 1, "mlp.up": 0, "mlp.down": 1}


def _dimension(name: str) -> int | None:
    """Return the dimension along which ranks share a parameter, by its name in a block or a model."""
    return next((dimension for part, dimension in SHARED_ALONG.items() if f"{part}." in name), None)


def share(
    model: nn.Sequential,
    config: Config,
    rank: int,
    ranks: int,
    enter: Callable[[Tensor], Tensor] = unchanged,
    leave: Callable[[Tensor], Tensor] = unchanged,
) -> nn.Sequential:
    """Return a rank's share of a model, in its dtype: some heads and hidden units a block; the rest whole."""
    blocks = (TransformerBlock(config, ranks, enter, leave) for _ in range(config.blocks))
    shared = nn.Sequential(Embedding(config), *blocks, Head(config)).to(next(model.parameters()).dtype)
    state = {
        name: weight if (dimension := _dimension(name)) is None else weight.chunk(ranks, dimension)[rank]
        for name, weight in model.state_dict().items()
    }
    shared.load_state_dict(state)
    return shared


def joined(states: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the state of the whole model from those of all ranks' shares, in the order of ranks."""
    return {
        name: weight
        if (dimension := _dimension(name)) is None
        else torch.cat([state[name] for state in states], dimension)
        for name, weight in states[0].items()
    }
