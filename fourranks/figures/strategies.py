"""The losses of the course's model under each strategy, over one another. For lectures 04 to 08."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..views.style import Figure
from .journal import Journal
from .lines import curves

# The lecture that trains under each, in the order in which the course meets them.
LECTURES = {
    "one process": "04",
    "DDP": "04",
    "ZeRO-1": "05",
    "FSDP": "05",
    "tensor parallel": "06",
    "+ sequence parallel": "06",
    "pipeline": "07",
}
SAME_START = 1e-3  # trainings whose first losses are further apart are those of another model or text

_journal = Journal("losses")


def keep(strategy: str, losses: Sequence[float]) -> None:
    """Keep the losses of a training, one a step, for this lecture's figures and those of later ones."""
    _journal.keep(strategy, {"losses": list(losses)})


def kept(first_loss: float) -> dict[str, list[float]]:
    """Return the kept losses of this lecture and earlier ones, by strategy, that begin with this one."""
    found = {name: record.get("losses", []) for name, record in _journal.records().items()}
    ordered = [*(name for name in LECTURES if name in found), *sorted(found.keys() - LECTURES.keys())]
    return {name: found[name] for name in ordered if _are_losses(found[name], first_loss)}


def _are_losses(losses: object, first_loss: float) -> bool:
    return (
        isinstance(losses, list)
        and bool(losses)
        and all(isinstance(loss, float) for loss in losses)
        and abs(losses[0] - first_loss) < SAME_START
    )


def over_one_another(lines: Mapping[str, Sequence[float]], title: str) -> Figure:
    """Draw the losses of trainings, and say which of earlier lectures' are not among them."""
    lecture = max((LECTURES[name] for name in lines if name in LECTURES), default="")
    missing = [f"{name} ({at})" for name, at in LECTURES.items() if name not in lines and at < lecture]
    if missing:
        print(f"Not drawn, until their lectures have been run beside this one: {', '.join(missing)}")
    return curves(lines, title=title)


def apart(lines: Mapping[str, Sequence[float]], of: str) -> dict[str, list[float]]:
    """Return by how much the losses of each training differ from those of one of them, step by step."""
    return {
        name: [abs(one - other) for one, other in zip(losses, lines[of], strict=False)]
        for name, losses in lines.items()
        if name != of
    }
