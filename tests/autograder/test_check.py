"""Checks are made of generators of cases: their arguments, their `help`, and their verdicts."""

import inspect
import sys
from contextlib import contextmanager

import pytest

from autograder import check as all_checks
from autograder.kit.case import on_one_rank
from autograder.kit.check import check, until_judged
from autograder.kit.mistakes import WRONG_TYPE
from autograder.kit.problem import Problem
from autograder.kit.student import NotAFunction, NotebookFunction
from autograder.kit.verdict import CheckFailed
from fourranks.errors import CellInterrupted
from tests import processes

each_check = pytest.mark.parametrize("name", all_checks.__all__)


@each_check
def test_help_shows_the_arguments_of_a_check_and_explains_each(name):
    made = getattr(all_checks, name)
    signature, text = inspect.signature(made), inspect.getdoc(made)
    first, *_, last = signature.parameters.values()
    assert (first.default, last.name, last.default) == (inspect.Parameter.empty, "seed", 0)
    assert signature.return_annotation is None
    assert made.__name__ == name
    assert text.startswith("Check ")
    assert all(f"\n    {parameter}: " in text for parameter in signature.parameters)
    assert text.count("Args:") == text.count("Raises:") == 1


def doubled(number):
    return 2 * number


doubled.__module__ = "__main__"  # ranks get it by value, as a notebook's


@check("Doubling")
def doubling(function, numbers=(1, 2), seed=0):
    """Check doubling.

    Args:
        numbers: to be doubled.
    """
    for number in numbers:

        def verify(outcome, want=2 * number):
            return None if outcome.value == want else Problem(WRONG_TYPE, str(want), str(outcome.value))

        yield on_one_rank(f"twice {number}", (number,), verify)


def test_a_check_judges_its_cases_under_the_name_that_students_know(capsys):
    doubling(doubled, numbers=(3,))
    assert "Doubling: passed, 1 case" in capsys.readouterr().out


def test_a_verdict_tells_the_seed_that_was_given():
    with pytest.raises(CheckFailed, match="drawn with seed=5") as caught:
        doubling(lambda number: number, seed=5)
    assert len(caught.value.verdict.failed) == 2


def test_a_check_can_be_given_its_arguments_by_name(capsys):
    doubling(function=doubled, numbers=(1,), seed=2)
    assert "passed" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [(), (doubled, (1,), 0, "more")])
def test_a_check_takes_no_other_arguments(arguments):
    with pytest.raises(TypeError):
        doubling(*arguments)


def test_an_argument_that_help_could_not_explain_is_refused():
    with pytest.raises(TypeError, match="explain depth under Args"):

        @check()
        def deep(function, depth=1, seed=0):
            """Check something deep."""


def test_what_cannot_be_called_is_refused():
    with pytest.raises(NotAFunction, match="takes your function itself"):
        doubling(3)


def test_an_interrupt_while_a_case_is_examined_is_one_message():
    def interrupt(outcome):
        raise KeyboardInterrupt

    @check()
    def identity(function, *, seed=0):
        yield on_one_rank("an input", (1,), interrupt)

    with pytest.raises(CellInterrupted, match="The check was interrupted"):
        identity(lambda x: x)


def test_what_a_check_needs_until_the_end_is_there_when_its_last_case_is_judged(capsys):
    is_there = []

    @contextmanager
    def resource():
        is_there.append(True)
        yield
        is_there.clear()

    @check()
    def needing(function, seed=0):
        until_judged(resource())
        for number in range(2):
            yield on_one_rank(f"number {number}", (number,), lambda outcome: None if is_there else Problem)

    def dies(number):
        raise ValueError

    with pytest.raises(CheckFailed):  # the second case is drawn before the first is judged
        needing(NotebookFunction(dies))
    needing(doubled)
    assert not is_there


def test_a_notebook_offers_the_checks_and_nothing_else():
    assert dir(all_checks) == sorted(all_checks.__all__)


def test_python_that_leaves_out_docstrings_has_all_checks():
    done = processes.run([sys.executable, "-B", "-OO", "-c", "from autograder import check; check.average"])
    assert done.returncode == 0, done.stderr
