"""`RankGroup`: code on real ranks, its output, its values and its errors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import numpy
import pytest
import torch

import fourranks
from fourranks import CellTimeout, DeadlockError, FourRanksError, RankError, StartError, cell, zygote
from fourranks.errors import plain


def rendered(error):
    """The error as a notebook shows it, without colours."""
    return plain("\n".join(error._render_traceback_()))


def test_an_errors_lines_are_never_so_long_that_a_notebook_breaks_them_inside_a_word():
    sentence = "A collective needs every rank of its group: move it out of the branch. "
    shown = rendered(DeadlockError(f"These ranks would wait forever.\n  {3 * sentence}\n{2 * sentence}"))
    assert max(map(len, shown.split("\n"))) <= 120
    assert shown.count("\n    ") == 2, "what goes on is set in"
    assert " ".join(shown.split()).count(sentence.strip()) == 5


# --- running code ---


def test_a_cell_runs_on_all_ranks_and_shows_its_last_expression(shared_group):
    out = shared_group.execute("x = torch.arange(4.) + rank\ndist.all_reduce(x)\nx")
    assert str(out) == "[0-3] tensor([ 6., 10., 14., 18.])"


def test_a_cell_runs_on_some_ranks_only(shared_group):
    shared_group.execute("seen = 0")
    shared_group.execute("seen = 1", ranks=[0, 2])
    assert shared_group.pull("seen") == [1, 0, 1, 0]


def test_every_rank_has_rank_world_size_device_torch_and_dist(shared_group):
    values = shared_group.pull("(rank, world_size, str(device), dist.get_backend(), torch.ones(1).item())")
    assert values == [(rank, 4, "cpu", "gloo", 1.0) for rank in range(4)]


def test_ranks_look_like_those_of_torchrun_to_code_that_reads_the_environment(shared_group):
    names = "['RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'MASTER_ADDR']"
    values = shared_group.pull(f"[__import__('os').environ[name] for name in {names}]")
    assert values == [[str(rank), str(rank), "4", "127.0.0.1"] for rank in range(4)]


def test_ranks_share_the_processors_among_them(shared_group):
    from fourranks.hardware import processors

    assert shared_group.pull("torch.get_num_threads()") == [max(1, processors() // 4)] * 4


def test_ranks_draw_different_random_numbers_until_they_are_seeded(shared_group):
    draws = shared_group.pull(
        "(torch.rand(1).item(), __import__('random').random(), __import__('numpy').random.rand())"
    )
    assert all(len(set(column)) == 4 for column in zip(*draws, strict=True))


def test_tensor_operations_on_several_threads_work_in_a_forked_rank():
    with fourranks.start(1, "gloo") as group:
        assert group.pull("torch.get_num_threads()") == [fourranks.hardware.threads_per_rank(1)]
        assert group.pull("(torch.ones(2000, 2000) @ torch.ones(2000, 2000)).mean().item()") == [2000.0]


def test_run_sends_a_function_by_value_and_returns_one_value_a_rank(shared_group):
    factor = 10

    def product(offset):
        total = torch.tensor([float(shared_rank())])
        torch.distributed.all_reduce(total)
        return factor * shared_rank() + offset, total

    def shared_rank():
        return torch.distributed.get_rank()

    values = shared_group.run(product, offset=1)
    assert [value for value, _ in values] == [1, 11, 21, 31]
    assert all(total == 6 for _, total in values)


def test_map_gives_each_rank_its_own_arguments(shared_group):
    assert shared_group.map(lambda a, b: a + b, [(rank, 100) for rank in range(4)]) == [100, 101, 102, 103]


def test_what_a_function_prints_is_shown_also_when_it_fails(shared_group, capsys):
    shared_group.run(lambda: print("from", torch.distributed.get_rank() // 2))
    assert capsys.readouterr().out == "[0-1] from 0\n[2-3] from 1\n"
    with pytest.raises(RankError):
        shared_group.run(lambda: print("last words") or 1 / 0)
    assert capsys.readouterr().out == "[0-3] last words\n"


def test_what_a_function_prints_goes_to_the_caller_who_asks_for_it(shared_group, capsys):
    kept = []
    shared_group.map(print, [(rank // 2,) for rank in range(4)], on_output=kept.append)
    assert str(kept[-1]) == "[0-1] 0\n[2-3] 1"
    assert capsys.readouterr().out == ""


def test_map_wants_one_tuple_a_rank(shared_group):
    with pytest.raises(FourRanksError, match="one tuple of arguments a rank: 4, not 2"):
        shared_group.map(lambda a: a, [(1,), (2,)])


@pytest.mark.parametrize("inputs", [[1, 2, 3, 4], "abcd", None])
def test_map_wants_nothing_but_tuples(shared_group, inputs):
    with pytest.raises(FourRanksError, match="a tuple of arguments for each rank"):
        shared_group.map(lambda a: a, inputs)


@pytest.mark.parametrize("function", ["print(1)", None])
def test_what_cannot_be_called_is_refused_before_it_is_sent(shared_group, function):
    for call in (lambda: shared_group.run(function), lambda: shared_group.map(function, [()] * 4)):
        with pytest.raises(FourRanksError, match="a function to call, not "):
            call()


@pytest.mark.parametrize("source", [None, b"1", lambda: 1])
def test_a_cell_and_an_expression_are_given_as_text(shared_group, source):
    with pytest.raises(FourRanksError, match="A cell is given as text"):
        shared_group.execute(source)
    with pytest.raises(FourRanksError, match="An expression is given as text"):
        shared_group.pull(source)


def test_push_and_pull_carry_tensors_of_every_kind(shared_group):
    sent = {
        "half": torch.ones(3, dtype=torch.bfloat16),
        "empty": torch.empty(0),
        "big": torch.arange(1_000_000),
    }
    shared_group.push(data=sent)
    for received in shared_group.pull("data"):
        assert all(torch.equal(received[name], sent[name]) for name in sent)


def test_an_expression_that_fails_is_shown_with_its_error(shared_group):
    with pytest.raises(RankError, match=r"----> 1 1 / zero\n\nNameError: name 'zero'"):
        shared_group.pull(" 1 / zero")
    with pytest.raises(DeadlockError, match=r"line 1: dist\.barrier\(\) if rank else 1\), for rank 0"):
        shared_group.pull("dist.barrier() if rank else 1")
    with pytest.raises(DeadlockError, match=r"line 1: dist\.barrier\(\) if rank > 1 else 2\), for ranks 0-1"):
        shared_group.pull("dist.barrier() if rank > 1 else 2")


def test_a_world_for_one_call():
    assert fourranks.run(lambda: torch.distributed.get_world_size(), world_size=3, backend="gloo") == [
        3,
        3,
        3,
    ]


@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
def test_odd_and_small_worlds(world_size):
    with fourranks.start(world_size, "gloo") as group:
        group.execute("x = torch.ones(1); dist.all_reduce(x)")
        assert group.pull("x.item()") == [world_size] * world_size


def test_a_world_of_32_ranks():
    with fourranks.start(32, "gloo") as group:
        assert str(group.execute("x = torch.ones(1); dist.all_reduce(x); x")) == "[0-31] tensor([32.])"


def test_two_worlds_side_by_side_do_not_disturb_each_other(shared_group):
    with fourranks.start(2, "gloo") as other:
        other.execute("x = torch.ones(1); dist.all_reduce(x)")
        shared_group.execute("x = torch.ones(1); dist.all_reduce(x)")
        assert (other.pull("x.item()"), shared_group.pull("x.item()")) == ([2.0] * 2, [4.0] * 4)


def test_the_notebooks_rendezvous_settings_do_not_matter(monkeypatch):
    with pytest.MonkeyPatch.context() as patch, __import__("socket").create_server(("127.0.0.1", 0)) as taken:
        patch.setenv("MASTER_PORT", str(taken.getsockname()[1]))
        patch.setenv("MASTER_ADDR", "203.0.113.1")
        assert fourranks.run(lambda: torch.distributed.get_rank(), world_size=2, backend="gloo") == [0, 1]


# --- what ranks show ---


def test_stdout_stderr_c_code_and_child_processes_all_show(shared_group):
    out = shared_group.execute(
        "import os, sys\nprint('python')\nprint('error', file=sys.stderr)\n"
        "os.write(1, b'c code\\n')\n!echo child"
    )
    assert {"python", "error", "c code", "child"} <= set(out.text(2).split("\n"))


def test_output_arrives_while_the_cell_runs(shared_group):
    seen = []

    def watch_output(transcript):
        seen.append((str(transcript), time.monotonic()))

    shared_group.execute(
        "print('first')\nimport time; time.sleep(0.5)\nprint('second')", on_output=watch_output
    )
    first = next(when for text, when in seen if "first" in text)
    second = next(when for text, when in seen if "second" in text)
    assert second - first > 0.2


def test_figures_and_tables_come_as_rich_values(shared_group):
    plot = "import matplotlib.pyplot as plt\nplt.figure(figsize=(1, 1)); plt.plot([1, 2]); plt.show()"
    out = shared_group.execute(f"{plot}\nprint('after')")
    figure, text = out.items(1)
    assert "image/png" in figure.value.data
    assert text.text == "after"


def test_what_no_notebook_can_show_is_shown_as_text(shared_group):
    shared_group.execute("""
