"""Hints of exercise 03: mistakes of benchmarks, and the formulas of bandwidths."""

from __future__ import annotations

from typing import Any

from autograder.kit.mistakes import mistake
from autograder.kit.pattern import Pattern, smaller_group

# benchmark
CALLS_OF_RUN = mistake("""run is called too often or not often enough
    Every rank calls `run` exactly `warmup` times before its clock matters, and then once for each
    iteration.""")
RANKS_DISAGREE = mistake("""the ranks return different times
    Each rank returns its own measurement. The job waits for its slowest rank, so all of them need the
    same answer: which collective gives every rank the maximum?""")
FASTEST_RANK = mistake("""the time of the fastest rank
    An operation is over when its last rank has finished: combine the ranks with the maximum
    (ReduceOp.MAX).""")
MEAN_OF_THE_RANKS = mistake("""the mean over the ranks
    Three idle ranks do not make a slow one faster: combine the ranks with the maximum (ReduceOp.MAX).""")
SUM_OF_THE_RANKS = mistake("""the sum over the ranks
    An all-reduce adds by default. Combine the ranks with the maximum (ReduceOp.MAX).""")
FIRST_RANK_ONLY = mistake("""the time of one rank
    The first rank of the group need not be the slowest, and in each iteration a different rank may be.
    Combine all ranks with the maximum (ReduceOp.MAX).""")
MEAN_OF_THE_ITERATIONS = mistake("""the mean over iterations, not the median
    One disturbed call changes a mean a lot, but hardly changes a median. So read the clock around every
    single iteration: one reading around all of them, divided by their number, is a mean.""")
MEDIAN_BEFORE_THE_RANKS_MEET = mistake("""medians of ranks, not the median of the slowest
    In each iteration a different rank may be the slowest. Take the maximum over ranks of every iteration
    first, and the median of these after that.""")
SLOWEST_ITERATION = mistake("""the slowest iteration, not the median
    The maximum is for the ranks. Over iterations take the median: the slowest of many iterations mostly
    shows a disturbance.""")
FASTEST_ITERATION = mistake("""the fastest iteration, not the median
    The fastest of many is a time that users of this operation rarely see. Take the median.""")
SUM_OF_THE_ITERATIONS = mistake("""the time of all iterations
    Return the time of one `run()`: take the median over iterations, not their sum.""")
ONE_SAMPLE = mistake("""a single iteration
    The answer is the time of one of the iterations. Keep the time of each, and take their median at the
    end.""")
WARM_UP_TIMED = mistake("""the warm-up is in the answer
    The first calls open connections and allocate buffers. Make these calls, but leave their times out.""")
NOT_IN_SECONDS = mistake("""not in seconds
    The answer is in seconds, as `time.perf_counter()` counts. Convert units only for display.""")
NOT_SYNCHRONIZED = mistake("""the time to launch, not the time to run
    On a GPU `run()` returns when the work is queued. Before the clock is read, wait until it is done:
    `torch.cuda.synchronize(device)`, if `device` is a GPU.""")
UNFINISHED_BEFORE_THE_CLOCK = mistake("""the clock starts while the GPU is still busy
    Calls of the warm-up are still under way when the first reading is taken. Synchronize before the clock
    starts, too.""")
NO_BARRIER = mistake("""no barrier before the clock
    A rank that arrives early would time how long it waits for the others. Call a barrier before each
    reading that starts an iteration.""")
BARRIER_TIMED = mistake("""a barrier on the clock
    A barrier takes time of its own. Between the two readings of the clock there is `run()` and, on a GPU,
    a synchronize, and nothing else: the barrier comes before the first reading.""")
NOT_ON_THE_DEVICE = mistake("""a tensor on the wrong device
    NCCL works only on GPU tensors. Make the tensor that the ranks combine on `device`.""")
LOST_DIGITS = mistake("""a time that has lost digits
    Nearly right: a float32 tensor keeps seven digits, too few for a reading of the clock, which counts from
    an arbitrary moment. Subtract the two readings as Python floats before you make a tensor.""")
SECONDS = mistake("""a wrong time
    Time one `run()` after another with `time.perf_counter()`, take the maximum over ranks for each of
    them, and then the median.""")

