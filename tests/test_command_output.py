"""The output of our commands: behind `| head`, and on a full disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import pytest

from tests.processes import started

ROOT = Path(__file__).parents[1]
FOURRANKS = [sys.executable, "-m", "fourranks"]
COMMANDS = {
    "run": [*FOURRANKS, "run", "-n", "2", "endless.py"],
    "plan": [*FOURRANKS, "plan", "--model", "gpt2-xl"],
    "a table": [*FOURRANKS, "plan", "--predict", str(ROOT / "docs" / "plan_rows.csv")],
    "doctor": [*FOURRANKS, "doctor", "--quick"],
    "autograder": [sys.executable, "-m", "autograder", "--help"],
}


def _nowhere(output: str) -> BinaryIO:
    if output == "/dev/full":
        return open(output, "wb")
    reader, writer = os.pipe()
    os.close(reader)
    return open(writer, "wb")


@pytest.mark.parametrize(
    ("output", "status", "told"),
    [("/dev/full", 1, "The output cannot be written: No space left on device.\n"), ("gone", 141, "")],
)
@pytest.mark.parametrize("command", COMMANDS)
def test_output_that_cannot_be_written_ends_a_command_without_a_traceback(
    command, output, status, told, tmp_path
):
    (tmp_path / "endless.py").write_text("while True: print('a line', flush=True)")
    with _nowhere(output) as out:
        options = {"stdout": out, "stderr": subprocess.PIPE, "text": True, "cwd": tmp_path}
        with started(COMMANDS[command], env=os.environ | {"PYTHONPATH": str(ROOT)}, **options) as process:
            errors = process.communicate(timeout=60)[1]
    assert (process.returncode, errors) == (status, told)
