"""Check of exercise 08's stretch: attention over a sequence that is cut over a ring of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch.nn import functional as F

from autograder.inside.drivers import ring_attention as drivers
from autograder.inside.drivers.ring_attention import Attended
from autograder.kit.case import again
from autograder.kit.check import Cases, Code, check
from autograder.kit.mistakes import Mistake
from autograder.kit.problem import Problem
from autograder.kit.received import POINT_TO_POINT, named
from autograder.kit.settings import WORLD_SIZES, Setting, settings
from autograder.kit.stretches import stretches
from autograder.kit.student import Outcome
from autograder.kit.values import close, kind_of
from autograder.topics.collectives.budget import unwaited
from autograder.topics.three_d_parallelism import mistakes
from autograder.topics.three_d_parallelism.banned import BANNED
from autograder.topics.three_d_parallelism.trials import RingTrial, differing, modified
from fourranks.naming import counted

TOLERANCE = 1e-9  # of float64: the blocks of a softmax may be added up in any order
FLOAT32 = 1e-5  # for values that were rounded to float32 on their way
HEADS, TOKENS, WIDTH = 2, 3, 8  # tokens of one rank; the root of the width is not its half


@check(banned=BANNED)
def ring_attention(code: Code, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0) -> Cases:
    """Check `ring_attention`: output and gradients of one process's attention, one block at a time."""
    for setting in settings(world_sizes, seed):
        all_keys = _trial(setting, "all keys", False, 1, 1.0)
        causal = _trial(setting, "causal", None, 2, 1.0)
        yield from (all_keys, causal, again(causal, all_keys))
        yield _trial(setting, "causal, large scores", True, 1, 1000.0)  # exp of most differences is infinite


