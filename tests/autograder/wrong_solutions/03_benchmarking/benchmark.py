# ruff: noqa: F821
FAILS_AS = {
    "mean_instead_of_median": ("mean of the iterations", "moves a mean"),
    "one_measurement_divided": ("mean of the iterations", "around every single iteration"),
    "fastest_rank": ("fastest rank", "ReduceOp.MAX"),
    "mean_of_the_ranks": ("mean of the ranks", "ReduceOp.MAX"),
    "own_rank_only": ("ranks disagree", "every rank the maximum"),
    "rank_0_decides": ("first rank only", "need not be the slowest"),
    "no_barrier": ("no barrier", "Let the ranks meet"),
    "one_barrier_before_all": ("no barrier", "before each reading"),
    "barrier_behind_the_clock": ("barrier timed", "before the first reading"),
    "barrier_before_the_clock_stops": ("barrier timed", "nothing else"),
    "warm_up_timed": ("warm-up timed", "keep their times out"),
    "warm_up_left_out": ("calls of run", "exactly `warmup` times"),
    "warm_up_once": ("calls of run", "exactly `warmup` times"),
    "slowest_iteration": ("slowest iteration", "maximum is for the ranks"),
    "fastest_iteration": ("fastest iteration", "median is asked for"),
    "all_iterations_added": ("sum of the iterations", "not their sum"),
    "first_iteration_only": ("one sample", "Keep the time of each"),
    "median_before_the_ranks_meet": ("median before the ranks meet", "maximum over ranks of every iteration"),
    "never_synchronizes": ("not synchronized", "until it is done"),
    "synchronizes_only_afterwards": ("unfinished before the clock", "before the clock starts, too"),
    "synchronizes_without_a_gpu": ("raised", "line that the message names"),
    "combines_on_the_cpu": ("not on the device", "on `device`"),
    "in_milliseconds": ("not in seconds", "The answer is in seconds"),
    "ignores_the_group": ("deadlock", "pass group="),
    "answers_on_rank_0_only": ("wrong type", "what the function returns"),
    "answers_with_a_tensor": ("wrong type", "what the function returns"),
    "counts_processor_time": ("seconds", "time.perf_counter()"),
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
