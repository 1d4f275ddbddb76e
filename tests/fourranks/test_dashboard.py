"""A world's reports while a cell runs, a thread that ends the cell, and the dashboard in a real kernel."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import pytest

from fourranks.live import Activity, Meter, busy_rank
from fourranks.protocol.messages import State
from fourranks.protocol.progress import Progress
from fourranks.reports import Reports
from fourranks.trace import Call
from fourranks.views.static_dashboard import StaticDashboard
from fourranks.watch import missing

from .test_life_and_death import gone, wait_until
from .test_magics import Kernel

STUCK = "import time\nkept = rank\nif rank == 2: time.sleep(600)\ndist.barrier()"


def call(op: str = "all_reduce", ranks=(0, 1, 2), **facts) -> Call:
    return Call(op, "default", ranks, **facts)


def report(at: float = 10.0, **facts) -> State:
    return State(True, Progress(**facts), at=at)


# --- pure logic ------------------------------------------------------------------------------------------


def test_a_rank_in_a_collective_waits_for_those_that_have_not_come():
    there, absent = {("default", (0, 1, 2)): 4}, {("default", (0, 1, 2)): 3}
    progresses = {0: Progress(collectives=there), 1: Progress(collectives=absent), 2: Progress()}
    assert missing(0, call(seq=3), Reports(progresses)) == {1, 2}
    progresses[1] = progresses[2] = Progress(collectives=there)
    assert missing(0, call(seq=3), Reports(progresses)) == set()


def test_a_rank_that_is_not_the_root_waits_for_the_root_alone():
    assert missing(0, call("broadcast", root=2), Reports({})) == {2}
    assert missing(2, call("broadcast", root=2), Reports({})) == {0, 1}


def test_the_ends_of_a_message_wait_for_each_other():
    send, recv = call("send", peer=1), call("recv", peer=1)
    assert missing(0, send, Reports({})) == missing(0, recv, Reports({})) == {1}
    assert missing(0, send, Reports({1: Progress(recvs={("default", 0, 0): 1})})) == set()
    assert missing(0, send, Reports({1: Progress(recvs={("default", None, 0): 1})})) == set()
    assert missing(0, recv, Reports({1: Progress(sends={("default", 0, 0): 1})})) == set()
    assert missing(0, call("recv", peer=None), Reports({})) == {1, 2}


def test_a_rank_that_does_not_answer_computes_wherever_it_stood_before():
    blocked = report(10.0, waits=[call()])
    assert busy_rank(0, 0, {0: blocked, 1: report(10.1)}, asked_again=True).state == "waiting"
    assert busy_rank(0, 0, {0: blocked, 1: report(11.0)}, asked_again=True).state == "computing"
    assert busy_rank(0, 0, {}, asked_again=False).state == "computing"


def metered(*moments: tuple[float, Activity]) -> Meter:
    meter = Meter(moments=8, length=0.25)
    for now, seen in moments:
        meter.take(seen, now)
    return meter


def computing(**facts) -> Activity:
    return Activity(0, "computing", report=report(**facts))


def test_the_bandwidth_is_that_of_the_last_reports():
    meter = metered((0.0, computing(at=10.0, nbytes=1000)), (0.5, computing(at=10.5, nbytes=3000)))
    assert meter.bytes_per_second == 4000
    meter.take(computing(at=11.0, nbytes=0), 1.0)  # the process group was formed anew
    assert meter.bytes_per_second == 0
    meter.take(Activity(0, "idle"), 1.25)
    assert meter.bytes_per_second == 0


def test_a_moment_is_parted_into_waiting_and_computing():
    meter = metered((0.0, computing(at=10.0, waited=3.0)), (0.25, computing(at=10.5, waited=3.25)))
    assert list(meter.shares)[-2:] == [0.0, 0.5]


def test_a_wait_without_news_is_a_wait_all_the_same():
    waiting = Activity(0, "waiting", waits_in=call(), report=report())
    assert list(metered((0.0, waiting), (0.25, waiting)).shares)[-2:] == [1.0, 1.0]


def test_few_moments_that_nobody_saw_are_taken_to_be_like_the_next_one():
    assert list(metered((0.0, computing()), (0.75, computing(at=11.0))).shares) == [None] * 4 + [0.0] * 4


def test_moments_of_a_cell_that_nobody_saw_have_its_average_and_those_before_it_are_blank():
    away = computing(at=70.0, waited=30.0)
    assert list(metered((0.0, computing()), (60.0, away)).shares) == [0.5] * 8
    begun = Activity(0, "computing", report=report(70.0, waited=0.25), since=69.0)
    assert list(metered((0.0, Activity(0, "idle")), (60.0, begun)).shares) == [None] * 3 + [0.25] * 4 + [0.0]
    ended = metered((0.0, computing()), (60.0, Activity(0, "idle")))
    assert list(ended.shares) == [None] * 8


# --- a world and its threads -----------------------------------------------------------------------------


@contextmanager
def stuck(group):
    """A cell that never ends runs in a thread; yields the errors it ends with."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            group.execute(STUCK)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert wait_until(lambda: [seen.state for seen in group.snapshot()].count("waiting") == 3)
        yield errors
    finally:
        group.interrupt()
        thread.join()


