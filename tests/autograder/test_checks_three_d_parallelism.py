"""Beyond what `test_checks` asks of meshes and plans: other right ways, and what is told of wrong ones."""

import dataclasses
from math import prod

import pytest

from autograder import check
from autograder.on_paper import Cluster, Model, Plan
from autograder.topics.three_d_parallelism import reference_costs as reference
from autograder.topics.three_d_parallelism.axis_traffic import Allowance, excess
from autograder.topics.three_d_parallelism.meshes import members
from fourranks.trace import Call
from tests.autograder import shelf
from tests.autograder.shelf import failure_of

TOPIC = "08_three_d_parallelism"
MODEL = Model(num_layers=24, width=2048, num_heads=16, vocabulary=32000, sequence=2048, batch=64)
CLUSTER = Cluster(
    num_gpus=16,
    gpus_per_node=8,
    flops=4e14,
    memory=80e9,
    node_bandwidth=3e11,
    network_bandwidth=3e10,
    latency=1e-5,
)


@pytest.mark.parametrize(
    ("operation", "name", "limits"),
    [
        ("build_mesh", "right", {"meshes": ((2, 1, 2),)}),
        ("checkpointed", "WithAFunction", {"num_layers": (1, 2)}),
        ("train_step", "Trainer", {"meshes": ((2, 1, 2), (1, 2, 2)), "steps": 2}),
        ("build_mesh", "names_each_size", {"meshes": ((2, 1, 2),)}),
        ("estimate_step", "Paper", {"cases": 20}),
        ("estimate_step", "NamesEachFactor", {"cases": 1}),
        ("ring_attention", "Ring", {"world_sizes": (1, 3)}),
        ("dispatch_to_experts", "Experts", {"world_sizes": (1, 3)}),
        ("dispatch_to_experts", "AddsUpATableOfNumbers", {"world_sizes": (3,)}),
    ],
)
def test_another_way_of_being_right_passes(operation, name, limits):
    getattr(check, operation)(shelf.wrong_solutions(TOPIC, operation)[name], **limits)


KEEPS_ITS_STATE = {
    "in attributes of the mesh": """
def train_step(model_config, mesh, batch):
    mesh.steps = getattr(mesh, "steps", 0) + 1
    return Trainer(model_config, mesh, batch)
""",
    "in a dict with the mesh as its key": """
def train_step(model_config, mesh, batch, steps={}):
    steps[mesh] = steps.get(mesh, 0) + 1
    return Trainer(model_config, mesh, batch)
""",
}


@pytest.mark.parametrize("source", KEEPS_ITS_STATE.values(), ids=KEEPS_ITS_STATE)
def test_a_step_may_keep_its_state_wherever_it_likes(source):
    train_step = shelf.names("\n".join([*shelf.sources(TOPIC, ["train_step"]), source]), "cell")["train_step"]
    check.train_step(train_step, meshes=((1, 2, 2),), steps=2)


def test_a_skipped_block_ends_in_a_deadlock_that_names_the_ranks_that_wait():
    skips = shelf.wrong_solutions(TOPIC, "ring_attention")["SkipsWhatIsMasked"]
    text = str(failure_of("ring_attention", skips, world_sizes=(3,)))
    assert "through the backward pass" in text
    assert "Rank 0 finished" in text


def test_one_call_is_named_in_the_singular():
    twice = shelf.wrong_solutions(TOPIC, "checkpointed")["computes_twice_at_once"]
    text = str(failure_of("checkpointed", twice, num_layers=(1,)))
    assert "1 call in forward, 2 in all" in text


def test_what_meshes_that_go_wrong_have_in_common_is_told_of_training_only():
    own_groups = shelf.wrong_solutions(TOPIC, "build_mesh")["only_own_groups"]
    assert "group of its own axis" not in failure_of("build_mesh", own_groups).verdict.hint


def test_a_plan_that_is_too_large_is_told_with_its_memory():
    forgets = shelf.wrong_solutions(TOPIC, "best_plan")["forgets_memory"]
    assert " GB" in str(failure_of("best_plan", forgets))


