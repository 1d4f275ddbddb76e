"""Ranks that die, ranks that cannot be stopped, notebooks that are killed: nothing is left, nothing hangs."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import fourranks
from fourranks import CellTimeout, DeadlockError, FourRanksError, RankDied, RankError, cell, memory_kills
from fourranks.errors import CellInterrupted, StartError
from fourranks.hardware import processors
from tests.processes import started


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


def test_a_rank_that_takes_long_to_tell_of_its_error_keeps_its_variables(group, monkeypatch):
    monkeypatch.setattr(cell, "FREE_PATIENCE", (0.1, 0.1, 0.5))
    program = """
        import os, signal, time
        kept = rank
        class Slow(Exception):
            def __str__(self):
                time.sleep(2)
                return "slow"
        if rank == 1:
            raise Slow()
        time.sleep(0.5)
        if rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
    """
    with pytest.raises(RankDied, match="Rank 2 was killed"):
        group.execute(textwrap.dedent(program))
    assert group.pull("kept", ranks=[0, 1, 3]) == [0, 1, 3]


def test_a_rank_that_waits_for_any_source_when_all_others_have_died_keeps_its_variables(group):
    program = """
        import os, signal
        kept = rank
        dist.barrier()
        if rank > 0:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.recv(torch.ones(1))
    """
    with pytest.raises(RankDied):
        group.execute(textwrap.dedent(program))
    assert group.pull("kept", ranks=[0]) == [0]


@pytest.mark.parametrize("call", ["dist.all_reduce(x)", "dist.send(x, 1) if rank == 0 else dist.recv(x, 0)"])
def test_a_rank_that_dies_in_the_middle_of_a_transfer_costs_the_others_no_variable(group, call):
    group.execute("kept = rank; x = torch.ones(100_000_000)", ranks=[0, 1])
    program = f"""
        import os, signal, threading
        if rank < 2:
            pair = dist.new_group([0, 1], use_local_synchronization=True)
            if rank == 1:
                threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGKILL]).start()
            for _ in range(100):  # one may be over before the rank dies
                {call}
    """
    with pytest.raises(RankDied, match="Rank 1 was killed"):
        group.execute(textwrap.dedent(program).replace("(x)", "(x, group=pair)"))
    assert group.pull("kept", ranks=[0]) == [0]


@pytest.mark.parametrize("victim", range(4))
def test_ranks_that_form_a_group_with_one_that_dies_meanwhile_keep_their_variables(group, victim):
    program = """
        import os, signal
        from torch.distributed import distributed_c10d
        kept = rank
        class Deadly(dist.Store):
            "Publishes this rank's address, and dies before it connects to anybody."
            def __init__(self, inner):
                super().__init__()
                self.inner = inner
            def set(self, key, value):
                self.inner.set(key, value)
            def wait(self, *_):
                os.kill(os.getpid(), signal.SIGKILL)
            get = check = add = wait
        make = distributed_c10d.ProcessGroupGloo
        if rank == VICTIM:
            distributed_c10d.ProcessGroupGloo = lambda store, *a, **k: make(Deadly(store), *a, **k)
        dist.new_group([0, 1, 2, 3])
    """
    with pytest.raises(RankDied) as caught:
        group.execute(textwrap.dedent(program).replace("VICTIM", str(victim)))
    assert caught.value.rank == victim
    others = [rank for rank in range(4) if rank != victim]
    assert group.pull("kept", ranks=others) == others


def test_a_group_that_cannot_be_made_on_one_rank_is_not_waited_for_on_the_others(group):
    program = """
        from torch.distributed import distributed_c10d
        kept, make = rank, distributed_c10d.ProcessGroupGloo
        def fail(*_, **__):
            distributed_c10d.ProcessGroupGloo = make
            raise RuntimeError("no such device")
        if rank == 1:
            distributed_c10d.ProcessGroupGloo = fail
        dist.new_group([0, 1, 2, 3])
    """
    with pytest.raises(fourranks.RankError, match="(?s)no such device.*On rank 1 the new_group failed"):
        group.execute(textwrap.dedent(program))
    assert group.pull("kept") == [0, 1, 2, 3]
    group.execute("dist.barrier()")


def test_calls_that_gloo_does_not_notice_the_end_of_fail_when_they_are_told_to(group):
    program = """
        from fourranks.rank import gloo
        if rank == 0:
            others = [dist.irecv(torch.ones(1), peer) for peer in (1, 2, 3)]
            gloo.fail_calls(dist.group.WORLD.inner)
            for work in others:
                try:
                    work.wait()
                except RuntimeError:
                    print("failed")
    """
    assert str(group.execute(textwrap.dedent(program))).count("[0] failed") == 3


def test_a_deadlock_of_many_ranks_costs_no_new_connection_to_the_store():
    """Torch asks the name server about each, and a name server loses some of many questions: 5 seconds."""

    def connections():
        from fourranks.rank.rescue import tcp_connections

        store = int(os.environ["MASTER_PORT"])
        return sorted(c.own_port for c in tcp_connections() if c.peer_port == store)

    with fourranks.start(12, "gloo") as many:
        before = many.run(connections)
        assert all(before)
        with pytest.raises(DeadlockError):
            many.execute("if rank: dist.barrier()")
        assert many.run(connections) == before


def test_functions_of_torch_that_were_imported_before_a_deadlock_work_after_it(group):
    group.execute("from torch.distributed.nn import functional\nx = torch.ones(1, requires_grad=True)")
    with pytest.raises(DeadlockError):
        group.execute("if rank: functional.all_reduce(x)")
    group.execute("functional.all_reduce(x).backward()")
    assert group.pull("x.grad.item()") == [4.0] * 4


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


def test_when_all_ranks_have_died_no_variable_is_said_to_be_kept_and_the_next_cell_names_all_of_them(group):
    with pytest.raises(RankDied, match="No rank is left, so their variables are lost."):
        group.execute("import os\nos._exit(3)")
    with pytest.raises(
        RankDied, match="Ranks 0-3 are gone: rank 0 exited with code 3. `%ranks restart` starts"
    ):
        group.execute("1")


class EndsItsReader:
    def __reduce__(self):
        return eval, ("(__import__('time').sleep(1), __import__('os')._exit(9))",)


def test_a_rank_that_dies_where_no_line_is_the_readers_is_last_seen_nowhere(group):
    with pytest.raises(RankDied, match=r"Ranks 0-3 exited with code 9\.\n"):
        group.push(value=EndsItsReader())


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


def test_memory_that_ran_out_long_ago_explains_no_end_of_today(monkeypatch):
    killed, now = 13, 1000.0
    monkeypatch.setattr(memory_kills, "_out_of_memory_kills", lambda: killed)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    kills = memory_kills.MemoryKills()
    assert not kills.recent()
    killed += 1
    assert kills.recent()
    now += 60
    assert not kills.recent()


def test_a_rank_that_holds_the_interpreter_in_c_code_is_interrupted(group):
    group.execute("kept = rank")
    with pytest.raises(CellTimeout):
        group.execute("import re\nif rank: dist.barrier()\nre.match(r'(a+)+$', 'a' * 50 + 'b')", timeout=0.5)
    assert group.pull("kept") == [0, 1, 2, 3]


def test_a_model_that_holds_the_group_from_before_a_deadlock_has_to_be_made_again(group):
    group.execute("model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))")
    with pytest.raises(DeadlockError):
        group.execute("if rank:\n    dist.barrier()")
    with pytest.raises(RankError, match="Make\\s+what\\s+holds\\s+it\\s+again") as failed:
        group.execute("loss = model(torch.ones(2)).sum()\nloss.backward()")
    assert "all_reduce was called (Cell In[1], line 2: loss.backward())" in str(failed.value)
    group.execute("x = torch.ones(1); dist.all_reduce(x); x = x.item()", timeout=10)
    assert group.pull("x") == [4.0] * 4


def test_ranks_that_are_stopped_before_calls_that_do_not_fit_are_in_step_again(group):
    with pytest.raises(CellTimeout, match="formed\\s+again"):
        group.execute(
            """
            import datetime, time
            dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))  # so nothing is proven
            if rank == 0:
                dist.barrier()  # the only call that Gloo gets
            time.sleep(0.3)
            dist.all_reduce(torch.ones(1))
            """,
            timeout=1,
        )
    group.execute("x = torch.ones(1); dist.all_reduce(x); x = x.item()", timeout=10)
    assert group.pull("x") == [4] * 4


ENDLESS = "import collections, itertools\ncollections.deque(itertools.repeat(0), maxlen=0)"


@pytest.mark.parametrize("handler", ["signal.SIG_IGN", "signal.SIG_DFL", "lambda *_: None"])
def test_code_that_takes_no_notice_of_interrupts_ends_with_its_variables(group, handler):
    group.execute("kept = rank")
    with pytest.raises(CellTimeout):
        source = f"import signal, time\nsignal.signal(signal.SIGINT, {handler})\nwhile True: time.sleep(0.1)"
        group.execute(source, timeout=0.5)
    assert group.pull("kept") == [0, 1, 2, 3]


@pytest.mark.parametrize("meanwhile", ["dist.barrier()", "import time; time.sleep(600)"])
def test_ranks_of_which_one_got_a_sigstop_end_with_their_variables(group, meanwhile):
    group.execute("kept = rank")
    with pytest.raises(CellTimeout):
        stop = "import os, signal\nif rank == 1: os.kill(os.getpid(), signal.SIGSTOP)"
        group.execute(f"{stop}\n{meanwhile}", timeout=0.5)
    assert group.pull("kept") == [0, 1, 2, 3]


SAVES = """
import time
try:
    print("started")
    time.sleep(600)
