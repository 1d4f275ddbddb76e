"""The file for Perfetto and chrome://tracing: strictly in Chrome's trace event format, nothing missing.

What Perfetto drops or refuses is asserted as its trace processor (v52) reads it: times cut off to whole
nanoseconds, bars of a row that lie in each other or apart, integer numbers for arrows, nothing before 0.
"""

import gzip
import json
from collections import Counter, defaultdict

import pytest

from fourranks.protocol.calls import Profile
from fourranks.trace.chrome import CALLS, MAIN_THREAD, PID
from fourranks.trace.chrome import events as chrome_events
from fourranks.trace.spans import COMPUTING, IDLE, MOVING, WAITING

from .traces import call, trace

PROGRAM = """
import time
low, high = dist.new_group([0, 1]), dist.new_group([2, 3])
x = torch.ones(100_000)
works = [dist.all_reduce(torch.ones(100_000), async_op=True) for _ in range(3)]
time.sleep(0.002 * rank)
for work in works: work.wait()
dist.all_reduce(x, group=low if rank < 2 else high)
dist.send(x, 1) if rank == 0 else dist.recv(x, 0) if rank == 1 else None
requests = [dist.isend(x, (rank + 1) % 4), dist.irecv(torch.empty(100_000), (rank - 1) % 4)]
for request in requests: request.wait()
dist.broadcast(x, 2)
never_waited_for = dist.all_reduce(x, async_op=True)
dist.barrier()
"""
ALIGNED = 50_000  # nanoseconds between the profiler's clock and ours
ALLOWED = {"M", "X", "s", "f"}  # the phases that we write; torch.profiler adds more


@pytest.fixture(scope="module")
def recorded(shared_group):
    with shared_group.trace() as recorded:
        shared_group.execute(PROGRAM)
        shared_group.execute("dist.barrier()")
    return recorded


@pytest.fixture(scope="module")
def events(recorded, tmp_path_factory):
    path = recorded.to_chrome(tmp_path_factory.mktemp("chrome") / "trace.json")
    content = json.loads(path.read_text(), parse_constant=pytest.fail)  # NaN is no JSON
    assert content["displayTimeUnit"] == "ms"
    return content["traceEvents"]


def of_phase(events, phase):
    return [event for event in events if event["ph"] == phase]


def nano(microseconds):
    """As Perfetto reads it."""
    return int(1000 * microseconds)


def extent(bar):
    """Start and end of a bar, in nanoseconds."""
    return nano(bar["ts"]), nano(bar["ts"]) + nano(bar["dur"])


def rows_of(bars):
    """Bars by rank and row, in the order of time."""
    rows = defaultdict(list)
    for bar in sorted(bars, key=lambda bar: (bar["ts"], -bar["dur"])):
        rows[bar["pid"] - PID, bar["tid"]].append(bar)
    return rows


def assert_nested(bars):
    """No bar begins in one and ends outside it."""
    around = []
    for start, end in map(extent, bars):
        while around and around[-1] <= start:
            around.pop()
        assert not around or end <= around[-1]
        around.append(end)


def assert_well_formed(events):
    for event in events:
        assert event["ph"] in ALLOWED
        assert (
            isinstance(event["name"], str) and isinstance(event["pid"], int) and isinstance(event["tid"], int)
        )
        if event["ph"] != "M":
            assert event["ts"] >= 0 and isinstance(event["cat"], str)
        if event["ph"] == "X":
            assert event["dur"] >= 0 and isinstance(event["args"], dict)
        if event["ph"] in "sf":
            assert isinstance(event["id"], int)  # Perfetto knows no other


def test_every_event_has_the_fields_of_its_phase(events):
    assert_well_formed(events)


def test_bars_of_a_row_follow_each_other(events):
    for bars in rows_of(of_phase(events, "X")).values():
        for before, after in zip(bars, bars[1:], strict=False):
            assert extent(before)[1] <= extent(after)[0]


def test_every_call_is_one_bar_with_its_moment_size_group_and_line(recorded, events):
    bars = [bar for bar in of_phase(events, "X") if bar["tid"] != MAIN_THREAD]
    for rank, calls in enumerate(recorded.calls):
        own = sorted(
            (bar["name"], nano(bar["ts"]), bar["args"]["bytes"]) for bar in bars if bar["pid"] == PID + rank
        )
        made = sorted((c.op, round(1e9 * (c.start - recorded.begun)), c.nbytes) for c in calls)
        assert own == made
    pair = next(bar for bar in bars if bar["args"]["group"].endswith("(ranks 2-3)"))
    assert pair["args"]["line"].endswith("dist.all_reduce(x, group=low if rank < 2 else high)")
    assert pair["args"]["shape"] == [100_000]


