"""Ranks that die, ranks that cannot be stopped, notebooks that are killed: nothing is left, nothing hangs."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

import fourranks
from fourranks import CellTimeout, DeadlockError, FourRanksError, RankDied


@pytest.fixture(params=["fork", "spawn"])
def any_group(request):
    """Four ranks, started either way."""
    with fourranks.start(4, "gloo", start_method=request.param) as group:
        yield group


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def wait_until(condition, seconds=10):
    deadline = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds


@pytest.mark.parametrize(
    ("last_words", "cause"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "was killed by SIGKILL"),
        ("os.abort()", "was killed by SIGABRT"),
        ("os._exit(3)", "exited with code 3"),
    ],
)
def test_a_rank_that_dies_is_reported_while_the_others_still_wait_for_it(group, last_words, cause):
    with pytest.raises(RankDied) as caught:
        group.execute(f"import os, signal\nif rank == 2: {last_words}\ndist.barrier()")
    assert (caught.value.rank, caught.value.cause) == (2, cause)


def test_a_rank_that_dies_leaves_its_last_words(group):
    with pytest.raises(RankDied, match="last words"):
        group.execute("import os\nif rank == 1:\n    print('last words')\n    os._exit(1)\ndist.barrier()")


def test_after_a_death_the_others_keep_their_variables_and_restart_brings_a_whole_world_back(any_group):
    any_group.execute("kept = rank")
    with pytest.raises(RankDied):
        any_group.execute("import os\nif rank == 3: os._exit(0)\ndist.barrier()")
    assert any_group.pull("kept", ranks=[0, 1, 2]) == [0, 1, 2]
    with pytest.raises(RankDied, match="%ranks restart"):
        any_group.execute("1")
    any_group.restart()
    assert str(any_group.execute("x = torch.ones(1); dist.all_reduce(x); x")) == "[0-3] tensor([4.])"


def test_a_rank_that_dies_between_two_cells_is_noticed(group):
    victim = group.status()[1].pid
    os.kill(victim, signal.SIGKILL)
    assert wait_until(lambda: group.status()[1].state == "was killed by SIGKILL")
    with pytest.raises(RankDied, match="Rank 1"):
        group.execute("1")


def test_memory_that_runs_out_is_an_error_and_not_the_end(group):
    with pytest.raises(fourranks.RankError, match="memory"):
        group.execute("torch.empty(10**15)")
    group.execute("dist.barrier()")


def make_small_cgroup() -> Path | None:
    """A control group whose processes may have 600 MiB; None where this user may not make one."""
    for limit in ("/sys/fs/cgroup/memory/{}/memory.limit_in_bytes", "/sys/fs/cgroup/{}/memory.max"):
        file = Path(limit.format(f"fourranks-test-{os.getpid()}"))
        with contextlib.suppress(OSError):
            file.parent.mkdir()
            if file.exists():
                file.write_text(str(600 * 2**20))
                return file.parent
            file.parent.rmdir()
    return None


@pytest.fixture
def small_cgroup():
    cgroup = make_small_cgroup()
    if cgroup is None:
        pytest.skip("needs a memory cgroup that this user may write to")
    yield cgroup
    wait_until(lambda: not (cgroup / "cgroup.procs").read_text())
    cgroup.rmdir()


def test_a_rank_that_linux_kills_for_want_of_memory_is_reported_so(group, small_cgroup):
    (small_cgroup / "cgroup.procs").write_text(str(group.status()[1].pid))
    hog = "hog = []\n    while True:\n        hog.append(torch.ones(10_000_000)); time.sleep(0.02)"
    with pytest.raises(RankDied) as caught:
        group.execute(f"import time\nif rank == 1:\n    {hog}\ndist.barrier()")
    assert (caught.value.rank, caught.value.cause) == (1, "was killed by SIGKILL because memory ran out")
    group.restart()
    group.execute("dist.barrier()")


def test_a_rank_stuck_in_c_code_that_cannot_be_interrupted_costs_a_restart_and_says_so(group):
    with pytest.raises(CellTimeout, match="variables are lost"):
        group.execute("import re\nre.match(r'(a+)+$', 'a' * 50 + 'b')", timeout=0.5)
    assert str(group.execute("x = torch.ones(1); dist.all_reduce(x); x")) == "[0-3] tensor([4.])"


def test_stop_ends_the_ranks_and_what_they_started(any_group):
    pids = [status.pid for status in any_group.status()]
    children = any_group.pull("__import__('subprocess').Popen(['sleep', '600']).pid")
    any_group.stop()
    assert wait_until(lambda: all(gone(pid) for pid in pids + children))
    with pytest.raises(FourRanksError, match="%ranks start"):
        any_group.execute("1")


def test_a_world_that_is_out_of_reach_ends():
    group = fourranks.start(2, "gloo")
    pids = [status.pid for status in group.status()]
    before = len(os.listdir("/proc/self/fd"))
    group = fourranks.start(2, "gloo")
    assert wait_until(lambda: all(gone(pid) for pid in pids))
    assert wait_until(lambda: len(os.listdir("/proc/self/fd")) == before)
    group.stop()


def test_many_deadlocks_in_a_row_leave_no_descriptor_or_thread_behind(group):
    def resources():
        counts = group.pull(
            "(len(__import__('os').listdir('/proc/self/fd')), __import__('threading').active_count())"
        )
        return [*itertools.chain(*counts), len(os.listdir("/proc/self/fd"))]

    def deadlock():
        with pytest.raises(DeadlockError):
            group.execute("if rank: dist.barrier()")

    deadlock()
    before = resources()
    for _ in range(5):
        deadlock()
    # Gloo and the store close a connection a little after its other end is gone.
    assert wait_until(lambda: all(now <= earlier for now, earlier in zip(resources(), before, strict=True)))


def test_ranks_have_what_the_zygote_was_told_to_import():
    def has_the_compiler():
        return "torch._dynamo" in sys.modules

    fourranks.zygote.stop_shared()
    fourranks.zygote.shared().import_more()
    with fourranks.start(1, "gloo") as group:
        assert group.run(has_the_compiler) == [True]


def test_a_broken_zygote_says_why(tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text("raise ImportError('this torch is broken')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    broken = fourranks.zygote.Zygote()
    with pytest.raises(fourranks.StartError, match="this torch is broken"):
        broken.ready()
    broken.stop()


# --- the notebook's own end ---

NOTEBOOK = """
import os, sys
import fourranks
group = fourranks.start(4, "gloo", start_method="{start_method}")
print(fourranks.zygote.shared()._process.pid, *(status.pid for status in group.status()), flush=True)
{rest}
"""


def start_notebook(rest: str, start_method: str = "fork") -> tuple[subprocess.Popen, list[int]]:
    """A process that plays a kernel; returns it with the pids of its zygote and ranks."""
    process = subprocess.Popen(
        [sys.executable, "-c", NOTEBOOK.format(rest=rest, start_method=start_method)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return process, [int(pid) for pid in process.stdout.readline().split()]


@pytest.mark.parametrize(
    ("busy", "start_method"),
    [
        ("sys.stdin.read()", "fork"),
        ("sys.stdin.read()", "spawn"),
        ("group.execute('if rank: dist.barrier()\\nelse: time.sleep(99)')", "fork"),
    ],
)
def test_a_kernel_that_is_killed_leaves_no_rank_and_no_zygote(busy, start_method):
    process, pids = start_notebook(busy, start_method)
    process.kill()
    process.communicate()
    assert len(pids) == 5
    assert wait_until(lambda: all(gone(pid) for pid in pids))


def test_a_kernel_that_exits_leaves_nothing_although_it_never_stopped_its_ranks():
    process, pids = start_notebook("")
    process.communicate(timeout=30)
    assert process.returncode == 0
    assert wait_until(lambda: all(gone(pid) for pid in pids))


@pytest.mark.parametrize(
    "cell",
    [
        "while True: pass",
        "import time; time.sleep(99)",
        "if rank: dist.barrier()\nelse: import time; time.sleep(99)",
    ],
)
def test_jupyters_interrupt_stops_the_cell_and_leaves_the_world_usable(cell):
    rest = f"""
