"""A world over two nodes, which are network namespaces: it works as on one machine, and nodes fail.

The second node's clock is ahead by `AHEAD`, and both print a banner before anything else.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import fourranks
from fourranks import CellTimeout, DeadlockError, FourRanksError, RankDied, StartError
from fourranks.nodes import cluster
from fourranks.rank import connection_owner, rescue
from fourranks.views.static_dashboard import StaticDashboard
from fourranks.views.status import StatusTable
from tests.network_of_nodes import AHEAD, network_of_nodes
from tests.processes import started


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    with network_of_nodes(tmp_path_factory.mktemp("nodes")) as network:
        yield network
        cluster.disconnect()


@pytest.fixture(scope="module")
def world(network):
    """Four ranks, two on each node."""
    with fourranks.start(4, "gloo", nodes=network.nodes, launcher=network.launcher) as group:
        yield group


def wait_until(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return holds


# --- as on one machine -----------------------------------------------------------------------------------


def test_ranks_are_packed_by_node_and_know_it_as_under_torchrun(world, network):
    names = ("RANK", "LOCAL_RANK", "GROUP_RANK", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "MASTER_ADDR")
    found = world.pull(f"tuple(__import__('os').environ[name] for name in {names})")
    first = network.addresses[0]
    assert found == [(str(rank), str(rank % 2), str(rank // 2), "2", "2", first) for rank in range(4)]


def test_the_status_names_the_node_of_each_rank(world, network):
    assert [status.node for status in world.status()] == [network.nodes[rank // 2] for rank in range(4)]
    for table in (StatusTable(world.status()), StaticDashboard(world)):
        assert network.nodes[1] in repr(table)
    assert all(status.memory_bytes > 2**20 for status in world.status())


def test_large_values_travel_between_nodes_and_to_the_notebook(world):
    sent = np.arange(3_000_000, dtype="float32")  # in a file in memory, three times the window of a stream
    world.push(large=sent)
    world.execute("x = torch.from_numpy(large) + rank; dist.all_reduce(x)")
    for found in world.pull("x.numpy()"):
        assert np.array_equal(found, 4 * sent + 6)


def test_what_c_code_and_children_print_arrives_in_full(world):
    shown = world.execute("import subprocess; _ = subprocess.run(['echo', f'from rank {rank}'])", [1, 3])
    assert str(shown) == "[1] from rank 1\n[3] from rank 3"


def test_output_that_nobody_reads_holds_up_no_other_rank(world):
    flood = "import subprocess; flood = subprocess.Popen(['head', '-c', '30000000', '/dev/zero'])"
    world.execute(flood, ranks=[3])
    world.execute("before = 1", ranks=[2], timeout=20)
    world.execute("flood.kill()", ranks=[3])


def test_a_deadlock_between_nodes_is_proven_and_costs_no_variable(world):
    world.execute("kept = rank")
    with pytest.raises(DeadlockError, match=r"Ranks 0-2 wait in barrier[\s\S]*Rank 3 finished the cell"):
        world.execute("if rank < 3: dist.barrier()")
    assert world.pull("kept") == [0, 1, 2, 3]


def test_a_cell_on_all_nodes_can_be_stopped(world):
    with pytest.raises(CellTimeout, match="Ranks 0-3"):
        world.execute("import time\nwhile True: time.sleep(0.01)", timeout=0.5)
    assert world.pull("rank") == [0, 1, 2, 3]


def test_times_of_all_nodes_are_by_the_notebooks_clock(world, tmp_path):
    apart = world.pull("__import__('time').perf_counter()", ranks=[0, 3])
    assert apart[1] - apart[0] > AHEAD - 100  # else this test shows nothing
    before = time.perf_counter()
    with world.trace() as trace:
        world.execute("dist.barrier()")
    after = time.perf_counter()
    assert 0 < trace.clock_uncertainty < 5
    for record in trace.cells[0].values():
        assert before - trace.clock_uncertainty < record.start < record.calls[0].start < record.end
        assert record.end < after + trace.clock_uncertainty
    texts = [text.get_text() for text in trace.timeline().axes[0].texts]
    assert any(text.startswith("clocks of the nodes: ±") for text in texts)
    written = json.loads(trace.to_chrome(tmp_path / "trace.json").read_text())
    assert written["otherData"] == {"clock uncertainty in seconds": trace.clock_uncertainty}


def test_variables_set_in_the_notebook_travel_and_those_of_the_machine_do_not(network, world, monkeypatch):
    monkeypatch.setenv("MY_SETTING", "7")
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nowhere")
    world.restart()
    look = "[__import__('os').environ.get(n) for n in ('MY_SETTING', 'NCCL_DEBUG', 'LD_LIBRARY_PATH')]"
    assert [found[:2] for found in world.pull(look)] == [["7", "WARN"]] * 4
    assert "/nowhere" not in [found[2] for found in world.pull(look)]


def test_ranks_of_different_nodes_agree_on_hashes(world):
    assert len(set(world.pull("hash('a word')"))) == 1


def test_a_world_over_nodes_keeps_its_number_of_ranks(world):
    with pytest.raises(StartError, match="start a new one"):
        world.resize(3)
    assert world.pull("rank") == [0, 1, 2, 3]


def test_the_environment_can_name_the_nodes(network, world, monkeypatch):
    monkeypatch.setenv("FOURRANKS_NODES", f"{network.nodes[0]}:1,{network.nodes[1]}:1")
    monkeypatch.setenv("FOURRANKS_LAUNCHER", network.launcher)
    with fourranks.start(2, "gloo") as group:
        assert group.nodes == network.nodes
        assert group.pull("rank") == [0, 1]


# --- nodes that fail -------------------------------------------------------------------------------------


def test_shapes_that_differ_between_nodes_end_a_rank_with_an_explanation(world):
    with pytest.raises(RankDied, match=r"on the node fr.* Gloo ends a process that gets more bytes"):
        world.execute("dist.all_reduce(torch.ones(10 if rank < 2 else 20))")
    world.restart()


def test_a_node_that_dies_in_the_middle_of_a_cell_is_named_and_a_restart_does_without_it(world, network):
    first, second = network.nodes
    world.execute("kept = rank")
    threading.Timer(0.5, network.switch_off, [second]).start()
    try:
        with pytest.raises(RankDied, match=f"Ranks 2-3 were lost with the node {second}"):
            world.execute("while True: dist.all_reduce(torch.ones(3))", timeout=60)
        assert world.pull("kept", ranks=[0, 1]) == [0, 1]
        world.restart()
        assert [status.node for status in world.status()] == [first] * 4
        assert "no route to host" in world.missing_nodes[second]
    finally:
        network.switch_on(second)
    world.restart()
    assert (world.nodes, world.missing_nodes) == (network.nodes, {})
    assert world.pull("rank") == [0, 1, 2, 3]


def test_a_restart_says_what_is_missing_when_the_rest_has_no_room(network, world):
    slots = [f"{node}:1" for node in network.nodes]
    with fourranks.start(2, "gloo", nodes=slots, launcher=network.launcher) as group:
        network.switch_off(network.nodes[1])
        try:
            with pytest.raises(StartError, match=r"room for 1\.[\s\S]*no route to host"):
                group.restart()
        finally:
            network.switch_on(network.nodes[1])
        with pytest.raises(FourRanksError, match="was stopped"):
            group.pull("rank")
    world.restart()


def test_the_ranks_of_a_notebook_that_is_killed_end_on_their_nodes(network, world):
    world.stop()
    cluster.disconnect()
    assert wait_until(lambda: not network.processes(network.nodes[0]))
    program = f"""