@pytest.mark.parametrize("sizes", [(2, 2, 2), (3, 1, 2), (1, 4, 1)])
def test_the_groups_along_an_axis_divide_the_ranks(sizes):
    for axis, size in enumerate(sizes):
        groups = {tuple(members(sizes, rank, axis)) for rank in range(prod(sizes))}
        assert sorted(rank for group in groups for rank in group) == list(range(prod(sizes)))
        assert {len(group) for group in groups} == {size}


class TestTheCostModel:
    def test_every_plan_uses_all_gpus_and_divides_the_model(self):
        plans = list(reference.all_plans(MODEL, CLUSTER))
        assert len(set(plans)) == len(plans) > 50
        assert all(reference.indivisible(MODEL, CLUSTER, plan) is None for plan in plans)

    def test_one_gpu_communicates_nothing(self):
        alone = dataclasses.replace(CLUSTER, num_gpus=1)
        cost = reference.Costs(MODEL, alone, Plan(1, 1, 1)).estimate()
        assert cost.seconds == cost.compute > 0

    def test_recompute_takes_time_and_saves_memory(self):
        kept, again = (
            reference.Costs(MODEL, CLUSTER, Plan(2, 4, 2, 4, recompute)).estimate()
            for recompute in (False, True)
        )
        assert again.compute > kept.compute
        assert again.memory < kept.memory

    def test_a_tensor_group_that_leaves_its_node_pays_the_network(self):
        narrow = dataclasses.replace(CLUSTER, gpus_per_node=2)
        inside, across = (
            reference.Costs(MODEL, cluster, Plan(2, 2, 4, 4)).estimate() for cluster in (CLUSTER, narrow)
        )
        assert across.tensor > 5 * inside.tensor

    def test_none_is_best_where_none_fits(self):
        plan, least = reference.best(MODEL, dataclasses.replace(CLUSTER, memory=1.0))
        assert plan is None
        assert least > 1e6


class TestTrafficAlongAnAxis:
    ALLOWED = Allowance(rank=0, members=[[0, 4], [0, 2], [0, 1]], nbytes=[1000.0, 500.0, 0.0])

    def call(self, op, ranks, nbytes, **more):
        return Call(op=op, group="g", ranks=ranks, nbytes=nbytes, **more)

    def test_what_stays_within_the_allowance_is_no_problem(self):
        calls = [self.call("all_reduce", (0, 4), 1000), self.call("send", (0, 2), 500, peer=2)]
        assert excess(self.ALLOWED, calls, "rank 0") is None

    @pytest.mark.parametrize(
        ("call", "mistake"),
        [
            (("all_reduce", (0, 4), 1010), "DATA_BYTES"),
            (("all_gather", (0, 1), 100), "TENSOR_BYTES"),
            (("all_reduce", (0, 1, 2, 3, 4), 100), "ACROSS_AXES"),
        ],
    )
    def test_what_goes_beyond_is_told_by_its_axis(self, call, mistake):
        problem = excess(self.ALLOWED, [self.call(*call)], "rank 0")
        assert shelf.name_of(problem.mistake) == mistake

    def test_a_message_past_the_group_crosses_axes_and_a_loss_may_go_anywhere(self):
        far = self.call("send", (0, 1, 2, 3, 4), 100, peer=3)
        assert shelf.name_of(excess(self.ALLOWED, [far], "rank 0").mistake) == "ACROSS_AXES"
        loss = self.call("all_reduce", (0, 1, 2, 3, 4), 8)
        assert excess(self.ALLOWED, [loss], "rank 0") is None


def test_a_single_microbatch_is_named_in_the_singular():
    seconds = shelf.wrong_solutions(TOPIC, "estimate_step")["returns_seconds"]
    results = failure_of("estimate_step", seconds).verdict.results
    titles = [str(result.case) for result in results]
    assert any("1 microbatch" in title for title in titles)
    assert not any("1 microbatches" in title for title in titles)
