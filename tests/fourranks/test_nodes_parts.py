"""How nodes are named, reached, compared and timed, and what the one connection to a node carries."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest
from IPython.core.error import UsageError

import fourranks
from fourranks import StartError, commands
from fourranks.nodes import addresses, launchers, on_ray, versions
from fourranks.nodes.addresses import Interface
from fourranks.nodes.clock import ClockComparison, shifted
from fourranks.nodes.environment import travelling
from fourranks.nodes.messages import MARK, Greeting, Pong
from fourranks.nodes.names import NamedNode, asked_for, shares
from fourranks.nodes.streams import WINDOW, ByteStream, Multiplexer
from fourranks.protocol.bars import Bar
from fourranks.protocol.calls import Call, Record
from fourranks.protocol.channel import Channel
from fourranks.protocol.messages import Done, Push, State
from fourranks.protocol.parcel import pack
from fourranks.protocol.progress import Progress

# --- names -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("written", ["a,b:4", " a , b:4,", ["a", "b:4"]])
def test_nodes_are_named_with_or_without_slots(written):
    assert asked_for(written) == [NamedNode("a"), NamedNode("b", 4)]


@pytest.mark.parametrize(
    ("written", "trouble"),
    [
        ("a:", "does not name a node"),
        (":4", "does not name a node"),
        ("a:0", "does not name a node"),
        ("a:x", "does not name a node"),
        ("a b", "'a b' does not name a node"),
        ('"a,b"', "does not name a node"),
        ("a,b,a", "named twice"),
        ("", "'' names no node"),
        (" , ", "names no node"),
        ([""], "names no node"),
        (3, "given by their names, not as 3"),
        (["a", 1], "given by their names"),
        ("slurm", "in none"),
    ],
)
def test_nodes_that_cannot_be_read_are_refused(monkeypatch, written, trouble):
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    with pytest.raises(StartError, match=trouble):
        fourranks.start(2, nodes=written)


def test_no_nodes_at_all_mean_this_machine_whatever_the_environment_says(monkeypatch):
    monkeypatch.setenv("FOURRANKS_NODES", "a,b")
    assert asked_for(()) == []
    assert asked_for(None) == [NamedNode("a"), NamedNode("b")]


@pytest.mark.parametrize(
    ("world_size", "slots", "dealt"),
    [
        (8, [None, None], [4, 4]),
        (5, [None, None], [3, 2]),
        (8, [2, 6], [2, 6]),
        (4, [1, None, 1], [1, 2, 1]),
        (1, [None, None], [1, 0]),
    ],
)
def test_ranks_are_dealt_out_evenly_as_far_as_there_is_room(world_size, slots, dealt):
    assert shares(world_size, slots) == dealt


def test_too_few_slots_are_refused_with_their_number():
    with pytest.raises(StartError, match="5 ranks were asked for, and these nodes have room for 4"):
        shares(5, [2, 2])


def test_too_few_slots_are_refused_before_any_node_is_reached():
    with pytest.raises(StartError, match="room for 2") as refused:
        fourranks.start(4, nodes="a:1,b:1", launcher="false {node}")
    assert "cannot be used" not in str(refused.value)


def test_ray_that_is_not_installed_is_named_with_what_installs_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(StartError, match=r"pip install 'fourranks\[ray\]'"):
        fourranks.start(2, on="ray")


@pytest.mark.parametrize(
    ("options", "trouble"),
    [
        ({"on": "dask"}, "cannot be started on 'dask'; choose ray"),
        ({"on": "ray", "nodes": "a,b"}, "leave nodes and launcher out"),
        ({"on": "ray", "launcher": "ssh"}, "leave nodes and launcher out"),
    ],
)
def test_a_cluster_that_there_is_not_or_that_is_told_its_nodes_is_refused(options, trouble):
    with pytest.raises(StartError, match=trouble):
        fourranks.start(2, **options)


@pytest.mark.parametrize(
    ("backend", "device", "resource"),
    [
        ("auto", "auto", ""),
        ("gloo", "auto", "CPU"),
        ("auto", "cpu", "CPU"),
        ("nccl", "auto", "GPU"),
        ("gloo", "cuda", "GPU"),
    ],
)
def test_a_rank_takes_a_gpu_of_rays_where_it_computes_on_one(backend, device, resource):
    assert on_ray.resource_for(backend, device) == resource


def test_a_line_of_the_notebook_names_a_cluster():
    assert commands.parse_line("start -n 8 --on ray", False).on == "ray"
    with pytest.raises(UsageError, match="invalid choice: 'dask'"):
        commands.parse_line("start --on dask", False)


def test_what_stands_in_quotes_on_a_line_is_one_word():
    line = """start --nodes a,b --launcher 'ssh -p 2222 {node}'  # it's a port of ours"""
    assert commands.parse_line(line, False).launcher == "ssh -p 2222 {node}"
    assert commands.parse_cell_line('--save-script "my program.py"').save_script == Path("my program.py")
    with pytest.raises(UsageError, match="cannot be read: --out 'x. No closing quotation"):
        commands.parse_cell_line("--out 'x")


