"""Checks of exercise 04's checkpoints: whole, written once and at once, and restored bit by bit.

The states are drawn here, and files are read and written by the drivers, so that each of the two functions is
checked without the other. Faults are real ones: a disk that is full, a rank that is killed while it writes.
"""

from __future__ import annotations

import contextlib
import copy
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from autograder import student
from autograder.drivers import checkpoints as drivers
from autograder.judge import Trial, judge
from autograder.policy import Problem
from autograder.student import Function, Outcome, RunFailed
from autograder.values import close, kind_of, same

WORLD_SIZES = (1, 2, 3, 4, 5)
WIDTHS = (5, 8, 3)
KEYS = ("model", "optimizer", "step", "random_states")

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
        judge("save_checkpoint", handle, _save_cases(handle, _Draw(folder, widths, seed), world_sizes), seed)


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
        judge("load_checkpoint", function, _load_cases(_Draw(folder, widths, seed), world_sizes), seed)


@dataclass
class _Draw:
    """Draws what is saved, and where."""

    folder: str
    widths: Sequence[int]
    seed: int
    cases: int = 0
    generator: torch.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(self.seed)

    def path(self) -> str:
        """Of a checkpoint in a folder that does not exist yet, another one each time."""
        self.cases += 1
        return str(Path(self.folder, f"case_{self.cases}", "run", "checkpoint.pt"))

    def state(self, kind: str, widths: Sequence[int] = ()) -> dict[str, object]:
        """A model and an optimizer in the midst of training, as plain data."""
        model = drivers.make_model(list(widths or self.widths))
        optimizer = drivers.make_optimizer(kind, model)
        for value in model.state_dict().values():
            value.copy_(self._like(value))
        for gradients in (self.gradients(model) for _ in range(2)):
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter.grad = gradient
            optimizer.step()
        for group in optimizer.param_groups:  # as a schedule does
            group["lr"] = self.integer() / 1000
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        return {"kind": kind, "widths": list(widths or self.widths), "step": self.integer()} | drivers.plain(
            state
        )

    def gradients(self, model: torch.nn.Module) -> list[torch.Tensor]:
        return [self._like(parameter) for parameter in model.parameters()]

    def random_states(self, world_size: int) -> list[torch.Tensor]:
        """For each rank another state of torch's random numbers."""
        return [torch.Generator().manual_seed(self.integer()).get_state() for _ in range(world_size)]

    def integer(self) -> int:
        return int(torch.randint(1, 100_000, (), generator=self.generator))

    def _like(self, value: torch.Tensor) -> torch.Tensor:
        if not value.is_floating_point():
            return torch.full_like(value, self.integer())
        return torch.rand(value.shape, generator=self.generator).to(value.dtype) + 0.5


def _content(state: dict, random_states: Sequence[torch.Tensor]) -> dict[str, object]:
    """What the checkpoint of this state holds."""
    whole = {key: state[key] for key in ("model", "optimizer", "step")}
    return whole | {"random_states": [{"cpu": random_state} for random_state in random_states]}


# --- save_checkpoint


@dataclass(frozen=True, kw_only=True)
class _SaveTrial(Trial):
    """A trial that knows what it means when a save does not end well.

    Attributes:
        stuck: the kind of problem that a deadlock is.
    """

    stuck: str = student.DEADLOCK

    def explain(self, failure: RunFailed) -> Problem:
        if failure.exception == drivers.SecondWriter.__name__:
            return Problem("second writer", "files written by rank 0 only", failure.message.split(": ")[-1])
        if failure.reason == student.DEADLOCK:
            return Problem(self.stuck, "save_checkpoint ends on every rank", failure.message)
        return super().explain(failure)


def _save_cases(handle: Function, draw: _Draw, world_sizes: Sequence[int]) -> Iterator[Trial]:
    for world_size in world_sizes:
        yield _saved(draw, world_size)
    for world_size in sorted({min(world_sizes), max(world_sizes)}):
        yield _saved_on_a_full_disk(draw, world_size)
    for moment in ("writing", "renaming"):
        yield _killed(handle, draw, max(world_sizes), moment)


def _saved(draw: _Draw, world_size: int) -> Trial:
    kind = ("SGD", "AdamW")[world_size % 2]
    wrapped, as_path = world_size % 3 != 0, world_size % 4 < 2
    states, random_states, path = (
        [draw.state(kind) for _ in range(2)],
        draw.random_states(world_size),
        draw.path(),
    )
    wanted = _content(states[-1], random_states)
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
        _wrong_file(reports[0], [wanted])
        or _returned_early(reports)
        or _written_over(reports[0])
        or _left_over(reports[0])
    )


