"""How work is shared out among processes, and what becomes of it when they die."""

import contextlib
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from autograder.grading.pool import Failed, Pool, shares, usable_cores
from autograder.sandbox import tiers
from autograder.sandbox.tiers import Tier
from tests.autograder.tasks import work
from tests.classroom import COURSE, still_running
from tests.processes import run, started


@pytest.fixture
def results(tmp_path):
    """Results by task, for tasks that are done by so many processes."""

    def run(*tasks, jobs=1):
        todo = [(task, str(tmp_path / f"{number}")) for number, task in enumerate(tasks)]
        with Pool(work, shares(jobs, usable_cores())) as pool:
            return {task: result for (task, _), result in pool.results(todo)}

    return run


def test_all_tasks_are_done_whoever_fails(results):
    got = results("one", "raise", "two", "three", jobs=2)
    assert got == {"one": "one", "raise": Failed("ValueError: no"), "two": "two", "three": "three"}


def test_a_process_that_dies_costs_a_second_try_and_then_its_own_task(results, tmp_path):
    got = results("one", "die", "die once", "two")
    assert "was killed" in got.pop("die").reason
    assert got == {"one": "one", "die once": "die once", "two": "two"}
    assert [len((tmp_path / name).read_text()) for name in "0123"] == [1, 2, 2, 1]


def test_who_has_nothing_to_do_any_more_removes_what_they_have_made(results, tmp_path):
    results("remove at the end", "remove at the end", jobs=2)
    assert list(tmp_path.iterdir()) == []


def test_a_process_without_an_end_is_ended_and_costs_its_own_task(tmp_path):
    todo = [(what, str(tmp_path / what)) for what in ("one", "wait", "two")]
    with Pool(work, shares(1, usable_cores()), limit=5.0) as pool:
        got = {what: result for (what, _), result in pool.results(todo)}
    assert "had not ended after 5 s" in got.pop("wait").reason
    assert got == {"one": "one", "two": "two"}
    pids = map(int, (tmp_path / "wait").read_text().split())
    assert still_running([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]) == []


def test_tasks_are_taken_only_when_somebody_is_free_for_them(tmp_path):
    taken = []

    def tasks():
        for number in range(5):
            taken.append(number)
            yield "one", str(tmp_path / "file")

    with Pool(work, shares(1, usable_cores())) as pool:
        next(pool.results(tasks()))
    assert taken == [0, 1]


def test_each_process_has_its_own_share_from_the_beginning(tmp_path):
    core = usable_cores()[0]
    everything = usable_cores()
    with Pool(work, [(core,)]) as pool:
        ((_, share),) = pool.results([("share", str(tmp_path / "file"))])
    assert share == [core]
    assert usable_cores() == everything


def test_shares_are_equal_and_nobody_has_what_another_has():
    assert shares(2, [0, 1, 2, 3, 4]) == [(0, 1), (2, 3)]
    assert shares(3, [4, 7]) == [(4,), (7,), (4,)]


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_when_the_one_who_started_them_ends_so_do_all_processes_and_theirs(tmp_path, ending):
    file = tmp_path / "pids"
    code = (
        "from tests.autograder.tasks import work; from autograder.grading.pool import Pool\n"
        f"with Pool(work, [(0,)]) as pool: list(pool.results([('wait', {str(file)!r})]))"
    )
    with started([sys.executable, "-c", code], cwd=COURSE, stderr=subprocess.DEVNULL) as starter:
        while not (file.exists() and len(file.read_text().split()) == 2):
            assert starter.poll() is None
            time.sleep(0.05)
        processes = [psutil.Process(int(pid)) for pid in file.read_text().split()]
        starter.send_signal(ending)
        starter.wait()
        assert still_running(processes) == []


def test_processes_that_are_being_started_take_no_notice_of_ctrl_c(tmp_path):
    code = (
        "import os, signal; from multiprocessing import active_children\n"
        "from tests.autograder.tasks import work; from autograder.grading.pool import Pool\n"
        "with Pool(work, [(0,), (0,)]) as pool:\n"
        "    pids = {process.pid for process in active_children()}\n"
        "    for pid in pids: os.kill(pid, signal.SIGINT)\n"
        f"    list(pool.results([(name, {str(tmp_path)!r} + '/' + name) for name in ('one', 'two')]))\n"
        "    print(len(pids), pids == {process.pid for process in active_children()})"
    )
    done = run([sys.executable, "-c", code], cwd=COURSE)
    assert (done.stdout, done.stderr) == ("2 True\n", "")


def test_a_process_whose_result_nobody_takes_ends_without_a_word(tmp_path):
    code = (
        "import os, time; from pathlib import Path\n"
        "from tests.autograder.tasks import work; from autograder.grading.pool import Pool\n"
        f"one, two = (Path({str(tmp_path)!r}, name) for name in ('one', 'two'))\n"
        "pool = Pool(work, [(0,)])\n"
        "next(pool.results([('one', str(one)), ('two', str(two))]))\n"
        "while not two.exists(): time.sleep(0.01)\n"
        "time.sleep(0.3)\n"
        "os._exit(0)"
    )
    with started(
        [sys.executable, "-c", code], cwd=COURSE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as starter:
        said, _ = starter.communicate()
    assert said == b""


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_a_sandbox_ends_with_all_that_multiplies_in_it_and_its_files(tmp_path, ending):
    if reason := tiers.missing(Tier.LANDLOCK):
        pytest.skip(reason)
    file = tmp_path / "sandbox"
    code = (
        "from tests.autograder.tasks import work; from autograder.grading.pool import Pool\n"
        f"with Pool(work, [(0,)]) as pool: list(pool.results([('wait beside a sandbox', {str(file)!r})]))"
    )
    with started([sys.executable, "-c", code], cwd=COURSE, stderr=subprocess.DEVNULL) as starter:
        while not (file.exists() and file.read_text().endswith("\n")):
            assert starter.poll() is None
            time.sleep(0.05)
        top = Path(file.read_text().strip())
        while not list(top.glob("home/student/new")):
            time.sleep(0.05)
        starter.send_signal(ending)
        starter.wait()
    deadline = time.monotonic() + 20
    while (left := [*top.glob("home/student/*"), *_processes_in(top)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    shutil.rmtree(top)
    assert left == []


def _processes_in(folder: Path) -> list[int]:
    """Those that work in a folder, or below it."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cwd().startswith(str(folder)):
                found.append(process.pid)
    return found