def test_a_line_of_the_notebook_names_nodes_and_launcher():
    options = commands.parse_line("start -n 8 --nodes a,b:4 --launcher srun", False)
    assert (options.world_size, options.nodes, options.launcher) == (8, "a,b:4", "srun")


# --- launchers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("launcher", "trouble"), [("rsh", "no launcher 'rsh'"), ("no-such {node}", "no-such")]
)
def test_a_launcher_that_is_none_is_refused(launcher, trouble):
    with pytest.raises(StartError, match=trouble):
        fourranks.start(2, nodes="a", launcher=launcher)


def test_a_node_cannot_pass_for_an_option_of_the_launcher():
    with pytest.raises(StartError, match="does not name a node"):
        launchers.command_on("-oProxyCommand=true", launchers.SSH, ["true"])


def test_ssh_gets_words_that_a_shell_leaves_as_they_are():
    assert launchers.command_on("a", "ssh {node}", ["env", "X=a b"]) == ["ssh", "a", "env", "'X=a b'"]
    assert launchers.command_on("a", "other {node}", ["env", "X=a b"]) == ["other", "a", "env", "X=a b"]


def test_a_node_without_the_package_says_so_in_the_launchers_words(monkeypatch, program):
    program("ssh")
    monkeypatch.setenv("FOURRANKS_NODE_PYTHON", "/no/such/python")
    with pytest.raises(StartError, match=r"node localhost cannot be used\. [\s\S]*/no/such/python") as caught:
        fourranks.start(2, nodes="localhost")
    assert "Install the same there as here" in str(caught.value)


@pytest.mark.parametrize(
    ("printed", "missing"),
    [
        ("python3: Error while finding module specification for 'fourranks.nodes.agent' "
         "(ModuleNotFoundError: No module named 'fourranks')", "fourranks"),
        ("Traceback (most recent call last):\n  …\nModuleNotFoundError: No module named 'torch'", "torch"),
        ("python3: No module named fourranks.nodes", "fourranks.nodes"),
    ],
)  # fmt: skip
def test_what_a_nodes_python_lacks_is_named_without_a_traceback(tmp_path, printed, missing):
    (tmp_path / "launch").write_text(f"cat >&2 <<'END'\n{printed}\nEND\nexit 1")
    with pytest.raises(StartError) as caught:
        fourranks.start(2, nodes="b", launcher=f"sh {tmp_path}/launch {{node}}")
    first, second = str(caught.value).splitlines()
    assert first == f"The node b cannot be used. Its Python has no module {missing}."
    assert "FOURRANKS_NODE_PYTHON" in second


def test_a_node_with_another_torch_is_refused_with_both_versions(tmp_path):
    greeting = Greeting("b", versions.own() | {"torch": "1.0"}, [])
    (tmp_path / "greeting").write_text(f"Welcome!\n{greeting.line()}")
    (tmp_path / "launch").write_text(f"cat {tmp_path}/greeting; exec cat")
    launcher = f"sh {tmp_path}/launch {{node}}"
    with pytest.raises(StartError, match=r"torch is .* here and 1\.0 on b\."):
        fourranks.start(2, nodes="b", launcher=launcher)


# --- what both ends compare ------------------------------------------------------------------------------


def test_a_greeting_is_read_from_its_line_and_nothing_else_is_one():
    greeting = Greeting("b", {"torch": "2"}, [Interface("eth0", "10.0.0.2", "255.0.0.0")])
    assert Greeting.read(greeting.line()) == greeting
    assert Greeting.read("Last login: today\n") is None
    assert greeting.line().startswith(MARK)


LOOPBACK = Interface("lo", "127.0.0.1", "255.0.0.0")
OUTSIDE = Interface("eth0", "10.0.0.1", "255.255.255.0")
DOCKER = Interface("docker0", "172.17.0.1", "255.255.0.0")
OTHER = Interface("eth1", "10.0.0.2", "255.255.255.0")


def test_nodes_that_are_all_this_machine_use_its_loopback_interface():
    assert addresses.chosen([("a", [LOOPBACK, OUTSIDE]), ("b", [LOOPBACK, OUTSIDE])]) == [LOOPBACK] * 2


