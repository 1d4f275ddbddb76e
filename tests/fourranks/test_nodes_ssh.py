"""A world over nodes that a real sshd guards: keys that it knows, keys that it does not."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import fourranks
from fourranks import StartError
from fourranks.nodes import cluster
from tests.network_of_nodes import Network, network_of_nodes
from tests.processes import started

SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin")
PORT = 2222
SERVER = """
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
"""
CLIENT = """
Host {first} {second}
    Port {port}
    IdentityFile {folder}/key
    IdentitiesOnly yes
    UserKnownHostsFile {folder}/known_hosts
    StrictHostKeyChecking accept-new
Host {first}
    HostName {first_address}
Host {second}
    HostName {second_address}
"""


@pytest.fixture(scope="module")
def network(tmp_path_factory) -> Iterator[Network]:
    if SSHD is None:
        pytest.skip("sshd is not installed here (Debian's openssh-server)")
    folder = tmp_path_factory.mktemp("ssh")
    Path("/run/sshd").mkdir(exist_ok=True)  # where sshd separates privileges
    for name in ("key", "host_key", "strange_key"):
        keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(keygen, check=True)
    with network_of_nodes(folder) as network, contextlib.ExitStack() as servers:
        (folder / "sshd_config").write_text(SERVER.format(port=PORT, folder=folder))
        fill = {"first": network.nodes[0], "second": network.nodes[1], "port": PORT, "folder": folder}
        first, second = network.addresses
        (folder / "config").write_text(CLIENT.format(**fill, first_address=first, second_address=second))
        for node in network.nodes:
            serve = [SSHD, "-D", "-e", "-f", str(folder / "sshd_config")]
            servers.enter_context(started(["ip", "netns", "exec", node, *serve], stderr=subprocess.DEVNULL))
        for address in network.addresses:
            _wait_for_port(address)
        yield network._replace(launcher=f"ssh -T -F {folder}/config -o BatchMode=yes {{node}}")
        cluster.disconnect()


def _wait_for_port(address: str) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            socket.create_connection((address, PORT), timeout=1).close()
            return
        time.sleep(0.05)


def test_ranks_on_two_machines_that_ssh_reaches_communicate(network):
    with fourranks.start(2, "gloo", nodes=network.nodes, launcher=network.launcher) as group:
        group.execute("x = torch.ones(3) + rank; dist.all_reduce(x)")
        assert group.pull("x.tolist()") == [[3.0] * 3] * 2
        assert group.pull("__import__('os').environ['MASTER_ADDR']") == [network.addresses[0]] * 2
        for node in network.nodes:
            network.kill(node)  # sshd with its sessions, too
        with pytest.raises(fourranks.FourRanksError, match=f"lost with the node {network.nodes[0]}"):
            group.execute("pass")


def test_a_key_that_the_node_does_not_know_is_refused_without_a_question(network):
    launcher = network.launcher.replace("ssh ", f"ssh -i {network.folder}/strange_key -o IdentityFile=none ")
    with pytest.raises(StartError, match=rf"{network.nodes[0]}[\s\S]*(Permission denied|Connection refused)"):
        fourranks.start(2, "gloo", nodes=network.nodes, launcher=launcher)
