"""Sandboxes are in a cgroup of their own where there can be one, and do without where there cannot."""

import subprocess

import pytest

from autograder.sandbox import cgroup
from tests.autograder.conftest import SMALL

KEEPS_TABLES = """
import mmap, time
memory = mmap.mmap(-1, 1 << 40, mmap.MAP_PRIVATE | mmap.MAP_NORESERVE, mmap.PROT_READ)
for at in range(0, 1 << 40, 1 << 21): memory[at]
"""


@pytest.fixture
def own(tmp_path):
    """This process's cgroup, as Linux shows one that users may make others beside."""
    (tmp_path / "cgroup.subtree_control").write_text("memory pids\n")
    folder = tmp_path / "own"
    folder.mkdir()
    return folder


def test_one_is_made_beside_that_of_this_process(own):
    made = cgroup.make(SMALL, own)
    (folder,) = set(own.parent.iterdir()) - {own, own.parent / "cgroup.subtree_control"}
    assert (folder / "memory.max").read_text() == str(1 << 30)
    assert (folder / "memory.swap.max").read_text() == "0"
    assert (folder / "pids.max").read_text() == str(SMALL.threads)
    *_, entrance, program, argument = made.enter(["bwrap", "--help"])
    assert (entrance, program, argument) == (str(folder / "cgroup.procs"), "bwrap", "--help")


def test_linux_says_whether_it_has_ended_what_was_in_it(own):
    made = cgroup.make(SMALL, own)
    events = next(own.parent.glob("fourranks-*")) / "memory.events"
    events.write_text("low 0\nhigh 0\nmax 9\noom 1\noom_kill 0\n")
    assert not made.was_full()
    events.write_text("low 0\nhigh 0\nmax 9\noom 1\noom_kill 2\n")
    assert made.was_full()


def test_there_is_none_where_memory_is_for_others_to_limit(own):
    (own.parent / "cgroup.subtree_control").write_text("cpu pids\n")
    assert cgroup.make(SMALL, own) is None


def test_there_is_none_where_linux_has_no_such_thing(tmp_path):
    assert cgroup.make(SMALL, tmp_path / "own") is None
    assert list(tmp_path.iterdir()) == []


def test_a_command_runs_also_where_it_is_not_let_in(own):
    made = cgroup.make(SMALL, own)
    (next(own.parent.glob("fourranks-*")) / "cgroup.procs").mkdir()  # which cannot be written to
    assert subprocess.run(made.enter(["echo", "it ran"]), capture_output=True).stdout == b"it ran\n"


def test_linux_itself_ends_a_sandbox_that_takes_too_much(run):
    probe = cgroup.make(SMALL)
    if probe is None:
        pytest.skip("needs a cgroup of version 2 beside which this user may make others that limit memory")
    probe.close()
    confined, _ = run(KEEPS_TABLES)
    confined._process.wait(10)
    confined._watcher.join()
    assert confined.exceeded == "more than 1 GiB of memory"
