FAILS_AS = {
    "goes_back_at_once": ("TOO_FEW_IN_FLIGHT", "all forwards come first"),
    "goes_back_from_the_last": ("ANOTHER_ORDER_OF_STEPS", "the drawing"),
    "only_forward": ("STEPS_MISCOUNTED", "a backward of each"),
    "as_many_microbatches_as_stages": ("STEPS_MISCOUNTED", "of each microbatch"),
    "counts_from_one": ("STEPS_MISCOUNTED", "of each microbatch"),
    "waits_in_the_list": ("NO_SCHEDULE", "no steps for waiting"),
    "strings": ("NO_SCHEDULE", "a list of pairs"),
    "all_stages_at_once": ("NO_SCHEDULE", "a list of pairs"),
    "backward_first": ("BACKWARD_BEFORE_FORWARD", "needs its forward"),
}


def goes_back_at_once(stage, num_stages, num_microbatches):
    return [(kind, microbatch) for microbatch in range(num_microbatches) for kind in "FB"]


def goes_back_from_the_last(stage, num_stages, num_microbatches):
    order = range(num_microbatches)
    return [("F", microbatch) for microbatch in order] + [("B", microbatch) for microbatch in order[::-1]]


def only_forward(stage, num_stages, num_microbatches):
    return [("F", microbatch) for microbatch in range(num_microbatches)]


def as_many_microbatches_as_stages(stage, num_stages, num_microbatches):
    return [(kind, microbatch) for kind in "FB" for microbatch in range(num_stages)]


def counts_from_one(stage, num_stages, num_microbatches):
    return [(kind, microbatch) for kind in "FB" for microbatch in range(1, num_microbatches + 1)]


def right(stage, num_stages, num_microbatches):
    return [(kind, microbatch) for kind in "FB" for microbatch in range(num_microbatches)]


def waits_in_the_list(stage, num_stages, num_microbatches):
    return [None] * stage + right(stage, num_stages, num_microbatches)


def strings(stage, num_stages, num_microbatches):
    return [f"{kind}{microbatch}" for kind, microbatch in right(stage, num_stages, num_microbatches)]


def all_stages_at_once(stage, num_stages, num_microbatches):
    return {stage: right(stage, num_stages, num_microbatches) for stage in range(num_stages)}


def backward_first(stage, num_stages, num_microbatches):
    return right(stage, num_stages, num_microbatches)[::-1]
