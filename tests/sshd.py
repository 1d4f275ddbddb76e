"""Nodes for tests that a real sshd guards: keys, settings of both sides, and the servers themselves."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.network_of_nodes import Network, network_of_nodes
from tests.processes import listens, started

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
    IdentityFile {folder}/{key}
    IdentitiesOnly yes
    UserKnownHostsFile {folder}/known_hosts
    StrictHostKeyChecking accept-new
Host {first}
    HostName {first_address}
Host {second}
    HostName {second_address}
"""


@contextlib.contextmanager
def network_for_ssh(folder: Path) -> Iterator[Network]:
    """Make two nodes that ssh reaches while `serving`; skips the test where that is not possible.

    The launcher uses the settings in `config`; those in `stranger` have a key that the nodes do not know.
    """
    if SSHD is None or shutil.which("ssh") is None:
        pytest.skip("ssh or sshd is not installed here (Debian's openssh-client and openssh-server)")
    Path("/run/sshd").mkdir(exist_ok=True)  # where sshd separates privileges
    for name in ("key", "host_key", "strange_key"):
        keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(keygen, check=True)
    with network_of_nodes(folder) as network:
        (folder / "sshd_config").write_text(SERVER.format(port=PORT, folder=folder))
        fill = {"first": network.nodes[0], "second": network.nodes[1], "port": PORT, "folder": folder}
        first, second = network.addresses
        for name, key in (("config", "key"), ("stranger", "strange_key")):
            settings = CLIENT.format(**fill, key=key, first_address=first, second_address=second)
            (folder / name).write_text(settings)
        yield network._replace(launcher=f"ssh -T -F {folder}/config -o BatchMode=yes {{node}}")


@contextlib.contextmanager
def serving(network: Network) -> Iterator[None]:
    """Run sshd on both nodes."""
    serve = [SSHD, "-D", "-e", "-f", str(network.folder / "sshd_config")]
    with contextlib.ExitStack() as servers:
        for node in network.nodes:
            servers.enter_context(started(["ip", "netns", "exec", node, *serve], stderr=subprocess.DEVNULL))
        for address in network.addresses:
            _wait_for_port(address)
        yield


def _wait_for_port(address: str) -> None:
    deadline = time.monotonic() + 30
    while not listens(address, PORT) and time.monotonic() < deadline:
        time.sleep(0.05)
