"""Hints of exercise 03: what a benchmark may get wrong, and the formulas of bandwidths."""

from __future__ import annotations

from autograder.kit.mistakes import Mistake
from autograder.kit.pattern import Pattern

# benchmark
CALLS_OF_RUN = Mistake(
    "run is called too often or not often enough",
    "Every rank calls `run` exactly `warmup` times before its clock matters, and then once for each "
    "iteration.",
)
RANKS_DISAGREE = Mistake(
    "the ranks return different times",
    "Each rank returns what it measured itself. The job waits for its slowest rank, so all of them need "
    "the same answer: which collective gives every rank the maximum?",
)
FASTEST_RANK = Mistake(
    "the time of the fastest rank",
    "An operation is over when its last rank is through: combine the ranks with the maximum (ReduceOp.MAX).",
)
MEAN_OF_THE_RANKS = Mistake(
    "the mean over the ranks",
    "Three idle ranks do not make a slow one faster: combine the ranks with the maximum (ReduceOp.MAX).",
)
FIRST_RANK_ONLY = Mistake(
    "the time of one rank",
    "Whoever is first in the group need not be the slowest, and another may be in the next iteration. "
    "Combine all ranks with the maximum (ReduceOp.MAX).",
)
MEAN_OF_THE_ITERATIONS = Mistake(
    "the mean over iterations, not the median",
    "One call that something else disturbed moves a mean, and hardly a median. So read the clock around "
    "every single iteration: one reading around all of them, divided by their number, is a mean.",
)
MEDIAN_BEFORE_THE_RANKS_MEET = Mistake(
    "medians of ranks, not the median of the slowest",
    "In each iteration another rank may be the slowest one. Take the maximum over ranks of every "
    "iteration first, and the median of these after that.",
)
SLOWEST_ITERATION = Mistake(
    "the slowest iteration, not the median",
    "The maximum is for the ranks. Over iterations the median is asked for: the slowest of many says "
    "most about whatever disturbed it.",
)
FASTEST_ITERATION = Mistake(
    "the fastest iteration, not the median",
    "The best of many is a time that users of this operation rarely see. The median is asked for.",
)
SUM_OF_THE_ITERATIONS = Mistake(
    "the time of all iterations",
    "One `run()` is what is timed: take the median over iterations, not their sum.",
)
ONE_SAMPLE = Mistake(
    "a single iteration",
    "The answer is the time of one of the iterations. Keep the time of each, and take their median at "
    "the end.",
)
WARM_UP_TIMED = Mistake(
    "the warm-up is in the answer",
    "The first calls set up connections and buffers. Call `run` for them too, but keep their times out.",
)
NOT_IN_SECONDS = Mistake(
    "not in seconds",
    "The answer is in seconds, as `time.perf_counter()` counts. Convert where numbers are shown.",
)
NOT_SYNCHRONIZED = Mistake(
    "the time to launch, not the time to run",
    "On a GPU `run()` returns when the work is queued. Before the clock is read, wait until it is done: "
    "`torch.cuda.synchronize(device)`, if `device` is a GPU.",
)
UNFINISHED_BEFORE_THE_CLOCK = Mistake(
    "the clock starts while the GPU is still busy",
    "Calls of the warm-up are still under way when the first reading is taken. Synchronize before the "
    "clock starts, too.",
)
NO_BARRIER = Mistake(
    "no barrier before the clock",
    "A rank that comes early would time how long it waits for the others. Let the ranks meet in a "
    "barrier before each reading that starts an iteration.",
)
BARRIER_TIMED = Mistake(
    "a barrier on the clock",
    "A barrier takes time of its own. Between the two readings of the clock there is `run()` and, on a "
    "GPU, a synchronize, and nothing else: the barrier comes before the first reading.",
)
NOT_ON_THE_DEVICE = Mistake(
    "a tensor on the wrong device",
    "NCCL moves tensors of GPUs only. Make the tensor that the ranks combine on `device`.",
)
SECONDS = Mistake(
    "a wrong time",
    "Time one `run()` after the other with `time.perf_counter()`, take the maximum over ranks for each "
    "of them, and then the median.",
)

