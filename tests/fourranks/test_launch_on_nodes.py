"""`fourranks run --nodes`: a program from a shell on two nodes, which a real sshd guards.

After each test nothing may be left on either node.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fourranks
from tests.network_of_nodes import Network
from tests.processes import run, started
from tests.sshd import serving

WHERE = """
import json, os
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE MASTER_ADDR".split()
total = torch.ones(1)
dist.all_reduce(total)
found = {name: os.environ[name] for name in names}
print(json.dumps({"machine": os.readlink("/proc/self/ns/net"), "total": total.item()} | found))
dist.destroy_process_group()
"""

HOLDS = """
import subprocess, time
import torch.distributed as dist

dist.init_process_group("gloo")
subprocess.Popen(["sleep", "600"])
dist.barrier()
print("begun")
try:
    while True:
        dist.barrier()
        time.sleep(0.01)
except KeyboardInterrupt:
    print("interrupted")
    raise
"""


@pytest.fixture(autouse=True)
def _servers(network) -> Iterator[None]:
    with serving(network):
        yield
    deadline = time.monotonic() + 10
    while any(map(network.processes, network.nodes)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [network.processes(node) for node in network.nodes] == [[], []]


@pytest.fixture
def script(tmp_path) -> Callable[[str], Path]:
    """Write a script; returns its path."""

    def write(text: str) -> Path:
        (tmp_path / "train.py").write_text(textwrap.dedent(text).lstrip())
        return tmp_path / "train.py"

    return write


@pytest.fixture
def command(network) -> list[str]:
    """The command that runs a program on both nodes."""
    return [*reached_by(network.launcher), "--nodes", ",".join(network.nodes)]


def reached_by(launcher: str) -> list[str]:
    return [sys.executable, "-m", "fourranks", "run", "--launcher", launcher]


# --- what a program finds --------------------------------------------------------------------------------


def test_a_program_finds_on_both_nodes_what_torchrun_gives_it_there(script, command, network):
    path = script(WHERE)
    ours = run([*command, "-n", "4", path])
    assert (ours.returncode, ours.stderr) == (0, "")
    lines = sorted(line.partition("] ") for line in ours.stdout.splitlines())
    assert [rank for rank, *_ in lines] == ["[0", "[1", "[2", "[3"]
    found = [json.loads(text) for *_, text in lines]
    machines = [entry["machine"] for entry in found]
    assert machines[0] == machines[1] != machines[2] == machines[3]
    assert found == by_torchrun(path, network)


def by_torchrun(path: Path, network: Network) -> list[dict[str, object]]:
    """Run a script as it is run with torchrun, whose command is given on each node."""
    with contextlib.ExitStack() as stack:
        both = [
            stack.enter_context(started(torchrun(path, network, number), stdout=subprocess.PIPE, text=True))
            for number in range(2)
        ]
        output = "".join(process.communicate()[0] for process in both)
    entries = re.findall(r"\{[^{}]*\}", output)  # two processes may write into one line
    return sorted(map(json.loads, entries), key=lambda entry: entry["RANK"])


def torchrun(path: Path, network: Network, number: int) -> list[str | Path]:
    first, own = network.addresses[0], network.addresses[number]
    options = {"nnodes": 2, "nproc-per-node": 2, "node-rank": number, "master-addr": first, "local-addr": own}
    words = [f"--{name}={value}" for name, value in options.items()]
    interface = ["env", "GLOO_SOCKET_IFNAME=eth0"]
    there = ["ip", "netns", "exec", network.nodes[number], *interface, sys.executable]
    return [*there, "-m", "torch.distributed.run", *words, "--master-port=29511", path]


def test_nodes_get_as_many_ranks_as_they_have_slots(script, network):
    first, second = network.nodes
    path = script("import os\nprint(os.environ['GROUP_RANK'], os.environ['LOCAL_RANK'])")
    done = run([*reached_by(network.launcher), "-n", "3", "--nodes", f"{first}:1,{second}:2", path])
    assert sorted(done.stdout.splitlines()) == ["[0] 0 0", "[1] 1 0", "[2] 1 1"], done.stderr


# --- how it ends -----------------------------------------------------------------------------------------


def test_a_deadlock_between_nodes_is_explained_with_the_programs_own_lines(script, command):
    path = script("""
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        x = torch.ones(3)
        for step in range(20):
            if step == 10 and dist.get_rank() == 3:
                dist.broadcast(x, src=0)
            dist.all_reduce(x)
    """)
    done = run([*command, "-n", "4", path])
    assert (done.returncode, done.stdout) == (1, "")
    assert "Ranks 0-2 wait in all_reduce (train.py, line 9: dist.all_reduce(x))." in done.stderr
    assert "Rank 3 waits in broadcast (train.py, line 8: dist.broadcast(x, src=0))." in done.stderr


@pytest.mark.parametrize(
    ("ending", "status", "said"),
    [
        ("sys.exit(7 if rank == 3 else 0)", 7, "Rank 3 left with exit status 7."),
        ("if rank == 2: raise OSError('disk full')", 1, "OSError: disk full"),
        ("if rank == 3: os._exit(9)", 1, "Rank 3 exited with code 9"),
    ],
)
def test_the_exit_status_is_that_of_a_rank_on_whichever_node(script, command, ending, status, said):
    path = script(f"import os, sys\nrank = int(os.environ['RANK'])\nprint('begun')\n{ending}\n")
    done = run([*command, "-n", "4", path])
    assert done.returncode == status and said in done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[{rank}] begun" for rank in range(4)]


def test_a_node_that_dies_is_named_and_ends_the_program_on_the_other(script, command, network):
    with begun(command, script(HOLDS)) as process:
        network.kill(network.nodes[1])  # its sshd, too
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"Ranks 2-3 were lost with the node {network.nodes[1]}" in errors and "%ranks" not in errors


def test_ctrl_c_interrupts_the_ranks_of_both_nodes(script, command):
    with begun(command, script(HOLDS)) as process:
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert sorted(output.splitlines()) == [f"[{rank}] interrupted" for rank in range(4)]
    assert "The program was interrupted." in errors and "train.py, line" in errors


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 128 + 15), (signal.SIGKILL, -9)])
def test_a_killed_command_ends_the_ranks_of_both_nodes(script, command, number, status):
    with begun(command, script(HOLDS)) as process:
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == status


@contextlib.contextmanager
def begun(command: list[str], path: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a program on four ranks, and wait until all of them have printed a line."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with started([*command, "-n", "4", path], **pipes) as process:
        lines = sorted(process.stdout.readline() for _ in range(4))
        assert lines == [f"[{rank}] begun\n" for rank in range(4)], process.communicate()[1]
        yield process


# --- what cannot be used ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "change", "said"),
    [
        ("{first},no-such-host", ("", ""), ["The node no-such-host cannot be used. ssh: Could not resolve"]),
        (
            "{first},{second}",
            ("ssh ", "ssh -p 9 "),
            ["{first} cannot", "{second} cannot", "Connection refused"],
        ),
        (
            "{first},{second}",
            ("/config", "/stranger"),
            ["{first} cannot", "{second} cannot", "Permission denied"],
        ),
        ("{first},{first}", ("", ""), ["The node {first} is named twice."]),
        ("{first}:1,{second}:2", ("", ""), ["4 ranks were asked for, and these nodes have room for 3."]),
        ("", ("", ""), ["'' names no node"]),
    ],
    ids=["unknown host", "wrong port", "unknown key", "named twice", "too few slots", "no name"],
)
def test_nodes_that_cannot_be_used_are_refused_with_the_reason(script, network, nodes, change, said):
    names = dict(zip(("first", "second"), network.nodes, strict=True))
    launcher = network.launcher.replace(*change) if change[0] else network.launcher
    done = run([*reached_by(launcher), "-n", "4", "--nodes", nodes.format(**names), script("print('ran')")])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("fourranks run: ") and "Traceback" not in done.stderr
    for words in said:
        assert words.format(**names) in done.stderr


def test_a_node_with_another_version_of_this_package_is_refused(script, command, tmp_path):
    copy = shutil.copytree(Path(fourranks.__file__).parent, tmp_path / "fourranks")
    (copy / "naming.py").write_text("# changed\n" + (copy / "naming.py").read_text())
    there = f'#!/bin/sh\nPYTHONPATH={tmp_path}:$PYTHONPATH exec {sys.executable} "$@"\n'
    (tmp_path / "python").write_text(there)
    (tmp_path / "python").chmod(0o755)
    environment = os.environ | {"FOURRANKS_NODE_PYTHON": str(tmp_path / "python")}
    done = run([*command, "-n", "4", script("print('ran')")], env=environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Its software differs: fourranks is" in done.stderr


def test_a_script_that_a_node_does_not_have_is_named_with_the_ranks_there(script, command, network):
    path = script("import torch.distributed as dist\ndist.init_process_group('gloo')")
    server = network.listening(network.nodes[1])[0][1]  # whose children see the folder covered
    cover = ["nsenter", "--target", server, "--mount", "mount", "-t", "tmpfs", "none", path.parent]
    subprocess.run(cover, check=True)
    done = run([*command, "-n", "4", path])
    assert done.returncode == 1
    assert "Ranks 2-3 raised FileNotFoundError" in done.stderr
    assert f"No such file or directory: {path} on " in done.stderr and "pathlib" not in done.stderr
    assert "Ranks 0-1 wait in init_process_group (train.py, line 2" in done.stderr
