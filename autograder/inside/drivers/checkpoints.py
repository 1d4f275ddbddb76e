"""Drivers of exercise 04's checkpoints: they save and load, where all goes well and where it does not."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist

from autograder.inside import filesystem
from autograder.inside.drivers import Code
from autograder.inside.drivers.faulty_disks import (
    die_at,
    file_size_limit,
    identity,
    note_what_reaches_the_disk,
    nothing_written,
    slow_disk,
)
from autograder.inside.drivers.training_runs import State, bare, build, plain, state_of
from autograder.inside.reports import Report

Driver = TypeVar("Driver", bound=Callable[..., Any])


@dataclass(frozen=True)
class Contents(Report):
    """The content of a checkpoint, as plain data, or why it cannot be read; neither without a file."""

    content: object = None
    unreadable: str | None = None


@dataclass(frozen=True)
class Saved(Report):
    """The files that some saves have left.

    Attributes:
        nbytes: of the file.
        on_disk: whether all of it had reached the disk before it got its name.
        seen: the file's digest after each save, as soon as it returns and when all ranks are there.
        left_over: names of other files.
        deleted: whether a file of another program is gone.
        written_over: whether the first checkpoint's file was written to again.
    """

    contents: Contents
    nbytes: int
    on_disk: bool
    seen: list[str | None]
    left_over: list[str]
    deleted: bool
    written_over: bool


@dataclass(frozen=True)
class SavedInVain(Report):
    """The content of the path after a save that was to fail, and the name of the exception that it raised."""

    contents: Contents
    failure: str | None


@dataclass(frozen=True)
class Recovered(Report):
    """The content of the path after a crash and after another save, and the other files."""

    found: Contents
    saved: Contents
    left_over: list[str]


@dataclass(frozen=True)
class Loaded(Report):
    """The outcome of loading a checkpoint, and the model one step later.

    Attributes:
        own_random_state: where the rank stood in its random numbers before.
        random_state: where it stands afterwards.
    """

    step: object
    own_random_state: torch.Tensor
    random_state: torch.Tensor
    model: object
    optimizer: object
    one_step_later: dict[str, torch.Tensor]


@dataclass(frozen=True)
class NotLoaded(Report):
    """The outcome of loading a file that does not fit.

    Attributes:
        error: name and text of the exception, if there was one.
        executed: whether the file's code was run.
    """

    error: tuple[str, str] | None
    random_state: torch.Tensor
    model: object
    optimizer: object
    executed: bool


class _Trap:
    """Makes a folder wherever it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.makedirs, (self._folder, 0o777, True)


def _placed(driver: Driver) -> Driver:
    """Have the path that a driver gets lie where this process can write, in a folder of the backend's own."""

    @functools.wraps(driver)
    def run(code: Code, path: str, *arguments: Any, **keywords: Any) -> Any:
        of_the_case = Path(path).parents[1]
        own = of_the_case / dist.get_backend() / Path(path).relative_to(of_the_case)
        return driver(code, filesystem.placed(str(own)), *arguments, **keywords)

    return cast(Driver, run)


@_placed
def save(
    save_checkpoint: Code,
    path: str,
    as_path: bool,
    wrapped: bool,
    states: list[State],
    random_state: torch.Tensor,
) -> Saved:
    """Save one state after the other on a slow disk, where rank 0 alone can write; then by a bare name."""
    kept, others = Path(path).parent.parent / "kept", Path(path).with_name("another.pt")
    seen: list[str | None] = []
    on_disk: set[tuple[int, int]] = set()
    for number, state in enumerate(states):
        model, optimizer = build(state, wrapped)
        torch.set_rng_state(random_state.cpu())
        folder, name = os.path.split(path)
        goal = name if number and os.path.isdir(folder) else path
        watched = note_what_reaches_the_disk(path, on_disk) if dist.get_rank() == 0 else nothing_written()
        with watched, slow_disk(), _working_in(folder) if goal == name else contextlib.nullcontext():
            save_checkpoint(Path(goal) if as_path else goal, model, optimizer, state["step"])
        seen.append(_digest(path))
        dist.barrier()
        seen.append(_digest(path))
        if dist.get_rank() == 0 and seen[0] and not kept.exists():
            os.link(path, kept)  # a second name for the earlier file: does anybody write into it?
            others.touch()
        dist.barrier()
    is_file = os.path.isfile(path)
    return Saved(
        _contents(path),
        os.path.getsize(path) if is_file else 0,
        is_file and identity(path) in on_disk,
        seen,
        [name for name in _left_over(path) if name != others.name],
        kept.exists() and not others.exists(),
        kept.exists() and _digest(kept) != seen[0],
    )