def test_a_snapshot_tells_who_waits_where_for_whom(group):
    assert [seen.state for seen in group.snapshot()] == ["idle"] * 4
    with stuck(group):
        waiting, _, sleeping, _ = group.snapshot()
    assert waiting.waits_in.op == "barrier" and waiting.waits_for == (2,)
    assert str(waiting.report.where).endswith("line 4: dist.barrier()")
    assert (sleeping.state, sleeping.waits_in) == ("computing", None)
    assert waiting.memory_bytes > 2**20
    assert group.pull("kept") == [0, 1, 2, 3]


def test_a_dashboard_without_widgets_tells_the_same_of_one_moment(group):
    with stuck(group):
        shown = StaticDashboard(group)
    title, head, first, _, third, *_, live = repr(shown).splitlines()
    assert title.startswith("4 ranks, gloo: running a cell (")
    assert head.split() == ["rank", "doing", "where", "memory"]
    assert "waiting for rank 2 in barrier" in first and "line 4: dist.barrier()" in first
    assert third.split()[:2] == ["2", "computing"]
    assert live.startswith("For a live dashboard: %pip install")
    assert "<td" in shown._repr_html_() and "waiting for rank 2 in barrier" in shown._repr_html_()


def test_a_dashboard_without_ranks_says_so():
    assert repr(StaticDashboard(None)).startswith("No ranks are running. %ranks start starts four. (")
    assert "<table" not in StaticDashboard(None)._repr_html_()


def test_a_snapshot_sees_ranks_that_finish_take_no_part_or_die(group):
    seen: list[list[str]] = []
    source = "import time\nif rank == 0: time.sleep(1)"
    group.execute(source, ranks=[0, 1], on_output=lambda _: seen.append([a.state for a in group.snapshot()]))
    assert ["computing", "finished", "idle", "idle"] in seen
    with pytest.raises(Exception, match="exited with code 3"):
        group.execute("import os\nif rank == 1: os._exit(3)")
    assert group.snapshot()[1].state == "exited with code 3"
    group.stop()
    assert group.snapshot() == []


@pytest.mark.parametrize("end", ["restart", "stop"])
def test_another_thread_may_end_the_ranks_while_a_cell_runs(group, end):
    pids = [rank.pid for rank in group.status()]
    with stuck(group) as errors:
        getattr(group, end)()
    [error] = errors
    assert isinstance(error, KeyboardInterrupt)
    assert "restarted or stopped while it ran" in str(error)
    assert all(map(gone, pids))
    if end == "restart":
        group.execute("dist.barrier()")


def test_a_cell_that_comes_during_a_restart_waits_for_its_end(group):
    restart = threading.Thread(target=group.restart)
    restart.start()
    group.execute("dist.barrier()")
    restart.join()
    assert [seen.state for seen in group.snapshot()] == ["idle"] * 4


# --- in a kernel -----------------------------------------------------------------------------------------


class OneCellKernel(Kernel):
    """Knows of one cell at a time, so that nothing updates the outputs of cells that are gone."""

    def run(self, source: str, while_running=None) -> list:
        self._display_id_map.clear()
        return super().run(source, while_running)


@pytest.fixture(scope="module")
def kernel():
    kernel = OneCellKernel()
    yield kernel
    kernel.stop()


@pytest.fixture
def shown(kernel):
    """The kernel, with two ranks and a dashboard on display."""
    kernel.run("%ranks start -n 2")
    kernel.run("%ranks dashboard")
    return kernel


def as_a_view(ask: str) -> str:
    """A cell that hands the dashboard what a view in a browser would send it."""
    return (
        "import threading; from ipywidgets.widgets.widget import _instances\n"
        "def served(): return 'fourranks dashboard' in [thread.name for thread in threading.enumerate()]\n"
        "shown = next(w for w in _instances.values() if type(w).__name__ == 'Dashboard')\n"
        f"shown._handle_custom_msg({{'ask': {ask!r}}}, [])"
    )


def ends(condition: str) -> str:
    return f"import time\nwhile not ({condition}): time.sleep(0.05)\n'ended'"


def test_a_dashboard_is_a_table_wherever_no_view_can_stand(kernel):
    assert "rank" in kernel.text("%ranks dashboard")
    kernel.run("%ranks start -n 2")
    [output] = kernel.run("%ranks dashboard")
    assert output.data["text/plain"].split("\n")[1].split()[2:4] == ["cpu", "gloo"]
    assert "<table>" in output.data["text/html"]
    assert "application/vnd.jupyter.widget-view+json" not in output.data


def test_a_view_is_served_for_a_while_after_it_asked(shown):
    assert "True" in shown.text(f"{as_a_view('serve')}\nserved()")
    assert "ended" in shown.text(ends("not served()"))


def test_its_buttons_do_what_they_say(shown):
    shown.run("%%ranks\nkept = 1")
    shown.run(as_a_view("restart"))
    assert "NameError" in shown.text("%%ranks\nkept")
    shown.run(as_a_view("stop"))
    assert "The ranks have ended." in shown.text("shown.frame['title']")
    assert "No ranks are running." in shown.text("%ranks")
    shown.run(as_a_view("nonsense"))
    assert shown.text("shown.notice") == "''\n"


def test_unloading_the_extension_closes_it(shown):
    shown.run(as_a_view("serve"))
    shown.run("%unload_ext fourranks")
    assert shown.text("served(), shown.comm") == "(False, None)\n"
    shown.run("%load_ext fourranks")
    assert "rank" in shown.text("%ranks dashboard")
