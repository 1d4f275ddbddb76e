"""Driver of exercise 08's ring attention: one forward and one backward of this rank's tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from autograder.inside.drivers import Code, Group
from autograder.inside.drivers.pipeline_parallelism import Gradients
from autograder.inside.drivers.tensor_parallelism import Numels
from autograder.inside.moments import mark
from autograder.inside.reports import Report


@dataclass(frozen=True)
class Attended(Report):
    """The output, gradients of q, k and v, and the elements of the largest tensor that was made.

    Attributes:
        qkv: the arguments afterwards.
    """

    output: object
    differentiable: bool
    largest: int
    gradients: Gradients
    qkv: list[torch.Tensor]


def attend(
    ring_attention: Code,
    qkv: list[torch.Tensor],
    cotangent: torch.Tensor,
    causal: bool | None,
    group: Group = None,
) -> Attended:
    """Attend and go backward.

    Args:
        causal: None leaves it to the function's default.
    """
    q, k, v = (tensor.clone().requires_grad_() for tensor in qkv)
    options = {} if causal is None else {"causal": causal}
    mark("began")
    with Numels((), floating=True) as made:
        output = ring_attention(q, k, v, group, **options)
        mark("turned")
        differentiable = isinstance(output, torch.Tensor) and output.requires_grad
        if differentiable and output.shape == cotangent.shape:
            output.backward(cotangent)
    kept = output.detach().clone() if isinstance(output, torch.Tensor) else output
    after = [tensor.detach().clone() for tensor in (q, k, v)]
    return Attended(kept, differentiable, max(made.numels, default=0), [q.grad, k.grad, v.grad], after)
