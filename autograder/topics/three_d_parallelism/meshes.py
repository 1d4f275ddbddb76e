"""Check of exercise 08's mesh: coordinates and groups on every rank, and what is refused."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import ClassVar

from autograder.inside.drivers import refusals
from autograder.inside.drivers import three_d_parallelism as drivers
from autograder.inside.drivers.three_d_parallelism import AXES, Meshed
from autograder.kit.case import Trial
from autograder.kit.check import Cases, Code, check
from autograder.kit.problem import Problem, first
from autograder.kit.settings import taking_part
from autograder.kit.student import Outcome
from autograder.kit.values import has_number, has_product
from autograder.topics.three_d_parallelism import mistakes
from autograder.topics.three_d_parallelism.banned import BANNED

Sizes = tuple[int, int, int]  # of data, pipeline and tensor
MESHES: tuple[Sizes, ...] = ((1, 1, 1), (4, 1, 1), (1, 2, 2), (2, 2, 1), (2, 1, 3), (2, 2, 2))


@dataclass(frozen=True, kw_only=True)
class MeshTrial(Trial):
    """A trial on a mesh of these sizes."""

    sizes: Sizes


@dataclass(frozen=True, kw_only=True)
class _BuildTrial(MeshTrial):
    out_of_step: ClassVar = (mistakes.GROUPS_OUT_OF_STEP, "the same new_group calls on every rank")


def in_words(sizes: Sizes) -> str:
    """Return the title of a mesh."""
    return " × ".join(f"{size} {axis}" for size, axis in zip(sizes, AXES, strict=True))


@check(banned=BANNED)
def build_mesh(function: Code, meshes: Sequence[Sizes] = MESHES, seed: int = 0) -> Cases:
    """Check `build_mesh`: this rank's coordinates, the members of its groups, how many were made.

    Args:
        meshes: sizes of data, pipeline and tensor to try.
    """
    for sizes in sorted(meshes, key=prod):
        yield _BuildTrial(
            title=in_words(sizes),
            sizes=sizes,
            inputs=[sizes] * prod(sizes),
            driver=drivers.make,
            verify=partial(_examine, sizes),
            size=sum(size > 1 for size in sizes),
        )
    largest = max(meshes, key=prod)
    for wrong in ((largest[0] + 1, *largest[1:]), (1, 1, 1)):
        if prod(wrong) != prod(largest):
            yield _refusal(wrong, prod(largest))


def places(sizes: Sizes) -> list[tuple[int, ...]]:
    """Return the coordinates of every rank."""
    return list(itertools.product(*map(range, sizes)))


def members(sizes: Sizes, rank: int, axis: int) -> list[int]:
    """Return the ranks that differ from this one along this axis alone."""
    all_places = places(sizes)
    return [
        other
        for other, place in enumerate(all_places)
        if all(
            mine == its or at == axis
            for at, (mine, its) in enumerate(zip(all_places[rank], place, strict=True))
        )
    ]


def _examine(sizes: Sizes, outcomes: Sequence[Outcome | None]) -> Problem | None:
    ranks = taking_part(outcomes)
    rules = (_wrong_form, _wrong_coordinates, _wrong_members, _wrong_sums, _too_many)
    return first(rule(sizes, at, *each) for rule in rules for at, each in enumerate(ranks))


def _wrong_form(sizes: Sizes, rank: int, where: str, outcome: Outcome) -> Problem | None:
    seen: Meshed = outcome.value
    if seen.type != "Mesh":
        return Problem(mistakes.NO_MESH, f"{where}: a Mesh", f"a {seen.type}")
    for axis, kind in zip(AXES, seen.others, strict=False):
        if kind:
            return Problem(mistakes.NOT_A_GROUP, f"{where}: {axis}_group, a process group", f"a {kind}")
    missing = next((axis for axis, own in zip(AXES, seen.members, strict=False) if not own), None)
    if missing is None:
        return None
    return Problem(mistakes.NO_GROUP, f"{where}: {missing}_group, a process group that it is in", "none")


def _wrong_coordinates(sizes: Sizes, rank: int, where: str, outcome: Outcome) -> Problem | None:
    got, want = tuple(outcome.value.coordinates), places(sizes)[rank]
    if got == want:
        return None
    backwards = list(itertools.product(*(range(size) for size in reversed(sizes))))[rank][::-1]
    mistake = mistakes.COORDINATES_IN_ANOTHER_ORDER if got == backwards else mistakes.WRONG_COORDINATES
    return Problem(mistake, f"{where}: data, pipeline and tensor rank {want}", f"{got}")


def _wrong_members(sizes: Sizes, rank: int, where: str, outcome: Outcome) -> Problem | None:
    for axis, got in enumerate(outcome.value.members):
        want = members(sizes, rank, axis)
        if got != want:
            others = [members(sizes, rank, other) for other in range(len(AXES)) if other != axis]
            mistake = mistakes.ANOTHER_AXIS if got in others else mistakes.WRONG_MEMBERS
            return Problem(mistake, f"{where}: {AXES[axis]}_group of ranks {want}", f"ranks {got}")
    return None


def _wrong_sums(sizes: Sizes, rank: int, where: str, outcome: Outcome) -> Problem | None:
    want = [float(sum(own)) for own in outcome.value.members]
    if outcome.value.sums == want:
        return None
    return Problem(mistakes.NO_GROUP, f"{where}: groups that sum {want}", f"{outcome.value.sums}")


def _too_many(sizes: Sizes, rank: int, where: str, outcome: Outcome) -> Problem | None:
    made = outcome.value.made
    if made <= len(AXES):
        return None
    return Problem(mistakes.TOO_MANY_GROUPS, f"{where}: a member of {len(AXES)} groups", f"of {made}")


def _refusal(sizes: Sizes, world_size: int) -> Trial:
    def verify(outcomes: Sequence[Outcome | None]) -> Problem | None:
        where, outcome = taking_part(outcomes)[0]
        message: str = outcome.value
        if not message:
            return Problem(mistakes.WRONG_SIZE_ACCEPTED, f"{where}: a ValueError", "none")
        if has_product(message, sizes) and has_number(message, world_size):
            return None
        expected = f"{where}: a message that names {prod(sizes)} and {world_size}"
        return Problem(mistakes.VAGUE_SIZE, expected, message)

    return _BuildTrial(
        title=f"{in_words(sizes)} on {world_size} ranks",
        sizes=sizes,
        inputs=[sizes] * world_size,
        driver=refusals.refuse,
        verify=verify,
        answered=f"a ValueError that names {prod(sizes)} and {world_size}",
    )
