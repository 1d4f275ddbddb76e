"""Broken training jobs to be diagnosed on real ranks, against the clock.

from fourranks import incidents
job = incidents.start("Hang at step 37")        # shows the alarm, puts the program into incidents/
job.answer(rank=0, line=1, cause="A")           # shows points and explanation
"""

from __future__ import annotations

from .catalogue import INCIDENTS
from .job import AnswerError, Debriefing, OnCall

__all__ = ["INCIDENTS", "AnswerError", "OnCall", "Debriefing", "start"]


def start(name: str) -> OnCall:
    """Hand out an incident's program, and start the clock.

    Raises:
        AnswerError: there is no such incident; the text lists those that there are.
    """
    for incident in INCIDENTS:
        if isinstance(name, str) and incident.name.lower() == name.strip().lower():
            return OnCall(incident)
    raise AnswerError(
        f"There is no incident {name!r}. There are: {', '.join(each.name for each in INCIDENTS)}."
    )
