"""Ranks on the nodes of a real Ray cluster, all on this machine; `make cluster` runs this."""

import os
import re
import signal
import subprocess
import sys
import time
from importlib.util import find_spec

import psutil
import pytest

import fourranks
from fourranks import DeadlockError, RankDied, RankError, StartError
from fourranks.nodes import choice
from tests.processes import run, started

if find_spec("ray") is None:
    pytest.skip("needs ray: make cluster", allow_module_level=True)

from benchmarks.cluster import cluster

pytestmark = [
    pytest.mark.timeout(600),  # a busy machine takes a minute to start three nodes
    pytest.mark.filterwarnings("default"),  # Ray's own
]

RUN = [sys.executable, "-m", "fourranks", "run", "--on", "ray"]


@pytest.fixture(scope="module")
def nodes():
    """A cluster of two nodes with two processors each, which this process may use."""
    with cluster(2) as nodes:
        os.environ.update(nodes.environment)
        yield nodes
        choice.disconnect()


@pytest.fixture
def world(nodes):
    """Four ranks, two on each node."""
    with fourranks.start(4, "gloo", on="ray") as group:
        yield group


def agents() -> list[psutil.Process]:
    named = psutil.process_iter(["cmdline"])
    return [each for each in named if "fourranks.nodes.agent" in (each.info["cmdline"] or [])]


def assert_no_agents() -> None:
    deadline = time.monotonic() + 30
    while agents() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert agents() == []


def test_ranks_are_packed_by_node_compute_and_explain_themselves(world):
    assert world.nodes == ["node0", "node1"]
    assert [rank.node for rank in world.status()] == ["node0", "node0", "node1", "node1"]
    names = ("RANK", "LOCAL_RANK", "GROUP_RANK", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE")
    found = world.pull(f"tuple(__import__('os').environ[name] for name in {names})")
    assert found == [(str(rank), str(rank % 2), str(rank // 2), "2", "2") for rank in range(4)]
    shown = world.execute("x = torch.ones(1) * rank; dist.all_reduce(x); print('said'); x")
    assert str(shown) == "[0-3] said\n[0-3] tensor([6.])"
    with pytest.raises(RankError, match=r"(?s)Rank 3 raised ValueError.*Meanwhile.*rank 3"):
        world.execute("if rank == 3: raise ValueError('no')\ndist.barrier()")
    with pytest.raises(DeadlockError, match="Ranks 0-1,3 wait in barrier"):
        world.execute("if rank != 2: dist.barrier()")
    with world.trace() as trace:
        world.execute("dist.all_reduce(x)")
    assert [len(calls) for calls in trace.calls] == [1] * 4


def test_large_values_and_much_output_come_through_whole(world):
    text = "x" * 1000
    assert str(world.execute(f"for _ in range(200): print('{text}')")).count(text) == 200
    value = os.urandom(20_000_000)
    world.push(value=value)
    assert world.pull("value") == [value] * 4


def test_an_interrupt_reaches_ranks_that_sleep(world):
    began = time.monotonic()
    with pytest.raises(fourranks.CellTimeout, match="time.sleep"):
        world.execute("import time\nkept = rank\nwhile True: time.sleep(60)", timeout=0.5)
    assert world.pull("kept") == [0, 1, 2, 3] and time.monotonic() - began < 20


def test_a_world_that_is_stopped_gives_its_slots_back_and_leaves_nothing(nodes):
    for _ in range(2):
        with fourranks.start(4, "gloo", on="ray"):
            assert len(agents()) == 2
        assert_no_agents()


def test_two_worlds_share_a_cluster_and_what_is_taken_is_not_given_again(nodes, monkeypatch):
    with fourranks.start(2, "gloo", on="ray") as one:
        with fourranks.start(2, "gloo", on="ray") as two:
            assert one.pull("rank") == two.pull("rank") == [0, 1]
        with pytest.raises(
            StartError, match=r"4 ranks were asked for, one on each CPU.*has 4, of which 2 are free"
        ):
            fourranks.start(4, "gloo", on="ray")
        assert one.pull("rank") == [0, 1]


def test_a_killed_node_is_named_and_a_restart_takes_what_there_is(nodes):
    nodes.add("short-lived")
    with fourranks.start(6, "gloo", on="ray") as world:
        assert "short-lived" in world.nodes
        lost = [rank.rank for rank in world.status() if rank.node == "short-lived"]
        kept = [rank for rank in range(6) if rank not in lost]
        world.execute("kept = rank")
        nodes.kill("short-lived")
        with pytest.raises(RankDied, match=f"Ranks {lost[0]}-{lost[-1]} were lost with the node short-lived"):
            world.execute("import time; time.sleep(60)")
        assert world.pull("kept", kept) == kept
        nodes.add("late")
        world.restart()
        assert set(world.nodes) == {"node0", "node1", "late"}
        assert set(world.missing_nodes) == {"short-lived"}
        assert str(world.execute("x = torch.ones(1); dist.all_reduce(x); x")) == "[0-5] tensor([6.])"
        nodes.kill("late")
        with pytest.raises(RankDied, match="the node late"):
            world.execute("import time; time.sleep(60)")
        with pytest.raises(StartError, match="6 ranks were asked for"):
            world.restart()
    assert_no_agents()


@pytest.mark.parametrize(
    ("world_size", "options", "reason"),
    [
        (40, {}, "40 ranks were asked for, one on each CPU, and the Ray cluster has 4."),
        (2, {"backend": "nccl"}, "2 ranks were asked for, one on each GPU, and the Ray cluster has 0."),
    ],
)
def test_slots_that_no_cluster_has_are_refused_at_once(nodes, world_size, options, reason):
    with pytest.raises(StartError) as caught:
        fourranks.start(world_size, **options, on="ray")
    assert str(caught.value) == reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"RAY_AUTH_TOKEN": "f" * 64}, "is the token the cluster's"),
        ({"RAY_AUTH_MODE": "disabled"}, "oken"),
        ({"RAY_ADDRESS": "127.0.0.1:9"}, "refused. docs/clusters.md says"),
        ({"RAY_ADDRESS": "nonsense"}, "Invalid address format: nonsense. docs/clusters.md says"),
        ({"FOURRANKS_NODE_PYTHON": "/no/python"}, "cannot be used"),
    ],
    ids=["another token", "no token", "no cluster", "no address", "no Python"],
)
def test_what_cannot_be_used_is_refused_with_the_reason(nodes, tmp_path, change, reason):
    script = tmp_path / "train.py"
    script.write_text("print('ran')")
    done = run([*RUN, "-n", "2", script], env=os.environ | change)
    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr and "Traceback" not in done.stderr


