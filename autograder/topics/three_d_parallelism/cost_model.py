"""Checks of exercise 08's cost model: each part of an estimate, and the plan that a search finds.

`reference_costs` has the formulas, and what usual mistakes make of them.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from functools import partial
from math import prod

from autograder.inside.drivers import on_paper as drivers
from autograder.inside.drivers.on_paper import ReturnedFields
from autograder.kit.case import Trial, on_one_rank
from autograder.kit.check import Cases, Code, check
from autograder.kit.mistakes import Mistake
from autograder.kit.problem import Problem
from autograder.kit.values import apart, has_number, has_product, is_number
from autograder.on_paper import Cluster, Model, Plan
from autograder.topics.three_d_parallelism import mistakes
from autograder.topics.three_d_parallelism import reference_costs as reference
from autograder.topics.three_d_parallelism.banned import BANNED
from autograder.topics.three_d_parallelism.reference_costs import Costs

EXACT = 1e-9  # relative: a few roundings of float64
MOST = 1_000_000  # a plan's numbers are smaller
GPT3 = Model(num_layers=96, width=12288, num_heads=96, vocabulary=51200, sequence=2048, batch=1536)
OF_PART = {
    "compute": mistakes.WRONG_COMPUTE,
    "tensor": mistakes.WRONG_TENSOR_TIME,
    "bubble": mistakes.WRONG_BUBBLE_TIME,
    "pipeline": mistakes.WRONG_PIPELINE_TIME,
    "data": mistakes.WRONG_DATA_TIME,
    "memory": mistakes.WRONG_MEMORY,
}
USUAL: dict[Mistake, tuple[type[Costs], ...]] = {
    mistakes.ANOTHER_LINK: (reference.AnotherLink, reference.NoLinkButTheNetwork),
    mistakes.WITHOUT_THE_RING: (reference.WithoutTheRing,),
    mistakes.WITHOUT_LATENCY: (reference.WithoutLatency,),
    mistakes.BATCH_NOT_DIVIDED: (reference.BatchNotDivided,),
    mistakes.STATE_NOT_SHARDED: (reference.StateNotSharded,),
    mistakes.ALL_MICROBATCHES_ALIVE: (reference.AllAlive,),
}


@check(banned=BANNED)
def estimate_step(code: Code, cases: int = 12, seed: int = 0) -> Cases:
    """Check `estimate_step` on drawn models, clusters and plans, and on plans that cannot be."""
    draw = random.Random(seed)
    for _ in range(cases):
        model, cluster = _drawn(draw)
        plan = draw.choice(list(reference.all_plans(model, cluster)))
        yield _estimate_trial(model, cluster, plan)
    model, cluster = _drawn(draw)
    node = dataclasses.replace(cluster, num_gpus=cluster.gpus_per_node)
    yield _estimate_trial(model, node, Plan(node.num_gpus, 1, 1))
    for spoil in ("num_gpus", "num_layers", "num_heads", "batch"):
        model, cluster, plan = _impossible(spoil, draw)
        yield _refusal_trial(model, cluster, plan)


@check(banned=BANNED)
def best_plan(code: Code, cases: int = 6, seed: int = 0) -> Cases:
    """Check `best_plan`: its plan fits, none that fits is faster, and it says if there is none."""
    draw = random.Random(seed)
    for _ in range(cases):
        model, cluster = _drawn(draw)
        yield _search_trial(model, cluster)
        yield _search_trial(model, _scarce(model, cluster, draw))
    yield _search_trial(*_across_nodes(draw))
    yield _search_trial(*_deep(draw))
    _, cluster = _drawn(draw)
    cluster = dataclasses.replace(cluster, num_gpus=1024, gpus_per_node=8, memory=80e9)
    yield _search_trial(GPT3, cluster)
    yield _unfit_trial(GPT3, dataclasses.replace(cluster, num_gpus=8))
    yield _no_plan_trial(GPT3, dataclasses.replace(cluster, num_gpus=7))


def _drawn(draw: random.Random) -> tuple[Model, Cluster]:
    """Draw a model and a cluster of several nodes, for which there are many plans."""
    gpus_per_node = draw.choice((2, 4, 8))
    gpus = gpus_per_node * draw.choice((2, 4, 8))
    width = 128 * draw.randrange(8, 64)
    model = Model(
        num_layers=draw.choice((16, 24, 32, 48)),
        width=width,
        num_heads=draw.choice((16, 32)),
        vocabulary=1000 * draw.randrange(10, 60),
        sequence=draw.choice((1024, 2048, 4096)),
        batch=gpus * draw.choice((2, 4, 8)),
    )
    cluster = Cluster(
        num_gpus=gpus,
        gpus_per_node=gpus_per_node,
        flops=draw.uniform(1e14, 6e14),
        memory=1e12,
        node_bandwidth=draw.uniform(1e11, 5e11),
        network_bandwidth=draw.uniform(2e9, 5e10),
        latency=draw.uniform(5e-6, 2e-5),
    )
    return model, cluster


def _scarce(model: Model, cluster: Cluster, draw: random.Random) -> Cluster:
    """Give the cluster so little memory that the fastest plans do not fit."""
    costs = [Costs(model, cluster, plan).estimate() for plan in reference.all_plans(model, cluster)]
    memories = sorted(cost.memory for cost in costs)
    return dataclasses.replace(cluster, memory=1.001 * memories[len(memories) // draw.randrange(4, 20)])


def _across_nodes(draw: random.Random) -> tuple[Model, Cluster]:
    """Draw a model that fits only if a tensor group spans several nodes: with the least memory of all."""
    while True:
        model, cluster = _drawn(draw)
        _, least = reference.best(model, cluster)
        cluster = dataclasses.replace(cluster, memory=1.001 * least)
        plan, _ = reference.best(model, cluster)
        if plan is not None and plan.tensor > cluster.gpus_per_node:
            return model, cluster


def _deep(draw: random.Random) -> tuple[Model, Cluster]:
    """Draw a model whose every plan has fewer microbatches than stages."""
    model, cluster = _drawn(draw)
    model = dataclasses.replace(model, num_layers=16, num_heads=2, batch=2)
    return model, dataclasses.replace(cluster, num_gpus=16)


def _impossible(spoil: str, draw: random.Random) -> tuple[Model, Cluster, Plan]:
    model, cluster = _drawn(draw)
    cluster = dataclasses.replace(cluster, num_gpus=8)
    plan = Plan(2, 2, 2, num_microbatches=4)
    if spoil == "num_gpus":
        return model, cluster, dataclasses.replace(plan, data=4)
    return dataclasses.replace(model, **{spoil: getattr(model, spoil) + 1}), cluster, plan


def _estimate_trial(model: Model, cluster: Cluster, plan: Plan) -> Trial:
    recompute = ", recompute" if plan.recompute else ""
    microbatches = f"{plan.num_microbatches} microbatch{'es' * (plan.num_microbatches > 1)}"
    title = f"{plan.data} × {plan.pipeline} × {plan.tensor}, {microbatches}{recompute}"
    busy = sum(size > 1 for size in (plan.data, plan.pipeline, plan.tensor))
    return _trial(
        title, drivers.estimate, partial(_estimated, model, cluster, plan), busy, model, cluster, plan
    )


def _trial(
    title: str,
    driver: Callable[..., ReturnedFields],
    verify: Callable[[ReturnedFields], Problem | None],
    size: int,
    *arguments: Model | Cluster | Plan,
    answered: str = Trial.answered,
) -> Trial:
    """Make a trial of one call; `verify` gets the answer."""
    plain = tuple(map(dataclasses.asdict, arguments))
    return on_one_rank(
        title,
        plain,
        lambda outcome: verify(outcome.value),
        driver,
        size=size,
        answered=answered,
    )


def _estimated(model: Model, cluster: Cluster, plan: Plan, answer: ReturnedFields) -> Problem | None:
    if answer.refused is not None:
        return Problem(mistakes.POSSIBLE_PLAN_REFUSED, "a StepEstimate", f"ValueError: {answer.refused}")
    if answer.type != "StepEstimate":
        return Problem(mistakes.NO_ESTIMATE, "a StepEstimate", f"a {answer.type}")
    want = Costs(model, cluster, plan).estimate()
    for part, otherwise in OF_PART.items():
        got, wanted = answer.fields.get(part), getattr(want, part)
        if not is_number(got):
            return Problem(mistakes.NOT_A_NUMBER, f"{part}: a float", type(got).__name__)
        if _alike(got, wanted):
            continue
        made = (
            mistake
            for mistake, kinds in USUAL.items()
            if any(_alike(got, getattr(kind(model, cluster, plan).estimate(), part)) for kind in kinds)
        )
        expected, told = apart(wanted, got)
        return Problem(next(made, otherwise), f"{part}: {expected}", told)
    return None


def _alike(got: float, want: float) -> bool:
    return abs(got - want) <= EXACT * max(abs(got), abs(want))


def _refusal_trial(model: Model, cluster: Cluster, plan: Plan) -> Trial:
    found = reference.indivisible(model, cluster, plan)
    assert found is not None
    number, factors = found
    return _refused(
        f"{number} and {prod(factors)} do not fit",
        f"a ValueError that names {number} and {prod(factors)}",
        lambda text: has_number(text, number) and has_product(text, factors),
        (mistakes.IMPOSSIBLE_PLAN_ACCEPTED, mistakes.REFUSED_WITHOUT_NUMBERS),
        drivers.estimate,
        *(model, cluster, plan),
    )


def _refused(
    title: str,
    expected: str,
    is_clear: Callable[[str], bool],
    otherwise: tuple[Mistake, Mistake],
    driver: Callable[..., ReturnedFields],
    *arguments: Model | Cluster | Plan,
) -> Trial:
    """Make a trial of a call that has to be refused.

    Args:
        title: of the trial.
        expected: for the student.
        is_clear: tells whether the text of a refusal names enough.
        otherwise: the mistakes of a call that is accepted, and of a refusal that names too little.
        driver: makes the call with `arguments`.
    """
    accepted, unclear = otherwise

    def verify(answer: ReturnedFields) -> Problem | None:
        if answer.refused is None:
            return Problem(accepted, expected, f"a {answer.type}")
        if is_clear(answer.refused):
            return None
        return Problem(unclear, expected, answer.refused or "one without a text")

    return _trial(title, driver, verify, 0, *arguments, answered=expected)


def _search_trial(model: Model, cluster: Cluster) -> Trial:
    plan, _ = reference.best(model, cluster)
    assert plan is not None
    gpus = f"{cluster.num_gpus} GPUs of {cluster.memory / 1e9:.3g} GB"
    title = f"{model.num_layers} layers of {model.width} on {gpus}"
    return _trial(title, drivers.choose, partial(_chosen, model, cluster, plan), 1, model, cluster)


def _chosen(model: Model, cluster: Cluster, best: Plan, answer: ReturnedFields) -> Problem | None:
    want = Costs(model, cluster, best).estimate()
    expected = f"{_text(best)}: {want.seconds:.6g} s"
    if answer.refused is not None:
        return Problem(mistakes.PLAN_REFUSED, expected, f"ValueError: {answer.refused}")
    if answer.type != "Plan":
        return Problem(mistakes.NO_PLAN, expected, f"a {answer.type}")
    plan = _read(answer)
    if plan is None or reference.indivisible(model, cluster, plan):
        return Problem(mistakes.IMPOSSIBLE_PLAN, expected, _text(plan) if plan else f"{answer.fields}")
    cost = Costs(model, cluster, plan).estimate()
    got = f"{_text(plan)}: {cost.seconds:.6g} s, {cost.memory / 1e9:.3g} GB"
    if cost.memory > cluster.memory * (1 + EXACT):
        return Problem(mistakes.PLAN_TOO_LARGE, expected, got)
    if cost.seconds > want.seconds * (1 + EXACT):
        return Problem(mistakes.SLOWER_PLAN, expected, got)
    return None


def _read(answer: ReturnedFields) -> Plan | None:
    """Read the plan of an answer; its numbers may be anything."""
    sizes = []
    for name in ("data", "pipeline", "tensor", "num_microbatches"):
        size = answer.fields.get(name)
        if type(size) is not int or not 0 < size <= MOST:
            return None
        sizes.append(size)
    data, pipeline, tensor, num_microbatches = sizes
    return Plan(data, pipeline, tensor, num_microbatches, answer.fields.get("recompute") is True)


def _text(plan: Plan) -> str:
    recompute = ", recompute" if plan.recompute else ""
    return f"{plan.data} × {plan.pipeline} × {plan.tensor}, m = {plan.num_microbatches}{recompute}"


def _unfit_trial(model: Model, cluster: Cluster) -> Trial:
    _, least = reference.best(model, cluster)
    return _refused(
        "no plan fits",
        "a ValueError that names the memory of a GPU and the least that a plan takes, in GB",
        lambda text: _has_gb(text, cluster.memory) and _has_gb(text, least),
        (mistakes.UNFIT_ACCEPTED, mistakes.UNFIT_WITHOUT_NUMBERS),
        drivers.choose,
        *(model, cluster),
    )


def _no_plan_trial(model: Model, cluster: Cluster) -> Trial:
    return _refused(
        f"no plan for {cluster.num_gpus} GPUs",
        f"a ValueError that names {cluster.num_gpus} GPUs",
        lambda text: has_number(text, cluster.num_gpus),
        (mistakes.IMPOSSIBLE_PLAN, mistakes.REFUSED_WITHOUT_GPUS),
        drivers.choose,
        *(model, cluster),
    )


def _has_gb(text: str, nbytes: float) -> bool:
    """Tell whether a text has a number of bytes in GB, with up to three digits behind the point."""
    gigabytes = nbytes / 1e9
    return any(
        has_number(text, f"{gigabytes:{comma}.{digits}f}") for comma in ("", ",") for digits in range(4)
    )