import threading, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
group.execute("kept = rank")
threading.Timer(0.7, lambda: os.killpg(os.getpgrp(), signal.SIGINT)).start()
try:
    group.execute({cell!r})
except KeyboardInterrupt:
    group.execute("dist.barrier()")
    print("kept", group.pull("kept"))
"""
    process = subprocess.Popen(
        [sys.executable, "-c", NOTEBOOK.format(rest=rest, start_method="fork")],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # as a kernel: the interrupt goes to its whole process group
    )
    output, _ = process.communicate(timeout=60)
    assert "kept [0, 1, 2, 3]" in output


def test_threads_may_run_cells_on_their_own_worlds():
    results = []

    def work(world_size):
        results.append(fourranks.run(lambda: 1, world_size=world_size, backend="gloo"))

    fourranks.start(1, "gloo").stop()  # the zygote is up
    threads = [threading.Thread(target=work, args=(n,)) for n in (2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(len, results)) == [2, 3]


def test_a_rank_that_gets_the_pid_of_an_earlier_one_is_not_taken_for_dead():
    for _ in range(20):  # another process may get the pid first
        with fourranks.start(1, "gloo") as group:
            earlier = group.status()[0].pid
        try:
            Path("/proc/sys/kernel/ns_last_pid").write_text(str(earlier - 1))
        except OSError:
            pytest.skip("only root, and not everywhere, can choose the next pid")
        with fourranks.start(1, "gloo") as group:
            group.execute("dist.barrier()")
            if group.status()[0].pid == earlier:
                return
    pytest.fail("no pid was given again")
