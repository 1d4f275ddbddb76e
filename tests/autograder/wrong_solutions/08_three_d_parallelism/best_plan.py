# ruff: noqa: F821
FAILS_AS = {
    "returns_both": ("NO_PLAN", "Return the plan"),
    "gives_up_when_the_first_does_not_fit": ("PLAN_REFUSED", "Go through all plans"),
    "cuts_anything": ("IMPOSSIBLE_PLAN", "raise a ValueError"),
    "forgets_memory": ("PLAN_TOO_LARGE", "leave out such plans"),
    "never_recomputes": ("PLAN_REFUSED or SLOWER_PLAN", ""),
    "always_recomputes": ("SLOWER_PLAN", "with and without recompute"),
    "without_pipelines": ("PLAN_REFUSED or SLOWER_PLAN", ""),
    "one_sequence_a_microbatch": ("PLAN_REFUSED or SLOWER_PLAN", ""),
    "keeps_tensor_groups_in_a_node": ("PLAN_REFUSED", "may span nodes"),
    "fills_the_pipeline": ("PLAN_REFUSED", "fewer than the stages"),
    "least_memory": ("SLOWER_PLAN", "Compare `seconds`"),
    "computing_alone": ("SLOWER_PLAN", "the sum of all parts"),
    "trusts_a_wrong_estimate": ("SLOWER_PLAN", "does estimate_step pass its own check"),
    "powers_of_two": ("SLOWER_PLAN", "each size of each axis"),
    "returns_the_smallest_if_none_fits": ("UNFIT_ACCEPTED", "raise a ValueError"),
    "refuses_without_numbers": ("UNFIT_WITHOUT_NUMBERS", "in GB"),
    "refuses_in_gib": ("UNFIT_WITHOUT_NUMBERS", "10⁹ bytes"),
    "refuses_in_bytes": ("UNFIT_WITHOUT_NUMBERS", "10⁹ bytes"),
    "takes_the_least_of_nothing": ("REFUSED_WITHOUT_GPUS", "number of GPUs"),
}


def seconds(found):
    return found[1].seconds


def fastest(model, cluster, plans):
    return min(fitting(model, cluster, plans), key=seconds)[0]


def returns_both(model, cluster):
    return min(fitting(model, cluster, all_plans(model, cluster)), key=seconds)


def gives_up_when_the_first_does_not_fit(model, cluster):
    plans = sorted(all_plans(model, cluster), key=lambda plan: Paper(model, cluster, plan).seconds)
    return fitting(model, cluster, plans[:1])[0][0]


def cuts_anything(model, cluster):
    return Plan(cluster.num_gpus, 1, 1, model.batch)


def forgets_memory(model, cluster):
    return min(all_plans(model, cluster), key=lambda plan: Paper(model, cluster, plan).seconds)


def never_recomputes(model, cluster):
    return fastest(model, cluster, all_plans(model, cluster, (False,)))


def always_recomputes(model, cluster):
    return fastest(model, cluster, all_plans(model, cluster, (True,)))


def without_pipelines(model, cluster):
    return fastest(model, cluster, (plan for plan in all_plans(model, cluster) if plan.pipeline == 1))


def one_sequence_a_microbatch(model, cluster):
    plans = all_plans(model, cluster)
    smallest = (plan for plan in plans if plan.data * plan.num_microbatches == model.batch)
    return fastest(model, cluster, smallest)


def keeps_tensor_groups_in_a_node(model, cluster):
    plans = all_plans(model, cluster)
    return fastest(model, cluster, (plan for plan in plans if plan.tensor <= cluster.gpus_per_node))


def fills_the_pipeline(model, cluster):
    plans = all_plans(model, cluster)
    return fastest(model, cluster, (plan for plan in plans if plan.num_microbatches >= plan.pipeline))


def least_memory(model, cluster):
    return min(fitting(model, cluster, all_plans(model, cluster)), key=lambda found: found[1].memory)[0]


def computing_alone(model, cluster):
    found = fitting(model, cluster, all_plans(model, cluster))
    return min(found, key=lambda each: each[1].compute)[0]


def trusts_a_wrong_estimate(model, cluster):
    """Of a step without communication; its memory is right."""
    found = fitting(model, cluster, all_plans(model, cluster))
    return min(found, key=lambda each: each[1].compute + each[1].bubble)[0]


def powers_of_two(model, cluster):
    """GPT-3 has 96 heads and 96 layers, and a batch of 1,536: thirds are wanted, too."""
    found = (
        plan
        for plan in all_plans(model, cluster)
        if all(size & (size - 1) == 0 for size in (plan.pipeline, plan.tensor, plan.num_microbatches))
    )
    return fastest(model, cluster, found)


def returns_the_smallest_if_none_fits(model, cluster):
    try:
        return fastest(model, cluster, all_plans(model, cluster))
    except ValueError:
        return next(all_plans(model, cluster))


def refuses_without_numbers(model, cluster):
    try:
        return fastest(model, cluster, all_plans(model, cluster))
    except ValueError:
        raise ValueError("no plan fits") from None


def refusing(model, cluster, written):
    plans = list(all_plans(model, cluster))
    least = min((Paper(model, cluster, plan).memory for plan in plans), default=0.0)
    if least > cluster.memory:
        raise ValueError(f"{written(least)} at least, {written(cluster.memory)} there")
    return fastest(model, cluster, plans)


def refuses_in_gib(model, cluster):
    return refusing(model, cluster, lambda memory: f"{memory / 2**30:.1f} GiB")


def refuses_in_bytes(model, cluster):
    return refusing(model, cluster, lambda memory: f"{memory:.0f} bytes")


def takes_the_least_of_nothing(model, cluster):
    """Python refuses that with a ValueError of its own."""
    plans = list(all_plans(model, cluster))
    min(Paper(model, cluster, plan).memory for plan in plans)
    return fastest(model, cluster, plans)
