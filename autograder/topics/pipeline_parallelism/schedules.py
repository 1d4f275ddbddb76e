"""Checks of exercise 07 about who does what when: layers for stages, and schedules.

Pure functions, called on one rank. A wrong schedule is judged by what would become of the pipeline: stages
that wait forever, too much in flight, too little. `pipeline_parallelism` runs schedules on real ranks.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from autograder.inside.drivers import pipeline_schedules as drivers
from autograder.inside.drivers.pipeline_schedules import ReturnedSchedule
from autograder.inside.reports import as_many, read
from autograder.kit.case import Trial, on_one_rank
from autograder.kit.check import Cases, Code, check
from autograder.kit.mistakes import FROM_AN_EARLIER_CALL, MODIFIED, Mistake
from autograder.kit.problem import Problem
from autograder.kit.student import Outcome
from autograder.kit.values import has_number, kind_of, same
from autograder.topics.pipeline_parallelism import mistakes
from autograder.topics.pipeline_parallelism import reference_schedules as reference
from autograder.topics.pipeline_parallelism.banned import BANNED
from autograder.topics.pipeline_parallelism.reference_schedules import Step, Stuck, in_words
from fourranks.naming import counted

NUM_STAGES = (1, 2, 3, 4, 8)
SHOWN = 14  # steps of a schedule in a message

Schedule = list[Step]
Verify = Callable[[list[ReturnedSchedule]], Problem | None]


def pure_trial(
    title: str, calls: Sequence[Sequence[Any]], verify: Verify, size: int = 1, answered: str = Trial.answered
) -> Trial:
    """Make a trial of some calls of a pure function on one rank; `verify` gets the answers."""
    arguments = ([list(each) for each in calls],)

    def verify_all(outcome: Outcome) -> Problem | None:
        if problem := verify(as_many(outcome.value, len(calls))):
            return problem
        if not same(outcome.arguments, list(arguments)):
            return Problem(MODIFIED, "the arguments as they were", "others")
        return None

    return on_one_rank(title, arguments, verify_all, drivers.call_each, size=size, answered=answered)


def _refusal_trial(title: str, arguments: Sequence[int], accepted: Mistake, names: Sequence[int]) -> Trial:
    """Make a trial of a call that has to end in a ValueError that names these numbers."""
    expected = f"a ValueError that names {' and '.join(map(str, names))}"

    def verify(answers: list[ReturnedSchedule]) -> Problem | None:
        message = answers[0].refused
        if message is None:
            return Problem(accepted, expected, described(answers[0]))
        if all(has_number(message, number) for number in names):
            return None
        got = message or "a ValueError without a text"
        return Problem(mistakes.REFUSAL_WITHOUT_NUMBERS, expected, got)

    return pure_trial(title, [arguments], verify, size=0, answered=expected)


def described(answer: ReturnedSchedule) -> str:
    """Return an answer in words."""
    if answer.refused is not None:
        return f"ValueError: {answer.refused}"
    return repr(answer.value) if isinstance(answer.value, (int, float, str)) else kind_of(answer.value)


# --- assign_layers ----------------------------------------------------------------------------------------


@check(banned=BANNED)
def assign_layers(code: Code, num_stages: Sequence[int] = (1, 2, 3, 4), seed: int = 0) -> Cases:
    """Check `assign_layers`: every layer once, in order, evenly, and a refusal of empty stages."""
    draw = random.Random(seed)
    for stages in num_stages:
        for layers in sorted({stages, 2 * stages + 1, 3 * stages - 1, stages + draw.randrange(30)}):
            calls = [(layers, stages, stage) for stage in range(stages)]
            verify = partial(_misassigned, layers)
            yield pure_trial(_sizes(layers, stages), calls, verify, size=layers)
        if stages > 1:
            arguments, mistake = (stages - 1, stages, stages - 1), mistakes.EMPTY_STAGES_ACCEPTED
            yield _refusal_trial(_sizes(stages - 1, stages), arguments, mistake, arguments[:2])


def _sizes(layers: int, stages: int) -> str:
    return f"{counted(layers, 'layer')} on {counted(stages, 'stage')}"


def _misassigned(num_layers: int, answers: list[ReturnedSchedule]) -> Problem | None:
    for stage, answer in enumerate(answers):
        if answer.type != "range":
            refused = answer.refused is not None
            mistake = mistakes.POSSIBLE_LAYERS_REFUSED if refused else mistakes.NO_RANGE
            return Problem(mistake, f"stage {stage}: a range", described(answer))
    assigned = [read(list[int], answer.value) for answer in answers]
    want = _evenly(num_layers, len(answers))
    if assigned == want:
        return None
    stage = next(stage for stage, own in enumerate(want) if assigned[stage] != own)
    expected = f"stage {stage}: {_layers(want[stage])}"
    return Problem(_misassignment(assigned, want), expected, _layers(assigned[stage]))


def _evenly(num_layers: int, num_stages: int) -> list[list[int]]:
    """Cut as `torch.tensor_split` does: the first stages get one layer more."""
    size, left = divmod(num_layers, num_stages)
    starts = [stage * size + min(stage, left) for stage in range(num_stages + 1)]
    return [list(range(*bounds)) for bounds in zip(starts, starts[1:], strict=False)]


def _misassignment(assigned: list[list[int]], want: list[list[int]]) -> Mistake:
    given, wanted = Counter(sum(assigned, [])), Counter(sum(want, []))
    if given != wanted:
        return mistakes.LAYERS_TWICE if given - wanted else mistakes.LAYERS_MISSING
    if sum(assigned, []) != sum(want, []):
        return mistakes.LAYERS_OUT_OF_ORDER
    sizes = [len(own) for own in assigned]
    return mistakes.LAYERS_UNEVEN if max(sizes) - min(sizes) > 1 else mistakes.LONGER_STAGES_ELSEWHERE


def _layers(layers: list[int]) -> str:
    return f"layers {layers[0]} to {layers[-1]}" if layers else "no layers"


# --- schedules --------------------------------------------------------------------------------------------


@check(banned=BANNED)
def gpipe_schedule(code: Code, num_stages: Sequence[int] = NUM_STAGES, seed: int = 0) -> Cases:
    """Check `gpipe_schedule` for each number of stages with few and many microbatches."""
    yield from _scheduling(reference.gpipe, num_stages, seed)


@check(banned=BANNED)
def one_f_one_b_schedule(code: Code, num_stages: Sequence[int] = NUM_STAGES, seed: int = 0) -> Cases:
    """Check `one_f_one_b_schedule` for each number of stages with few and many microbatches."""
    yield from _scheduling(reference.one_f_one_b, num_stages, seed)


def _scheduling(schedule: Callable[..., Schedule], num_stages: Sequence[int], seed: int) -> Iterator[Trial]:
    draw = random.Random(seed)
    for stages in num_stages:
        for microbatches in sorted({1, max(1, stages - 1), stages, 2 * stages + draw.randrange(1, 5)}):
            yield _schedule_trial(schedule, (stages, microbatches))


@check(banned=BANNED)
def interleaved_schedule(
    code: Code, num_stages: Sequence[int] = (1, 2, 3, 4), num_chunks: Sequence[int] = (2, 3), seed: int = 0
) -> Cases:
    """Check `interleaved_schedule` for numbers of ranks and chunks, and a refusal of other microbatches.

    Args:
        num_chunks: how many stages a rank has.
    """
    for stages in num_stages:
        for chunks in num_chunks:
            for microbatches in (stages, 3 * stages):
                yield _schedule_trial(reference.interleaved, (stages, microbatches, chunks))
        for microbatches in (stages - 1, 2 * stages - 1) if stages > 1 else ():
            arguments = 0, stages, microbatches, num_chunks[0]
            title = f"{counted(stages, 'rank')}, {in_words(microbatches)}"
            mistake = mistakes.UNEVEN_ROUNDS_ACCEPTED
            yield _refusal_trial(title, arguments, mistake, (stages, microbatches))


def _schedule_trial(schedule: Callable[..., Schedule], numbers: tuple[int, ...]) -> Trial:
    """Make a trial of all stages' schedules; `numbers` are the arguments behind the stage."""
    stages, microbatches, *chunks = numbers
    want = [schedule(stage, *numbers) for stage in range(stages)]
    title = f"{counted(stages, 'stage')}, {in_words(microbatches)}"
    if chunks:
        title = f"{title.replace('stage', 'rank')}, {counted(chunks[0], 'chunk')}"
    calls = [(stage, *numbers) for stage in range(stages)]
    return pure_trial(title, calls, lambda answers: _misscheduled(answers, want), size=stages * microbatches)