def _wrong_file(report: dict, wanted: Sequence[dict], kind: str = "") -> Problem | None:
    """What is wrong with the file, which has to hold one of these; the last one is what it is compared with."""
    content = report["content"]
    if "unreadable" in report:
        expected = "a file that torch.load(path, weights_only=True) reads"
        return Problem(kind or "unreadable", expected, report["unreadable"])
    if content is None:
        return Problem(kind or "no file", "a file at the path", "there is none")
    if not isinstance(content, dict) or not set(KEYS) <= set(content):
        found = f"the keys {', '.join(map(repr, content))}" if isinstance(content, dict) else kind_of(content)
        return Problem(kind or "not whole", f"a dict with the keys {', '.join(map(repr, KEYS))}", found)
    if isinstance(content["model"], dict) and any(
        str(name).startswith("module.") for name in content["model"]
    ):
        names = [f"{next(iter(each['model']))!r}, …" for each in (wanted[-1], content)]
        return Problem("names of the wrapper", f"names such as {names[0]}", names[1])
    differences = [_difference({key: each[key] for key in KEYS}, content) for each in wanted]
    if all(differences):
        expected, got = differences[-1]
        random = expected.startswith("random_states")
        return Problem(kind or ("random states" if random else "not whole"), expected, got)
    return None


def _returned_early(reports: Sequence[dict]) -> Problem | None:
    for rank, report in enumerate(reports):
        if report["seen"][::2] != report["seen"][1::2]:
            got = f"rank {rank} returned before it was there"
            return Problem("did not wait", "the checkpoint is there when save_checkpoint returns", got)
    return None


def _written_over(report: dict) -> Problem | None:
    if report["written_over"]:
        got = "the new one was written into the earlier one's file"
        return Problem("written over", "the earlier checkpoint stays whole until the new one is", got)
    return None


def _left_over(report: dict) -> Problem | None:
    if report["left_over"]:
        return Problem("left over", "one file, at the path", f"also {', '.join(report['left_over'])}")
    return None


def _saved_on_a_full_disk(draw: _Draw, world_size: int) -> Trial:
    states, random_states, path = (
        [draw.state("AdamW") for _ in range(2)],
        draw.random_states(world_size),
        draw.path(),
    )
    return _SaveTrial(
        title=f"{_ranks(world_size)}, disk full while writing",
        inputs=[(path, states)] * world_size,
        driver=drivers.save_on_a_full_disk,
        verify=lambda outcomes: _lost(states[:1], outcomes) or _unnoticed(outcomes),
        stuck="left waiting",
    )


def _unnoticed(outcomes: Outcomes) -> Problem | None:
    for rank, outcome in enumerate(outcomes):
        if outcome.value["failure"] is None:
            got = f"save_checkpoint returned on rank {rank} as if all were well"
            return Problem("unnoticed", "an exception on every rank", got)
    return None


def _lost(states: Sequence[dict], outcomes: Outcomes) -> Problem | None:
    """The problem when none of these states can be read any more; random states were not set."""
    report = outcomes[0].value
    content = report["content"]
    steps = [state["step"] for state in states]
    if isinstance(content, dict) and content.get("step") in steps:
        return None
    got = (
        "a file that cannot be read"
        if "unreadable" in report
        else "no file"
        if content is None
        else "another one"
    )
    return Problem("lost", "the earlier checkpoint, whole", got)


def _killed(handle: Function, draw: _Draw, world_size: int, moment: str) -> Trial:
    """Kills the rank that writes, and makes a trial of what new ranks find then."""
    path, states = draw.path(), [draw.state("SGD") for _ in range(2)]
    inputs = [(path, states, moment)] * world_size
    with contextlib.suppress(RunFailed):  # which is what this is for
        handle.run(inputs, driver=drivers.die_while_saving)
    when = {"writing": "in the midst of writing", "renaming": "before the new file gets its name"}[moment]
    return Trial(
        title=f"{_ranks(world_size)}, killed {when}",
        inputs=[(path,)] * world_size,
        driver=drivers.read,
        verify=lambda outcomes: _lost(states, outcomes),
        backends=("gloo",),
    )


# --- load_checkpoint


