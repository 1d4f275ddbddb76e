# ruff: noqa: F821
from time import perf_counter as clock

FAILS_AS = {
    "counts_one_direction": ("ONE_DIRECTION", "writes every byte"),
    "answers_in_gigabytes": ("UNIT", "no GB"),
    "answers_in_bits": ("UNIT", "no bits"),
    "answers_in_seconds": ("UNIT", "no seconds"),
    "answers_in_seconds_per_byte": ("UNIT", "no seconds"),
    "takes_the_mean": ("SLOW_COPIES", "not the mean"),
    "takes_the_fastest": ("FASTEST_COPY", "not their minimum"),
    "takes_the_third": ("SLOW_COPIES or FASTEST_COPY", "median"),
    "takes_the_last": ("SLOW_COPIES or FASTEST_COPY", "median"),
    "measures_once": ("FEW_COPIES", "take the median"),
    "times_all_copies_together": ("SLOW_COPIES", "each copy separately"),
    "allocates_every_time": ("SLOW_COPIES", "Allocate before"),
    "takes_the_first_three": ("FEW_COPIES or SLOW_COPIES", "median"),
    "copies_elements_of_four_bytes": ("COPY_SIZE", "not elements"),
    "loses_a_remainder": ("COPY_SIZE", "not elements"),
    "clones": ("NO_COPY", "copy_(source)"),
    "clones_after_one_copy": ("FEW_COPIES", "`clone`"),
    "copies_bytes_of_python": ("NO_COPY or RAISED", "a"),
    "copies_onto_itself": ("NO_COPY", "another existing one"),
    "knows_the_answer": ("NO_COPY", "copy_(source)"),
    "never_looks_at_the_clock": ("NO_CLOCK", "perf_counter"),
    "returns_a_tensor": ("NOT_A_NUMBER", ".item()"),
    "rounds_too_much": ("NUMBER or SLOW_COPIES or UNIT", "a"),
    "sleeps_on_the_real_machine": ("NOT_THIS_MACHINE", "besides the copy"),
}


def buffers(num_bytes):
    source = torch.ones(num_bytes, dtype=torch.uint8)
    return source, torch.zeros_like(source)


def durations(source, destination, repeats=9):
    destination.copy_(source)
    times = []
    for _ in range(repeats):
        start = clock()
        destination.copy_(source)
        times.append(clock() - start)
    return times


def right(num_bytes):
    return 2 * num_bytes / statistics.median(durations(*buffers(num_bytes)))


def counts_one_direction(num_bytes):
    return right(num_bytes) / 2


def answers_in_gigabytes(num_bytes):
    return right(num_bytes) / 1e9


def answers_in_bits(num_bytes):
    return 8 * right(num_bytes)


def answers_in_seconds(num_bytes):
    return statistics.median(durations(*buffers(num_bytes)))


def answers_in_seconds_per_byte(num_bytes):
    return 1 / right(num_bytes)


def takes_the_mean(num_bytes):
    return 2 * num_bytes / statistics.mean(durations(*buffers(num_bytes)))


def takes_the_fastest(num_bytes):
    return 2 * num_bytes / min(durations(*buffers(num_bytes)))


def takes_the_third(num_bytes):
    return 2 * num_bytes / durations(*buffers(num_bytes))[2]


def takes_the_last(num_bytes):
    return 2 * num_bytes / durations(*buffers(num_bytes), repeats=5)[-1]


def measures_once(num_bytes):
    source, destination = buffers(num_bytes)
    destination.copy_(source)
    start = clock()
    destination.copy_(source)
    return 2 * num_bytes / (clock() - start)


def times_all_copies_together(num_bytes):
    source, destination = buffers(num_bytes)
    destination.copy_(source)
    start = clock()
    for _ in range(20):
        destination.copy_(source)
    return 20 * 2 * num_bytes / (clock() - start)


def allocates_every_time(num_bytes):
    source, _ = buffers(num_bytes)
    times = []
    for _ in range(9):
        start = clock()
        destination = torch.empty_like(source)
        destination.copy_(source)
        times.append(clock() - start)
    return 2 * num_bytes / statistics.median(times)


def takes_the_first_three(num_bytes):
    source, destination = buffers(num_bytes)
    return 2 * num_bytes / statistics.mean(durations(source, destination, repeats=3))


def copies_elements_of_four_bytes(num_bytes):
    source = torch.ones(num_bytes)
    return 2 * num_bytes / statistics.median(durations(source, torch.zeros_like(source)))


def loses_a_remainder(num_bytes):
    source = torch.ones(num_bytes // 4)
    return 2 * num_bytes / statistics.median(durations(source, torch.zeros_like(source)))


def clones_after_one_copy(num_bytes):
    source, destination = buffers(num_bytes)
    destination.copy_(source)
    return clones(num_bytes)


def clones(num_bytes):
    source, _ = buffers(num_bytes)
    times = []
    for _ in range(9):
        start = clock()
        source.clone()
        times.append(clock() - start)
    return 2 * num_bytes / statistics.median(times)


def copies_bytes_of_python(num_bytes):
    source, destination = bytearray(num_bytes), bytearray(num_bytes)
    times = []
    for _ in range(9):
        start = clock()
        destination[:] = source
        times.append(clock() - start)
    return 2 * num_bytes / statistics.median(times)


def copies_onto_itself(num_bytes):
    source, _ = buffers(num_bytes)
    return 2 * num_bytes / max(1e-9, statistics.median(durations(source, source)))


def knows_the_answer(num_bytes):
    return 2e10


def never_looks_at_the_clock(num_bytes):
    source, destination = buffers(num_bytes)
    for _ in range(9):
        destination.copy_(source)
    return 2e10


def returns_a_tensor(num_bytes):
    return 2 * num_bytes / torch.tensor(durations(*buffers(num_bytes))).median()


def rounds_too_much(num_bytes):
    return float(2 * num_bytes / max(0.001, round(statistics.median(durations(*buffers(num_bytes))), 3)))


def sleeps_on_the_real_machine(num_bytes):
    times = []
    source, destination = buffers(num_bytes)
    destination.copy_(source)
    for _ in range(5):
        start = clock()
        destination.copy_(source)
        time.sleep(0.25 + 3 * (clock() - start))
        times.append(clock() - start)
    return 2 * num_bytes / statistics.median(times)
