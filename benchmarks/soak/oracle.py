"""Foretells the end of a program by simulating its ranks; knows nothing of `fourranks.watch`.

Two simulations bound what a backend may do. The patient one lets a rank leave a collective only when every
member of the group has come to it; the hasty one lets it leave as soon as it cannot need anyone else: the
source of a broadcast at once, for instance. A send meets its receive in both, as it does in Gloo. What
completes in the patient simulation must complete, a rank that gets stuck in the hasty one must get stuck; the
rest may do either.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum

from .actions import Action, Await, End, Group, Join, Make, Message, Stage
from .program import Program

_FROM_SOURCE = ("broadcast", "scatter", "broadcast_object_list")
_TO_DESTINATION = ("gather", "reduce")


class Fate(Enum):
    """The end that a program must come to."""

    COMPLETES = "completes"
    FAILS = "must fail"
    OPEN = "may complete or fail"


@dataclass(frozen=True)
class Forecast:
    """The fate of a program, why, and the stage in which each rank stays in the patient simulation."""

    fate: Fate
    reason: str  # "", "exception", "kill", "contradiction" or "stuck"
    stages: tuple[int, ...]
    polls: bool = False  # a stuck rank asks again and again whether a call is over: no proof is possible


def forecast(program: Program) -> Forecast:
    """Simulate a program patiently and hastily."""
    patient, hasty = Simulation(program, patient=True), Simulation(program, patient=False)
    patient.run()
    hasty.run()
    stages = tuple(rank.stage for rank in patient.ranks)
    polls = patient.polls or hasty.polls
    for how in ("kill", "exception"):
        if how in patient.ends:
            return Forecast(Fate.FAILS, how, stages, polls)
    if hasty.fails:
        return Forecast(Fate.FAILS, "contradiction" if hasty.contradiction else "stuck", stages, polls)
    if patient.fails or patient.ends or hasty.ends or patient.doubtful:
        return Forecast(Fate.OPEN, "", stages, polls)
    return Forecast(Fate.COMPLETES, "", stages)


@dataclass
class _Rank:
    """Where a simulated rank is: its stage, the action in it, and what it has issued."""

    stages: list[Stage]
    stage: int = 0
    action: int = 0
    issued: _Issued | None = None  # by the action that it is in
    pending: dict[str, _Issued] = field(default_factory=dict)
    made: set[str] = field(default_factory=lambda: {""})

    @property
    def finished(self) -> bool:
        return self.stage == len(self.stages)

    @property
    def polls(self) -> bool:
        """Whether it stays where it asks again and again."""
        if self.finished or self.action >= len(self.stages[self.stage]):
            return False
        action = self.stages[self.stage][self.action]
        return isinstance(action, Await) and action.polls


@dataclass(eq=False)
class _Issued:
    """A collective or one side of a message, as one rank issued it."""

    rank: int
    action: Join | Message | Make
    place: int = 0  # of a collective in its group
    matched: bool = False  # of a message
    contradicts: bool = False  # another rank's call at the same place


class Simulation:
    """All ranks of a program, each going on as long as it can."""

    def __init__(self, program: Program, patient: bool) -> None:
        self.ranks = [_Rank(program.unroll(rank)) for rank in range(program.world_size)]
        self.contradiction = False
        self.doubtful = False  # something happened that backends take in different ways
        self.ends: set[str] = set()
        self._patient = patient
        self._everybody = Group("", tuple(range(program.world_size)))
        self._joined: dict[str, dict[int, list[_Issued]]] = defaultdict(lambda: defaultdict(list))
        self._unmatched: list[_Issued] = []

    @property
    def fails(self) -> bool:
        """Whether ranks stay behind for ever."""
        return self.contradiction or (not self.ends and any(not rank.finished for rank in self.ranks))

    @property
    def polls(self) -> bool:
        """Whether a rank stays where it asks again and again."""
        return any(rank.polls for rank in self.ranks)

    def run(self) -> None:
        """Let all ranks go on until none can."""
        while any(self._go_on(number) for number in range(len(self.ranks))):
            pass
        self.doubtful |= bool(self._unmatched) or any(rank.pending for rank in self.ranks)

    def _go_on(self, number: int) -> bool:
        """Take one rank through as many actions as it can; whether there was one."""
        rank, moved = self.ranks[number], False
        while not rank.finished and self._act(number, rank):
            moved = True
        return moved

    def _act(self, number: int, rank: _Rank) -> bool:
        """Do, or go on with, the action that a rank is in; whether it is over."""
        stage = rank.stages[rank.stage]
        if rank.action < len(stage) and not self._over(number, rank, stage[rank.action]):
            return False
        rank.action, rank.issued = rank.action + 1, None
        if rank.action >= len(stage):
            rank.stage, rank.action = rank.stage + 1, 0
        return True

    def _over(self, number: int, rank: _Rank, action: Action) -> bool:
        match action:
            case End(how):
                self.ends.add(how)
                return False
            case Await(handle=handle):
                issued = rank.pending.get(handle)
                over = issued is None or self._complete(issued)
                if over:
                    rank.pending.pop(handle, None)
                return over
            case Join(group) | Message(group=group) if group.name not in rank.made:
                self.ends.add("name")  # the variable of a sub-group that this rank never made
                return False
        if rank.issued is None:
            self._issue(number, rank, action)
        asynchronous = not isinstance(action, Make) and action.handle is not None
        return not rank.issued.contradicts and (asynchronous or self._complete(rank.issued))

    def _issue(self, number: int, rank: _Rank, action: Join | Message | Make) -> None:
        rank.issued = _Issued(number, action)
        if isinstance(action, Make):
            rank.made.add(action.group.name)
        elif action.handle is not None:
            rank.pending[action.handle] = rank.issued
        if isinstance(action, Message):
            self._match(rank.issued)
        else:
            self._join(rank.issued)
        self.contradiction |= rank.issued.contradicts

    def _join(self, issued: _Issued) -> None:
        """Take the next place in the group, beside what others have issued there."""
        calls = self._joined[self._key(issued.action)]
        issued.place = len(calls[issued.rank])
        calls[issued.rank].append(issued)
        others = [theirs[issued.place].action for theirs in calls.values() if len(theirs) > issued.place]
        if isinstance(issued.action, Make):
            self.doubtful |= any(other != issued.action for other in others)
        else:
            issued.contradicts = any(other.signature != issued.action.signature for other in others)

    def _match(self, issued: _Issued) -> None:
        """Pair a side of a message with the oldest that fits it on the other side."""
        other = next((other for other in self._unmatched if _fit(issued, other)), None)
        if other is None:
            self._unmatched.append(issued)
            return
        self._unmatched.remove(other)
        issued.matched = other.matched = True
        send, recv = (issued, other) if issued.action.op == "send" else (other, issued)
        issued.contradicts = send.action.nbytes > recv.action.nbytes
        self.doubtful |= (send.action.nbytes, send.action.dtype) != (recv.action.nbytes, recv.action.dtype)

    def _complete(self, issued: _Issued) -> bool:
        action = issued.action
        if isinstance(action, Message):
            return issued.matched
        calls = self._joined[self._key(action)]
        return all(len(calls[member]) > issued.place for member in self._needed(issued))

    def _needed(self, issued: _Issued) -> tuple[int, ...]:
        """The ranks that must have come to a collective before this rank may leave it."""
        action = issued.action
        if self._patient:
            return self._everybody.members if isinstance(action, Make) else action.group.members
        if isinstance(action, Make):  # torch has waited for all ranks of the world in some releases
            return action.group.members if issued.rank in action.group.members else ()
        if action.kind in _FROM_SOURCE:
            return (action.root,)
        if action.kind in _TO_DESTINATION and action.root != issued.rank:
            return ()
        return action.group.members

    @staticmethod
    def _key(action: Join | Make) -> str:
        return "new_group" if isinstance(action, Make) else action.group.name


def _fit(one: _Issued, other: _Issued) -> bool:
    """Whether two sides of messages belong together."""
    a, b = one.action, other.action
    return (
        {a.op, b.op} == {"send", "recv"}
        and (a.group, a.tag) == (b.group, b.tag)
        and a.peer in (None, other.rank)
        and b.peer in (None, one.rank)
    )
