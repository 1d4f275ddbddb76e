"""The soak test's parts: drawing, planting, foretelling; and a short soak on real ranks."""

import random
from dataclasses import replace

import pytest

from benchmarks.soak import faults, generate
from benchmarks.soak.actions import Group
from benchmarks.soak.judge import Verdict, soak, trial, verdict
from benchmarks.soak.oracle import Fate, Forecast, forecast
from benchmarks.soak.program import Choose, Program, Repeat
from benchmarks.soak.statements import Collective, Recv, Send, Wait
from fourranks import CellTimeout, DeadlockError, RankDied, RankError

WORLD = Group("", (0, 1))
ALL_REDUCE = Collective("all_reduce", WORLD, 3, "float32", reduce_op="SUM")
BROADCAST = Collective("broadcast", WORLD, 3, "float32", root=0)
TENSOR = {"group": WORLD, "numel": 3, "dtype": "float32"}
OTHER = "1 - rank"


def fate(*body):
    return forecast(Program(2, body)).fate


def programs(count, seed=11):
    for number in range(count):
        rng = random.Random(f"{seed}/{number}")
        yield generate.draw(rng.choice(generate.WORLD_SIZES), rng), rng


def test_a_seed_always_gives_the_same_programs():
    assert trial(3, 7).program == trial(3, 7).program
    assert trial(3, 7).program.source != trial(4, 7).program.source


def test_programs_without_a_fault_must_complete_and_are_python():
    for program, _ in programs(300):
        compile(program.source, "a cell", "exec")
        assert forecast(program).fate is Fate.COMPLETES


@pytest.mark.parametrize("fault", faults.FAULTS, ids=lambda fault: fault.__name__)
def test_a_planted_fault_changes_what_one_rank_does_and_only_that_one(fault):
    planted = 0
    for program, rng in programs(400 if fault is faults.uncaught else 60):  # its place is rare
        faulty = faults.plant(program, fault, rng)
        if faulty is None:
            continue
        planted += 1
        compile(faulty.source, "a cell", "exec")
        ranks = range(program.world_size)
        assert [faulty.unroll(rank) != program.unroll(rank) for rank in ranks].count(True) == 1
    assert planted > 20


def test_most_faults_must_be_found():
    fates = [forecast(faults.plant_any(program, rng)[0]).fate for program, rng in programs(200)]
    assert fates.count(Fate.FAILS) > 140


@pytest.mark.parametrize(
    "expected, body",
    [
        (Fate.COMPLETES, (ALL_REDUCE, BROADCAST)),
        (Fate.FAILS, (Choose("rank == 0", (ALL_REDUCE,)),)),
        (Fate.FAILS, (Choose("rank == 0", (ALL_REDUCE, BROADCAST), (BROADCAST, ALL_REDUCE)),)),
        (
            Fate.FAILS,
            (Choose("rank == 0", (BROADCAST,), (Collective("broadcast", WORLD, 4, "float32", 0),)),),
        ),
        (Fate.OPEN, (Choose("rank == 0", (BROADCAST,)),)),  # the source may not notice that nobody listens
        (Fate.FAILS, (Choose("rank == 1", (BROADCAST,)),)),
        (Fate.FAILS, (Repeat(3, (Choose("rank == 0 and step == 2", (), (ALL_REDUCE,)),)),)),
        (Fate.FAILS, (Send(OTHER, **TENSOR), Recv(OTHER, **TENSOR))),
        (Fate.COMPLETES, (Send(OTHER, **TENSOR, handle="a"), Recv(OTHER, **TENSOR), Wait("a"))),
        (Fate.FAILS, (Send(OTHER, **TENSOR, handle="a"), Wait("a"), Recv(OTHER, **TENSOR))),
        (Fate.FAILS, (Choose("rank == 0", (Send(OTHER, **TENSOR, tag=1),), (Recv(OTHER, **TENSOR),)),)),
        (Fate.COMPLETES, (Choose("rank == 0", (Send(OTHER, **TENSOR),), (Recv(None, **TENSOR),)),)),
    ],
)
def test_the_simulation_foretells(expected, body):
    assert fate(*body) is expected


@pytest.mark.parametrize(
    "fate, reason, error, expected",
    [
        (Fate.COMPLETES, "", None, Verdict.COMPLETED),
        (Fate.COMPLETES, "", DeadlockError(""), Verdict.FALSE_ALARM),
        (Fate.FAILS, "stuck", None, Verdict.MISSED),
        (Fate.FAILS, "stuck", CellTimeout(""), Verdict.MISSED),
        (Fate.FAILS, "stuck", DeadlockError(""), Verdict.DETECTED),
        (Fate.FAILS, "contradiction", RankDied(0, "", ""), Verdict.RANK_LOST),
        (Fate.FAILS, "kill", RankDied(0, "", ""), Verdict.DETECTED),
        (Fate.FAILS, "kill", DeadlockError(""), Verdict.MISSED),
        (Fate.FAILS, "exception", RankError({}), Verdict.DETECTED),
        (Fate.OPEN, "", None, Verdict.COMPLETED),
        (Fate.OPEN, "", CellTimeout(""), Verdict.MISSED),
    ],
)
def test_an_outcome_is_judged_by_what_was_foretold(fate, reason, error, expected):
    assert verdict(Forecast(fate, reason, ()), error) is expected


def test_a_timeout_may_end_only_a_hang_in_which_a_rank_polls():
    polling = Program(2, (Choose("rank == 0", (replace(ALL_REDUCE, handle="a"), Wait("a", "poll"))),))
    assert forecast(polling).fate is Fate.FAILS
    assert verdict(forecast(polling), CellTimeout("")) is Verdict.TIMED_OUT
    elsewhere = Program(
        2, (Choose("rank == 1", (BROADCAST,)), replace(ALL_REDUCE, handle="a"), Wait("a", "poll"))
    )
    assert not forecast(replace(elsewhere, body=elsewhere.body[1:])).polls


def test_ranks_that_had_to_be_started_again_are_lost():
    assert verdict(Forecast(Fate.FAILS, "stuck", ()), DeadlockError(""), restarted=True) is Verdict.RANK_LOST


def test_a_short_soak_misses_nothing_and_accuses_nobody():
    for judgement in soak(trial(14, number) for number in range(16)):
        assert judgement.is_good, (judgement.trial, judgement.verdict, judgement.outcome)
