"""Records how ranks make process groups: they wait for one another in `dist.new_group` as in a collective."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import torch.distributed as dist
from torch._C._distributed_c10d import Backend
from torch.distributed import distributed_c10d

from ..protocol.calls import Call
from .describe import call_on
from .process_group import RecordingProcessGroup
from .recorder import Recorder
from .uncompiled import leave_uncompiled
from .work import is_limit

Made = TypeVar("Made", bound=dist.ProcessGroup | None)


def recorded_new_group(make: Callable[..., dist.ProcessGroup]) -> Callable[..., dist.ProcessGroup]:
    """Wrap the making of a group, for which ranks wait as they do in a collective, so that it is recorded."""

    @functools.wraps(make)
    def new_group_with_tag(
        ranks: Iterable[int] | None = None,
        *args: Any,
        use_local_synchronization: bool = False,
        sort_ranks: bool = True,
        **kwargs: Any,
    ) -> dist.ProcessGroup:
        everyone = dist.group.WORLD
        ranks = list(ranks) if isinstance(ranks, Iterable) else ranks  # an iterator gives them once
        settings = {"use_local_synchronization": use_local_synchronization, "sort_ranks": sort_ranks}
        start = functools.partial(make, ranks, *args, **settings, **kwargs)
        if not isinstance(everyone, RecordingProcessGroup):
            return start()  # torch says what is wrong
        try:
            members = tuple(range(everyone.size()) if ranks is None else map(operator.index, ranks))
        except TypeError:
            return start()
        members = tuple(sorted(members)) if sort_ranks else members
        if len(set(members)) < len(members) or not set(members) <= set(range(everyone.size())):
            return start()
        name, all_ranks = everyone.identity()
        # Counted apart from the collectives, with which new_group keeps no order.
        call = call_on("new_group", f"{name} new_group", members if use_local_synchronization else all_ranks)
        call.members = members
        call.part = _number_in_name(use_local_synchronization), str(members)
        is_limited = is_limit(args[0] if args else kwargs.get("timeout"))
        return _make_group(call, everyone.recorder, is_limited, functools.partial(_connected, start))

    leave_uncompiled([new_group_with_tag])
    return new_group_with_tag


def split_group(
    self: RecordingProcessGroup, ranks: Sequence[int], *args: Any, **kwargs: Any
) -> RecordingProcessGroup | None:
    """Split a group, as torch does for a `DeviceMesh` where the default group is bound to a GPU.

    Members wait for one another on Gloo, which does this since torch 2.15, and on NCCL for all ranks.
    """
    split = functools.partial(self.split, ranks, *args, **kwargs)
    name, all_ranks = self.identity()
    if not set(ranks) <= set(range(self.size())):
        return split()  # torch says what is wrong
    members = tuple(all_ranks[rank] for rank in ranks)
    call = call_on("split_group", f"{name} split_group", all_ranks if self.recorder.launches else members)
    if not self.recorder.launches:  # members meet by the name of the group, which torch has counted already
        call.part = _number_in_name(is_local=True) - 1, ""
    return _make_group(call, self.recorder, is_limit(kwargs.get("timeout")), split)


def leave_unwrapped(wrapped_pg: Backend, **_: object) -> Backend:
    """Return the backend as it is, which torch would wrap at DETAIL to compare calls in all of them.

    The wrapper fails collectives of ranks that have sent messages, crashes in DDP, and hides which ranks
    wait.
    """
    return wrapped_pg


def _connected(make: Callable[[], dist.ProcessGroup]) -> dist.ProcessGroup:
    group = make()
    if isinstance(group, RecordingProcessGroup):  # else this rank is no member
        group.connect()
    return group


def _number_in_name(is_local: bool) -> int:
    """Return the number that torch puts into the name of a rank's next group, by which members meet.

    Each rank counts by itself: the groups that it has made or, before torch 2.14, for one that only its
    members make, the groups that it is in.
    """
    known = distributed_c10d._world
    counts_made = not is_local or "group_count" in distributed_c10d._hash_ranks_to_str.__code__.co_names
    return known.group_count if counts_made else len(known.pg_names)


def _make_group(call: Call, recorder: Recorder, is_limited: bool, make: Callable[[], Made]) -> Made:
    counts = dist.get_rank() in call.ranks
    if counts:
        recorder.issue(call)
        recorder.stand_still_in_conflict(call)
        recorder.accept(call)
    begun = recorder.begin_wait(None if is_limited else call)
    try:
        return make()
    except (TypeError, ValueError) as error:  # before anything was connected
        if counts:
            recorder.take_back(call, error)
        raise
    except Exception as error:
        recorder.fail(call, error)
        raise
    finally:
        recorder.end_wait(call, begun)
