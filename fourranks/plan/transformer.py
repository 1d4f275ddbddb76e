"""A transformer by its numbers: parameters, and those of models that many people know by name."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .cluster import PlanError


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """A decoder of equal layers.

    Attributes:
        kv_heads: heads of keys and values; 0: as many as `heads`.
        ffn: width inside the MLP; 0: 4 times `hidden`.
        gated: whether the MLP has three matrices (SwiGLU).
        experts: MLPs a layer; 1 is a dense model.
        active_experts: of them that a token goes through.
        tied: whether the first and the last matrix are one.
    """

    name: str = "model"
    layers: int
    hidden: int
    heads: int
    sequence: int = 2048
    vocabulary: int = 51200
    kv_heads: int = 0
    ffn: int = 0
    gated: bool = False
    experts: int = 1
    active_experts: int = 1
    tied: bool = True

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "sequence", "vocabulary", "experts", "active_experts"):
            if getattr(self, name) < 1:
                raise PlanError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.ffn < 0:
            raise PlanError(f"the width inside the MLP cannot be {self.ffn}")
        if self.hidden % self.heads:
            raise PlanError(f"a width of {self.hidden} does not divide into {self.heads} heads")
        if self.kv_heads < 0 or self.heads % (self.kv_heads or self.heads):
            raise PlanError(f"{self.heads} heads do not divide into {self.kv_heads} heads of keys and values")
        if self.active_experts > self.experts:
            raise PlanError(f"a token cannot go through {self.active_experts} of {self.experts} experts")

    @property
    def qkv_width(self) -> float:
        """Columns of the matrix that makes queries, keys and values."""
        return self.hidden * (1 + 2 * (self.kv_heads or self.heads) / self.heads)

    @property
    def ffn_width(self) -> int:
        return self.ffn or 4 * self.hidden

    @property
    def mlp_parameters(self) -> float:
        """Of one expert."""
        return (3 if self.gated else 2) * self.hidden * self.ffn_width

    @property
    def attention_parameters(self) -> float:
        return self.hidden * (self.qkv_width + self.hidden)

    @property
    def layer_parameters(self) -> float:
        return self.attention_parameters + self.experts * self.mlp_parameters

    @property
    def embedding_parameters(self) -> float:
        return float(self.vocabulary * self.hidden)

    @property
    def parameters(self) -> float:
        return self.layers * self.layer_parameters + (1 if self.tied else 2) * self.embedding_parameters

    def step_flops(self, sequences: int, passes: float = 3) -> float:
        """Return the FLOPs of a step, 3 passes without recompute, 4 with full recompute."""
        tokens = sequences * self.sequence
        active = self.attention_parameters + self.active_experts * self.mlp_parameters
        scores = 2 * self.sequence * self.hidden
        layers = self.layers * 2 * tokens * (active + scores)
        return passes * layers + 3 * 2 * tokens * self.embedding_parameters


def _llama(name: str, *numbers: int) -> Transformer:
    layers, hidden, heads, kv_heads, ffn = numbers
    return Transformer(
        name=name, layers=layers, hidden=hidden, heads=heads, kv_heads=kv_heads, ffn=ffn, gated=True,
        sequence=8192, vocabulary=128256, tied=False,
    )  # fmt: skip


MODELS = {
    model.name: model
    for model in (
        _llama("llama3-8b", 32, 4096, 32, 8, 14336),
        _llama("llama3-70b", 80, 8192, 64, 8, 28672),
        _llama("llama3-405b", 126, 16384, 128, 8, 53248),
        Transformer(name="gpt2-xl", layers=48, hidden=1600, heads=25, sequence=1024, vocabulary=50257),
        Transformer(name="gpt3-175b", layers=96, hidden=12288, heads=96),
        Transformer(name="gpt-22b", layers=48, hidden=6144, heads=64),
        Transformer(name="gpt-530b", layers=105, hidden=20480, heads=128),
        Transformer(name="gpt-1t", layers=128, hidden=25600, heads=160),
        Transformer(
            name="mixtral-8x7b", layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, gated=True,
            sequence=4096, vocabulary=32000, experts=8, active_experts=2, tied=False,
        ),  # fmt: skip
    )
}  # fmt: skip


def find_model(name: str) -> Transformer:
    """Find a model by its name, however it is written ("LLAMA3.1 405B" is "llama3-405b").

    Raises:
        PlanError: there is none of this name.
    """
    wanted = _plain(name)
    for known, model in MODELS.items():
        if _plain(known) == wanted:
            return model
    raise PlanError(f"there is no model {name!r}; choose one of {', '.join(MODELS)}, or give its numbers")


def _plain(name: str) -> str:
    return re.sub(r"[\s_.-]", "", re.sub(r"(?i)llama[ -]?3\.\d", "llama3", name).lower())