finally:
    saved = "in part"
    print("saving")
    time.sleep({seconds})
    saved = "all"
"""


def test_a_stop_interrupts_a_finally_no_second_time(group):
    with pytest.raises(CellTimeout):
        group.execute(SAVES.format(seconds=3), timeout=0.5)
    assert group.pull("saved") == ["all"] * 4


def test_a_second_stop_does(group, monkeypatch):
    monkeypatch.setattr(cell, "HANDLING_PATIENCE", 3600)
    stops = ["[0-3] saving", "[0-3] started"]  # by what is shown when the reader presses the button

    def press(transcript):
        if stops and stops[-1] in str(transcript):
            stops.pop()
            group.interrupt()

    with pytest.raises(CellInterrupted):
        group.execute(SAVES.format(seconds=600), on_output=press)
    assert group.pull("saved") == ["in part"] * 4


def test_a_rank_stuck_in_c_code_that_cannot_be_interrupted_costs_a_restart_and_says_so(group, monkeypatch):
    monkeypatch.setattr(cell, "LEAVING_PATIENCE", 1)
    with pytest.raises(CellTimeout, match="variables are lost"):
        group.execute(ENDLESS, timeout=0.5)
    assert str(group.execute("x = torch.ones(1); dist.all_reduce(x); x")) == "[0-3] tensor([4.])"


CRASHES = """
    import ctypes, os, signal
    from multiprocessing import get_context


    def read_nothing():
        ctypes.string_at(0)


    def in_a_child():
        child = get_context("fork").Process(target=read_nothing)
        child.start()
        child.join()
