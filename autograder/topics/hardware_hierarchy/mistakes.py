"""Hints of exercise 01: formulas of time and traffic, a parser, a measurement."""

from __future__ import annotations

from autograder.kit.pattern import Pattern

BY_KIND = {
    "not a number": (
        "not a number",
        "Return a Python float. A tensor of one element becomes one by `.item()`; and is there a `return`?",
    ),
    "number": (
        "a wrong number",
        "Write the smallest failing case on paper, with units on every number, and compare line by line.",
    ),
    # matmul_intensity
    "multiply-add": (
        "half the operations",
        "Each of the m·n results sums k products: k multiplications *and* k additions.",
    ),
    "result not written": (
        "the result is not written",
        "Three matrices pass between memory and chip: two are read, and the result is written.",
    ),
    "result read": (
        "too much traffic",
        "Each matrix passes once: the two factors are read, the result is only written.",
    ),
    "element size": (
        "operations per element",
        "Elements are not bytes: how many bytes does each element take?",
    ),
    "upside down": (
        "upside down",
        "Intensity is operations per byte, not bytes per operation.",
    ),
    "rounded": (
        "rounded down",
        "`//` drops what is behind the point. Divide by `/`.",
    ),
    # attainable_flops
    "not capped": (
        "faster than the peak",
        "However intense the work is, the arithmetic units give no more than the peak.",
    ),
    "always the peak": (
        "the peak in every case",
        "Below the ridge the memory sets the pace: it delivers `bandwidth` bytes per second, and each "
        "feeds `intensity` operations.",
    ),
    "added": (
        "two limits added",
        "Memory and arithmetic work at the same time, and both limits hold: the lower one decides.",
    ),
    # transfer_seconds
    "as if pipelined": (
        "pipelined, without being asked",
        "Without pipelining every hop waits for the whole message from the hop before: all times add up.",
    ),
    "as if not pipelined": (
        "not pipelined",
        "Pipelined, all hops carry bytes at the same time. As in a row of pipes, the narrowest one sets the "
        "pace for all bytes; only the latencies still add up.",
    ),
    "no latency": (
        "no latency",
        "Each hop takes its latency before its first byte arrives, however few bytes there are.",
    ),
    "one latency": (
        "only one latency",
        "The first byte has to pass every hop, so the latencies of all hops add up, pipelined or not.",
    ),
    "slowest hop only": (
        "the slowest hop only",
        "The other hops are not free: the first byte has to pass them, too, and pays their latencies.",
    ),
    "bits": (
        "bits in place of bytes",
        "The bandwidths here are in bytes per second already: nothing is to be multiplied by 8.",
    ),
    "fastest hop": (
        "the pace of the fastest hop",
        "A chain is as fast as its slowest hop: look for the lowest bandwidth.",
    ),
    # parse_topology
    "entry missing": (
        "an entry is missing",
        "Every device of the head line has a column and a row, network cards too, and an entry with itself. "
        "Do you stop after the GPUs, look for tabs where a log has spaces, or trip over the terminal's code "
        "for underlining (`\\x1b[4m`) in front of the first name?",
    ),
    "entry wrong": (
        "a wrong entry",
        'Is every entry paired with the name above its own column? And mind the "NIC Legend" below the '
        "table, whose lines begin with names of devices, too.",
    ),
    "entry too many": (
        "an entry too many",
        "CPU Affinity, NUMA Affinity and GPU NUMA ID are no devices, and the legend is no row.",
    ),
    "not refused": (
        "no error for a text that is no listing",
        "Check what you found before you return it: is there a head line with devices, a row for each of "
        "them, an entry for each column, and is every entry one of the known ones?",
    ),
    "refused wrongly": (
        "an error of the wrong type",
        "A caller wants to catch one type, whatever is wrong with the text: raise a ValueError yourself "
        "instead of running into an IndexError, a KeyError or a StopIteration.",
    ),
    "refused silently": (
        "an error that says nothing",
        'Tell the reader what is wrong: `raise ValueError("there is no table of GPUs in it")`.',
    ),
    # measure_copy_bandwidth
    "no copy": (
        "no copy was seen",
        "Copy one tensor into another one that is there already: `destination.copy_(source)`, both of "
        "`num_bytes` elements of torch.uint8.",
    ),
    "copy size": (
        "copies of another size",
        "`num_bytes` are bytes, not elements: with dtype=torch.uint8 an element is a byte.",
    ),
    "few copies": (
        "too few copies",
        "One measurement says little, because anything may get in between. Repeat, and take the median.",
    ),
    "no clock": (
        "no clock was read",
        "Read time.perf_counter() before and after each copy.",
    ),
    "one direction": (
        "half the traffic",
        "A copy reads every byte and writes every byte: 2 · num_bytes pass.",
    ),
    "unit": (
        "another unit",
        "The answer is in bytes per second: no bits, no GB, no seconds.",
    ),
    "slow copies": (
        "slow copies are counted in",
        "The first copy into new memory is slow, and now and then another program gets in between. Allocate "
        "before the clock starts, warm up, time each copy by itself, and take the median, not the mean.",
    ),
    "not this machine": (
        "right by a fake clock, but not on this machine",
        "We copied as many bytes on the same rank before and after you, and were at least four times faster "
        "or slower. What happens between your two looks at the clock besides the copy?",
    ),
}

TRANSFER_PATTERNS: tuple[Pattern, ...] = (
    Pattern(
        lambda case: not case.hops,
        "Only a way without hops goes wrong: the data is there already, so it takes 0 seconds.",
    ),
    Pattern(lambda case: case.pipelined, "Only pipelined transfers go wrong."),
)