@dataclass(frozen=True)
class _Whole:
    """The whole sequence on one process, and what has to come of it, rank after rank."""

    qkv: list[torch.Tensor]
    cotangent: torch.Tensor
    causal: bool
    num_ranks: int

    def parts(self, tensor: torch.Tensor) -> Sequence[torch.Tensor]:
        return [part.contiguous() for part in tensor.chunk(self.num_ranks, dim=2)]

    def attended(self, causal: bool) -> torch.Tensor:
        return _attention(self.qkv, causal)

    def gradients(self) -> list[torch.Tensor]:
        leaves = [tensor.clone().requires_grad_() for tensor in self.qkv]
        _attention(leaves, self.causal).backward(self.cotangent)
        return [leaf.grad for leaf in leaves if leaf.grad is not None]

    def of_own_blocks(self) -> Sequence[torch.Tensor]:
        """Return what each rank's output would be without the others' keys."""
        blocks = zip(*map(self.parts, self.qkv), strict=True)
        return [_attention(each, self.causal) for each in blocks]

    def averaged(self) -> Sequence[torch.Tensor]:
        """Return the mean of what each block alone would give."""
        q, k, v = map(self.parts, self.qkv)
        pairs = list(zip(k, v, strict=True))
        alone = [torch.stack([_attention((own, *pair), False) for pair in pairs]) for own in q]
        return [each.mean(0) for each in alone]

    def wrong_output(self, position: int, where: str, outcome: Outcome) -> Problem | None:
        seen: Attended = outcome.value
        want = self.parts(self.attended(self.causal))[position]
        if not isinstance(seen.output, torch.Tensor) or kind_of(seen.output) != kind_of(want):
            return Problem(mistakes.NO_OUTPUT, f"{where}: {kind_of(want)}", kind_of(seen.output))
        if not close(seen.output, want, TOLERANCE):
            mistake = self._mistake(position, want, seen.output)
            return differing(mistake, f"{where}, output", want, seen.output)
        if not seen.differentiable:
            return Problem(mistakes.ATTENTION_CUT, f"{where}: an output with a grad_fn", "one without")
        return None

    def _mistake(self, position: int, want: torch.Tensor, got: torch.Tensor) -> Mistake:
        if not got.isfinite().all():
            return mistakes.ATTENTION_NOT_FINITE
        if close(got, want, FLOAT32):
            return mistakes.ROUNDED_ATTENTION
        usual = {
            mistakes.OWN_BLOCK_ONLY: self.of_own_blocks(),
            mistakes.MASK_OF_THE_BLOCK: self.parts(self.attended(not self.causal)),
            mistakes.BLOCKS_AVERAGED: self.averaged(),
        }
        made = (mistake for mistake, parts in usual.items() if close(got, parts[position], TOLERANCE))
        return next(made, mistakes.WRONG_ATTENTION)

    def wrong_gradient(self, position: int, where: str, outcome: Outcome) -> Problem | None:
        for name, got, whole in zip("qkv", outcome.value.gradients, self.gradients(), strict=True):
            want = self.parts(whole)[position]
            if got is None or kind_of(got) != kind_of(want):
                return Problem(mistakes.ATTENTION_CUT, f"{where}, {name}.grad: {kind_of(want)}", kind_of(got))
            if not close(got, want, TOLERANCE):
                return differing(mistakes.WRONG_RING_GRADIENT, f"{where}, {name}.grad", want, got)
        return None

    def changed(self, position: int, where: str, outcome: Outcome) -> Problem | None:
        own = [self.parts(tensor)[position] for tensor in self.qkv]
        return modified(dict(zip("qkv", own, strict=True)), outcome.value.qkv, where)

    def too_large(self, position: int, where: str, outcome: Outcome) -> Problem | None:
        k = self.parts(self.qkv[1])[0]
        batch, heads, tokens, _ = k.shape
        most = max(2 * k.numel(), batch * heads * tokens * tokens)
        if outcome.value.largest <= most or self.num_ranks == 1:
            return None
        expected = f"{where}: tensors of at most {most:,} elements"
        return Problem(mistakes.WHOLE_SEQUENCE_HELD, expected, f"one of {outcome.value.largest:,}")

    def too_much_sent(
        self, ring: Sequence[int], position: int, where: str, outcome: Outcome
    ) -> Problem | None:
        calls = [call for call in outcome.calls if call.moves_data]
        following = ring[(position + 1) % len(ring)]
        for call in calls:
            if call.op not in POINT_TO_POINT:
                return Problem(mistakes.RING_COLLECTIVE, f"{where}: messages to a neighbour", named(call))
        (step,) = stretches(outcome, "began", 1)
        turned, block = step.at("turned"), 2 * self.parts(self.qkv[1])[0].nbytes
        n = len(ring)
        for name, sends, blocks in (
            ("forward", [c for c in calls if c.op == "send" and c.start <= turned], n - 1),
            ("backward", [c for c in calls if c.op == "send" and c.start > turned], 2 * n - 1),
        ):
            if name == "forward" and any(call.peer != following for call in sends):
                expected = f"{where}: messages to rank {following} only"
                return Problem(mistakes.RING_COLLECTIVE, expected, named(sends[0]))
            nbytes = sum(call.nbytes for call in sends)
            if nbytes > blocks * block:
                expected = f"{where}, {name}: {counted(blocks * block, 'byte')}"
                return Problem(mistakes.RING_BYTES, expected, f"{nbytes:,}")
        return unwaited([outcome.calls])


def _attention(qkv: Sequence[torch.Tensor], causal: bool) -> torch.Tensor:
    q, k, v = qkv
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def _trial(setting: Setting, what: str, causal: bool | None, batch: int, scale: float) -> RingTrial:
    num_ranks = len(setting.ranks)
    shape = (batch, HEADS, TOKENS * num_ranks, WIDTH)
    q, k, v, cotangent = (setting.draws.randn(shape, torch.float64) for _ in range(4))
    whole = _Whole([scale * q, k, v], cotangent, causal is not False, num_ranks)
    parts = [whole.parts(tensor) for tensor in (*whole.qkv, cotangent)]
    block = 2 * parts[1][0].nbytes
    return setting.trial(
        what,
        drivers.attend,
        lambda at, _: ([part[at] for part in parts[:3]], parts[3][at], causal),
        whole.wrong_output,
        whole.wrong_gradient,
        whole.changed,
        whole.too_large,
        partial(whole.too_much_sent, setting.ranks),
        kind=RingTrial,
        received=lambda _: (num_ranks - 1) * block,
        masked=causal is not False,
        size=2 * num_ranks + (causal is False),  # a failure without a mask is easier to explain
    )
