"""A whole script that torchrun would start, as one cell on the ranks."""

from __future__ import annotations

import sys
import textwrap

import pytest

import fourranks
from fourranks.errors import CellTimeout, RankError

SCRIPT = """
import argparse
import os
import sys

import torch
import torch.distributed as dist


def main(options):
    dist.init_process_group("gloo")
    total = torch.full((options.size,), float(os.environ["LOCAL_RANK"]))
    dist.all_reduce(total)
    print(__name__, dist.get_rank(), dist.get_world_size(), total.tolist())
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=2)
    main(parser.parse_args())
    sys.exit(0)
"""


@pytest.fixture(scope="module")
def group():
    with fourranks.start(3, "gloo") as group:
        yield group


def test_a_script_runs_in_a_cell_as_under_torchrun(group, tmp_path):
    expected = [f"[{rank}] __main__ {rank} 3 [3.0, 3.0]" for rank in range(3)]
    assert str(group.execute(SCRIPT)).splitlines()[-3:] == expected
    assert str(group.execute(SCRIPT)).splitlines() == expected
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    assert str(group.execute(f"%run {path} --size 1")).splitlines() == [
        line.replace("3.0, 3.0", "3.0") for line in expected
    ]


def test_init_process_group_attaches_and_says_so_once():
    with fourranks.start(2, "gloo") as pair:
        cell = "dist.init_process_group()\nx = torch.ones(1)\ndist.all_reduce(x)\nx"
        said = "[0-1] init_process_group() uses the process group that is there: 2 ranks on Gloo.\n"
        assert str(pair.execute(cell)) == f"{said}[0-1] tensor([2.])"
        assert str(pair.execute(cell)) == "[0-1] tensor([2.])"


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "'gloo'",
        "backend='gloo', init_method='env://'",
        "'cpu:gloo,cuda:nccl'",
        "dist.Backend.GLOO, rank=rank, world_size=world_size",
        "'gloo', 'tcp://127.0.0.1:29500', rank=rank, world_size=world_size",
        "device_id=torch.device('cpu')",
        "'gloo', store=dist.HashStore(), rank=rank, world_size=world_size",
    ],
)
def test_init_process_group_attaches_however_it_is_called(group, arguments):
    cell = f"dist.init_process_group({arguments})\nx = torch.ones(1)\ndist.all_reduce(x)\nx"
    assert str(group.execute(cell)).endswith("[0-2] tensor([3.])")


def test_a_script_that_asks_for_nccl_on_a_world_of_gloo_is_told():
    with fourranks.start(1, "gloo") as one:
        shown = str(one.execute("dist.init_process_group('nccl')\ndist.get_backend()"))
    assert "For NCCL (which needs a GPU): %ranks start --backend nccl" in shown
    assert shown.endswith("'gloo'")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("world_size=8", r"in a world of 3 ranks.*%ranks start -n 8"),
        ("rank=(rank + 1) % 3, world_size=3", r"init_process_group\(rank=1\) on rank 0"),
        ("'mpi'", r"on Gloo. Call dist.destroy_process_group\(\) first to form one on mpi"),
        ("no_such=1", "unexpected keyword argument 'no_such'"),
    ],
)
def test_what_contradicts_the_world_is_an_error_at_the_readers_line(group, arguments, message):
    with pytest.raises(RankError, match=f"(?s)Cell In.*{message}") as caught:
        group.execute(f"dist.init_process_group({arguments})", execution_count=7)
    assert "fourranks/rank" not in str(caught.value)


def test_a_second_init_process_group_of_one_script_is_torchs_own_error(group):
    with pytest.raises(RankError, match="initialize the default process group twice"):
        group.execute("dist.init_process_group()\ndist.init_process_group()")
    assert str(group.execute("if not dist.is_initialized(): dist.init_process_group()\n1")) == "[0-2] 1"


