"""Hints of exercise 01: formulas of time and traffic, a parser, a measurement."""

from __future__ import annotations

from typing import Any

from autograder.kit.mistakes import mistake, patterned
from autograder.kit.pattern import Pattern

NUMBER = patterned("""a wrong number
    Write the smallest failing case on paper, with units on every number, and compare line by line.""")
LOST_DIGITS = mistake("""a number that has lost digits
    All but the last digits are right. Compute with Python floats, which have 16 digits: a float32 tensor has
    7, and `.item()` does not bring the others back.""")

# matmul_intensity
MULTIPLY_ADD = mistake("""half the operations
    Each of the m·n results sums k products: k multiplications *and* k additions.""")
RESULT_NOT_WRITTEN = mistake("""the result is not written
    Three matrices pass between memory and chip: two are read, and the result is written.""")
RESULT_READ = mistake("""too much traffic
    Each matrix passes once: the two factors are read, the result is only written.""")
ELEMENT_SIZE = mistake("""operations per element
    Elements are not bytes: how many bytes does each element take?""")
UPSIDE_DOWN = mistake("""upside down
    Intensity is operations per byte, not bytes per operation.""")
ROUNDED = mistake("""rounded down
    `//` and `int()` drop the fraction. Divide with `/`, and return all of the result.""")

# attainable_flops
NOT_CAPPED = mistake("""faster than the peak
    The arithmetic units cannot exceed their peak, even at high intensity.""")
ALWAYS_THE_PEAK = mistake("""the peak in every case
    Below the ridge the memory sets the pace: it delivers `bandwidth` bytes per second, and each feeds
    `intensity` operations.""")
ADDED = mistake("""two limits added
    Memory and arithmetic work at the same time, and both limits hold: the lower one decides.""")

# transfer_seconds
AS_IF_PIPELINED = mistake("""pipelined, without being asked
    Without pipelining every hop waits for the whole message from the hop before: all times add up.""")
AS_IF_NOT_PIPELINED = mistake("""not pipelined
    Pipelined, all hops carry bytes at the same time. As in a row of pipes, the narrowest one sets the
    pace for all bytes; only the latencies still add up.""")
NO_LATENCY = mistake("""no latency
    Each hop takes its latency before its first byte arrives, even if there are few bytes.""")
ONE_LATENCY = mistake("""only one latency
    The first byte has to pass every hop, so the latencies of all hops add up, pipelined or not.""")
SLOWEST_HOP_ONLY = mistake("""the slowest hop only
    The other hops are not free: the first byte has to pass them, too, and pays their latencies.""")
BITS = mistake("""bits in place of bytes
    The bandwidths here are already in bytes per second: do not multiply by 8.""")
FASTEST_HOP = mistake("""the pace of the fastest hop
    A chain is as fast as its slowest hop: look for the lowest bandwidth.""")

# parse_topology
ENTRY_MISSING = mistake("""an entry is missing
    Every device of the header line has a column and a row, network cards too, and an entry with itself.
    Do you stop after the GPUs, expect tabs where a log has spaces, or fail on the terminal's code for
    underlining (`\\x1b[4m`) in front of the first name?""")
ENTRY_WRONG = mistake("""a wrong entry
    Is every entry copied as it stands, and paired with the name above its own column? And note the "NIC
    Legend" below the table: its lines also begin with names of devices.""")
NO_PAIRS = mistake("""keys that are not pairs of names
    The dictionary has one level: each key is a tuple of two names, row and column, as in
    `entries[row, column] = "NV18"`.""")
ENTRY_TOO_MANY = mistake("""an entry too many
    CPU Affinity, NUMA Affinity and GPU NUMA ID are not devices, and the legend is not a row.""")
NOT_REFUSED = mistake("""no error for a text that is not a listing
    Check the result before you return it: is there a header line with devices, a row for each of them, an
    entry for each column, and is every entry one of the known ones?""")
REFUSED_WRONGLY = mistake("""an error of the wrong type
    A caller expects one type of error for every invalid text: raise a ValueError yourself, instead of
    letting an IndexError, a KeyError or a StopIteration occur.""")
REFUSED_SILENTLY = mistake("""an error that says nothing
    Tell the reader what is wrong: `raise ValueError("there is no table of GPUs in it")`.""")

# measure_copy_bandwidth
NO_COPY = mistake("""no copy was seen
    Copy one tensor into another existing one: `destination.copy_(source)`, both of `num_bytes` elements
    of torch.uint8.""")
COPY_SIZE = mistake("""copies of the wrong size
    `num_bytes` are bytes, not elements: with dtype=torch.uint8 an element is a byte.""")
FEW_COPIES = mistake("""too few copies
    A single measurement may be disturbed. Repeat it, and take the median. Only `destination.copy_(source)`
    counts: `clone` and the like allocate new memory each time.""")
NO_CLOCK = mistake("""no clock was read
    Read time.perf_counter() before and after each copy.""")
ONE_DIRECTION = mistake("""half the traffic
    A copy reads every byte and writes every byte: 2 · num_bytes pass.""")
UNIT = mistake("""the wrong unit
    The answer is in bytes per second: no bits, no GB, no seconds.""")
SLOW_COPIES = mistake("""slow copies are counted in
    The first copy into new memory is slow, and now and then another program interferes. Allocate before
    the clock starts, warm up, time each copy separately, and take the median, not the mean.""")
FASTEST_COPY = mistake("""the fastest copy, not the median
    A copy that finds its bytes in a cache is faster than the memory. Take the median of the durations, not
    their minimum.""")
NOT_THIS_MACHINE = mistake("""right by a fake clock, but not on this machine
    The check copied the same number of bytes on the same rank before and after your function, and was at
    least four times faster or slower. What happens between your two readings of the clock besides the
    copy?""")

TRANSFER_PATTERNS: tuple[Pattern[Any], ...] = (
    Pattern(
        lambda case: not case.hops,
        "Only a way without hops goes wrong: the data is there already, so it takes 0 seconds.",
    ),
    Pattern(lambda case: case.pipelined, "Only pipelined transfers go wrong."),
)
