"""Reports of drivers cross the border as plain data; an answer in another form is unreadable."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

from autograder.inside import reports, wire
from autograder.inside.reports import Report, Unreadable, as_many, plain, read
from autograder.kit.case import on_one_rank
from autograder.kit.mistakes import WRONG_TYPE
from autograder.kit.student import Outcome


@dataclass(frozen=True)
class Step(Report):
    losses: list[float]
    gradients: dict[str, torch.Tensor | None]


@dataclass(frozen=True)
class Run(Report):
    answer: object
    size: tuple[int, str]
    refused: str | None
    steps: list[Step]


WHOLE = Run({"any": [1, "thing"]}, (3, "float32"), None, [Step([0.5, 1.0], {"weight": None})])
PLAIN = wire.decode(wire.encode(plain(WHOLE)))


def drive(function) -> Run:
    return function()


def test_a_report_comes_back_as_it_was_sent():
    assert read(Run, PLAIN) == WHOLE


def test_tensors_come_back_with_their_report():
    step = Step([], {"weight": torch.arange(3)})
    found = read(list[Step], wire.decode(wire.encode(plain([step]))))
    assert torch.equal(found[0].gradients["weight"], torch.arange(3))


def test_what_is_no_report_is_sent_as_it_is():
    shards = [torch.zeros(2), torch.ones(2)]
    assert plain(shards) is shards
    assert plain(3) == 3


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {**PLAIN, "more": 1},
        {name: value for name, value in PLAIN.items() if name != "refused"},
        {**PLAIN, "size": (3,)},
        {**PLAIN, "size": ("3", "float32")},
        {**PLAIN, "size": (True, "float32")},
        {**PLAIN, "refused": 1},
        {**PLAIN, "steps": [None]},
        {**PLAIN, "steps": {"0": PLAIN["steps"][0]}},
        {**PLAIN, "steps": [{**PLAIN["steps"][0], "losses": [1]}]},
        {**PLAIN, "steps": [{**PLAIN["steps"][0], "gradients": {1: None}}]},
        {**PLAIN, "steps": [{**PLAIN["steps"][0], "gradients": {"weight": [1.0]}}]},
    ],
)
def test_another_form_is_unreadable(value):
    with pytest.raises(Unreadable):
        read(Run, value)


def test_a_report_with_more_or_fewer_values_than_asked_for_is_unreadable():
    assert as_many([1, 2], 2) == [1, 2]
    with pytest.raises(Unreadable, match="2 values, not 3"):
        as_many([1, 2], 3)


class TestInATrial:
    """A trial gets the report of its driver, or fails without looking at anything else."""

    @staticmethod
    def examine(value, verify=lambda outcome: None):
        trial = on_one_rank("a trial", (), verify, drive)
        outcome = value if value is None else Outcome(value, [], [])
        return trial.examine([outcome])

    def test_what_is_verified_is_the_report(self):
        seen = []
        assert self.examine(PLAIN, lambda outcome: seen.append(outcome.value)) is None
        assert seen == [WHOLE]

    @pytest.mark.parametrize("value", [{}, "forged", None])
    def test_an_unreadable_answer_is_the_problem(self, value):
        problem = self.examine(value, lambda outcome: pytest.fail("verified"))
        assert problem.mistake is WRONG_TYPE
        assert "answered what no check can read" in problem.got

    def test_what_a_rank_answers_that_is_not_called_is_not_looked_at(self):
        trial = on_one_rank("a trial", (), lambda outcome: None, drive)
        trial = replace(trial, inputs=[(), None], verify=lambda outcomes: outcomes[1])
        assert trial.examine([Outcome(PLAIN, [], []), Outcome("forged", [], [])]) is None

    def test_a_length_that_only_the_check_knows_counts_too(self):
        assert self.examine(PLAIN, lambda outcome: as_many(outcome.value.steps, 2)).mistake is WRONG_TYPE


def test_every_driver_says_what_it_returns():
    from autograder import check  # noqa: F401  # which imports all topics
    from autograder.inside.drivers import checkpoints, tensor_parallelism

    assert reports.form_of(tensor_parallelism.run) is tensor_parallelism.ModuleRun
    assert reports.form_of(checkpoints.recover) is checkpoints.Recovered
