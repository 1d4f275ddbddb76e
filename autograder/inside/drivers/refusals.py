"""Driver of calls that an exercise wants to be refused."""

from __future__ import annotations

from autograder.inside.drivers import Code


def refuse(code: Code, *arguments: object, **options: object) -> str:
    """Return the message of the ValueError that this call raises; empty if there is none."""
    try:
        code(*arguments, **options)
    except ValueError as error:
        return str(error) or repr(error)
    return ""