# formulas
ANOTHER_VALUE = mistake("""a wrong number
    Put numbers into the formula that are so small that you can compute the result in your head, and
    compare.""")
RECIPROCAL = mistake("""the wrong way round
    The result is the reciprocal of what it should be: look at its unit.""")
NOT_IN_BYTES_PER_SECOND = mistake("""the wrong unit
    Bytes in, bytes per second out. Convert units only for display: GB are 10⁹ bytes, GiB are 2³⁰, which
    is 7 % more.""")
ALGBW = mistake("""algbw, not busbw
    This is S / t. Multiply by the share of S that each rank has to send.""")
N_MINUS_1_DROPPED = mistake("""the factor lost its N − 1
    Each rank keeps one of N chunks, so it sends N − 1 of them, twice: 2 (N − 1)/N.""")
N_TIMES_TOO_LARGE = mistake("""N times too large
    2 N S counts what all ranks send together. A link carries the share of one rank: divide by the number
    of links.""")
PART_OF_ONE_RANK = mistake("""the bytes of one rank's part
    S is the whole array: for a reduce-scatter one rank's input, for an all-gather one rank's output, N
    times a rank's own part.""")
TWICE = mistake("""twice too large
    The 2 belongs to the all-reduce, which has two phases. It does not stand for sending and receiving:
    links carry bytes in both directions simultaneously.""")
HALF = mistake("""half of it
    How many phases does the operation have? In an all-reduce each chunk travels round the ring twice.""")
ALL_OF_S_IS_SENT = mistake("""the factor of another operation
    (N − 1)/N is for operations in which a rank keeps one of the N chunks of S. Here it has to send all of
    S: in the middle of a broadcast's chain it passes everything on, and the S of the hypercube leaves its
    own part out already.""")
UNKNOWN_ACCEPTED = mistake("""no ValueError for an unknown operation
    A typo in a name must not look like a bandwidth: raise a ValueError for a name that is not in the
    table.""")
DIVIDED = mistake("""divided instead of multiplied
    The lecture counted too few bytes, so its figure is too low.""")
FACTOR_OF_ALL_REDUCE = mistake("""a factor that is there already
    The reported figure already contains the factor (N − 1)/N. Its S is wrong: how many bytes does a
    rank's input have, and how many were counted?""")
UNCORRECTED = mistake("""the figure as reported
    Compare the bytes that were counted (the output) with S as nccl-tests defines it (the input).""")
ROUNDS_NOT_ROUNDED = mistake("""log₂ N is not a number of rounds
    A tree of 5 ranks takes 3 rounds, not 2.32, nor 2: round up.""")
PIPELINED_TREE = mistake("""a tree that sends pieces
    This is NCCL's tree, whose pieces cost 2 beta S. Here each of its messages has S bytes.""")
BETA_AS_A_RATE = mistake("""beta is taken for a rate
    Here beta is in seconds per byte: a message takes alpha + beta · S.""")
LATENCY_LEFT_OUT = mistake("""rounds and messages do not matter in it
    alpha / beta is the size at which one message's two terms are equal. Here two algorithms are compared:
    write down both times, set them equal and solve for S.""")
WHOLE_MESSAGES = mistake("""the ring sends whole tensors
    A message of the ring has S / N bytes.""")
SWAPPED = mistake("""beta first, then alpha
    Return (alpha, beta): seconds, and seconds per byte.""")
A_RATE = mistake("""a bandwidth in the place of beta
    beta is in seconds per byte: the reciprocal of the bandwidth.""")
ABSOLUTE_ERRORS = mistake("""alpha is lost in the noise of the largest times
    Least squares of absolute errors: one percent of the largest time is more than all of the smallest
    times. Divide each equation alpha + beta · S = t by its t, so that every size counts the same.""")
TWO_POINTS = mistake("""a line through two points
    Two points have the noise of two measurements in them. Let all points decide on both numbers: least
    squares, of relative errors.""")
NO_FIT_OF_ALPHA = mistake("""alpha is not fitted
    The smallest message has a beta · S in it, and some noise. Let all points decide on both numbers.""")
