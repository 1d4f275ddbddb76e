"""Makes the table: medians, spans and ratios, under a head that says where and how they were measured."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from datetime import datetime, timezone

import psutil

from .model import Benchmark, Result

PACKAGES = ("torch", "ipython", "ipyparallel", "nbdistributed", "ray")
COLUMNS = (
    "| measured | with | median | min to max | n | Four Ranks is | figure to hold |\n" + "|---" * 7 + "|"
)
NOTES = """\
Medians of n measurements taken in turns, each contender in a process of its own. Cells run in an IPython
shell without a browser, the same for all; every all-reduce's result is checked. Ratios are what counts: the
machine may have been busy with other things."""


def head(
    command: str,
    title: str = "Four Ranks beside its peers",
    notes: str = NOTES,
    packages: tuple[str, ...] = PACKAGES,
) -> str:
    """Machine, versions, date and command."""
    versions = ", ".join(f"{name} {_version(name)}" for name in ("Python", *packages))
    machine = f"{platform.system()} {platform.machine()}, {_processor()}, {os.cpu_count()} cores"
    memory = in_unit(psutil.virtual_memory().total, "B")
    return f"""# {title}

- command: `{command}`
- date: {datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC
- machine: {machine}, {memory} of memory
- versions: {versions}

{notes}
"""


def rows(benchmark: Benchmark, results: list[Result]) -> str:
    """The lines of one benchmark; the first is Four Ranks."""
    ours = results[0]
    return "\n".join(
        _row(benchmark.title if result is ours else "", result, ours, benchmark.unit) for result in results
    )


def _row(title: str, result: Result, ours: Result, unit: str) -> str:
    if result.values:
        low, high = in_unit(min(result.values), unit), in_unit(max(result.values), unit)
        figures = [in_unit(result.median, unit), f"{low} to {high}", str(len(result.values))]
        figures.append(_ratio(result, ours))
    else:
        figures = [result.reason, "", "", ""]
    return f"| {' | '.join([title, result.contender.name, *figures, _verdict(result, ours)])} |"


def _ratio(result: Result, ours: Result) -> str:
    if result is ours or not ours.values:
        return ""
    ratio = result.median / ours.median
    return f"{ratio:.3g}× faster" if ratio >= 1.5 else f"{1 / ratio:.2f}× its time"


def _verdict(result: Result, ours: Result) -> str:
    hold = result.contender.hold
    if hold is None:
        return ""
    if not (result.values and ours.values):
        return f"{hold.text}: not measured"
    return f"{hold.text}: {'holds' if hold.test(ours.median, result.median) else '**does not hold**'}"


def in_unit(value: float, unit: str) -> str:
    """A time, a size or a count with three digits, in the unit that fits it."""
    scales = {
        "s": ((1, "s"), (1e-3, "ms"), (1e-6, "µs")),
        "B": ((2**30, "GiB"), (2**20, "MiB"), (1, "B")),
        "": ((1, ""),),
    }[unit]
    factor, name = next((scale for scale in scales if abs(value) >= scale[0]), scales[-1])
    return f"{value / factor:.3g} {name}".rstrip()


def _version(name: str) -> str:
    if name == "Python":
        return platform.python_version()
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    """Linux names the processor in a file, other systems by `platform`."""
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown processor"
