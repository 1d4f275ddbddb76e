"""A class is graded on the nodes of a real Ray cluster, all on this machine; `make cluster` runs this."""

import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec

import psutil
import pytest

from tests.classroom import still_running
from tests.processes import run, started

if find_spec("ray") is None:  # not imported here: it reads RAY_AUTH_MODE then
    pytest.skip("needs ray: make cluster", allow_module_level=True)

from benchmarks.classes import make
from benchmarks.cluster import TOKEN, TOPIC, Nodes, book, cluster

pytestmark = [
    pytest.mark.timeout(1200),  # a busy machine takes a minute to start three nodes
    pytest.mark.filterwarnings("default"),  # Ray's own
]

GRADE = [sys.executable, "-m", "autograder", "grade", TOPIC, "--secret", "twice"]
ON_RAY = [*GRADE, "--on", "ray"]
STUDENTS = 6


@pytest.fixture(scope="module")
def nodes(program):
    """A cluster of two nodes that can grade."""
    program("bwrap")
    with cluster(2) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def class_(tmp_path_factory):
    """The folder of a course that a small class has handed in."""
    folder = tmp_path_factory.mktemp("class") / "course"
    make(folder, STUDENTS, TOPIC, ["scatter"])
    return folder


@pytest.fixture
def course(class_, tmp_path):
    """A copy of it."""
    return copy_of(class_, tmp_path / "course")


def copy_of(course, to):
    subprocess.run(["cp", "-r", course, to], check=True)
    return to


def records_in(course) -> int:
    return len(list(course.glob("refereed/*/*/*.json")))


def graders() -> list[psutil.Process]:
    """The actors of this machine that are running a submission."""
    named = psutil.process_iter(["cmdline"])
    return [each for each in named if "ray::NodeGrader.run" in " ".join(each.info["cmdline"] or [])]


def in_cluster(nodes: Nodes) -> dict[str, str]:
    return os.environ | nodes.environment


def test_a_class_whose_nodes_come_and_go_and_that_is_stopped_comes_to_the_local_gradebook(
    nodes, course, class_, tmp_path
):
    local = copy_of(class_, tmp_path / "local")
    assert "6 of 6 graded" in run(GRADE, cwd=local).stdout

    nodes.add("short-lived")
    with started(ON_RAY, cwd=course, env=in_cluster(nodes), stderr=subprocess.PIPE, text=True) as grading:
        while records_in(course) == 0 or not graders():
            assert grading.poll() is None, grading.stderr.read()
            time.sleep(0.02)
        nodes.kill("short-lived")
        nodes.add("late")
        while records_in(course) < 3:
            assert grading.poll() is None, grading.stderr.read()
            time.sleep(0.02)
        actors = graders()
        began = [process for actor in actors for process in actor.children(recursive=True)]
        grading.send_signal(signal.SIGINT)
        _, said = grading.communicate()
    assert "to continue" in said
    assert still_running([*actors, *began]) == []

    kept = records_in(course)
    done = run(ON_RAY, cwd=course, env=in_cluster(nodes))
    nodes.kill("late")
    assert f"6 of 6 graded: {STUDENTS - kept} run now, {kept} from earlier records." in done.stdout
    assert book(course) == book(local)


def test_a_submission_whose_workers_end_again_and_again_is_given_up_and_not_tried_again(nodes, course):
    command = [*ON_RAY, "--students", "student0001"]
    with started(
        command, cwd=course, env=in_cluster(nodes), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as grading:
        while grading.poll() is None:
            for each in graders():
                each.kill()
            time.sleep(0.05)
        said, _ = grading.communicate()
    assert "student0001: NOT graded: 3 workers of the cluster ended while they graded it" in said
    assert (
        "3 workers of the cluster ended while they graded it"
        in run(command, cwd=course, env=in_cluster(nodes)).stdout
    )


def test_gpus_that_no_node_has_are_refused_with_what_each_has(nodes, course):
    done = run([*ON_RAY, "--gpus-per-submission", "4"], cwd=course, env=in_cluster(nodes))
    assert done.returncode == 2
    assert "node0: it has 2 CPUs and 0 GPUs; a submission takes one CPU or more, and 4 GPUs." in done.stderr


def test_with_force_records_are_kept_where_no_node_can_grade_and_made_again_once_one_can(nodes, course):
    grade = [*GRADE, "--students", "student0000"]
    force = [*grade, "--on", "ray", "--force"]
    assert "1 of 1 graded: 1 run now" in run(grade, cwd=course).stdout
    kept = {path: path.read_bytes() for path in course.glob("refereed/*/*/*.json")}

    refused = run([*force, "--gpus-per-submission", "4"], cwd=course, env=in_cluster(nodes))
    assert refused.returncode == 2
    assert kept and {path: path.read_bytes() for path in course.glob("refereed/*/*/*.json")} == kept

    assert "1 of 1 graded: 1 run now" in run(force, cwd=course, env=in_cluster(nodes)).stdout


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"RAY_AUTH_TOKEN": "f" * 64}, "oken"),
        ({"RAY_AUTH_MODE": "disabled"}, "oken"),
        ({"RAY_ADDRESS": "127.0.0.1:9"}, "refused"),
    ],
    ids=["another token", "no token", "no cluster"],
)
def test_a_cluster_that_cannot_be_joined_is_refused_with_the_reason(nodes, course, change, reason):
    done = run(ON_RAY, cwd=course, env=in_cluster(nodes) | change)
    assert done.returncode == 2 and "docs/clusters.md" in done.stderr and reason in done.stderr
    assert records_in(course) == 0


def test_a_node_that_has_no_such_sandbox_is_named_and_not_used(nodes, course):
    assert TOKEN.items() <= nodes.environment.items()
    nodes.add("bare", env={"PATH": "/nonexistent"})
    command = [*ON_RAY, "--tier", "namespaces", "--students", "student0000,student0002,student0003"]
    done = run(command, cwd=course, env=in_cluster(nodes))
    nodes.kill("bare")
    assert "bare: NOT used: " in done.stderr and "apt install bubblewrap" in done.stderr
    assert "3 of 3 graded" in done.stdout
