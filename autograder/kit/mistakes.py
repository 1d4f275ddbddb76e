"""Mistakes in code that is checked: a headline for each, and a hint.

Here are the mistakes of any exercise; each topic has its own beside its checks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial


@dataclass(frozen=True, eq=False)
class Mistake:
    """One way to go wrong.

    Attributes:
        title: its name in a verdict's headline.
        hint: the way out; the exercise itself has more hints, in steps.
        follows_patterns: whether a property that all failing cases share may explain it. A broken budget or
            contract says enough by itself.
        needs_no_hint: whether such a property says all that is to be said.
    """

    title: str
    hint: str
    follows_patterns: bool = False
    needs_no_hint: bool = False


def mistake(text: str, follows_patterns: bool = False, needs_no_hint: bool = False) -> Mistake:
    """Make a mistake of a text: the first line is its title, the others are its hint."""
    title, _, hint = text.partition("\n")
    return Mistake(title, " ".join(hint.split()), follows_patterns, needs_no_hint)


# Makes one that a property of all failing cases may explain.
patterned = partial(mistake, follows_patterns=True)

NOT_IMPLEMENTED = mistake("""not implemented yet
    Replace `raise NotImplementedError` by your code. A good first step is to get the smallest case right,
    with 1 rank and no communication, and then the next.""")
RAISED = patterned("""an exception
    Read the line that the message names, or the message alone if it names none, and try the function on its
    own with fourranks.run(...).""")
NO_SUCH_RANK = patterned("""a rank that does not exist
    The code computes a partner that does not exist: ranks are counted from 0, in the group that the code is
    given. In a tree, some ranks have none in the last round: ask whether there is one before you send or
    receive. In a ring, rank 0 comes after the last rank: take the remainder, (rank + 1) % world_size or
    (rank - 1) % world_size.""")
DEADLOCK = patterned("""a deadlock
    A rank waits for a message that no rank sends. Write down for each rank, in order, which ranks it
    sends to and receives from: every send needs its receive, at the same point of both lists.""")
DIED = patterned("""a rank died
    The message says how its process ended. With an exit code, the code has called exit: return instead. By
    SIGABRT, it usually received into a buffer smaller than the message: compare shape and dtype of the sent
    tensor with those of the receive buffer. By SIGKILL, memory may have run out.""")
MISMATCH = patterned("""a buffer that does not fit its message
    Compare shape and dtype of the sent tensor with those of the receive buffer. empty_like and new_empty
    make buffers of a tensor's own dtype. If both are right, the receiver takes messages in another order
    than they are sent.""")
TIMED_OUT = mistake("""no answer in time
    Look for a loop that never ends: what changes in each turn, and does it reach the end on every rank?""")
WRONG_TYPE = mistake("""something of the wrong type
    Compare with the task: what the function returns, and what it writes into its arguments. A function
    that ends without `return` returns None.""")
NOT_A_NUMBER = mistake("""not a number
    Return a Python float. A tensor of one element becomes one by `.item()`; and is there a `return`?""")
NOT_RECEIVED = mistake("""results that depend on data that was not sent
    Each rank has only its own data: it must receive the data of other ranks by a call.""")
UNTOLD_TRAFFIC = mistake("""traffic by another way
    Ranks may exchange data through torch.distributed only, so that every byte is recorded.""")
NOT_DEFINED = mistake("""not defined
    Look at the cell that should define it: with which error does it end? A cell that begins with `%%ranks`
    defines it on the ranks of the notebook alone.""")
FORBIDDEN_LIBRARY = mistake("""a library that holds the answer
    The exercise says under "You may use" what to build it from. A cell of your own may compare with the
    library, as long as the function that is checked works without it.""")
OVERWRITTEN = mistake("""a result that the next call overwrites
    Make a new tensor in every call. A result belongs to the caller, who may still need it when the function
    is called again; a buffer that is kept between calls is overwritten then.""")
FROM_AN_EARLIER_CALL = mistake("""something is left over from an earlier call
    The first call is right, and the next one uses what the first one was given or has made. What a function
    keeps between calls, in a global variable, a default argument or an attribute, has to be filled again in
    each.""")
NO_WAIT = mistake("""a handle without its wait()
    isend, irecv and calls with async_op=True return before their data has moved. Keep every handle, and wait
    for each of them before the result is used.""")
MODIFIED = mistake("""an argument was changed
    This argument belongs to the caller. Work on a copy (clone), or on a buffer of your own.""")
