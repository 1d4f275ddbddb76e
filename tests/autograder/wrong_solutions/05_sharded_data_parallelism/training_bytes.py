FAILS_AS = {
    "shards_everything_at_once": ("EVERYTHING_SHARDED", "Only stage 3"),
    "shards_nothing": ("NOTHING_SHARDED", "From stage 1 on"),
    "counts_stages_from_one": ("NOTHING_SHARDED", "From stage 1 on"),
    "counts_stages_from_minus_one": ("STAGE_OFF_BY_ONE", "Stage 0 shards nothing"),
    "shards_gradients_with_the_weights": ("STAGE_OFF_BY_ONE", "stage 2 gradients too"),
    "trains_in_float32": ("FLOAT32_TRAINING", "mixed precision"),
    "forgets_the_master_weights": ("NO_MASTER_WEIGHTS", "master weight in float32"),
    "keeps_gradients_in_float32": ("GRADIENTS_IN_FLOAT32", "16 bits"),
    "adds_up_all_ranks": ("BYTES_OF_ALL_RANKS", "one rank"),
    "in_GB": ("NOT_IN_BYTES", "Return bytes"),
    "divides_without_a_rest": ("ROUNDED_BYTES", "not with //"),
    "accepts_every_stage": ("UNKNOWN_STAGE", "ValueError"),
    "prints_it": ("NOT_A_NUMBER", "`return`"),
    "twelve_for_all": ("WRONG_BYTES", "Add up three terms"),
}


def costs(num_params, world_size, stage, parts=(2, 2, 12)):
    if stage not in (0, 1, 2, 3):
        raise ValueError(f"no stage {stage}")
    return sum(num_params * part / (world_size if stage >= 3 - at else 1) for at, part in enumerate(parts))


def shards_everything_at_once(num_params, world_size, stage):
    return costs(num_params, world_size, stage and 3)


def shards_nothing(num_params, world_size, stage):
    return costs(num_params, 1, stage)


def counts_stages_from_one(num_params, world_size, stage):
    return costs(num_params, world_size, stage) if stage == 0 else costs(num_params, world_size, stage - 1)


def counts_stages_from_minus_one(num_params, world_size, stage):
    return costs(num_params, world_size, stage) if stage == 3 else costs(num_params, world_size, stage + 1)


def shards_gradients_with_the_weights(num_params, world_size, stage):
    return costs(num_params, world_size, 1 if stage == 2 else stage)


def trains_in_float32(num_params, world_size, stage):
    return costs(num_params, world_size, stage, (4, 4, 8))


def forgets_the_master_weights(num_params, world_size, stage):
    return costs(num_params, world_size, stage, (2, 2, 8))


def keeps_gradients_in_float32(num_params, world_size, stage):
    return costs(num_params, world_size, stage, (2, 4, 12))


def adds_up_all_ranks(num_params, world_size, stage):
    return world_size * costs(num_params, world_size, stage)


def in_GB(num_params, world_size, stage):
    return costs(num_params, world_size, stage) / 1e9


def divides_without_a_rest(num_params, world_size, stage):
    return costs(num_params, world_size, stage) // 1


def accepts_every_stage(num_params, world_size, stage):
    return costs(num_params, world_size, min(max(stage, 0), 3))


def prints_it(num_params, world_size, stage):
    print(costs(num_params, world_size, stage))


def twelve_for_all(num_params, world_size, stage):
    return costs(num_params, world_size, stage, (0, 0, 12))
