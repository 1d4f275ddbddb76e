"""Check of exercise 08's stretch: tokens go to the ranks of their experts, and results come home."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from autograder.inside.drivers import experts as drivers
from autograder.inside.drivers.experts import Routed, expert
from autograder.kit.case import again
from autograder.kit.check import Cases, Code, check
from autograder.kit.problem import Problem
from autograder.kit.settings import WORLD_SIZES, Setting, settings
from autograder.kit.student import Outcome
from autograder.kit.values import close, kind_of
from autograder.topics.three_d_parallelism import mistakes
from autograder.topics.three_d_parallelism.axis_traffic import sent
from autograder.topics.three_d_parallelism.banned import BANNED
from autograder.topics.three_d_parallelism.trials import ExpertTrial, differing, modified
from fourranks.naming import counted

TOLERANCE = 1e-9  # of float64, for another order of summation
FLOAT32 = 1e-5  # for values that were rounded to float32 on their way
WIDTH = 4
MOST_CALLS = 6  # numbers, tokens, results, two backward; one more for another way to exchange numbers
BYTES = 8  # of a float64, and of a number of tokens


@check(banned=BANNED)
def dispatch_to_experts(code: Code, world_sizes: Sequence[int] = WORLD_SIZES, seed: int = 0) -> Cases:
    """Check `dispatch_to_experts` and the combining function that it returns, with gradients."""
    for setting in settings(world_sizes, seed):
        n, draws = len(setting.ranks), setting.draws
        uneven, alike, empty = [5 + at for at in range(n)], [3] * n, [0] + [4] * (n - 1)
        any_experts = _trial(setting, "any experts", [draws.randint(0, n, (size,)) for size in uneven])
        one_expert = _trial(setting, "all to one expert", [torch.full((size,), n - 1) for size in alike])
        yield from (any_experts, one_expert, again(any_experts, one_expert))
        yield _trial(setting, "a rank without tokens", [draws.randint(0, n, (size,)) for size in empty])


@dataclass(frozen=True)
class _Routing:
    """Tokens of all ranks with their experts, and what has to come of them."""

    ranks: tuple[int, ...]
    tokens: list[torch.Tensor]
    assignments: list[torch.Tensor]
    weights: list[torch.Tensor]
    cotangents: list[torch.Tensor]

    @cached_property
    def serial(self) -> tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]]:
        """Return outputs and gradients of all tokens, and gradients of the experts, of one process."""
        tokens = [each.clone().requires_grad_() for each in self.tokens]
        weights = [each.clone().requires_grad_() for each in self.weights]
        outputs = [
            torch.stack([expert(token, weights[int(at)]) for token, at in zip(own, where, strict=True)])
            if len(own)
            else own * 1.0
            for own, where in zip(tokens, self.assignments, strict=True)
        ]
        torch.autograd.backward(outputs, self.cotangents)
        nothing = torch.zeros_like(weights[0])
        return (
            [each.detach() for each in outputs],
            [torch.zeros_like(each) if each.grad is None else each.grad for each in tokens],
            [nothing if each.grad is None else each.grad for each in weights],
        )

    def received(self, position: int) -> torch.Tensor:
        pairs = zip(self.tokens, self.assignments, strict=True)
        return torch.cat([tokens[assignment == position] for tokens, assignment in pairs])

    def wrong_dispatch(self, position: int, where: str, outcome: Outcome) -> Problem | None:
        seen: Routed = outcome.value
        if seen.received is None:
            return Problem(mistakes.NO_PAIR, f"{where}: a tensor and a function", f"a {seen.kind}")
        want = self.received(position)
        if kind_of(seen.received) == kind_of(want) and torch.equal(seen.received, want):
            return None
        kind = mistakes.ROUNDED_ROWS if _is_rounded(seen.received, want) else mistakes.WRONG_TOKENS
        if kind_of(seen.received) != kind_of(want):
            return Problem(kind, f"{where}: {kind_of(want)} of tokens", kind_of(seen.received))
        if _sorted(seen.received).equal(_sorted(want)):
            kind = mistakes.TOKENS_IN_ANOTHER_ORDER
        return differing(kind, f"{where}, tokens", want, seen.received)

    def wrong_combined(self, position: int, where: str, outcome: Outcome) -> Problem | None:
        seen: Routed = outcome.value
        want = self.serial[0][position]
        kind = mistakes.ROUNDED_ROWS if _is_rounded(seen.combined, want) else mistakes.WRONG_COMBINED
        if not isinstance(seen.combined, torch.Tensor) or kind_of(seen.combined) != kind_of(want):
            return Problem(kind, f"{where}: {kind_of(want)}", kind_of(seen.combined))
        if not close(seen.combined, want, TOLERANCE):
            by_expert = want[self.assignments[position].argsort(stable=True)]
            if close(seen.combined, by_expert, TOLERANCE):
                kind = mistakes.COMBINED_IN_ANOTHER_ORDER
            return differing(kind, f"{where}, combined", want, seen.combined)
        if not seen.differentiable:
            return Problem(mistakes.EXPERTS_CUT, f"{where}: an output with a grad_fn", "one without")
        return None

    def wrong_gradients(self, position: int, where: str, outcome: Outcome) -> Problem | None:
        seen: Routed = outcome.value
        for kind, name, got, want in (
            (mistakes.WRONG_TOKEN_GRADIENT, "gradient of the tokens", seen.tokens, self.serial[1][position]),
            (mistakes.WRONG_EXPERT_GRADIENT, "gradient of the expert", seen.weight, self.serial[2][position]),
        ):
            if got is None or kind_of(got) != kind_of(want):
                return Problem(mistakes.EXPERTS_CUT, f"{where}, {name}: {kind_of(want)}", kind_of(got))
            if not close(got, want, TOLERANCE):
                return differing(kind, f"{where}, {name}", want, got)
        return None

    def changed(self, position: int, where: str, outcome: Outcome) -> Problem | None:
        given = {"tokens": self.tokens[position], "assignment": self.assignments[position]}
        return modified(given, outcome.value.arguments, where)

    def passing(self, position: int) -> int:
        """Count the bytes that a rank sends, and gets: tokens, results, and the gradients of both."""
        leaving = int((self.assignments[position] != position).sum())
        arriving = len(self.received(position)) - int((self.assignments[position] == position).sum())
        return 2 * (leaving + arriving) * WIDTH * BYTES

    def too_much(self, position: int, where: str, outcome: Outcome) -> Problem | None:
        calls = [call for call in outcome.calls if call.moves_data]
        n = len(self.tokens)
        if n == 1:
            return None
        collectives = [call for call in calls if not call.is_point_to_point]
        if len(collectives) > MOST_CALLS:
            expected = f"{where}: at most {MOST_CALLS} collectives"
            return Problem(mistakes.EXPERTS_COLLECTIVES, expected, f"{len(collectives)}")
        most = self.passing(position) + 2 * n * n * BYTES  # of an all-reduce of all numbers
        nbytes = sum(sent(call, self.ranks[position]) for call in calls)
        if nbytes <= most:
            return None
        return Problem(mistakes.EXPERTS_BYTES, f"{where}: {counted(most, 'byte')} sent", f"{round(nbytes):,}")


def _is_rounded(got: object, want: torch.Tensor) -> bool:
    """Tell whether these are the right rows, but for what a lower precision does to them."""
    return isinstance(got, torch.Tensor) and close(got.to(want.dtype), want, FLOAT32)


def _sorted(tokens: torch.Tensor) -> torch.Tensor:
    """Return the rows in one order, by their first numbers."""
    return tokens[tokens[:, 0].argsort()]


def _trial(setting: Setting, what: str, assignments: list[torch.Tensor]) -> ExpertTrial:
    sizes = [len(assignment) for assignment in assignments]

    def normal(*shape: int) -> torch.Tensor:
        return setting.draws.randn(shape, torch.float64)

    routing = _Routing(
        setting.ranks,
        [normal(size, WIDTH) for size in sizes],
        assignments,
        [normal(WIDTH, WIDTH) for _ in sizes],
        [normal(size, WIDTH) for size in sizes],
    )
    return setting.trial(
        what,
        drivers.route,
        lambda at, _: (
            routing.tokens[at],
            routing.assignments[at],
            routing.weights[at],
            routing.cotangents[at],
        ),
        routing.wrong_dispatch,
        routing.wrong_combined,
        routing.wrong_gradients,
        routing.changed,
        routing.too_much,
        kind=ExpertTrial,
        received=routing.passing,
        size=len(sizes),
    )
