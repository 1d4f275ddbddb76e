"""NVIDIA's nccl-tests: finds its programs, runs them, reads the tables that they print.

https://github.com/NVIDIA/nccl-tests measures what `bench` does, without torch. Its tables have changed over
the years; `parse` reads those since 2019, also behind mpirun's tags and between NCCL's own messages.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

# The collectives of `bench`, by the programs that measure them.
PROGRAMS = {
    "all_reduce": "all_reduce_perf",
    "reduce_scatter": "reduce_scatter_perf",
    "all_gather": "all_gather_perf",
    "all_to_all": "alltoall_perf",
    "broadcast": "broadcast_perf",
    "reduce": "reduce_perf",
    "scatter": "scatter_perf",
    "gather": "gather_perf",
    "sendrecv": "sendrecv_perf",
    "hypercube": "hypercube_perf",
}
FOLDER = "NCCL_TESTS"  # environment variable with the folder of the programs
PATIENCE = 300.0  # seconds for one program

_TAG = re.compile(r"^\[[^]]*\]<std(out|err)>:")  # of mpirun --tag-output
_TIMES = ("time", "cputime")
_HALF = ("time", "algbw", "busbw", "wrong")  # the columns of a half; before 2022 "error" was the last
_GB, _US = 1e9, 1e-6


class NcclTestsError(ValueError):
    """Output without a table that can be read, or a program that failed."""


@dataclass(frozen=True)
class Timing:
    """One half of a line.

    Attributes:
        seconds: the mean over iterations of a call, of the ranks' average.
        algbw: bytes per second, like busbw.
        wrong: how many elements came out wrong (before 2022: the largest error); None if not checked.
    """

    seconds: float
    algbw: float
    busbw: float
    wrong: float | None


@dataclass(frozen=True)
class Row:
    """One line of the table. `num_bytes` is S; `redop` and `root` are empty where a program has none."""

    num_bytes: int
    count: int
    dtype: str
    redop: str
    root: str
    out_of_place: Timing
    in_place: Timing | None


@dataclass(frozen=True)
class Printout:
    """The output of a program.

    Attributes:
        collective: a key of `PROGRAMS`; empty if the output does not say (before 2025 it did not).
        world_size: number of ranks, from the list of devices; None if that is missing.
        average_busbw: bytes per second over all lines, both halves; None if the end is missing.
        out_of_bounds: wrong results that the program counted at its end; None likewise.
    """

    collective: str
    world_size: int | None
    rows: tuple[Row, ...]
    average_busbw: float | None
    out_of_bounds: int | None


def parse(text: str) -> Printout:
    """Read the output of one program.

    Raises:
        NcclTestsError: the program failed, printed no table, or one that is cut off within a line.
    """
    lines = [_TAG.sub("", line).strip() for line in text.splitlines()]
    failures = [line for line in lines if re.search(r"failure .+\.c[uc]:\d+", line)]
    if failures:
        raise NcclTestsError(f"nccl-tests failed: {failures[0]}")
    columns = next((found for line in lines if (found := _columns(line))), None)
    if columns is None:
        raise NcclTestsError(f"no table of nccl-tests in this output, which begins: {text.strip()[:200]!r}")
    rows = tuple(_row(line, columns) for line in lines if _is_row(line))
    if not rows:
        raise NcclTestsError("the table of nccl-tests has no lines; did the program end early?")
    wrong = _footer(lines, "Out of bounds values", 1)
    return Printout(
        collective=_collective(lines),
        world_size=sum(bool(re.match(r"#\s+Rank\s+\d+ .*device", line)) for line in lines) or None,
        rows=rows,
        average_busbw=_footer(lines, "Avg bus bandwidth", _GB),
        out_of_bounds=None if wrong is None else int(wrong),
    )


def find(collective: str) -> str | None:
    """Return the path of the program that measures this collective: in the folder $NCCL_TESTS, or on PATH."""
    folder = os.environ.get(FOLDER)
    return shutil.which(PROGRAMS[collective], path=folder) if folder else shutil.which(PROGRAMS[collective])


def run(collective: str, sizes: Sequence[int], gpus: int) -> Printout:
    """Measure a collective on the GPUs of this machine at sizes that grow by one factor.

    Args:
        sizes: S in bytes, ascending.

    Raises:
        NcclTestsError: the program is not there, or failed; its last lines are in the message.
    """
    program = find(collective)
    if program is None:
        raise NcclTestsError(
            f"{PROGRAMS[collective]} was not found. Build nccl-tests, and set {FOLDER} to its folder `build`."
        )
    factor = sizes[1] // sizes[0] if len(sizes) > 1 else 2
    command = [program, "-b", str(sizes[0]), "-e", str(sizes[-1]), "-f", str(factor), "-g", str(gpus)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    if ended.returncode:
        last = "\n".join((ended.stdout + ended.stderr).strip().splitlines()[-5:])
        raise NcclTestsError(f"{' '.join(command)} ended with code {ended.returncode}:\n{last}")
    return parse(ended.stdout)


def _columns(line: str) -> list[str] | None:
    """Return the names in the table's header, if this is it."""
    names = line.removeprefix("#").split()
    return names if names[:2] == ["size", "count"] and "busbw" in names else None


def _is_row(line: str) -> bool:
    """Return whether this is a line of numbers: two at its beginning, then the name of a type."""
    return re.match(r"\d+\s+\d+\s+[a-z]\w*\s", line) is not None


def _row(line: str, columns: list[str]) -> Row:
    """Read a line by the table's header: `redop` may be blank; a timestamp is a date and a time."""
    values = line.split()
    if "timestamp" in columns:
        columns = [*columns, "time of day"]
    if len(values) == len(columns) - 1:
        columns = [name for name in columns if name != "redop"]
    if len(values) != len(columns):
        raise NcclTestsError(f"this line of nccl-tests is cut off: {line!r}")
    starts = [place for place, name in enumerate(columns) if name in _TIMES]
    described = dict(zip(columns[: starts[0]], values, strict=False))
    timings = [_timing(dict(zip(_HALF, values[start:], strict=False)), line) for start in starts]
    return Row(
        num_bytes=int(described["size"]),
        count=int(described["count"]),
        dtype=described["type"],
        redop=described.get("redop", ""),
        root=described.get("root", ""),
        out_of_place=timings[0],
        in_place=timings[1] if len(timings) > 1 else None,
    )


def _timing(half: dict[str, str], line: str) -> Timing:
    try:
        wrong = None if half["wrong"] == "N/A" else float(half["wrong"])
        return Timing(
            float(half["time"]) * _US, float(half["algbw"]) * _GB, float(half["busbw"]) * _GB, wrong
        )
    except ValueError:
        raise NcclTestsError(f"this line of nccl-tests cannot be read: {line!r}") from None


def _collective(lines: Sequence[str]) -> str:
    for line in lines:
        if found := re.match(r"# Collective test (?:starting|concluded): (\w+?_perf)", line):
            return next((name for name, program in PROGRAMS.items() if program == found[1]), "")
    return ""


def _footer(lines: Sequence[str], title: str, unit: float) -> float | None:
    """Return the number behind a title at the end of the output, in base units."""
    for line in lines:
        if found := re.match(rf"# {title}\s*:\s*(\S+)", line):
            return float(found[1]) * unit
    return None
