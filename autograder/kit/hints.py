"""Chooses the hint of a failed check: from what is wrong, and from which cases it is wrong in."""

from __future__ import annotations

from collections.abc import Sequence

from autograder.kit.case import Result
from autograder.kit.mistakes import DEADLOCK, Mistake

_COLLECTIVES_APART = (
    "A collective needs every rank of its group. Some ranks leave this one out, for instance in a branch, or "
    "call others before it. Write down which collectives each rank calls, in order: the lists must be equal."
)


def choose(mistake: Mistake, failed: Sequence[Result], passed: Sequence[Result]) -> str:
    """Return the mistake's hint, and what the failing cases have in common if that is telling."""
    pattern = _pattern(failed, passed) if mistake.follows_patterns else ""
    if pattern and mistake.needs_no_hint:
        return pattern
    return " ".join(filter(None, (pattern, _hint(mistake, failed))))


def _hint(mistake: Mistake, failed: Sequence[Result]) -> str:
    """Return the mistake's hint, or the one for deadlocks in which no rank waits for a message."""
    calls = [call for result in failed for call in result.stuck_in]
    if mistake is DEADLOCK and calls and not any("send" in call or "recv" in call for call in calls):
        return _COLLECTIVES_APART
    return mistake.hint


def _pattern(failed: Sequence[Result], passed: Sequence[Result]) -> str:
    """Return the hint of the first pattern that explains the failing cases; "" if none does.

    Empty tensors say little when they pass: with nothing to move, much goes right by accident.
    """
    failing = [result.case for result in failed]
    telling = [result.case for result in passed if result.case.weight[0] > 0]
    return next((p.text for p in failing[0].patterns if p.explains(failing, telling)), "")
