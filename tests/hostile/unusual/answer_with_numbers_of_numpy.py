"""Fits by numpy, and answers with its numbers in a named tuple."""

from collections import namedtuple


def fit_alpha_beta(num_bytes, seconds):
    import numpy as np

    took = np.array(seconds)
    terms = np.stack([1 / took, np.array(num_bytes) / took], axis=1)
    answer, *_ = np.linalg.lstsq(terms, np.ones(len(took)), rcond=None)
    return namedtuple("Fit", "alpha beta")(*answer)