def test_init_process_group_attaches_to_a_group_that_an_earlier_cell_has_formed(group):
    again = "dist.destroy_process_group()\ndist.init_process_group('gloo')"
    group.execute(again)
    group.execute("dist.init_process_group('gloo')\ndist.barrier()")
    with pytest.raises(RankError, match="initialize the default process group twice"):
        group.execute(f"{again}\ndist.init_process_group('gloo')")
    group.execute("dist.destroy_process_group()")


TIMEOUT = "int(dist.group.WORLD._get_backend(torch.device('cpu')).options._timeout.total_seconds())"


def test_the_timeout_of_init_process_group_holds_for_its_own_cell(group):
    cell = """
        from datetime import timedelta
        dist.init_process_group("gloo", timeout=timedelta(seconds=77))
        {ending}
        {timeout}
    """
    script = textwrap.dedent(cell)
    for ending in ("", "raise SystemExit", "dist.destroy_process_group()\ndist.init_process_group('gloo')"):
        shown = str(group.execute(script.format(ending=ending, timeout=TIMEOUT)))
        assert ending or shown.endswith("[0-2] 77")
        assert str(group.execute(TIMEOUT)) == "[0-2] 1800"


def test_a_timeout_that_a_cell_has_set_by_itself_stays(group):
    group.execute(
        "from datetime import timedelta\n"
        "set_timeout = getattr(dist, 'set_timeout', dist.distributed_c10d._set_pg_timeout)"
    )
    group.execute("set_timeout(timedelta(seconds=99))")
    group.execute("dist.init_process_group('gloo', timeout=timedelta(seconds=77))")
    assert str(group.execute(TIMEOUT)) == "[0-2] 99"
    group.execute("set_timeout(timedelta(minutes=10))")
    group.execute("dist.init_process_group('gloo', timeout=timedelta(seconds=77))")
    assert str(group.execute(TIMEOUT)) == "[0-2] 600"
    group.execute("set_timeout(dist.default_pg_timeout)")


def test_after_destroy_process_group_the_next_cell_has_a_world_again(group):
    for cell in (
        "dist.destroy_process_group()\ndist.is_initialized()",
        "if rank == 1: dist.destroy_process_group()\nFalse",
        # Without the barrier torch may end connections that others still open.
        "dist.destroy_process_group()\ndist.init_process_group('gloo')\ndist.barrier()\n"
        "dist.destroy_process_group()\nFalse",
    ):
        kept = group.execute(f"kept = rank\n{cell}")
        assert str(kept) == "[0-2] False"
        assert str(group.execute("x = torch.ones(1); dist.all_reduce(x); x")) == "[0-2] tensor([3.])"
        assert group.pull("kept") == [0, 1, 2]


def test_a_function_that_destroys_the_process_group_leaves_a_world_behind(group):
    def train():
        import torch.distributed as dist

        dist.init_process_group()
        dist.barrier()
        dist.destroy_process_group()

    group.run(train)
    assert str(group.execute("x = torch.ones(1); dist.all_reduce(x); x")) == "[0-2] tensor([3.])"


def test_a_script_that_fails_and_destroys_its_group_leaves_a_world_behind(group):
    with pytest.raises(RankError, match="ZeroDivisionError"):
        group.execute("try:\n    1 / 0\nfinally:\n    dist.destroy_process_group()")
    assert str(group.execute("x = torch.ones(1); dist.all_reduce(x); x")) == "[0-2] tensor([3.])"


def test_torchs_functions_that_the_reader_has_replaced_are_not_used_to_form_the_group(group):
    names = ("init_process_group", "destroy_process_group", "is_initialized", "get_rank", "get_world_size")
    saved = [f"old_{name} = dist.{name}" for name in names]
    patched = [f"dist.{name} = lambda *args, **options: None" for name in names]
    group.execute("\n".join(saved + patched))
    with pytest.raises(CellTimeout, match="formed\nagain"):
        group.execute("import time\nif rank: time.sleep(9)\nelse: dist.barrier()", timeout=0.5)
    assert str(group.execute("x = torch.ones(1); dist.all_reduce(x); x")) == "[0-2] tensor([3.])"
    group.execute("\n".join(f"dist.{name} = old_{name}" for name in names))


