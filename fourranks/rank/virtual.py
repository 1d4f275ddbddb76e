"""Makes this rank one of a world whose other ranks are not there, with torch's fake process group."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store
from torch.testing._internal.distributed.fake_pg import FakeStore  # torch has it nowhere else

from .default_group import TORCH_DESTROY, TORCH_INIT
from .describe import tensors_in
from .process_group import RecordingProcessGroup
from .recorder import Recorder


class VirtualProcessGroup:
    """A group whose calls return at once, without the data of other ranks."""

    def __init__(self, store: Store, rank: int, size: int) -> None:
        self._fake = dist.ProcessGroup(store, rank, size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fake, name)

    def allreduce(self, tensors: Any, *arguments: Any, **keywords: Any) -> dist.Work:
        self._fake.allreduce(tensors, *arguments, **keywords)
        return _Finished(tensors_in(tensors))


class _Finished(dist.Work):
    """An all-reduce that is over. The fake group's has a future without a value, which DDP cannot use."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        super().__init__()
        self._future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
        self._future.set_result(tensors)

    def wait(self, *timeout: Any) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def get_future(self) -> torch.futures.Future[Any]:
        return self._future


def leave_for_a_virtual_world(rank: int, world_size: int, recorder: Recorder) -> None:
    """Replace the default process group by one of so many ranks."""
    TORCH_DESTROY()
    recorder.work_alone()
    RecordingProcessGroup.delegate = VirtualProcessGroup
    TORCH_INIT("fake", store=FakeStore(), rank=rank, world_size=world_size)
