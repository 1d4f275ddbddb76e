# ruff: noqa: F821
FAILS_AS = {
    "warm_up_of_1f1b": ("STAGES_STUCK", "in flight"),
    "one_step_less_for_each_rank": ("TOO_FEW_IN_FLIGHT", "without work"),
    "one_forward_too_many": ("TOO_MANY_IN_FLIGHT", "two for each later rank"),
    "twice_the_warm_up": ("STAGES_STUCK", "Simulate it"),
    "one_chunk_after_the_other": ("STAGES_STUCK", "Simulate it"),
    "every_microbatch_round_by_itself": ("STAGES_STUCK", "Simulate it"),
    "one_chunk_only": ("STEPS_MISCOUNTED", "of each microbatch"),
    "always_two_chunks": ("STEPS_MISCOUNTED", "of each microbatch"),
    "warm_up_without_a_limit": ("STEPS_MISCOUNTED", "cannot be longer than"),
    "names_the_chunk": ("NO_SCHEDULE", "a list of pairs"),
    "accepts_any_number": ("UNEVEN_ROUNDS_ACCEPTED", "does not divide"),
    "accepts_fewer_than_ranks": ("UNEVEN_ROUNDS_ACCEPTED", "does not divide"),
    "refuses_what_the_chunks_do_not_divide": ("POSSIBLE_MICROBATCHES_REFUSED", "the number of chunks"),
    "says_no": ("REFUSAL_WITHOUT_NUMBERS", "both numbers"),
}


def refuse(num_stages, num_microbatches):
    if num_microbatches % num_stages:
        raise ValueError(f"{num_microbatches} microbatches, {num_stages} ranks")


def warm_up(stage, num_stages, num_chunks):
    return (num_chunks - 1) * num_stages + 2 * (num_stages - 1 - stage)


def warm_up_of_1f1b(stage, num_stages, num_microbatches, num_chunks=2):
    refuse(num_stages, num_microbatches)
    return in_turns(rounds(num_stages, num_microbatches, num_chunks), num_stages - 1 - stage)


def one_step_less_for_each_rank(stage, num_stages, num_microbatches, num_chunks=2):
    refuse(num_stages, num_microbatches)
    order = rounds(num_stages, num_microbatches, num_chunks)
    return in_turns(order, (num_chunks - 1) * num_stages + num_stages - 1 - stage)


def one_forward_too_many(stage, num_stages, num_microbatches, num_chunks=2):
    refuse(num_stages, num_microbatches)
    order = rounds(num_stages, num_microbatches, num_chunks)
    return in_turns(order, warm_up(stage, num_stages, num_chunks) + 1)


def twice_the_warm_up(stage, num_stages, num_microbatches, num_chunks=2):
    refuse(num_stages, num_microbatches)
    order = rounds(num_stages, num_microbatches, num_chunks)
    return in_turns(order, 2 * warm_up(stage, num_stages, num_chunks))


def one_chunk_after_the_other(stage, num_stages, num_microbatches, num_chunks=2):
    refuse(num_stages, num_microbatches)
    order = [microbatch for _ in range(num_chunks) for microbatch in range(num_microbatches)]
    return in_turns(order, warm_up(stage, num_stages, num_chunks))


def every_microbatch_round_by_itself(stage, num_stages, num_microbatches, num_chunks=2):
    refuse(num_stages, num_microbatches)
    order = [microbatch for microbatch in range(num_microbatches) for _ in range(num_chunks)]
    return in_turns(order, warm_up(stage, num_stages, num_chunks))


def one_chunk_only(stage, num_stages, num_microbatches, num_chunks=2):
    refuse(num_stages, num_microbatches)
    return in_turns(range(num_microbatches), warm_up(stage, num_stages, num_chunks))


def always_two_chunks(stage, num_stages, num_microbatches, num_chunks=2):
    refuse(num_stages, num_microbatches)
    return in_turns(rounds(num_stages, num_microbatches, 2), warm_up(stage, num_stages, 2))


def warm_up_without_a_limit(stage, num_stages, num_microbatches, num_chunks=2):
    refuse(num_stages, num_microbatches)
    order = rounds(num_stages, num_microbatches, num_chunks)
    length = warm_up(stage, num_stages, num_chunks)
    order += range(num_microbatches, num_microbatches + max(0, length - len(order)))
    return in_turns(order, length)


def right(stage, num_stages, num_microbatches, num_chunks=2):
    order = rounds(num_stages, num_microbatches, num_chunks)
    return in_turns(order, warm_up(stage, num_stages, num_chunks))


def names_the_chunk(stage, num_stages, num_microbatches, num_chunks=2):
    refuse(num_stages, num_microbatches)
    return [(*step, 0) for step in right(stage, num_stages, num_microbatches, num_chunks)]


def accepts_any_number(stage, num_stages, num_microbatches, num_chunks=2):
    return right(stage, num_stages, num_microbatches, num_chunks)


def accepts_fewer_than_ranks(stage, num_stages, num_microbatches, num_chunks=2):
    if num_microbatches > num_stages:
        refuse(num_stages, num_microbatches)
    return right(stage, num_stages, num_microbatches, num_chunks)


def refuses_what_the_chunks_do_not_divide(stage, num_stages, num_microbatches, num_chunks=2):
    refuse(num_stages * num_chunks, num_microbatches)
    return right(stage, num_stages, num_microbatches, num_chunks)


def says_no(stage, num_stages, num_microbatches, num_chunks=2):
    if num_microbatches % num_stages:
        raise ValueError
    return right(stage, num_stages, num_microbatches, num_chunks)