def _misscheduled(answers: list[ReturnedSchedule], want: list[Schedule]) -> Problem | None:
    got = []
    for stage, (answer, wanted) in enumerate(zip(answers, want, strict=True)):
        if answer.refused is not None:
            return Problem(
                mistakes.POSSIBLE_MICROBATCHES_REFUSED, f"stage {stage}: a schedule", described(answer)
            )
        schedule = _read(answer.value)
        if schedule is None:
            expected = f'stage {stage}: a list of ("F" or "B", microbatch)'
            return Problem(mistakes.NO_SCHEDULE, expected, _raw(answer))
        if problem := _left_over(schedule, want, stage) or _wrong_steps(schedule, wanted, stage):
            return problem
        got.append(schedule)
    return None if got == want else _wrong_order(got, want)


def _left_over(schedule: Schedule, want: list[Schedule], stage: int) -> Problem | None:
    """Find the steps of other stages, too: calls share a list, and maybe the later ones fill it as well."""
    if schedule == want[stage] or schedule not in (sum(want[: stage + 1], []), sum(want, [])):
        return None
    expected = f"stage {stage}: {text(want[stage])}"
    return Problem(FROM_AN_EARLIER_CALL, expected, "these steps, together with those of other calls")


def _read(steps: object) -> Schedule | None:
    if not isinstance(steps, (list, tuple)):
        return None
    return [tuple(step) for step in steps] if all(map(_is_step, steps)) else None


