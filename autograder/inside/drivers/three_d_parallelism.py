"""Drivers of exercise 08 on a mesh: a student's groups, and training on a mesh of the driver's own."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn

from autograder import three_d
from autograder.inside.drivers import Code
from autograder.inside.drivers.small_models import device
from autograder.inside.moments import mark
from autograder.inside.reports import Report
from autograder.three_d import Mesh, ModelConfig
from fourranks.learner.model import Config, joined, layers_of, share, transformer

AXES = ("data", "pipeline", "tensor")


@dataclass(frozen=True)
class Meshed(Report):
    """A mesh as one rank has it, axis after axis.

    Attributes:
        type: of what was returned; if it is no `Mesh`, the rest is empty.
        coordinates: as the mesh says.
        members: global ranks of each group; none for what is no group.
        others: the types of what stands in the place of groups; "" for a group, or where there is none.
        sums: over each group of the ranks in it.
        made: groups that this rank has become a member of.
    """

    type: str
    coordinates: list[object]
    members: list[list[int]]
    others: list[str]
    sums: list[float]
    made: int


@dataclass(frozen=True)
class TrainedOnMesh(Report):
    """The result of each step, and how many elements this rank's parameters have."""

    losses: list[object]
    numel: int


def make(build_mesh: Code, *sizes: int) -> Meshed:
    """Build a mesh and use its groups, if all ranks have theirs."""
    before = _num_groups()
    mesh = build_mesh(*sizes)
    made = _num_groups() - before
    if not isinstance(mesh, Mesh):
        return Meshed(type(mesh).__name__, [], [], [], [], made)
    coordinates = [getattr(mesh, f"{axis}_rank") for axis in AXES]
    groups = [getattr(mesh, f"{axis}_group") for axis in AXES]
    members = [_members(group) for group in groups]
    others = [_type_of_another(group) for group in groups]
    sums = [_sum_of_ranks(group) for group in groups] if _everywhere(all(members)) else []
    return Meshed("Mesh", coordinates, members, others, sums, made)


def train(
    train_step: Code, config: dict[str, Any], sizes: list[int], batches: list[list[torch.Tensor]]
) -> TrainedOnMesh:
    """Train on a new mesh of these sizes, a step for each batch; `whole_model` has this rank's part alone."""
    before = {id(parameter) for parameter in _parameters()}
    mesh, model_config = _mesh(sizes), ModelConfig(**config)
    losses = []
    with _own_part_alone(mesh, sizes):
        for inputs, targets in batches:
            mark("step")
            losses.append(train_step(model_config, mesh, (inputs, targets)))
    gc.collect()
    numel = sum(parameter.numel() for parameter in _parameters() if id(parameter) not in before)
    return TrainedOnMesh(losses, numel)


def _own_part_alone(mesh: Mesh, sizes: Sequence[int]) -> AbstractContextManager[object]:
    """Let the given `whole_model` fill all that other stages and shares have with other numbers.

    With them a rank cannot compute alone what it should get from others.
    """

    def changed(config: Config, seed: int) -> nn.Sequential:
        own, other = transformer(config, seed), transformer(config, seed + 1)
        models = [own if at == mesh.tensor_rank else other for at in range(sizes[2])]
        shares = [share(model, config, at, sizes[2]).state_dict() for at, model in enumerate(models)]
        whole = joined(shares)
        replicated = {n: t for n, t in shares[mesh.tensor_rank].items() if t.shape == whole[n].shape}
        own.load_state_dict({**whole, **replicated})
        layers = layers_of(config, mesh.pipeline_rank, sizes[1])
        return nn.Sequential(*[own[at] if at in layers else other[at] for at in range(len(own))])

    return mock.patch.object(three_d, "transformer", changed)


def _mesh(sizes: Sequence[int]) -> Mesh:
    """Make a mesh whose ranks are numbered row by row, the last coordinate the fastest."""
    places = list(itertools.product(*map(range, sizes)))
    own = places[dist.get_rank()]
    groups = []
    for axis in range(len(sizes)):
        lines: dict[tuple[int, ...], list[int]] = {}
        for rank, place in enumerate(places):
            lines.setdefault(place[:axis] + place[axis + 1 :], []).append(rank)
        made = {line: dist.new_group(ranks) for line, ranks in lines.items()}
        groups.append(made[own[:axis] + own[axis + 1 :]])
    return Mesh(*groups, *own)


def _num_groups() -> int:
    """Count the process groups that this rank is a member of."""
    return len(dist.distributed_c10d._world.pg_map)


def _members(group: object) -> list[int]:
    if not isinstance(group, dist.ProcessGroup):
        return []
    return [int(rank) for rank in dist.get_process_group_ranks(group)]


def _type_of_another(group: object) -> str:
    nothing = group is None or group is dist.GroupMember.NON_GROUP_MEMBER
    return "" if nothing or isinstance(group, dist.ProcessGroup) else type(group).__name__


def _everywhere(here: bool) -> bool:
    """Tell whether something holds on all ranks."""
    holds = torch.tensor(int(here), device=device())
    dist.all_reduce(holds, dist.ReduceOp.MIN)
    return bool(holds)


def _sum_of_ranks(group: dist.ProcessGroup) -> float:
    total = torch.tensor(float(dist.get_rank()), device=device())
    dist.all_reduce(total, group=group)
    return total.item()


def _parameters() -> list[nn.Parameter]:
    """Find every parameter of this process."""
    return [each for each in gc.get_objects() if isinstance(each, nn.Parameter)]
