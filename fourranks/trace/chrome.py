"""Writes a `Trace` in Chrome's trace event format, which https://ui.perfetto.dev and chrome://tracing open.

One process a rank, with a row for what its main thread did, one for the calls that it made, further rows for
calls in flight, and the threads that torch.profiler saw. Arrows lead from each send to its receive, and from
the rank that came last to a collective to those that waited for it.

Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import gzip
import itertools
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ..naming import format_ranks
from ..protocol.calls import Call, Profile, Record
from . import Trace
from .operations import MESSAGE, Operation
from .spans import RankSpans

Event = dict[str, Any]

MAIN_THREAD, CALLS = 1, 2  # rows (thread ids); calls in flight take as many from 3 on as they need
PID = 1000  # of rank 0: process 0 is the idle one to Perfetto
SORT_STEP = 64  # between two ranks: room for the GPUs that torch.profiler saw

# Of what torch.profiler writes: names that are given here, and calls that have rows here already (and overlap
# others of their thread, which the format forbids).
_NOT_SHOWN = ("process_", "gloo:")


class CallBar(NamedTuple):
    """The place and the length of a call as it is shown; no two bars of a row overlap."""

    rank: int
    row: int
    start: float
    end: float


def write(trace: Trace, path: Path) -> Path:
    """Write the file, compressed if its name ends in ".gz"; returns its path."""
    content: dict[str, Any] = {"traceEvents": list(events(trace)), "displayTimeUnit": "ms"}
    if trace.clock_uncertainty:
        content["otherData"] = {"clock uncertainty in seconds": trace.clock_uncertainty}
    text = json.dumps(content, separators=(",", ":")).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def events(trace: Trace) -> Iterator[Event]:
    """Yield all events; times are in µs since the first rank began."""
    origin = trace.begun
    bars: dict[Call, CallBar] = {}
    for spans in trace.spans():
        bars |= _bars(spans.rank, [cell[spans.rank] for cell in trace.cells if spans.rank in cell])
        yield from _names(spans.rank, {bar.row for bar in bars.values() if bar.rank == spans.rank})
        yield from _main_thread(spans, origin)
    for cell in trace.cells:
        for record in cell.values():
            yield from (_call(call, bars[call], record, origin) for call in record.calls)
    numbers = itertools.count(1)
    yield from _arrows(trace.operations, bars, origin, numbers)
    yield from _profiled(trace, numbers)


def _bars(rank: int, records: list[Record]) -> dict[Call, CallBar]:
    """Place one rank's calls: synchronous ones in one row, each other one in the first row that is free."""
    free: dict[int, float] = {}  # from when on, by row
    bars = {}
    for record in records:
        for call in sorted(record.calls, key=lambda call: call.start):
            known = [moment for moment in (call.end, call.completed) if moment is not None]
            end = max(known, default=max(call.start, record.end))
            row = CALLS + call.asynchronous
            while free.get(row, call.start) > call.start:
                row += 1
            free[row] = end
            bars[call] = CallBar(rank, row, call.start, end)
    return bars


def _names(rank: int, rows: set[int]) -> Iterator[Event]:
    yield from _process(PID + rank, f"rank {rank}", rank * SORT_STEP)
    names = dict.fromkeys(rows, "calls in flight") | {MAIN_THREAD: "main thread", CALLS: "calls"}
    for row, name in sorted(names.items()):
        yield _meta(PID + rank, row, "thread_name", name=name)
        yield _meta(PID + rank, row, "thread_sort_index", sort_index=row)


def _process(pid: int, name: str, place: int) -> Iterator[Event]:
    yield _meta(pid, 0, "process_name", name=name)
    yield _meta(pid, 0, "process_sort_index", sort_index=place)


def _meta(pid: int, tid: int, kind: str, **args: Any) -> Event:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": args}


def _main_thread(spans: RankSpans, origin: float) -> Iterator[Event]:
    for kind, start, end, call in spans.spans:
        args = {} if call is None else {"call": call.op}
        yield _complete(kind, "main thread", CallBar(spans.rank, MAIN_THREAD, start, end), origin, args)


def _call(call: Call, bar: CallBar, record: Record, origin: float) -> Event:
    args = {
        "bytes": call.nbytes,
        "shape": list(call.shape),
        "dtype": call.dtype,
        "group": f"{call.group} (ranks {format_ranks(call.ranks)})",
        "seq": call.seq,
        "peer": call.peer,
        "root": call.root,
        "reduce op": call.reduce_op,
        "blocked (ms)": 1e3 * call.waited,
        "on the GPU (ms)": None if call.device_seconds is None else 1e3 * call.device_seconds,
        "line": str(record.places.get((call.file, call.line), "")),
    }
    category = "point to point" if call.is_point_to_point else "collective"
    known = {name: value for name, value in args.items() if value is not None}
    return _complete(call.op, category, bar, origin, known)


