"""Replaces parts of torch and Python that have no hooks for a rank's work.

The new parts lie in the modules that they belong to; only here are they put in place. Why the hooks of
torch 2.15 do not serve is in docs/compat.md.
"""

from __future__ import annotations

import builtins
import multiprocessing.context
import os
import sys
import threading
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.launcher.api
import torch.multiprocessing
from torch._C._distributed_c10d import Store, TCPStore
from torch.distributed import distributed_c10d
from torch.distributed.rendezvous import _rendezvous_handlers

from . import cuda, frames, futures, gloo, hooks, new_groups, own_groups, stores
from .process_group import RecordingProcessGroup
from .recorder import Recorder
from .uncompiled import leave_uncompiled

# Modules of torch in which the group of the moment of their import is the default of an argument.
_TAKE_THE_GROUP_OF_THEIR_IMPORT = (
    "torch.distributed.nn.functional",
    "torch.distributed.optim.zero_redundancy_optimizer",
)


def record_groups(recorder: Recorder) -> None:
    """Record the calls of all process groups that this process makes from now on, and what waits for them."""
    RecordingProcessGroup.recorder = recorder
    os.register_at_fork(after_in_child=RecordingProcessGroup.note_fork)
    _replace(
        distributed_c10d,
        ProcessGroup=own_groups.ProcessGroup,
        _new_process_group_helper=own_groups.taken(distributed_c10d._new_process_group_helper),
        _new_group_with_tag=new_groups.recorded_new_group(distributed_c10d._new_group_with_tag),
        default_pg_nccl_timeout=cuda.NCCL_PATIENCE,  # torch's default of ten minutes counts as a failed call
        _create_process_group_wrapper=new_groups.leave_unwrapped,
    )
    _replace(RecordingProcessGroup, split_group=new_groups.split_group, **hooks.forwarded())
    leave_uncompiled([new_groups.split_group])
    for hook, attach in hooks.attached_inside().items():
        _replace(hook, attach=staticmethod(attach))
    future = torch._C.Future
    _replace(future, wait=futures.recorded_wait(future.wait, recorder))
    _replace(future, then=futures.traced(future.then, lambda future, *_: [future]))
    _replace(torch._C, _collect_all=futures.traced(torch._C._collect_all, lambda futures: futures))
    _replace(threading.Thread, start=frames.noting_its_start(threading.Thread.start))
    _replace(Store, **stores.noted_waits(recorder))
    _replace(TCPStore, __init__=stores.make_tcp_store)
    if dist.is_gloo_available():
        _replace(dist.ProcessGroupGloo, __init__=gloo.interruptible(dist.ProcessGroupGloo.__init__, recorder))


def connect_at_once(device: torch.device | None, shares_board: bool = False) -> None:
    """Have NCCL connect the ranks of each group on this GPU as it is made; None leaves that to torch.

    Args:
        shares_board: whether all ranks post what they are about to do where this one sees it.
    """
    RecordingProcessGroup.connects_on = device
    RecordingProcessGroup.meets_peers = shares_board
    if device is not None:
        # Which torch then gives of its own accord, about what docs/gpu.md says, on every rank.
        warnings.filterwarnings("ignore", r"barrier\(\): using the device under current context")


def stage_messages_of_gpus() -> None:
    """Have send and recv of Gloo take GPU tensors, by way of the host's memory as its collectives do."""
    staged = cuda.staged_messages(RecordingProcessGroup)
    _replace(RecordingProcessGroup, **staged)
    leave_uncompiled(staged.values())


def replace_gloo(backend: Callable[..., Any]) -> None:
    """Have torch call this where it makes the Gloo backend of a group."""
    _replace(distributed_c10d, ProcessGroupGloo=backend)


def serve_rendezvous(handler: Callable[..., Any]) -> None:
    """Answer `init_process_group` where it reads the environment, as it does by default."""
    _rendezvous_handlers["env"] = handler


def leave_in_defaults(group: dist.ProcessGroup | None) -> None:
    """Have functions of torch whose default is this group take the default group of the moment."""
    for name in _TAKE_THE_GROUP_OF_THEIR_IMPORT:
        for function in vars(sys.modules[name]).values() if name in sys.modules else ():
            defaults = function.__defaults__ or () if isinstance(function, types.FunctionType) else ()
            if group in defaults:
                function.__defaults__ = tuple(None if default is group else default for default in defaults)


def serve_scripts(
    init_process_group: Callable[..., None],
    start_processes: Callable[..., Any],
    launch_agent: Callable[..., Any],
    check_start: Callable[[Callable[..., Any]], Callable[..., Any]],
) -> None:
    """Replace the functions by which scripts join their world, start processes and end.

    Args:
        check_start: wraps the start of a process by the methods "spawn" and "forkserver".
    """
    _replace(builtins, exit=sys.exit, quit=sys.exit)  # those of Python's site module close stdin, too
    for module in (dist, distributed_c10d):
        _replace(module, init_process_group=init_process_group)
    for module in (torch.multiprocessing, sys.modules["torch.multiprocessing.spawn"]):
        _replace(module, start_processes=start_processes)
    for module in (torch.distributed.launcher, torch.distributed.launcher.api):
        _replace(module, launch_agent=launch_agent)
    for kind in (multiprocessing.context.SpawnProcess, multiprocessing.context.ForkServerProcess):
        _replace(kind, _Popen=staticmethod(check_start(kind._Popen)))


def _replace(owner: object, **replacements: object) -> None:
    for name, value in replacements.items():
        setattr(owner, name, value)
