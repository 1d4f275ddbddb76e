"""The alpha-beta model: fits, and the times of algorithms."""

import random

import pytest

from fourranks.figures.alpha_beta import (
    crossover_bytes,
    fit_alpha_beta,
    message,
    ring_all_reduce,
    tree_all_reduce,
)

ALPHA, BETA = 20e-6, 1 / 50e9
SIZES = [4.0**exponent for exponent in range(5, 16)]  # 1 KiB to 1 GiB


def test_a_fit_of_exact_times_gives_alpha_and_beta_back():
    seconds = [message(size, ALPHA, BETA) for size in SIZES]
    assert fit_alpha_beta(SIZES, seconds) == pytest.approx((ALPHA, BETA), rel=1e-9)


def test_a_few_percent_of_noise_move_alpha_by_a_few_percent_although_sizes_span_decades():
    noise = random.Random(3)
    for _ in range(20):
        seconds = [message(size, ALPHA, BETA) * noise.uniform(0.95, 1.05) for size in SIZES]
        assert fit_alpha_beta(SIZES, seconds) == pytest.approx((ALPHA, BETA), rel=0.07)


@pytest.mark.parametrize(("sizes", "seconds"), [([], []), ([8, 8], [1, 2]), ([8, 16], [0.0, 1.0])])
def test_what_cannot_be_fitted_is_refused(sizes, seconds):
    with pytest.raises(ValueError, match="two different sizes"):
        fit_alpha_beta(sizes, seconds)


@pytest.mark.parametrize("world_size", [4, 5, 8, 13, 64, 1000])
def test_at_the_crossover_ring_and_tree_take_equally_long_and_below_it_the_tree_is_faster(world_size):
    size = crossover_bytes(world_size, ALPHA, BETA)
    ring, tree = (f(world_size, size, ALPHA, BETA) for f in (ring_all_reduce, tree_all_reduce))
    assert ring == pytest.approx(tree)
    assert tree_all_reduce(world_size, size / 2, ALPHA, BETA) < ring_all_reduce(
        world_size, size / 2, ALPHA, BETA
    )


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_with_up_to_three_ranks_the_tree_is_never_faster(world_size):
    assert crossover_bytes(world_size, ALPHA, BETA) == 0


def test_a_ring_of_four_sends_six_messages_of_a_quarter_and_a_tree_four_whole_ones():
    assert ring_all_reduce(4, 400, 1.0, 0.0) == 6
    assert ring_all_reduce(4, 400, 0.0, 1.0) == 600
    assert tree_all_reduce(4, 400, 1.0, 0.0) == 4
    assert tree_all_reduce(4, 400, 0.0, 1.0) == 1600
