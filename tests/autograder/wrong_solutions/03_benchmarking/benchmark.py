# ruff: noqa: F821
FAILS_AS = {
    "mean_instead_of_median": ("MEAN_OF_THE_ITERATIONS", "changes a mean"),
    "one_measurement_divided": ("MEAN_OF_THE_ITERATIONS", "around every single iteration"),
    "fastest_rank": ("FASTEST_RANK", "ReduceOp.MAX"),
    "mean_of_the_ranks": ("MEAN_OF_THE_RANKS", "ReduceOp.MAX"),
    "sum_of_the_ranks": ("SUM_OF_THE_RANKS", "adds by default"),
    "own_rank_only": ("RANKS_DISAGREE", "every rank the maximum"),
    "rank_0_decides": ("FIRST_RANK_ONLY", "need not be the slowest"),
    "no_barrier": ("NO_BARRIER", "Call a barrier"),
    "one_barrier_before_all": ("NO_BARRIER", "before each reading"),
    "barrier_behind_the_clock": ("BARRIER_TIMED", "before the first reading"),
    "barrier_before_the_clock_stops": ("BARRIER_TIMED", "nothing else"),
    "forgets_to_wait": ("NO_WAIT", "Keep every handle"),
    "forgets_to_wait_for_the_barrier": ("NO_WAIT", "Keep every handle"),
    "warm_up_timed": ("WARM_UP_TIMED", "leave their times out"),
    "warm_up_left_out": ("CALLS_OF_RUN", "exactly `warmup` times"),
    "warm_up_once": ("CALLS_OF_RUN", "exactly `warmup` times"),
    "slowest_iteration": ("SLOWEST_ITERATION", "maximum is for the ranks"),
    "fastest_iteration": ("FASTEST_ITERATION", "Take the median"),
    "all_iterations_added": ("SUM_OF_THE_ITERATIONS", "not their sum"),
    "first_iteration_only": ("ONE_SAMPLE", "Keep the time of each"),
    "median_before_the_ranks_meet": ("MEDIAN_BEFORE_THE_RANKS_MEET", "maximum over ranks of every iteration"),
    "never_synchronizes": ("NOT_SYNCHRONIZED", "until it is done"),
    "synchronizes_only_afterwards": ("UNFINISHED_BEFORE_THE_CLOCK", "before the clock starts, too"),
    "synchronizes_without_a_gpu": ("RAISED", "line that the message names"),
    "combines_on_the_cpu": ("NOT_ON_THE_DEVICE", "on `device`"),
    "in_milliseconds": ("NOT_IN_SECONDS", "The answer is in seconds"),
    "keeps_readings_in_float32": ("LOST_DIGITS", "Subtract the two readings"),
    "ignores_the_group": ("DEADLOCK", "pass group="),
    "answers_on_rank_0_only": ("NOT_A_NUMBER", "float"),
    "answers_with_a_tensor": ("NOT_A_NUMBER", "float"),
    "counts_processor_time": ("SECONDS", "time.perf_counter()"),
}


def mean_instead_of_median(run, *, warmup, iterations, device, group=None):
    return statistics.mean(times(run, warmup, iterations, device, group))


def one_measurement_divided(run, *, warmup, iterations, device, group=None):
    def all_of_them():
        for _ in range(iterations):
            run()

    warm(run, warmup)
    return slowest([timed(all_of_them, device, group) / iterations], device, group)[0]


def fastest_rank(run, *, warmup, iterations, device, group=None):
    warm(run, warmup)
    seconds = [timed(run, device, group) for _ in range(iterations)]
    return middle(slowest(seconds, device, group, dist.ReduceOp.MIN))


def mean_of_the_ranks(run, *, warmup, iterations, device, group=None):
    warm(run, warmup)
    seconds = [timed(run, device, group) for _ in range(iterations)]
    return middle(slowest(seconds, device, group, dist.ReduceOp.AVG))


def sum_of_the_ranks(run, *, warmup, iterations, device, group=None):
    warm(run, warmup)
    seconds = [timed(run, device, group) for _ in range(iterations)]
    return middle(slowest(seconds, device, group, dist.ReduceOp.SUM))


def own_rank_only(run, *, warmup, iterations, device, group=None):
    warm(run, warmup)
    return middle([timed(run, device, group) for _ in range(iterations)])


def rank_0_decides(run, *, warmup, iterations, device, group=None):
    warm(run, warmup)
    seconds = torch.tensor([timed(run, device, group) for _ in range(iterations)], device=device)
    dist.broadcast(seconds, group_src=0, group=group)
    return middle(seconds.tolist())


def without_meeting(run, device):
    synchronize(device)
    start = time.perf_counter()
    run()
    synchronize(device)
    return time.perf_counter() - start


def no_barrier(run, *, warmup, iterations, device, group=None):
    warm(run, warmup)
    return middle(slowest([without_meeting(run, device) for _ in range(iterations)], device, group))


