"""States of a training run that checkpoints hold: drawn, moved on by a step, and compared bit by bit.

Models and optimizers are those of `drivers.training_runs`; states are plain data.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from autograder.inside.drivers import training_runs
from autograder.inside.drivers.small_models import Named
from autograder.inside.drivers.training_runs import State
from autograder.kit.draws import Draws
from autograder.kit.values import kind_of, same


@dataclass
class Draw:
    """Draws what is saved, and where."""

    folder: str
    widths: Sequence[int]
    seed: int
    cases: int = 0
    draws: Draws = field(init=False)

    def __post_init__(self) -> None:
        self.draws = Draws(self.seed)

    def path(self) -> str:
        """Return the path of a checkpoint in a folder that does not exist yet, another one each time."""
        self.cases += 1
        return str(Path(self.folder, f"case_{self.cases}", "run", "checkpoint.pt"))

    def state(self, kind: str, widths: Sequence[int] = ()) -> State:
        """Draw a model and an optimizer in the midst of training, as plain data."""
        model = training_runs.make_model(list(widths or self.widths))
        optimizer = training_runs.make_optimizer(kind, model)
        for value in model.state_dict().values():
            value.copy_(self._like(value))
        for gradients in (self.gradients(model) for _ in range(2)):
            _step(model, optimizer, gradients)
        for group in optimizer.param_groups:  # as a schedule does
            group["lr"] = self.integer() / 1000
        return {
            "kind": kind,
            "widths": list(widths or self.widths),
            "step": self.integer(),
            "model": training_runs.plain(model.state_dict()),
            "optimizer": training_runs.plain(optimizer.state_dict()),
        }

    def gradients(self, model: torch.nn.Module) -> list[torch.Tensor]:
        return [self._like(parameter) for parameter in model.parameters()]

    def random_states(self, world_size: int) -> list[torch.Tensor]:
        """Draw for each rank another state of torch's random numbers."""
        seeds = self.draws.split()
        return [torch.Generator().manual_seed(seeds.seed(rank)).get_state() for rank in range(world_size)]

    def integer(self) -> int:
        return int(self.draws.randint(1, 100_000))

    def _like(self, value: torch.Tensor) -> torch.Tensor:
        if not value.is_floating_point():
            return torch.full_like(value, self.integer())
        return self.draws.rand(value.shape, value.dtype) + 0.5


def content_of(state: State, random_states: Sequence[torch.Tensor] = ()) -> dict[str, Any]:
    """Return the content of this state's checkpoint, with random states if they are given."""
    content = {key: state[key] for key in ("model", "optimizer", "step")}
    random = {"random_states": [{"cpu": random_state} for random_state in random_states]}
    return content | random if random_states else content


def one_step_later(state: State, gradients: Sequence[torch.Tensor]) -> Named:
    """Return the model's state after one more step with these gradients."""
    model = training_runs.make_model(state["widths"])
    optimizer = training_runs.make_optimizer(state["kind"], model)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))  # which a step changes
    _step(model, optimizer, gradients)
    return dict(model.state_dict())


def _step(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, gradients: Iterable[torch.Tensor]
) -> None:
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient
    optimizer.step()


def difference(wanted: object, got: object, name: str = "") -> tuple[str, str] | None:
    """Find the first place where two states differ: the expected value, and the one found."""
    wanted_values, got_values = dict(_values(wanted, name)), dict(_values(got, name))
    for place, value in wanted_values.items():
        if place not in got_values:
            return place, "is missing"
        if not _alike(value, got_values[place]):
            return f"{place} = {shown(value)}", shown(got_values[place])
    return None


def _alike(wanted: object, got: object) -> bool:
    """Compare two values; of dicts and lists only the kind, as what is in them is compared by itself."""
    return type(wanted) is type(got) if isinstance(wanted, (dict, list)) else same(got, wanted)


def _values(value: object, name: str) -> Iterator[tuple[str, object]]:
    """Give each value of a nested state with its place in it; each dict and list before what is in it."""
    yield name, value
    if not isinstance(value, (dict, list)):
        return
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield from _values(item, f"{name}[{key!r}]" if name else str(key))


def shown(value: object) -> str:
    """Return a value as a verdict shows it."""
    if isinstance(value, torch.Tensor) and value.numel():
        first = f"{value.flatten()[0].item():.7g}"
        return f"tensor({first})" if value.numel() == 1 else f"{kind_of(value)}, {first} first"
    return repr(value) if isinstance(value, (bool, int, float, str)) else kind_of(value)
