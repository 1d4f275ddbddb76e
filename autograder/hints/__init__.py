"""Chooses the hint for a failed check: from what is wrong, and from which cases it is wrong in.

Called by `verdict`. What holds for any check is here; each topic adds the kinds of problems that it alone
has, and the exercise itself has more hints, in steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from autograder.hints import (
    benchmarking,
    checkpoints,
    collectives,
    data_parallelism,
    hardware_hierarchy,
    less_communication,
    pipeline_parallelism,
    sharded_data_parallelism,
    tensor_parallelism,
)

if TYPE_CHECKING:
    from autograder.verdict import Result

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
        "Compare with the contract: what the function returns, and what it puts into its arguments.",
    ),
    "untold traffic": (
        "traffic by another way",
        "Ranks may exchange data through torch.distributed only, so that each byte is on record.",
    ),
    "not defined": (
        "not defined",
        "Look at the cell in which it should be: what error does it end in? It has to be defined there by "
        "`def`, `class`, `import` or `=`.",
    ),
    "forbidden library": (
        "a library that holds the answer",
        "Under `Allowed` the exercise says what to build it from. A cell of your own may compare with the "
        "library, as long as what is checked does not lead there.",
    ),
    "hidden code": (
        "code that hides what it calls",
        "Your code is read before it is run. Define all that it uses in cells of this notebook, by `def`, "
        "`class`, `import` or `=`, and call it by its name: without exec, eval or importlib, and without "
        "modules as values.",
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

# Kinds that what failing cases have in common may explain; a broken budget or contract says enough by itself.
_PATTERN_KINDS = {
    "raised",
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
    return " ".join(filter(None, (pattern, _BY_KIND[kind][1])))


def _pattern(failed: Sequence[Result], passed: Sequence[Result]) -> str:
    """The first property that every failing case has and no passing one.

    Empty tensors say little: with nothing to move, much goes right by accident.
    """
    telling = [result for result in passed if result.case.weight[0] > 0]
    for has, text in failed[0].case.patterns:
        if telling and all(map(has, failed)) and not any(map(has, telling)):
            return text
    return ""