ANOTHER_FIT = mistake("""another alpha and beta
    Try it on two exact times: both have to lie on the line. And torch.tensor makes float32 of Python's
    numbers, whose seven digits are too few here: say dtype=torch.float64.""")

# audit
ANOTHER_NUMBER_OF_VERDICTS = mistake("""not one verdict for each line
    Return a list with one verdict for each line of the log, in their order. An empty log has none.""")
RIGHT_ACCUSED = mistake("""a line that is right is accused
    A log shows three digits, so a figure is right that is within one percent of busbw. And two formulas
    may give the same figure, as for a broadcast: then the first verdict of the table applies.""")
TOO_SHORT_BELIEVED = mistake("""a time that is too short is believed
    Compute busbw from the line's own bytes and seconds, and ignore the reported figure. If it exceeds the
    bandwidth of the link, the clock was stopped before the work was done. No formula can repair that.""")
ALGBW_NOT_FOUND = mistake("""an algbw is not found
    The figure is S / t. Compare the reported figure with that.""")
GIB_NOT_FOUND = mistake("""a figure in GiB is not found
    The figure was divided by 1024³ and called GB: it is 7 % too low. Three digits are enough to see that.""")
PART_NOT_FOUND = mistake("""the bytes of a part are not found
    The figure counts the bytes of one rank's part, S / N, in place of S, with the right factor.""")
BOTH_DIRECTIONS_NOT_FOUND = mistake("""both directions are not found
    The figure adds the bytes that a rank receives to those that it sends: twice busbw.""")
SUM_NOT_FOUND = mistake("""a sum over ranks is not found
    The figure adds up the bytes that all ranks send: N times busbw.""")
EXPLAINED_WRONGLY = mistake("""a line that nothing explains gets an explanation
    A formula explains a figure only if its result is within one percent of it, and "part" is for three
    collectives only. Otherwise return "unexplained".""")
LONG_ENOUGH_ACCUSED = mistake("""a time that is long enough is called too short
    "not finished" is for lines whose correct busbw exceeds the link. The reported figure and S / t may exceed
    it without that: do not compare these with the link.""")
OF_VERDICTS = {  # the mistake when a line that deserves one gets another
    "right": RIGHT_ACCUSED,
    "not finished": TOO_SHORT_BELIEVED,
    "algbw": ALGBW_NOT_FOUND,
    "GiB": GIB_NOT_FOUND,
    "part": PART_NOT_FOUND,
    "both directions": BOTH_DIRECTIONS_NOT_FOUND,
    "all ranks": SUM_NOT_FOUND,
    "unexplained": EXPLAINED_WRONGLY,
}

# measure_cluster
TOO_MANY_MESSAGES = mistake("""right, but too many messages
    Every message costs time on a real cluster. To find the nodes, small ones are enough, and a rank need be
    compared with one rank of each node that you know. To fit a link, measure one pair of each kind.""")
NOT_MEASURED = mistake("""an answer without measurements
    Only messages tell which ranks share a node, and what a link takes: call send, with every rank.""")
OTHER_NODES = mistake("""ranks on other nodes
    Two ranks share a node if small messages between them are as fast as the fastest that you find. Ignore
    the first message, and take a median of at least five: some take several times as long.""")
LINKS_SWAPPED = mistake("""inside and across are swapped
    Return (nodes, inside, across), with the links inside a node first.""")
LINK_TOO_SLOW = mistake("""a link that is slower than it is
    The first message from one rank to another also opens their connection, and some others are disturbed.
    Send one before you measure, and take medians.""")
OTHER_LINK = mistake("""wrong numbers for a link
    Use sizes from a few bytes to many megabytes, each measured several times, and fit relative errors:
    with absolute ones, the largest size decides alone.""")

PATTERNS: tuple[Pattern[Any], ...] = (
    smaller_group("the barrier and the collective."),
    Pattern(lambda case: case.plan.device == "cuda", "Only a GPU goes wrong."),
    Pattern(lambda case: case.plan.iterations == 1, "Only a single iteration goes wrong."),
    Pattern(lambda case: case.plan.warmup == 0, "Only warmup=0 goes wrong."),
)
