"""Checks of exercise 04's checkpoints: whole, written once and at once, and restored bit by bit.

The states are drawn here, and files are read and written by the drivers, so that each of the two functions is
checked without the other. Faults are real ones: a disk that is full, a rank that is killed while it writes.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from autograder.inside import runs
from autograder.inside.drivers import checkpoints as drivers
from autograder.inside.drivers.checkpoints import Contents
from autograder.inside.drivers.faulty_disks import SecondWriter
from autograder.inside.drivers.small_models import Named
from autograder.inside.drivers.training_runs import State, make_model
from autograder.inside.runs import RunFailed
from autograder.kit.case import Trial
from autograder.kit.check import Cases, Code, check, until_judged
from autograder.kit.mistakes import DEADLOCK, Mistake
from autograder.kit.problem import Problem
from autograder.kit.settings import WORLD_SIZES, taking_part
from autograder.kit.student import Function, Outcome, handle
from autograder.kit.values import close, kind_of, same
from autograder.topics.data_parallelism import checkpoint_mistakes as mistakes
from autograder.topics.data_parallelism.banned import BANNED
from autograder.topics.data_parallelism.training_state import (
    Draw,
    content_of,
    difference,
    one_step_later,
    shown,
)
from fourranks.naming import counted

WIDTHS = (5, 8, 3)
SLACK = 1.5  # how much larger a file may be than torch.save makes it of the same content

Outcomes = Sequence[Outcome | None]


# --- save_checkpoint


@dataclass(frozen=True, kw_only=True)
class _SaveTrial(Trial):
    """A trial that knows what it means when a save does not end well.

    Attributes:
        stuck: the mistake that a deadlock is a sign of.
    """

    stuck: Mistake = DEADLOCK

    def explain(self, failure: RunFailed) -> Problem:
        if failure.exception == SecondWriter.__name__:
            return Problem(
                mistakes.SECOND_WRITER, "files written by rank 0 only", failure.message.split(": ")[-1]
            )
        if failure.reason == runs.DEADLOCK:
            return Problem(self.stuck, "save_checkpoint ends on every rank", failure.message)
        return super().explain(failure)


@check(banned=BANNED)
def save_checkpoint(
    function: Code, world_sizes: Sequence[int] = WORLD_SIZES, widths: Sequence[int] = WIDTHS, seed: int = 0
) -> Cases:
    """Check `save_checkpoint`: the file's content, the rank that writes it, and the rest of it after a fault.

    Args:
        widths: of the model's layers.
    """
    draw = Draw(until_judged(_folder()), widths, seed)
    for world_size in world_sizes:
        yield _saved(draw, world_size)
    for world_size in sorted({min(world_sizes), max(world_sizes)}):
        yield _saved_on_a_full_disk(draw, world_size)
    yield _saved_where_no_folder_can_be(draw, max(world_sizes))
    for moment in ("writing", "renaming"):
        yield _killed(handle(function), draw, max(world_sizes), moment)


def _saved(draw: Draw, world_size: int) -> Trial:
    kind, wrapped, as_path = _variation(world_size)
    path, states = draw.path(), [draw.state(kind), draw.state(kind)]
    random_states = draw.random_states(world_size)
    wanted = content_of(states[-1], random_states)
    return _SaveTrial(
        title=f"{counted(world_size, 'rank')}, {kind}{', in DDP' if wrapped else ''}",
        inputs=[(path, as_path, wrapped, states, random_states[rank]) for rank in range(world_size)],
        driver=drivers.save,
        verify=partial(_wrong_save, wanted),
        size=1,
    )


def _variation(world_size: int) -> tuple[str, bool, bool]:
    """Return the optimizer, whether DDP wraps the model, whether the path is a `Path`: all take turns."""
    return ("SGD", "AdamW")[world_size % 2], world_size % 3 != 0, world_size % 4 < 2


def _wrong_save(wanted: dict[str, Any], outcomes: Outcomes) -> Problem | None:
    saved: list[drivers.Saved] = [outcome.value for _, outcome in taking_part(outcomes)]
    first = saved[0]
    return (
        _wrong_file(wanted, first.contents)
        or _returned_early(saved)
        or _written_over(first)
        or _left_over(first.left_over)
        or _deleted(first)
        or _too_large(wanted, first)
        or _not_on_disk(first)
    )


def _wrong_file(wanted: dict[str, Any], found: Contents) -> Problem | None:
    """Find what is wrong with what can be read from the file."""
    content = found.content
    if found.unreadable is not None:
        expected = "a file that torch.load(path, weights_only=True) reads"
        return Problem(mistakes.UNREADABLE, expected, found.unreadable)
    if content is None:
        return Problem(mistakes.NO_FILE, "a file at the path", "there is none")
    if not isinstance(content, dict) or not set(wanted) <= set(content):
        keys = f"the keys {', '.join(map(repr, content))}" if isinstance(content, dict) else kind_of(content)
        return Problem(mistakes.NOT_WHOLE, f"a dict with the keys {', '.join(map(repr, wanted))}", keys)
    model = content["model"]
    if isinstance(model, dict) and model and not set(model) & set(wanted["model"]):
        expected = f"names such as {next(iter(wanted['model']))!r}"
        return Problem(mistakes.OTHER_NAMES, expected, repr(next(iter(model))))
    if differing := difference(wanted, content):
        in_random_states = differing[0].startswith("random_states")
        return Problem(mistakes.RANDOM_STATES if in_random_states else mistakes.NOT_WHOLE, *differing)
    return None


def _returned_early(saved: Sequence[drivers.Saved]) -> Problem | None:
    for rank, own in enumerate(saved):
        if own.seen[::2] != own.seen[1::2]:
            expected = "the checkpoint is there when save_checkpoint returns"
            return Problem(mistakes.DID_NOT_WAIT, expected, f"rank {rank} returned before it was there")
    return None


def _written_over(saved: drivers.Saved) -> Problem | None:
    if saved.written_over:
        got = "the new one was written into the earlier one's file"
        return Problem(mistakes.WRITTEN_OVER, "the earlier checkpoint stays whole until the new one is", got)
    return None


def _left_over(names: Sequence[str]) -> Problem | None:
    if names:
        return Problem(mistakes.LEFT_OVER, "one file, at the path", f"also {', '.join(names)}")
    return None


def _deleted(saved: drivers.Saved) -> Problem | None:
    if saved.deleted:
        return Problem(mistakes.DELETED, "another.pt, a file of another program, stays", "it is gone")
    return None


def _too_large(wanted: dict[str, Any], saved: drivers.Saved) -> Problem | None:
    torch.save(wanted, file := io.BytesIO())
    nbytes = file.getbuffer().nbytes
    if saved.nbytes > SLACK * nbytes:
        return Problem(mistakes.TOO_LARGE, f"a file of about {nbytes:,} bytes", f"{saved.nbytes:,}")
    return None


def _not_on_disk(saved: drivers.Saved) -> Problem | None:
    if not saved.on_disk:
        expected = "the whole file is on the disk before it gets its name"
        return Problem(mistakes.NOT_ON_THE_DISK, expected, "it may still be in memory")
    return None


def _saved_on_a_full_disk(draw: Draw, world_size: int) -> Trial:
    path, states = draw.path(), [draw.state("AdamW") for _ in range(2)]

    def verify(outcomes: Outcomes) -> Problem | None:
        saved: list[drivers.SavedInVain] = [outcome.value for _, outcome in taking_part(outcomes)]
        return _lost(states[:1], saved[0].contents) or _unnoticed(saved)

    return _SaveTrial(
        title=f"{counted(world_size, 'rank')}, disk full while writing",
        inputs=[(path, states)] * world_size,
        driver=drivers.save_on_a_full_disk,
        verify=verify,
        stuck=mistakes.LEFT_WAITING,
    )


def _saved_where_no_folder_can_be(draw: Draw, world_size: int) -> Trial:
    path, state = draw.path(), draw.state("SGD")
    return _SaveTrial(
        title=f"{counted(world_size, 'rank')}, a file in place of the folder",
        inputs=[(path, state)] * world_size,
        driver=drivers.save_where_no_folder_can_be,
        verify=lambda outcomes: _unnoticed([outcome.value for _, outcome in taking_part(outcomes)]),
        stuck=mistakes.LEFT_WAITING,
    )


def _unnoticed(saved: Sequence[drivers.SavedInVain]) -> Problem | None:
    for rank, own in enumerate(saved):
        if own.failure is None:
            got = f"save_checkpoint returned on rank {rank} as if all were well"
            return Problem(mistakes.UNNOTICED, "an exception on every rank", got)
    return None


def _lost(states: Sequence[State], found: Contents) -> Problem | None:
    """Tell when none of these states can be read any more."""
    if any(not difference(content_of(state), found.content) for state in states):
        return None
    got = "no file" if found.content is None else "another one"
    got = got if found.unreadable is None else "a file that cannot be read"
    return Problem(mistakes.LOST, "the earlier checkpoint, whole", got)


def _killed(handle: Function, draw: Draw, world_size: int, moment: str) -> Trial:
    """Kill the rank that writes, and make a trial of what new ranks find, and of their next checkpoint."""
    path, states = draw.path(), [draw.state("SGD") for _ in range(2)]
    inputs = [(path, states, moment)] * world_size
    with contextlib.suppress(RunFailed):  # which is what this is for
        handle.run(inputs, driver=drivers.die_while_saving)
    when = {"writing": "in the midst of writing", "renaming": "before the new file gets its name"}[moment]
    next_state = draw.state("SGD")

    def verify(outcomes: Outcomes) -> Problem | None:
        recovered: drivers.Recovered = taking_part(outcomes)[0][1].value
        return (
            _lost(states, recovered.found)
            or _wrong_file(content_of(next_state), recovered.saved)
            or _left_over(recovered.left_over)
        )

    return _SaveTrial(
        title=f"{counted(world_size, 'rank')}, killed {when}",
        inputs=[(path, next_state)] * world_size,
        driver=drivers.recover,
        verify=verify,
        backends=("gloo",),
    )


# --- load_checkpoint


@check(banned=BANNED)
def load_checkpoint(
    function: Code, world_sizes: Sequence[int] = WORLD_SIZES, widths: Sequence[int] = WIDTHS, seed: int = 0
) -> Cases:
    """Check `load_checkpoint`: every rank is restored bit by bit, or left as it was.

    Args:
        widths: of the model's layers.
    """
    draw, largest = Draw(until_judged(_folder()), widths, seed), max(world_sizes)
    for world_size in world_sizes:
        yield _loaded(draw, world_size, saved_by=world_size)
    yield _loaded(draw, largest, saved_by=largest - 1 or 2)
    yield from _unfit(draw, largest)


def _loaded(draw: Draw, world_size: int, saved_by: int) -> Trial:
    kind, wrapped, as_path = _variation(world_size)
    saved, other, path = draw.state(kind), draw.state(kind), draw.path()
    random_states = draw.random_states(saved_by)
    gradients = draw.gradients(make_model(saved["widths"]))
    content = content_of(saved, random_states)
    later = one_step_later(saved, gradients)
    inputs = [
        (path, as_path, wrapped, None if rank else content, other, gradients) for rank in range(world_size)
    ]
    by = "" if saved_by == world_size else f", saved by {saved_by}"
    return Trial(
        title=f"{counted(world_size, 'rank')}{by}, {kind}{', in DDP' if wrapped else ''}",
        inputs=inputs,
        driver=drivers.load,
        verify=partial(_wrong_load, saved, random_states, later),
        size=1,
    )


def _wrong_load(
    saved: State, random_states: Sequence[torch.Tensor], later: Named, outcomes: Outcomes
) -> Problem | None:
    for rank, (where, outcome) in enumerate(taking_part(outcomes)):
        loaded: drivers.Loaded = outcome.value
        if type(loaded.step) is not int or loaded.step != saved["step"]:
            expected = f"{where}: {saved['step']} is returned"
            return Problem(mistakes.RETURNED_THE_STEP, expected, shown(loaded.step))
        if differing := difference(saved["model"], loaded.model, name="model"):
            return Problem(mistakes.MODEL_NOT_RESTORED, f"{where}: {differing[0]}", differing[1])
        if differing := difference(saved["optimizer"], loaded.optimizer, name="optimizer"):
            return Problem(mistakes.OPTIMIZER_NOT_RESTORED, f"{where}: {differing[0]}", differing[1])
        if problem := _wrong_random_state(rank, where, loaded, random_states):
            return problem
        for name, wanted in later.items():
            if name not in loaded.one_step_later or not close(loaded.one_step_later[name], wanted, 1e-5):
                expected = f"{where}: optimizer.step() changes model[{name!r}] afterwards"
                got = "it does not, or in another way"
                return Problem(mistakes.OPTIMIZER_OF_ANOTHER_MODEL, expected, got)
    return None


def _wrong_random_state(
    rank: int, where: str, loaded: drivers.Loaded, saved: Sequence[torch.Tensor]
) -> Problem | None:
    """Find a rank that has not its own random state of the file, or that lost its own where there is none."""
    is_saved = rank < len(saved)
    if same(loaded.random_state, saved[rank] if is_saved else loaded.own_random_state):
        return None
    go_on = f"as they would have on rank {rank}" if is_saved else "as before, since the file has none for it"
    expected = f"{where}: the random numbers go on {go_on}"
    return Problem(mistakes.RANDOM_STATE_NOT_RESTORED, expected, "others are drawn")


@dataclass(frozen=True)
class _Misfit:
    """A file that is no checkpoint of the model, and what the student reads about it."""

    title: str
    content: dict[str, Any] | bytes | None
    share: float = 1.0
    trapped: bool = False


def _misfits(draw: Draw, world_size: int) -> Iterator[_Misfit]:
    def content(widths: Sequence[int]) -> dict[str, Any]:
        return content_of(draw.state("SGD", widths), draw.random_states(world_size))

    fitting, first, *rest = content(draw.widths), *draw.widths
    yield _Misfit("no file", None)
    yield _Misfit("empty file", b"", 0.0)
    yield _Misfit("file cut short at 50 %", fitting, 0.5)
    yield _Misfit("file cut short at 99 %", fitting, 0.99)
    yield _Misfit("file of another program", b"step,loss\n1,0.5\n")
    yield _Misfit("model and optimizer alone, of another program", _without_the_rest(fitting))
    yield _Misfit("checkpoint of a larger model", content((*draw.widths, 2)))
    yield _Misfit("checkpoint of a smaller model", content(draw.widths[:-1]))
    yield _Misfit("checkpoint of a wider model", content((first, *(width + 1 for width in rest))))
    renamed = {f"layers.{name}": tensor for name, tensor in fitting["model"].items()}
    yield _Misfit("checkpoint of a model with other names", fitting | {"model": renamed})
    yield _Misfit(
        "checkpoint of another optimizer", fitting | {"optimizer": _one_group(fitting["optimizer"])}
    )
    yield _Misfit("file that runs code when it is unpickled", fitting, trapped=True)


def _without_the_rest(content: dict[str, Any]) -> dict[str, Any]:
    return {key: content[key] for key in ("model", "optimizer")}


def _one_group(optimizer: dict[str, Any]) -> dict[str, Any]:
    return optimizer | {"param_groups": optimizer["param_groups"][:1]}


def _unfit(draw: Draw, world_size: int) -> Iterator[Trial]:
    state, random_state = draw.state("SGD"), draw.random_states(1)[0]
    for misfit in _misfits(draw, world_size):
        path, rest = draw.path(), (misfit.share, misfit.trapped, state, random_state)
        yield Trial(
            title=f"{counted(world_size, 'rank')}, {misfit.title}",
            inputs=[(path, None if rank else misfit.content, *rest) for rank in range(world_size)],
            driver=drivers.load_what_does_not_fit,
            verify=partial(_harm, state, random_state),
        )


def _harm(state: State, random_state: torch.Tensor, outcomes: Outcomes) -> Problem | None:
    for where, outcome in taking_part(outcomes):
        found: drivers.NotLoaded = outcome.value
        if found.executed:
            return Problem(mistakes.EXECUTED, "nothing in a file is executed", "its code was run")
        if found.error is None:
            got = "load_checkpoint returned as if all were well"
            return Problem(mistakes.ACCEPTED, f"{where}: an exception", got)
        for part, now in (("model", found.model), ("optimizer", found.optimizer)):
            if differing := difference(state[part], now, name=part):
                return Problem(mistakes.HALF_LOADED, f"{where}: as before: {differing[0]}", differing[1])
        if not same(found.random_state, random_state):
            return Problem(mistakes.HALF_LOADED, f"{where}: random numbers as before", "others are drawn")
        name, text = found.error
        if "checkpoint.pt" not in text:
            expected = f"{where}: an exception that names the file"
            return Problem(mistakes.UNNAMED, expected, f"{name}: {text[:200]}")
    return None


def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="fourranks-")
