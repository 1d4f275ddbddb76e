FAILS_AS = {
    "divides": ("DIVIDED", "too low"),
    "leaves_it": ("UNCORRECTED", "the output"),
    "undoes_the_factor": ("FACTOR_OF_ALL_REDUCE", "already contains the factor"),
    "multiplies_by_n_minus_1": ("FACTOR_OF_ALL_REDUCE", "already contains the factor"),
    "doubles": ("ANOTHER_VALUE", "compute the result in your head"),
    "uses_the_factor_of_all_reduce": ("FACTOR_OF_ALL_REDUCE", "already contains the factor"),
    "drops_the_digits": ("ANOTHER_VALUE", "compute the result in your head"),
    "always_four_ranks": ("ANOTHER_VALUE", "compute the result in your head"),
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


def drops_the_digits(reported, world_size):
    return int(reported) * world_size


def always_four_ranks(reported, world_size):
    return reported * 4
