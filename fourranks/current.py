"""The current world is the one that a notebook's `%%ranks` cells run on."""

from __future__ import annotations

from .group import RankGroup, start

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