def _complete(name: str, category: str, bar: CallBar, origin: float, args: dict[str, Any]) -> Event:
    place = {"ph": "X", "name": name, "cat": category, "pid": PID + bar.rank, "tid": bar.row}
    start, end = _nano(bar.start - origin), _nano(bar.end - origin)
    return place | {"ts": _micro(start), "dur": _micro(end - start), "args": args}


def _nano(seconds: float) -> int:
    return round(1e9 * seconds)


def _micro(nanoseconds: int) -> float:
    """Return µs as the format wants them; a reader that cuts off fractions of a nanosecond gets this one.

    Perfetto does, and drops a bar that reaches a nanosecond into the next one.
    """
    return nanoseconds / 1000 + 0.0003


def _arrows(
    operations: list[Operation], bars: dict[Call, CallBar], origin: float, numbers: Iterator[int]
) -> Iterator[Event]:
    """Yield arrows from the bar of the sender, or of the rank that came last, to the bars of the others."""
    for operation in operations:
        if operation.arrived is None:
            continue
        source = _source(operation)
        for call in operation.calls.values():
            if call is not source and bars[call].end >= operation.arrived:  # else it did not wait for it
                flow = {"name": operation.op, "cat": "arrow", "id": next(numbers)}
                yield flow | {"ph": "s"} | _point(bars[source], bars[source].start - origin)
                yield flow | {"ph": "f", "bp": "e"} | _point(bars[call], operation.arrived - origin)


def _source(operation: Operation) -> Call:
    calls = operation.calls.values()
    if operation.op == MESSAGE:
        return next(call for call in calls if call.op == "send")
    return max(calls, key=lambda call: call.start)


def _point(bar: CallBar, seconds: float) -> Event:
    return {"pid": PID + bar.rank, "tid": bar.row, "ts": _micro(_nano(seconds))}


def _profiled(trace: Trace, numbers: Iterator[int]) -> Iterator[Event]:
    """Yield what torch.profiler saw: the rank's threads among its rows, its GPUs as processes below it."""
    for cell in trace.cells:
        for rank, record in cell.items():
            if record.profile is not None:
                seen = _aligned(record.profile, trace.begun)
                yield from _placed(seen, record.profile.pid, rank, numbers)


def _aligned(profile: Profile, origin: float) -> list[Event]:
    """Return the profiler's events with times since `origin`."""
    events = json.loads(gzip.decompress(profile.compressed))["traceEvents"]
    last = max((event for event in events if event["name"] == Profile.MARK), key=lambda event: event["ts"])
    shift = _nano(profile.mark - origin) - round(1000 * (last["ts"] + last["dur"] / 2))
    return [_shifted(event, shift) for event in events if event["name"] != Profile.MARK]


def _shifted(event: Event, shift: int) -> Event:
    """Return the event later by `shift` nanoseconds; its end, too, is rounded to one."""
    start, end = round(1000 * event["ts"]), round(1000 * (event["ts"] + event.get("dur", 0)))
    length = {"dur": _micro(end - start)} if "dur" in event else {}
    return event | {"ts": _micro(start + shift)} | length


def _placed(events: list[Event], pid: int, rank: int, numbers: Iterator[int]) -> Iterator[Event]:
    """Yield the events of one rank's profile, with the process ids, names and arrow numbers of this file."""
    gpus: set[int] = set()
    arrows: dict[Any, int] = defaultdict(lambda: next(numbers))
    for event in events:
        if event["name"].startswith(_NOT_SHOWN) or not isinstance(event["pid"], int):
            continue
        if event["ts"] < 0 and event["ph"] != "M":
            continue  # before the first rank began
        own = {"pid": PID + rank}
        if event["pid"] != pid:
            gpus.add(event["pid"])
            own["pid"] = _gpu(rank, event["pid"])
        if "id" in event:
            own["id"] = arrows[event["id"]]
        if event["ph"] == "M":
            own["ts"] = 0
        yield event | own
    for gpu in gpus:
        yield from _process(_gpu(rank, gpu), f"rank {rank}, GPU {gpu}", rank * SORT_STEP + 1 + gpu)


def _gpu(rank: int, gpu: int) -> int:
    return 10 * PID + rank * SORT_STEP + gpu  # a process id that no rank has
