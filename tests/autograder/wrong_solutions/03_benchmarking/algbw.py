FAILS_AS = {
    "upside_down": ("RECIPROCAL", "reciprocal"),
    "in_GB": ("NOT_IN_BYTES_PER_SECOND", "Bytes in, bytes per second out"),
    "in_GiB": ("NOT_IN_BYTES_PER_SECOND", "7 % more"),
    "in_MiB": ("NOT_IN_BYTES_PER_SECOND", "only for display"),
    "in_bits": ("ANOTHER_VALUE", "compute the result in your head"),
    "divides_integers": ("ANOTHER_VALUE", "compute the result in your head"),
    "prints_it": ("NOT_A_NUMBER", "`return`"),
}


def upside_down(num_bytes, seconds):
    return seconds / num_bytes


def in_GB(num_bytes, seconds):
    return num_bytes / seconds / 1e9


def in_GiB(num_bytes, seconds):
    return num_bytes / seconds / 1024**3


def in_MiB(num_bytes, seconds):
    return num_bytes / seconds / 1024**2


def in_bits(num_bytes, seconds):
    return 8 * num_bytes / seconds


def divides_integers(num_bytes, seconds):
    return num_bytes // seconds


def prints_it(num_bytes, seconds):
    print(num_bytes / seconds)
