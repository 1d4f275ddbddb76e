"""Rules for a pipeline stage's messages and waits, and the first rule that its calls break.

Pure functions over recorded calls and the moments at which the stage's steps began; called by the checks of
exercise 07.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autograder.kit.problem import Problem
from autograder.kit.received import POINT_TO_POINT, named
from autograder.topics.pipeline_parallelism import mistakes
from autograder.topics.pipeline_parallelism.reference_schedules import in_words
from fourranks.naming import counted, name_ranks
from fourranks.trace import Call

LOSS_BYTES = 8  # a message of at most so many is the loss on its way back


@dataclass(frozen=True)
class StepTaken:
    """A forward or backward that a stage has done.

    Attributes:
        forward: which of the stage's forwards it is, or is the backward of, from 0.
        began: the moment at which it began.
    """

    kind: str
    forward: int
    began: float

    def __str__(self) -> str:
        return f"{self.kind}{self.forward}"


@dataclass(frozen=True)
class Stage:
    """One rank's part of a run.

    Attributes:
        before, after: the global ranks of its neighbours; None at the ends of the pipeline.
        nbytes: of the activations of all microbatches together, and as many of their gradients.
        num_microbatches: how many there are.
        steps: in the order in which they were done.
        calls: of the rank, in the order in which it issued them.
    """

    before: int | None
    after: int | None
    nbytes: int
    num_microbatches: int
    steps: Sequence[StepTaken]
    calls: Sequence[Call]

    def messages(self, op: str, peer: int | None) -> list[Call]:
        """Return tensors that it sent to a neighbour (op "send") or received from it ("recv")."""
        return [
            call for call in self.calls if call.op == op and call.peer == peer and call.nbytes > LOSS_BYTES
        ]

    def places(self, kind: str) -> list[int]:
        """Return at which place among the steps the n-th forward or backward is."""
        return [place for place, step in enumerate(self.steps) if step.kind == kind]

    def sends(self) -> list[tuple[Call, int]]:
        """Return what it sent, each with the place of the step that has computed it."""
        return [
            pair
            for peer, kind in ((self.after, "F"), (self.before, "B"))
            for pair in zip(self.messages("send", peer), self.places(kind), strict=False)
        ]


def past_the_neighbours(stage: Stage, where: str) -> Problem | None:
    """Find a collective, or a message to a rank that is no neighbour."""
    neighbours = [rank for rank in (stage.before, stage.after) if rank is not None]
    for call in stage.calls:
        if call.moves_data and call.op not in POINT_TO_POINT:
            expected = f"{where}: messages between neighbours only"
            return Problem(mistakes.COLLECTIVE_IN_A_PIPELINE, expected, named(call))
        if call.op == "send" and call.peer not in neighbours:
            expected = f"{where} sends to {name_ranks(neighbours)} only"
            got = f"a message to rank {call.peer} in line {call.line}"
            return Problem(mistakes.NOT_NEXT_DOOR, expected, got)
    return None


def too_much(stage: Stage, where: str) -> Problem | None:
    """Find more messages to a neighbour than microbatches, or larger ones; the loss goes back besides."""
    for peer, more, what in ((stage.after, 0, ""), (stage.before, 1, ", and the loss")):
        sent = [call for call in stage.calls if call.op == "send" and call.peer == peer]
        nbytes = sum(call.nbytes for call in sent)
        if len(sent) > stage.num_microbatches + more:
            expected = f"{where}: one message to rank {peer} for each microbatch{what}"
            got = f"{counted(len(sent), 'message')} for {stage.num_microbatches}"
            return Problem(mistakes.MORE_MESSAGES_THAN_MICROBATCHES, expected, got)
        if nbytes > stage.nbytes + more * LOSS_BYTES:
            expected = f"{where}: {counted(stage.nbytes, 'byte')} to rank {peer}{what}"
            return Problem(mistakes.MORE_THAN_ACTIVATIONS, expected, counted(nbytes, "byte"))
    return None


def out_of_time(stage: Stage, where: str) -> Problem | None:
    """Find a message that is sent late, or for which a rank stands still without need."""
    for call, place in stage.sends():
        what = f"{where}: what {stage.steps[place]} computes"
        if problem := _late(stage, call, place, what) or _stands_still(stage, call, what):
            return problem
    for peer, kind in ((stage.before, "F"), (stage.after, "B")):
        for call, place in zip(stage.messages("recv", peer), stage.places(kind), strict=False):
            if problem := _early(stage, call, place, f"{where}: what {stage.steps[place]} needs"):
                return problem
    return None


def _end(call: Call) -> float:
    assert call.end is not None  # `unwaited` is told first
    return call.end


def _late(stage: Stage, call: Call, place: int, what: str) -> Problem | None:
    following = stage.steps[place + 1 :]
    if not following or call.start < following[0].began:
        return None
    behind = sum(step.began < call.start for step in following)
    return Problem(
        mistakes.SENT_LATE, f"{what} is sent before the next step", f"{counted(behind, 'step')} later"
    )


def _stands_still(stage: Stage, call: Call, what: str) -> Problem | None:
    """Find a send whose end the rank awaits before it does anything else, with more to compute."""
    end = _end(call)
    done = [step.began for step in stage.steps] + [other.start for other in stage.calls]
    done += [other.end for other in stage.calls if other.end is not None]
    meanwhile = any(call.start < moment < end for moment in done)
    if meanwhile or not any(step.began > end for step in stage.steps):
        return None
    how = "isend in line {} is waited for at once" if call.asynchronous else "send in line {} waits"
    expected = f"{what} is under way while the rank goes on"
    return Problem(mistakes.BLOCKING_SEND, expected, how.format(call.line))


def _early(stage: Stage, call: Call, place: int, what: str) -> Problem | None:
    if place == 0 or _end(call) >= stage.steps[place - 1].began:
        return None
    ahead = sum(step.began > _end(call) for step in stage.steps[:place])
    expected = f"{what} is waited for right before"
    return Problem(mistakes.AWAITED_EARLY, expected, f"{counted(ahead, 'step')} earlier, line {call.line}")


def received_ahead(stage: Stage, limit: int, where: str) -> Problem | None:
    """Find more tensors asked for than the schedule keeps alive; one may be on its way."""
    for source, what in ((stage.before, "activations"), (stage.after, "gradients")):
        receives = stage.messages("recv", source)
        done = 0
        for step in stage.steps:
            asked = sum(call.start < step.began for call in receives)
            if asked - done > limit + 1:
                expected = f"{where}: buffers for {what} of {in_words(limit)}, and one on its way"
                return Problem(mistakes.BUFFERS_AHEAD, expected, f"{asked - done}")
            done += step.kind == "B"
    return None


def kept_by_sends(stage: Stage, limit: int, where: str) -> Problem | None:
    """Find more microbatches in flight or under way at once than the schedule keeps alive, and two more."""
    sends = stage.sends()
    for place in stage.places("F"):
        moment = stage.steps[place].began
        alive = {step.forward for step in stage.steps[: place + 1] if step.kind == "F"}
        alive -= {step.forward for step in stage.steps[:place] if step.kind == "B"}
        alive |= {stage.steps[at].forward for call, at in sends if call.start < moment < _end(call)}
        if len(alive) > limit + 2:
            expected = f"{where}: {in_words(limit)} in flight, and sends of two more without their wait()"
            return Problem(mistakes.ACTIVATIONS_KEPT, expected, f"{len(alive)} together")
    return None
