FAILS_AS = {
    "counts_multiplications_only": ("MULTIPLY_ADD", "*and* k additions"),
    "forgets_the_result": ("RESULT_NOT_WRITTEN", "the result is written"),
    "reads_the_result_too": ("RESULT_READ", "only written"),
    "counts_elements": ("ELEMENT_SIZE", "how many bytes"),
    "divides_the_wrong_way": ("UPSIDE_DOWN", "operations per byte"),
    "divides_integers": ("ROUNDED", "Divide with `/`"),
    "returns_a_whole_number": ("ROUNDED", "`int()`"),
    "returns_a_tensor": ("NOT_A_NUMBER", ".item()"),
    "returns_nothing": ("NOT_A_NUMBER", "`return`"),
    "returns_nan": ("NUMBER", "with units"),
    "fails_without_operations": ("RAISED", "line that the message names"),
    "counts_bits": ("NUMBER", "with units"),
    "takes_every_element_for_a_float32": ("NUMBER", "with units"),
}


def traffic(m, n, k):
    return m * k + k * n + m * n


def counts_multiplications_only(m, n, k, bytes_per_element):
    return m * n * k / (bytes_per_element * traffic(m, n, k))


def forgets_the_result(m, n, k, bytes_per_element):
    return 2 * m * n * k / max(1, bytes_per_element * (m * k + k * n))


def reads_the_result_too(m, n, k, bytes_per_element):
    return 2 * m * n * k / (bytes_per_element * (traffic(m, n, k) + m * n))


def counts_elements(m, n, k, bytes_per_element):
    return 2 * m * n * k / traffic(m, n, k)


def divides_the_wrong_way(m, n, k, bytes_per_element):
    return bytes_per_element * traffic(m, n, k) / (2 * m * n * k) if k else 0.0


def divides_integers(m, n, k, bytes_per_element):
    return 2 * m * n * k // (bytes_per_element * traffic(m, n, k))


def returns_a_tensor(m, n, k, bytes_per_element):
    return torch.tensor(2.0 * m * n * k / (bytes_per_element * traffic(m, n, k)))  # noqa: F821


def returns_nothing(m, n, k, bytes_per_element):
    print(2 * m * n * k / (bytes_per_element * traffic(m, n, k)))


def returns_nan(m, n, k, bytes_per_element):
    return math.nan  # noqa: F821


def fails_without_operations(m, n, k, bytes_per_element):
    return 1 / (bytes_per_element * traffic(m, n, k) / (2 * m * n * k))


def counts_bits(m, n, k, bytes_per_element):
    return 2 * m * n * k / (8 * bytes_per_element * traffic(m, n, k))


def takes_every_element_for_a_float32(m, n, k, bytes_per_element):
    return 2 * m * n * k / (4 * traffic(m, n, k))


def returns_a_whole_number(m, n, k, bytes_per_element):
    return int(2 * m * n * k / (bytes_per_element * traffic(m, n, k)))
