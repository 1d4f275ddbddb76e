"""What a wrapper must leave of the model that it wraps: its names, and rank 0's parameters and buffers.

Called by the checks of exercises 04 and 05.
"""

from __future__ import annotations

import torch
from torch import nn

from autograder.inside.drivers.small_models import contents
from autograder.kit.mistakes import Mistake
from autograder.kit.problem import Problem
from autograder.kit.stretches import stretches
from autograder.kit.student import Outcome
from autograder.kit.values import difference, kind_of, same
from autograder.topics.data_parallelism import gradient_traffic as traffic
from autograder.topics.data_parallelism.mistakes import BUFFERS_DIFFER, NAMES, PARAMETERS_DIFFER


def wrong_start(module: nn.Module, outcome: Outcome, where: str) -> Problem | None:
    """What is wrong with a wrapper before its first step.

    Args:
        module: the model as rank 0 has it.
        outcome: of `drivers.data_parallelism.train`.
    """
    value = outcome.value
    first, *_ = stretches(outcome, "began", len(value["steps"]))
    names = [f"module.{name}" for name in module.state_dict()]
    if not value["kept"] or value["names"] != names:
        others = sorted(set(value["names"]) ^ set(names))[:3]
        got = f"differing: {', '.join(others)}" if others else "another model in it"
        return Problem(NAMES, f"{where}: the model in .module, its names such as {names[0]}", got)
    parameters, buffers = contents(module)
    return (
        different(parameters, value["parameters"], PARAMETERS_DIFFER, where)
        or different(buffers, value["buffers"], BUFFERS_DIFFER, where)
        or traffic.copied_twice(module, outcome.calls, first.at("began"), where)
    )


def different(
    expected: dict[str, torch.Tensor], got: dict[str, torch.Tensor], mistake: Mistake, where: str
) -> Problem | None:
    """The first tensor that is not what is expected, bit by bit, as a problem with this mistake."""
    for name, want in expected.items():
        if kind_of(got.get(name)) != kind_of(want):
            return Problem(mistake, f"{where}, {name}: {kind_of(want)}", kind_of(got.get(name)))
        if not same(got[name], want):
            wanted, found = difference(want, got[name])
            return Problem(mistake, f"{where}, {name}{wanted}", found)
    return None
