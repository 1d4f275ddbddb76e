"""Hostile submissions, graded for real, and what outside of the sandbox they must not touch or see."""

import contextlib
import ctypes
import os
import re
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook
from nbgrader.utils import determine_grade

from autograder.grading import referee
from autograder.grading.submission import restored
from autograder.inside.limits import Limits
from autograder.kit import student
from autograder.kit.student import Function
from autograder.notebooks import source
from autograder.sandbox import tiers
from autograder.sandbox.launch import Warm, launch
from autograder.sandbox.student_process import StudentProcess
from autograder.sandbox.tiers import Tier
from tests.processes import started

COURSE = Path(__file__).parents[2]
CORPUS = Path(__file__).parent / "corpus"
UNUSUAL = Path(__file__).parent / "unusual"
SECRET = "canary-4711"
LIMITS = Limits(memory_bytes=2 << 30, processes=64, unread_bytes=64 << 20)
# Cases that are large enough for Linux's count to tell who moved too much.
TESTS = {
    "exchange": "check.exchange(exchange, world_sizes=(2,), numels=(100_003,))",
    "ring_all_reduce": "check.ring_all_reduce(ring_all_reduce, world_sizes=(3,), numels=(100_003,))",
    "reduce_from_ranks": "check.reduce_from_ranks(reduce_from_ranks, world_sizes=(2,))",
    # And others that are too small for it.
    "reduce": "check.reduce(reduce, world_sizes=(2,), numels=(7,))",
    "broadcast": "check.broadcast(broadcast, world_sizes=(5,), numels=(7,))",
    "gather": "check.gather(gather, world_sizes=(2,), numels=(7,))",
    "DistributedDataParallel": "check.distributed_data_parallel(DistributedDataParallel, world_sizes=(2,))",
    "save_checkpoint": "check.save_checkpoint(save_checkpoint, world_sizes=(2,))",
    "copy_to_ranks": "check.copy_to_ranks(copy_to_ranks, world_sizes=(2,))",
    "average": "check.average(average, world_sizes=(2,))",
    "average_gradients": "check.average_gradients(average_gradients, world_sizes=(2,))",
    "fit_alpha_beta": "check.fit_alpha_beta(fit_alpha_beta)",
    "dispatch_to_experts": "check.dispatch_to_experts(dispatch_to_experts, world_sizes=(2,))",
    "Strategy": "check.strategy(Strategy)",
    # Whose memory is measured in worlds of 2 or 4.
    "ShardedOptimizer": "check.sharded_optimizer(ShardedOptimizer, world_sizes=(4,))",
    "ShardedGradients": "check.sharded_gradients(ShardedGradients, world_sizes=(2,))",
    "FullyShardedDataParallel": "check.fully_sharded_data_parallel("
    "FullyShardedDataParallel, world_sizes=(2,))",
}
HONEST = ("honest_before", "honest_after")


def attack(name: str) -> str:
    """The code of a submission of the corpus."""
    return (CORPUS / f"{name}.py").read_text()


def question(code: str) -> str | None:
    """Which function's test an attack wants the points of, if any's."""
    return next(
        (name for name in TESTS if re.search(rf"^((def|class) {name}\b|{name} =)", code, re.MULTILINE)), None
    )


@dataclass(frozen=True)
class Graded:
    """A notebook after the referee was through with it."""

    notebook: NotebookNode

    def points(self, name: str) -> float | None:
        """Of the test of an attack; None if it has none."""
        found = [cell for cell in self.notebook.cells if cell.get("id") == f"{name}_check"]
        return determine_grade(found[0])[0] if found else None

    def outputs(self, name: str) -> list[NotebookNode]:
        """Of an attack's cell."""
        return next(cell.outputs for cell in self.notebook.cells if cell.get("id") == name)

    def text(self, *names: str) -> str:
        """All that is shown, by the cells of these names and their tests or, if none is given, by all."""
        wanted = {*names, *(f"{name}_check" for name in names)}
        cells = [cell for cell in self.notebook.cells if not names or cell.get("id") in wanted]
        return "\n".join(str(output) for cell in cells for output in cell.get("outputs", []))


