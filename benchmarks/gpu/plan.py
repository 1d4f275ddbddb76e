"""The steps of `make gpu`: the command of each, its time limit, and its needs."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

COURSE = Path(__file__).parents[2]
MINUTE = 60.0  # seconds
CLASS = ("--grade", "--students", "10", "--backend", "nccl")
PEERLESS = ("start", "cell", "deadlock", "large_values", "overhead", "bandwidth")  # a GPU may change these


@dataclass(frozen=True)
class Step:
    """One command, run from the top of the course.

    Attributes:
        name: of its log in the folder of evidence; `str` of what it is about.
        arguments: of Python.
        limit: seconds after which it is ended.
        needs_gpu: whether there is nothing to run without one. Other steps run on Gloo then.
        program: of the system, that it needs besides.
    """

    name: str
    title: str
    arguments: tuple[str, ...]
    limit: float
    needs_gpu: bool = False
    program: str = ""

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", *self.arguments]

    def lacks(self, gpus: int) -> str:
        """Say what keeps it from running on this machine; empty if nothing does."""
        if self.needs_gpu and not gpus:
            return "needs a GPU"
        if self.program and shutil.which(self.program) is None:
            return f"needs {self.program}"
        return ""


def plan(evidence: Path) -> list[Step]:
    """List all steps, the quick ones first.

    Args:
        evidence: the folder that the steps write to.
    """
    return [
        Step("versions", "machine, driver and versions", ("benchmarks.gpu.versions",), 3 * MINUTE),
        Step("doctor", "fourranks doctor", ("fourranks", "doctor"), 5 * MINUTE),
        _bandwidths("bandwidths", "NCCL's bandwidths, and what sharing a GPU costs"),
        _bandwidths("bandwidths_mps", "the same under MPS", "--mps", program="nvidia-cuda-mps-control"),
        _tests("tests_gpu", "tests that need a GPU", evidence, "-m", "gpu", "tests/fourranks"),
        *(_notebook("lecture", path, evidence) for path in _notebooks("lectures")),
        *(_notebook("checks", path, evidence) for path in _notebooks("solutions")),
        _tests("tests_grading", "tests of grading on NCCL", evidence, "tests/autograder/test_on_nccl.py"),
        Step("class", "a class of 10, graded on both", ("benchmarks.classes", *CLASS), 60 * MINUTE, True),
        Step("benchmarks", "benchmarks", ("benchmarks", *PEERLESS), 40 * MINUTE),
    ]


def _bandwidths(name: str, title: str, *options: str, program: str = "") -> Step:
    return Step(name, title, ("benchmarks.gpu.bandwidths", *options), 15 * MINUTE, True, program)


def _tests(name: str, title: str, evidence: Path, *chosen: str) -> Step:
    arguments = ("pytest", "-n", "0", *chosen, f"--junitxml={evidence / name}.xml")
    return Step(name, title, arguments, 30 * MINUTE, needs_gpu=True)


def _notebooks(folder: str) -> list[Path]:
    return sorted((COURSE / folder).glob("[0-9]*/*.ipynb"))


def _notebook(kind: str, source: Path, evidence: Path) -> Step:
    """Run a built notebook from top to bottom; a solution's cells are the checks at home."""
    topic = source.parent.name
    arguments = ("benchmarks.gpu.notebook", str(source), str(evidence / f"{kind}_{topic}.ipynb"))
    return Step(f"{kind}_{topic}", f"{kind} of {topic}", arguments, 20 * MINUTE)
