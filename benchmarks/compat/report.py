"""The results of all trials, and their table in `docs/compat.md`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .trial import COURSE, Result

RESULTS = Path(__file__).with_name("results.json")
PAGE = COURSE / "docs" / "compat.md"
BEGIN, END = "<!-- written by make compat -->\n", "<!-- the end of it -->\n"
HEAD = ("Python", "torch", "fourranks' tests", "solutions", "wrong answers", "traffic", "date")
MOST_BESIDE = 0.05  # of the traffic's formulas, as in `sandbox.loopback`


def add(result: Result) -> None:
    """Keep a result in place of an earlier one of the same versions, and write the table again.

    Steps that were left out this time keep what they came to before.
    """
    known = {(old["python"], old["torch"]): old for old in load()}
    key = result["python"], result["torch"]
    known[key] = known.get(key, {}) | result
    results = [known[key] for key in sorted(known, key=_by_number)]
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(before + BEGIN + table(results) + END + rest.partition(END)[2], encoding="utf-8")


def load() -> list[Result]:
    """Return all results that are kept."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []


def table(results: Sequence[Result]) -> str:
    """Return the table of these results, a line for each pair."""
    rows = [HEAD, ("---",) * len(HEAD), *(_row(result, results[0]) for result in results)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def problems(result: Result) -> Iterator[str]:
    """The failures, a line each."""
    who = f"Python {result['python']}, torch {result['torch']}"
    yield from (f"{who}: {name} failed" for name in result.get("tests", {}).get("failed", ()))
    for topic, points in result.get("graded", {}).items():
        lost = [name for name, (earned, most) in points["right"].items() if earned < most]
        yield from (f"{who}: the solution of {topic} lost points for {name}" for name in lost)
    for operation, ratios in result.get("traffic", {}).items():
        if not all(map(_holds, ratios)):
            yield f"{who}: the traffic of {operation} is {ratios} of the formula's"


def _row(result: Result, first: Result) -> tuple[str, ...]:
    wrong = _wrong_answers(result, first)
    told = _tests(result), _points(result, "right"), wrong, _traffic(result)
    return result["python"], result["torch"], *told, result["date"]


def _tests(result: Result) -> str:
    if not (tests := result.get("tests")):
        return "not run"
    return f"{tests['passed']} passed, {len(tests['failed'])} failed, {tests['skipped']} skipped"


def _wrong_answers(result: Result, first: Result) -> str:
    """Their points, and whether these are the same as in the first line, question by question."""
    same = _wrong(result) == _wrong(first)
    return _points(result, "wrong") + ("" if same or "graded" not in result else ", **not as above**")


def _wrong(result: Result) -> dict[str, Any]:
    return {topic: points["wrong"] for topic, points in result.get("graded", {}).items()}


def _points(result: Result, which: str) -> str:
    if not (graded := result.get("graded")):
        return "not run"
    questions = [question for points in graded.values() for question in points[which].values()]
    earned, most = (sum(question[place] for question in questions) for place in (0, 1))
    return f"{earned:g} of {most:g} points"


def _traffic(result: Result) -> str:
    ratios = [ratio for of_one in result.get("traffic", {}).values() for ratio in of_one]
    if not ratios:
        return "not run"
    if not all(map(_holds, ratios)):
        return "**another one**"
    return f"{min(ratios):.2%} to {max(ratios):.2%} of the formulas"


def _holds(ratio: float | str) -> bool:
    return isinstance(ratio, float) and abs(ratio - 1) <= MOST_BESIDE


def _by_number(versions: tuple[str, str]) -> list[list[int]]:
    return [[int(part) for part in version.partition("+")[0].split(".")] for version in versions]
