FAILS_AS = {
    "upside_down": ("reciprocal", "reciprocal"),
    "in_GB": ("not in bytes per second", "Bytes in, bytes per second out"),
    "in_GiB": ("not in bytes per second", "7 % more"),
    "in_MiB": ("not in bytes per second", "where numbers are shown"),
    "in_bits": ("another value", "smallest numbers"),
    "prints_it": ("wrong type", "what the function returns"),
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


def prints_it(num_bytes, seconds):
    print(num_bytes / seconds)
