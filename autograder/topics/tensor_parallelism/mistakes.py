"""Hints of exercise 06: activations that cross ranks and their gradients, modules cut along the width."""

from __future__ import annotations

from typing import Any

from autograder.kit.mistakes import mistake, patterned
from autograder.kit.pattern import Pattern, Rule, single_rank, smaller_group

UNEVEN_COLLECTIVES = patterned("""the ranks are not in the same collective
    Every rank of the group makes the same calls, with tensors of the same size, in forward and in
    backward alike. Does one depend on the rank's own numbers, or on another group?""")
ANOTHER_SHAPE_OF_A_PART = patterned("""a wrong shape or dtype
    Compare with the table of the contract: which tensors are replicated, and along which dimension are
    the others sharded? A collective keeps the dtype of its input.""")
WRONG_FORWARD = patterned("""a wrong result of forward
    Try it with two ranks and two numbers each. What should each rank hold afterwards? If only late digits
    differ, something is rounded: compute and send in the dtype of x.""")
WRONG_BACKWARD = patterned("""another gradient
    Forward is right. The table says what backward has to return for the gradient that it gets. If only late
    digits differ, something is rounded: compute and send in the dtype of the gradient.""")
CUT_GRAPH = mistake("""the graph is cut
    Tensors that torch.distributed fills have no history, so no gradient flows through them. Write a class
    with forward and backward (torch.autograd.Function), and call its apply.""")
NOT_SUMMED_IN_FORWARD = mistake("""forward does not sum
    Each rank has a partial sum, and all of them need the sum: an all-reduce.""")
NOT_SUMMED_IN_BACKWARD = mistake("""backward does not sum
    Every rank uses the input with different weights, so each has a partial sum of its gradient. Backward
    sums them over the ranks; forward does not communicate.""")
SUMMED_NEEDLESSLY = mistake("""summed over the ranks where nothing is to be summed
    In one of the two directions the tensor is already the same on every rank. A sum there makes it too
    large by a factor of the number of ranks.""")
SCALED_NEEDLESSLY = mistake("""scaled by the number of ranks
    The output's gradient is the same on every rank and passes as it is: no factor.""")
AVERAGED = mistake("""averaged instead of summed
    These are partial sums of one value: add them, and do not divide.""")
ROUNDED_APART = mistake("""right but for rounding, which differs between ranks
    A replicated tensor is the same on every rank, to the last digit: return what the all-reduce gives,
    without any arithmetic on it. x + (total − x).detach() has the right gradient, but each rank rounds it
    differently, and an infinite x becomes nan; a torch.autograd.Function does not need it.""")
BIAS_MISSING = mistake("""the bias is missing
    The bias that belongs to the sum over the ranks is added to it once, after the all-reduce or
    reduce-scatter.""")
PARTS_IN_ANOTHER_ORDER = patterned("""parts in another order
    The part of the group's first rank comes first, along the dimension that is given.""")
PART_OF_ANOTHER_RANK = patterned("""another rank's part
    A rank's part is chosen by its position in the group: dist.get_rank(group).""")
NOT_GATHERED_IN_BACKWARD = mistake("""the gradient of one part only
    The input is whole on every rank, and so must its gradient be: all ranks put their parts together.""")
GRADIENT_OVERWRITTEN = mistake("""a gradient is overwritten that others need
    Autograd may hand the same tensor to several functions. Work on a copy of it: clone() always makes
    one, contiguous() only sometimes.""")
GRADIENT_OF_OTHER_USES = mistake("""a gradient that has nothing to do with the function is changed
    A hook on the input acts on its whole gradient, also on what comes from other uses of it, as the x of
    x + f(x). Return a new tensor whose backward does what the table says.""")
INDIVISIBLE_ACCEPTED = mistake("""a size that does not divide is accepted
    Ranks would hold parts of different sizes, or lose some elements. Raise a ValueError.""")
VAGUE_REFUSAL = mistake("""a refusal that does not say why
    Name the size and the number of ranks, and say what to do about it.""")
COLLECTIVES_BEFORE_FORWARD = mistake("""communication before forward
    Each rank gets the whole state dict and cuts out its shard by itself, without communication.""")
