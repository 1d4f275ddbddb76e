"""`Plan`: how a step is cut over the GPUs. It checks itself against a model; `step` says what it costs."""

from __future__ import annotations

from dataclasses import dataclass

from .cluster import PlanError
from .transformer import Transformer

RECOMPUTE = ("none", "selective", "full")
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero-bubble")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Sizes of the axes of the mesh, the batch, and what is traded for memory.

    Attributes:
        chunks: parts of the model a rank, of an interleaved schedule.
        zero: stage of ZeRO, 0 to 3.
        all_cards: whether ZeRO-3's collectives use all cards of a node; DeepSpeed's of 2021 did not.
        micro_batch, batch: sequences of a microbatch and of a step.
        overlap: whether gradients travel while the rank computes, at ZeRO 0 to 2; at 3 they do anyway.
        flash: whether attention keeps its scores on the chip.
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    chunks: int = 1
    schedule: str = "1f1b"
    zero: int = 0
    all_cards: bool = True
    sequence_parallel: bool = False
    recompute: str = "none"
    micro_batch: int = 1
    batch: int = 1
    overlap: bool = False
    flash: bool = False
    fp8: bool = False

    @property
    def gpus(self) -> int:
        return self.data * self.tensor * self.pipeline * self.context

    @property
    def microbatches(self) -> int:
        return self.batch // (self.data * self.micro_batch)

    def microbatch_tokens(self, model: Transformer) -> float:
        """Return the tokens of a microbatch that one rank has."""
        return self.micro_batch * model.sequence / self.context

    def check(self, model: Transformer) -> None:
        """Raise a PlanError unless this model can be cut so."""
        sizes = (self.data, self.tensor, self.pipeline, self.context, self.expert, self.chunks,
                 self.micro_batch, self.batch)  # fmt: skip
        if min(sizes) < 1:
            raise PlanError("the sizes of a plan, its microbatch and its batch must be at least 1")
        if self.recompute not in RECOMPUTE or self.schedule not in SCHEDULES or not 0 <= self.zero <= 3:
            raise PlanError(f"recompute is one of {RECOMPUTE}, schedule one of {SCHEDULES}, ZeRO 0 to 3")
        if self.batch % (self.data * self.micro_batch):
            raise PlanError(
                f"a batch of {self.batch} does not divide into {self.data} data-parallel ranks "
                f"with microbatches of {self.micro_batch}"
            )
        if self.pipeline * self.chunks > model.layers:
            raise PlanError(
                f"{model.layers} layers are fewer than {self.pipeline} stages x {self.chunks} chunks"
            )
        if model.heads % self.tensor:
            raise PlanError(f"{model.heads} heads do not divide into {self.tensor} tensor-parallel ranks")
        if model.experts % self.expert or (self.data * self.context) % self.expert:
            raise PlanError(
                f"{self.expert} expert-parallel ranks divide neither experts nor data-parallel ranks"
            )
