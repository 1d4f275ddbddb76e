"""Hints of exercise 04: local steps, and gradients of which only the largest elements are sent."""

from __future__ import annotations

BY_KIND = {
    "communication between local steps": (
        "communication between local steps",
        "A round is local: every rank takes all its steps alone. Communicate once, after the last one.",
    ),
    "not averaged": (
        "the weights are not averaged",
        "The ranks keep their own weights. Write the average into the parameters themselves (copy_, or all- "
        "reduce them in place and divide); an assignment such as `p = p / n` only renames something.",
    ),
    "summed weights": (
        "the weights are summed up",
        "The average is the sum divided by the number of ranks in the group.",
    ),
    "weights of one rank": (
        "the weights of one rank",
        "All ranks have learned something: average their weights, instead of handing on those of one.",
    ),
    "gradients add up": (
        "the gradients add up",
        "backward adds to the gradients that are there. Clear them before each step, the first one too.",
    ),
    "wrong weights after a round": (
        "wrong weights after a round",
        "Try it with one batch a rank and plain SGD: each rank takes its own step, then each weight is the "
        "mean over the ranks of the group. The optimizer keeps its own state.",
    ),
    "more than the weights": (
        "right, but too many bytes",
        "Once a round, each rank gives each trained parameter to one all-reduce. Frozen ones are the same "
        "everywhere.",
    ),
    "no error feedback": (
        "what is not sent is forgotten",
        "Keep what you do not send, and add it to the next gradients, before you choose the largest.",
    ),
    "sent and kept": (
        "what is sent is kept as well",
        "Only what was not sent belongs into the next step: set the elements that you send to zero in what "
        "you keep.",
    ),
    "summed gradients": (
        "the gradients are summed up",
        "The average is the sum divided by the number of ranks in the group, whoever has sent an element.",
    ),
    "largest by value": (
        "the largest values, not the largest magnitudes",
        "A gradient of −5 matters more than one of 1: choose by the absolute value, and send the value.",
    ),
    "coinciding elements": (
        "elements that several ranks have sent",
        "Two ranks may send the same element: then both count. `index_add_` adds, an assignment by index "
        "replaces.",
    ),
    "gradients one by one": (
        "chosen from each gradient alone",
        "Put all gradients together first: the largest k of all their elements are sent, wherever they are.",
    ),
    "not compressed": (
        "nothing is left out",
        "Send k elements, the largest ones, and keep the others for later.",
    ),
    "wrong compressed gradients": (
        "wrong gradients",
        "Go through two steps by hand with 2 ranks of 3 elements and k = 1: what is sent, what is kept, and "
        "what is added to the next gradients? Each compressor keeps its own rest.",
    ),
    "more than the largest": (
        "right, but too many bytes",
        "Send k values and their k places, each with one all-gather, and put them together on every rank. "
        "An all-reduce of a tensor full of zeros moves the zeros, too.",
    ),
}

PATTERN_KINDS = {"wrong weights after a round", "wrong compressed gradients"}
