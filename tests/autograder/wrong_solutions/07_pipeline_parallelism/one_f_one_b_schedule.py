# ruff: noqa: F821
FAILS_AS = {
    "one_forward_too_many": ("TOO_MANY_IN_FLIGHT", "as there are later stages"),
    "one_forward_too_few": ("TOO_FEW_IN_FLIGHT", "without work"),
    "the_same_warm_up_for_all": ("TOO_MANY_IN_FLIGHT", "as there are later stages"),
    "counts_the_stages_before": ("STAGES_STUCK", "in flight"),
    "no_warm_up": ("TOO_FEW_IN_FLIGHT", "without work"),
    "gpipe": ("TOO_MANY_IN_FLIGHT", "as there are later stages"),
    "warm_up_without_a_limit": ("STEPS_MISCOUNTED", "cannot be longer than"),
    "forgets_the_end": ("STEPS_MISCOUNTED", "needs a backward"),
    "starts_again_at_the_end": ("STEPS_MISCOUNTED", "needs a backward"),
    "backward_of_the_latest": ("ANOTHER_ORDER_OF_STEPS", "the drawing"),
    "goes_back_from_the_last": ("ANOTHER_ORDER_OF_STEPS", "the drawing"),
    "refuses_fewer_than_stages": ("POSSIBLE_MICROBATCHES_REFUSED", "fewer microbatches than stages"),
    "shares_a_list": ("FROM_AN_EARLIER_CALL", "default argument"),
    "copies_a_shared_list": ("FROM_AN_EARLIER_CALL", "default argument"),
}


def one_forward_too_many(stage, num_stages, num_microbatches):
    return in_turns(range(num_microbatches), num_stages - stage)


def one_forward_too_few(stage, num_stages, num_microbatches):
    return in_turns(range(num_microbatches), num_stages - 2 - stage)


def the_same_warm_up_for_all(stage, num_stages, num_microbatches):
    return in_turns(range(num_microbatches), num_stages - 1)


def counts_the_stages_before(stage, num_stages, num_microbatches):
    return in_turns(range(num_microbatches), stage)


def no_warm_up(stage, num_stages, num_microbatches):
    return in_turns(range(num_microbatches), 0)


def gpipe(stage, num_stages, num_microbatches):
    return in_turns(range(num_microbatches), num_microbatches)


def turns(stage, num_stages, num_microbatches):
    """Warm-up, turns and end as three lists."""
    order, warm_up = range(num_microbatches), min(num_stages - 1 - stage, num_microbatches)
    pairs = [(order[warm_up + n], n) for n in range(num_microbatches - warm_up)]
    return (
        [("F", microbatch) for microbatch in order[:warm_up]],
        [[("F", forward), ("B", backward)] for forward, backward in pairs],
        [("B", microbatch) for microbatch in order[len(pairs) :]],
    )


def warm_up_without_a_limit(stage, num_stages, num_microbatches):
    warm_up = num_stages - 1 - stage
    begin = [("F", microbatch) for microbatch in range(warm_up)]
    middle = [step for n in range(num_microbatches - warm_up) for step in (("F", warm_up + n), ("B", n))]
    return begin + middle + [("B", n) for n in range(num_microbatches - warm_up, num_microbatches)]


def forgets_the_end(stage, num_stages, num_microbatches):
    begin, middle, _ = turns(stage, num_stages, num_microbatches)
    return begin + sum(middle, [])


def starts_again_at_the_end(stage, num_stages, num_microbatches):
    begin, middle, end = turns(stage, num_stages, num_microbatches)
    return begin + sum(middle, []) + [("B", n) for n in range(len(end))]


def backward_of_the_latest(stage, num_stages, num_microbatches):
    begin, middle, end = turns(stage, num_stages, num_microbatches)
    return (
        begin
        + [step for pair in middle for step in (pair[0], ("B", pair[0][1]))]
        + [("B", n) for n in range(len(end))]
    )


def goes_back_from_the_last(stage, num_stages, num_microbatches):
    begin, middle, end = turns(stage, num_stages, num_microbatches)
    return begin + sum(middle, []) + end[::-1]


def refuses_fewer_than_stages(stage, num_stages, num_microbatches):
    if num_microbatches < num_stages:
        raise ValueError(f"{num_microbatches} microbatches do not fill {num_stages} stages")
    return in_turns(range(num_microbatches), num_stages - 1 - stage)


def shares_a_list(stage, num_stages, num_microbatches, steps=[]):  # noqa: B006
    steps += in_turns(range(num_microbatches), num_stages - 1 - stage)
    return steps


def copies_a_shared_list(stage, num_stages, num_microbatches, steps=[]):  # noqa: B006
    return list(shares_a_list(stage, num_stages, num_microbatches, steps))