COLLECTIVES_IN_FORWARD = mistake("""right, but with more communication in forward than allowed
    The shards are chosen so that one layer's output is the next one's input: gather nothing in between.
    Weights are never sent. And an all-reduce is one call, not a reduce and a broadcast; an all-gather is
    one call, too, not a broadcast from each rank.""")
COLLECTIVES_IN_BACKWARD = mistake("""right, but with more communication in backward than allowed
    The communication in backward mirrors that in forward. Gradients of weights stay on the rank of the
    weights, and if several layers read one input, copy_to_ranks is applied to it once.""")
BYTES_IN_FORWARD = mistake("""right, but with more bytes in forward than allowed
    Are whole tensors sent where parts would do, or gathered and then added up? A sum is an all-reduce; a
    sum of which each rank keeps its part is a reduce-scatter. And send a tensor in its own dtype: a wider
    one has more bytes.""")
BYTES_IN_BACKWARD = mistake("""right, but with more bytes in backward than allowed
    Are whole tensors gathered and then added up, or summed where each rank keeps only a part? A sum is an
    all-reduce. The backward of an all-gather whose output the ranks use in different ways is a
    reduce-scatter: half the bytes of an all-reduce. And send a gradient in its own dtype: a wider one has
    more bytes.""")
NAMES_OF_SHARDS = mistake("""parameters with wrong names
    A shard is named as the whole parameter is, so that a state dict fits. Buffers and plain attributes
    may be called what you like.""")
REPLACED_BY_LOAD_FULL = mistake("""load_full makes new parameters
    An optimizer made before would still hold the old ones. Copy into the existing parameters:
    parameter.copy_(…) under torch.no_grad().""")
SHARED_WITH_THE_STATE_DICT = mistake("""a parameter in the memory of the state dict
    What changes the one changes the other, as each step of an optimizer would. Copy into the parameter:
    parameter.copy_(…) under torch.no_grad(), in place of setting parameter.data to a tensor of the dict.""")
WRONG_SHARD = patterned("""load_full loads something else than this rank's shard
    Which dimension is sharded? nn.Linear keeps its weight as (out_features, in_features). Rank r takes
    the r-th of N equal parts along that dimension, and replicated parameters are copied whole.""")
CUT_ACROSS_HEADS = mistake("""q, k and v are cut as if they were one
    The rows of qkv.weight are q's, then k's, then v's. The first of N equal parts of the whole weight has
    much of q and nothing of v. Cut each of the three separately, so that every rank takes its heads of
    each.""")
WHOLE_WEIGHT_HELD = mistake("""a whole weight is kept
    A slice is a view: it keeps the whole tensor in memory. Copy the slice into a parameter of the shard's
    shape, and do not keep the state dict.""")
WHOLE_WEIGHT_MADE = mistake("""a whole weight is made
    Shards are meant to save memory: make parameters of the shard's shape from the start, and cut the
    loaded tensor before you copy, transpose or convert anything.""")
WEIGHTS_OF_OTHERS_USED = mistake("""weights of other ranks are used
    This output needs the whole weights, and no rank has them: use this rank's shards alone, and get what
    the others compute from a collective. A check fills the other ranks' parts of the state dict with other
    numbers.""")
BIAS_ADDED_BY_EVERY_RANK = mistake("""the bias is added by every rank
    If each rank adds the bias before the sum, it is added N times. Add the bias once: after the sum.""")
SHARE_OF_THE_BIAS_ADDED = mistake("""every rank adds a share of the bias
    The output is right, but what divides the bias divides its gradient as well. Add the whole bias once:
    after the sum.""")
PARTIAL_OUTPUT = mistake("""the parts of a sum are not summed up
    Each rank has multiplied its columns by its part of the input, which gives a partial sum of the
    output. Where are the partial sums added up?""")
ANOTHER_OUTPUT = patterned("""a wrong output
    Compare the layers one by one with those of the whole module, on 2 ranks, from the first on. If only late
    digits differ, something is rounded: here the weights and x are float64.""")
GRADIENT_OF_ONE_PART = patterned("""each rank has a part of a gradient
    The gradients of the ranks would be right if they were added up: in forward, every rank uses this
    tensor for its own part of the work. copy_to_ranks adds them up in backward. Where a rank uses only a
    slice of the tensor, scatter_to_ranks cuts it, and puts the slices' gradients together.""")
