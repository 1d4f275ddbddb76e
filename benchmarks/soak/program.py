"""A random SPMD program as a tree of statements: the text of a cell, and what each rank does in it.

`lines` writes a statement as Python, `unroll` follows one rank through the tree for the `oracle`. What
differs between ranks or iterations (conditions, peers, seconds) is Python text over `rank` and `step`, which
both read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

ITEM_SIZE = {"float32": 4, "float64": 8, "int32": 4, "int64": 8}
INDENT = "    "


@dataclass(frozen=True)
class Group:
    """A process group: the variable that holds it, "" for the default group, and its global ranks."""

    name: str
    members: tuple[int, ...]


# --- what one rank does, for the oracle ------------------------------------------------------------------


@dataclass(frozen=True)
class Join:
    """A collective; ranks with different signatures at the same place of a group contradict each other."""

    group: Group
    signature: tuple
    kind: str
    root: int | None
    handle: str | None


@dataclass(frozen=True)
class Message:
    """One side of a message: `op` is "send" or "recv"; a receive with no peer takes any sender's."""

    op: str
    group: Group
    peer: int | None
    tag: int
    nbytes: int
    dtype: str
    handle: str | None


@dataclass(frozen=True)
class Await:
    """The rank waits for what it has issued under this handle, if anything."""

    handle: str


@dataclass(frozen=True)
class Make:
    """The rank makes a sub-group together with all ranks of the world."""

    group: Group


@dataclass(frozen=True)
class End:
    """The rank's cell ends here: "exception" or "kill"."""

    how: str


Action = Join | Message | Await | Make | End
Stage = tuple[Action, ...]  # what a rank does between two stamps


# --- statements ------------------------------------------------------------------------------------------


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
        if self.handle:
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
        """What the rank does in this step."""
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
    """Waits for what was issued under a handle; nothing happens if nothing was."""

    handle: str

    def lines(self) -> list[str]:
        return ["stamp()", f"if {self.handle!r} in works:", f"{INDENT}works.pop({self.handle!r}).wait()"]

    def stages(self, rank: int, step: int) -> list[Stage]:
        return [(Await(self.handle),)]


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


@dataclass(frozen=True)
class Leave:
    """Leaves the innermost loop ("break") or the program ("return")."""

    how: str

    def lines(self) -> list[str]:
        return [self.how]


@dataclass(frozen=True)
class Repeat:
    """A loop."""

    times: int
    body: tuple[Any, ...]

    def lines(self) -> list[str]:
        return [f"for step in range({self.times}):", *_indented(self.body)]


@dataclass(frozen=True)
class Choose:
    """A branch."""

    condition: str
    body: tuple[Any, ...]
    orelse: tuple[Any, ...] = ()

    def lines(self) -> list[str]:
        lines = [f"if {self.condition}:", *_indented(self.body)]
        if len(self.orelse) == 1 and isinstance(self.orelse[0], Choose):
            first, *rest = self.orelse[0].lines()
            return [*lines, f"el{first}", *rest]
        return [*lines, "else:", *_indented(self.orelse)] if self.orelse else lines


@dataclass(frozen=True)
class Program:
    """One program for a world of this size, in a function (which a rank may leave by `return`) or not."""

    world_size: int
    body: tuple[Any, ...]
    in_function: bool = False

    @property
    def source(self) -> str:
        """The text of the cell; `judge` gives each rank the few helpers that it uses."""
        lines = [line for statement in self.body for line in statement.lines()]
        if self.in_function:
            lines = ["def program():", *_indented(self.body), "program()"]
        return "\n".join(["works = {}", *lines, "stamp()"])

    def unroll(self, rank: int) -> list[Stage]:
        """All that one rank does, if nothing keeps it from going on."""
        stages: list[Stage] = []
        _follow(self.body, rank, 0, stages)
        return stages


def _follow(body: tuple[Any, ...], rank: int, step: int, stages: list[Stage]) -> str | None:
    """Follow a rank through statements; returns how it left them, None if it came to their end."""
    for statement in body:
        if isinstance(statement, Leave):
            return statement.how
        if isinstance(statement, Choose):
            chosen = statement.body if evaluate(statement.condition, rank, step) else statement.orelse
            left = _follow(chosen, rank, step, stages)
        elif isinstance(statement, Repeat):
            left = _repeat(statement, rank, stages)
        else:
            stages += statement.stages(rank, step)
            left = "stop" if isinstance(statement, Stop) else None
        if left:
            return left
    return None


def _repeat(loop: Repeat, rank: int, stages: list[Stage]) -> str | None:
    for step in range(loop.times):
        left = _follow(loop.body, rank, step, stages)
        if left:
            return None if left == "break" else left
    return None


def evaluate(expression: str, rank: int, step: int) -> Any:
    """The value of an expression of the program on one rank, in one iteration."""
    return eval(expression, {"rank": rank, "step": step})


def walk(body: tuple[Any, ...], path: tuple = (), in_loop: bool = False) -> Iterator[tuple[tuple, Any, bool]]:
    """Every statement with its path from the root, and whether a loop is around it."""
    for index, statement in enumerate(body):
        yield (*path, index), statement, in_loop
        for part in ("body", "orelse"):
            inside = in_loop or isinstance(statement, Repeat)
            yield from walk(getattr(statement, part, ()), (*path, index, part), inside)


def _indented(body: tuple[Any, ...]) -> list[str]:
    inner = [line for statement in body for line in statement.lines()] or ["pass"]
    return [INDENT + line for line in inner]