@pytest.fixture(scope="session")
def released() -> NotebookNode:
    return source.read(COURSE / "source" / "02_collectives" / "exercise.py", "02_collectives")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run all tests that grade in the stronger tier; `make tiers` asks for the other one, too.

    `test_landlock` always runs the corpus in the other one.
    """
    if "tier" in metafunc.fixturenames:
        default = (Tier.NAMESPACES, Tier.LANDLOCK) if "ALL_TIERS" in os.environ else (Tier.NAMESPACES,)
        chosen = getattr(metafunc.module, "TIERS", default)
        metafunc.parametrize("tier", chosen, indirect=True, ids=lambda tier: tier.value, scope="module")


@pytest.fixture(scope="module")
def tier(request: pytest.FixtureRequest, program: Callable[[str], str]) -> Tier:
    """The sandbox that they are in."""
    if request.param is Tier.NAMESPACES:
        program("bwrap")
    elif reason := tiers.missing(request.param):
        pytest.skip(reason)
    return request.param


@pytest.fixture(scope="module")
def warm(tier: Tier, outside: "Outside") -> Iterator[Warm]:
    warm = Warm(partial(launch, partial(tier.confine, limits=LIMITS)))
    yield warm
    warm.close()


@pytest.fixture(scope="module")
def grade(warm: Warm, released: NotebookNode) -> Iterator[Callable[..., Graded]]:
    """Has the referee grade a notebook with these attacks in it, between two honest answers."""
    cells = {cell.id: cell for cell in released.cells}

    def grade(names: Sequence[str], codes: dict[str, str] | None = None) -> Graded:
        honest = dict.fromkeys(HONEST, cells["exchange"].source)
        codes = codes or {name: attack(name) for name in names}
        codes = {HONEST[0]: honest[HONEST[0]], **codes, HONEST[1]: honest[HONEST[1]]}
        release = _notebook(cells["setup"], codes)
        submitted = new_notebook(cells=[new_code_cell(code, id=name) for name, code in codes.items()])
        notebook, _ = restored(submitted, release)
        with StudentProcess(launch=warm) as student:
            referee.run(notebook, student, secret="of this test")
        return Graded(notebook)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Function, "timeout", 6.0)  # seconds for one call: some never end
        patch.setattr(student, "BUSIEST", 1.0)  # and no longer, however much the attacks have to do
        yield grade


def _notebook(setup: NotebookNode, codes: dict[str, str]) -> NotebookNode:
    """As an instructor would release it: for each answer a cell, and a test where it has a question."""
    cells = [setup]
    for name, code in codes.items():
        cells.append(_cell(name, "", solution=True))
        if question(code):
            cells.append(_cell(f"{name}_check", TESTS[question(code)], grade=True, locked=True, points=1))
    return new_notebook(cells=cells)


def _cell(name: str, text: str, **fields: object) -> NotebookNode:
    fields = {"grade_id": name, "grade": False, "solution": False, "locked": False} | fields
    return new_code_cell(text, id=name, metadata={"nbgrader": fields})


@dataclass(frozen=True)
class Outside:
    """The surroundings of a sandbox: a course with grades, a port, a process, shared memory."""

    course: Path
    server: socket.socket
    process: subprocess.Popen
    children: list[psutil.Process]  # of this process, before anything was graded

    def files(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in sorted(self.course.rglob("*")) if path.is_file()}

    def was_called(self) -> bool:
        self.server.settimeout(0)
        try:
            self.server.accept()
        except BlockingIOError:
            return False
        return True


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outside]:
    course = tmp_path_factory.mktemp("course")
    for name in ("source/02/exercise.py", "submitted/other/02/exercise.ipynb", "gradebook.db"):
        (course / name).parent.mkdir(parents=True, exist_ok=True)
        (course / name).write_text(SECRET)
    with (
        pytest.MonkeyPatch.context() as patch,
        _listening_where_servers_do() as server,
        started(["sleep", "1000"]) as process,
        _shared_memory(),
    ):
        patch.setenv("CANARY", SECRET)
        yield Outside(course, server, process, psutil.Process().children(recursive=True))


@contextlib.contextmanager
def _shared_memory() -> Iterator[None]:
    """Make a segment that every program of this user can find by its number, as databases do."""
    libc = ctypes.CDLL(None)
    libc.shmat.restype, libc.shmat.argtypes = ctypes.c_void_p, (ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
    number = libc.shmget(0, 4096, 0o600)
    ctypes.memmove(libc.shmat(number, None, 0), SECRET.encode(), len(SECRET))
    yield
    libc.shmctl(number, 0, None)  # to remove it


def _listening_where_servers_do() -> socket.socket:
    for port in range(8880, 8900):  # where the corpus looks
        try:
            return socket.create_server(("127.0.0.1", port))
        except OSError:
            continue
    pytest.fail("all ports from 8880 to 8899 are taken")


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets limits of the referee's for one test."""

    def set_limits(**limits: float) -> None:
        from autograder.sandbox import student_process as remote

        for name, value in limits.items():
            monkeypatch.setattr(referee if name == "PATIENCE" else remote, name, value)

    return set_limits