from IPython.display import display
class Own:
    def __repr__(self):
        return "one of mine"
    def _repr_mimebundle_(self, **_):
        return {"text/plain": self, "application/json": {"loss": torch.ones(1), "own": [self]}}, {"by": self}
""")
    out = shared_group.execute("display({'text/plain': 3}, raw=True)\ndisplay(Own(), display_id=Own())")
    number, own, *_ = out.items(1)
    assert number.text == "3"
    content = {"loss": "tensor([1.])", "own": ["one of mine"]}
    assert own.value.data == {"text/plain": "one of mine", "application/json": content}
    assert (own.value.metadata, own.value.display_id) == ({"by": "one of mine"}, "one of mine")


def test_a_flood_of_output_is_cut_and_says_how_much_is_missing(shared_group):
    out = shared_group.execute("print('x' * 100_000_000 if rank == 2 else 'short')")
    assert len(out.text(2)) < 1_000_000
    assert "95 MiB more were printed and are not shown" in out.text(2)
    assert out.text(1) == "short"


def test_a_flood_past_python_is_cut_too(shared_group):
    flood = "head -c 20000000 /dev/zero | tr '\\0' x"
    out = shared_group.execute(f"import subprocess\nsubprocess.run({flood!r}, shell=True)")
    assert len(out.text(0)) < 2_000_000
    assert "more were printed and are not shown" in out.text(0)


def test_line_and_cell_magics_work_on_ranks(shared_group):
    assert "per loop" in shared_group.execute("%timeit -n1 -r1 pass").text(0)
    assert "Wall time" in shared_group.execute("%%time\ny = 1").text(3)


def test_a_magic_that_raises_shows_the_readers_code_only(shared_group):
    with pytest.raises(RankError) as caught:
        shared_group.execute("%%time\n1 / 0")
    assert str(caught.value).count(".py:") == 0, "no file is in the traceback"


def test_a_semicolon_at_the_end_shows_no_value(shared_group):
    assert str(shared_group.execute("[1, 2];")) == ""
    assert str(shared_group.execute("!echo out\n[1, 2];  # not shown")) == "[0-3] out"


def test_a_reset_leaves_a_rank_the_names_that_it_started_with(shared_group):
    shared_group.execute("mine = 1\n%reset -f")
    assert shared_group.pull("(rank, world_size, torch.ones(1).item())") == [(r, 4, 1.0) for r in range(4)]
    with pytest.raises(RankError, match="'mine' is not defined"):
        shared_group.pull("mine")
    assert str(shared_group.execute("%who")) == "[0-3] Interactive namespace is empty."


@pytest.mark.parametrize(
    "cell",
    [
        "import sys\nsys.stdout.close()\nsys.stderr.close()",
        "import sys\nsys.stdout = sys.stderr = None",
        "import sys, os\nsys.stdout = open(os.devnull, 'w')\nsys.stdout.close()",
    ],
)
def test_a_cell_that_closes_what_it_prints_to_leaves_the_next_one_its_output(shared_group, cell):
    shared_group.execute(cell)
    assert str(shared_group.execute("print('here')\nprint('there', file=sys.stderr)")) in (
        "[0-3] here\n[0-3] there",
        "[0-3] there\n[0-3] here",
    )


def test_a_widget_is_shown_as_text_as_its_model_is_on_the_rank(shared_group):
    bundle = "{'application/vnd.jupyter.widget-view+json': {'model_id': '1'}, 'text/plain': 'a slider'}"
    assert str(shared_group.execute(f"from IPython.display import display\ndisplay({bundle}, raw=True)")) == (
        "[0-3] a slider"
    )


def test_top_level_await_works(shared_group):
    assert str(shared_group.execute("import asyncio\nawait asyncio.sleep(0)\n5")) == "[0-3] 5"


def test_what_a_signal_handler_shows_in_the_middle_of_a_large_display_comes_behind_it(group):
    shown = group.execute(
        """
