"""Every check, on real ranks: solutions pass, a wrong one fails for its own reason.

What a single exercise asks beyond that is in `test_checks_<topic>.py`. With the arguments of its own test
cells a solution runs in `tests/class`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest
import torch

from autograder import check
from autograder.kit.student import Function
from autograder.kit.verdict import Verdict
from autograder.sandbox.student_process import StudentProcess
from tests.autograder import shelf
from tests.autograder.shelf import failure_of

Limits = Mapping[str, object]


@dataclass(frozen=True)
class Part:
    """Checks of one exercise that are asked alike.

    Attributes:
        topic: whose exercise it is.
        names: of the checked code, by the check's name, where that is another name.
        behind_wire: for some checks a mistake that another process makes, too.
        operations: the checks; by default all of the topic.
        more: arguments that a hidden test might give, by check; "" stands for all that are not named.
        few: arguments that are enough to tell every mistake, likewise.
        for_groups: the same for mistakes that only a smaller group shows: their hint speaks of it.
        seeds: that `more` is tried with.
        timeout: seconds for one call of a wrong solution.
    """

    topic: str
    behind_wire: Mapping[str, str]
    operations: Sequence[str] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, Limits] = field(default_factory=dict)
    few: Mapping[str, Limits] = field(default_factory=dict)
    for_groups: Limits | None = None
    seeds: Sequence[int] = (7,)
    timeout: float = 10.0

    @property
    def checks(self) -> Sequence[str]:
        return self.operations or shelf.operations(self.topic)

    def name(self, operation: str) -> str:
        return self.names.get(operation, operation)

    def limits(self, by_check: Mapping[str, Limits], operation: str) -> Limits:
        return by_check.get(operation, by_check.get("", {}))

    def enough_for(self, operation: str, phrase: str) -> Limits:
        if self.for_groups and "group" in phrase:
            return self.for_groups
        return self.limits(self.few, operation)


MEASURED_ON_FOUR_RANKS = (
    "sharded_gradients",
    "sharded_module",
    "fully_sharded_data_parallel",
    "prefetching_fully_sharded_data_parallel",
)

PARTS = {
    "hello": Part(
        "00_hello",
        behind_wire={"average": "forgets_to_divide", "largest": "asks_rank_0_only"},
        more={"": {"world_sizes": (5, 8)}},
        few={"": {"world_sizes": (1, 2)}},
    ),
    "hardware_hierarchy": Part(
        "01_hardware_hierarchy",
        behind_wire={
            "transfer_seconds": "fails_without_hops",
            "parse_topology": "believes_every_entry",
            "measure_copy_bandwidth": "takes_the_mean",
        },
        more={
            "": {"cases": 30},
            "parse_topology": {"names": ("8_v100", "5_pcie")},
            "measure_copy_bandwidth": {"num_bytes": (1, 4099, 30_000_001)},
        },
        timeout=30.0,  # one sleeps long beside its copies, the longer the busier the machine is
    ),
    "collectives": Part(
        "02_collectives",
        behind_wire={
            "ring_all_reduce": "gathers_everything_and_adds",
            "broadcast": "needs_a_power_of_two",
            "exchange": "receives_as_float32",
            "scatter": "sends_to_itself",
            "all_to_all": "returns_the_work",
        },
        more={
            "": {
                "world_sizes": (8,),
                "numels": (0, 1, 13, 1009),
                "dtypes": (torch.float32, torch.float64, torch.int64, torch.bfloat16),
            }
        },
        few={"": {"world_sizes": (1, 2, 3, 4), "numels": (0, 1, 7, 40)}},
    ),
    "benchmarking": Part(
        "03_benchmarking",
        behind_wire={
            "benchmark": "never_synchronizes",
            "busbw": "counts_the_output_of_reduce_scatter",
            "fit_alpha_beta": "absolute_errors",
            "audit": "believes_every_time",
            "measure_cluster": "keeps_the_first_message",
        },
        more={
            "benchmark": {"world_sizes": (2, 8)},
            "busbw": {"world_sizes": (1, 7, 1000)},
            "corrected_reduce_scatter_busbw": {"world_sizes": (3, 1000)},
            "crossover_bytes": {"world_sizes": (2, 3, 6, 1000)},
            "audit": {"world_sizes": (3, 7, 256)},
            "measure_cluster": {"nodes": ((2, 5), (3, 3, 3))},
        },
        few={"benchmark": {"world_sizes": (1, 3)}},
        seeds=(7, 8),
    ),
    "data_parallelism": Part(
        "04_data_parallelism",
        behind_wire={
            "shard_batch": "deals_out_in_turn",
            "average_gradients": "by_way_of_rank_0",
            "distributed_data_parallel": "starts_in_finish",
            "bucketed_distributed_data_parallel": "closes_when_full",
            "accumulate": "one_backward_for_all",
        },
        operations=(
            "shard_batch",
            "average_gradients",
            "distributed_data_parallel",
            "bucketed_distributed_data_parallel",
            "accumulate",
        ),
        names={
            "distributed_data_parallel": "DistributedDataParallel",
            "bucketed_distributed_data_parallel": "BucketedDistributedDataParallel",
        },
        more={"": {"world_sizes": (8,)}},
        few={"": {"world_sizes": (2,)}},
        for_groups={"world_sizes": (3,)},
    ),
    "checkpoints": Part(
        "04_data_parallelism",
        behind_wire={
            "load_checkpoint": "executes_the_file",
            "save_checkpoint": "moves_the_earlier_file_away",
        },
        operations=("load_checkpoint", "save_checkpoint"),
        more={"": {"world_sizes": (8,), "widths": (3, 17, 9, 2)}},
        few={"": {"world_sizes": (2, 3)}},
    ),
    "less_communication": Part(
        "04_data_parallelism",
        behind_wire={"local_sgd_round": "clears_after_the_step", "top_k_compressor": "KeepsWhatItSends"},
        operations=("local_sgd_round", "top_k_compressor"),
        names={"top_k_compressor": "TopKCompressor"},
        more={"": {"world_sizes": (8,)}},
        few={"": {"world_sizes": (1, 2, 3)}},
    ),
    "sharded_data_parallelism": Part(
        "05_sharded_data_parallelism",
        behind_wire={
            "training_bytes": "counts_stages_from_minus_one",
            "sharded_optimizer": "sends_from_rank_0",
            "sharded_gradients": "lets_go_in_the_end",
            "sharded_parameter": "casts_what_it_has_gathered",
            "sharded_module": "keeps_the_latest",
            "fully_sharded_data_parallel": "keeps_weights_for_backward",
            "prefetching_fully_sharded_data_parallel": "waits_at_once",
        },
        names={
            "sharded_optimizer": "ShardedOptimizer",
            "sharded_gradients": "ShardedGradients",
            "sharded_parameter": "ShardedParameter",
            "sharded_module": "ShardedModule",
            "fully_sharded_data_parallel": "FullyShardedDataParallel",
            "prefetching_fully_sharded_data_parallel": "PrefetchingFullyShardedDataParallel",
        },
        more={"": {"world_sizes": (8,)}},
        few={
            "": {"world_sizes": (2,)},
            "training_bytes": {"world_sizes": (2, 7)},
            **dict.fromkeys(MEASURED_ON_FOUR_RANKS, {"world_sizes": (2, 4)}),
        },
        for_groups={"world_sizes": (3,)},
    ),
    "tensor_parallelism": Part(
        "06_tensor_parallelism",
        behind_wire={
            "copy_to_ranks": "returns_its_input",
            "all_gather_mlp": "all_reduces_between_layers",
            "row_parallel_linear": "adds_the_bias_on_every_rank",
            "parallel_attention": "cuts_qkv_as_one",
            "vocab_parallel_cross_entropy": "without_a_maximum",
        },
        names={
            "all_gather_mlp": "AllGatherMLP",
            "column_parallel_linear": "ColumnParallelLinear",
            "row_parallel_linear": "RowParallelLinear",
            "parallel_mlp": "ParallelMLP",
            "parallel_attention": "ParallelAttention",
            "sequence_parallel_mlp": "SequenceParallelMLP",
        },
        more={"": {"world_sizes": (8,)}},
        few={
            "": {"world_sizes": (3,)},  # and a group of two of them
            **dict.fromkeys(("copy_to_ranks", "reduce_from_ranks"), {"world_sizes": (2, 3)}),  # 2: bfloat16
        },
    ),
    "pipeline_parallelism": Part(
        "07_pipeline_parallelism",
        behind_wire={
            "assign_layers": "deals_out_in_turn",
            "one_f_one_b_schedule": "one_forward_too_few",
            "bubble_fraction": "leaves_out_what_is_stuck",
            "run_pipeline": "asks_first_and_then_sends",
            "split_backward_linear": "LatestFirst",
        },
        names={"split_backward_linear": "SplitBackwardLinear"},
        more={
            "": {"num_stages": (1, 7)},
            "bubble_fraction": {"num_stages": (2, 5), "num_chunks": (1, 3)},
            "run_pipeline": {"world_sizes": (8,)},
            "split_backward_linear": {"shapes": (((6, 2), 3, True),)},
        },
        few={
            "": {"num_stages": (1, 2, 3)},
            "run_pipeline": {"world_sizes": (2,)},
            "split_backward_linear": {},
        },
        for_groups={"world_sizes": (3,)},
    ),
    "three_d_parallelism": Part(
        "08_three_d_parallelism",
        behind_wire={
            "build_mesh": "swaps_two_groups",
            "checkpointed": "draws_again",
            "train_step": "SumsOverData",
            "estimate_step": "AlwaysNvlink",
            "best_plan": "forgets_memory",
            "ring_attention": "AveragesBlocks",
            "dispatch_to_experts": "ForgetsToPutBack",
        },
        more={
            "build_mesh": {"meshes": ((3, 1, 2), (1, 1, 8))},
            "checkpointed": {"num_layers": (4,)},
            "train_step": {"meshes": ((2, 4, 1), (3, 1, 1)), "steps": 4},
            "estimate_step": {"cases": 40},
            "best_plan": {"cases": 8},
            "ring_attention": {"world_sizes": (8,)},
            "dispatch_to_experts": {"world_sizes": (8,)},
        },
        few={
            "build_mesh": {"meshes": ((1, 2, 2), (2, 2, 1), (2, 1, 3))},
            "checkpointed": {"num_layers": (2,)},
            "train_step": {"meshes": ((2, 2, 1), (2, 1, 2), (1, 2, 2)), "steps": 3},
            "estimate_step": {"cases": 30},
            "ring_attention": {"world_sizes": (1, 3)},
            "dispatch_to_experts": {"world_sizes": (1, 3)},
        },
    ),
    "capstone": Part(
        "10_capstone",
        behind_wire={"strategy": "TakesAHugeMicrobatch"},
        names={"strategy": "Strategy"},
    ),
}
CHECKS = [(name, operation) for name, part in PARTS.items() for operation in part.checks]
MISTAKES = [
    (name, operation, mistake)
    for name, operation in CHECKS
    for mistake in shelf.wrong_solutions(PARTS[name].topic, operation)["FAILS_AS"]
]
BEHIND_WIRE = [(name, *pair) for name, part in PARTS.items() for pair in part.behind_wire.items()]

each_check = pytest.mark.parametrize(
    ("part", "operation"), CHECKS, ids=map(".".join, CHECKS), indirect=["part"]
)


@pytest.fixture(scope="module", autouse=True)
def no_ranks_left():
    yield
    shelf.Mistaken.release_all()


@pytest.fixture
def part(request: pytest.FixtureRequest) -> Part:
    return PARTS[request.param]


@pytest.fixture
def solutions(part: Part) -> dict:
    return shelf.solutions(part.topic)


def test_every_check_is_asked_here():
    assert sorted(operation for _, operation in CHECKS) == sorted(check.__all__)


@each_check
def test_the_solution_passes_with_other_sizes_and_seeds(part, operation, solutions, capfd):
    for seed in part.seeds:
        limits = part.limits(part.more, operation)
        getattr(check, operation)(solutions[part.name(operation)], **limits, seed=seed)
    shown = capfd.readouterr()
    assert shown.out.count(f"{part.name(operation)}: passed") == len(part.seeds)
    assert shown.err == ""


@pytest.mark.parametrize(
    ("part", "operation", "mistake"), MISTAKES, ids=[".".join(each) for each in MISTAKES], indirect=["part"]
)
def test_a_wrong_solution_fails_for_its_own_reason_and_gets_the_hint_meant_for_it(part, operation, mistake):
    kinds, phrase = shelf.wrong_solutions(part.topic, operation)["FAILS_AS"][mistake]
    function = shelf.mistaken(part.topic, operation, mistake)
    function.timeout = part.timeout
    verdict = verdict_of(operation, function, kinds, phrase, part.enough_for(operation, phrase))
    assert shelf.name_of(verdict.mistake) in kinds.split(" or "), str(verdict)
    assert phrase in verdict.hint, str(verdict)


def verdict_of(operation: str, function: Function, kinds: str, phrase: str, limits: Limits) -> Verdict:
    """The text of the first failing case; where that does not match, the text of all of them."""
    function.until_failure = True
    verdict = failure_of(operation, function, **limits).verdict
    if shelf.name_of(verdict.mistake) in kinds.split(" or ") and phrase in verdict.hint:
        return verdict
    function.until_failure = False  # it takes all failing cases to find their pattern
    return failure_of(operation, function, **limits).verdict


@each_check
def test_an_untouched_stub_fails_as_not_implemented(part, operation):
    def stub(*arguments, **keywords):
        raise NotImplementedError

    failure = failure_of(operation, stub, **part.limits(part.few, operation))
    assert shelf.name_of(failure.verdict.mistake) == "NOT_IMPLEMENTED"
    assert failure.verdict.name == part.name(operation)
    assert "not implemented yet" in str(failure)
    assert "first step" in str(failure)


ASSERTS = """
def asserts(*arguments, **options):
    try:
        return {solution}(*arguments, **options)
    except ValueError as error:
        raise AssertionError(str(error)) from None
