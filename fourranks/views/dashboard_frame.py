"""The content of a dashboard at one moment, as plain data: `dashboard` sends it to the browser, and
`static_dashboard` shows it where there are no widgets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..group import RankGroup
from ..live import Activity, Meter
from ..naming import counted, name_ranks, with_peer
from . import units

TICK = 0.25  # seconds between looks, and of one moment of the strip
MOMENTS = 120  # of the strip: half a minute


def frame(world: RankGroup | None, seen: Sequence[Activity], meters: Sequence[Meter]) -> dict[str, Any]:
    """Return what a view draws, as plain data."""
    ranks = [_row(activity, meter) for activity, meter in zip(seen, meters, strict=True)]
    return {
        "title": _title(world),
        "actions": _actions(world),
        "seconds": MOMENTS * TICK,
        "ranks": ranks,
    }


def _title(world: RankGroup | None) -> str:
    if world is None:
        return "No ranks are running. %ranks start starts four."
    if not world.running:
        return "The ranks have ended."
    doing = "running a cell" if world.busy else "idle"
    return f"{counted(world.world_size, 'rank')}, {world.backend}: {doing}"


def _actions(world: RankGroup | None) -> list[str]:
    """Return the buttons that have an effect now."""
    if world is None:
        return []
    return ["interrupt"] * world.busy + ["restart"] + ["stop"] * world.running


def _row(seen: Activity, meter: Meter) -> dict[str, Any]:
    alive = seen.busy or seen.state in ("idle", "finished")
    rate = meter.bytes_per_second
    return {
        "rank": seen.rank,
        "state": seen.state if alive else "dead",
        "doing": _doing(seen),
        "where": seen.report.where if seen.busy and seen.report else "",
        "node": seen.node,
        "memory": units.size(seen.memory_bytes) if alive else "",
        "rate": units.rate(rate) if rate else "",
        "strip": "".join("." if share is None else str(round(9 * share)) for share in meter.shares),
    }


def _doing(seen: Activity) -> str:
    if seen.waits_in is None:
        return seen.state
    whom = f"waiting for {name_ranks(seen.waits_for)} " if seen.waits_for else ""
    call = seen.waits_in
    return f"{whom}in {with_peer(call)}" + (f" ({units.size(call.nbytes)})" if call.nbytes else "")
