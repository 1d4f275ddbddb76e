# ruff: noqa: F821
FAILS_AS = {
    "algbw_for_all": ("ALGBW", "each rank has to send"),
    "drops_n_minus_1": ("N_MINUS_1_DROPPED", "sends N − 1 of them"),
    "counts_what_all_ranks_send": ("N_TIMES_TOO_LARGE", "divide by the number"),
    "counts_the_output_of_reduce_scatter": ("PART_OF_ONE_RANK", "S is the whole array"),
    "adds_what_is_received": ("TWICE", "in both directions"),
    "one_phase_for_all_reduce": ("HALF", "How many phases"),
    "in_GiB": ("NOT_IN_BYTES_PER_SECOND", "7 % more"),
    "scatter_without_its_share": ("ALGBW", "each rank has to send"),
    "share_for_broadcast": ("ALL_OF_S_IS_SENT", "it passes everything on"),
    "share_for_hypercube": ("ALL_OF_S_IS_SENT", "its own part out already"),
    "share_of_a_pair_for_sendrecv": ("ANOTHER_VALUE", "compute the result in your head"),
    "accepts_any_name": ("UNKNOWN_ACCEPTED", "raise a ValueError"),
    "divides_by_zero_with_one_rank": ("RAISED", "line that the message names"),
    "knows_only_all_reduce": ("RAISED", "line that the message names"),
}


def algbw_for_all(collective, num_bytes, seconds, world_size):
    factor(collective, world_size)
    return num_bytes / seconds


def drops_n_minus_1(collective, num_bytes, seconds, world_size):
    if collective == "all_reduce":
        return 2 * num_bytes / (world_size * seconds)
    return num_bytes / seconds * factor(collective, world_size)


def counts_what_all_ranks_send(collective, num_bytes, seconds, world_size):
    if collective == "all_reduce":
        return 2 * world_size * num_bytes / seconds
    return num_bytes / seconds * factor(collective, world_size)


def counts_the_output_of_reduce_scatter(collective, num_bytes, seconds, world_size):
    if collective == "reduce_scatter":
        num_bytes /= world_size
    return num_bytes / seconds * factor(collective, world_size)


def adds_what_is_received(collective, num_bytes, seconds, world_size):
    return 2 * num_bytes / seconds * factor(collective, world_size)


def one_phase_for_all_reduce(collective, num_bytes, seconds, world_size):
    if collective == "all_reduce":
        seconds *= 2
    return num_bytes / seconds * factor(collective, world_size)


def in_GiB(collective, num_bytes, seconds, world_size):
    return num_bytes / seconds * factor(collective, world_size) / 1024**3


def scatter_without_its_share(collective, num_bytes, seconds, world_size):
    share = 1 if collective == "scatter" else factor(collective, world_size)
    return num_bytes / seconds * share


def share_for_broadcast(collective, num_bytes, seconds, world_size):
    if collective in ("broadcast", "reduce"):
        return num_bytes / seconds * (world_size - 1) / world_size
    return num_bytes / seconds * factor(collective, world_size)


def share_for_hypercube(collective, num_bytes, seconds, world_size):
    if collective == "hypercube":
        return num_bytes / seconds * (world_size - 1) / world_size
    return num_bytes / seconds * factor(collective, world_size)


def share_of_a_pair_for_sendrecv(collective, num_bytes, seconds, world_size):
    if collective == "sendrecv":
        return num_bytes / seconds * 2 / 3
    return num_bytes / seconds * factor(collective, world_size)


def accepts_any_name(collective, num_bytes, seconds, world_size):
    share = SHARED.get(collective, 0) * (world_size - 1) / world_size if collective in SHARED else 1
    return num_bytes / seconds * share


def divides_by_zero_with_one_rank(collective, num_bytes, seconds, world_size):
    return num_bytes / (seconds / (world_size - 1)) * factor(collective, world_size) / (world_size - 1)


def knows_only_all_reduce(collective, num_bytes, seconds, world_size):
    return num_bytes / seconds * {"all_reduce": factor("all_reduce", world_size)}[collective]
