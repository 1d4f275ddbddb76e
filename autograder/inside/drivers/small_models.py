"""Small models with every kind of parameter, for drivers and for the serial reference that checks compute.

All take inputs of `WIDTH` features and give float64 outputs, so that `loss` can tell small differences.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import cast

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

Named = dict[str, torch.Tensor]  # by the names of parameters or buffers
Gradients = dict[str, torch.Tensor | None]

WIDTH = 4


class PlainModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, 6)
        self.second = nn.Linear(6, 5)
        self.third = nn.Linear(5, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.third(torch.tanh(self.second(torch.tanh(self.first(inputs))))).double()


class Tied(nn.Module):
    """The output layer uses the weight of the input layer, and the layer between them is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(WIDTH, 6)
        self.between = nn.Linear(6, 6)
        self.decode = nn.Linear(6, 6)
        self.decode.weight = self.between.weight

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.between(torch.tanh(self.between(self.encode(inputs))))
        return F.linear(torch.tanh(self.decode(hidden)), self.encode.weight.t()).double()


class Frozen(PlainModel):
    def __init__(self) -> None:
        super().__init__()
        self.second.requires_grad_(False)
        self.first.bias.requires_grad_(False)


class Branching(nn.Module):
    """Which of two layers of one shape is used depends on the first input's sign.

    A third one, of another dtype, never is.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, 4)
        dtypes = (torch.float32, torch.float32, torch.float64)
        self.experts = nn.ModuleList([nn.Linear(4, 4, dtype=dtype) for dtype in dtypes])
        self.last = nn.Linear(4, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        expert = self.experts[int(inputs[0, 0] > 0)]
        return self.last(expert(torch.tanh(self.first(inputs)))).double()


class Empty(PlainModel):
    """With a parameter of no elements between the others."""

    def __init__(self) -> None:
        super().__init__()
        self.nothing = nn.Parameter(torch.empty(0))
        self.last = nn.Linear(3, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.last(super().forward(inputs).float()).double() + self.nothing.sum()


class Mixed(nn.Module):
    """Layers of three dtypes side by side: none has a part in the gradients of another."""

    def __init__(self) -> None:
        super().__init__()
        dtypes = (torch.float32, torch.float64, torch.bfloat16, torch.float32)
        self.layers = nn.ModuleList([nn.Linear(WIDTH, 3, dtype=dtype) for dtype in dtypes])

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        layers = [cast(nn.Linear, layer) for layer in self.layers]  # which read their weight once more here
        return torch.cat([layer(inputs.to(layer.weight.dtype)).double() for layer in layers], dim=1)


class Buffered(PlainModel):
    """With buffers of three dtypes, one of which its state dict leaves out, and an argument of its own."""

    scale: torch.Tensor
    count: torch.Tensor
    mask: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.rand(WIDTH) + 0.5)
        self.register_buffer("count", torch.randint(1, 100, ()))
        self.register_buffer("mask", torch.rand(WIDTH) < 0.5, persistent=False)

    def forward(self, inputs: torch.Tensor, shift: float) -> torch.Tensor:  # type: ignore[override]
        return super().forward(inputs * self.scale * self.mask + shift / self.count)


class Names(Tied):
    """With a parameter that has two names in one module, besides those that have them in several."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = self.offset = nn.Parameter(torch.randn(9))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs + self.shift[:WIDTH]) + self.offset[-WIDTH:]


class Sizes(Empty):
    """With parameters of no, of one and of many elements, and of no, one and two dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.none = nn.Parameter(torch.empty(0, 3))
        self.one = nn.Parameter(torch.rand(()))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs * self.one) + self.none.sum()


class LayerChain(nn.Sequential):
    """Layers one after another, whose argument is called as that of the other models."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs)


class Deep(LayerChain):
    """Four MiB of float32 gradients, alike in four layers."""

    def __init__(self) -> None:
        super().__init__(*[nn.Linear(512, 512, bias=False) for _ in range(4)])


