"""What can go wrong in code that is checked: a headline for it, and a hint.

Here are the mistakes of any exercise; each topic has its own beside its checks.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Mistake:
    """One way to go wrong.

    Attributes:
        title: what a verdict's headline calls it.
        hint: what to do about it; the exercise itself has more hints, in steps.
        follows_patterns: whether a property that all failing cases share may explain it. A broken budget or
            contract says enough by itself.
        needs_no_hint: whether such a property says all that is to be said.
    """

    title: str
    hint: str
    follows_patterns: bool = False
    needs_no_hint: bool = False


NOT_IMPLEMENTED = Mistake(
    "not implemented yet",
    "Replace `raise NotImplementedError` by your code. A good first step: make the smallest case right "
    "(1 rank has nobody to talk to), then the next.",
)
RAISED = Mistake(
    "an exception",
    "Read the line that the message names, and try the function on its own with fourranks.run(...).",
    follows_patterns=True,
)
NO_SUCH_RANK = Mistake(
    "a rank that there is not",
    "A partner is computed that does not exist: ranks are counted from 0, in the group that the code is "
    "given. In a tree, some ranks have none in the last round: ask whether there is one before you send "
    "or receive. In a ring, rank 0 comes after the last rank: take the remainder, "
    "(rank + 1) % world_size or (rank - 1) % world_size.",
    follows_patterns=True,
)
DEADLOCK = Mistake(
    "a deadlock",
    "Somebody waits for a message that nobody sends. Write down for each rank, in order, whom it "
    "sends to and whom it receives from: every send needs its receive, at the same point of both "
    "lists.",
    follows_patterns=True,
)
DIED = Mistake(
    "a rank died",
    "A worker process that ends by SIGABRT usually received into a buffer smaller than the message. "
    "Compare shape and dtype of what is sent with the buffer it is received into.",
    follows_patterns=True,
)
TIMED_OUT = Mistake(
    "no answer in time",
    "Look for a loop that never ends: what changes in each turn, and does it reach the end on every rank?",
)
WRONG_TYPE = Mistake(
    "something of the wrong type",
    "Compare with the contract: what the function returns, and what it puts into its arguments. None is "
    "what a function returns that ends without `return`.",
)
NOT_RECEIVED = Mistake(
    "results that depend on data nobody sent",
    "Each rank knows its own data only: what it has of the others must have come through a call.",
)
UNTOLD_TRAFFIC = Mistake(
    "traffic by another way",
    "Ranks may exchange data through torch.distributed only, so that each byte is on record.",
)
NOT_DEFINED = Mistake(
    "not defined",
    "Look at the cell in which it should be: what error does it end in?",
)
FORBIDDEN_LIBRARY = Mistake(
    "a library that holds the answer",
    "Under `Allowed` the exercise says what to build it from. On your machine a cell of your own may "
    "compare with the library, as long as what is checked does without.",
)
MODIFIED = Mistake(
    "an argument was changed",
    "This argument belongs to the caller. Work on a copy (clone), or on a buffer of your own.",
)
