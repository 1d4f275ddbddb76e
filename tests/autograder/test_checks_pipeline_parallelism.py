"""Beyond what `test_checks` asks of pipelines: other right ways, and what is told of wrong ones."""

import os

import pytest
import torch
import torch.distributed as dist
from torch import nn

import fourranks
from autograder import check
from autograder.inside.drivers.pipeline_parallelism import mean_loss
from autograder.kit import student
from autograder.topics.pipeline_parallelism import reference_schedules as pipeline_schedules
from tests.autograder import shelf
from tests.autograder.shelf import failure_of

TOPIC = "07_pipeline_parallelism"
PURE = (
    "assign_layers",
    "gpipe_schedule",
    "one_f_one_b_schedule",
    "interleaved_schedule",
    "bubble_fraction",
)


@pytest.fixture(scope="module")
def solutions() -> dict:
    return shelf.solutions(TOPIC)


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        ("run_pipeline", "Pipeline"),
        ("run_pipeline", "AsksAhead"),
        ("run_pipeline", "AsksForGradientsAtOnce"),
        ("run_pipeline", "UsesBuffersAgain"),
        ("run_pipeline", "waits_for_both"),
        ("run_pipeline", "WaitsForItsSendBeforeTheBackward"),
        ("run_pipeline", "NamesTheHandles"),
        ("run_pipeline", "GoesBackToTheInputs"),
        ("split_backward_linear", "Split"),
    ],
)
def test_another_way_of_being_right_passes(operation, name):
    limits = {"world_sizes": (2, 3)} if operation == "run_pipeline" else {}
    getattr(check, operation)(shelf.wrong_solutions(TOPIC, operation)[name], **limits)


def test_a_simulation_of_plain_schedules_passes_and_the_stretch_asks_for_more():
    plain = shelf.wrong_solutions(TOPIC, "bubble_fraction")["of_plain_schedules"]
    check.bubble_fraction(plain)
    failure_of("bubble_fraction", plain, num_stages=(2,), num_chunks=(2,))


def test_neighbours_that_both_send_first_are_named_with_their_lines():
    blocking = shelf.wrong_solutions(TOPIC, "run_pipeline")["sends_and_waits"]
    text = str(failure_of("run_pipeline", blocking, world_sizes=(2,)))
    assert "run_pipeline: a deadlock" in text
    assert "2 ranks, 1F1B, 5 microbatches" in text
    assert "send" in text
    assert "line" in text


def test_a_message_past_the_neighbours_is_told_with_its_destination():
    straight = shelf.wrong_solutions(TOPIC, "run_pipeline")["straight_to_the_first"]
    failure = failure_of("run_pipeline", straight, world_sizes=(3,))
    assert shelf.name_of(failure.verdict.mistake) == "NOT_NEXT_DOOR"
    assert "rank 2 sends to rank 1 only" in str(failure)
    assert "a message to rank 0" in str(failure)


def test_a_list_that_is_no_schedule_is_told_with_what_is_no_step_in_it():
    def waits_at_the_end(stage, num_stages, num_microbatches):
        return [("F", 0), ("B", 0), None]

    text = str(failure_of("one_f_one_b_schedule", waits_at_the_end, num_stages=(1,)))
    assert "a list with None" in text


def test_a_schedule_that_never_ends_is_told_with_the_step_that_waits():
    stuck = shelf.wrong_solutions(TOPIC, "one_f_one_b_schedule")["counts_the_stages_before"]
    text = str(failure_of("one_f_one_b_schedule", stuck, num_stages=(2,)))
    assert "B0 of stage 0 waits for B0 of stage 1" in text


def test_a_microbatch_below_0_is_told_with_its_number():
    unlimited = shelf.wrong_solutions(TOPIC, "one_f_one_b_schedule")["warm_up_without_a_limit"]
    text = str(failure_of("one_f_one_b_schedule", unlimited, num_stages=(3,)))
    assert "F1 B-1 too much" in text


def test_too_much_in_flight_is_told_with_both_numbers_and_schedules():
    gpipe = shelf.wrong_solutions(TOPIC, "one_f_one_b_schedule")["gpipe"]
    text = str(failure_of("one_f_one_b_schedule", gpipe, num_stages=(1,)))
    assert "stage 0: 1 in flight, F0 B0 F1 B1" in text


