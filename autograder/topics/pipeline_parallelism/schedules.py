"""Checks of exercise 07 about who does what when: layers for stages, and schedules.

Pure functions, called on one rank. A wrong schedule is judged by what would become of the pipeline: stages
that wait for ever, too much in flight, too little. `pipeline_parallelism` runs schedules on real ranks.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from autograder.inside.drivers import pipeline_schedules as drivers
from autograder.kit.case import Trial
from autograder.kit.judge import judge
from autograder.kit.mistakes import Mistake
from autograder.kit.problem import Problem, counted
from autograder.kit.student import Function
from autograder.kit.values import kind_of
from autograder.topics.pipeline_parallelism import reference_schedules as reference
from autograder.topics.pipeline_parallelism.banned import BANNED
from autograder.topics.pipeline_parallelism.mistakes import (
    ANOTHER_ORDER_OF_STEPS,
    BACKWARD_BEFORE_FORWARD,
    EMPTY_STAGES_ACCEPTED,
    LAYERS_MISSING,
    LAYERS_OUT_OF_ORDER,
    LAYERS_TWICE,
    LAYERS_UNEVEN,
    LONGER_STAGES_ELSEWHERE,
    NO_RANGE,
    NO_SCHEDULE,
    POSSIBLE_LAYERS_REFUSED,
    REFUSAL_WITHOUT_NUMBERS,
    STAGES_STUCK,
    STEPS_MISCOUNTED,
    TOO_FEW_IN_FLIGHT,
    TOO_MANY_IN_FLIGHT,
    UNEVEN_ROUNDS_ACCEPTED,
)
from autograder.topics.pipeline_parallelism.reference_schedules import Step, Stuck, in_words

NUM_STAGES = (1, 2, 3, 4, 8)
SHOWN = 14  # steps of a schedule in a message

Code = Callable | Function
Schedule = list[Step]
Verify = Callable[[list[dict]], Problem | None]


def pure_trial(title: str, calls: Sequence[Sequence], verify: Verify, size: int = 1) -> Trial:
    """Some calls of a pure function on one rank; `verify` gets the answers."""
    return Trial(
        title=title,
        inputs=[([list(arguments) for arguments in calls],)],
        driver=drivers.call_each,
        verify=lambda outcomes: verify(outcomes[0].value),
        size=size,
        backends=("gloo",),
    )


def _refusal_trial(title: str, arguments: Sequence, accepted: Mistake, names: Sequence[int]) -> Trial:
    """A call that has to end in a ValueError that names these numbers."""
    expected = f"a ValueError that names {' and '.join(map(str, names))}"

    def verify(answers: list[dict]) -> Problem | None:
        (answer,) = answers
        if "refused" not in answer:
            return Problem(accepted, expected, described(answer))
        message = answer["refused"]
        if all(str(number) in message for number in names):
            return None
        return Problem(REFUSAL_WITHOUT_NUMBERS, expected, message or "a ValueError without a text")

    return pure_trial(title, [arguments], verify, size=0)


def described(answer: dict) -> str:
    if "refused" in answer:
        return f"ValueError: {answer['refused']}"
    value = answer["value"]
    return repr(value) if isinstance(value, (int, float, str)) else kind_of(value)


# --- assign_layers ----------------------------------------------------------------------------------------


def assign_layers(code: Code, num_stages: Sequence[int] = (1, 2, 3, 4), seed: int = 0) -> None:
    """Checks `assign_layers`: every layer once, in order, as evenly as can be, and a refusal of empty stages.

    Raises:
        AssertionError: when a case fails; its text is a small table with a hint.
    """
    judge("assign_layers", code, _assigning(num_stages, seed), seed, BANNED)


def _assigning(num_stages: Sequence[int], seed: int) -> Iterator[Trial]:
    draw = random.Random(seed)
    for stages in num_stages:
        for layers in sorted({stages, 2 * stages + 1, 3 * stages - 1, stages + draw.randrange(30)}):
            calls = [(layers, stages, stage) for stage in range(stages)]
            title = f"{counted(layers, 'layer')} on {counted(stages, 'stage')}"
            yield pure_trial(title, calls, lambda answers, n=layers: _misassigned(answers, n), size=layers)
        if stages > 1:
            arguments = stages - 1, stages, stages - 1
            yield _refusal_trial(
                f"{counted(stages - 1, 'layer')} on {counted(stages, 'stage')}",
                arguments,
                EMPTY_STAGES_ACCEPTED,
                arguments[:2],
            )


def _misassigned(answers: list[dict], num_layers: int) -> Problem | None:
    for stage, answer in enumerate(answers):
        if answer.get("type") != "range":
            mistake = POSSIBLE_LAYERS_REFUSED if "refused" in answer else NO_RANGE
            return Problem(mistake, f"stage {stage}: a range", described(answer))
    assigned = [answer["value"] for answer in answers]
    want = _evenly(num_layers, len(answers))
    if assigned == want:
        return None
    stage = next(stage for stage, own in enumerate(want) if assigned[stage] != own)
    return Problem(
        _misassignment(assigned, want), f"stage {stage}: {_layers(want[stage])}", _layers(assigned[stage])
    )


def _evenly(num_layers: int, num_stages: int) -> list[list[int]]:
    """As `torch.tensor_split` cuts: the first stages get one layer more."""
    size, left = divmod(num_layers, num_stages)
    starts = [stage * size + min(stage, left) for stage in range(num_stages + 1)]
    return [list(range(*bounds)) for bounds in zip(starts, starts[1:], strict=False)]


def _misassignment(assigned: list[list[int]], want: list[list[int]]) -> Mistake:
    given, wanted = Counter(sum(assigned, [])), Counter(sum(want, []))
    if given != wanted:
        return LAYERS_TWICE if given - wanted else LAYERS_MISSING
    if sum(assigned, []) != sum(want, []):
        return LAYERS_OUT_OF_ORDER
    sizes = [len(own) for own in assigned]
    return LAYERS_UNEVEN if max(sizes) - min(sizes) > 1 else LONGER_STAGES_ELSEWHERE


def _layers(layers: list[int]) -> str:
    return f"layers {layers[0]} to {layers[-1]}" if layers else "no layers"


# --- schedules --------------------------------------------------------------------------------------------


def gpipe_schedule(code: Code, num_stages: Sequence[int] = NUM_STAGES, seed: int = 0) -> None:
    """Checks `gpipe_schedule` for each number of stages with few and many microbatches.

    Raises:
        AssertionError: when a case fails; its text is a small table with a hint.
    """
    judge("gpipe_schedule", code, _scheduling(reference.gpipe, num_stages, seed), seed, BANNED)


def one_f_one_b_schedule(code: Code, num_stages: Sequence[int] = NUM_STAGES, seed: int = 0) -> None:
    """Checks `one_f_one_b_schedule` for each number of stages with few and many microbatches.

    Raises:
        AssertionError: when a case fails; its text is a small table with a hint.
    """
    judge("one_f_one_b_schedule", code, _scheduling(reference.one_f_one_b, num_stages, seed), seed, BANNED)


def _scheduling(schedule: Callable, num_stages: Sequence[int], seed: int) -> Iterator[Trial]:
    draw = random.Random(seed)
    for stages in num_stages:
        for microbatches in sorted({1, max(1, stages - 1), stages, 2 * stages + draw.randrange(1, 5)}):
            yield _schedule_trial(schedule, (stages, microbatches))


def interleaved_schedule(
    code: Code, num_stages: Sequence[int] = (1, 2, 3, 4), num_chunks: Sequence[int] = (2, 3), seed: int = 0
) -> None:
    """Checks `interleaved_schedule` for numbers of ranks and chunks, and a refusal of other microbatches.

    Raises:
        AssertionError: when a case fails; its text is a small table with a hint.
    """
    judge("interleaved_schedule", code, _interleaving(num_stages, num_chunks), seed, BANNED)


def _interleaving(num_stages: Sequence[int], num_chunks: Sequence[int]) -> Iterator[Trial]:
    for stages in num_stages:
        for chunks in num_chunks:
            for microbatches in (stages, 3 * stages):
                yield _schedule_trial(reference.interleaved, (stages, microbatches, chunks))
        if stages > 1:
            arguments = 0, stages, 2 * stages - 1, num_chunks[0]
            title = f"{counted(stages, 'rank')}, {in_words(2 * stages - 1)}"
            yield _refusal_trial(title, arguments, UNEVEN_ROUNDS_ACCEPTED, (stages, 2 * stages - 1))


def _schedule_trial(schedule: Callable, numbers: tuple[int, ...]) -> Trial:
    """All stages' schedules; `numbers` are the arguments behind the stage."""
    stages, microbatches, *chunks = numbers
    want = [schedule(stage, *numbers) for stage in range(stages)]
    title = f"{counted(stages, 'stage')}, {in_words(microbatches)}"
    if chunks:
        title = f"{title.replace('stage', 'rank')}, {counted(chunks[0], 'chunk')}"
    calls = [(stage, *numbers) for stage in range(stages)]
    return pure_trial(title, calls, lambda answers: _misscheduled(answers, want), size=stages * microbatches)


