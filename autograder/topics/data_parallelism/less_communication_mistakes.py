"""Hints of exercise 04: local steps, and gradients of which only the largest elements are sent."""

from __future__ import annotations

from autograder.kit.mistakes import mistake, patterned

COMMUNICATION_BETWEEN_LOCAL_STEPS = mistake("""communication between local steps
    A round is local: every rank makes all its steps alone. Communicate once, after the last one.""")
NOT_AVERAGED = mistake("""the weights are not averaged
    The ranks keep their own weights. Write the average into the parameters themselves (copy_, or all-
    reduce them in place and divide); an assignment such as `p = p / n` only renames something.""")
SUMMED_WEIGHTS = mistake("""the weights are summed up
    The average is the sum divided by the number of ranks in the group.""")
WEIGHTS_OF_ONE_RANK = mistake("""the weights of one rank
    All ranks have trained: average their weights, instead of sending those of one rank to the others.""")
GRADIENTS_ADD_UP = mistake("""the gradients add up
    backward adds to the gradients that are there. Clear them before each step, the first one too.""")
WRONG_WEIGHTS_AFTER_A_ROUND = patterned("""wrong weights after a round
    Try it with one batch a rank and plain SGD: each rank takes its own step, then each weight is the mean
    over the ranks of the group. The optimizer keeps its own state, and it holds the parameters, perhaps in
    several groups: write into those that are there. If only late digits differ, something is rounded:
    average in the weights' own dtype.""")
MORE_THAN_THE_WEIGHTS = mistake("""right, but too many bytes
    Once a round, each rank gives each trained parameter to one all-reduce. Frozen ones are the same
    everywhere. And if all ranks' weights are gathered, each rank gets as many times the bytes as there are
    others.""")
NO_ERROR_FEEDBACK = mistake("""what is not sent is forgotten
    Keep the elements that you do not send, and add them to the next gradients, before you choose the
    largest.""")
SENT_AND_KEPT = mistake("""what is sent is kept as well
    Only elements that were not sent belong in the next step: set the elements that you send to zero in
    the tensor that you keep.""")
SUMMED_GRADIENTS = mistake("""the gradients are summed up
    The average is the sum divided by the number of ranks in the group, however few have sent an element.""")
LARGEST_BY_VALUE = mistake("""the largest values, not the largest magnitudes
    A gradient of −5 matters more than one of 1: choose by the absolute value, and send the value.""")
COINCIDING_ELEMENTS = mistake("""elements that several ranks have sent
    Two ranks may send the same element: then both count. `index_add_` adds, an assignment by index
    replaces.""")
GRADIENTS_ONE_BY_ONE = mistake("""chosen from each gradient alone
    Put all gradients together first: the largest k of all their elements are sent, wherever they are.""")
AVERAGED_OVER_SENDERS = mistake("""the mean over those ranks that have sent an element
    An element that a rank did not send counts as 0, and it counts: divide by the number of ranks in the
    group.""")
TOO_FEW_SENT = mistake("""fewer elements are sent than k
    k is rounded up: `math.ceil(ratio * numel)`, of the elements of all gradients together.""")
NOT_COMPRESSED = mistake("""nothing is left out
    Send k elements, the largest ones, and keep the others for later.""")
WRONG_COMPRESSED_GRADIENTS = patterned("""wrong gradients
    Go through two steps by hand with 2 ranks of 3 elements and k = 1: what is sent, what is kept, and
    what is added to the next gradients? Each compressor keeps its own rest.""")
MORE_THAN_THE_LARGEST = mistake("""right, but too many bytes
    Send k values and their k places, each with one all-gather, and put them together on every rank. An
    all-reduce of a tensor full of zeros moves the zeros, too.""")
