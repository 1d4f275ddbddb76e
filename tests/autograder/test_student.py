"""Handles to a student's functions, here and in another process: the same results, the same failures."""

import time

import psutil
import pytest
import torch

from autograder.inside import runs, worlds
from autograder.inside.drivers import calls
from autograder.inside.runs import RunFailed
from autograder.kit import student
from autograder.sandbox.student_process import StudentProcess
from fourranks import zygote

CELLS = [
    "%load_ext fourranks",
    """
import os, sys, time
import numpy as np
import torch
import torch.distributed as dist

def double(tensor, factor=2):
    tensor *= factor
    return {"rank": dist.get_rank(), "size": dist.get_world_size()}

def group_of(group=None):
    return dist.get_process_group_ranks(group), dist.get_rank(group)

def to_the_right():
    rank, size = dist.get_rank(), dist.get_world_size()
    work = dist.isend(torch.zeros(3), (rank + 1) % size)
    dist.recv(torch.zeros(3), (rank - 1) % size)
    work.wait()

def collective():
    x = torch.ones(2); dist.all_reduce(x)
    return x

def fail():
    if dist.get_rank() == 1:
        raise KeyError("no such thing")

def fail_while_others_wait():
    if dist.get_rank() == 1:
        raise KeyError("no such thing")
    dist.recv(torch.zeros(1), 1)

def fail_while_others_never_end():
    fail()
    never_end()

def leave():
    sys.exit(4)

def ask_a_library():
    np.stack([])

def gather_what_does_not_fit():
    dist.all_gather_into_tensor(torch.zeros(3, 3), torch.zeros(2))

def wait_for_nothing():
    dist.recv(torch.zeros(1), 1 - dist.get_rank())

def die():
    os._exit(9)

def never_end():
    while True:
        time.sleep(0.01)

def take_a_while():
    time.sleep(1.5)

def show():
    print("from a rank")
    print("and more", file=sys.stderr)

def odd():
    return object()

def odd_argument(items):
    items.append(print)

def leave_a_trace():
    dist.left_by_a_student = True

def find_a_trace():
    return hasattr(dist, "left_by_a_student")

def die_later():
    if dist.get_rank() == 2:
        import threading
        threading.Timer(0.1, os._exit, [3]).start()
    return dist.get_world_size()

def forbidden_on_the_last():
    if dist.get_rank() == dist.get_world_size() - 1:
        import torch.distributed.pipelining as pipelining
        pipelining.ScheduleGPipe()
""",
    "this cell raises",
    "answer = 42",
    "def after():\n    return answer",
]


@pytest.fixture(scope="module")
def notebook():
    with StudentProcess(CELLS) as process:
        yield process


@pytest.fixture(scope="module")
def names():
    names = {"__name__": "__main__", "answer": 42}
    exec(compile(CELLS[1].lstrip() + CELLS[4], "<cell>", "exec"), names)
    return names


@pytest.fixture(params=["here", "behind wire"])
def function(request):
    """Makes the handle to a function of CELLS, in this process or in another."""
    made = []

    def make(name: str) -> student.Function:
        if request.param == "here":
            made.append(student.handle(request.getfixturevalue("names")[name]))
        else:
            made.append(request.getfixturevalue("notebook").function(name))
        made[-1].timeout = 5.0
        return made[-1]

    yield make
    for handle in made:
        handle.release()


def test_each_rank_gets_its_own_inputs_and_answers_with_value_and_arguments(function):
    tensors = [torch.arange(3), torch.arange(3.0), torch.zeros(0)]
    outcomes = function("double").run([(tensor, 3) for tensor in tensors])
    assert [outcome.value for outcome in outcomes] == [{"rank": rank, "size": 3} for rank in range(3)]
    assert [outcome.arguments[0].tolist() for outcome in outcomes] == [[0, 3, 6], [0, 3, 6], []]
    assert tensors[0].tolist() == [0, 1, 2]  # the argument stays as it was


def test_a_rank_without_inputs_does_not_call_the_function(function):
    outcomes = function("double").run([None, (torch.ones(1),)])
    assert outcomes[0] is None
    assert outcomes[1].value == {"rank": 1, "size": 2}


def test_a_smaller_process_group_is_made_on_the_ranks(function):
    outcomes = function("group_of").run([None, (), None, ()], members=(1, 3))
    assert [outcome and outcome.value for outcome in outcomes] == [None, ([1, 3], 0), None, ([1, 3], 1)]