def _misscheduled(answers: list[dict], want: list[Schedule]) -> Problem | None:
    got = []
    for stage, (answer, wanted) in enumerate(zip(answers, want, strict=True)):
        schedule = _read(answer)
        if schedule is None:
            return Problem(NO_SCHEDULE, f'stage {stage}: a list of ("F" or "B", microbatch)', _raw(answer))
        if problem := _wrong_steps(schedule, wanted, stage):
            return problem
        got.append(schedule)
    return None if got == want else _wrong_order(got, want)


def _read(answer: dict) -> Schedule | None:
    steps = answer.get("value")
    if not isinstance(steps, (list, tuple)):
        return None
    for step in steps:
        if not (isinstance(step, (list, tuple)) and len(step) == 2):
            return None
        if step[0] not in ("F", "B") or type(step[1]) is not int:
            return None
    return [tuple(step) for step in steps]


def _raw(answer: dict) -> str:
    value = answer.get("value")
    if not isinstance(value, (list, tuple)):
        return described(answer)
    return f"a {type(value).__name__} with {value[0]!r}" if value else f"an empty {type(value).__name__}"


def _wrong_steps(schedule: Schedule, want: Schedule, stage: int) -> Problem | None:
    """Steps that are not there as often as they should be, or before what they need."""
    missing, extra = (Counter(a) - Counter(b) for a, b in ((want, schedule), (schedule, want)))
    if missing or extra:
        named = [f"{_names(missing)} missing"] if missing else []
        named += [f"{_names(extra)} too much"] if extra else []
        expected = f"stage {stage}: a forward and a backward of each microbatch, {len(want)} steps"
        return Problem(STEPS_MISCOUNTED, expected, "; ".join(named))
    open_forwards: Counter[int] = Counter()
    for kind, microbatch in schedule:
        open_forwards[microbatch] += 1 if kind == "F" else -1
        if open_forwards[microbatch] < 0:
            got = _text(schedule)
            return Problem(BACKWARD_BEFORE_FORWARD, f"stage {stage}: F{microbatch} before its B", got)
    return None


