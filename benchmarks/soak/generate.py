"""Draws legal programs, the same from the same seed; `oracle` says of each that it must complete."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .actions import Group
from .program import Choose, Program, Repeat
from .statements import (
    FAILING_LATER,
    REFUSED,
    WAYS,
    Collective,
    Compute,
    Exchange,
    Expired,
    NewGroup,
    Recv,
    Refused,
    Send,
    Wait,
)

WORLD_SIZES = (2, 3, 3, 4, 4, 4, 5, 8)
NUMELS = (3, 17, 100, 1001, 70_001)  # none that torch itself uses inside of a collective of objects or of DDP
DTYPES = ("float32", "float32", "float64", "int32", "int64")
REDUCE_OPS = ("SUM", "SUM", "MAX", "MIN", "PRODUCT")
EVERYWHERE = ("barrier", "all_gather_object")
ROOTED = ("broadcast", "gather", "scatter", "broadcast_object_list")
REDUCED = (
    "all_reduce",
    "functional_all_reduce",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
)
ALL_TO_ALL = ("all_gather", "all_gather_single", "all_to_all", "all_to_all_single")
ASYNCHRONOUS = ("all_reduce", "broadcast", "reduce", "all_gather", "gather", "scatter", "all_to_all_single")


def draw(world_size: int, rng: random.Random) -> Program:
    """A legal program of a few statements."""
    return _Author(world_size, rng).program()


class _Author:
    """Writes one program."""

    def __init__(self, world_size: int, rng: random.Random) -> None:
        self._rng = rng
        self._ranks = tuple(range(world_size))
        self._world = Group("", self._ranks)
        self._groups = [self._world]
        self._threads: Group | None = None  # the group of second threads
        self._handles, self._tags, self._expiring = 0, 0, 0
        self._in_loop = False

    def program(self) -> Program:
        body = self._new_groups() if self._rng.random() < 0.35 and len(self._ranks) > 2 else []
        if self._rng.random() < 0.3:
            self._threads = Group("group_of_threads", self._ranks)
            body.append(NewGroup(self._threads))
        for _ in range(self._rng.randint(2, 7)):
            body += self._paragraph()
        return Program(len(self._ranks), tuple(body), in_function=self._rng.random() < 0.5)

    def _new_groups(self) -> list[Any]:
        made = []
        for name in ("group_a", "group_b")[: self._rng.randint(1, 2)]:
            size = self._rng.randint(2, len(self._ranks))
            group = Group(name, tuple(sorted(self._rng.sample(self._ranks, size))))
            made.append(NewGroup(group))
            self._groups.append(group)
        return made

    def _paragraph(self) -> list[Any]:
        """A few statements that belong together."""
        rng = self._rng
        write = rng.choices(
            (
                self._collective,
                self._delayed,
                self._compute,
                self._messages,
                self._train,
                self._loop,
                self._refused,
                self._threaded,
                self._expired,
            ),
            (
                8,
                3,
                4,
                7,
                0.4,
                0 if self._in_loop else 3,
                1,
                2 if self._threads else 0,
                0 if self._in_loop else 0.4,
            ),
        )[0]
        return write()

    def _loop(self) -> list[Any]:
        if self._rng.random() < 0.1:  # without compute: a source may run far ahead of the others
            return [Repeat(self._rng.randint(20, 60), tuple(self._collective()))]
        self._in_loop = True
        body = [statement for _ in range(self._rng.randint(1, 3)) for statement in self._paragraph()]
        self._in_loop = False
        return [Repeat(self._rng.randint(2, 4), tuple(body))]

    def _train(self) -> list[Any]:
        return [Collective("train", self._world, self._rng.randint(1, 3))]

    # --- compute -----------------------------------------------------------------------------------------

    def _compute(self) -> list[Any]:
        """Uneven work; now and then one rank takes much longer."""
        rng = self._rng
        if rng.random() < 0.12 and not self._in_loop:
            seconds = f"{rng.uniform(0.8, 1.2):.2f} if rank == {rng.choice(self._ranks)} else 0"
            return [Compute("time.sleep", seconds)]
        how = rng.choice(("time.sleep", "time.sleep", "multiply", "count"))
        longest = 0.15 if how == "time.sleep" else 0.03
        each = ", ".join(f"{rng.choice((0, rng.uniform(0, longest))):.2g}" for _ in self._ranks)
        return [Compute(how, f"({each})[rank]")]

    # --- collectives -------------------------------------------------------------------------------------

    def _collective(self) -> list[Any]:
        kind = self._rng.choice((*EVERYWHERE, *ROOTED, *REDUCED, *ALL_TO_ALL))
        call = self._call(kind, self._rng.choice(self._groups))
        return [_for_members(call, self._world)]

    def _delayed(self) -> list[Any]:
        """Asynchronous collectives that are waited for after something else."""
        rng = self._rng
        calls = [
            replace(self._call(rng.choice(ASYNCHRONOUS), rng.choice(self._groups)), handle=self._handle())
            for _ in range(rng.randint(1, 3))
        ]
        between = self._compute() if rng.random() < 0.5 else self._collective()
        waits = [
            _for_members(Wait(call.handle, rng.choice(tuple(WAYS))), self._world, call.group)
            for call in calls
        ]
        return [*(_for_members(call, self._world) for call in calls), *between, *waits]

    def _threaded(self) -> list[Any]:
        """A second thread's collective, in a group that only such threads use, while the rank does more."""
        kind = self._rng.choice(("barrier", *ASYNCHRONOUS))
        call = replace(self._call(kind, self._threads), handle=self._handle(), in_thread=True)
        between = self._compute() if self._rng.random() < 0.5 else self._collective()
        return [call, *between, Wait(call.handle)]

    def _refused(self) -> list[Any]:
        """A call that is refused and caught, on all ranks or on one."""
        call = Refused(self._rng.choice(REFUSED))
        if call.kind in FAILING_LATER or self._rng.random() < 0.5:
            return [call]
        return [Choose(f"rank == {self._rng.choice(self._ranks)}", (call,))]

    def _expired(self) -> list[Any]:
        """A call in a group whose timeout is short, and that a member never makes."""
        self._expiring += 1
        members = tuple(sorted(self._rng.sample(self._ranks, self._rng.randint(2, len(self._ranks)))))
        group = Group(f"short_{self._expiring}", members)
        return [Expired(self._world, group, self._rng.choice(members))]

    def _call(self, kind: str, group: Group) -> Collective:
        rng = self._rng
        if kind == "barrier":
            return Collective(kind, group)
        return Collective(
            kind,
            group,
            rng.choice(NUMELS),
            rng.choice(DTYPES) if "object" not in kind else "",
            rng.choice(group.members) if kind in (*ROOTED, "reduce") else None,
            rng.choice(REDUCE_OPS) if kind in REDUCED else None,
        )

    # --- messages ----------------------------------------------------------------------------------------

    def _messages(self) -> list[Any]:
        patterns: list[Callable[[], list[Any]]] = [
            self._ring_by_parity,
            self._ring_by_isend,
            self._ring_by_irecv,
            self._permutation,
            self._pipeline,
            self._pair,
            self._in_flight,
            self._neighbours,
        ]
        if (
            not self._in_loop
        ):  # there, a fast sender's second message could take the place of a slow one's first
            patterns.append(self._from_any)
        return self._rng.choice(patterns)()

    def _tensor(self) -> dict[str, Any]:
        return {"numel": self._rng.choice(NUMELS), "dtype": self._rng.choice(DTYPES)}

    def _ring(self) -> tuple[str, str, dict[str, Any]]:
        size = len(self._ranks)
        return f"(rank + 1) % {size}", f"(rank - 1) % {size}", {"group": self._world} | self._tensor()

    def _ring_by_parity(self) -> list[Any]:
        after, before, what = self._ring()
        send, recv = Send(after, **what), Recv(before, **what)
        return [Choose("rank % 2 == 0", (send, recv), (recv, send))]

    def _ring_by_isend(self) -> list[Any]:
        after, before, what = self._ring()
        handle = self._handle()
        return [Send(after, **what, handle=handle), Recv(before, **what), Wait(handle)]

    def _ring_by_irecv(self) -> list[Any]:
        after, before, what = self._ring()
        handle = self._handle()
        return [Recv(before, **what, handle=handle), Send(after, **what), Wait(handle)]

    def _permutation(self) -> list[Any]:
        """Every rank sends to another one, in a random cycle."""
        cycle = self._rng.sample(self._ranks, len(self._ranks))
        after = dict(zip(cycle, cycle[1:] + cycle[:1], strict=True))
        before = {dst: src for src, dst in after.items()}
        what = {"group": self._world, "tag": self._tag()} | self._tensor()
        send = Send(f"{tuple(after[rank] for rank in self._ranks)}[rank]", **what)
        recv = Recv(f"{tuple(before[rank] for rank in self._ranks)}[rank]", **what)
        return [Exchange(tuple(self._rng.sample((send, recv), 2)))]

    def _neighbours(self) -> list[Any]:
        """Halo exchange: messages to and from both sides."""
        size = len(self._ranks)
        sides = (f"(rank + 1) % {size}", f"(rank - 1) % {size}")
        what = {"group": self._world} | self._tensor()
        tags = (self._tag(), self._tag())
        sends = [Send(side, **what, tag=tag) for side, tag in zip(sides, tags, strict=True)]
        recvs = [Recv(side, **what, tag=tag) for side, tag in zip(reversed(sides), tags, strict=True)]
        return [Exchange((*sends, *recvs))]

    def _pipeline(self) -> list[Any]:
        what = {"group": self._world} | self._tensor()
        stage = [Choose("rank > 0", (Recv("rank - 1", **what),))]
        stage += self._compute() if self._rng.random() < 0.5 else []
        stage += [Choose(f"rank < {len(self._ranks) - 1}", (Send("rank + 1", **what),))]
        return stage if self._in_loop else [Repeat(self._rng.randint(1, 4), tuple(stage))]

    def _pair(self) -> list[Any]:
        group = self._rng.choice(self._groups)
        src, dst = self._rng.sample(group.members, 2)
        what = {"group": group, "tag": self._rng.choice((0, self._tag()))} | self._tensor()
        send, recv = Send(str(dst), **what), Recv(str(src), **what)
        return [Choose(f"rank == {src}", (send,), (Choose(f"rank == {dst}", (recv,)),))]

    def _in_flight(self) -> list[Any]:
        """Several messages on their way at once, received in another order than sent."""
        src, dst = self._rng.sample(self._ranks, 2)
        tags = [self._tag() for _ in range(self._rng.randint(2, 3))]
        what = {"group": self._world} | self._tensor()
        sends = [Send(str(dst), **what, tag=tag, handle=self._handle()) for tag in tags]
        waits = [Wait(send.handle) for send in sends]
        recvs = [Recv(str(src), **what, tag=tag) for tag in self._rng.sample(tags, len(tags))]
        return [
            Choose(f"rank == {src}", (*sends, *waits), (Choose(f"rank == {dst}", tuple(recvs)),)),
        ]

    def _from_any(self) -> list[Any]:
        """One rank takes the messages of all others as they come."""
        dst = self._rng.choice(self._ranks)
        what = {"group": self._world, "tag": self._tag()} | self._tensor()
        receive = Repeat(len(self._ranks) - 1, (Recv(None, **what),))
        return [Choose(f"rank == {dst}", (receive,), (Send(str(dst), **what),))]

    def _handle(self) -> str:
        self._handles += 1
        return f"work {self._handles}"

    def _tag(self) -> int:
        self._tags += 1
        return self._tags


def _for_members(statement: Collective | Wait, world: Group, group: Group | None = None) -> Any:
    """The statement, behind a condition if it is one of a sub-group."""
    group = group or statement.group
    return statement if group == world else Choose(f"rank in {group.members}", (statement,))
