"""Hints speak of what was run."""

import pytest
import torch

from autograder.kit import hints
from autograder.kit.case import Result
from autograder.kit.mistakes import DEADLOCK, NO_SUCH_RANK, RAISED, WRONG_TYPE, Mistake
from autograder.kit.problem import Problem
from autograder.topics.collectives.budget import Budget
from autograder.topics.collectives.in_place import InPlaceCase


def case(world_size: int, numel: int, root: int = 0, dtype: torch.dtype = torch.float32) -> InPlaceCase:
    return InPlaceCase(
        inputs=[()] * world_size,
        shape=(numel,),
        dtype=dtype,
        expected=[{}] * world_size,
        budget=Budget("nothing"),
        root=root,
    )


def hint(failed: list[InPlaceCase], passed: list[InPlaceCase]) -> str:
    problem = Problem(DEADLOCK, "an answer", "none")
    results = [Result(each, "gloo", problem) for each in failed]
    return hints.choose(DEADLOCK, results, [Result(each, "gloo", None) for each in passed])


ALONE = [case(1, 1), case(1, 1000)]  # a single rank passes nearly always


@pytest.mark.parametrize(
    ("failed", "passed"),
    [
        pytest.param([case(3, 0)], ALONE, id="one empty tensor, and nothing else on three ranks"),
        pytest.param([case(3, 0), case(4, 0)], [*ALONE, case(2, 1000)], id="two, and nothing else there"),
        pytest.param([case(3, 7, root=1)], [*ALONE, case(2, 8)], id="another root, and nothing else there"),
        pytest.param([case(3, 8)], [*ALONE, case(2, 8)], id="three ranks, and four not tried"),
        pytest.param([case(1, 8)], [], id="a single rank, and several not tried"),
        pytest.param([case(2, 4, dtype=torch.int64)], ALONE, id="integers, and nothing else there"),
    ],
)
def test_no_hint_says_only_of_cases_that_were_not_run(failed, passed):
    assert "Only" not in hint(failed, passed)


def test_two_ranks_are_called_well_only_when_they_passed():
    assert "With 2 ranks all is well" in hint([case(3, 8), case(4, 8)], [*ALONE, case(2, 8)])
    assert "With 2 ranks" not in hint([case(3, 8), case(4, 8)], ALONE)


@pytest.mark.parametrize(
    ("failed", "passed", "told"),
    [
        ([case(3, 0)], [case(3, 8)], "Only empty tensors"),
        ([case(3, 9, root=1)], [case(3, 9)], "other than rank 0"),
        ([case(4, 7)], [case(4, 8)], "do not divide"),
        ([case(3, 9), case(5, 10)], [case(2, 8), case(4, 8)], "no power of two"),
        ([case(1, 8)], [case(2, 8)], "Only a single rank"),
        ([case(2, 8, dtype=torch.int64)], [case(2, 8)], "Only integers"),
    ],
)
def test_what_failing_cases_have_in_common_is_told_when_the_others_passed(failed, passed, told):
    assert told in hint(failed, passed)


def hint_of(mistake: Mistake, got: str, *stuck_in: str) -> str:
    problem = Problem(mistake, "an answer", got)
    return hints.choose(mistake, [Result(case(3, 4), "gloo", problem, stuck_in=stuck_in)], [])


def test_a_deadlock_in_collectives_is_not_blamed_on_messages():
    assert "the lists must be equal" in hint_of(DEADLOCK, "nothing", "barrier", "all_reduce")
    assert "every send needs its receive" in hint_of(DEADLOCK, "nothing", "barrier", "recv")


def test_a_partner_beyond_the_last_rank_is_told_for_trees_and_for_rings():
    raised = "rank 1 raised ValueError in line 7: There is no rank 3 in this group of 3."
    told = hint_of(NO_SUCH_RANK, raised)
    assert "In a tree" in told and "In a ring" in told
    assert "In a tree" not in hint_of(RAISED, "rank 1 raised KeyError in line 7: 'x'")


def test_a_missing_return_is_named_where_nothing_came_back():
    results = [Result(case(2, 4), "gloo", Problem(WRONG_TYPE, "a float32 tensor", "None"))]
    assert "without `return`" in hints.choose(WRONG_TYPE, results, [])