"""


@pytest.mark.parametrize(
    "ending, told",
    [
        ("read_nothing()", r"SIGSEGV in Cell In\[1\], line 6\.$"),
        ("os.abort()", r"SIGABRT in Cell In\[1\], line 2\.$"),
        ("in_a_child(); os.abort()", r"SIGABRT in Cell In\[1\], line 2\.$"),
        ("in_a_child(); os.kill(os.getpid(), signal.SIGKILL)", r"SIGKILL\.$"),
    ],
)
@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_a_rank_that_crashes_is_named_with_the_line_that_it_was_in(start_method, ending, told):
    with fourranks.start(2, "gloo", start_method=start_method) as group:
        group.execute(CRASHES)
        with pytest.raises(RankDied) as caught:
            group.execute(f"if rank == 1:\n    {ending}")
    assert re.search(told, caught.value.explanation.splitlines()[0])


def test_what_went_wrong_in_the_cell_is_told_also_where_no_ranks_can_be_started_in_their_place(monkeypatch):
    monkeypatch.setattr(cell, "FREE_PATIENCE", (0.1, 0.1, 0.1))
    monkeypatch.setattr(cell, "LEAVING_PATIENCE", 1)
    with fourranks.start(2, "gloo") as group:
        start = group._conductor._start

        def fail():
            raise StartError("The GPU is taken.")

        monkeypatch.setattr(group._conductor, "_start", fail)
        with pytest.raises(CellTimeout, match="new ones could not be started"):
            group.execute(ENDLESS, timeout=0.5)
        with pytest.raises(StartError, match="The GPU is taken"):
            group.restart()
        monkeypatch.setattr(group._conductor, "_start", start)
        group.restart()
        assert group.pull("rank") == [0, 1]


def test_ranks_that_the_notebook_ends_are_not_reported_as_dead(group, monkeypatch):
    monkeypatch.setattr(cell, "FREE_PATIENCE", (0.1, 0.1, 0.1))
    monkeypatch.setattr(cell, "LEAVING_PATIENCE", 1)
    with pytest.raises(RankDied, match="variables are lost") as caught:
        group.execute("import os\nif rank == 2: os.abort()\n" + ENDLESS)
    assert "Rank 2 was killed by SIGABRT" in str(caught.value)
    assert "Rank 1" not in str(caught.value)


def test_stop_ends_the_ranks_and_what_they_started(any_group):
    pids = [status.pid for status in any_group.status()]
    children = any_group.pull("__import__('subprocess').Popen(['sleep', '600']).pid")
    any_group.stop()
    assert wait_until(lambda: all(gone(pid) for pid in pids + children))
    with pytest.raises(FourRanksError, match="%ranks start"):
        any_group.execute("1")


@pytest.mark.parametrize("ends", ["stop", "restart", "resize and stop"])
def test_what_ranks_have_written_to_open_files_is_in_them_when_the_world_ends(ends, tmp_path):
    with fourranks.start(2, "gloo", capacity=3) as group:
        group.execute(f"log = open(f'{tmp_path}/{{rank}}', 'w'); log.write('step 1')")
        if ends == "resize and stop":
            group.resize(1)
        group.restart() if ends == "restart" else group.stop()
        assert [(tmp_path / str(rank)).read_text() for rank in (0, 1)] == ["step 1"] * 2


def test_so_it_is_when_a_cell_is_cut_short(tmp_path):
    source = f"log = open(f'{tmp_path}/{{rank}}', 'w'); log.write('step 1'); import time; time.sleep(600)"

    def run() -> None:
        with contextlib.suppress(FourRanksError, CellInterrupted):
            group.execute(source)

    with fourranks.start(2, "gloo") as group:
        thread = threading.Thread(target=run)
        thread.start()
        assert wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
        group.stop()
        thread.join()
        assert [(tmp_path / str(rank)).read_text() for rank in (0, 1)] == ["step 1"] * 2


def test_a_rank_that_has_used_up_all_descriptors_still_finds_the_connections_to_cut(group):
    def found():
        from fourranks.rank import rescue

        spare, files = rescue.SpareDescriptor(), []
        try:
            while True:
                files.append(open(os.devnull))  # noqa: SIM115
        except OSError:
            with spare.given_up():
                return len(rescue.tcp_connections())
        finally:
            for file in files:
                file.close()

    assert all(group.run(found))


def test_a_rank_that_has_used_up_all_descriptors_says_so_and_keeps_its_variables(group):
    few = "import os, resource; resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))"
    opens = "kept = rank, []\nwhile True: kept[1].append(open(os.devnull))"
    with pytest.raises(fourranks.RankError, match=r"(?s)Cell In\[\d+\], line 3.*Too many open files"):
        group.execute(f"{few}\n{opens}")
    assert group.pull("kept[0]") == [0, 1, 2, 3]


def test_a_file_that_cannot_be_written_keeps_no_world_from_its_end(group):
    group.execute("import os; pipe = os.fdopen(os.pipe()[1], 'wb', 1 << 20); pipe.write(bytes(1 << 19))")
    pids = group.pids
    group.stop()
    assert all(map(gone, pids))


def test_a_world_that_is_out_of_reach_ends():
    group = fourranks.start(2, "gloo")
    pids = [status.pid for status in group.status()]
    before = len(os.listdir("/proc/self/fd"))
    group = fourranks.start(2, "gloo")
    assert wait_until(lambda: all(gone(pid) for pid in pids))
    assert wait_until(lambda: len(os.listdir("/proc/self/fd")) == before)
    group.stop()


@pytest.mark.parametrize("call", ["dist.barrier()", "dist.new_group([0, 1, 2, 3])"])
@pytest.mark.parametrize(
    ("error", "rank_0"), [(DeadlockError, "pass"), (CellTimeout, "import time; time.sleep(99)")]
)
def test_many_cells_in_a_row_that_are_stopped_leave_no_descriptor_or_thread_behind(
    group, call, error, rank_0
):
    def resources():
        # An error's frames hold a cut connection to the store until Python collects them.
        group.execute("import gc; gc.collect()")
        counts = group.pull(
            "(len(__import__('os').listdir('/proc/self/fd')), __import__('threading').active_count())"
        )
        return [*itertools.chain(*counts), len(os.listdir("/proc/self/fd"))]

    def get_stuck():
        with pytest.raises(error):
            group.execute(f"if rank: {call}\nelse: {rank_0}", timeout=1 if error is CellTimeout else None)

    get_stuck()
    before = resources()
    for _ in range(5):
        get_stuck()
    # Gloo and the store close a connection a little after its other end is gone.
    assert wait_until(lambda: all(now <= earlier for now, earlier in zip(resources(), before, strict=True)))


def test_ranks_have_what_the_zygote_was_told_to_import():
    def has_the_compiler():
        return "torch._dynamo" in sys.modules

    fourranks.zygote.stop_shared()
    fourranks.zygote.shared().import_modules(fourranks.zygote.COMPILER)
    with fourranks.start(1, "gloo") as group:
        assert group.run(has_the_compiler) == [True]


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="Linux has batch jobs")
def test_no_thread_takes_a_processor_from_another_where_there_are_more_ranks_than_processors(any_group):
    assert _policies(any_group) == [{_policy(4)}] * 4


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="Linux has batch jobs")
def test_nor_does_one_in_a_world_that_has_grown():
    with fourranks.start(2, "gloo", capacity=8) as group:
        assert _policies(group) == [{_policy(2)}] * 2
        group.resize(8)
        assert all(_policy(8) in own for own in _policies(group)), "of the main thread and the new group's"


def _policy(world_size: int) -> int:
    return os.SCHED_BATCH if world_size > processors() else os.SCHED_OTHER


def _policies(group: fourranks.RankGroup) -> list[set[int]]:
    group.execute("import os\ndist.barrier()")
    return group.pull("{os.sched_getscheduler(int(each)) for each in os.listdir('/proc/self/task')}")


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


@contextlib.contextmanager
def notebook(rest: str, start_method: str = "fork") -> Iterator[tuple[subprocess.Popen, list[int]]]:
    """Start a process that plays a kernel; gives it with the pids of its zygote and ranks."""
    command = [sys.executable, "-c", NOTEBOOK.format(rest=rest, start_method=start_method)]
    pipe = subprocess.PIPE
    with started(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        yield process, [int(pid) for pid in process.stdout.readline().split()]


@pytest.mark.parametrize(
    ("busy", "start_method"),
    [
        ("sys.stdin.read()", "fork"),
        ("sys.stdin.read()", "spawn"),
        ("group.execute('if rank: dist.barrier()\\nelse: time.sleep(99)')", "fork"),
    ],
)
def test_a_kernel_that_is_killed_leaves_no_rank_and_no_zygote(busy, start_method):
    with notebook(busy, start_method) as (process, pids):
        process.kill()
        process.communicate()
        assert len(pids) == 5
        assert wait_until(lambda: all(gone(pid) for pid in pids))


def test_a_kernel_that_exits_leaves_nothing_although_it_never_stopped_its_ranks():
    with notebook("") as (process, pids):
        process.communicate(timeout=30)
        assert process.returncode == 0
        assert wait_until(lambda: all(gone(pid) for pid in pids))


def test_a_kernel_that_exits_leaves_in_open_files_what_its_ranks_have_written(tmp_path):
    path = tmp_path / "log"
    writes = f"group.execute(\"if rank == 3: log = open('{path}', 'w'); log.write('step 1')\")"
    with notebook(writes) as (process, _):
        process.communicate()
        assert path.read_text() == "step 1"


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
group.execute("kept = rank")
threading.Timer(0.7, lambda: os.killpg(os.getpgrp(), signal.SIGINT)).start()
try:
    group.execute({cell!r})
except KeyboardInterrupt:
    group.execute("dist.barrier()")
    print("kept", group.pull("kept"))
"""
    with notebook(rest) as (process, _):
        output, _ = process.communicate(timeout=60)
    assert "kept [0, 1, 2, 3]" in output


