"""Modules as one process has them; those of exercise 06, cut over ranks, must equal them.

Students read them, import them into their notebook and take the names of parameters from them; checks compute
with them what the ranks together have to compute.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class DeepMLP(nn.Module):
    """Square layers, each of them followed by a GELU.

    x: (..., width), and so is what comes out.
    """

    def __init__(self, width: int, num_layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(num_layers)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = F.gelu(layer(x))
        return x


class MLP(nn.Module):
    """The MLP of a transformer layer: wider, GELU, and back.

    x: (..., width), and so is what comes out.
    """

    def __init__(self, width: int, hidden_width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden_width)
        self.down = nn.Linear(hidden_width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = F.gelu(self.up(x))
        return self.down(hidden)


class Attention(nn.Module):
    """Self-attention with several heads.

    The rows of `qkv.weight` are those of q, then of k, then of v, each of them head after head.
    x: (batch, sequence, width), and so is what comes out.
    """

    def __init__(self, width: int, num_heads: int, causal: bool = True) -> None:
        super().__init__()
        self.num_heads, self.causal = num_heads, causal
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        by_head = self.qkv(x).unflatten(-1, (3, self.num_heads, -1))
        q, k, v = by_head.permute(2, 0, 3, 1, 4)  # each: (batch, heads, sequence, width of a head)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(attended.transpose(1, 2).flatten(2))


class PreNormMLP(nn.Module):
    """The MLP of a transformer layer with the LayerNorm before it.

    x: (batch, sequence, width), and so is what comes out.
    """

    def __init__(self, width: int, hidden_width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden_width)
        self.down = nn.Linear(hidden_width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(self.norm(x))))
