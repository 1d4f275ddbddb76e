"""The alpha-beta model: fits, and the times of algorithms."""

import random

import pytest

from fourranks.figures.alpha_beta import (
    AlphaBeta,
    crossover_bytes,
    fit_alpha_beta,
    halving_doubling_all_reduce,
    hierarchical_all_reduce,
    message,
    pipelined_crossover_bytes,
    pipelined_tree_all_reduce,
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


@pytest.mark.parametrize("world_size", [4, 5, 8, 64, 1000])
def test_at_its_crossover_the_pipelined_tree_takes_as_long_as_the_ring_and_below_it_is_faster(world_size):
    size = pipelined_crossover_bytes(world_size, ALPHA, BETA)
    ring, tree = (f(world_size, size, ALPHA, BETA) for f in (ring_all_reduce, pipelined_tree_all_reduce))
    assert ring == pytest.approx(tree)
    smaller = world_size, size / 2, ALPHA, BETA
    assert pipelined_tree_all_reduce(*smaller) < ring_all_reduce(*smaller)


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_with_up_to_three_ranks_the_pipelined_tree_is_never_faster(world_size):
    assert pipelined_crossover_bytes(world_size, ALPHA, BETA) == 0


def test_behind_network_cards_a_pipeline_moves_the_crossover_of_1024_ranks_from_mebibytes_to_gibibytes():
    link = 10e-6, 1 / 50e9
    assert crossover_bytes(1024, *link) / 2**20 == pytest.approx(54, rel=0.01)
    assert pipelined_crossover_bytes(1024, *link) / 2**30 == pytest.approx(483, rel=0.01)


def test_halving_and_doubling_has_the_latency_of_a_tree_and_the_bytes_of_a_ring():
    assert halving_doubling_all_reduce(8, 800, 1.0, 0.0) == tree_all_reduce(8, 800, 1.0, 0.0)
    assert halving_doubling_all_reduce(8, 800, 0.0, 1.0) == ring_all_reduce(8, 800, 0.0, 1.0)


def test_a_hierarchy_sends_an_eighth_through_each_of_eight_cards():
    free, slow = AlphaBeta(0.0, 0.0), AlphaBeta(0.0, 1.0)
    assert hierarchical_all_reduce(4, 8, 800, free, slow) == ring_all_reduce(4, 100, 0.0, 1.0)
    assert hierarchical_all_reduce(4, 8, 800, slow, free) == 2 * 7 * 100


def test_a_hierarchy_of_one_node_is_a_ring_inside_it():
    inside = AlphaBeta(ALPHA, BETA)
    one_node = hierarchical_all_reduce(1, 8, 2**20, inside, AlphaBeta(1.0, 1.0))
    assert one_node == pytest.approx(ring_all_reduce(8, 2**20, ALPHA, BETA))


def test_a_ring_of_four_sends_six_messages_of_a_quarter_and_a_tree_four_whole_ones():
    assert ring_all_reduce(4, 400, 1.0, 0.0) == 6
    assert ring_all_reduce(4, 400, 0.0, 1.0) == 600
    assert tree_all_reduce(4, 400, 1.0, 0.0) == 4
    assert tree_all_reduce(4, 400, 0.0, 1.0) == 1600
