"""A check ends in a verdict, and not in an exception, whatever ranks report in the form of a report."""

import inspect
import itertools
import random
import types
from contextlib import ExitStack
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
import torch

from autograder import check
from autograder.inside import reports
from autograder.inside.moments import Moment, Unmarked
from autograder.inside.reports import Report
from autograder.kit import check as making
from autograder.kit.student import NotebookFunction, Outcome

ANYTHING = [
    None,
    True,
    -1,
    10**400,
    1.5,
    float("nan"),
    float("inf"),
    "x",
    b"z",
    [],
    [1],
    (1, 2),
    {},
    {"a": 1},
    torch.zeros(()),
    torch.zeros(2, 3),
]
TENSORS = [
    torch.zeros(()),
    torch.zeros(0),
    torch.zeros(2, 3),
    torch.full((5,), float("nan")),
    torch.zeros(4, dtype=torch.int64),
    torch.zeros(3, dtype=torch.float64),
    torch.zeros(2, dtype=torch.bool),
]
SCALARS = {
    type(None): [None],
    bool: [True, False],
    int: [-1, 0, 1, 10**12],
    float: [-1.0, 0.0, float("nan"), float("inf")],
    str: ["", "x", "module.weight", "checkpoint.pt"],
    torch.Tensor: TENSORS,
    object: ANYTHING,
}
MARKED = ["began", "backward", "turned", "paused", "resumed", "ended"]
LIMITS = {"world_sizes": (2, 3), "num_stages": (2, 3), "cases": 3, "num_bytes": (10,), "numels": (0, 3)}
NUM_CASES, NUM_REPORTS = 15, 6


def draw(form: Any, choose: random.Random) -> Any:
    """Draw plain data of this form."""
    parts = get_args(form)
    match get_origin(form):
        case origin if origin in (Union, types.UnionType):
            return draw(choose.choice(parts), choose)
        case origin if origin is list:
            return [draw(parts[0], choose) for _ in range(choose.choice([0, 1, 2, 3, 6]))]
        case origin if origin is tuple:
            return tuple(draw(part, choose) for part in parts)
        case origin if origin is dict:
            return {draw(parts[0], choose): draw(parts[1], choose) for _ in range(choose.randrange(3))}
    if issubclass(form, Report):
        return {name: draw(part, choose) for name, part in get_type_hints(form).items()}
    return choose.choice(SCALARS[form])


def moments(choose: random.Random) -> list[Moment]:
    names = choose.choice([MARKED, 2 * MARKED, 3 * MARKED, []])
    return [Moment(name, float(at)) for at, name in enumerate(names)]


def cases(name: str):
    """Draw the first cases of a check, with a function that is never called."""
    made = inspect.unwrap(getattr(check, name))
    limits = {each: LIMITS[each] for each in inspect.signature(made).parameters if each in LIMITS}
    return itertools.islice(made(NotebookFunction(abs), **limits), NUM_CASES)


@pytest.fixture(autouse=True)
def judging():
    """Lets checks draw cases that are not judged."""
    with ExitStack() as stack:
        token = making._judging.set(stack)
        yield
        making._judging.reset(token)


@pytest.mark.parametrize("name", check.__all__)
def test_no_report_breaks_a_check(name):
    choose = random.Random(name)
    for case in cases(name):
        form = reports.form_of(case.driver)
        for _ in range(NUM_REPORTS):
            outcomes = [
                None if given is None else Outcome(draw(form, choose), [], [], moments(choose))
                for given in case.inputs
            ]
            try:
                case.examine(outcomes)
            except Unmarked:
                continue  # which `judge` tells as a problem