def _load_cases(draw: _Draw, world_sizes: Sequence[int]) -> Iterator[Trial]:
    for world_size in world_sizes:
        yield _loaded(draw, world_size, saved_by=world_size)
    largest = max(world_sizes)
    yield _loaded(draw, largest, saved_by=largest - 1 or 2)
    yield from _unfit(draw, largest)


def _loaded(draw: _Draw, world_size: int, saved_by: int) -> Trial:
    kind = ("SGD", "AdamW")[world_size % 2]
    wrapped, as_path = world_size % 3 != 0, world_size % 4 < 2
    saved, other, path = draw.state(kind), draw.state(kind), draw.path()
    random_states = draw.random_states(saved_by)
    gradients = draw.gradients(drivers.make_model(saved["widths"]))
    content = _content(saved, random_states)
    later = _one_step_later(saved, gradients)
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


def _one_step_later(state: dict, gradients: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    model = drivers.make_model(state["widths"])
    optimizer = drivers.make_optimizer(state["kind"], model)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))  # which a step changes
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient
    optimizer.step()
    return drivers.plain(model.state_dict())


def _wrong_load(saved: dict, random_states: Sequence, later: dict, outcomes: Outcomes) -> Problem | None:
    for rank, report in enumerate(outcome.value for outcome in outcomes):
        where = f"rank {rank}: "
        if type(report["step"]) is not int or report["step"] != saved["step"]:
            returned = "returned the step"
            return Problem(returned, f"{where}{saved['step']} is returned", _shown(report["step"]))
        for part in ("model", "optimizer"):
            if difference := _difference(saved[part], report[part], name=part):
                return Problem(f"{part} not restored", where + difference[0], difference[1])
        if rank < len(random_states) and not same(report["random state"], random_states[rank]):
            expected = f"{where}the random numbers go on as they would have on rank {rank}"
            return Problem("random state not restored", expected, "others are drawn")
        for name, wanted in later.items():
            if not close(report["one step later"][name], wanted, 1e-5):
                expected = f"{where}optimizer.step() changes model[{name!r}] afterwards"
                return Problem("optimizer of another model", expected, "it does not, or in another way")
    return None


@dataclass(frozen=True)
class _Misfit:
    """A file that is no checkpoint of the model, and what the student reads about it."""

    title: str
    content: dict | bytes | None
    share: float = 1.0
    trapped: bool = False


def _misfits(draw: _Draw, world_size: int) -> Iterator[_Misfit]:
    def content(widths: Sequence[int]) -> dict[str, object]:
        return _content(draw.state("SGD", widths), draw.random_states(world_size))

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


def _unfit(draw: _Draw, world_size: int) -> Iterator[Trial]:
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
            return Problem("executed", "nothing in a file is executed", "its code was run")
        if report["error"] is None:
            return Problem("accepted", f"{where}an exception", "load_checkpoint returned as if all were well")
        for part in ("model", "optimizer"):
            if difference := _difference(state[part], report[part], name=part):
                return Problem("half loaded", f"{where}as before: {difference[0]}", difference[1])
        if not same(report["random state"], random_state):
            return Problem("half loaded", f"{where}random numbers as before", "others are drawn")
        name, text = report["error"]
        if "checkpoint.pt" not in text:
            return Problem("unnamed", f"{where}an exception that names the file", f"{name}: {text[:200]}")
    return None


# --- both


def _difference(wanted: object, got: object, name: str = "") -> tuple[str, str] | None:
    """The first place where two states differ: what is expected there, and what was found."""
    wanted_leaves, got_leaves = dict(_leaves(wanted, name)), dict(_leaves(got, name))
    for place, leaf in wanted_leaves.items():
        if place not in got_leaves:
            return place, "is missing"
        if not same(got_leaves[place], leaf):
            return f"{place} = {_shown(leaf)}", _shown(got_leaves[place])
    return None


def _leaves(value: object, name: str) -> Iterator[tuple[str, object]]:
    """Each value of a nested state with its place in it."""
    if not isinstance(value, (dict, list)):
        yield name, value
        return
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield from _leaves(item, f"{name}[{key!r}]" if name else str(key))


def _shown(value: object) -> str:
    if isinstance(value, torch.Tensor) and value.numel():
        first = f"{value.flatten()[0].item():.7g}"
        return first if value.numel() == 1 else f"{kind_of(value)}, {first} first"
    return repr(value) if isinstance(value, (bool, int, float, str)) else kind_of(value)


def _ranks(world_size: int) -> str:
    return f"{world_size} rank{'s' if world_size > 1 else ''}"
