"""How a step of the lectures' model is put together on paper, without ranks or clocks."""

import pytest

from benchmarks import own_steps
from benchmarks.own_steps import STRATEGIES, Links, predicted


@pytest.fixture
def links():
    """Links on which each call of four ranks takes 6 ms and 4 ns a byte."""
    made = object.__new__(Links)
    made.fits = dict.fromkeys(own_steps.COLLECTIVES, (6e-3, 4e-9))
    return made


def test_two_ranks_send_a_third_of_the_messages_of_four_and_each_is_twice_as_large(links):
    assert links.all_reduce(4, 1e6) == pytest.approx(6e-3 + 4e-3)
    assert links.all_reduce(2, 1e6) == pytest.approx((6e-3 + 8e-3) / 3)
    assert links.all_reduce(1, 1e6) == 0


@pytest.mark.parametrize(("cores", "slots"), [(4, 7), (1, 4), (2, (1 + 1 + 1.5 + 2 + 1.5 + 1 + 1) / 2)])
def test_stages_that_share_cores_fill_the_bubble_of_the_others(cores, slots, monkeypatch):
    monkeypatch.setattr(own_steps, "CORES", cores)
    assert own_steps._pipelined(1.0, 0.0, 4, 4) == pytest.approx(slots)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)
def test_a_step_takes_at_least_its_arithmetic_and_one_message(strategy, links, monkeypatch):
    monkeypatch.setattr(own_steps, "CORES", 4)
    assert predicted(strategy, 1.0, links) > 1.002
