"""The capstone's simulated time, by hand: the cost of work and collectives, and that no clock goes in."""

import math
import re
from dataclasses import replace
from fractions import Fraction

import pytest
import torch

from autograder import check
from autograder.capstone import Cluster, Work
from autograder.inside.runs import TIMED_OUT, RunFailed
from autograder.kit.draws import Draws
from autograder.kit.student import NotebookFunction
from autograder.topics.capstone import clusters, plain
from autograder.topics.capstone.clocks import Clocks, OutOfOrder
from autograder.topics.capstone.job import LearningTask
from autograder.topics.capstone.training import Training
from fourranks.trace import Call
from tests.autograder import shelf
from tests.autograder.shelf import failure_of

TOPIC = "10_capstone"
CLUSTER = Cluster(
    nodes=((0, 1), (2, 3)),
    flops=(1e9, 1e9, 1e9, 5e8),
    memory=(1000.0,) * 4,
    launch_seconds=0.5,
    latency=((1.0,) * 4,) * 4,
    bandwidth=((100.0, 100.0, 10.0, 10.0),) * 2 + ((10.0, 10.0, 100.0, 100.0),) * 2,
    num_parameters=10,
    flops_of_row=1e9,
    bytes_of_row=100.0,
    bytes_of_recomputed_row=20.0,
)


def call(op="all_reduce", ranks=(0, 1, 2, 3), nbytes=40, **more):
    return Call(op=op, group=str(ranks), ranks=ranks, nbytes=nbytes, **more)


def seconds(*calls):
    """Each rank's clock after these calls, of those that are members of their groups."""
    clocks = Clocks(CLUSTER)
    clocks.communicate([[each for each in calls if rank in each.ranks] for rank in range(4)])
    return clocks.seconds


def test_work_takes_its_arithmetic_and_a_launch_for_each_microbatch():
    assert CLUSTER.compute_seconds(0, Work(6, 4)) == pytest.approx(6 + 2 * 0.5)
    assert CLUSTER.compute_seconds(3, Work(6, 4)) == pytest.approx(12 + 2 * 0.5)
    assert CLUSTER.compute_seconds(0, Work(6, 6, recompute=True)) == pytest.approx(8 + 0.5)
    assert CLUSTER.compute_seconds(0, Work(0, 4)) == 0


def test_a_work_with_fields_of_other_types_is_told_what_they_are():
    floats = shelf.wrong_solutions(TOPIC, "strategy")["CountsInFloats"]
    assert "of a float, an int, a bool" in str(failure_of("strategy", floats))


def test_a_microbatch_must_fit_and_recompute_makes_room():
    assert CLUSTER.fits(0, Work(100, 8))
    assert not CLUSTER.fits(0, Work(100, 9))
    assert CLUSTER.fits(0, Work(100, 42, recompute=True))


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([call()], [6 + 1.5 * 40 / 10] * 4),
        ([call("broadcast")], [3 + 40 / 10] * 4),
        ([call("all_gather")], [3 + 0.75 * 160 / 10] * 4),
        ([call(ranks=(0, 1))], [2 + 40 / 100, 2 + 40 / 100, 0, 0]),
        ([call(ranks=(0, 2))], [2 + 40 / 10, 0, 2 + 40 / 10, 0]),
        ([call("barrier", nbytes=0)], [6] * 4),
        ([call(ranks=(2,))], [0] * 4),
        ([call("new_group")], [0] * 4),
    ],
)
def test_a_collective_is_a_ring_as_fast_as_its_slowest_link(calls, expected):
    assert seconds(*calls) == pytest.approx(expected)


def test_a_collective_begins_when_its_last_rank_is_there():
    clocks = Clocks(CLUSTER)
    clocks.compute([Work(1, 1), Work(2, 1), Work(0, 1), Work(0, 1)])
    clocks.communicate([[call(ranks=(0, 1))], [call(ranks=(0, 1))], [], []])
    assert clocks.seconds == pytest.approx([3 + 2.4, 3 + 2.4, 0, 0])


def test_an_uneven_all_to_all_takes_what_its_busiest_rank_exchanges():
    uneven = [
        call("all_to_all_single", (0, 1), 50, exchange=((0, 50), (0, 10))),
        call("all_to_all_single", (0, 1), 10, exchange=((10, 0), (50, 0))),
    ]
    clocks = Clocks(CLUSTER)
    clocks.communicate([[uneven[0]], [uneven[1]], [], []])
    assert clocks.seconds[:2] == pytest.approx([1 + 50 / 100] * 2)


