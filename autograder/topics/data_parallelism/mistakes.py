"""Hints of exercise 04: gradients that are averaged over the ranks, while backward still computes."""

from __future__ import annotations

from typing import Any

from autograder.kit.mistakes import mistake, patterned
from autograder.kit.pattern import Pattern, of_model, single_rank, smaller_group

WRONG_SAMPLES = mistake("""wrong samples
    Rank r takes the r-th of N equal, contiguous parts: it begins at sample r · (batch size / N). Use the
    arguments, not dist.get_rank().""")
COPIED = mistake("""right, but copied
    A slice batch[a:b] is a view of the same memory; an index list is not.""")
REFUSED = mistake("""a batch that divides is refused
    Refuse only a batch that leaves a remainder; 0 samples leave none.""")
UNEVEN_BATCH = mistake("""an uneven batch is accepted
    With shards of different sizes the mean over the ranks is not the mean over the samples, and no
    error would say so. Raise a ValueError.""")
UNCLEAR_REFUSAL = mistake("""a refusal that does not say why
    Name both numbers, the samples and the ranks, and say what to do: drop some samples, or choose another
    batch size.""")
OUT_OF_STEP = patterned("""the ranks are out of step
    A rank issues a collective that another one does not issue, or issues it at another place. Every rank
    takes part for every parameter that requires a gradient, whether it used it or not, and in an order
    that does not depend on its own samples.""")
UNEXPECTED_CALL = mistake("""a call outside the budget
    The budget of this task is all-reduces of gradients, in the steps and nowhere else.""")
NO_GRADIENT = patterned("""a gradient is missing
    A parameter without a gradient on this rank still gets the mean: use zeros for its gradient. Shape and
    dtype are those of the parameter.""")
OWN_GRADIENT = patterned("""gradients that were not averaged
    This rank still has its own gradient. Is it all-reduced, is every handle waited for in time, and does the
    result get into parameter.grad? A new tensor, such as a flattened bucket, has to be copied back.""")
SUMMED = mistake("""the sum instead of the mean
    Divide by the number of ranks of the group, or use dist.ReduceOp.AVG: otherwise the step grows with
    the number of ranks.""")
DIVIDED_TWICE = mistake("""averaged twice
    The mean is divided by the number of ranks once more. ReduceOp.AVG divides already.""")
DIVIDED_WRONGLY = patterned("""a multiple of the mean
    The sum was divided by something else than the number of ranks that took part, which is
    dist.get_world_size(group).""")
WRONG_GRADIENT = patterned("""wrong gradients
    If they differ a little from run to run, a tensor is read before its wait(), or changed while it is in
    flight. If not: are gradients of different parameters mixed up, because ranks started their
    collectives in different orders? Is one left over from the step before, or in a bucket that is cleared
    for the next?""")
WEIGHTS_MOVED = patterned("""the weights were changed
    Average only the gradients. The optimizer changes the weights, in the same way on every rank.""")
PARAMETERS_DIFFER = patterned("""parameters that are not rank 0's
    Every rank drew different weights. Broadcast all parameters when the model is wrapped, frozen ones
    too, from the first rank of the group.""")
BUFFERS_DIFFER = mistake("""buffers that are not rank 0's
    module.buffers() are part of the model, too: running means, masks, counters, of any dtype.""")
NAMES = patterned("""names other than with PyTorch's wrapper
    Keep the wrapped model in self.module, and register nothing else: parameters are then named
    module.0.weight and so on, and a checkpoint fits.""")
SENT_TWICE = patterned("""more is sent than the gradients
    Each gradient is sent once in a step. A tied parameter is one parameter, a frozen one has no gradient,
    and padding is not needed.""")
CAST = mistake("""gradients sent in another dtype
    A bucket has one dtype. Sending float64 as float32 loses digits, and sending bfloat16 as float32 twice
    the bytes: keep a bucket for each dtype.""")
ALL_REDUCES = mistake("""a wrong number of all-reduces
    Each gradient has its own all-reduce in this part; buckets come later.""")
LATE = mistake("""right, but communication starts too late
    Start the collective in the hook that announces its gradient (for a bucket: its last one), not at the
    end of backward. Gradients of the last layer come first.""")
NO_OVERLAP = mistake("""right, but backward waits for communication
    Use async_op=True, let the hook return, and wait for the handles only in
    finish_gradient_synchronization().""")
BUCKET_TOO_LARGE = mistake("""a bucket is too large
    Before a gradient goes into a bucket, check whether it still fits: 1 MiB is 2**20 bytes, and an
    element has element_size() bytes. A gradient larger than a bucket gets its own bucket.""")
TOO_MANY_BUCKETS = mistake("""right, but too many buckets
    Fill a bucket until the next gradient does not fit. There is one open bucket for each dtype.""")
BUCKET_ORDER = mistake("""buckets with the wrong gradients
    Fill buckets in the order in which gradients become ready, from the last parameter to the first; the
    bucket that is complete first is sent first. A gradient that fills a bucket to the last byte still
    fits.""")
COPIED_TWICE = mistake("""right, but too much is copied at the start
    Each parameter and each buffer is broadcast once, as a tensor: a pickled object is larger.""")
REFUSED_IN_NO_SYNC = mistake("""a second backward in no_sync() is refused
    In no_sync() nothing is in flight, so backwards may follow one another, without a call of
    finish_gradient_synchronization() between them. A hook must not even note that a gradient is ready.""")
