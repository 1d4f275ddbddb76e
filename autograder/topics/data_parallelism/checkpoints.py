"""Checks of exercise 04's checkpoints: whole, written once and at once, and restored bit by bit.

The states are drawn here, and files are read and written by the drivers, so that each of the two functions is
checked without the other. Faults are real ones: a disk that is full, a rank that is killed while it writes.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from autograder.inside import runs
from autograder.inside.drivers import checkpoints as drivers
from autograder.inside.runs import RunFailed
from autograder.kit import student
from autograder.kit.case import Trial
from autograder.kit.judge import judge
from autograder.kit.mistakes import DEADLOCK, Mistake
from autograder.kit.problem import Problem
from autograder.kit.student import Function, Outcome
from autograder.kit.values import close, kind_of, same
from autograder.topics.data_parallelism.banned import BANNED
from autograder.topics.data_parallelism.checkpoint_mistakes import (
    ACCEPTED,
    DID_NOT_WAIT,
    EXECUTED,
    HALF_LOADED,
    LEFT_OVER,
    LEFT_WAITING,
    LOST,
    MODEL_NOT_RESTORED,
    NAMES_OF_THE_WRAPPER,
    NO_FILE,
    NOT_ON_THE_DISK,
    NOT_WHOLE,
    OPTIMIZER_NOT_RESTORED,
    OPTIMIZER_OF_ANOTHER_MODEL,
    RANDOM_STATE_NOT_RESTORED,
    RANDOM_STATES,
    RETURNED_THE_STEP,
    SECOND_WRITER,
    TOO_LARGE,
    UNNAMED,
    UNNOTICED,
    UNREADABLE,
    WRITTEN_OVER,
)
from autograder.topics.data_parallelism.training_state import (
    Draw,
    content_of,
    difference,
    one_step_later,
    shown,
)

WORLD_SIZES = (1, 2, 3, 4, 5)
WIDTHS = (5, 8, 3)
SLACK = 1.5  # how much larger a file may be than torch.save makes it of the same content

Outcomes = Sequence[Outcome | None]


def save_checkpoint(
    function: Callable | Function,
    world_sizes: Sequence[int] = WORLD_SIZES,
    widths: Sequence[int] = WIDTHS,
    seed: int = 0,
) -> None:
    """Checks `save_checkpoint`: what is in the file, who writes it, and what is left of it after a fault.

    Args:
        widths: of the model's layers.

    Raises:
        AssertionError: when a case fails; its text is a small table with a hint.
    """
    with tempfile.TemporaryDirectory(prefix="fourranks-") as folder, student.handle(function) as handle:
        judge(
            "save_checkpoint",
            handle,
            _save_cases(handle, Draw(folder, widths, seed), world_sizes),
            seed,
            BANNED,
        )


def load_checkpoint(
    function: Callable | Function,
    world_sizes: Sequence[int] = WORLD_SIZES,
    widths: Sequence[int] = WIDTHS,
    seed: int = 0,
) -> None:
    """Checks `load_checkpoint`: every rank is restored bit by bit, or left as it was.

    Args:
        widths: of the model's layers.

    Raises:
        AssertionError: when a case fails; its text is a small table with a hint.
    """
    with tempfile.TemporaryDirectory(prefix="fourranks-") as folder:
        judge("load_checkpoint", function, _load_cases(Draw(folder, widths, seed), world_sizes), seed, BANNED)


# --- save_checkpoint


@dataclass(frozen=True, kw_only=True)
class _SaveTrial(Trial):
    """A trial that knows what it means when a save does not end well.

    Attributes:
        stuck: what a deadlock is a sign of.
    """

    stuck: Mistake = DEADLOCK

    def explain(self, failure: RunFailed) -> Problem:
        if failure.exception == drivers.SecondWriter.__name__:
            return Problem(SECOND_WRITER, "files written by rank 0 only", failure.message.split(": ")[-1])
        if failure.reason == runs.DEADLOCK:
            return Problem(self.stuck, "save_checkpoint ends on every rank", failure.message)
        return super().explain(failure)


def _save_cases(handle: Function, draw: Draw, world_sizes: Sequence[int]) -> Iterator[Trial]:
    for world_size in world_sizes:
        yield _saved(draw, world_size)
    for world_size in sorted({min(world_sizes), max(world_sizes)}):
        yield _saved_on_a_full_disk(draw, world_size)
    for moment in ("writing", "renaming"):
        yield _killed(handle, draw, max(world_sizes), moment)


def _saved(draw: Draw, world_size: int) -> Trial:
    kind = ("SGD", "AdamW")[world_size % 2]
    wrapped, as_path = world_size % 3 != 0, world_size % 4 < 2
    path, states, random_states = (
        draw.path(),
        [draw.state(kind), draw.state(kind)],
        draw.random_states(world_size),
    )
    wanted = content_of(states[-1], random_states)
    return _SaveTrial(
        title=f"{_ranks(world_size)}, {kind}{', in DDP' if wrapped else ''}",
        inputs=[(path, as_path, wrapped, states, random_states[rank]) for rank in range(world_size)],
        driver=drivers.save,
        verify=lambda outcomes: _wrong_save(wanted, outcomes),
        size=1,
    )


def _wrong_save(wanted: dict, outcomes: Outcomes) -> Problem | None:
    reports = [outcome.value for outcome in outcomes]
    return (
        _wrong_file(wanted, reports[0])
        or _returned_early(reports)
        or _written_over(reports[0])
        or _left_over(reports[0])
        or _too_large(wanted, reports[0])
        or _not_on_disk(reports[0])
    )


def _wrong_file(wanted: dict, report: dict) -> Problem | None:
    """What is wrong with what can be read from the file."""
    content = report["content"]
    if "unreadable" in report:
        expected = "a file that torch.load(path, weights_only=True) reads"
        return Problem(UNREADABLE, expected, report["unreadable"])
    if content is None:
        return Problem(NO_FILE, "a file at the path", "there is none")
    if not isinstance(content, dict) or not set(wanted) <= set(content):
        found = f"the keys {', '.join(map(repr, content))}" if isinstance(content, dict) else kind_of(content)
        return Problem(NOT_WHOLE, f"a dict with the keys {', '.join(map(repr, wanted))}", found)
    names = list(content["model"]) if isinstance(content["model"], dict) else []
    if names and str(names[0]).startswith("module."):
        expected = f"names such as {next(iter(wanted['model']))!r}"
        return Problem(NAMES_OF_THE_WRAPPER, expected, repr(names[0]))
    if differing := difference(wanted, content):
        kind = RANDOM_STATES if differing[0].startswith("random_states") else NOT_WHOLE
        return Problem(kind, *differing)
    return None


def _returned_early(reports: Sequence[dict]) -> Problem | None:
    for rank, report in enumerate(reports):
        if report["seen"][::2] != report["seen"][1::2]:
            got = f"rank {rank} returned before it was there"
            return Problem(DID_NOT_WAIT, "the checkpoint is there when save_checkpoint returns", got)
    return None


def _written_over(report: dict) -> Problem | None:
    if report["written_over"]:
        got = "the new one was written into the earlier one's file"
        return Problem(WRITTEN_OVER, "the earlier checkpoint stays whole until the new one is", got)
    return None


def _left_over(report: dict) -> Problem | None:
    if report["left_over"]:
        return Problem(LEFT_OVER, "one file, at the path", f"also {', '.join(report['left_over'])}")
    return None


def _too_large(wanted: dict, report: dict) -> Problem | None:
    torch.save(wanted, file := io.BytesIO())
    nbytes = file.getbuffer().nbytes
    if report["nbytes"] > SLACK * nbytes:
        return Problem(TOO_LARGE, f"a file of about {nbytes:,} bytes", f"{report['nbytes']:,}")
    return None


def _not_on_disk(report: dict) -> Problem | None:
    if not report["on disk"]:
        expected = "the whole file is on the disk before it gets its name"
        return Problem(NOT_ON_THE_DISK, expected, "it may still be in memory")
    return None


def _saved_on_a_full_disk(draw: Draw, world_size: int) -> Trial:
    path, states = draw.path(), [draw.state("AdamW") for _ in range(2)]
    return _SaveTrial(
        title=f"{_ranks(world_size)}, disk full while writing",
        inputs=[(path, states)] * world_size,
        driver=drivers.save_on_a_full_disk,
        verify=lambda outcomes: _lost(states[:1], outcomes[0].value) or _unnoticed(outcomes),
        stuck=LEFT_WAITING,
    )


def _unnoticed(outcomes: Outcomes) -> Problem | None:
    for rank, outcome in enumerate(outcomes):
        if outcome.value["failure"] is None:
            got = f"save_checkpoint returned on rank {rank} as if all were well"
            return Problem(UNNOTICED, "an exception on every rank", got)
    return None


def _lost(states: Sequence[dict], report: dict) -> Problem | None:
    """The problem when none of these states can be read any more."""
    if any(not difference(content_of(state), report["content"]) for state in states):
        return None
    found = "no file" if report["content"] is None else "another one"
    return Problem(
        LOST,
        "the earlier checkpoint, whole",
        "a file that cannot be read" if "unreadable" in report else found,
    )


def _killed(handle: Function, draw: Draw, world_size: int, moment: str) -> Trial:
    """Kills the rank that writes, and makes a trial of what new ranks find, and of their next checkpoint."""
    path, states = draw.path(), [draw.state("SGD") for _ in range(2)]
    inputs = [(path, states, moment)] * world_size
    with contextlib.suppress(RunFailed):  # which is what this is for
        handle.run(inputs, driver=drivers.die_while_saving)
    when = {"writing": "in the midst of writing", "renaming": "before the new file gets its name"}[moment]
    next_state = draw.state("SGD")
    return _SaveTrial(
        title=f"{_ranks(world_size)}, killed {when}",
        inputs=[(path, next_state)] * world_size,
        driver=drivers.recover,
        verify=lambda outcomes: _not_recovered(states, next_state, outcomes[0].value),
        backends=("gloo",),
    )


def _not_recovered(states: Sequence[dict], next_state: dict, report: dict) -> Problem | None:
    lost = _lost(states, report["found"])
    return lost or _wrong_file(content_of(next_state), report["saved"])


# --- load_checkpoint


def _load_cases(draw: Draw, world_sizes: Sequence[int]) -> Iterator[Trial]:
    for world_size in world_sizes:
        yield _loaded(draw, world_size, saved_by=world_size)
    largest = max(world_sizes)
    yield _loaded(draw, largest, saved_by=largest - 1 or 2)
    yield from _unfit(draw, largest)


def _loaded(draw: Draw, world_size: int, saved_by: int) -> Trial:
    kind = ("SGD", "AdamW")[world_size % 2]
    wrapped, as_path = world_size % 3 != 0, world_size % 4 < 2
    saved, other, path = draw.state(kind), draw.state(kind), draw.path()
    random_states = draw.random_states(saved_by)
    gradients = draw.gradients(drivers.make_model(saved["widths"]))
    content = content_of(saved, random_states)
    later = one_step_later(saved, gradients)
    inputs = [
        (path, as_path, wrapped, None if rank else content, other, gradients) for rank in range(world_size)
    ]
    by = "" if saved_by == world_size else f", saved by {saved_by}"
    return Trial(
        title=f"{_ranks(world_size)}{by}, {kind}{', in DDP' if wrapped else ''}",
        inputs=inputs,
        driver=drivers.load,
        verify=lambda outcomes: _wrong_load(saved, random_states, later, outcomes),
        size=1,
    )


def _wrong_load(saved: dict, random_states: Sequence, later: dict, outcomes: Outcomes) -> Problem | None:
    for rank, report in enumerate(outcome.value for outcome in outcomes):
        where = f"rank {rank}: "
        if type(report["step"]) is not int or report["step"] != saved["step"]:
            returned = RETURNED_THE_STEP
            return Problem(returned, f"{where}{saved['step']} is returned", shown(report["step"]))
        for part, not_restored in (("model", MODEL_NOT_RESTORED), ("optimizer", OPTIMIZER_NOT_RESTORED)):
            if differing := difference(saved[part], report[part], name=part):
                return Problem(not_restored, where + differing[0], differing[1])
        if rank < len(random_states) and not same(report["random state"], random_states[rank]):
            expected = f"{where}the random numbers go on as they would have on rank {rank}"
            return Problem(RANDOM_STATE_NOT_RESTORED, expected, "others are drawn")
        for name, wanted in later.items():
            if not close(report["one step later"][name], wanted, 1e-5):
                expected = f"{where}optimizer.step() changes model[{name!r}] afterwards"
                return Problem(OPTIMIZER_OF_ANOTHER_MODEL, expected, "it does not, or in another way")
    return None


@dataclass(frozen=True)
class _Misfit:
    """A file that is no checkpoint of the model, and what the student reads about it."""

    title: str
    content: dict | bytes | None
    share: float = 1.0
    trapped: bool = False


def _misfits(draw: Draw, world_size: int) -> Iterator[_Misfit]:
    def content(widths: Sequence[int]) -> dict[str, object]:
        return content_of(draw.state("SGD", widths), draw.random_states(world_size))

    fitting, first, *rest = content(draw.widths), *draw.widths
    yield _Misfit("no file", None)
    yield _Misfit("empty file", b"", 0.0)
    yield _Misfit("file cut short at 50 %", fitting, 0.5)
    yield _Misfit("file cut short at 99 %", fitting, 0.99)
    yield _Misfit("file of another program", b"step,loss\n1,0.5\n")
    yield _Misfit("checkpoint of a larger model", content((*draw.widths, 2)))
    yield _Misfit("checkpoint of a smaller model", content(draw.widths[:-1]))
    yield _Misfit("checkpoint of a wider model", content((first, *(width + 1 for width in rest))))
    yield _Misfit(
        "checkpoint of another optimizer", fitting | {"optimizer": _one_group(fitting["optimizer"])}
    )
    yield _Misfit("file that runs code when it is unpickled", fitting, trapped=True)


def _one_group(optimizer: dict) -> dict[str, object]:
    return optimizer | {"param_groups": optimizer["param_groups"][:1]}


def _unfit(draw: Draw, world_size: int) -> Iterator[Trial]:
    state, random_state = draw.state("SGD"), draw.random_states(1)[0]
    for misfit in _misfits(draw, world_size):
        path, rest = draw.path(), (misfit.share, misfit.trapped, state, random_state)
        yield Trial(
            title=f"{_ranks(world_size)}, {misfit.title}",
            inputs=[(path, None if rank else misfit.content, *rest) for rank in range(world_size)],
            driver=drivers.load_what_does_not_fit,
            verify=lambda outcomes: _harm(state, random_state, outcomes),
        )


def _harm(state: dict, random_state: torch.Tensor, outcomes: Outcomes) -> Problem | None:
    for rank, report in enumerate(outcome.value for outcome in outcomes):
        where = f"rank {rank}: "
        if report["executed"]:
            return Problem(EXECUTED, "nothing in a file is executed", "its code was run")
        if report["error"] is None:
            return Problem(ACCEPTED, f"{where}an exception", "load_checkpoint returned as if all were well")
        for part in ("model", "optimizer"):
            if differing := difference(state[part], report[part], name=part):
                return Problem(HALF_LOADED, f"{where}as before: {differing[0]}", differing[1])
        if not same(report["random state"], random_state):
            return Problem(HALF_LOADED, f"{where}random numbers as before", "others are drawn")
        name, text = report["error"]
        if "checkpoint.pt" not in text:
            return Problem(UNNAMED, f"{where}an exception that names the file", f"{name}: {text[:200]}")
    return None


def _ranks(world_size: int) -> str:
    return f"{world_size} rank{'s' if world_size > 1 else ''}"
