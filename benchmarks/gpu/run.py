"""Takes one step: its command in a session of its own, ended with all that it has started when time is up."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from datetime import datetime, timezone
from pathlib import Path

from fourranks.placement import BACKEND_VARIABLE

from .evidence import Outcome
from .plan import COURSE, Step


def take(step: Step, log: Path, backend: str, commit: str) -> Outcome:
    """Run a step and say what came of it.

    Args:
        log: the file for what it prints.
        backend: what `auto` is to stand for.
        commit: of the course.
    """
    began = time.monotonic()
    date = f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M}"
    with log.open("wb") as output:
        process = subprocess.Popen(
            step.command,
            cwd=COURSE,
            env=os.environ | {BACKEND_VARIABLE: backend, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        result = _result(process, step.limit)
    return Outcome(result, round(time.monotonic() - began, 1), backend, date, commit)


def _result(process: subprocess.Popen[bytes], limit: float) -> str:
    try:
        code = process.wait(limit)
    except subprocess.TimeoutExpired:
        return f"did not end within {limit / 60:.0f} minutes"
    finally:
        _end(process)
    return "passed" if code == 0 else f"failed with code {code}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the command; ranks end with the notebook or test that has started them."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def commit() -> str:
    """Return the commit of the course, marked where files have been changed since."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    described = subprocess.run(command, cwd=COURSE, capture_output=True, text=True)
    return described.stdout.strip() or "unknown"
