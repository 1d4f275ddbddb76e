"""The error that a cell ends with: what happened, where, and what became of the world."""

from __future__ import annotations

import re

from .cell import Cell, Stop
from .diagnosis import explain, explain_given_up
from .errors import (
    Aftermath,
    CellInterrupted,
    CellTimeout,
    DeadlockError,
    FourRanksError,
    RankDied,
    RankError,
    joined,
)
from .naming import name_ranks, sentence_case
from .protocol.calls import Call
from .protocol.places import OUTSIDE, Place, label_of
from .protocol.remote_error import RemoteError
from .scene import Scene
from .source import Source
from .watch import Deadlock
from .workers import Workers

# What Gloo says when it ends a process. On one machine a rank sees beforehand that its call contradicts
# another rank's (`protocol.board`); ranks of different nodes do not.
_MISMATCH = "op.preamble.length <= op.nbytes"
_MISMATCH_MEANS = (
    "Gloo ends a process that gets more bytes than it has room for: two ranks called the same "
    "collective, or the two ends of a message, with different shapes or dtypes."
)


def error_of(
    workers: Workers,
    cell: Cell,
    stop: Stop | None,
    errors: dict[int, RemoteError],
    aftermath: Aftermath,
    given_up: Deadlock | None = None,
) -> FourRanksError | CellInterrupted | None:
    """Return the exception to raise for this cell, None if all is well.

    Args:
        workers: the processes of the world.
        cell: the cell, ended or stopped.
        stop: why it was stopped, if it was.
        errors: those that ranks raised before it was stopped; later ones come from the stop.
        aftermath: the state of the world now.
        given_up: the calls that ranks have given up, if that is why they raised these errors.
    """
    shown = cell.transcript
    if stop is None or stop.reason == "raised":
        others = _whereabouts(cell) if stop is not None else ""
        why = explain_given_up(_scene(cell, given_up)) if given_up is not None else ""
        return RankError(errors, aftermath, shown, joined(_departures(cell), others, why)) if errors else None
    if stop.deadlock is not None:
        scene = _scene(cell, stop.deadlock)
        explanation = explain(scene)
        if errors:
            return RankError(errors, aftermath, shown, joined(_departures(cell), explanation))
        return DeadlockError(joined("These ranks would wait forever.", explanation), aftermath, shown, scene)
    if stop.reason == "interrupt":
        return CellInterrupted(joined("The cell was interrupted.", _whereabouts(cell)), aftermath, shown)
    if stop.reason == "timeout":
        raised = f"\n{RankError(errors)}" if errors else ""
        return CellTimeout(joined(_whereabouts(cell), raised), aftermath, shown, errors)
    return _rank_died(workers, cell, aftermath)


def _scene(cell: Cell, deadlock: Deadlock) -> Scene:
    return Scene(deadlock, cell.places, Source(cell.cells))


def _rank_died(workers: Workers, cell: Cell, aftermath: Aftermath) -> RankDied:
    rank, cause = next(iter(cell.died.items()))
    sentences = _deaths(workers, cell)
    if workers[rank].memory_bytes > 2**30:
        sentences.append(f"It was using {workers[rank].memory_bytes / 2**30:.1f} GiB of memory.")
    waiting = {
        r: state.progress.blocked
        for r, state in cell.states.items()
        if state.busy and state.progress.blocked is not None and r not in cell.died
    }
    if _MISMATCH in str(cell.transcript):
        sentences.append(_MISMATCH_MEANS)
    if waiting:
        call = next(iter(waiting.values()))
        who = name_ranks(list(waiting))
        sentences.append(f"Meanwhile {who} waited in {call.name} ({_place(cell, call)}).")
    if aftermath is Aftermath.DEAD and not workers.living():
        aftermath = Aftermath.ALL_DEAD
    return RankDied(rank, cause, " ".join(sentences), aftermath, cell.transcript)


def _deaths(workers: Workers, cell: Cell) -> list[str]:
    """Say what became of the ranks that have died, once for all of those to which the same has happened."""
    alike: dict[str, list[int]] = {}
    for rank, how in cell.died.items():
        alike.setdefault(f"{how}{_where(workers, cell, rank)}", []).append(rank)
    return [
        f"{sentence_case(name_ranks(ranks))} {re.sub('^was ', 'were ', how) if len(ranks) > 1 else how}."
        for how, ranks in alike.items()
    ]


def _where(workers: Workers, cell: Cell, rank: int) -> str:
    if line := workers[rank].crashed_in:
        return f" in {label_of(line)}"
    state = cell.states.get(rank)
    if state is None or not state.busy or state.where == OUTSIDE:
        return ""
    return f" (last seen in {state.where})"


def _departures(cell: Cell) -> str:
    """Say which ranks have closed their connections themselves, if that may be why calls of others failed."""
    if not cell.broke_group:
        return ""
    destroyed = [rank for rank, done in cell.done.items() if done.left_group and done.error is None]
    ways = {
        "ended the process with exit status 0, as os._exit does": cell.left,
        "destroyed the process group, so its connections are closed": destroyed,
    }
    return "\n".join(f"  {sentence_case(name_ranks(ranks))} {way}." for way, ranks in ways.items() if ranks)


def _whereabouts(cell: Cell) -> str:
    """Say where each rank was that had not finished."""
    places: dict[str, list[int]] = {}
    for rank, where in sorted(cell.whereabouts.items()):
        places.setdefault(where, []).append(rank)
    return "\n".join(f"  {name_ranks(ranks).capitalize()}: {where}" for where, ranks in places.items())


def _place(cell: Cell, call: Call) -> Place:
    return cell.places.get((call.file, call.line), Place(f"line {call.line}"))
