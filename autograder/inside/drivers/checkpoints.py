"""Saves and loads checkpoints on the ranks, on disks that are slow, full, or lost in the middle of writing.

The faults are real ones: the kernel refuses to write beyond RLIMIT_FSIZE, or ends the process that tries.
`checks.checkpoints` names these drivers in its cases, and knows what has to come of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn

SLOW = 0.1  # seconds that writing takes longer on a slow disk: a rank that does not wait is back long before

Reports = dict[str, object]


class SecondWriter(Exception):
    """A rank other than 0 writes a file."""


class _Trap:
    """Makes a folder wherever it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def __reduce__(self) -> tuple:
        return os.makedirs, (self._folder, 0o777, True)


def make_model(widths: list[int]) -> nn.Module:
    """Linear layers of these widths with batch norms, whose buffers belong to the state too."""
    layers = [(nn.Linear(n, m), nn.BatchNorm1d(m)) for n, m in itertools.pairwise(widths)]
    return nn.Sequential(*itertools.chain(*layers))


def make_optimizer(name: str, model: nn.Module) -> torch.optim.Optimizer:
    """SGD with momentum, or AdamW; weights decay, biases and batch norms do not."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in parameters if p.dim() == 1]},
    ]
    if name == "SGD":
        return torch.optim.SGD(groups, lr=1.0, momentum=0.5)
    return torch.optim.AdamW(groups, lr=1.0, weight_decay=0.0)


def save(
    save_checkpoint: Callable,
    path: str,
    as_path: bool,
    wrapped: bool,
    states: list[Reports],
    random_state: torch.Tensor,
) -> Reports:
    """Saves one state after the other on a slow disk, where rank 0 alone can write."""
    folder, kept = Path(path).parent, Path(path).parent.parent / "kept"
    seen, on_disk = [], set()
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
    return _contents(path) | {
        "nbytes": os.path.getsize(path) if os.path.isfile(path) else 0,
        "on disk": os.path.isfile(path) and _identity(path) in on_disk,
        "seen": seen,
        "left_over": sorted({entry.name for entry in folder.glob("*")} - {Path(path).name}),
        "written_over": kept.exists() and _digest(kept) != seen[0],
    }


def save_on_a_full_disk(save_checkpoint: Callable, path: str, states: list[Reports]) -> Reports:
    """Saves the first state, and the second where there is room for half of it."""
    before, after = states
    save_checkpoint(path, *_build(before), before["step"])
    dist.barrier()
    failure = None
    with _file_size_limit(os.path.getsize(path) // 2):
        try:
            save_checkpoint(path, *_build(after), after["step"])
        except Exception as error:
            failure = type(error).__name__
    return _contents(path) | {"failure": failure}


def die_while_saving(save_checkpoint: Callable, path: str, states: list[Reports], moment: str) -> None:
    """Saves the first state; while it saves the second, the rank that writes is killed.

    Args:
        moment: "writing" is when half of a file is written; "renaming" is just before a file gets a new name.
    """
    before, after = states
    save_checkpoint(path, *_build(before), before["step"])
    dist.barrier()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if moment == "writing":
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(path) // 2, resource.RLIM_INFINITY))
    else:
        sys.addaudithook(_die_when_a_file_is_renamed)
    save_checkpoint(path, *_build(after), after["step"])


def recover(save_checkpoint: Callable, path: str, state: Reports) -> Reports:
    """What ranks find that were started after all that, and what they leave there when they save."""
    found = _contents(path)
    dist.barrier()
    save_checkpoint(path, *_build(state), state["step"])
    return {"found": found, "saved": _contents(path)}


def load(
    load_checkpoint: Callable,
    path: str,
    as_path: bool,
    wrapped: bool,
    content: Reports | None,
    state: Reports,
    gradients: list[torch.Tensor],
) -> Reports:
    """Loads what rank 0 wrote into a model in another state, and then takes one step.

    Args:
        content: what the file holds; None on the ranks that do not write it.
        gradients: of the step.
    """
    if content is not None:
        _write(path, content)
    dist.barrier()
    model, optimizer = _build(state, wrapped)
    step = load_checkpoint(Path(path) if as_path else path, model, optimizer)
    report = {"step": step, "random state": torch.get_rng_state()} | _state(model, optimizer)
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient.to(parameter.device)
    optimizer.step()
    return report | {"one step later": _state(model, optimizer)["model"]}


def load_what_does_not_fit(
    load_checkpoint: Callable,
    path: str,
    content: Reports | bytes | None,
    share: float,
    trapped: bool,
    state: Reports,
    random_state: torch.Tensor,
) -> Reports:
    """Loads a file that is no checkpoint, or one of something else.

    Args:
        content: what the file holds; None if rank 0 writes none.
        share: of the file that is left of it.
        trapped: whether the file runs code when it is unpickled.
    """
    trap = Path(path).parent / "executed"
    if content is not None:
        _write(path, content | {"extra": _Trap(trap)} if trapped else content, share)
    dist.barrier()
    model, optimizer = _build(state)
    torch.set_rng_state(random_state.cpu())
    error = None
    try:
        load_checkpoint(path, model, optimizer)
    except NotImplementedError:
        raise
    except Exception as failure:
        error = [type(failure).__name__, str(failure)]
    report = {"error": error, "random state": torch.get_rng_state()} | _state(model, optimizer)
    return report | {"executed": trap.exists()}


def _build(state: Reports, wrapped: bool = False) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A model and its optimizer in the given state; wrapped as by DDP if so desired."""
    model = make_model(state["widths"])
    if dist.get_backend() == "nccl":
        model.cuda()
    optimizer = make_optimizer(state["kind"], model)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return (_wrapped(model) if wrapped else model), optimizer


