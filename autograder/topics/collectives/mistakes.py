"""Hints of exercise 02: messages, and tensors that are filled by them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autograder.kit.mistakes import mistake, patterned
from autograder.kit.pattern import Pattern, single_rank, smaller_group

if TYPE_CHECKING:
    from autograder.kit.case import Case

ALL_SEND_FIRST = mistake("""a deadlock, every rank sends first
    Every rank sends first, and a send returns only when its message is received. Let one side receive
    first, or use isend, then recv, then wait for the send.""")
SOME_SEND_FIRST = mistake("""a deadlock, ranks send to each other
    Ranks that exchange messages all send first, and a send returns only when its message is received. An
    order by odd and even fails if both ranks are odd or both even. Let the lower rank of a pair send
    first, or use isend, then recv, then wait for the send.""")
FORBIDDEN = mistake("""a call that is not allowed here
    Build it from send, recv, isend, irecv or batch_isend_irecv: that is what this exercise is about.""")
UNTOUCHED = patterned(
    """no result in the argument
    The result has to be written into the argument itself (copy_, or receiving into it). An assignment
    such as `tensor = ...`, `tensor = tensor + ...` or `gather_list[0] = ...` only renames something, and
    `tensor.data = ...` leaves the memory of the argument as it is, which other tensors may share. And where
    messages are sent from the argument, it first needs this rank's own part.""",
    needs_no_hint=True,
)
OWN_PART = mistake("""the root leaves itself out
    All other ranks are right. The root does not send its own part: copy it (copy_).""")
UNFILLED = patterned(
    """a result with gaps
    Some places were never written. Does this rank's own part go there too, and do all N−1 steps happen?""",
    needs_no_hint=True,
)
NOT_IN_PLACE = mistake("""the result is returned, not in place
    Copy the result into the argument (copy_) instead of returning it.""")
SHIFTED = patterned("""values in the wrong place
    The right values are on the wrong rank or in the wrong place: an index is off. Follow one chunk on
    paper, step by step, from where it starts to where it has to end.""")
ADDED_ON = mistake("""added to what was in the argument
    The argument to be filled may hold anything before the call. Overwrite it (copy_) instead of adding to
    it.""")
MISSING_SUMMAND = patterned("""a contribution is missing
    A contribution is lost on the way. Is every received tensor added before the next one arrives or the
    sum is passed on, and is every message waited for first?""")
REPEATED_SUMMAND = patterned("""a contribution is counted twice
    A contribution is added twice: the received tensor already contains the sums of earlier steps.""")
AVERAGED = mistake("""the mean in place of the sum
    Each number is the sum divided by the number of ranks. The task is the sum itself.""")
VALUE = patterned("""wrong values
    Try the smallest failing case by hand. Two frequent reasons: a tensor read before its wait(), and a
    buffer received into while it is still being sent.""")
LOST_DIGITS = patterned("""values that have lost digits
    All but the last digits are right: something is added or sent in another dtype. float32 holds 7 digits,
    float64 holds 16, and a large int64 has 19. Keep to the dtype of the tensor.""")
UNWAITED = mistake("""a message without its wait()
    isend and irecv return before any data has moved. Keep the handles that they return, and call wait()
    on each before you use the tensor again and before you return.""")
BYTES = mistake("""right, but too many bytes
    The ranks send too much. Send partial results instead of whole tensors, in the dtype of the tensor,
    and nothing that the other rank does not need or already has.""")
MESSAGES = mistake("""right, but too many messages
    Combine the data for the same rank into one message.""")
ROUNDS = mistake("""right, but too many rounds
    Several ranks can send in the same round: each round doubles the number of ranks that have the data,
    or halves the number of those that still have something to add.""")
PADDING = mistake("""right, but with too much padding
    A chunk is longer than it has to be. Round numel / N up, with `-(-numel // N)` or `math.ceil`: `numel // N
    + 1` is one too many where it divides.""")
NEIGHBOURS = mistake("""right, but past the neighbours
    A ring sends to a neighbour only: let data travel on from rank to rank.""")


PATTERNS: tuple[Pattern[Any], ...] = (
    smaller_group("every call, and keep positions in the group apart from global ranks."),
    Pattern(
        lambda case: case.root not in (None, 0),
        "Only sources and destinations other than rank 0 go wrong: count positions from there, modulo the "
        "world size.",
    ),
    Pattern(
        lambda case: len(case.shape) > 1,
        "Only tensors of several dimensions go wrong: `flatten` one before its elements are cut into chunks, "
        "and give the result its shape back (`view_as`).",
    ),
    Pattern(lambda case: case.numel == 0, "Only empty tensors go wrong: 0 elements are legal."),
    Pattern(
        lambda case: case.numel % _group_size(case) != 0,
        "Only numbers of elements that do not divide by the number of ranks go wrong: chunks must cover "
        "every element.",
    ),
    Pattern(
        lambda case: not _is_power_of_two(_group_size(case)),
        "Only world sizes that are no power of two go wrong: which ranks have no partner in the last round, "
        "and does an index need % N?",
        controls=lambda case: _group_size(case) > 2,
    ),
    single_rank("Only a single rank goes wrong: with no other rank, the result is its own data."),
    Pattern(
        lambda case: _group_size(case) > 2,
        "With 2 ranks all is well: there, left and right are the same rank. With more, compare each send "
        "with the receive that it meets. In a ring, also ask who passes on what needs several steps.",
        controls=lambda case: _group_size(case) == 2,
    ),
    Pattern(
        lambda case: not case.dtype.is_floating_point,
        "Only integers go wrong: make buffers with empty_like or new_empty, so that they have the tensor's "
        "dtype.",
    ),
)


def _group_size(case: Case) -> int:
    return len(case.members or range(case.world_size))


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0
