"""Another user of the machine tries to reach a world. See docs/security.md."""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

import fourranks
from fourranks import zygote
from fourranks.rank import connection_owner, rescue

NOBODY = 65534


@pytest.fixture(scope="module")
def world():
    """Four ranks with a sub-group of three."""
    with fourranks.start(4, "gloo") as group:
        group.execute("trio = dist.new_group([0, 1, 2])")
        yield group


def listening(pids):
    """All addresses that these processes listen on."""
    connections = [(pid, c) for pid in pids for c in psutil.Process(pid).net_connections("inet")]
    return {
        pid: [c.laddr for p, c in connections if p == pid and c.status == psutil.CONN_LISTEN] for pid in pids
    }


def test_only_the_store_and_gloo_listen_and_only_on_the_loopback_interface(world):
    ranks = [status.pid for status in world.status()]
    warm = zygote.shared()._process.pid
    found = listening([os.getpid(), warm, *ranks])
    assert found[os.getpid()] == found[warm] == []
    assert {address.ip for addresses in found.values() for address in addresses} == {"127.0.0.1"}
    # Gloo has one for each group that the rank is in; rank 0 serves the store.
    assert [len(found[pid]) for pid in ranks] == [3, 2, 2, 1]


def test_commands_come_through_unnamed_socket_pairs_that_nobody_can_connect_to(world):
    named = {
        line.split()[6] for line in Path("/proc/net/unix").read_text().splitlines() if len(line.split()) > 7
    }
    for pid in [zygote.shared()._process.pid, *(status.pid for status in world.status())]:
        targets = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
        inodes = {target[len("socket:[") : -1] for target in targets if target.startswith("socket:")}
        pairs = psutil.Process(pid).net_connections("unix")
        assert len(pairs) >= 1
        assert all(pair.laddr == "" and pair.raddr in ("", None) for pair in pairs)
        assert not inodes & named


class Payload:
    """A pickle that tells when it is loaded."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self):
        return open, (str(self.proof), "w")


def letters(pickled: bytes) -> list[bytes]:
    """Bytes that anyone may send a port: noise, pickles behind any kind of length, the store's protocol."""
    hello = struct.pack("=BI", 0, 0x3C85F7CE)  # torch's TCPStoreBackend.hpp
    behind_a_length = [struct.pack(f"{order}Q", len(pickled)) + pickled for order in "=!"]
    gloo_pairs = [struct.pack("=Q", number) + pickled for number in range(4)]
    huge = [hello + struct.pack("=BQ", 1, size) for size in (1 << 40, (1 << 64) - 1)]
    return [b"", b"\0" * 4096, os.urandom(1 << 16), pickled, *behind_a_length, *gloo_pairs, *huge]


def test_noise_and_pickles_on_every_port_run_nothing_and_break_nothing(world, tmp_path):
    pickled = pickle.dumps(Payload(tmp_path / "loaded"))
    ports = [
        address.port for found in listening([s.pid for s in world.status()]).values() for address in found
    ]
    for port in ports:
        for letter in letters(pickled):
            with socket.create_connection(("127.0.0.1", port)) as sock, contextlib.suppress(OSError):
                sock.sendall(letter)
    world.execute("if rank < 3: dist.all_reduce(torch.ones(1), group=trio)")
    world.execute("found = [None] * 4\ndist.all_gather_object(found, {'rank': rank})\ndist.new_group()")
    assert world.pull("found") == [[{"rank": rank} for rank in range(4)]] * 4
    assert not (tmp_path / "loaded").exists()


def test_ranks_are_formed_anew_although_somebody_holds_connections_to_all_their_ports(world):
    ports = [
        address.port for found in listening([s.pid for s in world.status()]).values() for address in found
    ]
    world.execute("kept = rank")
    with contextlib.ExitStack() as held:
        for port in ports:
            held.enter_context(socket.create_connection(("127.0.0.1", port)))
        with pytest.raises(fourranks.DeadlockError, match="free again"):
            world.execute("if rank: dist.barrier()")
        world.execute("dist.barrier()")
    assert world.pull("kept") == [0, 1, 2, 3]


# --- who is at the other end ---

LISTEN = """
import os, socket, sys
os.setuid(int(sys.argv[1]))
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
kept = server.accept() if sys.argv[2] == "accept" else None
sys.stdin.read()
"""


@contextlib.contextmanager
def connected_to(user: int, what: str = "accept"):
    """A connection of this process to one of another user's."""
    listener = subprocess.Popen(
        [sys.executable, "-c", LISTEN, str(user), what],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with listener:
        before = rescue.tcp_connections()
        with socket.create_connection(("127.0.0.1", int(listener.stdout.readline()))):
            yield rescue.tcp_connections() - before


def test_a_connection_to_a_process_of_this_user_is_let_be():
    with connected_to(os.getuid()) as connections:
        assert len(connections) == 1
        connection_owner.require_own(connections)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can play another user")
def test_what_code_on_a_rank_opens_to_other_machines_meanwhile_is_let_be():
    before = rescue.tcp_connections()
    with socket.create_server(("127.0.0.2", 0)) as server, socket.socket(type=socket.SOCK_DGRAM) as names:
        names.connect(("127.0.0.2", 53))  # as the system asks for a host's address
        assert rescue.tcp_connections() == before
        with socket.create_connection(server.getsockname(), source_address=("127.0.0.1", 0)):
            (opened,) = rescue.tcp_connections() - before
            connection_owner.require_own([opened])


def test_a_connection_to_another_users_process_is_refused():
    with connected_to(NOBODY) as connections, pytest.raises(PermissionError, match=f"of the user {NOBODY}"):
        connection_owner.require_own(connections)


def test_a_connection_that_both_ends_close_meanwhile_is_let_be():
    """As NCCL does when its ranks have found each other."""
    before = rescue.tcp_connections()
    with socket.create_server(("127.0.0.1", 0)) as server:
        far = socket.create_connection(server.getsockname())
        near, _ = server.accept()
        connections = {each for each in rescue.tcp_connections() - before if each.descriptor == near.fileno()}
        far.close()
        closing = threading.Timer(0.2, near.close)
        closing.start()
        connection_owner.require_own(connections)
        closing.join()


def test_a_connection_that_nobody_accepts_is_refused(monkeypatch):
    monkeypatch.setattr(connection_owner, "PATIENCE", 0.05)
    with connected_to(os.getuid(), "wait") as connections, pytest.raises(PermissionError, match="unknown"):
        connection_owner.require_own(connections)
