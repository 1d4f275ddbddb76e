"""One pair of Python and torch: an environment with both and the course, and what runs in it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

COURSE = Path(__file__).parents[2]
VERSIONS = "import platform, torch; print(platform.python_version(), torch.__version__)"
Result = dict[str, Any]  # as it is kept: by step, with versions and a date


@dataclass(frozen=True)
class Pair:
    """A Python, by its version or its path, and a version of torch, as pip is asked for it."""

    python: str
    torch: str

    def __str__(self) -> str:
        return f"Python {self.python}, torch {self.torch}"

    @property
    def program(self) -> str:
        """The Python to run.

        Raises:
            RuntimeError: it is not to be had on this machine.
        """
        program = self.python if os.sep in self.python else f"python{self.python}"
        try:
            subprocess.run([program, "--version"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            raise RuntimeError(f"{program} is not on this machine") from None
        return program


class Trial:
    """The trial of one pair.

    Args:
        folder: in which the environment is made; it stays until `remove`.
    """

    def __init__(self, pair: Pair, folder: Path) -> None:
        self.pair = pair
        self._environment = folder / f"{Path(pair.python).name}-{pair.torch}"
        self._python = self._environment / "bin" / "python"

    def run(self, steps: Sequence[str]) -> Result:
        """Install both and the course, and take the steps.

        Raises:
            RuntimeError: they cannot be installed, or a step failed.
        """
        self._install()
        python, torch = self._output(["-c", VERSIONS]).split()
        today = datetime.now(timezone.utc).date().isoformat()
        result: Result = {"python": python, "torch": torch, "date": today}
        for step in steps:
            print(f"Python {python}, torch {torch}: {step}", file=sys.stderr, flush=True)
            result[step] = STEPS[step](self)
        return result

    def remove(self) -> None:
        """Delete the environment."""
        shutil.rmtree(self._environment, ignore_errors=True)

    def tests(self) -> Result:
        """Run fourranks' tests: how many passed, failed and were skipped, and which failed."""
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder, "report.xml")
            self._start(["-m", "pytest", "-q", "-n", "1", "tests/fourranks", f"--junitxml={report}"])
            cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
        failed = [case.get("name") for case in cases if {"failure", "error"} & {part.tag for part in case}]
        skipped = sum(case.find("skipped") is not None for case in cases)
        return {"passed": len(cases) - len(failed) - skipped, "skipped": skipped, "failed": failed}

    def graded(self) -> Result:
        """Grade a right and a wrong submission to each exercise: points of each question, by exercise."""
        lines = self._output(["-m", "benchmarks.compat.graded"]).splitlines()
        return {topic: {"right": right, "wrong": wrong} for topic, right, wrong in map(json.loads, lines)}

    def traffic(self) -> Result:
        """Measure what Gloo sends, divided by the referee's formulas, by operation."""
        return json.loads(self._output(["-m", "benchmarks.compat.traffic"]))

    def _install(self) -> None:
        if not self._python.exists():
            subprocess.run([self.pair.program, "-m", "venv", self._environment], check=True)
        extras = ",".join(metadata.metadata("fourranks").get_all("Provides-Extra") or [])
        pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        if self._start([*pip, f"torch=={self.pair.torch}", "--editable", f".[{extras}]"]).returncode:
            raise RuntimeError("they could not be installed; pip's reason is above")

    def _output(self, arguments: Sequence[str]) -> str:
        done = self._start(arguments, stdout=subprocess.PIPE)
        if done.returncode:
            raise RuntimeError(f"{' '.join(arguments)} failed; the reason is above")
        return done.stdout

    def _start(self, arguments: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        scripts = os.pathsep.join([str(self._python.parent), os.environ["PATH"]])
        environment = os.environ | {"PATH": scripts}
        return subprocess.run([self._python, *arguments], cwd=COURSE, env=environment, text=True, **options)


STEPS: dict[str, Callable[[Trial], Result]] = {
    "tests": Trial.tests,
    "graded": Trial.graded,
    "traffic": Trial.traffic,
}