import signal
from IPython.display import display
ticks = []
def tick(*_):
    ticks.append(len(ticks))
    display({"text/plain": "tick"}, raw=True)
signal.signal(signal.SIGALRM, tick)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
for _ in range(20):
    display({"text/plain": 2_000_000 * "x"}, raw=True)
signal.setitimer(signal.ITIMER_REAL, 0)
was = signal.signal(signal.SIGALRM, signal.SIG_DFL)
""",
        ranks=[0],
        timeout=60,
    )
    ticks = group.pull("len(ticks)", ranks=[0])[0]
    assert ticks and shown.text(0).count("tick") == ticks


def test_a_process_that_is_forked_in_the_middle_of_another_thread_s_message_can_show_something(group):
    shown = group.execute(
        """
import os, threading
from IPython.display import display
over = False
def shout():
    while not over:
        display({"text/plain": "x"}, raw=True)
shouting = threading.Thread(target=shout)
shouting.start()
for _ in range(30):
    if (child := os.fork()) == 0:
        display({"text/plain": "from a child"}, raw=True)
        os._exit(0)
    os.waitpid(child, 0)
over = True
shouting.join()
""",
        ranks=[0],
        timeout=60,
    )
    assert shown.text(0).count("from a child") == 30


def test_what_a_thread_or_a_child_shows_between_two_cells_is_shown_by_the_next_one(group, tmp_path):
    started = """
