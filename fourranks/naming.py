"""Names a call as a reader would: "recv from rank 2", "all_reduce among ranks 0-1 [SUM, shape [4]]"."""

from __future__ import annotations

from .errors import name_ranks
from .protocol.calls import Call


def describe(call: Call, world_size: int, in_detail: bool = False) -> str:
    """The name of a call, and in detail what the ranks of one call may disagree on."""
    name = call.op
    if call.op == "send":
        name = f"send to rank {call.peer}"
    elif call.op == "recv":
        name = "recv from any rank" if call.peer is None else f"recv from rank {call.peer}"
    elif len(call.ranks) < world_size:
        name = f"{call.op} among {name_ranks(call.ranks)}"
    given = [*details(call).values()] if in_detail else []
    return f"{name} [{', '.join(given)}]" if given else name


def details(call: Call) -> dict[str, str]:
    """What the ranks of one call may disagree on, each with its value in words."""
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
