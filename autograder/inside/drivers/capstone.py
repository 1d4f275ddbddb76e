"""Drivers of the capstone: a student's strategy lives on its rank from one step to the next.

The data are not here: each step brings the gradient that the check has computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from autograder.capstone import Cluster, Work
from autograder.inside.drivers import Code
from autograder.inside.reports import Report

_strategies: dict[str, Any] = {}  # of this rank, by training: one at a time


@dataclass(frozen=True)
class Begun(Report):
    """A rank's plan for each step; if it is no `Work`, only the type of the result."""

    type: str
    rows: object
    microbatch: object
    recompute: object


@dataclass(frozen=True)
class Stepped(Report):
    """The weights after a step, or the value that was returned in their place."""

    weights: object


def begin(strategy: Code, training: str, cluster: dict[str, Any]) -> Begun:
    """Make the strategy of a new training, and ask for its work."""
    _strategies.clear()
    _strategies[training] = own = strategy(Cluster(**{name: _tuples(each) for name, each in cluster.items()}))
    work = own.work()
    if not isinstance(work, Work):
        return Begun(type(work).__name__, None, None, None)
    return Begun("Work", work.rows, work.microbatch, work.recompute)


def step(strategy: Code, training: str, weights: torch.Tensor, gradient: torch.Tensor) -> Stepped:
    """Hand the strategy of a training this rank's weights and gradient."""
    returned = _strategies[training].step(weights, gradient)
    return Stepped(returned.detach() if isinstance(returned, torch.Tensor) else returned)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