def _is_step(step: object) -> bool:
    if not (isinstance(step, (list, tuple)) and len(step) == 2):
        return False
    return step[0] in ("F", "B") and type(step[1]) is int


def _raw(answer: ReturnedSchedule) -> str:
    """Return what is no schedule in words, a list by the first of its elements that is no step."""
    value = answer.value
    if not isinstance(value, (list, tuple)):
        return described(answer)
    return f"a {type(value).__name__} with {next(step for step in value if not _is_step(step))!r}"


def _wrong_steps(schedule: Schedule, want: Schedule, stage: int) -> Problem | None:
    """Find steps that are not there as often as they should be, or before what they need."""
    missing, extra = (Counter(a) - Counter(b) for a, b in ((want, schedule), (schedule, want)))
    if missing or extra:
        named = [f"{_names(missing)} missing"] if missing else []
        named += [f"{_names(extra)} too much"] if extra else []
        expected = f"stage {stage}: a forward and a backward of each microbatch, {len(want)} steps"
        return Problem(mistakes.STEPS_MISCOUNTED, expected, "; ".join(named))
    open_forwards: Counter[int] = Counter()
    for kind, microbatch in schedule:
        open_forwards[microbatch] += 1 if kind == "F" else -1
        if open_forwards[microbatch] < 0:
            got = text(schedule)
            return Problem(
                mistakes.BACKWARD_BEFORE_FORWARD, f"stage {stage}: F{microbatch} before its B", got
            )
    return None


def _wrong_order(got: list[Schedule], want: list[Schedule]) -> Problem:
    stage = next(stage for stage, wanted in enumerate(want) if got[stage] != wanted)
    expected, found = f"stage {stage}: {text(want[stage])}", text(got[stage])
    try:
        reference.busy_and_total(got, 1, 2)
    except Stuck as stuck:
        return Problem(mistakes.STAGES_STUCK, expected, f"{found}: {stuck}, forever")
    for stage, wanted in enumerate(want):
        limit, most = reference.most_in_flight(wanted), reference.most_in_flight(got[stage])
        if most != limit:
            kind = mistakes.TOO_MANY_IN_FLIGHT if most > limit else mistakes.TOO_FEW_IN_FLIGHT
            expected = f"stage {stage}: {limit} in flight, {text(wanted)}"
            return Problem(kind, expected, f"{most}, {text(got[stage])}")
    return Problem(mistakes.ANOTHER_ORDER_OF_STEPS, expected, found)


def _names(steps: Counter[Step]) -> str:
    return text(sorted(steps.elements(), key=lambda step: (step[0] == "B", step[1])))


def text(schedule: Sequence[tuple[str, int | str]]) -> str:
    """Return the first steps of a schedule, such as "F0 B0"."""
    shown = [f"{kind}{microbatch}" for kind, microbatch in schedule[:SHOWN]]
    return " ".join(shown) + (" …" if len(schedule) > SHOWN else "")
