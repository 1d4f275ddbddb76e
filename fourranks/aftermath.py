"""The error that a cell ends with: what happened, where, and what became of the world."""

from __future__ import annotations

from enum import Enum

from .cell import Cell, Stop
from .diagnosis import explain
from .errors import CellInterrupted, CellTimeout, DeadlockError, RankDied, RankError, RemoteError, name_ranks
from .protocol.calls import Call
from .protocol.places import Place
from .scene import Scene
from .source import Source
from .workers import Workers


class Aftermath(Enum):
    """What a cell that went wrong leaves behind, as told to the reader."""

    INTACT = ""
    FORMED_ANEW = (
        "All ranks are free again and keep their variables. The default process group was formed\n"
        "anew; sub-groups from new_group, and what holds one, must be made again."
    )
    RESTARTED = "Some ranks could not be freed, so all were started again: their variables are lost."
    ENDED = "The ranks were restarted or stopped while it ran: their variables are lost."
    DEAD = "The other ranks keep their variables. `%ranks restart` starts all of them again."


def error_of(
    workers: Workers, cell: Cell, stop: Stop | None, errors: dict[int, RemoteError], aftermath: Aftermath
) -> BaseException | None:
    """The exception to raise for this cell, None if all is well.

    Args:
        workers: the processes of the world.
        cell: the cell, ended or stopped.
        stop: why it was stopped, if it was.
        errors: what ranks raised before it was stopped; what they raised because of that is no news.
        aftermath: the state of the world now.
    """
    ending = f"\n{aftermath.value}" if aftermath.value else ""
    if stop is None:
        return RankError(errors, aftermath.value) if errors else None
    if stop.reason == "interrupt":
        return CellInterrupted(_lines("The cell was interrupted.", _whereabouts(cell), ending))
    if stop.reason == "timeout":
        what = "The cell took longer than its timeout and was stopped."
        raised = f"\n{RankError(errors)}" if errors else ""
        return CellTimeout(_lines(what, _whereabouts(cell), raised, ending))
    if stop.reason == "died":
        return _rank_died(workers, cell, aftermath)
    scene = Scene(stop.deadlock, cell.places, Source(cell.cells))
    explanation = explain(scene)
    if errors:
        return RankError(errors, _lines("Meanwhile:", explanation, ending))
    return DeadlockError(_lines("These ranks would wait forever.", explanation, ending), scene)


def _rank_died(workers: Workers, cell: Cell, aftermath: Aftermath) -> RankDied:
    rank, *others = cell.died
    cause = workers[rank].cause
    sentences = [f"Rank {rank} {cause}{_where(cell, rank)}."]
    sentences += [f"Rank {other} {workers[other].cause}{_where(cell, other)}." for other in others]
    if workers[rank].memory_bytes > 2**30:
        sentences.append(f"It was using {workers[rank].memory_bytes / 2**30:.1f} GiB of memory.")
    waiting = {
        r: state.progress.blocked
        for r, state in cell.states.items()
        if state.busy and state.progress.blocked is not None and r not in cell.died
    }
    if waiting:
        call = next(iter(waiting.values()))
        sentences.append(f"Meanwhile {name_ranks(list(waiting))} waited in {call.op} ({_place(cell, call)}).")
    return RankDied(rank, cause, _lines(" ".join(sentences), str(cell.transcript), aftermath.value))


def _where(cell: Cell, rank: int) -> str:
    state = cell.states.get(rank)
    return f" (last seen in {state.where})" if state is not None and state.busy else ""


def _whereabouts(cell: Cell) -> str:
    """Where each rank that had not finished was."""
    places: dict[str, list[int]] = {}
    for rank, where in sorted(cell.whereabouts.items()):
        places.setdefault(where, []).append(rank)
    return "\n".join(f"  {name_ranks(ranks).capitalize()}: {where}" for where, ranks in places.items())


def _place(cell: Cell, call: Call) -> Place:
    return cell.places.get((call.file, call.line), Place(f"line {call.line}"))


def _lines(*parts: str) -> str:
    return "\n".join(part for part in parts if part)