def test_this_machine_is_reached_by_the_network_that_it_shares_with_another_node():
    found = addresses.chosen([("localhost", [LOOPBACK, DOCKER, OUTSIDE]), ("b", [OTHER, LOOPBACK])])
    assert found == [OUTSIDE, OTHER]


def test_a_node_that_no_other_can_reach_is_refused():
    with pytest.raises(StartError, match="node a is reached by its loopback interface"):
        addresses.chosen([("a", [LOOPBACK]), ("b", [OTHER])])


def test_only_what_the_reader_has_set_travels_to_other_machines():
    changed = {"PATH": "/mine", "MY_SETTING": "1", "NCCL_DEBUG": "INFO", "JPY_PARENT_PID": "1"}
    assert travelling({**os.environ, **changed}).keys() & changed.keys() == {"MY_SETTING", "NCCL_DEBUG"}
    assert "HOME" not in travelling(os.environ)


# --- clocks ----------------------------------------------------------------------------------------------


def test_the_shortest_round_trip_tells_the_difference_of_two_clocks():
    comparison = ClockComparison()
    comparison.note(Pong(sent=1.0, clock=101.5, resident={}), now=3.0)
    comparison.note(Pong(sent=4.0, clock=104.1, resident={}), now=4.25)
    comparison.note(Pong(sent=6.0, clock=107.0, resident={}), now=7.0)
    best = comparison.best()
    assert (best.ahead, best.uncertainty) == (pytest.approx(99.975), pytest.approx(0.125))


def test_all_times_of_a_message_are_shifted_once():
    call = Call("send", "0", (0, 1), start=1.0, end=2.0, completed=3.0)
    state = State(True, Progress(waits=[call], recent=[call]), at=5.0, bars=(Bar("", None, 0, 0, 4.0),))
    assert shifted(state, 10.0).at == 15.0
    assert (call.start, call.end, call.completed, state.bars[0].began) == (11.0, 12.0, 13.0, 14.0)
    done = Done(record=Record(1.0, 2.0, [Call("send", "0", (0, 1), start=1.5)], {}))
    record = shifted(done, -1.0).record
    assert (record.start, record.end, record.calls[0].start, record.calls[0].end) == (0.0, 1.0, 0.5, None)


# --- streams ---------------------------------------------------------------------------------------------


@pytest.fixture
def connections():
    """Both ends of a connection, each run by a thread of its own."""
    ours, theirs = socket.socketpair()
    received: list[list[object]] = [[], []]
    inner: list[socket.socket] = []
    ends = [
        Multiplexer(sock.fileno(), os.dup(sock.fileno()), inbox.append)
        for sock, inbox in zip((ours, theirs), received, strict=True)
    ]
    over = threading.Event()

    def run(end):
        while not over.is_set():
            end.step(0.01)

    threads = [threading.Thread(target=run, args=[end]) for end in ends]
    yield ends, inner, lambda: [thread.start() for thread in threads]
    over.set()
    for thread in threads:
        if thread.ident is not None:
            thread.join()
    for sock in inner:
        sock.close()
    for end in ends:
        os.close(end._frames.target)
    ours.close()
    theirs.close()


def joined(connections, number):
    """Carry a socket pair over the connection; returns the outer ends."""
    ends, inner, _ = connections
    outer = []
    for end in ends:
        mine, sock = socket.socketpair()
        inner.append(sock)
        end.add(ByteStream(number, sock.fileno(), sock))
        outer.append(mine)
    return outer


def test_messages_arrive_with_the_files_that_travel_along(connections):
    *_, run = connections
    left, right = joined(connections, 1)
    run()
    sender, receiver = Channel(left, blocking=True), Channel(right, blocking=True)
    large = b"x" * (WINDOW + 1234)
    for value in (b"first", large, b"second", large[::-1]):
        sender.send(Push(pack({"value": value}), {}))
    for value in (b"first", large, b"second", large[::-1]):
        assert receiver.receive().parcel.unpack() == {"value": value}
    receiver.send("answer")
    assert sender.receive() == "answer"
    sender.close()
    with pytest.raises(EOFError):
        receiver.receive()
    receiver.close()


def test_a_stream_that_is_not_read_leaves_room_for_the_others(connections):
    *_, run = connections
    stuck, unread = joined(connections, 1)
    left, right = joined(connections, 2)
    run()
    stuck.settimeout(1)
    sent = 0
    with pytest.raises(TimeoutError):
        while sent < 3 * WINDOW:
            sent += stuck.send(bytes(1 << 16))
    assert sent >= WINDOW
    left.sendall(b"through")
    assert right.recv(16) == b"through"
    for sock in (stuck, unread, left, right):
        sock.close()
