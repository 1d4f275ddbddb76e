"""Collectives in rounds: the messages of each, and each rank's holdings afterwards. Pure logic, no drawing.

A rank holds, of each part of the data, the sum of some ranks' contributions: a set of ranks. One rule
is for messages. The sum that arrives is added to the sum that is there. If it contains all of that, it
takes its place. If they overlap in any other way, a contribution would count twice, and that is a fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from .rules import RuleBroken, bounded, items, listed, shown, whole

MOST_ROUNDS = 24  # that are read and drawn; par is in single figures everywhere

Sum: TypeAlias = frozenset[int]  # whose contributions a part holds; none if nothing is there
Held: TypeAlias = Mapping[str, Sum]  # by part
NOTHING: Sum = frozenset()


class Send(NamedTuple):
    """A message of one round."""

    src: int
    dst: int
    parts: tuple[str, ...]


class Slip(NamedTuple):
    """The place where a plan breaks a rule: in which round (from 0), by which message or at which rank."""

    round: int
    message: str
    send: Send | None = None
    rank: int | None = None


@dataclass(frozen=True)
class Course:
    """The course of a plan: its rounds, and each rank's holdings before and after each."""

    rounds: list[list[Send]]
    held: list[list[Held]]  # one more than rounds that were played
    slip: Slip | None = None

    def sent(self) -> Counter[int]:
        """Return how many parts each rank has sent."""
        return Counter({rank: self._sent(rank) for rank in range(len(self.held[0]))})

    def _sent(self, rank: int) -> int:
        return sum(len(send.parts) for sends in self.rounds for send in sends if send.src == rank)


@dataclass(frozen=True)
class Exchange:
    """The ranks' holdings at first and in the end, and the limits of a round.

    Attributes:
        start, goal: by rank, its holdings of each part; a part that a goal does not name may hold anything.
        parts_a_message: how many parts one message carries.
        most_rounds, most_parts: budgets; parts are those that one rank sends in all.
        nodes: by rank, the node that it is on.
        most_across: parts that one rank sends to other nodes in all.
    """

    start: tuple[Held, ...]
    goal: tuple[Held, ...]
    parts_a_message: int | None = None
    most_rounds: int = MOST_ROUNDS
    most_parts: int | None = None
    nodes: tuple[int, ...] = ()
    most_across: int | None = None

    @property
    def ranks(self) -> int:
        return len(self.start)

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.start[0])

    def lacking(self, rank: int, held: Held) -> dict[str, Sum]:
        """Return the parts of a rank that are not yet what they must be, and what they lack."""
        return {part: wanted - held[part] for part, wanted in self.goal[rank].items() if held[part] != wanted}


def read_rounds(moves: Any, shape: Exchange) -> list[list[Send]]:
    """Read a player's plan: a list of rounds, each a list of messages (src, dst, parts), or what yields them.

    Raises:
        RuleBroken: it is no such thing.
    """
    return bounded(lambda: _rounds(moves() if callable(moves) else moves, shape))


def _rounds(moves: Any, shape: Exchange) -> list[list[Send]]:
    if isinstance(moves, str):
        raise RuleBroken("Give a list of rounds, not a string.")
    most = min(shape.most_rounds, MOST_ROUNDS)
    rounds = items(moves, most, "The plan")
    if len(rounds) > most:
        raise RuleBroken(f"The plan has more than {most} rounds, and this board allows {most}.")
    return [_round(messages, f"Round {number}", shape) for number, messages in enumerate(rounds, 1)]


def _round(messages: Any, where: str, shape: Exchange) -> list[Send]:
    messages = items(messages, shape.ranks, where)
    if len(messages) > shape.ranks:
        raise RuleBroken(f"{where} has more than {shape.ranks} messages: more than one for each rank.")
    return [_send(message, f"{where}, message {place}", shape) for place, message in enumerate(messages, 1)]


def _send(message: Any, where: str, shape: Exchange) -> Send:
    """Read (src, dst, parts); a board with one part needs none."""
    if isinstance(message, str) or len(fields := items(message, 3, where)) not in (2, 3):
        raise RuleBroken(
            f'{where}: {shown(message)} is no message. Write (0, 1, "A"): rank 0 sends part A to rank 1.'
        )
    src, dst = (_rank(given, where, shape) for given in fields[:2])
    if len(fields) == 3:
        return Send(src, dst, _parts(fields[2], where, shape))
    if len(shape.parts) > 1:
        raise RuleBroken(f"{where} names no part; they are {_some(shape)}.")
    return Send(src, dst, shape.parts)


def _rank(given: Any, where: str, shape: Exchange) -> int:
    rank = whole(given)
    if rank is None or not 0 <= rank < shape.ranks:
        raise RuleBroken(f"{where}: there is no rank {shown(given)}; ranks are 0 to {shape.ranks - 1}.")
    return rank


