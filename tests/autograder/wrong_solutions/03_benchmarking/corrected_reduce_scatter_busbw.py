FAILS_AS = {
    "divides": ("divided", "too low"),
    "leaves_it": ("uncorrected", "the output"),
    "undoes_the_factor": ("all-reduce's factor", "in the reported figure already"),
    "multiplies_by_n_minus_1": ("all-reduce's factor", "in the reported figure already"),
    "doubles": ("another value", "smallest numbers"),
    "uses_the_factor_of_all_reduce": ("all-reduce's factor", "in the reported figure already"),
    "always_four_ranks": ("another value", "smallest numbers"),
}


def divides(reported, world_size):
    return reported / world_size


def leaves_it(reported, world_size):
    return reported


def undoes_the_factor(reported, world_size):
    return reported * world_size / max(1, world_size - 1)


def multiplies_by_n_minus_1(reported, world_size):
    return reported * (world_size - 1)


def doubles(reported, world_size):
    return reported * 2


def uses_the_factor_of_all_reduce(reported, world_size):
    return reported * 2 * (world_size - 1) / world_size


def always_four_ranks(reported, world_size):
    return reported * 4
