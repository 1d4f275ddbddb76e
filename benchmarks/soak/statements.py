"""The statements of a program that compute, communicate or end a rank.

`lines` writes a statement as Python, `stages` says what a rank does in it. What differs between ranks or
iterations (peers, seconds) is Python text over `rank` and `step`, which both read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from .actions import Await, End, Group, Join, Make, Message, Stage

ITEM_SIZE = {"float32": 4, "float64": 8, "int32": 4, "int64": 8}
INDENT = "    "


def evaluate(expression: str, rank: int, step: int) -> Any:
    """The value of an expression of the program on one rank, in one iteration."""
    return eval(expression, {"rank": rank, "step": step})


@dataclass(frozen=True)
class Collective:
    """One collective, blocking unless it has a handle."""

    kind: str
    group: Group
    numel: int = 0
    dtype: str = ""
    root: int | None = None
    reduce_op: str | None = None
    handle: str | None = None
    in_thread: bool = False  # a second thread makes the call and waits for it

    def lines(self) -> list[str]:
        call = _CALLS[self.kind].format(
            x=f"torch.ones({self.numel}, dtype=torch.{self.dtype or 'float32'})",
            many=f"torch.ones({self.numel * len(self.group.members)}, dtype=torch.{self.dtype or 'float32'})",
            size=len(self.group.members),
            numel=self.numel,
            root=self.root,
            op=f"dist.ReduceOp.{self.reduce_op}",
            lower=(self.reduce_op or "").lower(),
            handle="HANDLE",
            group=f", group={self.group.name}" if self.group.name else "",
            positional=self.group.name or "dist.group.WORLD",
        )
        if self.in_thread:
            call = f"works[{self.handle!r}] = Thread(lambda: {call})"
        elif self.handle:
            call = f"works[{self.handle!r}] = {call[:-1]}, async_op=True)"
        return ["stamp()", call.replace("(, ", "(")]

    def stages(self, rank: int, step: int) -> list[Stage]:
        kind = self.kind.removeprefix("functional_")
        signature = (kind, self.numel, self.dtype, self.root, self.reduce_op)
        return [(Join(self.group, signature, kind, self.root, self.handle),)]


_CALLS = {
    "all_reduce": "dist.all_reduce({x}, {op}{group})",
    "functional_all_reduce": "functional.all_reduce({x}, '{lower}', {positional}).sum()",
    "broadcast": "dist.broadcast({x}, {root}{group})",
    "reduce": "dist.reduce({x}, {root}, {op}{group})",
    "all_gather": "dist.all_gather([{x} for _ in range({size})], {x}{group})",
    "all_gather_single": "dist.all_gather_single({many}, {x}{group})",
    "gather": "dist.gather({x}, [{x} for _ in range({size})] if rank == {root} else None, {root}{group})",
    "scatter": "dist.scatter({x}, [{x} for _ in range({size})] if rank == {root} else None, {root}{group})",
    "reduce_scatter": "dist.reduce_scatter({x}, [{x} for _ in range({size})], {op}{group})",
    "reduce_scatter_single": "dist.reduce_scatter_single({x}, {many}, {op}{group})",
    "all_to_all": "dist.all_to_all([{x} for _ in range({size})], [{x} for _ in range({size})]{group})",
    "all_to_all_single": "dist.all_to_all_single({many}, {many}{group})",
    "barrier": "dist.barrier({group})",
    "all_gather_object": "dist.all_gather_object([None] * {size}, {{'numel': {numel}}}{group})",
    "broadcast_object_list": "dist.broadcast_object_list([{{'numel': {numel}}}], {root}{group})",
    "train": "train(steps={numel})",
}


@dataclass(frozen=True)
class Side:
    """One side of a message, blocking unless it has a handle; `peer` evaluates to the rank at the other."""

    op: ClassVar[str]

    peer: str | None
    group: Group
    numel: int
    dtype: str
    tag: int = 0
    handle: str | None = None

    def lines(self) -> list[str]:
        tensor = f"torch.ones({self.numel}, dtype=torch.{self.dtype})"
        options = f", group={self.group.name}" if self.group.name else ""
        options += f", tag={self.tag}" if self.tag else ""
        call = f"{self.op}({tensor}{f', {self.peer}' if self.peer is not None else ''}{options})"
        return ["stamp()", f"works[{self.handle!r}] = dist.i{call}" if self.handle else f"dist.{call}"]

    def stages(self, rank: int, step: int) -> list[Stage]:
        return [(self.message(rank, step, self.handle),)]

    def message(self, rank: int, step: int, handle: str | None) -> Message:
        """The rank's actions in this step."""
        peer = None if self.peer is None else evaluate(self.peer, rank, step)
        nbytes = self.numel * ITEM_SIZE[self.dtype]
        return Message(self.op, self.group, peer, self.tag, nbytes, self.dtype, handle)


class Send(Side):
    """A send."""

    op = "send"


class Recv(Side):
    """A receive; from any rank if `peer` is None."""

    op = "recv"