def _wrapped(model: nn.Module) -> nn.Module:
    """A model in `.module` of a wrapper whose class, for code that asks, is one of DDP's.

    DDP itself is not there, because the exercise asks for it: its name stands for a class without instances.
    """

    class Wrapper(nn.Module, nn.parallel.DistributedDataParallel):
        def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
            return self.module(*inputs)

    wrapper = object.__new__(Wrapper)
    nn.Module.__init__(wrapper)
    wrapper.module = model
    return wrapper


def _state(model: nn.Module, optimizer: torch.optim.Optimizer) -> Reports:
    bare = getattr(model, "module", model)
    return {"model": plain(bare.state_dict()), "optimizer": plain(optimizer.state_dict())}


def _contents(path: str) -> Reports:
    """What a checkpoint holds: read with code that executes nothing."""
    if not os.path.isfile(path):
        return {"content": None}
    try:
        return {"content": plain(torch.load(path, map_location="cpu", weights_only=True))}
    except Exception as error:
        return {"content": None, "unreadable": f"{type(error).__name__}: {str(error).partition('. ')[0]}"}


def plain(value: object) -> object:
    """The same in tensors, dicts, lists and what is neither; a state dict is a class of its own."""
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


def _write(path: str, content: Reports | bytes, share: float = 1.0) -> None:
    """Writes the file, and cuts it short."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if isinstance(content, bytes):
        Path(path).write_bytes(content)
    else:
        torch.save(content, path)
    os.truncate(path, int(share * os.path.getsize(path)))


def _digest(path: str | Path) -> str | None:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest() if os.path.isfile(path) else None


def _identity(path: str | os.PathLike) -> tuple[int, int]:
    """Which file it is, whatever its name, and how much has been written to it."""
    status = os.stat(path)
    return status.st_ino, status.st_size


@contextlib.contextmanager
def _note_what_reaches_the_disk(path: str, on_disk: set[tuple[int, int]]) -> Iterator[None]:
    """Adds the files beside `path` that the disk is made to take before one of them gets this name."""

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

    def slow(*arguments: object, **options: object) -> None:
        save(*arguments, **options)
        time.sleep(SLOW)

    with mock.patch.object(torch, "save", slow):
        yield


@contextlib.contextmanager
def _file_size_limit(nbytes: int) -> Iterator[None]:
    """No file can become larger, as on a disk that is full: writing more raises an OSError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextlib.contextmanager
def _nothing_written() -> Iterator[None]:
    """Raises SecondWriter when anything is written to a file."""
    attempts = []
    previous = signal.signal(signal.SIGXFSZ, lambda *_: attempts.append(None))
    try:
        with _file_size_limit(0), mock.patch.object(sys, "dont_write_bytecode", True):
            yield
    finally:
        signal.signal(signal.SIGXFSZ, previous)
        if attempts:
            raise SecondWriter(f"rank {dist.get_rank()} writes, too")


def _die_when_a_file_is_renamed(event: str, _: tuple) -> None:
    if event == "os.rename":  # os.replace is one too
        os.kill(os.getpid(), signal.SIGKILL)
