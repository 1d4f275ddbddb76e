"""A cell becomes a program for torchrun, or the reader is told what keeps it from standing by itself."""

import sys

import pytest

from fourranks.saved_script import ScriptError, as_script, save
from tests import processes

SUM = """
x = torch.full((2,), float(rank), device=device)
dist.all_reduce(x)
print(f"rank {rank} of {world_size}: {x.tolist()}\\n", end="", flush=True)  # both ranks write to one pipe
"""


def test_the_program_runs_under_torchrun_without_this_package(tmp_path):
    path = tmp_path / "sum.py"
    save(SUM, path, 2)
    assert "fourranks" not in path.read_text()
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(path)]
    ended = processes.run([sys.executable, *command], cwd=tmp_path)
    assert sorted(ended.stdout.splitlines()) == ["rank 0 of 2: [1.0, 1.0]", "rank 1 of 2: [1.0, 1.0]"]


def test_a_cell_that_is_a_program_already_stays_as_it_is():
    program = "import torch.distributed as dist\n\ndist.init_process_group('gloo')\n"
    assert as_script(program, "train.py") == program


def test_the_first_line_says_how_to_start_it_with_as_many_ranks():
    assert (
        "torchrun --standalone --nproc-per-node 8 train.py" in as_script(SUM, "train.py", 8).splitlines()[0]
    )


def test_a_name_with_a_space_is_quoted_for_a_shell():
    assert as_script("x = 1", "my program.py").splitlines()[0].endswith('-per-node 4 \'my program.py\'"""')


@pytest.mark.parametrize(
    "cell",
    [
        "def f(n):\n    return n and f(n - 1)\nf(3)",
        "import math\nprint([math.sqrt(x) for x in range(3)])",
        "def count():\n    global total\n    total = 1\ncount(); print(total)",
        "class A:\n    b = 1\n    def c(self): return A.b\nprint(A().c())",
        "try:\n    pass\nexcept ValueError as error:\n    print(error)",
        "print(__file__, (lambda y: y)(rank))",
    ],
)
def test_whatever_a_cell_defines_itself_it_may_use(cell):
    compile(as_script(cell, "x.py"), "x.py", "exec")


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        ("loss = model(batch)\nprint(loss)", "does not define: batch, model"),
        ("def step():\n    return helper(rank)\nstep()", "does not define: helper"),
        ("print(rank)\n%timeit rank", "line 2 of the cell is for IPython alone: %timeit rank"),
        ("!nvidia-smi", "for IPython alone"),
        ("torch.ones?", "for IPython alone"),
        ("x = (1,", "line 1 of the cell is no Python"),
        ("import torch\nfrom fourranks.learner import corpus", "line 2 imports fourranks"),
        ("from __future__ import annotations", "must be a program's first"),
        ("import torch.distributed as d\nd.init_process_group()\nprint(rank)", "does not define: rank"),
    ],
)
def test_a_cell_that_cannot_stand_by_itself_is_refused_with_the_reason(cell, told):
    with pytest.raises(ScriptError, match=r".*") as caught:
        as_script(cell, "train.py")
    assert told in str(caught.value)


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(ScriptError, match="cannot be written: No such file or directory"):
        save(SUM, tmp_path / "nowhere" / "train.py", 4)
