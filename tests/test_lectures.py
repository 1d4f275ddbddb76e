"""Lectures' statements about their own runs are true of the outputs that are stored with them.

A sentence about a measurement is printed by code that looked at the values (`finding`), or stands in CLAIMS
with its condition, which is tried on the stored outputs. Prose that compares what a figure shows must be in
one of the two.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import nbformat
import pytest

from fourranks.figures import finding, predicted
from fourranks.figures.findings import NOT_SHOWN, SHOWN

COURSE = Path(__file__).parents[1]
TOPICS = sorted(path.parent.name for path in COURSE.glob("source/*/lecture.py"))

Number = Callable[[str], float]


class Claim(NamedTuple):
    """A sentence of a lecture's prose, and what the numbers in its stored outputs must be if it is true."""

    topic: str
    sentence: str
    holds: Callable[[Number], bool]


CLAIMS = [
    Claim("01", "The curve is a staircase", lambda n: n(r"^measured: ([\d.]+)$") > 2),
    Claim(
        "01",
        "it would ideally take 1 + 2/16",
        lambda n: n(r"16 pieces ([\d.]+) hops") < n(r"whole ([\d.]+) hops"),
    ),
    Claim(
        "03",
        "Without a barrier rank 0 has mostly timed its own waiting",
        lambda n: n(r"rank 0, no barrier ([\d.]+) ms") > 20 + n(r"rank 2, no barrier ([\d.]+) ms"),
    ),
    Claim(
        "03",
        "you measure how long it takes to request the sum",
        lambda n: n(r"the call returns ([\d.]+) ms") < 0.5 * n(r"the sum is there ([\d.]+) ms"),
    ),
    Claim(
        "03",
        "A few calls out of 33 decide the mean; the median hardly changes",
        lambda n: n(r"nobody disturbed: mean ([\d.]+) ×") > 1.2 and n(r"; median ([\d.]+) ×") < 1.2,
    ),
    Claim(
        "03",
        "The bytes are the same, but α was paid 256 times",
        lambda n: n(r"many: .* ms; measured: ([\d.]+)") > 3,
    ),
    Claim(
        "04",
        "With four times the rate it lies on batch 32's curve",
        lambda n: (
            abs(n(r"batch 128, lr 0.08 from \S+ to ([\d.]+)") - n(r"batch 32, lr 0.02 from \S+ to ([\d.]+)"))
            < 0.02
        ),
    ),
    Claim(
        "04",
        "with error feedback it\nfollows the full gradient closely",
        lambda n: (
            abs(n(r"error feedback from \S+ to ([\d.]+)") - n(r"every step from \S+ to ([\d.]+)")) < 0.02
        ),
    ),
    Claim(
        "04",
        "momentum more than makes up for that",
        lambda n: n(r"DiLoCo, H = 10 from \S+ to ([\d.]+)") < n(r"local SGD, H = 10 from \S+ to ([\d.]+)"),
    ),
    Claim(
        "04",
        "The curve continues as if nothing had happened",
        lambda n: n(r"from the undisturbed losses: (\S+)") < 1e-5,
    ),
    Claim(
        "05",
        "Stage 3's peak is 16 MiB and *one* whole\nweight",
        lambda n: 20 <= n(r"stage 3 ([\d.]+) MiB$") < 30,
    ),
    *(
        Claim(topic, sentence, lambda n: n(r"differ (?:from .* )?by more than (\S+)\.$") < 1e-3)
        for topic, sentence in {
            "04": "The curves lie on top of one another",
            "06": "All curves lie on top of one another",
            "07": "All curves lie on top of one another",
        }.items()
    ),
    Claim(
        "07",
        "The bubble shrinks to a third",
        lambda n: (
            n(r"; split backward ([\d.]+), formula 0.111") < n(r": 1F1B ([\d.]+), formula 0.273; split")
        ),
    ),
]

# Sentences that look like measurements and hold on every machine, or that only tell where to look.
HARMLESS = [
    "measured by third parties",
    "A point is below it when a library is not at its best",
    "At the left a point may also be above the slope",
    "The slope was measured with copies",
    "If a bar is longer than its formula",
    "The roofs above compare this processor's float32",
    "compare the two bars of 10 GbE",  # worked out from published bandwidths
    "Data-parallel training needs little more than the line above",
    "In wall-clock time ASP may win or lose",
    "faster or slower by the factor printed above",
    "The crossovers of this machine follow from Python's α",
    "at any time three of four ranks wait",
    "The bubble should go from 3/11 to 3/19",
]

POINTS_AT_A_RUN = re.compile(
    r"\b(above|you saw|figures?|timelines?|bars?|points?|curves?|measured|this machine)\b", re.I
)
COMPARES = re.compile(
    r"\b(faster|slower|longer|shorter|more than|less than|times as|half|third|quarter|twice|hardly|lies?"
    r"|climbs?|beats?|vanish(es)?|wins?|follows?|lags?|rises?|falls?)\b",
    re.I,
)