def test_the_record_has_each_message_with_peer_bytes_and_line(function):
    outcomes = function("to_the_right").run([(), (), ()])
    sends = [call for call in outcomes[2].calls if call.op == "send"]
    assert [(call.peer, call.nbytes, call.dtype) for call in sends] == [(0, 12, "float32")]
    assert [call.op for call in outcomes[0].calls] == ["send", "recv"]
    assert sends[0].line > 0 and sends[0].end >= sends[0].start


def test_the_record_has_collectives(function):
    outcomes = function("collective").run([(), ()])
    assert [call.op for call in outcomes[0].calls] == ["all_reduce"]


def test_the_record_of_one_run_holds_nothing_of_the_run_before(function):
    handle = function("collective")
    handle.run([(), ()])
    assert len(handle.run([(), ()])[0].calls) == 1


@pytest.mark.parametrize(
    ("name", "inputs", "reason", "message"),
    [
        ("fail", [(), ()], runs.RAISED, "rank 1 raised KeyError in line .*no such thing"),
        (
            "fail_while_others_wait",
            [(), ()],
            runs.RAISED,
            "rank 1 raised KeyError in line .*no such thing",
        ),
        ("leave", [(), ()], runs.RAISED, "raised SystemExit in line .*: 4"),
        ("double", [(), ()], runs.RAISED, "raised TypeError: .*tensor"),
        ("wait_for_nothing", [(), ()], runs.DEADLOCK, "wait forever"),
        ("die", [(), ()], runs.DIED, "exit"),
        ("never_end", [(), ()], runs.TIMED_OUT, r"within [\d.]+ s"),
        (
            "fail_while_others_never_end",
            [(), ()],
            runs.TIMED_OUT,
            r"rank 1 raised KeyError in line .*no such thing.*within [\d.]+ s",
        ),
        ("odd", [(), ()], runs.WRONG_TYPE, "rank 0 .*object is neither plain data nor a tensor"),
        ("odd_argument", [([],), ([],)], runs.WRONG_TYPE, "rank 0 .*neither plain data nor a tensor"),
    ],
)
def test_a_run_that_goes_wrong_says_why_and_the_next_one_works(function, name, inputs, reason, message):
    handle = function(name)
    handle.timeout = 2.0 if reason == runs.TIMED_OUT else 20.0
    with pytest.raises(RunFailed, match=f"(?s){message}") as caught:
        handle.run(inputs)
    assert caught.value.reason == reason
    assert function("double").run([(torch.ones(1),)] * 2)[0].arguments[0].item() == 2


@pytest.mark.parametrize(
    ("name", "line"),
    [("ask_a_library", "np.stack([])"), ("gather_what_does_not_fit", "dist.all_gather_into_tensor(")],
)
def test_an_error_inside_a_library_names_the_line_that_called_the_library(function, name, line):
    at = next(number for number, text in enumerate(CELLS[1].strip().splitlines(), 1) if line in text)
    with pytest.raises(RunFailed, match=rf"rank 0 raised \w+ in line {at}\b"):
        function(name).run([(), ()])


@pytest.mark.parametrize("tasks, has_time", [(1.0, False), (3.0, True)])
def test_a_call_has_longer_the_more_a_machine_has_to_do(function, tasks, has_time, monkeypatch):
    monkeypatch.setattr(student, "busyness", lambda: tasks)
    handle = function("take_a_while")
    handle.timeout = 1.0
    if has_time:
        handle.run([()])
        return
    with pytest.raises(RunFailed) as caught:
        handle.run([()])
    assert caught.value.reason == runs.TIMED_OUT


def test_no_machine_is_so_busy_that_a_call_has_no_end(function, monkeypatch):
    monkeypatch.setattr(student, "busyness", lambda: 1e6)
    handle = function("never_end")
    handle.timeout = 0.5
    with pytest.raises(RunFailed) as caught:
        handle.run([()])
    assert caught.value.reason == runs.TIMED_OUT


@pytest.mark.parametrize("compiling", [True, False])
def test_torchs_compiler_is_imported_for_all_ranks_only_where_a_driver_needs_it(
    compiling, names, monkeypatch
):
    imported, shared = [], zygote.shared()
    real = shared.import_modules
    monkeypatch.setattr(shared, "import_modules", lambda *added: imported.extend(added) or real(*added))
    monkeypatch.setattr(worlds, "COMPILING", (b"autograder.inside.drivers.calls:",) if compiling else ())
    with student.handle(names["double"]) as handle:
        (outcome,) = handle.run([((torch.ones(1),), {})], driver=calls.call)
    assert outcome.value == {"rank": 0, "size": 1}
    assert (zygote.COMPILER in imported) == compiling