def _parts(given: Any, where: str, shape: Exchange) -> tuple[str, ...]:
    """Read "AB", "A B" or a list of names, each once."""
    names: list[Any]
    if isinstance(given, str):
        names = given.replace(",", " ").split()
        if any(name not in shape.parts for name in names):
            names = list("".join(names))
    else:
        names = items(given, 99, f"What {where[0].lower()}{where[1:]} sends")
    for name in names:
        if name not in shape.parts:
            raise RuleBroken(f"{where}: there is no part {shown(name)}; they are {_some(shape)}.")
    if not names:
        raise RuleBroken(f"{where} names no part; they are {_some(shape)}.")
    return tuple(part for part in shape.parts if part in names)


def _some(shape: Exchange) -> str:
    return (
        listed(list(shape.parts))
        if len(shape.parts) <= 8
        else f"{' '.join(shape.parts[:4])} … {shape.parts[-1]}"
    )


def play(rounds: Sequence[Sequence[Send]], shape: Exchange) -> Course:
    """Let the ranks send; the course ends at the first slip, or says at its end what is lacking."""
    held: list[list[Held]] = [list(shape.start)]
    sent: Counter[int] = Counter()
    across: Counter[int] = Counter()
    played: list[list[Send]] = []
    for number, sends in enumerate(rounds):
        played.append(list(sends))
        if slip := _forbidden(number, sends, shape):
            return Course(played, held, slip)
        for send in sends:
            sent[send.src] += len(send.parts)
            if shape.nodes and shape.nodes[send.src] != shape.nodes[send.dst]:
                across[send.src] += len(send.parts)
        after = [dict(row) for row in held[-1]]
        for send in sends:
            if message := _deliver(send, held[-1], after, shape) or _overspent(send, sent, across, shape):
                return Course(played, held, Slip(number, f"Round {number + 1}: {message}", send))
        held.append(list(after))
    return Course(played, held, _incomplete(held[-1], len(played), shape))


def _forbidden(number: int, sends: Sequence[Send], shape: Exchange) -> Slip | None:
    """Find a message that no round allows, whatever the ranks hold."""
    senders, receivers = set[int](), set[int]()
    for send in sends:
        if send.src == send.dst:
            message = f"rank {send.src} sends to itself."
        elif send.src in senders:
            message = f"rank {send.src} sends twice. A rank sends at most one message in a round."
        elif send.dst in receivers:
            message = f"rank {send.dst} receives twice. A rank receives at most one message in a round."
        elif shape.parts_a_message is not None and len(send.parts) > shape.parts_a_message:
            many = "one part" if shape.parts_a_message == 1 else f"{shape.parts_a_message} parts"
            message = f"the message from rank {send.src} has {len(send.parts)} parts; it can carry {many}."
        else:
            senders.add(send.src)
            receivers.add(send.dst)
            continue
        return Slip(number, f"Round {number + 1}: {message}", send)
    return None


def _deliver(send: Send, before: Sequence[Held], after: list[dict[str, Sum]], shape: Exchange) -> str:
    """Give what the sender held before the round to the receiver; say what is wrong with it, or ""."""
    for part in send.parts:
        arriving, there = before[send.src][part], after[send.dst][part]
        if not arriving:
            return f"rank {send.src} sends part {part} to rank {send.dst}, but it holds nothing of it yet."
        twice = arriving & there
        if twice and not arriving >= there:
            return (
                f"rank {send.dst} holds part {part} of {_ranks(there)}, and rank {send.src} sends it "
                f"that of {_ranks(arriving)}. In their sum {_ranks(twice)} would count twice."
            )
        after[send.dst][part] = arriving if twice else arriving | there
    return ""


def _overspent(send: Send, sent: Counter[int], across: Counter[int], shape: Exchange) -> str:
    if shape.most_parts is not None and sent[send.src] > shape.most_parts:
        return f"rank {send.src} has now sent {sent[send.src]} parts; a rank may send {shape.most_parts}."
    if shape.most_across is not None and across[send.src] > shape.most_across:
        return (
            f"rank {send.src} sends more to the other node than a rank may: {shape.most_across} part in all."
        )
    return ""


def _incomplete(held: Sequence[Held], rounds: int, shape: Exchange) -> Slip | None:
    for rank, row in enumerate(held):
        for part, lacking in shape.lacking(rank, row).items():
            when = f"After round {rounds}" if rounds else "At the start"
            message = f"{when} rank {rank} still lacks part {part} of {_ranks(lacking)}."
            others = sum(bool(shape.lacking(other, row)) for other, row in enumerate(held)) - 1
            more = (
                f" {others} more {'rank lacks' if others == 1 else 'ranks lack'} something." if others else ""
            )
            return Slip(rounds, message + more, rank=rank)
    return None


def _ranks(ranks: Sum) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {listed([str(rank) for rank in sorted(ranks)])}"
