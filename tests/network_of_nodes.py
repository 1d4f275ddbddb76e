"""Machines for tests: network namespaces with addresses of their own, joined by a bridge. They need root."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

AHEAD = 1000  # seconds by which the second node's clock is ahead

# Reaches a node as a remote shell would: it prints a banner, runs the command, and knows nodes that are off.
_LAUNCHER = """#!/bin/sh
node=$1; shift
if [ -e "{folder}/$node.off" ]; then echo "$node: no route to host" >&2; exit 255; fi
echo "Welcome to $node. All use is monitored."
ahead=0
[ "$node" = "{second}" ] && ahead={ahead}
exec unshare --time --monotonic $ahead --fork ip netns exec "$node" "$@"
"""


class Network(NamedTuple):
    """Two nodes, and how to reach them."""

    nodes: list[str]
    addresses: list[str]
    gateway: str  # this machine's address, which belongs to no node
    launcher: str
    folder: Path

    def processes(self, node: str) -> list[int]:
        """List the processes that run on a node."""
        return [int(pid) for pid in _output("ip", "netns", "pids", node).split()]

    def listening(self, node: str) -> list[tuple[str, str]]:
        """List the addresses on which a node's processes listen, each with a process that does."""
        sockets = _output("ip", "netns", "exec", node, "ss", "-H", "-l", "-t", "-n", "-p").splitlines()
        return [(line.split()[3], line.partition("pid=")[2].partition(",")[0]) for line in sockets]

    def kill(self, node: str) -> None:
        """End a node at once, as a power failure would: nobody on it is left to tell of another's end."""
        processes = self.processes(node)
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in processes:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def switch_off(self, node: str) -> None:
        """Let a node end, and not be reached again until `switch_on`."""
        (self.folder / f"{node}.off").touch()
        self.kill(node)

    def switch_on(self, node: str) -> None:
        """Let a node be reached again."""
        (self.folder / f"{node}.off").unlink()


@contextlib.contextmanager
def network_of_nodes(folder: Path) -> Iterator[Network]:
    """Make two nodes, and take them down at the end; skips the test where that is not possible."""
    own = os.getpid()
    bridge, nodes, subnet = f"frb{own}", [f"fr{own}-a", f"fr{own}-b"], f"10.{64 + own % 64}.{own // 64 % 256}"
    if os.getuid() != 0:
        pytest.skip("only root can make network namespaces")
    if missing := [name for name in ("ip", "unshare") if shutil.which(name) is None]:
        pytest.skip(f"needs {' and '.join(missing)} (Debian's iproute2 and util-linux)")
    launcher = folder / "launch"
    launcher.write_text(_LAUNCHER.format(folder=folder, second=nodes[1], ahead=AHEAD))
    launcher.chmod(0o755)
    try:
        try:
            _join(bridge, nodes, subnet)
            _run(str(launcher), nodes[1], "true")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no such network can be made here: {' '.join(error.cmd)}: {error.stderr.strip()}")
        addresses = [f"{subnet}.1", f"{subnet}.2"]
        yield Network(nodes, addresses, f"{subnet}.254", f"{launcher} {{node}}", folder)
    finally:
        for link in (*_cables(bridge), bridge):  # Linux would take them down with a node, but not at once
            subprocess.run(["ip", "link", "delete", link], capture_output=True)
        for node in nodes:
            subprocess.run(["ip", "netns", "delete", node], capture_output=True)


def _join(bridge: str, nodes: list[str], subnet: str) -> None:
    """Make the nodes, each with a cable to the bridge, which this machine is on, too."""
    _run("ip", "link", "add", bridge, "type", "bridge")
    _run("ip", "addr", "add", f"{subnet}.254/24", "dev", bridge)
    _run("ip", "link", "set", bridge, "up")
    for number, (node, cable) in enumerate(zip(nodes, _cables(bridge), strict=True), 1):
        _run("ip", "netns", "add", node)
        _run("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", node)
        _run("ip", "link", "set", cable, "master", bridge, "up")
        _run("ip", "-n", node, "addr", "add", f"{subnet}.{number}/24", "dev", "eth0")
        for interface in ("eth0", "lo"):
            _run("ip", "-n", node, "link", "set", interface, "up")


def _cables(bridge: str) -> list[str]:
    return [bridge.replace("frb", "frv") + end for end in "ab"]


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