@dataclass(frozen=True)
class Exchange:
    """Messages in both directions by `batch_isend_irecv`, waited for at once."""

    messages: tuple[Send | Recv, ...]

    def lines(self) -> list[str]:
        operations = ", ".join(map(self._operation, self.messages))
        return ["stamp()", f"for work in dist.batch_isend_irecv([{operations}]):", f"{INDENT}work.wait()"]

    @staticmethod
    def _operation(message: Send | Recv) -> str:
        tensor = f"torch.ones({message.numel}, dtype=torch.{message.dtype})"
        group = f", {message.group.name}" if message.group.name else ", None"
        return f"dist.P2POp(dist.i{message.op}, {tensor}, {message.peer}{group}, {message.tag})"

    def stages(self, rank: int, step: int) -> list[Stage]:
        handles = [f"exchange {index}" for index in range(len(self.messages))]
        issued = [
            side.message(rank, step, handle) for side, handle in zip(self.messages, handles, strict=True)
        ]
        return [(*issued, *map(Await, handles))]


@dataclass(frozen=True)
class Wait:
    """Waits for what was issued under a handle, in one of `WAYS`; nothing happens if nothing was."""

    handle: str
    how: str = "wait"

    def lines(self) -> list[str]:
        awaited = WAYS[self.how].format(work=f"works.pop({self.handle!r})")
        return ["stamp()", f"if {self.handle!r} in works:", f"{INDENT}{awaited}"]

    def stages(self, rank: int, step: int) -> list[Stage]:
        return [(Await(self.handle, polls=self.how == "poll"),)]


WAYS = {
    "wait": "{work}.wait()",
    "future": "{work}.get_future().wait()",
    "then": "{work}.get_future().then(lambda done: done.value()).wait()",
    "wait all": "torch.futures.wait_all([{work}.get_future()])",
    "poll": "poll({work})",
}


@dataclass(frozen=True)
class Refused:
    """A call that is refused on each rank that makes it, and caught: to the others it was never made."""

    kind: str

    def lines(self) -> list[str]:
        call = _REFUSED[self.kind]
        return ["try:", f"{INDENT}{call}", "except (ValueError, TypeError, RuntimeError):", f"{INDENT}pass"]

    def stages(self, rank: int, step: int) -> list[Stage]:
        return []


_REFUSED = {
    "gaps": "dist.all_reduce(torch.ones(4, 4)[:, :2])",
    "outputs": "dist.all_gather([torch.ones(3)] * (world_size + 1), torch.ones(3))",
    "outputs, asynchronous": "dist.all_gather([torch.ones(3)], torch.ones(3), async_op=True)",
    "shape": "dist.all_gather_single(torch.ones(world_size, 3), torch.ones(3))",
    "gathered": "dist.gather(torch.ones(3), [torch.ones(3)] * (world_size + 1), rank)",
    "scattered": "dist.scatter(torch.ones(3), [torch.ones(4)] * world_size, rank, async_op=True)",
    "inputs": "dist.reduce_scatter(torch.ones(3), [torch.ones(3)] * (world_size + 1))",
    "one input": "dist.reduce_scatter_single(torch.ones(3), torch.ones(3 * world_size + 1), async_op=True)",
    "exchanged": "dist.all_to_all([torch.ones(3)], [torch.ones(3)])",
    "message with gaps": "dist.send(torch.ones(4)[::2], (rank + 1) % world_size)",
    "rank": "dist.send(torch.ones(3), world_size)",
    "negative rank": "dist.recv(torch.ones(3), -1)",
    "no tensor": "dist.broadcast(3.0, 0)",
}
REFUSED = tuple(_REFUSED)
FAILING_LATER = ("gaps",)  # after the backend has taken the call: all ranks have to make it


@dataclass(frozen=True)
class Expired:
    """A group with a short timeout, in which all members but one make a call that ends by it.

    All ranks meet first: forming the group has to be over within the timeout, too.
    """

    world: Group
    group: Group
    absent: int
    is_caught: bool = True

    def lines(self) -> list[str]:
        name, waiting = self.group.name, tuple(rank for rank in self.group.members if rank != self.absent)
        call = f"dist.all_reduce(torch.ones(3), group={name})"
        caught = ["try:", INDENT + call, "except RuntimeError:", f"{INDENT}pass"]
        return [
            "stamp()",
            "dist.barrier()",
            f"{name} = dist.new_group({list(self.group.members)}, timeout=timedelta(seconds=2))",
            f"if rank in {waiting}:",
            *(INDENT + line for line in (caught if self.is_caught else [call])),
        ]

    def stages(self, rank: int, step: int) -> list[Stage]:
        waits = rank in self.group.members and rank != self.absent
        meet = Collective("barrier", self.world).stages(rank, step)[0]
        return [(*meet, Make(self.group)), *([(End("exception"),)] if waits and not self.is_caught else [])]


@dataclass(frozen=True)
class NewGroup:
    """Makes a sub-group, which takes all ranks."""

    group: Group

    def lines(self) -> list[str]:
        return ["stamp()", f"{self.group.name} = dist.new_group({list(self.group.members)})"]

    def stages(self, rank: int, step: int) -> list[Stage]:
        return [(Make(self.group),)]


@dataclass(frozen=True)
class Compute:
    """Time without communication: `how` is "time.sleep", or "multiply" or "count", which use a core."""

    how: str
    seconds: str

    def lines(self) -> list[str]:
        return [f"{self.how}({self.seconds})"]

    def stages(self, rank: int, step: int) -> list[Stage]:
        return []


@dataclass(frozen=True)
class Stop:
    """The planted end of a rank: "exception" or "kill"."""

    how: str

    def lines(self) -> list[str]:
        planted = 'raise ValueError("planted")'
        return ["stamp()", planted if self.how == "exception" else "os.kill(os.getpid(), signal.SIGKILL)"]

    def stages(self, rank: int, step: int) -> list[Stage]:
        return [(End(self.how),)]