def one_barrier_before_all(run, *, warmup, iterations, device, group=None):
    warm(run, warmup)
    dist.barrier(group)
    return middle(slowest([without_meeting(run, device) for _ in range(iterations)], device, group))


def barrier_behind_the_clock(run, *, warmup, iterations, device, group=None):
    warm(run, warmup)
    seconds = []
    for _ in range(iterations):
        synchronize(device)
        start = time.perf_counter()
        dist.barrier(group)
        run()
        synchronize(device)
        seconds.append(time.perf_counter() - start)
    return middle(slowest(seconds, device, group))


def barrier_before_the_clock_stops(run, *, warmup, iterations, device, group=None):
    def together():
        run()
        synchronize(device)
        dist.barrier(group)

    warm(run, warmup)
    return middle(slowest([timed(together, device, group) for _ in range(iterations)], device, group))


def forgets_to_wait(run, *, warmup, iterations, device, group=None):
    warm(run, warmup)
    seconds = torch.tensor([timed(run, device, group) for _ in range(iterations)], device=device)
    dist.all_reduce(seconds, dist.ReduceOp.MAX, group=group, async_op=True)
    return middle(seconds.tolist())


def forgets_to_wait_for_the_barrier(run, *, warmup, iterations, device, group=None):
    warm(run, warmup)
    seconds = []
    for _ in range(iterations):
        dist.barrier(group, async_op=True)
        seconds.append(without_meeting(run, device))
    return middle(slowest(seconds, device, group))


def warm_up_timed(run, *, warmup, iterations, device, group=None):
    return middle(times(run, 0, warmup + iterations, device, group))


def warm_up_left_out(run, *, warmup, iterations, device, group=None):
    return middle(times(run, 0, iterations, device, group))


def warm_up_once(run, *, warmup, iterations, device, group=None):
    return middle(times(run, 1, iterations, device, group))


def slowest_iteration(run, *, warmup, iterations, device, group=None):
    return max(times(run, warmup, iterations, device, group))


def fastest_iteration(run, *, warmup, iterations, device, group=None):
    return min(times(run, warmup, iterations, device, group))


def all_iterations_added(run, *, warmup, iterations, device, group=None):
    return sum(times(run, warmup, iterations, device, group))


def first_iteration_only(run, *, warmup, iterations, device, group=None):
    return times(run, warmup, iterations, device, group)[0]


def median_before_the_ranks_meet(run, *, warmup, iterations, device, group=None):
    warm(run, warmup)
    return slowest([middle([timed(run, device, group) for _ in range(iterations)])], device, group)[0]


def on_any_device(run, warmup, iterations, device, group, before, after):
    warm(run, warmup)
    seconds = []
    for _ in range(iterations):
        before(device)
        dist.barrier(group)
        start = time.perf_counter()
        run()
        after(device)
        seconds.append(time.perf_counter() - start)
    return middle(slowest(seconds, device, group))


def nothing(device):
    pass


def never_synchronizes(run, *, warmup, iterations, device, group=None):
    return on_any_device(run, warmup, iterations, device, group, nothing, nothing)


def synchronizes_only_afterwards(run, *, warmup, iterations, device, group=None):
    return on_any_device(run, warmup, iterations, device, group, nothing, synchronize)


def synchronizes_without_a_gpu(run, *, warmup, iterations, device, group=None):
    return on_any_device(
        run, warmup, iterations, device, group, torch.cuda.synchronize, torch.cuda.synchronize
    )


def combines_on_the_cpu(run, *, warmup, iterations, device, group=None):
    warm(run, warmup)
    seconds = [timed(run, device, group) for _ in range(iterations)]
    return middle(slowest(seconds, torch.device("cpu"), group))


def in_milliseconds(run, *, warmup, iterations, device, group=None):
    return 1000 * middle(times(run, warmup, iterations, device, group))


def ignores_the_group(run, *, warmup, iterations, device, group=None):
    return middle(times(run, warmup, iterations, device))


def answers_on_rank_0_only(run, *, warmup, iterations, device, group=None):
    seconds = times(run, warmup, iterations, device, group)
    return middle(seconds) if dist.get_rank() == 0 else None


def answers_with_a_tensor(run, *, warmup, iterations, device, group=None):
    return torch.tensor(times(run, warmup, iterations, device, group)).median()


def counts_processor_time(run, *, warmup, iterations, device, group=None):
    def one():
        synchronize(device)
        dist.barrier(group)
        start = time.process_time()
        run()
        synchronize(device)
        return time.process_time() - start

    warm(run, warmup)
    return middle(slowest([one() for _ in range(iterations)], device, group))


def keeps_readings_in_float32(run, *, warmup, iterations, device, group=None):
    warm(run, warmup)
    readings = torch.zeros(2, iterations, device=device)
    for iteration in range(iterations):
        synchronize(device)
        dist.barrier(group)
        readings[0, iteration] = time.perf_counter()
        run()
        synchronize(device)
        readings[1, iteration] = time.perf_counter()
    return middle(slowest((readings[1] - readings[0]).tolist(), device, group))