def test_synchronous_calls_share_a_row_and_the_others_have_theirs(recorded, events):
    bars = [bar for bar in of_phase(events, "X") if bar["tid"] != MAIN_THREAD]
    asynchronous = Counter(call.asynchronous for calls in recorded.calls for call in calls)
    assert Counter(bar["tid"] != CALLS for bar in bars) == asynchronous
    flights = [
        bar for bar in bars if bar["name"] == "all_reduce" and bar["tid"] != CALLS and bar["pid"] == PID
    ]
    assert len({bar["tid"] for bar in flights[:3]}) > 1  # in flight at the same time


def test_the_main_threads_row_tells_how_every_moment_was_spent(recorded, events):
    rows = rows_of(bar for bar in of_phase(events, "X") if bar["tid"] == MAIN_THREAD)
    assert sorted(rows) == [(rank, MAIN_THREAD) for rank in range(4)]
    for spans in recorded.spans():
        bars = rows[spans.rank, MAIN_THREAD]
        assert {bar["name"] for bar in bars} <= {COMPUTING, WAITING, MOVING, IDLE}
        assert sum(bar["dur"] for bar in bars) == pytest.approx(1e6 * spans.seconds(), abs=1)


def test_ranks_and_rows_have_names_and_an_order(events):
    names, order = {}, {}
    for event in of_phase(events, "M"):
        kind, _, what = event["name"].partition("_")
        rank = event["pid"] - PID
        place = rank if kind == "process" else (rank, event["tid"])
        (order if what == "sort_index" else names)[place] = next(iter(event["args"].values()))
    assert [names[rank] for rank in range(4)] == [f"rank {rank}" for rank in range(4)]
    assert sorted(range(4), key=order.get) == [0, 1, 2, 3]
    assert rows_of(of_phase(events, "X")).keys() <= names.keys()
    assert names[0, CALLS] == "calls"


def test_arrows_lead_from_every_send_to_its_receive_and_from_the_last_rank_to_those_that_waited(
    recorded, events
):
    starts = {event["id"]: event for event in of_phase(events, "s")}
    ends = {event["id"]: event for event in of_phase(events, "f")}
    assert starts.keys() == ends.keys()
    assert len(starts) == len(of_phase(events, "s")) == len(of_phase(events, "f"))
    rows = rows_of(of_phase(events, "X"))
    led = []
    for number, start in starts.items():
        end = ends[number]
        assert end["bp"] == "e" and end["ts"] >= start["ts"]
        assert start["name"] == end["name"] and start["cat"] == end["cat"]
        led.append((bar_around(start, rows)["name"], bar_around(end, rows)["name"], end["pid"] - PID))
    messages = Counter(to for op, received, to in led if (op, received) == ("send", "recv"))
    assert messages == {0: 1, 1: 2, 2: 1, 3: 1}
    assert Counter(op for op, _, _ in led)["barrier"] == 3 + 3  # from the last of four ranks, in each cell


def bar_around(point, rows):
    """The bar that Perfetto fastens an arrow to."""
    around = [
        bar
        for bar in rows[point["pid"] - PID, point["tid"]]
        if extent(bar)[0] <= nano(point["ts"]) <= extent(bar)[1]
    ]
    assert around, f"the arrow's end {point} is fastened to nothing"
    return next(bar for bar in around if bar["name"] in point["name"].split("/"))


def test_no_arrow_leads_to_a_rank_that_had_left_before_the_last_one_came():
    ranks = {"ranks": (0, 1, 2), "root": 0}
    left, stayed, came = ([call("broadcast", *moments, **ranks)] for moments in ((0, 2), (0, 9), (5, 9)))
    (end,) = of_phase(list(chrome_events(trace(left, stayed, came))), "f")
    assert end["pid"] == PID + 1


def test_a_call_that_never_ended_reaches_to_the_end_of_its_cell():
    calls = [call("all_reduce", 1, None, asynchronous=True)]
    (bar,) = (
        bar for bar in of_phase(list(chrome_events(trace(calls, end_ms=5))), "X") if bar["tid"] != MAIN_THREAD
    )
    assert extent(bar) == (0, 4_000_000)


