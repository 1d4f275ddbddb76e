"""Driver of exercise 08's experts: tokens go to the ranks of their experts and come back, with gradients."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from autograder.inside.drivers import Code, Group
from autograder.inside.moments import mark
from autograder.inside.reports import Report


@dataclass(frozen=True)
class Routed(Report):
    """The tokens that went through this rank's expert, the answers, and gradients.

    Attributes:
        kind: of the result, in words; if it is no tensor with a function, the rest is empty.
        combined: the function's result for the expert's outputs.
        weight: the gradient of this rank's expert.
        arguments: tokens and assignment as they are afterwards.
    """

    kind: str
    received: torch.Tensor | None = None
    combined: object = None
    differentiable: bool = False
    tokens: torch.Tensor | None = None
    weight: torch.Tensor | None = None
    arguments: list[torch.Tensor] = field(default_factory=list)


def route(
    dispatch: Code,
    tokens: torch.Tensor,
    assignment: torch.Tensor,
    weight: torch.Tensor,
    cotangent: torch.Tensor,
    group: Group = None,
) -> Routed:
    """Dispatch tokens, apply this rank's expert, combine, and go backward."""
    tokens, weight = tokens.clone().requires_grad_(), weight.clone().requires_grad_()
    mark("began")
    returned = dispatch(tokens, assignment, group)
    match returned:
        case (torch.Tensor() as received, combine) if callable(combine):
            pass
        case _:
            return Routed(type(returned).__name__)
    if received.dtype != tokens.dtype or received.dim() != 2 or received.shape[1] != tokens.shape[1]:
        return Routed("", received.detach().clone())
    combined = combine(expert(received, weight))
    mark("turned")
    if not isinstance(combined, torch.Tensor):
        return Routed("", received.detach().clone(), combined)
    if combined.requires_grad and combined.shape == cotangent.shape:
        combined.backward(cotangent)
    kept, after = combined.detach().clone(), [tokens.detach().clone(), assignment.clone()]
    return Routed(
        "", received.detach().clone(), kept, combined.requires_grad, tokens.grad, weight.grad, after
    )


def expert(tokens: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Apply one expert: its output for a token depends on nothing but the token."""
    return torch.tanh(tokens @ weight)
