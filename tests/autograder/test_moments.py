"""Moments that drivers mark cut a run into steps, and what was marked otherwise is refused."""

import pytest

from autograder.inside import moments
from autograder.inside.moments import GREW, Marks, Moment, Unmarked
from autograder.kit.stretches import stretches
from autograder.kit.student import Outcome
from fourranks.trace import Call

MARKED = [Moment("began", 1.0), Moment("ready", 2.0), Moment("began", 3.0)]
CALLS = [Call("all_reduce", "0", (0, 1), start=start) for start in (0.5, 1.5, 2.5, 3.5)]
OUTCOME = Outcome(None, [], CALLS, MARKED)


def test_a_step_has_all_calls_until_the_next_one_begins():
    one, other = stretches(OUTCOME, "began", 2)
    assert (one.calls, other.calls) == (CALLS[1:3], CALLS[3:])
    assert (one.at("ready"), one.until("ready"), other.all("ready")) == (2.0, CALLS[1:2], [])


def test_steps_that_were_not_marked_once_each_are_refused():
    with pytest.raises(Unmarked):
        stretches(OUTCOME, "began", 3)
    with pytest.raises(Unmarked):
        stretches(OUTCOME, "began", 2)[1].at("ready")


@pytest.mark.parametrize(
    "marked",
    [
        [["began", float("nan"), None]],
        [["began", float("inf"), None]],
        [["began", 1, None]],
        [["began", 1.0, "much"]],
        [["began", 1.0]],
        ["began"],
    ],
)
def test_what_is_no_moment_is_refused(marked):
    with pytest.raises(Unmarked):
        moments.read(marked)


def test_memory_is_what_was_measured_until_a_moment():
    moments = [
        Moment("began", 1.0, 90),
        Moment(GREW, 1.5, 60),
        Moment("of nobody's", 1.7, 70),
        Moment("ended", 2.0, 30),
        Moment(GREW, 3.0, 80),
    ]
    (run,) = stretches(Outcome(None, [], [], moments), "began", 1)
    assert (run.taken("began"), run.taken("ended"), run.taken_since("began")) == (90, 70, 80)
    with pytest.raises(Unmarked, match="not measured"):
        stretches(OUTCOME, "began", 2)[0].taken("ready")


def test_marks_outlive_no_run():
    marks = Marks()
    marks.mark("before")
    marks.begin()
    marks.mark("began")
    assert [moment.name for moment in marks.end()] == ["began"]
    assert marks.end() == []