class Stack(LayerChain):
    """Of many layers, each with as many parameters, and more of them than a few samples have activations.

    No weight is square, so that it has not the shape of its transpose, which is what autograd saves.
    """

    WIDTHS = (36, 64)

    def __init__(self) -> None:
        pairs = (self.WIDTHS, self.WIDTHS[::-1])
        super().__init__(*[nn.Linear(*pairs[n % 2], bias=False) for n in range(16)])


class FrozenStack(Stack):
    """Of which only the first layers are trained, so that backward passes through the others."""

    def __init__(self) -> None:
        super().__init__()
        for layer in list(self)[4:]:
            layer.requires_grad_(False)


class Gate(nn.Linear):
    """Reads its weight twice."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return F.linear(inputs, self.weight, self.bias) * F.linear(inputs, self.weight).sigmoid()


class TokenAttention(nn.Module):
    """Looks tokens up, and lets them attend to one another; `attend` uses a parameter of its child itself.

    Its arguments besides the inputs, a tensor of integers and a flag, are those of `others`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(5, 8)
        self.attend = nn.MultiheadAttention(8, num_heads=2)
        self.norm = nn.LayerNorm(8)
        self.last = Gate(8, 3)

    def forward(self, inputs: torch.Tensor, tokens: torch.Tensor, need_weights: bool) -> torch.Tensor:
        found = (self.tokens(tokens) * inputs.unsqueeze(-1)).flatten(0, 1)
        attended, _ = self.attend(found, found, found, need_weights=need_weights)
        return self.last(self.norm(attended)).double()


MODELS: dict[str, Callable[[], nn.Module]] = {
    "plain": PlainModel,
    "tied": Tied,
    "frozen": Frozen,
    "unused": Branching,
    "empty": Empty,
    "mixed": Mixed,
    "buffers": Buffered,
    "names": Names,
    "sizes": Sizes,
    "deep": Deep,
    "stack": Stack,
    "frozen stack": FrozenStack,
    "attention": TokenAttention,
}


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from this seed on the CPU; torch.manual_seed would format the stack for each kind of GPU."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def build(model: str, seed: int) -> nn.Module:
    """Make the model of this name, with parameters and buffers drawn from this seed."""
    with seeded(seed):
        return MODELS[model]()


def others(model: str, inputs: torch.Tensor) -> dict[str, object]:
    """Return what the model of this name is called with besides the inputs."""
    match model:
        case "attention":
            return {"tokens": inputs.argsort(dim=1), "need_weights": False}
        case "buffers":
            return {"shift": 2.0}
    return {}


def loss(outputs: torch.Tensor) -> torch.Tensor:
    """Take a mean over samples, to be minimized."""
    return (outputs - 1).square().mean()


def descend(module: nn.Module, learning_rate: float) -> None:
    """Take a step of SGD; torch.optim would import its compiler first, seconds on each rank."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.grad is not None:
                parameter.sub_(learning_rate * parameter.grad)


def model_bytes(model: str) -> int:
    """Count the bytes of the parameters and buffers of the model of this name."""
    module = build(model, 0)
    return sum(tensor.nbytes for tensor in (*module.parameters(), *module.buffers()))


def gradients(module: nn.Module) -> Gradients:
    """Return a copy of the gradient of each parameter that requires one, by name."""
    return {
        name: None if parameter.grad is None else parameter.grad.detach().clone()
        for name, parameter in module.named_parameters()
        if parameter.requires_grad
    }


def contents(module: nn.Module) -> tuple[Named, Named]:
    """Return a copy of the parameters, and of the buffers, by name."""
    parameters = {name: tensor.detach().clone() for name, tensor in module.named_parameters()}
    return parameters, {name: tensor.clone() for name, tensor in module.named_buffers()}


def device() -> torch.device:
    """Return where this rank computes."""
    return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")