# --- leaving ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "leave",
    ["import sys; sys.exit(0)", "import sys; sys.exit()", "raise SystemExit", "exit()", "quit(0)"],
)
def test_leaving_with_success_ends_the_cell_without_an_error(group, leave):
    assert str(group.execute(f"print('before')\n{leave}\nprint('behind')")) == "[0-2] before"


def test_leaving_by_a_function_that_run_was_given_is_no_error(group):
    assert group.run(sys.exit) == [None] * 3


@pytest.mark.parametrize(("status", "shown"), [("3", "3"), ("'no data'", "no data"), ("True", "True")])
def test_leaving_with_failure_names_the_status_and_the_readers_lines(group, status, shown):
    with pytest.raises(RankError) as caught:
        group.execute(f"import sys\ndef load():\n    sys.exit({status})\nload()", execution_count=5)
    assert str(caught.value).splitlines() == [
        "Ranks 0-2 raised SystemExit",
        f"SystemExit: {shown}",
        "  Cell In[5], line 4: load()",
        f"  Cell In[5], line 3: sys.exit({status})",
    ]


def test_leaving_is_no_warning_whatever_the_reader_does_with_warnings(group):
    group.execute("import warnings; before = warnings.filters[:]; warnings.simplefilter('error')")
    assert str(group.execute("import sys; sys.exit()")) == ""
    group.execute("warnings.filters[:] = before")


def test_a_scripts_options_are_those_of_sys_argv(group, tmp_path):
    parse = "import argparse\np = argparse.ArgumentParser()\np.add_argument('epochs')\nprint(p.parse_args())"
    with pytest.raises(RankError, match="A cell has no command line. Set one above it: sys.argv"):
        group.execute(parse)
    given = "import sys\nsys.argv = ['train.py', '5']\n"
    assert str(group.execute(given + parse)) == "[0-2] Namespace(epochs='5')"
    path = tmp_path / "options.py"
    path.write_text(parse)
    assert str(group.execute(f"%run {path} 7")) == "[0-2] Namespace(epochs='7')"


def test_a_rank_is_no_terminal(group):
    """Lightning refuses to run DDP where it finds `sys.ps1`."""
    assert str(group.execute("import sys; hasattr(sys, 'ps1'), dist.is_torchelastic_launched()")) == (
        "[0-2] (False, True)"
    )


# --- starting processes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "start",
    [
        "mp.spawn(main, args=(3, 'x'), nprocs=3)",
        "mp.start_processes(main, (3, 'x'), 3)",
        "from torch.multiprocessing.spawn import spawn\nspawn(main, (3, 'x'), nprocs=3, join=False)",
    ],
)
def test_spawn_on_a_rank_is_one_short_error_that_says_what_to_call(group, start):
    with pytest.raises(RankError) as caught:
        group.execute(f"import torch.multiprocessing as mp\ndef main(rank, n, name): pass\n{start}")
    assert "Call main(rank, 3, 'x') in its place." in str(caught.value)
    assert len(str(caught.value)) < 300


def test_an_elastic_launch_on_a_rank_is_one_short_error_that_says_what_to_call(group):
    """Accelerate's notebook_launcher calls it; a store that rank 0 opens would keep port 29500 in use."""
    with pytest.raises(RankError, match="starts processes, and this cell runs on 3 of them") as caught:
        group.execute(
            "from torch.distributed.launcher.api import LaunchConfig, elastic_launch\n"
            "def train(n): pass\n"
            "config = LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=4, start_method='fork')\n"
            "elastic_launch(config, train)(5)"
        )
    assert "Call train(5) in its place. `%ranks start -n 4` starts 4 ranks." in str(caught.value)
    assert len(str(caught.value)) < 300


def test_spawn_of_a_librarys_function_suggests_no_call_of_it(group):
    with pytest.raises(RankError, match="Run what it starts in the cell itself") as caught:
        group.execute(
            "import torch.multiprocessing as mp, functools\nmp.spawn(functools.partial(print), nprocs=3)"
        )
    assert "barrier" not in str(caught.value)