SENT_IN_NO_SYNC = mistake("""communication in no_sync()
    Hooks run in no_sync(), too, and finish_gradient_synchronization() may be called in it. Both have to
    check whether it is on, and then not touch the gradient.""")
LOST_IN_NO_SYNC = mistake("""gradients that do not add up in no_sync()
    Inside no_sync() backward adds to parameter.grad by itself: neither clear nor replace it, not on entering
    or leaving either.""")
PARTLY_AVERAGED = mistake("""only the last gradient was averaged
    After no_sync() the whole parameter.grad has to be averaged, including the gradients accumulated
    before. A hook by register_hook sees only the gradient that the latest backward adds.""")
LOST_AFTER_NO_SYNC = mistake("""gradients that no_sync() has accumulated are lost
    A parameter that only backwards in no_sync() have used has a gradient, although the last backward did
    not make its hook run. Put zeros only where .grad is None.""")
READY_TWICE = mistake("""a gradient is ready twice, and no error says so
    After the first backward the all-reduces are in flight. A second backward adds to gradients that are
    being sent, or have been: record which are ready, and raise a RuntimeError when one becomes ready
    again.""")
ANOTHER_ERROR = mistake("""a gradient is ready twice, and another error than a RuntimeError says so
    A caller has to know what to expect: raise a RuntimeError yourself, before a list or a dictionary
    complains, with a text that says what to do.""")
NO_SYNC_STAYS_ON = mistake("""no_sync() outlives an exception
    Switch synchronization on again in a finally block: code in no_sync() may raise.""")
MEMORY = mistake("""right, but too much memory is held
    Between two steps the wrapper may keep only its buckets. Clear everything else that a step has
    collected: copies, lists, handles.""")
MEMORY_GROWS = mistake("""memory that grows with every step
    A handle keeps its tensors alive. Forget all handles once they have been waited for.""")
SYNCHRONIZED_TOO_OFTEN = mistake("""synchronized too often
    All microbatches except the last belong in model.no_sync(), with their forward and their backward:
    PyTorch's wrapper decides in forward whether it will synchronize, and yours in backward.""")
NEVER_SYNCHRONIZED = mistake("""no synchronization
    The last microbatch belongs outside of no_sync(), its forward as well as its backward.""")
SENT_BESIDE_THE_WRAPPER = mistake("""communication beside the wrapper's
    The wrapper averages the gradients, in the backward of the last microbatch, and the loss that you return
    is that of this rank's own samples: call no collective yourself.""")
NOT_FINISHED = mistake("""no wait for the all-reduces
    After the last backward call model.finish_gradient_synchronization(): until it returns, gradients may
    still be in flight.""")
FINISHED_TOO_OFTEN = mistake("""synchronized again
    Call model.finish_gradient_synchronization() once, after the last backward: the gradients are the mean
    over all ranks then, and another call would send them all again.""")
GRAPHS_HELD = mistake("""activations of several microbatches at once
    Call the model and backward() for each microbatch by itself, before the forward of the next: that frees
    its activations. A batch that is put together of all microbatches does not fit into memory.""")
EARLIER_MICROBATCHES_LOST = mistake("""gradients of the last microbatch only
    Each backward adds to .grad by itself: call no zero_grad() between microbatches. The caller clears
    gradients before the first one.""")
LOSSES_SUMMED = mistake("""the sum of the microbatches' losses
    Each loss is a mean already. Scale it by its microbatch's share of the samples before its backward.""")
LOSSES_UNWEIGHTED = mistake("""microbatches of different sizes count the same
    Scale each loss by len(inputs) over all samples, not by 1 over the number of microbatches.""")
SHARES_WRONG = mistake("""a multiple of the gradient
    The factors of a rank's losses have to add up to 1: each is len(inputs) over the samples of all its
    microbatches. The wrapper divides by the number of ranks, so do not divide by it once more.""")
WRONG_LOSS = mistake("""a wrong loss is returned
    Return the mean over all samples of this rank: the sum of the losses as they were scaled.""")
ATTACHED = mistake("""the loss keeps its graph
    Return it without its graph: loss.detach(). Otherwise all activations stay in memory with it.""")


PATTERNS: tuple[Pattern[Any], ...] = (
    smaller_group("every call. Its rank 0 is group_src=0."),
    single_rank("Only a single rank goes wrong: its mean is its own gradient."),
    Pattern(
        lambda case: "no_sync" in case.title,
        "Only no_sync() goes wrong: in it a hook starts no all-reduce and does not note that a gradient is "
        "ready, and finish_gradient_synchronization() does nothing.",
    ),
    of_model(
        "tied",
        "Only tied parameters go wrong: module.parameters() lists each once, however often it is used.",
    ),
    of_model("frozen", "Only frozen parameters go wrong: those have requires_grad=False, and no gradient."),
    of_model(
        "unused",
        "Only unused parameters go wrong: on a rank that did not use one its .grad is None and its hook "
        "is not called, while another rank averages it.",
    ),
    of_model(
        "sizes",
        "Only empty and tiny parameters go wrong: 0 elements are legal, and so are 1 element and no "
        "dimension.",
    ),
    of_model("mixed", "Only several dtypes go wrong: tensors of different dtypes cannot share a bucket."),
    of_model(
        "buffers",
        "Only the model with buffers goes wrong: they can be of any dtype, and have no gradients. Its "
        "forward takes one more argument, too.",
    ),
)
