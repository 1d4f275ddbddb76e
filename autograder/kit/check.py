"""Makes checks, which test cells call as `check.name(function)`, of functions that draw the cases."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import torch

from autograder.kit import student
from autograder.kit.case import Case
from autograder.kit.judge import judge
from autograder.kit.student import Function
from fourranks.errors import interrupts_as_one_message

Code = Callable[..., Any] | Function  # a student's function or class, or the handle to one
Cases = Iterator[Case]
P = ParamSpec("P")
T = TypeVar("T")

# What `help` says of arguments that many checks have.
_ARGUMENTS = {
    "function": "your function.",
    "code": "your function or class.",
    "world_sizes": "numbers of ranks to try.",
    "numels": "numbers of elements to try, of a tensor or of each chunk of one.",
    "dtypes": "of the tensors; they take turns.",
    "cases": "how many inputs to draw.",
    "num_stages": "numbers of stages, or of ranks, to try.",
    "seed": "of the random inputs: the same seed draws the same ones.",
}
_judging: ContextVar[ExitStack] = ContextVar("ends with the check that runs")
_RAISES = """
Raises:
    AssertionError: when a case fails; its text is a small table with a hint."""


def check(
    name: str = "", banned: Sequence[str] = ()
) -> Callable[[Callable[Concatenate[Code, P], Cases]], Callable[Concatenate[Code, P], None]]:
    """Make a check of a generator of cases, with the same arguments.

    Args:
        name: of the student's code, if not that of the check.
        banned: libraries that the exercise forbids, for `judge`.

    Returns:
        A decorator. The generator gets a handle to the student's code as its first argument, and has a `seed`
        among the others. It draws cases while the code runs, some of them ahead.
    """

    def decorate(draw: Callable[Concatenate[Code, P], Cases]) -> Callable[Concatenate[Code, P], None]:
        signature, drawn_by = inspect.signature(draw), cast("Callable[..., Cases]", draw)

        @functools.wraps(draw)
        def checked(*args: Any, **options: Any) -> None:
            given = signature.bind(*args, **options)
            given.apply_defaults()
            code, *rest = given.args
            handle = student.handle(code)
            interruptible = interrupts_as_one_message("The check was interrupted.")
            with interruptible, _one_thread(), ExitStack() as stack:
                stack.callback(_judging.reset, _judging.set(stack))
                judge(name or draw.__name__, handle, drawn_by(handle, *rest), given.arguments["seed"], banned)

        if draw.__doc__:  # which `python -OO` leaves out
            checked.__doc__ = _documented(inspect.getdoc(draw) or "", list(signature.parameters))
        checked.__signature__ = signature.replace(return_annotation=None)  # type: ignore[attr-defined]
        return checked

    return decorate


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute on one core: other threads of torch would spin beside the ranks, which need the processors."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def until_judged(resource: AbstractContextManager[T]) -> T:
    """Enter a context for the check that draws cases now; it is left when the last case has been judged."""
    return _judging.get().enter_context(resource)


def _documented(text: str, parameters: Sequence[str]) -> str:
    """Return a docstring that explains all arguments: `text` explains those that only this check has."""
    missing = [each for each in parameters if f"\n    {each}: " not in text]
    if unknown := [each for each in missing if each not in _ARGUMENTS]:
        raise TypeError(f"explain {', '.join(unknown)} under Args: in the docstring of the check")
    header = "" if "\nArgs:" in text else "\n\nArgs:"
    lines = [f"\n    {each}: {_ARGUMENTS[each]}" for each in missing]
    return f"{text}{header}{''.join(lines)}\n{_RAISES}\n"
