"""A machine that cannot grade says so before it costs anybody points."""

import os
import socket
import sys
from collections.abc import Sequence

import pytest
from nbformat.v4 import new_code_cell, new_notebook

from autograder.grading import machine, referee
from autograder.grading.records import Terms
from autograder.inside.limits import LEAST
from autograder.sandbox import tiers
from autograder.sandbox.launch import Launched, Unconfined
from autograder.sandbox.sandbox import SandboxMissing
from autograder.sandbox.student_process import StudentProcess
from autograder.sandbox.tiers import Tier
from tests import processes


@pytest.fixture(params=[Tier.NAMESPACES, Tier.LANDLOCK], ids=lambda tier: tier.value)
def tier(request):
    """Each kind of sandbox that can be had here."""
    if reason := tiers.missing(request.param):
        pytest.skip(reason)
    return request.param


def lack_under(tier: str = "", before: Sequence[str] = (), **limits: int) -> str:
    """The machine's lack for a process with these hard limits, called as `resource` has them."""
    code = f"""if True:
        import resource
        from autograder.grading import machine
        from autograder.grading.records import Terms
        from traitlets.config import Config
        for name, most in {limits}.items():
            resource.setrlimit(getattr(resource, f"RLIMIT_{{name}}"), (most, most))
        print(machine.lack(Terms.configured(Config(Referee={{'tier': {tier!r}}}))))
    """
    done = processes.run([*before, sys.executable, "-c", code])
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_this_machine_is_fit(tier):
    assert machine.lack(Terms(tier)) == ""


def test_a_machine_with_lower_limits_is_fit_as_long_as_every_solution_passes(tier):
    limits = {"NOFILE": LEAST.open_files, "NPROC": LEAST.threads, "DATA": LEAST.memory_bytes}
    assert lack_under(tier.value, **limits, FSIZE=LEAST.disk_bytes) == ""


@pytest.mark.parametrize(
    ("limit", "most", "said"),
    [
        ("NOFILE", 1_000, "A process may have 1,000 open files here, and grading takes 1,024"),
        ("NPROC", 500, "500 processes of its user here"),
        ("DATA", 10**9, "1,000,000,000 bytes of data here"),
        ("FSIZE", 10**6, "1,000,000 bytes in a file here"),
        ("CPU", 600, "600 seconds of processor time here"),
    ],
)
def test_limits_that_are_too_low_to_grade_are_named(limit, most, said):
    assert lack_under(**{limit: most}).count(said) == 1


@pytest.mark.parametrize(
    ("cgroups", "limit"),
    [
        ("0::/job/step", "memory.max"),
        ("0::/job/step", "job/memory.max"),
        ("0::/\n4:cpu,memory:/job", "memory/job/memory.limit_in_bytes"),
        ("0::/of/the/machine", "memory.max"),  # in a container, which sees no more than its own
    ],
)
def test_too_little_memory_is_found_in_each_kind_of_cgroup(tmp_path, monkeypatch, cgroups, limit):
    (tmp_path / "own").write_text(f"{cgroups}\n")
    (tmp_path / limit).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / limit).write_text("600000000\n")
    monkeypatch.setattr(machine, "CGROUPS", tmp_path)
    monkeypatch.setattr(machine, "PROCESS_CGROUPS", tmp_path / "own")
    assert "this container or job has 0.60" in machine.lack(Terms())
    (tmp_path / limit).write_text("max\n")
    assert machine.too_little_memory() == ""


@pytest.mark.parametrize(("cores", "gigabytes", "jobs"), [(8, 64, 4), (64, 4, 2), (1, 64, 0)])
def test_as_many_submissions_are_graded_at_a_time_as_there_are_cores_and_memory_for(
    tmp_path, monkeypatch, cores, gigabytes, jobs
):
    (tmp_path / "own").write_text("0::/\n")
    (tmp_path / "memory.max").write_text(str(gigabytes * 10**9))
    monkeypatch.setattr(machine, "CGROUPS", tmp_path)
    monkeypatch.setattr(machine, "PROCESS_CGROUPS", tmp_path / "own")
    monkeypatch.setattr(os, "sysconf", lambda name: 1 << 20)  # a terabyte, which is no limit here
    assert machine.jobs(cores) == jobs


def test_too_little_memory_is_found_on_a_machine_that_limits_nobody(tmp_path, monkeypatch):
    (tmp_path / "own").write_text("0::/\n")
    monkeypatch.setattr(machine, "CGROUPS", tmp_path)
    monkeypatch.setattr(machine, "PROCESS_CGROUPS", tmp_path / "own")
    real = os.sysconf
    monkeypatch.setattr(os, "sysconf", lambda name: 1 << 18 if name == "SC_PHYS_PAGES" else real(name))
    has = f"{real('SC_PAGE_SIZE') * (1 << 18) / 1e9:.2f}"
    assert f"this machine has {has}" in machine.lack(Terms())


def test_too_few_processes_are_found_too(tmp_path, monkeypatch):
    (tmp_path / "own").write_text("0::/job\n")
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "pids.max").write_text("64\n")
    (tmp_path / "job" / "pids.current").write_text("14\n")
    monkeypatch.setattr(machine, "CGROUPS", tmp_path)
    monkeypatch.setattr(machine, "PROCESS_CGROUPS", tmp_path / "own")
    assert "this container or job has room for 50" in machine.lack(Terms())
    (tmp_path / "job" / "pids.max").write_text("max\n")
    assert machine.lack(Terms()) == ""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make network namespaces")
def test_ranks_that_cannot_reach_each_other_cost_nobody_points():
    if reason := tiers.missing(Tier.LANDLOCK):
        pytest.skip(reason)
    assert "There is no connection to 127.0.0.1" in lack_under("landlock", before=["unshare", "--net"])


@pytest.mark.parametrize("answer", ["", "def scatter(): pass"], ids=["no answer", "an answer"])
def test_where_the_process_for_notebooks_ends_before_it_has_begun_nobody_gets_points_for_it(answer):
    def launch() -> Launched:
        ours, theirs = socket.socketpair()
        with theirs:
            return Launched(Unconfined(["false"], [theirs.fileno()]), ours)

    fields = {"grade_id": "test", "grade": True, "solution": False, "locked": True, "points": 1}
    test = new_code_cell("check.scatter(scatter)", metadata={"nbgrader": fields})
    cells = [new_code_cell(answer), test] if answer else [test]
    with StudentProcess(launch=launch) as student, pytest.raises(SandboxMissing, match="did not start"):
        referee.run(new_notebook(cells=cells), student, "a secret")


@pytest.mark.parametrize("tier", [Tier.NAMESPACES, Tier.LANDLOCK], ids=lambda tier: tier.value)
def test_the_last_words_of_a_sandbox_that_does_not_begin_are_told(tier):
    if reason := tiers.missing(tier):
        pytest.skip(reason)

    def launch() -> Launched:
        ours, theirs = socket.socketpair()
        with theirs:
            return Launched(tier.confine([sys.executable, "-c", "import missing"], [theirs.fileno()]), ours)

    with StudentProcess(launch=launch) as student, pytest.raises(SandboxMissing) as told:
        student.run("pass")
    assert str(told.value).endswith("ModuleNotFoundError: No module named 'missing'.")
