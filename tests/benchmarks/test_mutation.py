"""The mutation run's parts: the mutants, and their fate on real ranks."""

import dataclasses
import sys
import textwrap

import psutil
import pytest

from autograder.kit.mistakes import TIMED_OUT
from autograder.topics.collectives.mistakes import UNWAITED
from benchmarks.mutation import equivalents, exercise, report, world
from benchmarks.mutation.exercise import Cell, Exercise
from benchmarks.mutation.mutants import Mutant, mutants
from benchmarks.mutation.world import Judgement, Lane, Verdict

SETUP = "import torch\nimport torch.distributed as dist\nfrom autograder import check"
EXCHANGE = """
def exchange(tensor, peer):
    ### BEGIN SOLUTION
    received = torch.empty_like(tensor)
    sending = dist.isend(tensor, peer)
    dist.recv(received, peer)
    sending.wait()
    return received
    ### END SOLUTION
"""
CHECK = "check.exchange(exchange, world_sizes=(2,), numels=(3,))"


def an_exercise(solution, *tests):
    cells = [Cell(f"test_{number}", test, 0) for number, test in enumerate(tests)]
    return Exercise("a_topic", SETUP, (Cell("solution", solution, 11),), tuple(cells))


def changes(solution):
    """The mutations in the lines that students write, as (before, after)."""
    indented = textwrap.indent(textwrap.dedent(solution), "    ")
    cell = f"def f(rank, world_size, group=None):\n    ### BEGIN SOLUTION\n{indented}\n    ### END SOLUTION"
    return {(mutant.before, mutant.after) for mutant in mutants(an_exercise(cell))}


@pytest.fixture(scope="module")
def lane():
    lane = Lane(timeout=3, patience=60)
    yield lane
    lane.close()


def verdict_on(lane, solution, *tests):
    """The tests' verdict when this code is in the place of the solution."""
    original = an_exercise(EXCHANGE, *tests or [CHECK])
    cell = dataclasses.replace(original.solutions[0], source=solution)
    return lane.examine(original, Mutant("a_topic", "exchange", 1, "a fault", "before", "after", cell))


@pytest.mark.parametrize(
    ("statement", "faults"),
    [
        ("x = (rank + 1) % n", ["x = rank + 1", "x = (rank - 1) % n", "x = (rank + 0) % n", "x = rank % n"]),
        ("x = chunks[rank]", ["x = chunks[rank - 1]", "x = chunks[world_size]"]),
        ("x = chunks[:rank]", ["x = chunks[:]"]),
        ("x = a < 3 and b", ["x = a <= 3 and b", "x = a < 3 or b", "x = b", "x = a < 4 and b"]),
        ("work.wait()", ["pass"]),
        ("dist.all_reduce(x, group=group)", ["pass", "dist.all_reduce(x)"]),
        ("dist.barrier(group)", ["pass", "dist.barrier()"]),
        ("return rank", ["return None", "return world_size"]),
        ("x = [y for y in ys if y]", ["x = [y for y in ys]"]),
        ("x = y.clone()", ["x = y"]),
        ("x = list(reversed(y))", ["x = reversed(y)", "x = list(y)"]),
        ("x = f(y, z)", ["x = f(z, y)"]),
        ("x = [y, *z]", ["x = [y]", "x = [*z]"]),
        ("x.grad = None", ["pass"]),
    ],
)  # fmt: skip
def test_a_statement_is_mutated_in_these_ways(statement, faults):
    assert {(statement, fault) for fault in faults} <= changes(statement)


def test_a_collective_is_dropped_doubled_and_put_after_the_next_call():
    found = changes("dist.all_reduce(x)\noptimizer.step()")
    assert ("dist.all_reduce(x)", "dist.all_reduce(x); dist.all_reduce(x)") in found
    assert ("dist.all_reduce(x); optimizer.step()", "optimizer.step(); dist.all_reduce(x)") in found


def test_a_condition_or_context_is_dropped():
    found = changes("if rank == 0:\n    x = y\nwith torch.no_grad():\n    x = z")
    assert ("if rank == 0:", "if True:") in found
    assert ("with torch.no_grad():", "nothing") in found


def test_a_decorator_is_dropped():
    assert ("@staticmethod", "nothing") in changes("@staticmethod\ndef g():\n    return rank")


def test_what_is_given_and_what_people_read_is_not_mutated():
    solution = '''
def f(x: int = 3) -> None:
    """Text."""
    y = 7
    ### BEGIN SOLUTION
    """More."""
    if x < 0:
        raise ValueError(f"{x + 1} is no rank")
    zip(strict=True)
    ### END SOLUTION
'''
    found = {(mutant.before, mutant.after) for mutant in mutants(an_exercise(solution))}
    assert found == {
        ("if x < 0:", after) for after in ("if x <= 0:", "if x < 1:", "if x < -1:", "if True:", "if False:")
    } | {
        ("raise ValueError(f'{x + 1} is no rank')", "pass"),
        ("zip(strict=True)", "pass"),
    }