def test_a_node_with_another_version_of_this_package_is_refused(nodes, tmp_path):
    copy = tmp_path / "fourranks"
    subprocess.run(["cp", "-r", os.path.dirname(fourranks.__file__), copy], check=True)
    (copy / "landlock.py").write_text("# changed\n")
    python = tmp_path / "python"
    path = f"PYTHONPATH={tmp_path}:$PYTHONPATH"
    python.write_text(f'#!/bin/sh\ncd {tmp_path}\n{path} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    script = tmp_path / "train.py"
    script.write_text("")
    done = run([*RUN, "-n", "2", script], env=os.environ | {"FOURRANKS_NODE_PYTHON": str(python)})
    assert done.returncode == 2 and re.search(r"The node node\d cannot be used", done.stderr)
    assert "Its software differs: fourranks is" in done.stderr


@pytest.mark.parametrize(
    ("action", "status", "said"),
    [
        ("dist.get_rank() == 3 or dist.barrier()", 1, "Ranks 0-2 wait in barrier (train.py, line 5: "),
        ("sys.exit(7 if dist.get_rank() == 3 else 0)", 7, "Rank 3 left with exit status 7."),
        ("dist.get_rank() == 2 and os._exit(9)", 1, "Rank 2 exited with code 9"),
    ],
    ids=["deadlock", "exit status", "death"],
)
def test_a_program_on_the_cluster_ends_as_on_one_machine(nodes, tmp_path, action, status, said):
    script = tmp_path / "train.py"
    setting = "import os, sys\nimport torch.distributed as dist\ndist.init_process_group('gloo')"
    script.write_text(f"{setting}\nprint('on', os.environ['GROUP_RANK'])\n{action}\n")
    done = run([*RUN, script])
    assert done.returncode == status and said in done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0] on 0", "[1] on 0", "[2] on 1", "[3] on 1"]
    assert_no_agents()


def test_ctrl_c_ends_a_program_on_all_nodes_of_the_cluster(nodes, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import time\nprint('begun')\ntime.sleep(600)\n")
    with started([*RUN, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        lines = sorted(process.stdout.readline() for _ in range(4))
        assert lines == [f"[{rank}] begun\n" for rank in range(4)]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and "train.py, line 3: time.sleep(600)" in errors
    assert_no_agents()


def test_a_program_runs_on_the_cluster_and_a_killed_command_leaves_nothing(nodes, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, time, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "x = torch.ones(1)\n"
        "dist.all_reduce(x)\n"
        "print(x.item())\n"
        "time.sleep(float(sys.argv[1]))\n"
        "dist.destroy_process_group()\n"
    )
    done = run([*RUN, script, "0"])
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == [f"[{rank}] 4.0" for rank in range(4)]
    with started([*RUN, script, "600"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().endswith("] 4.0\n")
        assert len(agents()) == 2
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert_no_agents()