def test_a_compressed_file_holds_the_same(recorded, events, tmp_path):
    path = recorded.to_chrome(tmp_path / "trace.json.gz")
    assert json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] == events


def test_the_profiler_is_merged_with_its_clock_aligned_and_prints_nothing(shared_group):
    source = "a = torch.ones(300, 300)\ndist.barrier()\na @ a\ndist.barrier()\nNone"
    around = (
        "ahead, behind = (rank + 1) % 4, (rank - 1) % 4\nwork = dist.isend(a, ahead)\ndist.recv(a, behind)\n"
    )
    with shared_group.trace(profile=True) as recorded:
        shown = shared_group.execute(source)
        shared_group.execute(around + "work.wait()\na @ a\nNone")
    assert str(shown) == ""
    events = list(chrome_events(recorded))
    for rank in range(4):
        first, second = recorded.cells[0][rank].calls
        products = [e for e in events if e["name"] == "aten::mm" and e["pid"] == PID + rank]
        inside, later = sorted(products, key=lambda product: product["ts"])
        between = [1e9 * (moment - recorded.begun) for moment in (first.end, second.start)]
        start, end = extent(inside)
        assert between[0] - ALIGNED <= start < end <= between[1] + ALIGNED < extent(later)[0]
    assert {e["pid"] for e in events} == {PID, PID + 1, PID + 2, PID + 3}
    named = {(e["pid"] - PID, e["tid"]) for e in events if e["name"] == "thread_name"}
    rows = rows_of(of_phase(events, "X"))
    assert rows.keys() <= named
    for bars in rows.values():
        assert_nested(bars)
    assert all(event["ts"] >= 0 for event in events if "ts" in event)


def test_what_the_profiler_saw_of_a_gpu_stands_below_its_rank():
    """As torch.profiler writes it: a GPU's process id is its number, an operation points to its kernel."""
    recorded = trace([call("all_reduce", 0, 5)], [call("all_reduce", 0, 5)])
    for rank, record in recorded.cells[0].items():
        record.profile = profile(4000 + rank, gpu=rank)
    events = list(chrome_events(recorded))
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    order = {e["pid"]: e["args"]["sort_index"] for e in events if e["name"] == "process_sort_index"}
    assert [names[pid] for pid in sorted(order, key=order.get)] == [
        "rank 0",
        "rank 0, GPU 0",
        "rank 1",
        "rank 1, GPU 1",
    ]
    kernels = {names[e["pid"]]: nano(e["ts"]) for e in events if e["name"] == "kernel"}
    assert kernels == {"rank 0, GPU 0": 2_000_000, "rank 1, GPU 1": 2_000_000}
    arrows = [e["id"] for e in events if e["ph"] in "sf"]
    assert sorted(Counter(arrows).values()) == [2, 2, 2]  # of the all-reduce, and of each rank's kernel


def profile(pid, gpu):
    """The mark was made 1 ms after the start of the cell, which is at 500 µs of the profiler's clock."""
    bar = {"ph": "X", "cat": "cpu_op", "dur": 2, "pid": pid, "tid": pid}
    arrow = {"cat": "ac2g", "name": "ac2g", "id": 7}
    events = [
        {"ph": "M", "name": "process_name", "pid": gpu, "tid": 0, "ts": 0, "args": {"name": "python"}},
        {**bar, "name": Profile.MARK, "ts": 499},
        {**bar, "name": "aten::mm", "ts": 600},
        {**bar, "name": "kernel", "ts": 1500, "pid": gpu, "tid": 7},
        {**arrow, "ph": "s", "pid": pid, "tid": pid, "ts": 600},
        {**arrow, "ph": "f", "bp": "e", "pid": gpu, "tid": 7, "ts": 1500},
        {
            "ph": "X",
            "cat": "Trace",
            "name": "PyTorch Profiler",
            "pid": "Spans",
            "tid": "",
            "ts": 0,
            "dur": 9,
        },
    ]
    return Profile(gzip.compress(json.dumps({"traceEvents": events}).encode()), pid, mark=0.001)


def test_a_trace_without_a_profile_takes_none(recorded):
    assert all(record.profile is None for cell in recorded.cells for record in cell.values())
