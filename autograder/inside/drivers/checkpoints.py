"""Drivers of exercise 04's checkpoints, on disks that are slow, full, or lost in the middle of writing.

The faults are real ones: the kernel refuses to write beyond RLIMIT_FSIZE, or ends the process that tries.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn

from autograder.inside import filesystem
from autograder.inside.drivers import Code
from autograder.inside.drivers.small_models import device
from autograder.inside.reports import Report

SLOW = 0.1  # seconds that writing takes longer on a slow disk: a rank that does not wait is back long before

Driver = TypeVar("Driver", bound=Callable[..., Any])
State = dict[str, Any]  # of a model and its optimizer, with what makes them: "kind", "widths" and "step"


@dataclass(frozen=True)
class Contents(Report):
    """What a checkpoint holds, as plain data, or why it cannot be read; neither where there is no file."""

    content: object = None
    unreadable: str | None = None


@dataclass(frozen=True)
class Saved(Report):
    """What is left of some saves.

    Attributes:
        nbytes: of the file.
        on_disk: whether all of it was on the disk before it got its name.
        seen: the file's digest after each save, as soon as it returns and when all ranks are there.
        left_over: names of other files.
        written_over: whether the first checkpoint's file was written to again.
    """

    contents: Contents
    nbytes: int
    on_disk: bool
    seen: list[str | None]
    left_over: list[str]
    written_over: bool


@dataclass(frozen=True)
class SavedInVain(Report):
    """What the path holds after a save that was to fail, and the name of the exception that it raised."""

    contents: Contents
    failure: str | None


@dataclass(frozen=True)
class Recovered(Report):
    """What the path held after a crash, and what it holds when something was saved there."""

    found: Contents
    saved: Contents


@dataclass(frozen=True)
class Loaded(Report):
    """What came of loading a checkpoint, and the model one step later."""

    step: object
    random_state: torch.Tensor
    model: object
    optimizer: object
    one_step_later: dict[str, torch.Tensor]


@dataclass(frozen=True)
class NotLoaded(Report):
    """What came of loading a file that does not fit.

    Attributes:
        error: name and text of the exception, if there was one.
        executed: whether the file's code was run.
    """

    error: tuple[str, str] | None
    random_state: torch.Tensor
    model: object
    optimizer: object
    executed: bool


class SecondWriter(Exception):
    """A rank other than 0 writes a file."""


class _Trap:
    """Makes a folder wherever it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.makedirs, (self._folder, 0o777, True)


def make_model(widths: list[int]) -> nn.Module:
    """Make linear layers of these widths with batch norms, whose buffers belong to the state too."""
    layers = [(nn.Linear(n, m), nn.BatchNorm1d(m)) for n, m in itertools.pairwise(widths)]
    return nn.Sequential(*itertools.chain(*layers))


def make_optimizer(name: str, model: nn.Module) -> torch.optim.Optimizer:
    """Make SGD with momentum, or AdamW; weights decay, biases and batch norms do not."""
    parameters = list(model.parameters())
    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in parameters if p.dim() == 1]},
    ]
    if name == "SGD":
        return torch.optim.SGD(groups, lr=1.0, momentum=0.5)
    return torch.optim.AdamW(groups, lr=1.0, weight_decay=0.0)


def _placed(driver: Driver) -> Driver:
    """Have the path that a driver gets lie where this process can write."""

    @functools.wraps(driver)
    def run(code: Code, path: str, *arguments: Any, **keywords: Any) -> Any:
        return driver(code, filesystem.placed(path), *arguments, **keywords)

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
    """Save one state after the other on a slow disk, where rank 0 alone can write."""
    folder, kept = Path(path).parent, Path(path).parent.parent / "kept"
    seen: list[str | None] = []
    on_disk: set[tuple[int, int]] = set()
    for state in states:
        model, optimizer = _build(state, wrapped)
        torch.set_rng_state(random_state.cpu())
        watched = _note_what_reaches_the_disk(path, on_disk) if dist.get_rank() == 0 else _nothing_written()
        with watched, _slow_disk():
            save_checkpoint(Path(path) if as_path else path, model, optimizer, state["step"])
        seen.append(_digest(path))
        dist.barrier()
        seen.append(_digest(path))
        if dist.get_rank() == 0 and seen[0] and not kept.exists():
            os.link(path, kept)  # a second name for the earlier file: does anybody write into it?
        dist.barrier()
    is_file = os.path.isfile(path)
    return Saved(
        _contents(path),
        os.path.getsize(path) if is_file else 0,
        is_file and _identity(path) in on_disk,
        seen,
        sorted({entry.name for entry in folder.glob("*")} - {Path(path).name}),
        kept.exists() and _digest(kept) != seen[0],
    )


