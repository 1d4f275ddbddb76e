"""A world over nodes that a real sshd guards: keys that it knows, keys that it does not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import fourranks
from fourranks import StartError
from fourranks.nodes import cluster
from tests.sshd import serving


@pytest.fixture(autouse=True)
def _servers(network) -> Iterator[None]:
    with serving(network):
        yield
        cluster.disconnect()


def test_ranks_on_two_machines_that_ssh_reaches_communicate(network):
    with fourranks.start(2, "gloo", nodes=network.nodes, launcher=network.launcher) as group:
        group.execute("x = torch.ones(3) + rank; dist.all_reduce(x)")
        assert group.pull("x.tolist()") == [[3.0] * 3] * 2
        assert group.pull("__import__('os').environ['MASTER_ADDR']") == [network.addresses[0]] * 2
        for node in network.nodes:
            network.kill(node)  # sshd with its sessions, too
        with pytest.raises(fourranks.FourRanksError, match=f"lost with the node ({'|'.join(network.nodes)})"):
            group.execute("pass")


def test_a_key_that_the_node_does_not_know_is_refused_without_a_question(network):
    launcher = network.launcher.replace("/config ", "/stranger ")
    with pytest.raises(StartError, match=rf"{network.nodes[0]}[\s\S]*Permission denied"):
        fourranks.start(2, "gloo", nodes=network.nodes, launcher=launcher)
