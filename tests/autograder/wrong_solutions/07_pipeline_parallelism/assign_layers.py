FAILS_AS = {
    "drops_the_remainder": ("LAYERS_MISSING", "divmod"),
    "gives_the_remainder_to_the_last": ("LAYERS_UNEVEN", "first stages"),
    "rounds_up": ("LAYERS_UNEVEN", "first stages"),
    "longer_stages_last": ("LONGER_STAGES_ELSEWHERE", "tensor_split"),
    "rounds_the_bounds": ("LONGER_STAGES_ELSEWHERE", "tensor_split"),
    "forgets_what_came_before": ("LAYERS_TWICE", "begins where the previous one ends"),
    "deals_out_in_turn": ("LAYERS_OUT_OF_ORDER", "send to another rank"),
    "returns_a_list": ("NO_RANGE", "range("),
    "returns_both_ends": ("NO_RANGE", "range("),
    "accepts_empty_stages": ("EMPTY_STAGES_ACCEPTED", "more stages than layers"),
    "refuses_a_remainder": ("POSSIBLE_LAYERS_REFUSED", "need not divide"),
    "says_no": ("REFUSAL_WITHOUT_NUMBERS", "both numbers"),
}


def refuse(num_layers, num_stages):
    if num_stages > num_layers:
        raise ValueError(f"{num_layers} layers for {num_stages} stages")


def drops_the_remainder(num_layers, num_stages, stage):
    refuse(num_layers, num_stages)
    size = num_layers // num_stages
    return range(stage * size, (stage + 1) * size)


def gives_the_remainder_to_the_last(num_layers, num_stages, stage):
    refuse(num_layers, num_stages)
    size = num_layers // num_stages
    return range(stage * size, num_layers if stage == num_stages - 1 else (stage + 1) * size)


def rounds_up(num_layers, num_stages, stage):
    refuse(num_layers, num_stages)
    size = -(-num_layers // num_stages)
    return range(min(stage * size, num_layers), min((stage + 1) * size, num_layers))


def longer_stages_last(num_layers, num_stages, stage):
    refuse(num_layers, num_stages)
    size, remainder = divmod(num_layers, num_stages)
    shorter = num_stages - remainder
    first = stage * size + max(0, stage - shorter)
    return range(first, first + size + (stage >= shorter))


def rounds_the_bounds(num_layers, num_stages, stage):
    refuse(num_layers, num_stages)
    return range(stage * num_layers // num_stages, (stage + 1) * num_layers // num_stages)


def forgets_what_came_before(num_layers, num_stages, stage):
    refuse(num_layers, num_stages)
    size, remainder = divmod(num_layers, num_stages)
    return range(stage * size, stage * size + size + (stage < remainder))


def deals_out_in_turn(num_layers, num_stages, stage):
    refuse(num_layers, num_stages)
    return range(stage, num_layers, num_stages)


def right(num_layers, num_stages, stage):
    refuse(num_layers, num_stages)
    size, remainder = divmod(num_layers, num_stages)
    first = stage * size + min(stage, remainder)
    return range(first, first + size + (stage < remainder))


def returns_a_list(num_layers, num_stages, stage):
    return list(right(num_layers, num_stages, stage))


def returns_both_ends(num_layers, num_stages, stage):
    layers = right(num_layers, num_stages, stage)
    return layers.start, layers.stop


def accepts_empty_stages(num_layers, num_stages, stage):
    size, remainder = divmod(num_layers, num_stages)
    first = stage * size + min(stage, remainder)
    return range(first, first + size + (stage < remainder))


def refuses_a_remainder(num_layers, num_stages, stage):
    if num_layers % num_stages:
        raise ValueError(f"{num_layers} layers do not divide into {num_stages} stages")
    return right(num_layers, num_stages, stage)


def says_no(num_layers, num_stages, stage):
    if num_stages > num_layers:
        raise ValueError("too many stages")
    return right(num_layers, num_stages, stage)