import fourranks, time
group = fourranks.start(2, "gloo", nodes={network.nodes}, launcher={network.launcher!r})
print("ready", flush=True)
time.sleep(600)
"""
    with started([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as notebook:
        assert notebook.stdout.readline() == "ready\n"
        assert network.processes(network.nodes[0])
        notebook.send_signal(signal.SIGKILL)
        assert wait_until(lambda: not any(map(network.processes, network.nodes)))


# --- strangers -------------------------------------------------------------------------------------------


def test_nothing_but_ranks_listens_on_a_node_and_only_on_its_own_address(network, world):
    world.restart()
    ranks = {str(status.pid) for status in world.status()}
    for node, address in zip(network.nodes, network.addresses, strict=True):
        listening = network.listening(node)
        assert listening
        hosts = {where.rpartition(":")[0].removeprefix("[::ffff:").strip("[]") for where, _ in listening}
        assert hosts == {address}
        assert {pid for _, pid in listening} <= ranks


def test_a_connection_from_outside_of_the_world_is_refused(network, monkeypatch):
    monkeypatch.setattr(connection_owner, "_hosts", frozenset({network.addresses[1]}))
    with socket.create_server((network.gateway, 0)) as listener:
        program = (
            f"import socket, time; s = socket.create_connection({listener.getsockname()}); time.sleep(60)"
        )
        with started(["ip", "netns", "exec", network.nodes[0], sys.executable, "-c", program]):
            before = rescue.tcp_connections()
            accepted, _ = listener.accept()
            with accepted, pytest.raises(PermissionError, match=f"{network.addresses[0]}, which is no node"):
                connection_owner.require_own(rescue.tcp_connections() - before)