def test_what_a_failed_run_communicated_is_still_there(function):
    with pytest.raises(RunFailed) as caught:
        function("wait_for_nothing").run([(), ()])
    assert [[call.op for call in own] for own in caught.value.calls] == [["recv"], ["recv"]]


def test_what_one_check_changes_on_its_ranks_does_not_reach_the_next_check(function):
    with function("leave_a_trace") as handle:
        handle.run([(), ()])
    assert [outcome.value for outcome in function("find_a_trace").run([(), ()])] == [False, False]


@pytest.mark.parametrize("sizes", [(3, 2, 3, 2), (3, 4, 2)])
def test_a_rank_that_dies_when_its_run_is_over_costs_no_later_run(function, sizes):
    handle = function("die_later")
    for world_size in sizes:
        assert [outcome.value for outcome in handle.run([()] * world_size)] == [world_size] * world_size
        time.sleep(0.5)


def test_ranks_that_a_later_run_adds_lack_what_is_forbidden_as_well(function):
    handle = function("forbidden_on_the_last")
    handle.forbid(["torch.distributed.pipelining"])
    for world_size in (1, 2):
        with pytest.raises(RunFailed) as failure:
            handle.run([()] * world_size)
        assert failure.value.exception == "ForbiddenLibrary"


def test_what_ranks_print_does_not_get_into_the_answer_or_onto_stderr(function, capfd):
    function("show").run([(), ()])
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "line",
    [
        "%matplotlib inline",
        "quit()",
        "import faulthandler; faulthandler.enable()",
        "import subprocess, sys; subprocess.run(['true'], stdout=sys.stdout, check=True)",
        "import os; print(os.fsdecode(b'caf\\xe9'))",
        "import os; from IPython.display import display; display(os.fsdecode(b'caf\\xe9'))",
    ],
)
def test_what_a_cell_does_before_it_defines_something_may_be_all_that_a_kernel_allows(notebook, line):
    assert notebook.run(f"{line}\ndef defined():\n    return 7").error is None
    assert notebook.function("defined").run([()])[0].value == 7


@pytest.mark.parametrize("where", ["raise ValueError('\\ud800')", "def half(): raise ValueError('\\ud800')"])
def test_half_a_character_in_an_error_costs_no_more_than_that(notebook, where):
    shown = notebook.run(where)
    if shown.error is None:
        with pytest.raises(RunFailed, match=r"ValueError.*\?"):
            notebook.function("half").run([()])
    else:
        assert shown.error["message"] == "?"
    assert notebook.function("after").run([()])[0].value == 42


def test_a_cell_that_fails_does_not_stop_the_cells_after_it(notebook):
    assert notebook.function("after").run([()])[0].value == 42


def test_a_test_cell_without_a_check_calls_a_function_as_if_it_were_here(notebook):
    after = notebook.function("after")
    assert after() == 42
    with pytest.raises(RunFailed, match="TypeError"):
        after(nothing="takes this")


def test_a_name_that_the_notebook_does_not_define_is_a_failed_run(notebook):
    with pytest.raises(RunFailed, match="defines no function forgotten"):
        notebook.function("forgotten").run([()])


def test_a_process_that_was_killed_is_started_again_for_the_next_run():
    with StudentProcess(["def one():\n    return 1"]) as process:
        assert process.function("one").run([()])[0].value == 1
        _latest_interpreter().kill()
        with pytest.raises(RunFailed) as caught:
            process.function("one").run([()])
        assert caught.value.reason == runs.DIED
        assert process.function("one").run([()])[0].value == 1


def _latest_interpreter() -> psutil.Process:
    ours = [child for child in psutil.Process().children() if "autograder.inside" in child.cmdline()]
    return max(ours, key=psutil.Process.create_time)


def test_closing_the_process_ends_its_ranks_too():
    with StudentProcess(["def one():\n    return 1"]) as process:
        process.function("one").run([(), ()])
        below = _latest_interpreter().children(recursive=True)
        assert below
    _, alive = psutil.wait_procs(below, timeout=10)
    assert not alive


def test_a_handle_is_its_own_handle(names):
    handle = student.handle(names["double"])
    assert student.handle(handle) is handle
    assert handle.name == "double"