def test_a_kernel_that_is_suspended_beyond_a_timeout_finds_that_the_cell_ended_in_time():
    rest = """
import subprocess
subprocess.Popen(["sh", "-c", f"sleep 0.5; kill -STOP {os.getpid()}; sleep 6; kill -CONT {os.getpid()}"])
group.execute("import time; time.sleep(1)", timeout=5)
print("in time")
"""
    with notebook(rest) as (process, _):
        assert process.communicate(timeout=60)[0] == "in time\n"


def test_an_interrupt_while_torch_is_imported_for_a_pull_leaves_it_whole():
    rest = """
import signal

class Presses:  # Jupyter's interrupt button, in the middle of the import
    def find_spec(self, name, *_):
        if name == "torch.nn":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Presses())
try:
    group.pull("torch.ones(2)")
except KeyboardInterrupt:
    print("interrupted", [tensor.tolist() for tensor in group.pull("torch.ones(1)")])
"""
    with notebook(rest) as (process, _):
        output, errors = process.communicate(timeout=60)
    assert output == "interrupted [[1.0], [1.0], [1.0], [1.0]]\n", errors


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


def test_a_cell_on_the_others_that_fails_after_a_rank_has_died_says_so(group):
    os.kill(group.pids[3], signal.SIGKILL)
    with pytest.raises(RankDied):
        group.execute("pass")
    with pytest.raises(CellTimeout, match="other ranks keep their variables"):
        group.execute("kept = rank\nwhile True: __import__('time').sleep(1)", ranks=[0, 1], timeout=0.5)
    assert group.pull("kept", [0, 1]) == [0, 1]
