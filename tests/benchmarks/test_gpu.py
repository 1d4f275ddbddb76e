"""`make gpu` without a GPU: its plan, and that no step can hang it, hide a failure or be taken twice."""

import os
import sys
import time
from pathlib import Path

import psutil
import pytest

from benchmarks.gpu import __main__ as command
from benchmarks.gpu.evidence import PAGE, Evidence, Outcome
from benchmarks.gpu.plan import COURSE, Step, plan
from benchmarks.gpu.run import take
from fourranks import zygote
from tests.processes import run

PASSED = Outcome("passed", 1.0, "nccl", "2026-11-24 12:00", "abc")


def step(code: str, limit: float = 30.0, **needs: object) -> Step:
    """A step that runs this code."""
    return Step("tried", "a step", ("timeit", "-n", "1", "-r", "1", code), limit, **needs)


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    zygote.stop_shared()
    yield
    zygote.stop_shared()


def test_every_lecture_and_every_exercise_is_in_the_plan():
    names = [step.name for step in plan(Path("evidence"))]
    for kind, stem in (("lecture", "lecture"), ("checks", "exercise")):
        topics = {path.parent.name for path in COURSE.glob(f"source/[0-9]*/{stem}.py")}
        assert {name for name in names if name.startswith(f"{kind}_")} == {f"{kind}_{t}" for t in topics}
    assert len(set(names)) == len(names)
    assert all(0 < step.limit <= 3600 for step in plan(Path("evidence")))


def test_every_notebook_of_the_plan_is_there():
    sources = [step.arguments[1] for step in plan(Path("evidence")) if "notebook" in step.arguments[0]]
    assert sources and all(Path(source).is_file() for source in sources)


def test_a_step_says_what_it_lacks():
    assert step("pass", needs_gpu=True).lacks(gpus=0) == "needs a GPU"
    assert step("pass", program="no-such-program").lacks(gpus=1) == "needs no-such-program"
    assert step("pass", needs_gpu=True).lacks(gpus=1) == ""


def test_a_step_runs_with_the_backend_that_auto_is_to_stand_for(tmp_path):
    print_it = "import os; print(os.environ['FOURRANKS_BACKEND'])"
    outcome = take(step(print_it), tmp_path / "log", "nccl", "abc")
    assert (outcome.result, outcome.backend, outcome.commit) == ("passed", "nccl", "abc")
    assert "nccl" in (tmp_path / "log").read_text()


def test_a_step_that_fails_says_so_and_keeps_its_output(tmp_path):
    outcome = take(step("1 / 0"), tmp_path / "log", "gloo", "abc")
    assert outcome.result == "failed with code 1" and not outcome.passed


def test_a_step_out_of_time_is_ended_with_all_that_it_has_started(tmp_path):
    pid = tmp_path / "pid"
    hangs = (
        "import pathlib, subprocess, time; child = subprocess.Popen(['sleep', '1000']); "
        f"pathlib.Path({str(pid)!r}).write_text(str(child.pid)); time.sleep(1000)"
    )
    outcome = take(step(hangs, limit=3.0), tmp_path / "log", "gloo", "abc")
    assert outcome.result.startswith("did not end within")
    deadline = time.monotonic() + 5
    while runs(int(pid.read_text())) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not runs(int(pid.read_text()))


def runs(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(
    "backend, commit, again",
    [("nccl", "abc", False), ("gloo", "abc", True), ("nccl", "abd", True)],
)
def test_a_step_that_has_passed_is_not_taken_again_with_the_same_course(tmp_path, backend, commit, again):
    Evidence(tmp_path).keep(step("pass"), PASSED)
    assert Evidence(tmp_path).has_passed(step("pass"), backend, commit) is not again


def test_the_page_tells_what_came_of_each_step(tmp_path):
    evidence = Evidence(tmp_path)
    evidence.keep(step("pass"), PASSED)
    evidence.write_page([step("pass"), Step("later", "a later step", ("timeit",), 1.0)])
    page = (tmp_path / PAGE).read_text()
    assert "| a step | [passed](tried.log) | nccl | 1 | 2026-11-24 12:00 | abc |" in page
    assert "| a later step | not taken yet |" in page


def test_without_a_gpu_the_plan_is_shown_and_nothing_is_run(no_gpu, tmp_path, capsys):
    assert command.main(["--folder", str(tmp_path / "evidence")]) == 1
    shown = capsys.readouterr().out
    assert "tests_gpu" in shown and "needs a GPU" in shown
    assert "make gpu ARGS=--without-gpu" in shown
    assert not (tmp_path / "evidence").exists()


def test_without_a_gpu_the_steps_that_need_one_are_said_not_to_have_run(no_gpu, tmp_path, capsys):
    assert command.main(["--without-gpu", "--only", "tests", "--folder", str(tmp_path)]) == 0
    assert "tests that need a GPU: not run, needs a GPU" in capsys.readouterr().out
    assert "| tests that need a GPU | not taken yet |" in (tmp_path / PAGE).read_text()


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    command = [sys.executable, "-m", "benchmarks.gpu", "--without-gpu", "--folder", tmp_path / "file"]
    ran = run(command, cwd=COURSE, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""})
    assert ran.returncode == 1 and "Traceback" not in ran.stderr
    assert "The evidence cannot be read or written: [Errno 17]" in ran.stderr