def test_the_same_seed_draws_the_same_inputs_and_another_seed_others():
    def text(seed):
        unscaled = shelf.wrong_solutions(TOPIC, "run_pipeline")["scales_the_loss_only"]
        return str(failure_of("run_pipeline", unscaled, world_sizes=(2,), seed=seed))

    assert text(5) == text(5)
    assert text(5) != text(6).replace("seed=6", "seed=5")


@pytest.mark.parametrize(("ranks", "microbatches", "chunks"), [(2, 4, 2), (4, 8, 2), (3, 6, 3)])
def test_interleaved_schedules_are_those_of_torch(ranks, microbatches, chunks, solutions):
    from torch.distributed.pipelining.schedules import ScheduleInterleaved1F1B

    class Shape:
        n_local_stages, pp_group_size, _n_microbatches = chunks, ranks, microbatches
        microbatches_per_round = ranks

    for rank in range(ranks):
        order = ScheduleInterleaved1F1B._calculate_single_rank_operations(Shape, rank)
        torchs = [(a.computation_type.value, a.microbatch_index, a.stage_index) for a in order if a]
        own = solutions["interleaved_schedule"](rank, ranks, microbatches, chunks)
        assert pipeline_schedules.tasks(own, rank, ranks) == torchs


class TestTheReferencePipeline:
    """The solution does more than is asked of a student's."""

    @staticmethod
    def losses(solutions, schedules, width=3):
        """The loss on each rank for these schedules, and that of one process."""

        def on_rank(run_pipeline, schedules, microbatches, loss_fn):
            torch.manual_seed(dist.get_rank())
            stage = nn.Linear(width, width, dtype=torch.float64)
            return run_pipeline(schedules[dist.get_rank()], stage, microbatches, loss_fn)

        on_rank.__module__ = "__main__"
        count = 1 + max(microbatch for _, microbatch in schedules[0])
        batch = torch.randn(2, count, 2, width, dtype=torch.float64)
        microbatches = list(zip(*batch, strict=True))
        outputs, targets = batch.flatten(1, 2)
        for rank in range(len(schedules)):
            torch.manual_seed(rank)
            outputs = nn.Linear(width, width, dtype=torch.float64)(outputs)
        arguments = solutions["run_pipeline"], schedules, microbatches, mean_loss
        losses = fourranks.run(on_rank, *arguments, world_size=len(schedules), backend="gloo")
        return losses, mean_loss(outputs, targets).item()

    def test_stages_with_different_schedules_run_as_long_as_they_fit(self, solutions):
        count = 6
        schedules = [
            solutions["gpipe_schedule"](0, 3, count),
            solutions["gpipe_schedule"](1, 3, count),
            solutions["one_f_one_b_schedule"](2, 3, count),
        ]
        losses, expected = self.losses(solutions, schedules)
        assert losses == pytest.approx([expected] * 3)

    def test_stages_that_disagree_end_in_a_deadlock_that_names_them(self, solutions):
        schedules = [[("F", 0), ("B", 0), ("F", 1), ("B", 1)], [("F", 0), ("F", 1), ("B", 0), ("B", 1)]]
        with pytest.raises(fourranks.DeadlockError, match="recv"):
            self.losses(solutions, schedules)


def _raise(*arguments, **keywords):
    raise ValueError("no")


def _return_a_number(*arguments, **keywords):
    return 42


@pytest.mark.parametrize("operation", PURE)
def test_code_that_misbehaves_ends_in_a_verdict(operation):
    for function, kinds in (
        (_raise, "POSSIBLE_LAYERS_REFUSED or POSSIBLE_MICROBATCHES_REFUSED or POSSIBLE_SCHEDULES_REFUSED"),
        (_return_a_number, "NO_RANGE or NO_SCHEDULE or WRONG_BUBBLE"),
    ):
        function.__module__ = "__main__"  # so that ranks get it by value, as a notebook's
        assert shelf.name_of(failure_of(operation, function).verdict.mistake) in kinds.split(" or ")


def test_a_pipeline_that_never_ends_or_dies_fails_its_check():
    def never_end(*arguments, group=None):
        while True:
            pass

    def die(*arguments, group=None):
        os._exit(3)

    for function, kind in ((never_end, "TIMED_OUT"), (die, "DIED"), (_return_a_number, "NO_LOSS")):
        function.__module__ = "__main__"
        handle = student.NotebookFunction(function)
        handle.timeout = 2.0 if function is never_end else 20.0
        assert shelf.name_of(failure_of("run_pipeline", handle, world_sizes=(2,)).verdict.mistake) == kind
