"""Drivers of exercise 08's cost model: estimates and plans as plain data."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from autograder.inside.drivers import Code
from autograder.inside.reports import Report
from autograder.on_paper import Cluster, Model, Plan, StepEstimate

Numbers = dict[str, Any]


@dataclass(frozen=True)
class ReturnedFields(Report):
    """The fields of the dataclass that was returned; its type; or the text of the ValueError."""

    type: str = ""
    fields: dict[str, object] = dataclasses.field(default_factory=dict)
    refused: str | None = None


def estimate(estimate_step: Code, model: Numbers, cluster: Numbers, plan: Numbers) -> ReturnedFields:
    """Estimate a step."""
    return _answer(estimate_step, StepEstimate, Model(**model), Cluster(**cluster), Plan(**plan))


def choose(best_plan: Code, model: Numbers, cluster: Numbers) -> ReturnedFields:
    """Search for a plan."""
    return _answer(best_plan, Plan, Model(**model), Cluster(**cluster))


def _answer(function: Code, form: type, *arguments: object) -> ReturnedFields:
    try:
        value = function(*arguments)
    except ValueError as error:
        return ReturnedFields(refused=str(error))
    if not isinstance(value, form):
        return ReturnedFields(type(value).__name__)
    return ReturnedFields(
        form.__name__, {field.name: getattr(value, field.name) for field in dataclasses.fields(form)}
    )