def test_spawn_of_another_number_of_processes_names_the_world_that_has_it(group):
    with pytest.raises(RankError, match="`%ranks start -n 2` starts 2 ranks"):
        group.execute("import torch.multiprocessing as mp\nmp.spawn(print, nprocs=2)")


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_fresh_process_with_a_function_of_a_cell_is_one_short_error(group, method):
    with pytest.raises(RankError, match="cannot find work, which was defined in a cell") as caught:
        group.execute(
            "import multiprocessing as mp\ndef work(): pass\n"
            f"mp.get_context('{method}').Process(target=work).start()"
        )
    assert len(str(caught.value)) < 300


def test_processes_that_can_work_still_start(group):
    shown = group.execute(
        "import multiprocessing as mp, os\n"
        "def work(queue): queue.put('done')\n"
        "queue = mp.get_context('fork').Queue()\n"
        "process = mp.get_context('fork').Process(target=work, args=(queue,)); process.start()\n"
        "print(queue.get()); process.join()\n"
        "process = mp.get_context('spawn').Process(target=os.getcwd); process.start(); process.join()\n"
        "process.exitcode"
    )
    assert str(shown) == "[0-2] done\n[0-2] 0"


@pytest.mark.parametrize(("ending", "status"), [("pass", 0), ("sys.exit(5)", 5), ("1 / 0", 1)])
def test_a_process_that_a_cell_forks_ends_with_the_cell_and_answers_for_no_rank(group, ending, status):
    shown = group.execute(
        "import os, sys\n"
        "if (child := os.fork()) == 0:\n"
        f"    {ending}\n"
        "else:\n"
        "    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    assert f"[0-2] {status}" in str(shown)
    assert ("ZeroDivisionError" in str(shown)) == (ending == "1 / 0")


def test_init_process_group_in_a_process_of_a_rank_is_refused(group):
    shown = group.execute(
        "import multiprocessing as mp\n"
        "def work(r, n): dist.init_process_group('gloo', rank=r, world_size=n)\n"
        "process = mp.get_context('fork').Process(target=work, args=(0, 2))\n"
        "process.start(); process.join(); process.exitcode"
    )
    assert "was called in a process that a rank has started" in str(shown)
    assert str(shown).endswith("[0-2] 1")


@pytest.mark.parametrize(
    "call", ["dist.all_reduce(x)", "dist.send(x, (rank + 1) % 3)", "dist.monitored_barrier()"]
)
def test_a_call_in_a_process_that_a_rank_has_forked_is_refused(group, call):
    shown = group.execute(
        "import multiprocessing as mp\n"
        f"def work():\n    x = torch.ones(1)\n    {call}\n"
        "process = mp.get_context('fork').Process(target=work)\n"
        "process.start(); process.join(); process.exitcode",
        timeout=20,
    )
    name = call[len("dist.") : call.index("(")]
    assert f"RuntimeError: {name} was called in a process that a rank has forked (Cell In" in str(shown)
    assert f", line 4: {call})" in str(shown)
    assert str(shown).endswith("[0-2] 1")
    assert str(group.execute("x = torch.ones(1); dist.all_reduce(x); x")) == "[0-2] tensor([3.])"


def test_processes_that_ranks_have_forked_may_form_a_group_of_their_own(group):
    shown = group.execute(
        "import multiprocessing as mp\n"
        "def work():\n    x = torch.ones(1)\n    dist.all_reduce(x, group=dist.new_group())\n    print(x)\n"
        "process = mp.get_context('fork').Process(target=work)\n"
        "process.start(); process.join(); process.exitcode",
        timeout=20,
    )
    assert str(shown) == "[0-2] tensor([3.])\n[0-2] 0"
    assert str(group.execute("dist.all_reduce(x := torch.ones(1)); x")) == "[0-2] tensor([3.])"
