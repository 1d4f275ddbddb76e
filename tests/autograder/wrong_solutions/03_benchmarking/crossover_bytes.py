# ruff: noqa: F821
FAILS_AS = {
    "rounds_not_rounded": ("ROUNDS_NOT_ROUNDED", "round up"),
    "rounds_rounded_down": ("ROUNDS_NOT_ROUNDED", "round up"),
    "tree_sends_pieces": ("PIPELINED_TREE", "has S bytes"),
    "latency_over_bandwidth": ("LATENCY_LEFT_OUT", "set them equal"),
    "beta_is_a_bandwidth": ("BETA_AS_A_RATE", "seconds per byte"),
    "upside_down": ("RECIPROCAL", "reciprocal"),
    "ring_sends_whole_tensors": ("WHOLE_MESSAGES", "S / N bytes"),
    "twice_the_size": ("ANOTHER_VALUE", "compute the result in your head"),
    "one_phase_of_the_ring": ("ANOTHER_VALUE", "compute the result in your head"),
    "none_for_few_ranks": ("NOT_A_NUMBER", "`return`"),
}


def solved(n, alpha, beta, rounds=None, share=None):
    rounds = (n - 1).bit_length() if rounds is None else rounds
    share = (n - 1) / n if share is None else share
    return (n - 1 - rounds) * alpha / ((rounds - share) * beta)


def rounds_not_rounded(world_size, alpha, beta):
    return solved(world_size, alpha, beta, math.log2(world_size))


def rounds_rounded_down(world_size, alpha, beta):
    return solved(world_size, alpha, beta, int(math.log2(world_size)))


def tree_sends_pieces(world_size, alpha, beta):
    fewer_messages = world_size - 1 - (world_size - 1).bit_length()
    return fewer_messages * alpha * world_size / beta


def latency_over_bandwidth(world_size, alpha, beta):
    return alpha / beta


def beta_is_a_bandwidth(world_size, alpha, beta):
    return solved(world_size, alpha, 1 / beta)


def upside_down(world_size, alpha, beta):
    return 1 / solved(world_size, alpha, beta) if world_size > 3 else 0.0


def ring_sends_whole_tensors(world_size, alpha, beta):
    return solved(world_size, alpha, beta, share=world_size - 1) if world_size > 3 else 0.0


def twice_the_size(world_size, alpha, beta):
    return 2 * solved(world_size, alpha, beta)


def one_phase_of_the_ring(world_size, alpha, beta):
    return solved(world_size, alpha, beta, share=(world_size - 1) / (2 * world_size))


def none_for_few_ranks(world_size, alpha, beta):
    return solved(world_size, alpha, beta) if world_size > 3 else None
