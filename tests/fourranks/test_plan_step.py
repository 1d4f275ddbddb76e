"""Memory, collectives and time of a step on paper, against values worked out by hand."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from fourranks.plan import collectives, memory, step
from fourranks.plan.cluster import GPUS, Cluster, PlanError
from fourranks.plan.layout import Plan
from fourranks.plan.schedule import bubble_slots
from fourranks.plan.search import Choices, best_plan, candidates
from fourranks.plan.step import estimate_step
from fourranks.plan.timeline import predicted_trace
from fourranks.plan.transformer import MODELS, Transformer, find_model

GPT3 = MODELS["gpt3-175b"]
SMALL = Transformer(layers=8, hidden=1024, heads=16, sequence=1024, vocabulary=1000)
NODE = Cluster(GPUS["h100"], 8)


@pytest.mark.parametrize(
    "plan, gigabytes",
    [
        (Plan(), 2.87),
        (Plan(tensor=8), 0.58),
        (Plan(tensor=8, sequence_parallel=True), 0.36),
        (Plan(tensor=8, sequence_parallel=True, recompute="selective"), 0.107),
        (Plan(tensor=8, sequence_parallel=True, flash=True), 0.107),
        (Plan(recompute="full"), 0.050),
    ],
    ids=["alone", "tensor", "sequence", "selective", "flash", "full"],
)
def test_activations_of_a_gpt3_layer_are_those_of_the_paper(plan, gigabytes):
    assert memory.activation_bytes_per_layer(GPT3, plan) / 1e9 == pytest.approx(gigabytes, rel=0.015)


@pytest.mark.parametrize(
    "stage, bytes_per_parameter", [(0, 16), (1, 4 + 12 / 8), (2, 2 + 14 / 8), (3, 16 / 8)]
)
def test_zero_divides_what_its_stage_says(stage, bytes_per_parameter):
    plan = Plan(data=8, zero=stage, batch=8)
    found = memory.memory(SMALL, plan)
    kept = found.weights + found.gradients + found.state
    gathered = 4 * SMALL.layer_parameters if stage == 3 else 0
    assert (kept - gathered) / SMALL.parameters == pytest.approx(bytes_per_parameter)


@pytest.mark.parametrize(
    "name, billions", [("llama3-8b", 8.03), ("llama3-70b", 70.6), ("mixtral-8x7b", 46.7)]
)
def test_models_have_the_parameters_they_are_named_for(name, billions):
    assert find_model(name).parameters / 1e9 == pytest.approx(billions, rel=0.01)


def test_experts_are_divided_once_by_their_ranks_and_by_zero_together():
    model = replace(SMALL, experts=8, active_experts=2)
    apart, whole = (memory.memory(model, Plan(data=8, batch=8, zero=1, expert=size)) for size in (8, 1))
    assert apart.weights < whole.weights / 4
    assert apart.state == whole.state == pytest.approx(12 * model.parameters / 8)


def test_a_ring_moves_each_part_to_every_rank():
    lossless = replace(GPUS["h100"].constants, nvlink_efficiency=1.0)
    four = Cluster(replace(GPUS["h100"], nvlink_bandwidth=100e9, constants=lossless), 4)
    bytes_take, messages_take = 2 * 3 / 4 * 4e-3, 2 * 3 * collectives.NVLINK_LATENCY
    assert collectives.hierarchical(2, four, 4, 1, 400e6) == pytest.approx(bytes_take + messages_take)
    single_gpus = Cluster(GPUS["h100"], 1024, gpus_per_node=1)
    assert collectives.hierarchical(2, single_gpus, 1024, 1, 0) == pytest.approx(2 * 1023 * 10e-6)
    assert collectives.pipelined_tree(1024, 0, 10e-6, 1 / 50e9) == pytest.approx(20 * 10e-6)


def test_a_group_with_all_gpus_of_a_node_uses_all_its_cards():
    two_nodes = Cluster(GPUS["h100"], 16)
    whole, *_ = collectives.group_bandwidth(two_nodes, 16, 1)
    rail, *_ = collectives.group_bandwidth(two_nodes, 2, 8)
    efficiency = GPUS["h100"].constants.network_efficiency
    assert rail == pytest.approx(50e9 * efficiency)
    assert whole == pytest.approx(min(400e9 * efficiency, 450e9 * GPUS["h100"].constants.nvlink_efficiency))


@pytest.mark.parametrize("field", ["memory_bandwidth", "nvlink_bandwidth", "card_bandwidth", "peak_flops"])
def test_a_faster_part_never_makes_a_step_slower(field):
    plan = Plan(data=4, tensor=2, pipeline=4, batch=32, micro_batch=2)
    slow = Cluster(GPUS["a100"], 32)
    fast = replace(slow, gpu=replace(slow.gpu, **{field: 2 * getattr(slow.gpu, field)}))
    model = MODELS["gpt-22b"]
    assert estimate_step(model, fast, plan).seconds < estimate_step(model, slow, plan).seconds


def test_schedules_shrink_the_bubble_in_their_order():
    bubbles = [
        estimate_step(SMALL, NODE, Plan(pipeline=8, batch=16, schedule=schedule, chunks=chunks)).bubble
        for schedule, chunks in (("1f1b", 1), ("zero-bubble", 1))
    ]
    assert bubbles[0] > bubbles[1] > 0
    half = estimate_step(
        SMALL, Cluster(GPUS["h100"], 4), Plan(pipeline=4, chunks=2, schedule="interleaved", batch=16)
    )
    whole = estimate_step(SMALL, Cluster(GPUS["h100"], 4), Plan(pipeline=4, batch=16))
    assert half.bubble == pytest.approx(whole.bubble / 2, rel=0.05)


def test_gpipe_takes_the_time_of_1f1b_and_more_memory():
    plan = Plan(pipeline=4, batch=16, data=2)
    gpipe = estimate_step(SMALL, NODE, replace(plan, schedule="gpipe"))
    assert gpipe.seconds == estimate_step(SMALL, NODE, plan).seconds
    assert gpipe.memory.activations == 2 * estimate_step(SMALL, NODE, plan).memory.activations


@pytest.mark.parametrize(
    "plan, told",
    [
        (Plan(data=8, batch=9), "does not divide into 8 data-parallel"),
        (Plan(tensor=3, batch=1), "16 heads do not divide"),
        (Plan(pipeline=16, batch=1), "8 layers are fewer than 16 stages"),
        (Plan(data=0, batch=1), "at least 1"),
        (Plan(batch=1), "the plan is for 1 GPUs, the cluster has 8"),
        (Plan(data=8, batch=8, zero=4), "ZeRO 0 to 3"),
        (Plan(data=8, batch=8, expert=2), "expert-parallel"),
    ],
    ids=["batch", "heads", "layers", "zero size", "gpus", "stage", "experts"],
)
def test_a_plan_that_cannot_be_says_why(plan, told):
    with pytest.raises(PlanError, match=told):
        estimate_step(SMALL, NODE, plan)


def test_the_best_plan_fits_and_none_that_fits_is_faster():
    model, cluster = MODELS["llama3-70b"], Cluster(GPUS["h100"], 64)
    best = estimate_step(model, cluster, best_plan(model, cluster, 256))
    assert best.fits
    assert best.seconds == min(
        each.estimate.seconds for each in candidates(model, cluster, 256) if each.estimate.fits
    )


def test_all_plans_for_1024_gpus_are_found_within_2_seconds_of_processor_time():
    begun = time.process_time()
    assert len(candidates(MODELS["llama3-70b"], Cluster(GPUS["h100"], 1024), 4096)) > 200
    assert time.process_time() - begun < 2


def test_a_search_has_every_schedule_and_stage_that_can_win():
    plans = [each.plan for each in candidates(MODELS["gpt-22b"], Cluster(GPUS["a100"], 64), 256)]
    assert {plan.schedule for plan in plans} == {"1f1b", "interleaved", "zero-bubble"}
    assert {plan.zero for plan in plans} >= {1, 2, 3}
    assert len({plan.chunks for plan in plans if plan.pipeline == 4}) > 2
    assert all(plan.microbatches % plan.pipeline == 0 for plan in plans if plan.schedule == "interleaved")


def test_a_search_takes_what_it_is_asked_for():
    asked = Choices(schedules=("gpipe",), stages=(2,), recompute=("selective",))
    plans = [each.plan for each in candidates(SMALL, NODE, 32, asked)]
    assert {plan.schedule for plan in plans if plan.pipeline > 1} == {"gpipe"}
    assert {plan.zero for plan in plans if plan.data > 1} == {2}
    assert {(plan.recompute, plan.flash) for plan in plans} == {("selective", False)}


@pytest.mark.parametrize(
    "asked, told",
    [
        (Choices(schedules=("2f2b",)), "no schedule '2f2b'"),
        (Choices(stages=(4,)), "no stage of ZeRO '4'"),
        (Choices(recompute=()), "no recompute ''"),
    ],
)
def test_what_no_plan_can_have_is_refused(asked, told):
    with pytest.raises(PlanError, match=told):
        candidates(SMALL, NODE, 32, asked)


def test_a_split_backward_fills_less_of_the_bubble_where_backward_repeats_forward():
    plan = Plan(pipeline=5, batch=16, schedule="zero-bubble")
    assert bubble_slots(plan) == pytest.approx(4 / 3)
    assert bubble_slots(replace(plan, recompute="full")) == pytest.approx(2)


def test_zero_2_reduces_gradients_in_every_microbatch():
    slow = Cluster(replace(GPUS["h100"], card_bandwidth=1e6), 16)
    once, often = (Plan(data=16, batch=64, zero=stage, overlap=True) for stage in (1, 2))
    exposed = [estimate_step(SMALL, slow, plan).data for plan in (once, often)]
    assert exposed[1] == pytest.approx((1 + once.microbatches) / 2 * exposed[0], rel=0.05)


def test_traffic_behind_computing_costs_a_fifth_of_its_time():
    assert step._exposed(1.0, 5.0) == pytest.approx(0.2)
    assert step._exposed(5.0, 1.0) == pytest.approx(4.2)


def test_what_does_not_fit_says_what_is_too_large():
    with pytest.raises(PlanError, match=r"no plan fits: .* GB a GPU, 6\d\d GB of them for state"):
        best_plan(MODELS["llama3-405b"], NODE, 32)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_the_predicted_trace_has_the_bubble_of_the_formula(schedule):
    plan = Plan(pipeline=4, batch=8, schedule=schedule)
    estimate = estimate_step(SMALL, Cluster(GPUS["h100"], 4), plan)
    trace = predicted_trace(plan, estimate)
    whole = trace.cells[0][0].end
    assert whole == pytest.approx((8 + 3) * (estimate.forward + estimate.backward))
    work = 8 * (estimate.forward + estimate.backward)
    assert [rank.seconds("computing") for rank in trace.spans()] == pytest.approx([work] * 4, rel=0.02)


def test_data_parallelism_alone_would_be_fastest_on_four_h100s_but_does_not_fit_as_lecture_08_says():
    llama, node = find_model("llama3-8b"), Cluster(GPUS["h100"], 4, gpus_per_node=4)
    best, *_ = found = candidates(llama, node, 16)
    alone = [each for each in found if each.plan.data == 4]
    stored = min(each.estimate.seconds for each in alone if each.plan.recompute == "none")
    assert (best.plan.data, best.plan.context) == (2, 2)
    assert stored < best.estimate.seconds
    assert not any(each.estimate.fits for each in alone if each.plan.recompute == "none")
    recomputed = min(each.estimate.seconds for each in alone if each.estimate.fits)
    assert 1.2 < recomputed / stored < 1.33


@pytest.mark.parametrize("pipeline", [1, 2, 4, 8, 16, 32])
def test_stages_shrink_neither_the_state_of_zero_1_nor_the_activations_of_1f1b_as_lecture_08_says(pipeline):
    data = 128 // pipeline
    plan = Plan(
        data=data,
        pipeline=pipeline,
        tensor=8,
        batch=1536,
        zero=1,
        sequence_parallel=True,
        flash=True,
        overlap=True,
    )
    estimate = estimate_step(find_model("gpt3-175b"), Cluster(GPUS["h100"], 1024), plan)
    assert estimate.memory.state == pytest.approx(12 * 175e9 / 1024, rel=0.15)
    assert estimate.memory.activations == pytest.approx(10.3e9, rel=0.01)
    assert estimate.bubble / (estimate.compute + estimate.tensor) == pytest.approx(
        (pipeline - 1) / (12 * pipeline), abs=0.01
    )
