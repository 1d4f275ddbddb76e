"""Names ranks, calls and numbers as a reader would: "ranks 0-1,3", "recv from rank 2", "1 GPU"."""

from __future__ import annotations

from collections.abc import Sequence

from .protocol.calls import Call


def counted(number: int, noun: str) -> str:
    """Return the number and its noun, as in "1 round" and "1,000 bytes"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def some_of(texts: Sequence[str], most: int) -> str:
    """List the first few texts, and say how many more there are: "a, b and 3 more"."""
    more = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {more} more" if more > 0 else "")


def format_ranks(ranks: Sequence[int]) -> str:
    """Write ranks as people do: `[0, 1, 2, 5]` becomes "0-2,5"."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)


def name_ranks(ranks: Sequence[int]) -> str:
    """Name ranks: `[2]` becomes "rank 2", `[0, 1, 3]` becomes "ranks 0-1,3"."""
    return f"rank{'s' if len(ranks) != 1 else ''} {format_ranks(ranks)}"


def sentence_case(text: str) -> str:
    """Return the text with a capital at its beginning."""
    return text[:1].upper() + text[1:]


def with_peer(call: Call) -> str:
    """Name a call, a message with the rank at its other end."""
    if call.op == "send":
        return f"send to rank {call.peer}"
    if call.op == "recv":
        return "recv from any rank" if call.peer is None else f"recv from rank {call.peer}"
    return call.name


def describe(call: Call, world_size: int, in_detail: bool = False) -> str:
    """Name a call, and in detail what the ranks of one call may disagree on."""
    name = with_peer(call)
    if not call.is_point_to_point and len(call.ranks) < world_size:
        name += f" among {name_ranks(call.ranks)}"
    given = [*details(call).values()] if in_detail else []
    return f"{name} [{', '.join(given)}]" if given else name


def details(call: Call) -> dict[str, str]:
    """Return what the ranks of one call may disagree on, each with its value in words."""
    found = {"src or dst": f"src/dst {call.root}"} if call.root is not None else {}
    found |= {"reduce op": call.reduce_op} if call.reduce_op else {}
    found |= {"tag": f"tag {call.tag}"} if call.tag else {}
    if call.members:
        found["members"] = f"ranks {', '.join(map(str, call.members))}"
    if call.shape:
        found["shape"] = f"shape {list(call.shape)}"
    if call.dtype:
        found["dtype"] = call.dtype
    return found
