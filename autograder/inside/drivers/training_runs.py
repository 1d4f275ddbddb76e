"""A model and its optimizer, as exercise 04's checkpoints hold them: made from plain data, and back."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from typing import Any

import torch
from torch import nn

from autograder.inside.drivers.small_models import device

State = dict[str, Any]  # of a model and its optimizer, with what makes them: "kind", "widths" and "step"


def make_model(widths: list[int]) -> nn.Module:
    """Make linear layers of these widths with batch norms, whose buffers belong to the state too.

    All names have "module." inside, which is not that of a wrapper.
    """
    layers = [(nn.Linear(n, m), nn.BatchNorm1d(m)) for n, m in itertools.pairwise(widths)]
    return nn.Sequential(OrderedDict(submodule=nn.Sequential(*itertools.chain(*layers))))


def make_optimizer(name: str, model: nn.Module) -> torch.optim.Optimizer:
    """Make SGD with momentum, or AdamW; weights decay, biases and batch norms do not."""
    parameters = list(model.parameters())
    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in parameters if p.dim() == 1]},
    ]
    if name == "SGD":
        return torch.optim.SGD(groups, lr=1.0, momentum=0.5)
    return torch.optim.AdamW(groups, lr=1.0, weight_decay=0.0)


def build(state: State, wrapped: bool = False) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Make a model and its optimizer in the given state; wrapped as by DDP if so desired."""
    model = make_model(state["widths"]).to(device())
    optimizer = make_optimizer(state["kind"], model)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return (_wrapped(model) if wrapped else model), optimizer


def _wrapped(model: nn.Module) -> nn.Module:
    """Put a model into `.module` of a wrapper whose class, for code that asks, is one of DDP's.

    DDP itself is not there, because the exercise asks for it: its name stands for a class without instances.
    """

    bases: Any = (nn.Module, nn.parallel.DistributedDataParallel)
    wrapper: nn.Module = object.__new__(type("Wrapper", bases, {"forward": _forward}))
    nn.Module.__init__(wrapper)
    wrapper.module = model
    return wrapper


def _forward(wrapper: nn.Module, *inputs: torch.Tensor) -> Any:
    return bare(wrapper)(*inputs)


def bare(model: nn.Module) -> nn.Module:
    """Return the model itself, where it may be in a wrapper."""
    module = getattr(model, "module", model)
    assert isinstance(module, nn.Module)
    return module


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[object, object]:
    """Return the states of both as plain data."""
    return plain(bare(model).state_dict()), plain(optimizer.state_dict())


def plain(value: object) -> object:
    """Return the same in tensors, dicts, lists and what is neither; a state dict is a class of its own."""
    match value:
        case torch.Tensor():
            return value.detach().clone()
        case dict():
            return {
                key if isinstance(key, (int, str)) else repr(key): plain(item) for key, item in value.items()
            }
        case list() | tuple():
            return [plain(item) for item in value]
        case None | bool() | int() | float() | str() | bytes():
            return value
    return f"something of type {type(value).__name__}"
