"""Check of exercise 05's `ShardedParameter`: one parameter is gathered, freed and reduced."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from autograder.inside.drivers import sharded_parameters as drivers
from autograder.inside.reports import as_many
from autograder.kit.check import Cases, Code, check
from autograder.kit.mistakes import Mistake
from autograder.kit.problem import Problem, first
from autograder.kit.received import not_waited_for
from autograder.kit.settings import WORLD_SIZES, Setting, settings
from autograder.kit.stretches import Stretch, stretches
from autograder.kit.student import Outcome
from autograder.kit.values import close, difference_beyond, dtype_name, kind_of, same
from autograder.topics.data_parallelism.training import TrainingTrial
from autograder.topics.sharded_data_parallelism import mistakes, shard_traffic, trials
from autograder.topics.sharded_data_parallelism.banned import BANNED
from autograder.topics.sharded_data_parallelism.shard_traffic import GATHERS, REDUCES
from fourranks.naming import counted

_ROUNDED_UP = 512  # bytes that a GPU's allocator may add to a tensor
_TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 0.02}


@dataclass(frozen=True)
class _KindOfParameter:
    """A parameter, and how it is sharded."""

    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    compute_dtype: str | None = None
    frozen: bool = False

    @property
    def used_in(self) -> torch.dtype:
        """The dtype that it is gathered, and its gradients reduced in."""
        return getattr(torch, self.compute_dtype) if self.compute_dtype else self.dtype

    def __str__(self) -> str:
        dtype = f", compute_dtype {self.compute_dtype}" if self.compute_dtype else ""
        frozen = "a frozen parameter" if self.frozen else "a parameter"
        return f"{frozen} of shape {self.shape}, {dtype_name(self.dtype)}{dtype}"


KINDS = (
    _KindOfParameter((40, 30)),
    _KindOfParameter((37, 29), compute_dtype="bfloat16"),
    _KindOfParameter((7,), torch.float64),
    _KindOfParameter(()),
    _KindOfParameter((3, 5, 11), frozen=True),
)


@check("ShardedParameter", banned=BANNED)
def sharded_parameter(code: Code, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0) -> Cases:
    """Check `ShardedParameter`: its memory, its gathers and reductions, for several sizes and dtypes."""
    for setting in settings(world_sizes, seed):
        for kind in KINDS[:2] if setting.members else KINDS:
            yield _trial(setting, kind)


def _trial(setting: Setting, kind: _KindOfParameter) -> TrainingTrial:
    ranks = len(setting.ranks)
    whole = setting.draws.randn(kind.shape, kind.dtype)
    gradients = [setting.draws.randn(kind.shape, kind.used_in) for _ in range(drivers.REDUCED[-1] * ranks)]
    own = [gradients[at::ranks] for at in range(ranks)]
    run = _ParameterRun(kind, whole, own)
    return setting.trial(
        str(kind),
        drivers.come_and_go,
        lambda at, _: (whole, own[at], {"compute_dtype": kind.compute_dtype}, kind.frozen),
        run.held,
        run.waits,
        run.values,
        run.traffic,
        run.memory,
        kind=trials.Sharding,
        size=math.prod(kind.shape),
        received=lambda _: max(0, whole.numel() - run.shard_numel) * kind.used_in.itemsize,
    )


@dataclass(frozen=True)
class _ParameterRun:
    """A parameter's way through the driver, and what must come of it on each rank."""

    kind: _KindOfParameter
    whole: torch.Tensor
    gradients: Sequence[Sequence[torch.Tensor]]  # of each rank, one after another

    @property
    def num_ranks(self) -> int:
        return len(self.gradients)

    @property
    def shard_numel(self) -> int:
        return -(-self.whole.numel() // self.num_ranks)

    def part(self, tensor: torch.Tensor, at: int) -> torch.Tensor:
        """Return the shard of a whole tensor at this position."""
        missing = self.num_ranks * self.shard_numel - tensor.numel()
        return F.pad(tensor.flatten(), (0, missing))[at * self.shard_numel :][: self.shard_numel]

    def mean(self, number: int) -> torch.Tensor:
        """Return the mean over the ranks of the first gradients, added up, in the parameter's own dtype."""
        means = [torch.stack(own).double().mean(0) for own in zip(*self.gradients, strict=True)]
        return sum(means[:number], torch.zeros_like(means[0])).to(self.kind.dtype)

    def held(self, at: int, where: str, outcome: Outcome) -> Problem | None:
        """Find what a rank keeps that is not its shard."""
        found: drivers.ComeAndGo = outcome.value
        if not found.is_parameter or found.trained is self.kind.frozen:
            got = f"requires_grad={found.trained}" if found.is_parameter else "something else"
            return Problem(mistakes.NO_PARAMETER, f"{where}: an nn.Parameter in .shard", got)
        want = self.part(self.whole, at)
        return self._other(want, found.shard, mistakes.ANOTHER_SHARD, f"{where}, .shard")

    def waits(self, at: int, where: str, outcome: Outcome) -> Problem | None:
        """Find a handle without its wait(), which is reason enough for any wrong value."""
        return not_waited_for(outcome.calls, where)

    def values(self, at: int, where: str, outcome: Outcome) -> Problem | None:
        """Find what a rank gathers or reduces that is not what it should be."""
        found: drivers.ComeAndGo = outcome.value
        used, changed = self.whole.to(self.kind.used_in), self.whole + drivers.CHANGE
        return (
            self._other(used, found.gathered, mistakes.ANOTHER_WHOLE, f"{where}, gathered()")
            or self._other(
                changed.to(self.kind.used_in),
                found.gathered_again,
                mistakes.OLD_VALUES,
                f"{where}, gathered() after free() and a step of an optimizer",
            )
            or self._other(changed, found.full, mistakes.ANOTHER_WHOLE, f"{where}, full()")
            or self._other(
                changed + drivers.CHANGE,
                found.full_again,
                mistakes.OLD_VALUES,
                f"{where}, full() after another step of an optimizer",
            )
            or first(
                self._other_gradient(at, number, gradient, where)
                for number, gradient in zip(
                    drivers.REDUCED, as_many(found.gradients, len(drivers.REDUCED)), strict=True
                )
            )
        )

    def _other_gradient(self, at: int, number: int, got: torch.Tensor, where: str) -> Problem | None:
        want, latest = (
            self.part(self.mean(number), at),
            self.part(self.mean(number) - self.mean(number - 1), at),
        )
        replaced = number > 1 and close(got, latest, _TOLERANCES[self.kind.used_in])
        mistake = mistakes.GRADIENT_NOT_ADDED if replaced else mistakes.ANOTHER_GRADIENT
        where = f"{where}, .shard.grad after {counted(number, 'gradient')}"
        tolerance = _TOLERANCES[self.kind.used_in]  # in which it was reduced
        return self._other(want, got, mistake, where, tolerance) or self._rounded(got, number, where)

    def _rounded(self, got: torch.Tensor, number: int, where: str) -> Problem | None:
        """Find gradients that were added up in the dtype that each of them was reduced in."""
        sums_are_wider = number > 1 and self.kind.used_in != got.dtype
        if sums_are_wider and same(got, got.to(self.kind.used_in).to(got.dtype)):
            return Problem(mistakes.ADDED_IN_COMPUTE_DTYPE, f"{where}: sums in {got.dtype}", "rounded ones")
        return None

    def _other(
        self, want: torch.Tensor, got: torch.Tensor, mistake: Mistake, where: str, tolerance: float = 0.0
    ) -> Problem | None:
        """Find another tensor than is wanted; without a tolerance, that of its dtype."""
        if kind_of(got) != kind_of(want):
            other = mistakes.MASTERS_NOT_KEPT if got.shape == want.shape else mistake
            return Problem(other, f"{where}: {kind_of(want)}", kind_of(got))
        tolerance = tolerance or _TOLERANCES[want.dtype]
        if close(got, want, tolerance):
            return None
        expected, found = difference_beyond(tolerance, want, got)
        rounded = close(got, want, _TOLERANCES[self.kind.used_in])
        return Problem(mistakes.MASTERS_NOT_KEPT if rounded else mistake, f"{where} {expected}", found)

    def traffic(self, at: int, where: str, outcome: Outcome) -> Problem | None:
        """Find what is sent without need, in another dtype, or waited for too early."""
        (run,) = stretches(outcome, "began", 1)
        calls = [call for call in run.calls if call.moves_data]
        padded = self.num_ranks * self.shard_numel
        sent = padded * self.kind.used_in.itemsize
        gathers = drivers.GATHERS * sent + drivers.FULLS * padded * self.kind.dtype.itemsize
        reduces = drivers.REDUCED[-1] * sent
        used = [call for call in calls if call.start < run.at("full")]
        too_much = shard_traffic.too_much
        return (
            shard_traffic.broken_rules(calls, (*GATHERS, *REDUCES), where)
            or shard_traffic.other_dtypes(used, dtype_name(self.kind.used_in), where)
            or too_much(calls, GATHERS, gathers, mistakes.GATHERED_TWICE, "all-gathers", where)
            or too_much(calls, REDUCES, reduces, mistakes.GRADIENTS_REDUCED_TWICE, "reduce-scatters", where)
            or self._waited(run, where)
        )

    def _waited(self, run: Stretch, where: str) -> Problem | None:
        """Find a call that has been waited for when the method that starts it returns."""
        for name, ops in (("gathering", GATHERS), ("reducing", REDUCES)):
            started = run.at(f"started {name}")
            before = [call for call in run.calls if call.op in ops and call.start < started]
            if self.num_ranks > 1 and not any(call.end is None or call.end > started for call in before):
                expected = f"{where}: start_{name}() returns while the data are on their way"
                got = "it has waited" if before else "it has started nothing"
                return Problem(mistakes.START_WAITS, expected, got)
        return None

    def memory(self, at: int, where: str, outcome: Outcome) -> Problem | None:
        """Find memory that is held without need: of the whole behind the shard, or of what was gathered."""
        found: drivers.ComeAndGo = outcome.value
        if self.num_ranks == 1:
            return None
        own = self.shard_numel * self.kind.dtype.itemsize
        if found.held > own + _ROUNDED_UP:
            expected = f"{where}: {own:,} bytes held, those of .shard"
            return Problem(mistakes.VIEW_OF_THE_WHOLE, expected, f"{found.held:,} bytes")
        if found.left_by_free > 0:
            expected = f"{where}: nothing more after free() than before gathered()"
            return Problem(mistakes.NOT_FREED, expected, f"{found.left_by_free:,} bytes more")
        if found.left_by_reducing > own + _ROUNDED_UP:
            expected = f"{where}: {own:,} bytes left by finish_reducing(), those of .shard.grad"
            return Problem(mistakes.WHOLE_GRADIENT_KEPT, expected, f"{found.left_by_reducing:,} bytes")
        if not found.full_is_apart:
            expected = f"{where}: full() in other memory than gathered()"
            return Problem(mistakes.FULL_IS_GATHERED, expected, "the same memory")
        return None
