"""Plants one fault in a legal program: at one place, on one rank, and in a loop perhaps in one iteration."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from .generate import DTYPES, NUMELS, REDUCE_OPS
from .program import Choose, Leave, Program, walk
from .statements import Collective, Compute, Exchange, Expired, Recv, Send, Stop, evaluate

ATTEMPTS = 200  # at a place and rank where the fault changes something; a few suffice for most programs
FRESH_TAG = 999


@dataclass(frozen=True)
class Site:
    """A place for a fault: a statement, the one after it in its block if there is one, and the rank."""

    statement: Any
    following: Any
    in_loop: bool
    rank: int
    world_size: int
    rng: random.Random


# --- the faults: actions in place of the statement; None where the fault makes no sense --------------------


def skip(site: Site) -> tuple | None:
    """The rank leaves out a collective, a message or a whole branch."""
    return None if isinstance(site.statement, Compute) else ()


def swap(site: Site) -> tuple | None:
    """The rank does two adjacent things in the other order."""
    if site.following is None or isinstance(site.statement, Compute) or isinstance(site.following, Compute):
        return None
    return site.following, site.statement


def reshape(site: Site) -> tuple | None:
    """The rank gives a tensor with another number of elements, or trains another number of steps."""
    numels = (1, 2, 3) if getattr(site.statement, "kind", "") == "train" else NUMELS
    return _other(site, "numel", numels, unless=lambda s: not s.numel or "object" in getattr(s, "kind", ""))


def retype(site: Site) -> tuple | None:
    """The rank gives a tensor of another dtype."""
    return _other(site, "dtype", DTYPES, unless=lambda s: not s.dtype)


def wrong_root(site: Site) -> tuple | None:
    """The rank gives another src or dst than the others."""
    members = getattr(getattr(site.statement, "group", None), "members", ())
    return _other(site, "root", members, unless=lambda s: s.root is None)


def wrong_reduce_op(site: Site) -> tuple | None:
    """The rank reduces by another operation than the others."""
    return _other(site, "reduce_op", REDUCE_OPS, unless=lambda s: s.reduce_op is None)


def wrong_peer(site: Site) -> tuple | None:
    """The rank sends to, or receives from, another rank."""
    return _in_message(site, lambda side: replace(side, peer=str(_other_peer(site, side))))


def wrong_tag(site: Site) -> tuple | None:
    """The rank sends or receives with another tag."""
    return _in_message(site, lambda side: replace(side, tag=FRESH_TAG))


def missing_message(site: Site) -> tuple | None:
    """The rank leaves out one side of a message."""
    if isinstance(site.statement, (Send, Recv)):
        return ()
    if isinstance(site.statement, Exchange):
        kept = list(site.statement.messages)
        kept.pop(site.rng.randrange(len(kept)))
        return (replace(site.statement, messages=tuple(kept)),)
    return None


def leave_early(site: Site) -> tuple | None:
    """The rank leaves the loop, or the program, too early."""
    return (Leave("break" if site.in_loop else "return"),)


def uncaught(site: Site) -> tuple | None:
    """The rank does not catch that a group's short timeout has ended its call."""
    if not isinstance(site.statement, Expired):
        return None
    return (replace(site.statement, is_caught=False),)


def exception(site: Site) -> tuple | None:
    """The rank raises an exception."""
    return (Stop("exception"),)


def kill(site: Site) -> tuple | None:
    """The rank's process is killed."""
    return (Stop("kill"),)


FAULTS: tuple[Callable[[Site], tuple | None], ...] = (
    skip,
    swap,
    reshape,
    retype,
    wrong_root,
    wrong_reduce_op,
    wrong_peer,
    wrong_tag,
    missing_message,
    leave_early,
    uncaught,
    exception,
    kill,
)


# --- planting them -----------------------------------------------------------------------------------------


def plant_any(program: Program, rng: random.Random) -> tuple[Program, str]:
    """The program with a random fault, and the name of the fault."""
    for fault in rng.sample(FAULTS, len(FAULTS)):
        if planted := plant(program, fault, rng):
            return planted, fault.__name__.replace("_", " ")
    raise ValueError("this program has no place for any fault")


def plant(program: Program, fault: Callable[[Site], tuple | None], rng: random.Random) -> Program | None:
    """The program with the fault where some rank comes to it; None if it has no place for it."""
    sites = list(walk(program.body))
    for _ in range(ATTEMPTS):
        path, statement, in_loop = rng.choice(sites)
        site = Site(
            statement,
            _following(program.body, path),
            in_loop,
            rng.randrange(program.world_size),
            program.world_size,
            rng,
        )
        instead = fault(site)
        if instead is None:
            continue
        planted = _planted(program, path, instead, site, fault is swap)
        if planted.unroll(site.rank) != program.unroll(site.rank):
            return planted
    return None


def _planted(program: Program, path: tuple, instead: tuple, site: Site, both: bool) -> Program:
    condition = f"rank == {site.rank}"
    if site.in_loop and site.rng.random() < 0.5:
        condition += f" and step == {site.rng.randrange(4)}"
    before = (site.statement, site.following) if both else (site.statement,)
    body = _replaced(program.body, path, len(before), Choose(condition, instead, before))
    return replace(program, body=body, in_function=program.in_function or instead == (Leave("return"),))


def _replaced(body: tuple, path: tuple, count: int, by: Any) -> tuple:
    """A tree with `count` statements from the one at this path on replaced by one."""
    index, *rest = path
    if not rest:
        return (*body[:index], by, *body[index + count :])
    part, *inner = rest
    changed = _replaced(getattr(body[index], part), tuple(inner), count, by)
    return (*body[:index], replace(body[index], **{part: changed}), *body[index + 1 :])


def _following(body: tuple, path: tuple) -> Any:
    for index, part in zip(path[::2], path[1::2], strict=False):
        body = getattr(body[index], part)
    return body[path[-1] + 1] if path[-1] + 1 < len(body) else None


def _other(site: Site, name: str, values: tuple, unless: Callable[[Any], bool]) -> tuple | None:
    """The statement with another value in one field."""
    if not isinstance(site.statement, (Collective, Send, Recv)):
        return None
    if name not in {field.name for field in fields(site.statement)} or unless(site.statement):
        return None
    others = [value for value in values if value != getattr(site.statement, name)]
    return (replace(site.statement, **{name: site.rng.choice(others)}),) if others else None


def _in_message(site: Site, change: Callable[[Send | Recv], Send | Recv]) -> tuple | None:
    """The statement with one message in it changed."""
    if isinstance(site.statement, Exchange):
        messages = list(site.statement.messages)
        index = site.rng.randrange(len(messages))
        messages[index] = change(messages[index])
        return (replace(site.statement, messages=tuple(messages)),)
    if isinstance(site.statement, (Send, Recv)) and site.statement.peer is not None:
        return (change(site.statement),)
    return None


def _other_peer(site: Site, side: Send | Recv) -> int:
    right = evaluate(side.peer, site.rank, 0)
    others = [rank for rank in side.group.members if rank not in (right, site.rank)]
    return site.rng.choice(others) if others else right