def test_a_mutant_knows_its_function_its_line_and_is_made_once():
    solution = (
        "class A:\n    def f(self):\n        ### BEGIN SOLUTION\n        return 2\n        ### END SOLUTION"
    )
    found = list(mutants(an_exercise(solution)))
    assert [(mutant.function, mutant.line) for mutant in found] == [("A.f", 14)] * 3
    assert len({mutant.cell.source for mutant in found}) == 3


def test_an_exercise_is_tested_by_the_cells_that_come_to_a_function():
    read = exercise.read("02_collectives")
    tests = {name: [cell.name for cell in read.tests_of(name)] for name in ("exchange", "ring_all_gather")}
    assert tests == {
        "exchange": ["exchange_check"],
        "ring_all_gather": ["ring_all_gather_check", "ring_all_reduce_check"],
    }
    assert "seed=2301" in read.tests[0].source
    lines = (exercise.SOURCE / "02_collectives" / "exercise.py").read_text().splitlines()
    assert lines[read.solutions[0].line - 1].startswith("def exchange(")


def test_the_reference_passes_and_a_mutant_is_caught_by_the_check_and_its_mistake(lane):
    assert verdict_on(lane, EXCHANGE) == Verdict()
    caught = verdict_on(lane, EXCHANGE.replace("sending.wait()", "pass"))
    assert (caught.test, caught.mistake, caught.is_told) == ("test_0", UNWAITED.title, True)


def test_a_mutant_survives_a_test_that_does_not_look_for_it(lane):
    unchanged = EXCHANGE.replace("return received", "return tensor.zero_()")
    assert verdict_on(lane, unchanged, "exchange") == Verdict()
    assert verdict_on(lane, unchanged, "exchange", CHECK).test == "test_1"


def test_an_error_in_place_of_a_verdict_is_told_apart(lane):
    error = Verdict("test_0", "KeyError", "KeyError: 'exchange'", is_told=False)
    assert verdict_on(lane, EXCHANGE, "raise KeyError(exchange.name)") == error


def test_a_mutant_that_never_ends_is_caught_by_the_timeout(lane):
    assert (
        verdict_on(lane, EXCHANGE.replace("return received", "while True: pass")).mistake == TIMED_OUT.title
    )
    assert verdict_on(lane, EXCHANGE) == Verdict()


def test_tests_that_never_end_cost_a_process_and_no_more(lane):
    verdict_on(lane, EXCHANGE)  # whose process stays
    before = set(psutil.Process().children(recursive=True))
    short = Lane(patience=4)
    assert verdict_on(short, EXCHANGE, "exchange\nwhile True: pass").mistake == world.HUNG
    assert verdict_on(short, EXCHANGE, "exchange\nimport os; os._exit(3)").text == world.ENDED
    assert verdict_on(short, EXCHANGE, "raise KeyError(exchange.name)") == Verdict(
        "test_0", "KeyError", "KeyError: 'exchange'", False
    )
    short.close()
    assert set(psutil.Process().children(recursive=True)) <= before


def test_mutants_are_judged_in_their_order_by_several_processes():
    small = an_exercise("def f():\n    ### BEGIN SOLUTION\n    return 1\n    ### END SOLUTION", "f")
    made = list(mutants(small))
    assert [judgement.mutant for judgement in world.examined(small, made, jobs=2)] == made


def test_an_equivalent_does_not_count_as_a_survivor_unless_it_is_caught(monkeypatch):
    first, second, third = list(mutants(an_exercise(EXCHANGE)))[:3]
    judged = [
        Judgement(first, Verdict("t", "value")),
        Judgement(second, Verdict()),
        Judgement(third, Verdict()),
    ]
    assert report.share_caught(judged) == pytest.approx(1 / 3)
    change = second.function, second.before, second.after
    monkeypatch.setattr(equivalents, "EQUIVALENTS", {second.topic: {change: "because it is"}})
    assert report.share_caught(judged) == 0.5
    assert report.is_survivor(Judgement(third, Verdict(text=world.ENDED)))
    text = report.text("a_topic", judged, "a command")
    assert "| `exchange` | 3 | 1 | 1 | 1 |" in text
    assert "because it is" in text
    assert not report.is_equivalent(Judgement(second, Verdict("t", "value")))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 unparses tuples with more parentheses")
@pytest.mark.parametrize("topic", exercise.topics())
def test_every_equivalent_names_a_mutant_that_there_is(topic):
    made = {(mutant.function, mutant.before, mutant.after) for mutant in mutants(exercise.read(topic))}
    assert set(equivalents.EQUIVALENTS.get(topic, ())) <= made