import subprocess, threading
def show():
    done.wait()
    print("from a thread", rank)
    subprocess.run(["touch", here])
done, here = threading.Event(), f"{folder}/{rank}"
threading.Thread(target=show).start()
child = subprocess.Popen("read line; echo from a child", shell=True, stdin=subprocess.PIPE)
threading.Timer(0.2, lambda: (child.communicate(b"go"), done.set())).start()
"""
    group.push(folder=str(tmp_path))
    assert str(group.execute(started)) == ""
    while len(list(tmp_path.iterdir())) < group.world_size:
        time.sleep(0.05)
    group.status()  # which looks at what has come, too
    shown = group.execute("pass")
    for rank in range(group.world_size):
        assert sorted(shown.text(rank).split("\n")) == ["from a child", f"from a thread {rank}"]


# --- errors of the reader's code ---


def test_equal_tracebacks_are_shown_once_with_the_cells_own_lines(shared_group):
    with pytest.raises(RankError) as caught:
        shared_group.execute("def f(n):\n    return 1 / n\nf(0)", execution_count=7)
    text = rendered(caught.value)
    assert "Ranks 0-3 raised ZeroDivisionError" in text
    assert "Cell In[7], line 2, in f(n)" in text
    assert text.count("ZeroDivisionError: division by zero") == 1


def test_different_tracebacks_are_labelled(shared_group):
    with pytest.raises(RankError) as caught:
        shared_group.execute("raise (ValueError if rank < 2 else KeyError)('no')")
    assert "Ranks 0-1 raised ValueError" in str(caught.value)
    assert "Ranks 2-3 raised KeyError" in str(caught.value)
    assert caught.value.errors[3].name == "KeyError"


@pytest.mark.parametrize(
    ("cell", "options"),
    [
        ("1 / 0", {}),
        ("if rank: dist.barrier()", {}),
        ("import time; time.sleep(60)", {"timeout": 0.3}),
    ],
)
def test_an_error_keeps_what_was_printed(shared_group, cell, options):
    with pytest.raises(FourRanksError) as caught:
        shared_group.execute(f"print('before')\n{cell}", **options)
    assert str(caught.value.transcript) == "[0-3] before"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = = 1", "SyntaxError"),
        ("%nonsense", "not found"),
        ("def ask():\n    return input('name?')\nask()", r"(?s)2     return input.*does not work on a rank"),
        ("x = 1\nbreakpoint()", r"(?s)2 breakpoint\(\).*does not work on a rank"),
        ("dist.breakpoint(rank=0)", "A debugger does not work on a rank"),
        ("import pdb\npdb.set_trace()", "A debugger does not work on a rank"),
        ("%debug", "A debugger does not work on a rank"),
    ],
)
def test_bad_cells_are_one_clear_error_and_the_world_stays_usable(shared_group, source, message):
    with pytest.raises(RankError, match=message):
        shared_group.execute(source)
    assert str(shared_group.execute("x = torch.ones(1); dist.all_reduce(x); x")) == "[0-3] tensor([4.])"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no exception groups")
@pytest.mark.parametrize(
    "cell",
    [
        "raise ExceptionGroup('several', [ValueError('first'), KeyError('second')])",
        "import asyncio\nasync def f(): raise ValueError('first')\n"
        "async with asyncio.TaskGroup() as tasks: tasks.create_task(f())",
    ],
)
def test_a_group_of_exceptions_ends_the_cell_with_all_that_are_in_it(shared_group, cell):
    with pytest.raises(RankError, match="Ranks 0-3 raised ExceptionGroup") as caught:
        shared_group.execute(cell, execution_count=7)
    assert "Cell In[7], line" in str(caught.value)
    assert "ValueError: first" in str(caught.value)


def test_an_error_that_a_handler_of_the_readers_shows_ends_the_cell_all_the_same(shared_group):
    shared_group.execute(
        "def show(shell, kind, error, traceback, tb_offset=None): print('shown')\n"
        "get_ipython().set_custom_exc((ValueError,), show)"
    )
    with pytest.raises(RankError, match="line 1\n.*raise ValueError") as caught:
        shared_group.execute("raise ValueError('no')")
    assert str(caught.value.transcript) == "[0-3] shown"
    shared_group.execute("get_ipython().set_custom_exc((), None)")


def test_an_exception_that_cannot_say_what_it_is_keeps_its_name_and_line(shared_group):
    cell = "class Mine(Exception):\n    def __str__(self): return 1 / 0\nraise Mine"
    with pytest.raises(RankError, match="Ranks 0-3 raised Mine") as caught:
        shared_group.execute(cell, execution_count=7)
    assert "Cell In[7], line 3" in str(caught.value)
    assert str(caught.value).endswith("Mine: <exception str() failed>")


def test_an_error_of_a_name_that_is_no_text_is_told_and_costs_nothing(shared_group):
    with pytest.raises(RankError, match="NameError: nothing of that kind"):
        shared_group.execute("class Own: pass\nraise NameError('nothing of that kind', name=Own())")
    assert shared_group.pull("rank") == [0, 1, 2, 3]


def test_a_password_is_asked_for_in_the_notebook(shared_group):
    with pytest.raises(RankError, match=r"getpass\(\) does not work on a rank") as caught:
        shared_group.execute("import getpass; getpass.getpass()")
    assert str(caught.value.transcript) == ""


def test_half_a_character_in_an_error_is_escaped(shared_group):
    with pytest.raises(RankError) as caught:
        shared_group.execute("raise ValueError('\\ud800')")
    assert str(caught.value).encode().endswith(b"ValueError: \\ud800")


def test_a_function_that_cannot_travel_is_a_clear_error(shared_group):
    lock = threading.Lock()
    with pytest.raises(FourRanksError, match="cannot be sent to the ranks"):
        shared_group.run(lambda: lock)


def test_a_value_that_cannot_come_back_is_a_clear_error(shared_group):
    with pytest.raises(RankError, match="cannot be sent to the notebook"):
        shared_group.run(lambda: __import__("threading").Lock())


def test_an_unknown_variable_is_named(shared_group):
    with pytest.raises(RankError, match="no_such_name"):
        shared_group.pull("no_such_name")


@pytest.mark.parametrize(
    ("ranks", "told"),
    [
        ([4], "there is no rank 4"),
        ([0, 9, 8], "there are no ranks 8-9"),
        ([-1], "there is no rank -1"),
        ([], "No ranks were given"),
        ([1, 2, 1], "Name each rank once; rank 1 came more often"),
        (0, "a list of numbers, as in .0, 1., not 0"),
        ("01", "a list of numbers"),
        ([0.0], "a list of numbers"),
    ],
)
def test_ranks_that_cannot_be_chosen_are_refused(shared_group, ranks, told):
    with pytest.raises(FourRanksError, match=told):
        shared_group.execute("1", ranks=ranks)


def test_values_come_in_the_order_in_which_the_ranks_were_asked_for(shared_group):
    assert shared_group.pull("rank", ranks=[3, 0]) == [3, 0]


@pytest.mark.parametrize("world_size", [0, -1, 10_000, 2.5, "4"])
def test_impossible_world_sizes_are_refused(world_size):
    with pytest.raises(StartError, match="1 to 128 ranks"):
        fourranks.start(world_size)
    with pytest.raises(StartError, match="1 to 128 ranks"):
        fourranks.start(1, "gloo", capacity=world_size)


def test_sizes_and_ranks_may_be_numbers_of_numpy():
    with fourranks.start(numpy.int64(2), "gloo") as group:
        assert group.pull("rank", numpy.arange(2)[::-1]) == [1, 0]


@pytest.mark.skipif(torch.cuda.device_count() >= 100, reason="needs fewer than 100 GPUs")
def test_nccl_without_a_gpu_for_each_rank_says_what_is_lacking():
    with pytest.raises(StartError, match="100 ranks were asked for, and torch can use (no|[0-9]+) GPU"):
        fourranks.start(100, "nccl")


def test_an_unknown_backend_is_refused():
    with pytest.raises(StartError, match="auto, gloo or nccl"):
        fourranks.start(2, "mpi")


# --- no hang ---

HANGS = {
    "a rank skips it": ("if rank != 2: dist.all_reduce(torch.ones(3))", "for rank 2"),
    "other collectives": (
        "if rank == 3: dist.barrier()\nelse: dist.all_gather([torch.empty(2)] * 4, torch.ones(2))",
        "Rank 3 waits in barrier",
    ),
    "other sizes": ("dist.all_reduce(torch.ones(3 + rank))", "shape [5], float32"),
    "other dtypes": (
        "dist.all_reduce(torch.ones(3, dtype=torch.float64 if rank == 1 else torch.float32))",
        "Rank 1 waits in all_reduce [SUM, shape [3], float64]",
    ),
    "a tensor too small for its message": (
        "if rank < 2: dist.send(torch.ones(4), 1) if rank == 0 else dist.recv(torch.ones(3), 0)",
        "Rank 1 waits in recv from rank 0 [shape [3], float32]",
    ),
    "other roots": ("dist.broadcast(torch.ones(1), src=rank % 2)", "src/dst 1"),
    "other reduce ops": (
        "dist.all_reduce(torch.ones(1), op=dist.ReduceOp.MAX if rank == 2 else dist.ReduceOp.SUM)",
        "Rank 2 waits in all_reduce [MAX, shape [1], float32]",
    ),
    "all send first": (
        "dist.send(torch.ones(2), (rank + 1) % 4)\ndist.recv(torch.ones(2), (rank - 1) % 4)",
        "Rank 3 waits in send to rank 0",
    ),
    "nobody sends": ("if rank == 0: dist.recv(torch.ones(1), 3)", "Rank 0 waits in recv from rank 3"),
    "a sub-group": (
        "pair = dist.new_group([0, 1])\nif rank == 0: dist.all_reduce(torch.ones(1), group=pair)",
        "for rank 1",
    ),
    "only some run the cell": (None, "Ranks 1-3 took no part in this cell"),
}


@pytest.mark.parametrize("name", HANGS)
def test_a_cell_that_would_hang_ends_with_an_explanation_and_keeps_all_variables(shared_group, name):
    source, expected = HANGS[name]
    shared_group.execute("kept = rank * 11")
    began = time.monotonic()
    with pytest.raises(DeadlockError) as caught:
        shared_group.execute(source or "dist.barrier()", ranks=None if source else [0])
    assert time.monotonic() - began < 20  # bounded; how fast it is, benchmarks/ says
    assert expected in str(caught.value)
    assert "Cell In[" in str(caught.value)
    assert shared_group.pull("kept") == [0, 11, 22, 33]
    assert str(shared_group.execute("x = torch.ones(1); dist.all_reduce(x); x")) == "[0-3] tensor([4.])"


def test_a_rank_that_raises_while_others_wait_for_it_is_what_is_reported(shared_group):
    with pytest.raises(RankError) as caught:
        shared_group.execute("if rank == 1: raise ValueError('boom')\ndist.barrier()")
    assert set(caught.value.errors) == {1}
    assert "Ranks 0,2-3 wait in barrier" in str(caught.value)
    shared_group.execute("dist.barrier()")


def test_code_that_swallows_exceptions_is_freed_all_the_same(shared_group):
    with pytest.raises(DeadlockError):
        shared_group.execute(
            "while True:\n    try: dist.recv(torch.ones(1), (rank + 1) % 4)\n    except Exception: pass"
        )
    shared_group.execute("dist.barrier()")


def test_a_slow_but_legal_program_is_left_alone(shared_group):
    shared_group.execute("import time\ntime.sleep(1.5 * (rank == 3))\ndist.barrier()")


def test_a_rank_that_sends_and_finishes_between_two_reports_has_sent(shared_group):
    for pause in (0.2, 0.3, 0.4, 0.5):
        shared_group.execute(
            f"import time\nif rank == 0:\n    time.sleep({pause})\n    dist.send(torch.ones(1), 1)\n"
            "elif rank == 1:\n    dist.recv(torch.ones(1), 0)\n    time.sleep(0.3)"
        )


def test_ranks_that_compute_without_answering_are_left_alone(shared_group):
    shared_group.execute(
        "import re, time\ntime.sleep(0.4 * (rank == 3))\ndist.barrier()\n"
        "began = time.monotonic()\n"
        "while time.monotonic() - began < 3: re.match(r'(a+)+$', 'a' * 22 + 'b')\n"  # holds the interpreter
        "dist.barrier()"
    )


def test_a_timeout_stops_the_cell_and_says_where_the_ranks_were(shared_group):
    with pytest.raises(CellTimeout, match=r"Ranks 0-3: Cell In\[.*line 2: time.sleep\(100\)"):
        shared_group.execute("import time\ntime.sleep(100)", timeout=0.5)
    shared_group.execute("dist.barrier()")


@pytest.mark.parametrize("run", ["await main()", "asyncio.run(main())"])
def test_a_rank_that_waits_in_an_event_loop_is_at_the_line_that_awaits(shared_group, run):
    cell = f"import asyncio\nasync def main():\n    await asyncio.sleep(100)\n{run}"
    with pytest.raises(CellTimeout, match=r"Ranks 0-3: Cell In\[.*line 3: await asyncio.sleep\(100\)"):
        shared_group.execute(cell, timeout=0.5)
    shared_group.execute("dist.barrier()")


def test_an_exception_that_never_finishes_saying_what_it_is_costs_no_variable(shared_group):
    shared_group.execute("kept = rank")
    with pytest.raises(CellTimeout, match="line 3: while True: pass"):
        shared_group.execute(
            "class Mine(Exception):\n    def __str__(self):\n        while True: pass\nraise Mine",
            timeout=0.5,
        )
    assert shared_group.pull("kept") == [0, 1, 2, 3]


def test_ranks_that_were_printing_are_told_by_the_line_that_prints(shared_group):
    with pytest.raises(CellTimeout) as caught:
        shared_group.execute("while True:\n    print('x' * 10_000)", execution_count=7, timeout=0.5)
    assert "Ranks 0-3: Cell In[7], line 2: print('x' * 10_000)" in str(caught.value)


@pytest.mark.parametrize(
    ("cell", "place"),
    [
        ("x = 1\n%time dist.barrier() if rank else 0", r"Cell In\[7\], line 2: get_ipython.*'time'"),
        ("%%time\nx = 1\nif rank:\n    dist.barrier()", "<timed exec>, line 3"),
    ],
)
def test_a_call_under_a_magic_is_told_by_its_line(shared_group, cell, place):
    with pytest.raises(DeadlockError, match=f"barrier \\({place}"):
        shared_group.execute(cell, execution_count=7)


def test_a_cell_can_be_stopped_after_one_that_has_installed_a_signal_handler(shared_group):
    shared_group.execute("import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nkept = rank")
    with pytest.raises(CellTimeout):
        shared_group.execute("while True: time.sleep(0.01)", timeout=0.3)
    assert shared_group.pull("kept") == [0, 1, 2, 3]


def test_an_error_of_the_function_that_shows_the_output_ends_the_cell(shared_group):
    def fail(transcript):
        raise ValueError("cannot show it")

    shared_group.execute("kept = rank")
    with pytest.raises(ValueError, match="cannot show it"):
        shared_group.execute("import time\ntime.sleep(99)", on_output=fail)
    assert shared_group.run(lambda: "new") == ["new"] * 4
    assert shared_group.pull("kept") == [0, 1, 2, 3]


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # it may hit between open and with
def test_so_does_one_of_a_signal_handler_in_the_notebook(shared_group):
    class TimeIsUp(Exception):
        pass

    def ring(*_):
        raise TimeIsUp

    before = signal.signal(signal.SIGUSR1, ring)
    try:
        threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGUSR1]).start()
        with pytest.raises(TimeIsUp):
            shared_group.run(time.sleep, 99)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert shared_group.run(lambda: "new") == ["new"] * 4


@pytest.mark.parametrize("timeout", ["5", [5], lambda: 5, -1, float("nan")])
def test_a_timeout_that_is_no_number_of_seconds_is_refused_before_anything_runs(shared_group, timeout):
    shared_group.execute("ran = False")
    with pytest.raises(FourRanksError, match="A timeout is a number of seconds"):
        shared_group.execute("ran = True", timeout=timeout)
    assert shared_group.pull("ran") == [False] * 4


@pytest.mark.parametrize("call", ["dist.broadcast(x, 0)", "dist.all_reduce(x, async_op=True).wait()"])
def test_a_timeout_in_the_middle_of_a_transfer_costs_no_variable(shared_group, call):
    shared_group.execute("x = torch.ones(100_000_000)")
    with pytest.raises(CellTimeout, match="Ranks 0-3: Cell"):
        shared_group.execute(call, timeout=0.1)
    shared_group.execute("dist.all_reduce(torch.ones(1))")
    assert shared_group.pull("len(x)") == [100_000_000] * 4
    shared_group.execute("del x")


def test_a_timeout_within_a_long_call_of_c_code_waits_for_its_end(shared_group):
    shared_group.execute("kept = rank")
    with pytest.raises(CellTimeout):  # which no interrupt reaches, for seconds
        shared_group.execute(
            "import hashlib\nif rank == 3: hashlib.pbkdf2_hmac('sha256', b'', b'', 15_000_000)", timeout=0.5
        )
    assert shared_group.pull("kept") == [0, 1, 2, 3]


def test_an_error_that_leaves_the_ranks_in_step_leaves_their_process_groups_alone(shared_group):
    shared_group.execute("pair = dist.new_group([0, 1])")
    with pytest.raises(RankError):
        shared_group.execute("1 / 0")
    assert (
        shared_group.execute("x = torch.ones(1)\nif rank < 2: dist.all_reduce(x, group=pair)\nx.item()").text(
            1
        )
        == "2.0"
    )


def test_a_cell_while_another_runs_is_refused(shared_group):
    began = threading.Event()
    thread = threading.Thread(
        target=shared_group.execute,
        args=("print('on')\nimport time; time.sleep(1)",),
        kwargs={"on_output": lambda transcript: str(transcript) and began.set()},
    )
    thread.start()
    began.wait()
    with pytest.raises(FourRanksError, match="busy"):
        shared_group.execute("1")
    thread.join()


def test_interrupt_from_another_thread_ends_the_cell(shared_group):
    threading.Timer(0.5, shared_group.interrupt).start()
    with pytest.raises(KeyboardInterrupt) as caught:
        shared_group.execute("import time\nprint('before')\ntime.sleep(60)")
    assert str(caught.value.transcript) == "[0-3] before"
    shared_group.execute("dist.barrier()")


def test_an_import_is_not_cut_short_when_its_rank_is_freed(group, tmp_path):
    (tmp_path / "slow_module.py").write_text("import time\ntime.sleep(1.5)\nwhole = True\n")
    group.execute(f"import sys; sys.path.insert(0, {str(tmp_path)!r})")
    with pytest.raises(fourranks.DeadlockError):
        group.execute("if rank == 0: import slow_module\nif rank == 1: dist.barrier()")
    assert group.pull("sys.modules['slow_module'].whole", ranks=[0]) == [True]


def test_ranks_are_freed_at_the_end_of_a_librarys_import_however_long_that_takes(
    group, tmp_path, monkeypatch
):
    monkeypatch.setattr(cell, "FREE_PATIENCE", (0.1, 0.1, 0.8))  # the last one is for reports, too
    library = tmp_path / "site-packages"
    library.mkdir()
    (library / "slow_library.py").write_text("import time\ntime.sleep(4)\nwhole = True\n")
    group.execute(f"import sys; sys.path.insert(0, {str(library)!r})\nkept = rank")
    with pytest.raises(fourranks.CellTimeout):
        group.execute("import slow_library\nimport time; time.sleep(60)", timeout=0.5)
    assert group.pull("kept, sys.modules['slow_library'].whole") == [(rank, True) for rank in range(4)]


def test_ranks_need_not_import_what_optimizers_do_once_the_zygote_was_told_to(monkeypatch):
    fresh = zygote.Zygote()
    monkeypatch.setattr(zygote, "_shared", fresh)
    fresh.import_modules(zygote.COMPILER)
    imported = fourranks.run(lambda: "torch._dynamo" in sys.modules, world_size=1)
    fresh.stop()
    assert imported == [True]


def test_ranks_run_cells_before_the_notebooks_own_process_has_imported_torch():
    program = """
import sys, fourranks
with fourranks.start(world_size=2) as group:
    group.execute("dist.barrier()")
    print(group.execute("rank"), "torch" in sys.modules, sep="; ")
    try:
        group.execute("def wait():\\n    dist.barrier()\\nif rank: wait()")
    except fourranks.DeadlockError:
        print("torch" in sys.modules)
"""
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout == "[0] 0\n[1] 1; False\nFalse\n"


def test_ranks_parse_no_source_to_explain_a_deadlock(group):
    """CPython 3.11 raises a SystemError when two threads parse at once, and a large module takes seconds."""
    group.execute("""
import ast
parse, parsed = ast.parse, []
def noting(*args, **kwargs):
    parsed.append(args)
    return parse(*args, **kwargs)
ast.parse = noting
""")
    with pytest.raises(DeadlockError):
        group.execute("if rank:\n    dist.barrier()")
    assert group.pull("parsed") == [[]] * 4