# formulas
ANOTHER_VALUE = Mistake(
    "a wrong number",
    "Put the smallest numbers that you can work out in your head into the formula, and compare.",
)
RECIPROCAL = Mistake(
    "the wrong way round",
    "The result is the reciprocal of what it should be: look at its unit.",
)
NOT_IN_BYTES_PER_SECOND = Mistake(
    "another unit",
    "Bytes in, bytes per second out. Convert where numbers are shown: GB are 10⁹ bytes, GiB are 2³⁰, "
    "which is 7 % more.",
)
ALGBW = Mistake(
    "algbw, not busbw",
    "This is S / t. Multiply by the share of S that has to leave each rank.",
)
N_MINUS_1_DROPPED = Mistake(
    "the factor lost its n − 1",
    "Each rank keeps one of n chunks, so n − 1 of them travel, twice: 2 (n − 1)/n.",
)
N_TIMES_TOO_LARGE = Mistake(
    "n times too large",
    "2 n S counts what all ranks send together. A link carries the share of one rank: divide by the "
    "number of links.",
)
PART_OF_ONE_RANK = Mistake(
    "the bytes of one rank's part",
    "S is the whole array: for a reduce-scatter one rank's input, for an all-gather its output, n times "
    "what a rank holds of it.",
)
TWICE = Mistake(
    "twice too large",
    "The 2 belongs to the all-reduce, which has two phases. It is not for sending and receiving: links "
    "carry bytes both ways at once.",
)
HALF = Mistake(
    "half of it",
    "How many phases does the operation have? In an all-reduce each chunk travels round the ring twice.",
)
UNKNOWN_ACCEPTED = Mistake(
    "an unknown operation gets a number",
    "A typo in a name must not look like a bandwidth: raise a ValueError for a name that is not in the "
    "table.",
)
DIVIDED = Mistake(
    "divided instead of multiplied",
    "The lecture counted too few bytes, so its figure is too low.",
)
FACTOR_OF_ALL_REDUCE = Mistake(
    "a factor that is there already",
    "The factor (n − 1)/n is in the reported figure already. What is wrong in it is S: how many bytes "
    "does a rank put in, and how many were counted?",
)
UNCORRECTED = Mistake(
    "the figure as reported",
    "Compare the bytes that were counted (the output) with S as nccl-tests defines it (the input).",
)
ROUNDS_NOT_ROUNDED = Mistake(
    "log₂ n is not a number of rounds",
    "A tree of 5 ranks takes 3 rounds, not 2.32: round up.",
)
BETA_AS_A_RATE = Mistake(
    "beta is taken for a rate",
    "Here beta is in seconds per byte: a message takes alpha + beta · S.",
)
LATENCY_LEFT_OUT = Mistake(
    "rounds and messages do not matter in it",
    "alpha / beta is the size at which one message's two terms are equal. Here two algorithms are "
    "compared: write down both times, set them equal and solve for S.",
)
WHOLE_MESSAGES = Mistake(
    "the ring sends whole tensors",
    "A message of the ring has S / n bytes.",
)
SWAPPED = Mistake(
    "beta first, then alpha",
    "Return (alpha, beta): seconds, and seconds per byte.",
)
A_RATE = Mistake(
    "a bandwidth in the place of beta",
    "beta is in seconds per byte: the reciprocal of the bandwidth.",
)
ABSOLUTE_ERRORS = Mistake(
    "alpha is lost in the noise of the largest times",
    "Least squares of absolute errors: one percent of the largest time is more than all of the "
    "smallest. Divide each equation alpha + beta · S = t by its t, and every size counts alike.",
)
TWO_POINTS = Mistake(
    "a line through two points",
    "Two points have the noise of two measurements in them. Let all points decide on both numbers: least "
    "squares, of relative errors.",
)
NO_FIT_OF_ALPHA = Mistake(
    "alpha is not fitted",
    "The smallest message has a beta · S in it, and some noise. Let all points decide on both numbers.",
)

PATTERNS: tuple[Pattern, ...] = (
    Pattern(
        lambda case: case.members is not None,
        "Only a group that is not the default one goes wrong: pass group= to the barrier and the collective.",
    ),
    Pattern(
        lambda case: case.plan.device == "cuda",
        "Only a GPU goes wrong.",
    ),
    Pattern(
        lambda case: case.plan.iterations == 1,
        "Only a single iteration goes wrong.",
    ),
    Pattern(
        lambda case: case.plan.warmup == 0,
        "Only warmup=0 goes wrong.",
    ),
)