def _wrong_order(got: list[Schedule], want: list[Schedule]) -> Problem:
    stage = next(stage for stage, wanted in enumerate(want) if got[stage] != wanted)
    expected, found = f"stage {stage}: {_text(want[stage])}", _text(got[stage])
    try:
        reference.busy_and_total(got, 1, 2)
    except Stuck as stuck:
        return Problem(STAGES_STUCK, expected, f"{found}: {stuck}, for ever")
    for stage, wanted in enumerate(want):
        limit, most = reference.most_in_flight(wanted), reference.most_in_flight(got[stage])
        if most != limit:
            kind = TOO_MANY_IN_FLIGHT if most > limit else TOO_FEW_IN_FLIGHT
            return Problem(
                kind, f"stage {stage}: {limit} in flight, {_text(wanted)}", f"{most}, {_text(got[stage])}"
            )
    return Problem(ANOTHER_ORDER_OF_STEPS, expected, found)


def _names(steps: Counter[Step]) -> str:
    return _text(sorted(steps.elements(), key=lambda step: (step[0] == "B", step[1])))


def _text(schedule: Sequence[Step]) -> str:
    shown = " ".join(f"{kind}{microbatch}" for kind, microbatch in schedule[:SHOWN])
    return shown + (" …" if len(schedule) > SHOWN else "")