"""


@pytest.mark.parametrize(
    ("topic", "operation", "limits"),
    [
        ("04_data_parallelism", "shard_batch", {"world_sizes": (3,)}),
        ("06_tensor_parallelism", "scatter_to_ranks", {"world_sizes": (3,)}),
        ("07_pipeline_parallelism", "assign_layers", {"num_stages": (3,)}),
        ("07_pipeline_parallelism", "bubble_fraction", {"num_stages": (2,)}),
        ("08_three_d_parallelism", "build_mesh", {"meshes": ((1, 2, 2),)}),
        ("08_three_d_parallelism", "estimate_step", {}),
    ],
)
def test_an_assert_in_place_of_a_refusal_is_told_that_a_value_error_is_expected(topic, operation, limits):
    defined = shelf.solutions(topic)
    exec(ASSERTS.format(solution=operation), defined)
    text = str(failure_of(operation, defined["asserts"], **limits))
    assert "expected  a ValueError that names" in text
    assert "AssertionError" in text


class TestBehindWire:
    """The same checks, with the student's code in another process. In `tests/class` solutions pass there."""

    @pytest.fixture(scope="class")
    @staticmethod
    def process() -> Iterator[Callable[[tuple[str, ...]], StudentProcess]]:
        """The process that holds these cells; started once."""
        with ExitStack() as running:
            yield functools.cache(lambda cells: running.enter_context(StudentProcess(cells)))

    @pytest.mark.parametrize(
        ("part", "operation", "mistake"),
        BEHIND_WIRE,
        ids=[".".join(each) for each in BEHIND_WIRE],
        indirect=["part"],
    )
    def test_a_wrong_solution_fails_for_the_same_reason(self, part, operation, mistake, process):
        notebook = process(tuple(shelf.sources(part.topic, part.behind_wire)))
        kinds, phrase = shelf.wrong_solutions(part.topic, operation)["FAILS_AS"][mistake]
        limits = part.limits(part.few, operation)
        verdict = verdict_of(operation, notebook.function(mistake), kinds, phrase, limits)
        assert shelf.name_of(verdict.mistake) in kinds.split(" or ")
        assert phrase in verdict.hint
