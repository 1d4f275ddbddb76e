"""The current world is the one that a notebook's `%%ranks` cells run on."""

from __future__ import annotations

from .group import RankGroup, start
from .protocol.messages import Complete

_world: RankGroup | None = None


def world(backend: str = "auto") -> RankGroup:
    """Return the world that `%%ranks` cells run on; without one, start four ranks of this backend."""
    global _world
    if _world is None or not _world.running:
        _world = start(backend=backend)
    return _world


def set_world(group: RankGroup) -> None:
    """Let `%%ranks` cells run on this world; the one before is stopped."""
    global _world
    if _world is not None and _world is not group:
        _world.stop()
    _world = group


def last_world() -> RankGroup | None:
    """Return the world that `%%ranks` cells ran on last, also when it was stopped; None if there was none."""
    return _world


def has_world() -> bool:
    """Return whether `%%ranks` cells have a world already."""
    return _world is not None and _world.running


def names_of_rank_0(beginning: str) -> list[str]:
    """Return the names that rank 0 has with this beginning; none where it cannot answer at once."""
    if not has_world():
        return []
    _, found = world().ask(Complete(beginning, len(beginning))) or ("", [])
    return [text for text, _ in found if text.isidentifier()]