@contextlib.contextmanager
def _working_in(folder: str) -> Iterator[None]:
    """Make this the working directory for a while."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@_placed
def save_on_a_full_disk(save_checkpoint: Code, path: str, states: list[State]) -> SavedInVain:
    """Save the first state, and the second where there is room for half of it."""
    before, after = states
    save_checkpoint(path, *build(before), before["step"])
    dist.barrier()
    with file_size_limit(os.path.getsize(path) // 2):
        failure = _failure_of(save_checkpoint, path, after)
    return SavedInVain(_contents(path), failure)


@_placed
def save_where_no_folder_can_be(save_checkpoint: Code, path: str, state: State) -> SavedInVain:
    """Save in a folder whose name a file has."""
    if dist.get_rank() == 0:
        folder = Path(path).parent
        folder.parent.mkdir(parents=True)
        folder.touch()
    dist.barrier()
    failure = _failure_of(save_checkpoint, path, state)
    return SavedInVain(_contents(path), failure)


def _failure_of(save_checkpoint: Code, path: str, state: State) -> str | None:
    """Try to save, and return the name of the exception that it raises."""
    try:
        save_checkpoint(path, *build(state), state["step"])
    except Exception as error:
        return type(error).__name__
    return None


@_placed
def die_while_saving(save_checkpoint: Code, path: str, states: list[State], moment: str) -> None:
    """Save the first state; while it saves the second, the rank that writes is killed.

    Args:
        moment: "writing" is when half of a file is written; "renaming" is just before a file gets a new name.
    """
    before, after = states
    save_checkpoint(path, *build(before), before["step"])
    dist.barrier()
    die_at(moment, os.path.getsize(path) // 2)
    save_checkpoint(path, *build(after), after["step"])


@_placed
def recover(save_checkpoint: Code, path: str, state: State) -> Recovered:
    """Look what is there, on ranks that were started after all that, and save."""
    found = _contents(path)
    dist.barrier()
    save_checkpoint(path, *build(state), state["step"])
    return Recovered(found, _contents(path), _left_over(path))


@_placed
def load(
    load_checkpoint: Code,
    path: str,
    as_path: bool,
    wrapped: bool,
    content: State | None,
    state: State,
    gradients: list[torch.Tensor],
) -> Loaded:
    """Load what rank 0 wrote into a model in another state, and then take one step.

    Args:
        content: of the file; None on the ranks that do not write it.
        gradients: of the step.
    """
    if content is not None:
        _write(path, content)
    dist.barrier()
    model, optimizer = build(state, wrapped)
    own_random_state = torch.get_rng_state()
    step = load_checkpoint(Path(path) if as_path else path, model, optimizer)
    state_now, random_state = state_of(model, optimizer), torch.get_rng_state()
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient.to(parameter.device)
    optimizer.step()
    later = {name: tensor.detach().clone() for name, tensor in bare(model).state_dict().items()}
    return Loaded(step, own_random_state, random_state, *state_now, later)


@_placed
def load_what_does_not_fit(
    load_checkpoint: Code,
    path: str,
    content: State | bytes | None,
    share: float,
    trapped: bool,
    state: State,
    random_state: torch.Tensor,
) -> NotLoaded:
    """Load a file that is no checkpoint, or one of something else.

    Args:
        content: of the file; None if rank 0 writes none.
        share: of the file that is left of it.
        trapped: whether the file runs code when it is unpickled.
    """
    trap = Path(path).parent / "executed"
    if content is not None:
        trapped_content = (
            content | {"extra": _Trap(trap)} if isinstance(content, dict) and trapped else content
        )
        _write(path, trapped_content, share)
    dist.barrier()
    model, optimizer = build(state)
    torch.set_rng_state(random_state.cpu())
    error = None
    try:
        load_checkpoint(path, model, optimizer)
    except NotImplementedError:
        raise
    except Exception as failure:
        error = type(failure).__name__, str(failure)
    return NotLoaded(error, torch.get_rng_state(), *state_of(model, optimizer), trap.exists())


def _left_over(path: str) -> list[str]:
    """Return the names of the other files in the folder."""
    return sorted({entry.name for entry in Path(path).parent.glob("*")} - {Path(path).name})


def _contents(path: str) -> Contents:
    """Read a checkpoint with code that executes nothing."""
    if not os.path.isfile(path):
        return Contents()
    try:
        return Contents(plain(torch.load(path, map_location="cpu", weights_only=True)))
    except Exception as error:
        return Contents(unreadable=f"{type(error).__name__}: {str(error).partition('. ')[0]}")


def _write(path: str, content: State | bytes, share: float = 1.0) -> None:
    """Write the file, and cut it short."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if isinstance(content, bytes):
        Path(path).write_bytes(content)
    else:
        torch.save(content, path)
    os.truncate(path, int(share * os.path.getsize(path)))


def _digest(path: str | Path) -> str | None:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest() if os.path.isfile(path) else None