def test_when_calls_were_made_changes_nothing():
    late = replace(call(), start=100.0, end=200.0, waited=50.0)
    assert seconds(late) == seconds(call())


def test_calls_in_orders_that_do_not_fit_are_refused():
    one, other = call(ranks=(0, 1)), call("broadcast", ranks=(0, 1), seq=1)
    with pytest.raises(OutOfOrder):
        Clocks(CLUSTER).communicate([[one, other], [other, one], [], []])


@pytest.mark.parametrize("seed", range(5))
def test_a_drawn_cluster_has_a_slow_cable_in_the_ring_and_plain_work_fits(seed):
    cluster = clusters.draw(1000, Draws(seed))
    assert sorted(rank for node in cluster.nodes for rank in node) == [0, 1, 2, 3]
    assert cluster.bandwidth == tuple(zip(*cluster.bandwidth, strict=True))
    ring = [cluster.bandwidth[rank][(rank + 1) % 4] for rank in range(4)]
    assert min(ring) == min(map(min, cluster.bandwidth)) < clusters.ACROSS[1]
    assert sorted(cluster.flops)[:2] == pytest.approx([3e7, 1e8])
    assert all(cluster.fits(rank, plain.WORK) for rank in range(4))


def test_a_job_is_drawn_from_its_seed_alone():
    one, again, other = LearningTask(1), LearningTask(1), LearningTask(2)
    weights = one.first_weights
    assert torch.equal(one.gradient(weights, "a", 2), again.gradient(weights, "a", 2))
    assert not torch.equal(one.gradient(weights, "a", 2), one.gradient(weights, "b", 2))
    assert one.loss(weights) != other.loss(weights)
    assert one.loss(weights) == pytest.approx(math.log(12), abs=0.5)
    assert not one.gradient(weights, "a", 0).any()


def test_another_frugal_strategy_earns_all_points_and_is_told_its_cost(capfd):
    check.strategy(shelf.wrong_solutions(TOPIC, "strategy")["Frugal"], seed=5)
    assert ", cost 0.1" in capfd.readouterr().out


def test_groups_that_only_their_members_make_can_be_made_on_each_cluster():
    local = """
class MakesOwnGroups(Frugal):
    def make_groups(self):
        own = list(self.cluster.nodes[self.own])
        self.groups = {self.own: dist.new_group(own, use_local_synchronization=True)}
        if self.rank in self.pair:
            self.bridge = dist.new_group(sorted(self.pair), use_local_synchronization=True)
"""
    source = "\n".join([*shelf.sources(TOPIC, []), local])
    check.strategy(shelf.names(source, "local")["MakesOwnGroups"], num_clusters=2, seed=5)


def test_the_solution_earns_all_points_where_the_drawn_language_takes_the_most_steps(capfd):
    dearest_of_240 = 2073
    check.strategy(shelf.solutions(TOPIC)["Strategy"], seed=dearest_of_240)
    assert ", cost 0.16" in capfd.readouterr().out


def test_plain_data_parallelism_costs_1_and_earns_the_first_two_levels():
    given = (cell for cell in shelf.cells(TOPIC, lambda _: True) if "class PlainStrategy" in cell)
    (setup,) = shelf.cells(TOPIC, lambda cell: cell.get("grade_id") == "setup")
    imports = "\n".join(line for line in setup.splitlines() if not line.startswith("%"))
    failure = failure_of("strategy", shelf.names(f"{imports}\n{next(given)}", "plain")["PlainStrategy"])
    assert failure.verdict.share == Fraction(2, 5)
    assert failure.verdict.cost == pytest.approx(1, abs=0.04)


def test_weights_of_another_kind_are_described_as_those_that_were_expected():
    doubles = """
class Doubles(Frugal):
    def step(self, weights, gradient):
        return super().step(weights, gradient).double()
"""
    source = "\n".join([*shelf.sources(TOPIC, []), doubles])
    text = str(failure_of("strategy", shelf.names(source, "doubles")["Doubles"]))
    expected, got = re.findall(r"a (float\d+) tensor of shape \(\d+,\)", text)
    assert (expected, got) == ("float32", "float64")


def test_ranks_are_told_nothing_that_the_data_are_drawn_from_and_train_once():
    training, told = Training(Draws(3)), []

    class Listens(NotebookFunction):
        def run(self, inputs, **options):
            told.extend(inputs)
            raise RunFailed(TIMED_OUT, "heard enough")

    for _ in range(2):  # a training that has failed is not tried again: it could begin with what was learned
        with pytest.raises(RunFailed):
            training.run(Listens(print))
    assert len(told) == 4
    assert str(training.job.seed) not in repr(told)
