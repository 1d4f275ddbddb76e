"""Gives a script that torchrun would start what it expects, when it runs as a cell on a rank.

Such a script reads its rank from the environment and its options from `sys.argv`, meets the other processes
in `init_process_group`, and may leave by `sys.exit`. A rank has its process group before the first cell runs,
so `init_process_group` attaches to that one. A program that `fourranks run` has started forms its own.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import reprlib
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch.distributed as dist
import torch.distributed.launcher.api
from IPython.core.error import UsageError
from torch.distributed import distributed_c10d

from ..naming import counted
from ..placement import BACKEND_NAMES
from ..protocol.messages import Settings
from . import patches
from .default_group import TORCH_INIT, DefaultGroup
from .process_group import RecordingProcessGroup

_ARGUMENTS = inspect.signature(TORCH_INIT)
_START_PROCESSES = sys.modules["torch.multiprocessing.spawn"].start_processes
_LAUNCH_AGENT = torch.distributed.launcher.api.launch_agent
_set_timeout = getattr(dist, "set_timeout", distributed_c10d._set_pg_timeout)  # the first since 2.14


class Script:
    """Stands in for the launcher of the scripts that run as cells of one rank."""

    def __init__(self, settings: Settings, group: DefaultGroup) -> None:
        self._settings, self._group = settings, group
        self._pid = os.getpid()
        self._called = False  # the running cell has called init_process_group
        self._restore_timeout: Callable[[], None] = _nothing_to_restore
        self._told: set[str] = set()
        self._backend_of_program = ""  # or "auto"; empty while cells run

    def install(self) -> None:
        """Stand in for the functions that scripts call to join their world, to start processes and to end."""
        sys.argv = ["cell"]

        @functools.wraps(TORCH_INIT)
        def init_process_group(*args: Any, **kwargs: Any) -> None:
            self._attach(*args, **kwargs)

        patches.serve_scripts(init_process_group, self._start_processes, self._launch_agent, self._checked)

    def serve_program(self, backend: str) -> None:
        """Let what runs now form its own groups and start processes, as under torchrun.

        Args:
            backend: of its default group; "auto" for the one that it asks for.
        """
        self._backend_of_program = backend

    def begin_cell(self) -> None:
        """Let the script in the next cell attach to the world, too."""
        self._called = False
        self._restore_timeout()  # the world of the script before is over
        self._restore_timeout = _nothing_to_restore

    # --- joining the world -------------------------------------------------------------------------------

    def _attach(self, *args: Any, **kwargs: Any) -> None:
        if os.getpid() != self._pid:
            raise UsageError(
                "init_process_group was called in a process that a rank has started. The ranks are the "
                f"{self._settings.world_size} processes of this world: call what it runs in the cell itself."
            )
        if self._backend_of_program:
            self._form(*args, **kwargs)
            return
        first, self._called = not self._called, True
        if not (first and self._group.exists):
            TORCH_INIT(*args, **kwargs)
            return
        asked = None
        with contextlib.suppress(TypeError):
            asked = _ARGUMENTS.bind(*args, **kwargs).arguments
        if asked is None:
            TORCH_INIT(*args, **kwargs)  # torch says what is wrong
            return
        _require_place(asked.get("world_size", -1), asked.get("rank", -1))
        backends = _backends(asked.get("backend"))
        timeout, world = asked.get("timeout"), _world()
        if timeout is not None and isinstance(world, RecordingProcessGroup):  # else the reader has written it
            self._restore_timeout = _timeout_of_before(world)
            _set_timeout(timeout)
        self._tell(backends)

    def _form(self, *args: Any, **kwargs: Any) -> None:
        """Form the group of a program, on the backend that was asked for in its place."""
        if self._backend_of_program != "auto":
            kwargs["backend"], args = self._backend_of_program, args[1:]
        TORCH_INIT(*args, **kwargs)
        if kwargs.get("enable_reconfigure"):  # the program connects it later
            return
        world = _world()
        backends = {world._get_backend(device) for device in world._device_types}
        gloo: list[Any] = [each for each in backends if isinstance(each, dist.ProcessGroupGloo)]
        for backend in gloo:  # the only one, or the one for the CPU beside NCCL
            # A rank that destroys the group at once would close connections that others still open.
            backend.barrier().wait()

    def _tell(self, backends: set[str]) -> None:
        """Say, once, which group the script got, and on which backend if it asked for another."""
        size, backend = counted(_world().size(), "rank"), distributed_c10d.get_backend()
        text = f"init_process_group() uses the process group that is there: {size} on {_name(backend)}."
        if len(backends) == 1 and backend in BACKEND_NAMES and backend not in backends:
            (other,) = backends
            need = " (which needs a GPU)" if other == "nccl" else ""
            text += f" For {_name(other)}{need}: %ranks start --backend {other}"
        if text not in self._told:
            self._told.add(text)
            sys.stdout.write(f"{text}\n")

    # --- starting processes ------------------------------------------------------------------------------

    def _start_processes(
        self, fn: Callable[..., Any], args: Sequence[Any] = (), nprocs: int = 1, *more: Any, **options: Any
    ) -> Any:
        """Refuse torch's `spawn` and `start_processes` to cells: each rank would start a world of its own."""
        if self._backend_of_program:
            return _START_PROCESSES(fn, args, nprocs, *more, **options)
        arguments = ["rank", *map(reprlib.repr, args)]
        raise self._refusal("torch.multiprocessing.spawn starts", fn, arguments, nprocs)

    def _launch_agent(
        self, config: Any, entrypoint: Any, args: Sequence[Any], *more: Any, **options: Any
    ) -> Any:
        """Refuse torch's elastic launcher to cells, as `_start_processes` does."""
        if self._backend_of_program:
            return _LAUNCH_AGENT(config, entrypoint, list(args), *more, **options)
        count = config.max_nodes * config.nproc_per_node
        what = "torch.distributed.launcher, which notebook_launcher and torchrun use, starts"
        raise self._refusal(what, entrypoint, list(map(reprlib.repr, args)), count)

    def _refusal(self, what: str, fn: object, arguments: list[str], nprocs: int) -> UsageError:
        if getattr(fn, "__module__", None) == "__main__" and hasattr(fn, "__name__"):
            instead = f"Call {fn.__name__}({', '.join(arguments)}) in its place."
        else:  # a library's
            instead = "Run what it starts in the cell itself."
        count = self._settings.world_size
        start = f" `%ranks start -n {nprocs}` starts {nprocs} ranks." if nprocs not in (0, count) else ""
        return UsageError(
            f"{what} processes, and this cell runs on {count} of them already: the ranks. {instead}{start}"
        )

    def _checked(self, start: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Refuse to start a process that could not find its function, in place of its own long traceback."""

        def checked(process: Any) -> Any:
            if self._is_of_a_cell(process._target):
                name = getattr(process._target, "__name__", process._target)
                raise UsageError(
                    f"A fresh process cannot find {name}, which was defined in a cell. Put it into a module "
                    f"and import it, or call {name} on the ranks, which are processes already."
                )
            return start(process)

        return checked

    def _is_of_a_cell(self, function: object) -> bool:
        return not self._backend_of_program and getattr(function, "__module__", None) == "__main__"


def _nothing_to_restore() -> None:
    pass


def _world() -> dist.ProcessGroup:
    """Return the default process group, once it is known to be there."""
    group = distributed_c10d.GroupMember.WORLD
    assert group is not None, "scripts attach to a group that is there"
    return group


def _timeout_of_before(world: RecordingProcessGroup) -> Callable[[], None]:
    """Return what gives the default group its present timeout again, if that group is still there then."""
    present = weakref.ref(world)  # a reference would keep its connections
    before = min(world.timeouts())

    def restore() -> None:
        group = present()
        if group is not None and group is distributed_c10d.GroupMember.WORLD:
            _set_timeout(before)

    return restore


def _require_place(world_size: int, rank: int) -> None:
    """Refuse to attach a script that asks for another world, or for another place in it."""
    group = _world()
    if world_size not in (-1, group.size()):
        raise ValueError(
            f"init_process_group(world_size={world_size!r}) in a world of {counted(group.size(), 'rank')}. "
            f"Leave world_size out, or start such a world in another cell: %ranks start -n {world_size}"
        )
    if rank not in (-1, group.rank()):
        raise ValueError(
            f"init_process_group(rank={rank!r}) on rank {group.rank()}. Leave rank out, or pass "
            'int(os.environ["RANK"]).'
        )


def _backends(asked: str | None) -> set[str]:
    """Return the backends that a script asks for, by name; none if it leaves the choice to torch."""
    named = {part.rpartition(":")[2] for part in (asked or "").lower().split(",")} - {"", "undefined"}
    if foreign := named - set(BACKEND_NAMES):
        there = _name(distributed_c10d.get_backend())
        raise ValueError(
            f"init_process_group({asked!r}): the ranks have a process group on {there}. Call "
            f"dist.destroy_process_group() first to form one on {', '.join(sorted(foreign))}."
        )
    return named


def _name(backend: str) -> str:
    return BACKEND_NAMES.get(backend, backend)
