# ruff: noqa: F821
FAILS_AS = {
    "drops_the_remainder": ("UNEVEN_BATCH", "Raise a ValueError"),
    "last_rank_takes_the_rest": ("UNEVEN_BATCH", "Raise a ValueError"),
    "rounds_up": ("UNEVEN_BATCH", "Raise a ValueError"),
    "deals_out_in_turn": ("WRONG_SAMPLES", "contiguous"),
    "clones": ("COPIED", "a view"),
    "indexes": ("COPIED", "a view"),
    "asks_for_its_own_rank": ("WRONG_SAMPLES", "not dist.get_rank()"),
    "says_nothing": ("UNCLEAR_REFUSAL", "both numbers"),
    "asserts": ("RAISED", "Read the line"),
    "refuses_no_samples": ("REFUSED", "0 samples"),
    "returns_a_list": ("WRONG_TYPE", "what the function returns"),
    "casts": ("WRONG_TYPE", "what the function returns"),
    "counts_elements": ("WRONG_SAMPLES", "Rank r takes"),
    "squeezes": ("WRONG_SAMPLES", "Rank r takes"),
    "scatters": ("UNEXPECTED_CALL", "all-reduces of gradients"),
    "makes_contiguous": ("COPIED", "view"),
}


def part(batch, rank, world_size):
    local_size = len(batch) // world_size
    return batch[rank * local_size : (rank + 1) * local_size]


def check(batch, world_size):
    if len(batch) % world_size:
        raise ValueError(f"{len(batch)} samples do not divide by {world_size} ranks")


def drops_the_remainder(batch, rank, world_size):
    return part(batch, rank, world_size)


def last_rank_takes_the_rest(batch, rank, world_size):
    return (
        part(batch, rank, world_size) if rank < world_size - 1 else batch[rank * (len(batch) // world_size) :]
    )


def rounds_up(batch, rank, world_size):
    return batch.tensor_split(world_size)[rank]


def deals_out_in_turn(batch, rank, world_size):
    check(batch, world_size)
    return batch[rank::world_size]


def clones(batch, rank, world_size):
    check(batch, world_size)
    return part(batch, rank, world_size).clone()


def indexes(batch, rank, world_size):
    check(batch, world_size)
    local_size = len(batch) // world_size
    return batch[list(range(rank * local_size, (rank + 1) * local_size))]


def asks_for_its_own_rank(batch, rank, world_size):
    check(batch, world_size)
    return part(batch, dist.get_rank(), world_size)


def says_nothing(batch, rank, world_size):
    if len(batch) % world_size:
        raise ValueError("bad batch")
    return part(batch, rank, world_size)


def asserts(batch, rank, world_size):
    assert len(batch) % world_size == 0, f"{len(batch)} samples, {world_size} ranks"
    return part(batch, rank, world_size)


def refuses_no_samples(batch, rank, world_size):
    check(batch, world_size)
    if len(batch) < world_size:
        raise ValueError(f"{len(batch)} samples for {world_size} ranks")
    return part(batch, rank, world_size)


def counts_elements(batch, rank, world_size):
    check(batch, world_size)
    return batch.reshape(-1).chunk(world_size)[rank] if len(batch) else part(batch, rank, world_size)


def squeezes(batch, rank, world_size):
    check(batch, world_size)
    return part(batch, rank, world_size).squeeze()


def returns_a_list(batch, rank, world_size):
    check(batch, world_size)
    return list(part(batch, rank, world_size))


def casts(batch, rank, world_size):
    check(batch, world_size)
    return part(batch, rank, world_size).float()


def scatters(batch, rank, world_size):
    check(batch, world_size)
    dist.broadcast(batch, src=0)
    return part(batch, rank, world_size)


def makes_contiguous(batch, rank, world_size):
    check(batch, world_size)
    return part(batch.contiguous(), rank, world_size)
