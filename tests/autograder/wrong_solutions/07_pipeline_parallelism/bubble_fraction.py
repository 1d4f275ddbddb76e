# ruff: noqa: F821
FAILS_AS = {
    "relative_to_the_computation": ("SHARE_OF_THE_COMPUTATION", "computing and waiting together"),
    "share_that_is_busy": ("SHARE_OF_TIME_THAT_IS_BUSY", "1 minus"),
    "seconds": ("BUBBLE_IN_SECONDS", "Divide by the time of all ranks"),
    "percent": ("BUBBLE_IN_PERCENT", "between 0 and 1"),
    "formula": ("FORMULA_NOT_SIMULATION", "step by step"),
    "ignores_the_times": ("DEFAULT_TIMES", "only the defaults"),
    "all_steps_take_a_second": ("ALL_STEPS_ALIKE", "`forward` seconds"),
    "until_each_rank_is_done": ("WRONG_BUBBLE", "the last step of any rank"),
    "until_the_first_rank_is_done": ("WRONG_BUBBLE", "the last step of any rank"),
    "needs_nothing_of_others": ("WRONG_BUBBLE", "the step that it needs is done"),
    "backward_needs_only_the_forward": ("WRONG_BUBBLE", "the step that it needs is done"),
    "leaves_out_what_is_stuck": ("ENDLESS_WAIT_UNNOTICED", "raise a ValueError"),
    "says_no": ("ENDLESS_WAIT_UNNAMED", "cannot begin"),
    "names_a_rank": ("ENDLESS_WAIT_UNNAMED", "cannot begin"),
    "names_a_step_that_is_done": ("ENDLESS_WAIT_UNNAMED", "cannot begin"),
    "keeps_clocks_in_float32": ("ROUNDED_BUBBLE", "float32"),
    "takes_steps_off_the_schedules": ("MODIFIED", "belongs to the caller"),
    "returns_a_tensor": ("NOT_A_NUMBER", ".item()"),
}


def share(busy, clocks):
    return 1 - sum(busy) / (len(busy) * max(clocks))


def of_plain_schedules(schedules, forward=1.0, backward=2.0):
    """Right, but for interleaved schedules."""
    return share(*play(schedules, forward, backward))


def keeps_clocks_in_float32(schedules, forward=1.0, backward=2.0):
    busy, clocks = map(torch.tensor, play(schedules, forward, backward))
    return (1 - busy.sum() / (len(busy) * clocks.max())).item()


def relative_to_the_computation(schedules, forward=1.0, backward=2.0):
    busy, clocks = play(schedules, forward, backward)
    return (len(busy) * max(clocks) - sum(busy)) / sum(busy)


def share_that_is_busy(schedules, forward=1.0, backward=2.0):
    return 1 - share(*play(schedules, forward, backward))


def seconds(schedules, forward=1.0, backward=2.0):
    busy, clocks = play(schedules, forward, backward)
    return max(clocks) - busy[0]


def percent(schedules, forward=1.0, backward=2.0):
    return 100 * share(*play(schedules, forward, backward))


def formula(schedules, forward=1.0, backward=2.0):
    play(schedules, forward, backward)
    stages, microbatches = len(schedules), len(schedules[0]) // 2
    return (stages - 1) / (microbatches + stages - 1)


def ignores_the_times(schedules, forward=1.0, backward=2.0):
    return share(*play(schedules, 1.0, 2.0))


def all_steps_take_a_second(schedules, forward=1.0, backward=2.0):
    return share(*play(schedules, 1.0, 1.0))


def until_each_rank_is_done(schedules, forward=1.0, backward=2.0):
    busy, clocks = play(schedules, forward, backward)
    return 1 - sum(busy) / sum(clocks)


def until_the_first_rank_is_done(schedules, forward=1.0, backward=2.0):
    busy, clocks = play(schedules, forward, backward)
    return 1 - sum(busy) / (len(busy) * min(clocks))


def needs_nothing_of_others(schedules, forward=1.0, backward=2.0):
    busy, _ = play(schedules, forward, backward)
    return 1 - sum(busy) / (len(busy) * max(busy))


def backward_needs_only_the_forward(schedules, forward=1.0, backward=2.0):
    play(schedules, forward, backward)
    clocks, finished = [0.0] * len(schedules), {}
    for stage, steps in enumerate(schedules):
        for kind, microbatch in steps:
            needed = finished.get((microbatch, stage - 1), 0.0) if kind == "F" else 0.0
            clocks[stage] = max(clocks[stage], needed) + (forward if kind == "F" else backward)
            if kind == "F":
                finished[microbatch, stage] = clocks[stage]
    busy = [sum(forward if kind == "F" else backward for kind, _ in steps) for steps in schedules]
    return share(busy, clocks)


def leaves_out_what_is_stuck(schedules, forward=1.0, backward=2.0):
    try:
        return share(*play(schedules, forward, backward))
    except ValueError:
        return 1.0


def says_no(schedules, forward=1.0, backward=2.0):
    try:
        return share(*play(schedules, forward, backward))
    except ValueError:
        raise ValueError("") from None


def names_a_rank(schedules, forward=1.0, backward=2.0):
    try:
        return share(*play(schedules, forward, backward))
    except ValueError:
        raise ValueError("rank 0 and rank 1 wait Forever, Both") from None


def names_a_step_that_is_done(schedules, forward=1.0, backward=2.0):
    try:
        return share(*play(schedules, forward, backward))
    except ValueError:
        raise ValueError(f"no step after {schedules[0][0]} can begin") from None


def takes_steps_off_the_schedules(schedules, forward=1.0, backward=2.0):
    bubble = of_plain_schedules(schedules, forward, backward)
    for steps in schedules:
        steps.clear()
    return bubble


def returns_a_tensor(schedules, forward=1.0, backward=2.0):
    return torch.tensor(share(*play(schedules, forward, backward)))
