"""Parts of a model that its wrapper must leave as they are: its names, and rank 0's parameters and buffers.

Called by the checks of exercises 04 and 05.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from autograder.inside.drivers.data_parallelism import TrainedReplica
from autograder.inside.drivers.small_models import Named, contents
from autograder.kit.mistakes import Mistake
from autograder.kit.problem import Problem
from autograder.kit.stretches import stretches
from autograder.kit.student import Outcome
from autograder.kit.values import difference, kind_of, same
from autograder.topics.data_parallelism import gradient_traffic as traffic
from autograder.topics.data_parallelism import mistakes


def wrong_start(module: nn.Module, steps: int, outcome: Outcome, where: str) -> Problem | None:
    """Find what is wrong with a wrapper before its first step.

    Args:
        module: the model as rank 0 has it.
        steps: how many there are.
        outcome: of `drivers.data_parallelism.train`.
    """
    found: TrainedReplica = outcome.value
    first, *_ = stretches(outcome, "began", steps)
    names = [f"module.{name}" for name in module.state_dict()]
    if not found.kept or found.names != names:
        others = sorted(set(found.names) ^ set(names))[:3]
        got = f"differing: {', '.join(others)}" if others else "another model in it"
        return Problem(mistakes.NAMES, f"{where}: the model in .module, its names such as {names[0]}", got)
    parameters, buffers = contents(module)
    return (
        different(parameters, found.parameters, mistakes.PARAMETERS_DIFFER, where)
        or different(buffers, found.buffers, mistakes.BUFFERS_DIFFER, where)
        or traffic.copied_twice(module, outcome.calls, first.at("began"), where)
        or traffic.copied_otherwise(outcome.calls, first.at("began"), where)
    )


def different(expected: Named, got: Mapping[str, object], mistake: Mistake, where: str) -> Problem | None:
    """Find the first tensor that is not what is expected, bit by bit, as a problem with this mistake."""
    for name, want in expected.items():
        found = got.get(name)
        if not isinstance(found, torch.Tensor) or kind_of(found) != kind_of(want):
            return Problem(mistake, f"{where}, {name}: {kind_of(want)}", kind_of(found))
        if not same(found, want):
            wanted, shown = difference(want, found)
            return Problem(mistake, f"{where}, {name}{wanted}", shown)
    return None