@cache
def prose(topic: str) -> str:
    """A lecture's text, without its code and tables."""
    cells = re.split(r"^# %%", _source(topic), flags=re.MULTILINE)
    lines = [line for cell in cells if cell.startswith(" [markdown]") for line in cell.splitlines()[1:]]
    return "\n".join(line[2:] for line in lines if not line.startswith("# |"))


def _source(topic: str) -> str:
    return (COURSE / "source" / topic / "lecture.py").read_text()


@cache
def stored(topic: str) -> list[tuple[str, str]]:
    """Each code cell of a lecture as it is in the repository, with all that its outputs say in text."""
    notebook = nbformat.read(COURSE / "lectures" / topic / "lecture.ipynb", as_version=4)
    return [
        (cell.source, "\n".join(map(_text, cell.outputs)))
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def _text(output) -> str:
    return str(output.get("text") or output.get("data", {}).get("text/plain", ""))


def number(topic: str, pattern: str) -> float:
    """The number that a pattern finds first in a lecture's stored outputs."""
    for _, text in stored(topic):
        if found := re.search(pattern, text, re.MULTILINE):
            return float(found[1].replace(",", ""))
    raise AssertionError(f"{topic}: no stored output matches {pattern!r}; has the figure another title?")


@pytest.mark.parametrize("claim", CLAIMS, ids=[f"{claim.topic} {claim.sentence[:40]}" for claim in CLAIMS])
def test_what_the_prose_claims_of_a_run_is_true_of_the_stored_outputs(claim):
    (topic,) = (name for name in TOPICS if name.startswith(claim.topic))
    assert " ".join(claim.sentence.split()) in " ".join(prose(topic).split())
    assert claim.holds(lambda pattern: number(topic, pattern)), "run the lecture again on a quieter machine"


@pytest.mark.parametrize("topic", TOPICS)
def test_every_finding_of_a_lecture_is_stored_as_shown_or_as_not_shown(topic):
    silent = [
        source
        for source, text in stored(topic)
        if re.search(r"^\s*finding\(", source, re.MULTILINE)
        and not re.search(f"^({SHOWN}|{NOT_SHOWN})", text, re.MULTILINE)
    ]
    assert silent == []


@pytest.mark.parametrize("topic", TOPICS)
def test_prose_that_compares_what_a_figure_shows_has_a_condition(topic):
    known = [" ".join(known.split()) for known in [*HARMLESS, *(claim.sentence for claim in CLAIMS)]]
    paragraphs = re.split(r"\n\s*\n|\n(?=[-#\d])", prose(topic))
    sentences = [
        sentence for one in paragraphs for sentence in re.split(r"(?<=[.!?])\s+", " ".join(one.split()))
    ]
    bare = [
        sentence
        for sentence in sentences
        if POINTS_AT_A_RUN.search(sentence)
        and COMPARES.search(sentence)
        and not sentence.endswith("?")
        and not any(fragment in sentence for fragment in known)
    ]
    assert bare == [], "let code say it (finding), or give its condition in CLAIMS, or add it to HARMLESS"


@pytest.mark.parametrize("topic", TOPICS)
def test_no_cell_needs_the_courses_commands_in_the_path(topic):
    shell = [
        line
        for source, _ in stored(topic)
        for line in source.splitlines()
        if line.lstrip("# ").startswith("!")
    ]
    assert [line for line in shell if not line.startswith("!{sys.executable!r} -m ")] == []


@pytest.mark.parametrize("topic", TOPICS)
def test_no_stored_output_shows_a_prediction_that_nobody_made(topic):
    assert [
        text for _, text in stored(topic) if re.search(r"(predict|you said).{,10}(None|\{.*None)", text)
    ] == []


def test_a_prediction_is_shown_as_soon_as_there_is_one():
    assert predicted(None, {"a": None}) == ""
    assert predicted(3) == "you predicted: 3   "
    assert predicted(0, None) == "you predicted: 0   "
    assert predicted({"a": 1, "b": None}) == "you predicted: {'a': 1}   "


def test_a_finding_prints_the_sentence_that_its_values_bear_out(capsys):
    finding(2 > 1, "two is more", "two is not more")
    finding(1 > 2, "one is more", "one is not more")
    assert capsys.readouterr().out.splitlines() == [f"{SHOWN} two is more", f"{NOT_SHOWN} one is not more"]


def test_torch_records_the_last_2000_calls_without_being_asked_as_lecture_09_says():
    program = (
        "import json, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo', rank=0, world_size=1, store=dist.HashStore())\n"
        "for _ in range(2100): dist.all_reduce(torch.ones(1))\n"
        "print(len(json.loads(torch._C._distributed_c10d._dump_fr_trace_json())['entries']))"
    )
    unset = {name: value for name, value in os.environ.items() if not name.startswith("TORCH_")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=unset, capture_output=True, text=True, timeout=150
    )
    assert done.stdout.split() == ["2000"], done.stderr
    assert "on from the start, for NCCL and Gloo, and keeps 2,000 calls" in " ".join(
        prose("09_beyond_one_node").split()
    )
