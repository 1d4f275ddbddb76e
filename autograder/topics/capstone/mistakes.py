"""Hints of the capstone: mistakes that end a training, or make it expensive."""

from __future__ import annotations

from autograder.kit.mistakes import mistake

NO_WORK = mistake("""no work that a rank could do
    `work` returns `Work(rows, microbatch, recompute)`: how many sequences this rank takes in each step, how
    many of them at a time, and whether it computes activations again.""")
OUT_OF_MEMORY = mistake("""more than a rank's memory holds
    `cluster.fits(rank, work)` tells before the referee does. Take smaller microbatches on this rank, or let
    it recompute: the number of rows is limited by no memory, as microbatches follow one another.""")
NO_WEIGHTS = mistake("""no weights after a step
    `step(weights, gradient)` returns this rank's new weights: a float32 tensor of one dimension, as long as
    the one that it was given.""")
DIVERGED = mistake("""weights that are no numbers any more
    The learning rate is too large, or something was divided by zero: a rank without rows has a gradient of
    zeros.""")
POINT_TO_POINT = mistake("""messages, whose time depends on chance
    The referee adds up collectives. A group of two ranks, by `dist.new_group`, makes a broadcast of what
    would have been a message.""")
UNWAITED = mistake("""a collective that may not be over yet
    With `async_op=True` a call returns a handle at once, and its tensor holds anything until the handle's
    `wait()` has returned. Call it in the step that begins the collective, before you use the tensor.""")
CALLS_CROSSED = mistake("""collectives that wait for one another
    Two groups that share ranks must be used in the same order on all of them: first all groups of one kind,
    then all of the other. Call them from one thread.""")
NOT_LEARNED = mistake("""the loss is not reached
    Are the gradients averaged with the number of rows as their weights? Try the optimizer and the learning
    rate of the plain strategy first: it gets there in half of these steps.""")
RANKS_APART = mistake("""some ranks reach the loss, others do not
    All ranks must have the trained weights: those that take few rows, or exchange seldom, need what the
    others have learned.""")
MODELS_APART = mistake("""every rank trains a model of its own
    The ranks train one model: when training ends, all of them must have the same weights, up to rounding.
    Exchange gradients or weights, in each step or now and then.""")
TOO_DEAR_COMPUTING = mistake("""the loss is reached, and most of the time is spent on computing
    All wait for the rank that takes longest. Compare `cluster.compute_seconds(rank, work)` of all ranks: the
    straggler should have fewer rows, and a rank without rows is of no use. A microbatch costs
    `launch_seconds`, so few large ones are cheap, as far as memory holds them. Then try how many rows a step
    should have: with more of them you need fewer steps, but each takes longer.""")
TOO_DEAR_COMMUNICATING = mistake("""the loss is reached, and most of the time is spent on communicating
    A ring through all ranks is as slow as its slowest link. Sum inside a node first, and let only one pair of
    ranks, with a good cable, talk between the nodes. Then send fewer bytes (bfloat16 is half of
    float32), or exchange less often than in every step.""")
