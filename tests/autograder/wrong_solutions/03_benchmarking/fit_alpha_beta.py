# ruff: noqa: F821
FAILS_AS = {
    "absolute_errors": ("ABSOLUTE_ERRORS", "Divide each equation"),
    "beta_first": ("SWAPPED", "Return (alpha, beta)"),
    "as_statistics_has_it": ("SWAPPED", "Return (alpha, beta)"),
    "bandwidth_instead_of_beta": ("A_RATE", "reciprocal of the bandwidth"),
    "smallest_time_is_alpha": ("NO_FIT_OF_ALPHA", "Let all points decide"),
    "no_latency": ("NO_FIT_OF_ALPHA", "Let all points decide"),
    "first_and_last": ("TWO_POINTS", "all points decide"),
    "returns_tensors": ("WRONG_TYPE", "what the function returns"),
    "two_neighbours": ("ANOTHER_FIT", "two exact times"),
    "rounds_to_float32": ("ANOTHER_FIT", "dtype=torch.float64"),
    "sorts_its_arguments": ("MODIFIED", "belongs to the caller"),
    "leaves_tensors_in_its_arguments": ("MODIFIED", "belongs to the caller"),
    "calls_ours": ("FORBIDDEN_LIBRARY", "cell of your own"),
}


def least_squares(num_bytes, seconds, weights):
    a = list(weights)
    b = [weight * size for weight, size in zip(weights, num_bytes, strict=True)]
    c = [weight * t for weight, t in zip(weights, seconds, strict=True)]

    def dot(x, y):
        return sum(p * q for p, q in zip(x, y, strict=True))

    determinant = dot(a, a) * dot(b, b) - dot(a, b) ** 2
    alpha = (dot(a, c) * dot(b, b) - dot(b, c) * dot(a, b)) / determinant
    return alpha, (dot(b, c) * dot(a, a) - dot(a, c) * dot(a, b)) / determinant


def absolute_errors(num_bytes, seconds):
    beta, alpha = statistics.linear_regression(num_bytes, seconds)
    return alpha, beta


def beta_first(num_bytes, seconds):
    return least_squares(num_bytes, seconds, [1 / t for t in seconds])[::-1]


def as_statistics_has_it(num_bytes, seconds):
    return statistics.linear_regression(num_bytes, seconds)


def bandwidth_instead_of_beta(num_bytes, seconds):
    alpha, beta = least_squares(num_bytes, seconds, [1 / t for t in seconds])
    return alpha, 1 / beta


def smallest_time_is_alpha(num_bytes, seconds):
    return min(seconds), (max(seconds) - min(seconds)) / max(num_bytes)


def no_latency(num_bytes, seconds):
    return 0.0, statistics.median(t / size for size, t in zip(num_bytes, seconds, strict=True))


def first_and_last(num_bytes, seconds):
    beta = (seconds[-1] - seconds[0]) / (num_bytes[-1] - num_bytes[0])
    return seconds[0] - beta * num_bytes[0], beta


def returns_tensors(num_bytes, seconds):
    return tuple(map(torch.tensor, least_squares(num_bytes, seconds, [1 / t for t in seconds])))


def two_neighbours(num_bytes, seconds):
    return first_and_last(num_bytes[:2], seconds[:2])


def rounds_to_float32(num_bytes, seconds):
    equations = torch.tensor([[1 / t, size / t] for size, t in zip(num_bytes, seconds, strict=True)])
    return tuple(torch.linalg.lstsq(equations, torch.ones(len(seconds), 1)).solution.flatten().tolist())


def sorts_its_arguments(num_bytes, seconds):
    num_bytes.sort()
    seconds.sort()
    return least_squares(num_bytes, seconds, [1 / t for t in seconds])


def leaves_tensors_in_its_arguments(num_bytes, seconds):
    fitted = least_squares(num_bytes, seconds, [1 / t for t in seconds])
    seconds[:] = [torch.tensor([t, alpha]) for t, alpha in zip(seconds, fitted, strict=False)]
    return fitted


def calls_ours(num_bytes, seconds):
    from fourranks.figures import alpha_beta

    return alpha_beta.fit_alpha_beta(num_bytes, seconds)
