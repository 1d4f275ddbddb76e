"""Runs an exercise's tests on mutants, each in a process that may hang or die without harm to the others."""

from __future__ import annotations

import contextlib
import queue
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from autograder.kit.student import NotebookFunction
from autograder.kit.verdict import CheckFailed
from fourranks.errors import StartError

from .exercise import Exercise
from .mutants import Mutant

COURSE = Path(__file__).parents[2]
TIMEOUT = 10.0  # seconds for one call on all ranks; the slowest of a reference takes 1 on two busy cores
PATIENCE = 400.0  # seconds for all tests of one mutant
HUNG, ENDED = "the tests did not end", "the process of the tests ended"


@dataclass(frozen=True)
class Verdict:
    """The tests' verdict on a mutant.

    Attributes:
        test: the cell that failed; "" when none did.
        mistake: the title of a check's finding; else the exception that was raised.
        text: for a student to read.
        is_told: whether it was a check that failed, as it should be.
    """

    test: str = ""
    mistake: str = ""
    text: str = ""
    is_told: bool = True


@dataclass(frozen=True)
class Judgement:
    """A mutant and what became of it."""

    mutant: Mutant
    verdict: Verdict

    @property
    def is_caught(self) -> bool:
        return self.verdict.mistake != ""


class Handle(NotebookFunction):
    """A mutant's function, as grading would hand it to a check, but for the patience."""

    until_failure = True

    def __init__(self, function: Callable, timeout: float) -> None:
        super().__init__(function)
        self.timeout = timeout


def examined(
    exercise: Exercise, mutants: Iterable[Mutant], jobs: int, timeout: float = TIMEOUT
) -> Iterator[Judgement]:
    """Judge mutants, so many at a time, in their order."""
    lanes = [Lane(timeout) for _ in range(jobs)]
    free: queue.SimpleQueue[Lane] = queue.SimpleQueue()
    for lane in lanes:
        free.put(lane)

    def judged(mutant: Mutant) -> Judgement:
        lane = free.get()
        try:
            return Judgement(mutant, lane.examine(exercise, mutant))
        finally:
            free.put(lane)

    pool = ThreadPoolExecutor(jobs)
    try:
        yield from pool.map(judged, mutants)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for lane in lanes:
            lane.close()


class Lane:
    """A process that examines one mutant after the other; another one takes its place if it hangs or ends.

    Args:
        timeout: seconds for one call on all ranks.
        patience: seconds for all tests of one mutant.
    """

    def __init__(self, timeout: float = TIMEOUT, patience: float = PATIENCE) -> None:
        self._timeout, self._patience = timeout, patience
        self._process: subprocess.Popen | None = None
        self._connection: Connection | None = None

    def examine(self, exercise: Exercise, mutant: Mutant | None) -> Verdict:
        """The tests' verdict on a mutant, or on the reference itself."""
        if self._process is None:
            self._start()
        try:
            self._connection.send((exercise, mutant))
            if self._connection.poll(self._patience):
                return self._connection.recv()
            failure = Verdict(mistake=HUNG, text=HUNG, is_told=False)
        except (EOFError, OSError):  # short of memory, or ended by somebody: that catches nothing
            failure = Verdict(text=ENDED, is_told=False)
        self.close()
        return failure

    def close(self) -> None:
        """End the process, and with it its ranks."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            self._connection.close()

    def _start(self) -> None:
        self._connection, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    f"from {__name__} import serve; serve({theirs.fileno()}, {self._timeout})",
                ],
                pass_fds=[theirs.fileno()],
                cwd=COURSE,
                start_new_session=True,  # an interrupt is for the run, which then ends its lanes
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        try:
            self._connection.recv()  # it is ready
        except EOFError:
            raise RuntimeError("The process that runs tests could not start; try `make test`.") from None


def serve(descriptor: int, timeout: float) -> None:
    """Runs in a lane's process: answers each mutant with a verdict, until the other end is closed."""
    with Connection(descriptor) as requests, contextlib.suppress(EOFError):
        requests.send("ready")
        while True:
            requests.send(verdict(*requests.recv(), timeout))


def verdict(exercise: Exercise, mutant: Mutant | None, timeout: float) -> Verdict:
    """Run what tests a mutant, or all tests of the reference, until one fails."""
    notebook = {"__name__": "__main__"}
    tests = exercise.tests_of(mutant.function.partition(".")[0]) if mutant else exercise.tests
    where = "its definition"
    try:
        exec(compile(exercise.definitions(mutant and mutant.cell), "<exercise>", "exec"), notebook)
        names = [name for cell in exercise.solutions for name in cell.definitions]
        handles = {name: Handle(notebook[name], timeout=timeout) for name in names}
        for test in tests:
            where = test.name
            exec(compile(test.source, f"<{where}>", "exec"), notebook | handles)
    except StartError:
        raise  # no fault of the mutant's
    except CheckFailed as failure:
        return Verdict(where, failure.verdict.mistake.title, str(failure))
    except Exception as error:
        return Verdict(where, type(error).__name__, f"{type(error).__name__}: {error}", is_told=False)
    return Verdict()