NO_GRADIENT_OF_A_PART = mistake("""a gradient is missing
    It is None: backward never got there. Which step has no backward, or is made by some ranks only?
    Tensors that torch.distributed fills have no history.""")
GRADIENT_OF_EVERY_RANK_ADDED = mistake("""a gradient is as many times too large as there are ranks
    A loss that every rank computes from the same output is one loss, not N. Is a gradient summed that is
    the same on all ranks? The backward of reduce_from_ranks passes it on as it is.""")
WRONG_PART_OF_A_GRADIENT = patterned("""a wrong gradient
    The output is right. Look at the gradients that cross ranks in backward: partial sums have to be added
    up before they are used further, replicated gradients must not be.""")
WRONG_CROSS_ENTROPY = patterned("""a wrong loss
    The loss of a token is log Σ exp(logit) − the target's logit. Which rank has the target's, at which
    place of its shard, and what do the other ranks add? Do all ranks subtract the same largest logit? And is
    the mean the same on all ranks, over all tokens that count? If only late digits differ, something is
    rounded: compute and send in the dtype of the logits.""")
CROSS_ENTROPY_NOT_FINITE = patterned("""a loss that is not finite
    exp of a large logit is infinite. Subtract the largest logit of the token, over all ranks: with a
    different one on every rank the sums would not fit together, and a shard may have only -inf.""")
OWN_LOGITS_ONLY = mistake("""only this rank's logits are in the sum
    The softmax is over the whole vocabulary: sum the exponentials over the ranks before the logarithm.""")
PADDING_COUNTED = mistake("""padding counts in the mean
    Targets of -100 do not count as tokens: the mean is over the others, as in F.cross_entropy.""")
LOSSES_ADDED_UP = mistake("""the sum instead of the mean
    The loss is the mean over the tokens, as F.cross_entropy has it by default.""")
GRADIENT_NOT_SCALED = mistake("""the loss's own gradient is ignored
    A caller that multiplies the loss by 3 expects 3 times the gradient: use the gradient that backward
    gets.""")
WRONG_GRADIENT_OF_LOGITS = patterned("""another gradient of the logits
    The gradient is the softmax, minus 1 at the target, over the number of tokens: each rank has its part of
    it without communication. The largest logit needs no gradient: detach() the logits before you look for
    it. If only late digits differ, something is rounded: a quotient of integers is a float32.""")


def _trait(name: str) -> Rule:
    return lambda case: name in getattr(case, "traits", ())


_STRIDED = (
    "Only tensors that are not contiguous go wrong: a collective reads memory in its order, so give it "
    "contiguous() ones, and for those that it fills do not take the strides of others."
)

PATTERNS: tuple[Pattern[Any], ...] = (
    smaller_group(
        "every call, and ask for size and position by dist.get_world_size(group) and dist.get_rank(group)."
    ),
    single_rank("Only a single rank goes wrong: it has every part, and no other rank to talk to."),
    Pattern(_trait("strided"), _STRIDED),
    # A single rank's collective may have nothing to mix up.
    Pattern(lambda case: _trait("strided")(case) and case.world_size > 1, _STRIDED),
    Pattern(
        _trait("other dim"),
        "Only another dimension than the last goes wrong: use dim for cutting and for putting together.",
    ),
    Pattern(_trait("empty"), "Only tensors without elements go wrong: those are legal."),
    Pattern(_trait("no dimensions"), "Only tensors of no dimensions go wrong: a single number is legal."),
    Pattern(
        _trait("mask"),
        "Only causal attention goes wrong: there a token sees itself and those before it, and no later ones.",
    ),
    Pattern(_trait("no mask"), "Only attention with causal=False goes wrong: there a token sees all others."),
    Pattern(
        _trait("heads"),
        "Only ranks with several heads go wrong: each head attends over the sequence by itself, with scores "
        "that are scaled by its own width.",
    ),
    Pattern(_trait("large"), "Only large logits go wrong: exp(1000) is infinite."),
    Pattern(
        _trait("padding"), "Only targets of -100 go wrong: they belong to no rank's shard, and do not count."
    ),
    Pattern(
        _trait("empty shard"),
        "Only a shard of -inf goes wrong: -inf - (-inf) is not a number. The largest logit is that of all "
        "ranks.",
    ),
)
