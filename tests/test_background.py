"""A script's `nohup command &` has SIGINT and SIGHUP ignored by all that it starts: ranks, kernels, checks.

A process that a signal is to reach here installs a handler, and the others end by other means.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import psutil
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from tests.classroom import still_running
from tests.processes import in_the_background, run, started

AUTOGRADER = [sys.executable, "-m", "autograder"]
RIGHT = """
def attainable_flops(intensity, peak_flops, bandwidth):
    return min(peak_flops, intensity * bandwidth)
"""


def in_background(program: str) -> str:
    """Run a Python program as a background job; returns what it prints."""
    ran = run(in_the_background([sys.executable, "-c", program]))
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_a_background_job_ignores_what_a_terminal_sends():
    program = "import signal; print(signal.getsignal(2) == signal.getsignal(1) == signal.SIG_IGN)"
    assert in_background(program) == "True\n"
    assert run([sys.executable, "-c", program]).stdout == "False\n"


def test_what_a_failing_test_has_started_is_killed(tmp_path):
    ignoring = in_the_background(["sh", "-c", "setsid sleep 600 & sleep 600"])
    with pytest.raises(ZeroDivisionError), started(ignoring) as process:
        while len(children := psutil.Process(process.pid).children(recursive=True)) < 2:
            time.sleep(0.01)
        raise ZeroDivisionError
    assert process.returncode == -signal.SIGKILL
    assert still_running(children, 5) == []


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_ranks_can_be_interrupted_and_freed_and_they_end(start_method):
    program = f"""
import os, signal, threading
import fourranks
with fourranks.start(world_size=2, backend="gloo", start_method={start_method!r}) as group:
    pids = group.pids
    for interrupt in (group.interrupt, lambda: os.kill(os.getpid(), signal.SIGINT)):
        threading.Timer(0.5, interrupt).start()
        try:
            group.execute("kept = rank\\nwhile True: pass")
        except KeyboardInterrupt:
            print("interrupted", group.pull("kept"))
    try:
        group.execute("if rank: dist.barrier()")
    except fourranks.DeadlockError:
        print("freed", group.pull("kept"))
print("ended", not any(os.path.exists(f"/proc/{{pid}}") for pid in pids))
"""
    assert in_background(program).splitlines() == [
        "interrupted [0, 1]",
        "interrupted [0, 1]",
        "freed [0, 1]",
        "ended True",
    ]


def test_a_kernel_can_be_interrupted_as_build_runs_it(tmp_path):
    endless = "%%ranks\nimport time\nprint('begun')\nwhile True: time.sleep(0.01)"
    interrupted = new_code_cell(endless, metadata={"tags": ["raises-exception"]})
    begin = (
        "%load_ext fourranks\n%ranks start -n 2 --backend gloo\n"
        "import os, signal, threading\n"
        "threading.Timer(2, lambda: os.killpg(os.getpgrp(), signal.SIGINT)).start()"
    )
    cells = [new_code_cell(begin), interrupted, new_code_cell("%%ranks\ndist.barrier()\nrank + 1")]
    nbformat.write(new_notebook(cells=cells), tmp_path / "lecture.ipynb")
    program = f"""
import nbformat
from pathlib import Path
from autograder.notebooks.execute import execute
notebook = nbformat.read({str(tmp_path / "lecture.ipynb")!r}, 4)
execute(notebook, Path({str(tmp_path)!r}), 60)
print(notebook.cells[1].outputs[-1].ename, notebook.cells[2].outputs[-1].text.split())
"""
    assert in_background(program) == "CellInterrupted ['[0]', '1', '[1]', '2']\n"


@pytest.fixture
def exercise(tmp_path: Path) -> Path:
    """An exercise of two questions, the second of which takes as long as it may."""
    tests = {"right": "check.attainable_flops(attainable_flops)", "endless": "import time; time.sleep(600)"}
    fields = {
        "grade": True,
        "points": 2,
        "solution": False,
        "locked": True,
        "schema_version": 3,
        "task": False,
    }
    cells = [
        new_code_cell(text, metadata={"nbgrader": fields | {"grade_id": name}})
        for name, text in tests.items()
    ]
    nbformat.write(new_notebook(cells=[new_code_cell(RIGHT), *cells]), tmp_path / "exercise.ipynb")
    return tmp_path / "exercise.ipynb"


@pytest.mark.parametrize(
    ("way", "ending", "status"),
    [(list, signal.SIGINT, 130), (in_the_background, signal.SIGTERM, -signal.SIGTERM)],
    ids=["Ctrl-C in a terminal", "kill in the background"],
)
def test_a_check_works_and_ends_with_all_that_it_started(exercise, way, ending, status):
    command = way([*AUTOGRADER, "check", exercise])
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as checking:
        while "right" not in (line := checking.stdout.readline()):
            assert line, checking.stderr.read()
        assert line.split() == ["right", "2", "of", "2", "passed"]
        time.sleep(0.5)  # the next question is under way
        processes = psutil.Process(checking.pid).children(recursive=True)
        os.kill(checking.pid, ending)
        _, said = checking.communicate()
        assert processes and still_running(processes) == []
    assert checking.returncode == status
    assert said == ("\nStopped.\n" if ending == signal.SIGINT else "")
