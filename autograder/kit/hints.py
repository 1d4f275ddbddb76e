"""Chooses the hint for a failed check: from what is wrong, and from which cases it is wrong in.

Called by `verdict`. What holds for any check is here; each topic adds the kinds of problems that it alone
has, and the exercise itself has more hints, in steps.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from autograder.topics.benchmarking import mistakes as benchmarking
from autograder.topics.collectives import mistakes as collectives
from autograder.topics.data_parallelism import (
    checkpoint_mistakes as checkpoints,
)
from autograder.topics.data_parallelism import (
    less_communication_mistakes as less_communication,
)
from autograder.topics.data_parallelism import (
    mistakes as data_parallelism,
)
from autograder.topics.hardware_hierarchy import mistakes as hardware_hierarchy
from autograder.topics.pipeline_parallelism import mistakes as pipeline_parallelism
from autograder.topics.sharded_data_parallelism import mistakes as sharded_data_parallelism
from autograder.topics.tensor_parallelism import mistakes as tensor_parallelism

if TYPE_CHECKING:
    from autograder.kit.verdict import Result

# For each kind of problem: what it is called, and the hint.
_BY_KIND = {
    "not implemented": (
        "not implemented yet",
        "Replace `raise NotImplementedError` by your code. A good first step: make the smallest case right "
        "(1 rank has nobody to talk to), then the next.",
    ),
    "raised": (
        "an exception",
        "Read the line that the message names, and try the function on its own with fourranks.run(...).",
    ),
    "no such rank": (
        "a rank that there is not",
        "A partner is computed that does not exist: ranks are counted from 0, in the group that the code is "
        "given. In a tree, some ranks have none in the last round: ask whether there is one before you send "
        "or receive. In a ring, rank 0 comes after the last rank: take the remainder, "
        "(rank + 1) % world_size or (rank - 1) % world_size.",
    ),
    "deadlock": (
        "a deadlock",
        "Somebody waits for a message that nobody sends. Write down for each rank, in order, whom it "
        "sends to and whom it receives from: every send needs its receive, at the same point of both "
        "lists.",
    ),
    "died": (
        "a rank died",
        "A worker process that ends by SIGABRT usually received into a buffer smaller than the message. "
        "Compare shape and dtype of what is sent with the buffer it is received into.",
    ),
    "timed out": (
        "no answer in time",
        "Look for a loop that never ends: what changes in each turn, and does it reach the end on every "
        "rank?",
    ),
    "wrong type": (
        "something of the wrong type",
        "Compare with the contract: what the function returns, and what it puts into its arguments. None is "
        "what a function returns that ends without `return`.",
    ),
    "not received": (
        "results that depend on data nobody sent",
        "Each rank knows its own data only: what it has of the others must have come through a call.",
    ),
    "untold traffic": (
        "traffic by another way",
        "Ranks may exchange data through torch.distributed only, so that each byte is on record.",
    ),
    "not defined": (
        "not defined",
        "Look at the cell in which it should be: what error does it end in?",
    ),
    "forbidden library": (
        "a library that holds the answer",
        "Under `Allowed` the exercise says what to build it from. On your machine a cell of your own may "
        "compare with the library, as long as what is checked does without.",
    ),
    "modified": (
        "an argument was changed",
        "This argument belongs to the caller. Work on a copy (clone), or on a buffer of your own.",
    ),
    **collectives.BY_KIND,
    **data_parallelism.BY_KIND,
    **hardware_hierarchy.BY_KIND,
    **benchmarking.BY_KIND,
    **checkpoints.BY_KIND,
    **less_communication.BY_KIND,
    **sharded_data_parallelism.BY_KIND,
    **tensor_parallelism.BY_KIND,
    **pipeline_parallelism.BY_KIND,
}

_COLLECTIVES_APART = (
    "A collective needs every rank of its group. Some ranks leave this one out, for instance in a branch, or "
    "call others before it. Write down which collectives each rank calls, in order: the lists must be equal."
)
_WAITED_IN = re.compile(r"\bwaits? in (\w+)")

# Kinds that what failing cases have in common may explain; a broken budget or contract says enough by itself.
_PATTERN_KINDS = {
    "raised",
    "no such rank",
    "deadlock",
    "died",
    *collectives.PATTERN_KINDS,
    *data_parallelism.PATTERN_KINDS,
    *less_communication.PATTERN_KINDS,
    *sharded_data_parallelism.PATTERN_KINDS,
    *tensor_parallelism.PATTERN_KINDS,
    *pipeline_parallelism.PATTERN_KINDS,
}


def title(kind: str) -> str:
    """What a problem of this kind is called in a headline."""
    return _BY_KIND[kind][0]


def choose(kind: str, failed: Sequence[Result], passed: Sequence[Result]) -> str:
    """The hint for this kind of problem, and what the failing cases have in common if that is telling."""
    pattern = _pattern(failed, passed) if kind in _PATTERN_KINDS else ""
    if pattern and kind in ("untouched", "unfilled"):  # other cases are filled, so filling is understood
        return pattern
    return " ".join(filter(None, (pattern, _of_kind(kind, [result.problem.got for result in failed]))))


def _of_kind(kind: str, told: Sequence[str]) -> str:
    """The hint for a kind of problem, as the errors in the table tell it apart."""
    calls = [call for text in told for call in _WAITED_IN.findall(text)]
    if kind == "deadlock" and calls and not any("send" in call or "recv" in call for call in calls):
        return _COLLECTIVES_APART
    return _BY_KIND[kind][1]


def _pattern(failed: Sequence[Result], passed: Sequence[Result]) -> str:
    """The hint of the first pattern that explains the failing cases; "" if none does.

    Empty tensors say little when they pass: with nothing to move, much goes right by accident.
    """
    failing = [result.case for result in failed]
    telling = [result.case for result in passed if result.case.weight[0] > 0]
    return next((p.text for p in failing[0].patterns if p.explains(failing, telling)), "")
