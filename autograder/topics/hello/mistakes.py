"""Hints of exercise 00: a mean and a maximum over the ranks."""

from __future__ import annotations

from autograder.kit.mistakes import mistake, patterned
from autograder.kit.pattern import single_rank

OUT_OF_STEP = patterned("""a deadlock, not every rank makes the call
    A collective needs every rank of the world. Is there an `if` around the call that lets only some ranks
    reach it?""")
SEVERAL_CALLS = mistake("""right, but with more calls than needed
    One all-reduce is enough: it gives the result to every rank. A collective of objects, such as
    all_gather_object, makes two: for their sizes, and for the objects.""")
ON_ONE_RANK_ONLY = mistake("""the result on one rank only
    A reduce or a gather leaves its result on one rank. Every rank needs it: dist.all_reduce.""")
OWN_TENSOR = mistake("""this rank's own tensor
    The result is this rank's own input. Return the tensor that the all-reduce has filled.""")
THE_ARGUMENT_ITSELF = mistake("""the argument itself, not a new tensor
    The result changes when the caller changes the argument. Return a tensor of its own (clone), even where
    there is nothing to add.""")
SUMMED = mistake("""the sum, not the mean
    An all-reduce adds up. Divide by the number of ranks, dist.get_world_size().""")
DIVIDED_BY_FOUR = mistake("""divided by the wrong number
    Your function runs in worlds of several sizes. Divide by dist.get_world_size(), not by a fixed number.""")
DIVIDED_TWICE = mistake("""divided twice
    The mean is divided by the number of ranks once more. ReduceOp.AVG divides already.""")
WRONG_MEAN = patterned("""wrong values
    Print the tensor on each rank before and after each line, for two ranks and a tensor of one element.""")
WRONG_FORM = mistake("""a wrong dtype or shape
    The mean must have the shape and the dtype of the argument.""")

OWN_NUMBER = mistake("""this rank's own number
    The result is this rank's own input. Read the number from the tensor that the all-reduce has filled.""")
ADDED_UP = mistake("""the sum, not the largest
    An all-reduce adds by default. For the largest number pass op=dist.ReduceOp.MAX.""")
SMALLEST = mistake("""the smallest, not the largest
    The task asks for the largest number: op=dist.ReduceOp.MAX.""")
NEVER_BELOW_ZERO = mistake("""zero where all numbers are negative
    The largest of -3 and -2 is -2. Begin with the rank's own number, not with 0.""")
LOST_DIGITS = mistake("""a number that has lost digits
    torch.tensor(value) is a float32 with 7 digits, but a Python float has 16. Pass dtype=torch.float64.""")
WRONG_NUMBER = patterned("""a wrong number
    Print the input and the result of each rank, for two ranks.""")

PATTERNS = (
    single_rank("Only a world of one rank goes wrong: there the result is what the rank has put in."),
)