@_placed
def save_on_a_full_disk(save_checkpoint: Code, path: str, states: list[State]) -> SavedInVain:
    """Save the first state, and the second where there is room for half of it."""
    before, after = states
    save_checkpoint(path, *_build(before), before["step"])
    dist.barrier()
    failure = None
    with _file_size_limit(os.path.getsize(path) // 2):
        try:
            save_checkpoint(path, *_build(after), after["step"])
        except Exception as error:
            failure = type(error).__name__
    return SavedInVain(_contents(path), failure)


@_placed
def die_while_saving(save_checkpoint: Code, path: str, states: list[State], moment: str) -> None:
    """Save the first state; while it saves the second, the rank that writes is killed.

    Args:
        moment: "writing" is when half of a file is written; "renaming" is just before a file gets a new name.
    """
    before, after = states
    save_checkpoint(path, *_build(before), before["step"])
    dist.barrier()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if moment == "writing":
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(path) // 2, hard))
    else:
        sys.addaudithook(_die_when_a_file_is_renamed)
    save_checkpoint(path, *_build(after), after["step"])


@_placed
def recover(save_checkpoint: Code, path: str, state: State) -> Recovered:
    """Look what is there, on ranks that were started after all that, and save."""
    found = _contents(path)
    dist.barrier()
    save_checkpoint(path, *_build(state), state["step"])
    return Recovered(found, _contents(path))


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
        content: what the file holds; None on the ranks that do not write it.
        gradients: of the step.
    """
    if content is not None:
        _write(path, content)
    dist.barrier()
    model, optimizer = _build(state, wrapped)
    step = load_checkpoint(Path(path) if as_path else path, model, optimizer)
    state_now, random_state = _state(model, optimizer), torch.get_rng_state()
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient.to(parameter.device)
    optimizer.step()
    later = {name: tensor.detach().clone() for name, tensor in _bare(model).state_dict().items()}
    return Loaded(step, random_state, *state_now, later)


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
        content: what the file holds; None if rank 0 writes none.
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
    model, optimizer = _build(state)
    torch.set_rng_state(random_state.cpu())
    error = None
    try:
        load_checkpoint(path, model, optimizer)
    except NotImplementedError:
        raise
    except Exception as failure:
        error = type(failure).__name__, str(failure)
    return NotLoaded(error, torch.get_rng_state(), *_state(model, optimizer), trap.exists())


def _build(state: State, wrapped: bool = False) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Make a model and its optimizer in the given state; wrapped as by DDP if so desired."""
    model = make_model(state["widths"]).to(device())
    optimizer = make_optimizer(state["kind"], model)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return (_wrapped(model) if wrapped else model), optimizer


def _wrapped(model: nn.Module) -> nn.Module:
    """Put a model into `.module` of a wrapper whose class, for code that asks, is one of DDP's.

    DDP itself is not there, because the exercise asks for it: its name stands for a class without instances.
    """

    bases: Any = (nn.Module, nn.parallel.DistributedDataParallel)
    wrapper: nn.Module = object.__new__(type("Wrapper", bases, {"forward": _forward}))
    nn.Module.__init__(wrapper)
    wrapper.module = model
    return wrapper


def _forward(wrapper: nn.Module, *inputs: torch.Tensor) -> Any:
    return _bare(wrapper)(*inputs)


def _bare(model: nn.Module) -> nn.Module:
    module = getattr(model, "module", model)
    assert isinstance(module, nn.Module)
    return module


def _state(model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[object, object]:
    return plain(_bare(model).state_dict()), plain(optimizer.state_dict())


def _contents(path: str) -> Contents:
    """Read a checkpoint with code that executes nothing."""
    if not os.path.isfile(path):
        return Contents()
    try:
        return Contents(plain(torch.load(path, map_location="cpu", weights_only=True)))
    except Exception as error:
        return Contents(unreadable=f"{type(error).__name__}: {str(error).partition('. ')[0]}")


def plain(value: object) -> object:
    """Return the same in tensors, dicts, lists and what is neither; a state dict is a class of its own."""
    match value:
        case torch.Tensor():
            return value.detach().clone()
        case dict():
            return {
                key if isinstance(key, (int, str)) else repr(key): plain(item) for key, item in value.items()
            }
        case list() | tuple():
            return [plain(item) for item in value]
        case None | bool() | int() | float() | str() | bytes():
            return value
    return f"something of type {type(value).__name__}"


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


def _identity(path: str | Path) -> tuple[int, int]:
    """Tell which file it is, whatever its name, and how much has been written to it."""
    status = os.stat(path)
    return status.st_ino, status.st_size


@contextlib.contextmanager
def _note_what_reaches_the_disk(path: str, on_disk: set[tuple[int, int]]) -> Iterator[None]:
    """Add the files next to `path` that the disk is made to take before one of them gets this name."""

    def note(_: object, event: str, function: object) -> None:
        if event == "c_call" and function in (os.fsync, os.fdatasync, os.sync):
            others = [other for other in Path(path).parent.glob("*") if other != Path(path)]
            on_disk.update(map(_identity, others))

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


@contextlib.contextmanager
def _slow_disk() -> Iterator[None]:
    save = torch.save

    def slow(*arguments: Any, **options: Any) -> None:
        save(*arguments, **options)
        time.sleep(SLOW)

    with mock.patch.object(torch, "save", slow):
        yield


@contextlib.contextmanager
def _file_size_limit(nbytes: int) -> Iterator[None]:
    """Let no file become larger, as on a disk that is full: writing more raises an OSError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextlib.contextmanager
def _nothing_written() -> Iterator[None]:
    """Raise SecondWriter when anything is written to a file."""
    attempts: list[None] = []
    previous = signal.signal(signal.SIGXFSZ, lambda *_: attempts.append(None))
    try:
        with _file_size_limit(0), mock.patch.object(sys, "dont_write_bytecode", True):
            yield
    finally:
        signal.signal(signal.SIGXFSZ, previous)
        if attempts:
            raise SecondWriter(f"rank {dist.get_rank()} writes, too")


def _die_when_a_file_is_renamed(event: str, _: tuple[Any, ...]) -> None:
    if event == "os.rename":  # os.replace is one too
        os.kill(os.getpid(), signal.SIGKILL)
