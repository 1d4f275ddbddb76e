"""Worlds for the tests of `fourranks`, and the proof that none of them leaves anything behind."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import psutil
import pytest

import fourranks
from fourranks import zygote
from tests.network_of_nodes import Network
from tests.sshd import network_for_ssh


@pytest.fixture(scope="session", autouse=True)
def no_process_left_behind():
    """When all tests are over and the zygote is stopped, this process has no children."""
    yield
    zygote.stop_shared()
    left = _children_after(seconds=5)
    assert not left, f"processes left behind: {left}"


@pytest.fixture(scope="module")
def shared_group():
    """Four ranks for tests that leave the world as they found it."""
    with fourranks.start(4, "gloo") as group:
        yield group


@pytest.fixture
def group():
    """Four ranks for one test, which may do to them what it likes."""
    with fourranks.start(4, "gloo") as group:
        yield group


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """Two nodes that ssh reaches, once their servers are started."""
    with network_for_ssh(tmp_path_factory.mktemp("ssh")) as network:
        yield network


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that is marked with `gpu` where GPUs are lacking."""
    for marker in item.iter_markers("gpu"):
        needed, found = (*marker.args, 1)[0], zygote.shared().gpus().count
        if found < needed:
            pytest.skip(f"needs {needed} GPU{'s' * (needed > 1)}; torch can use {found} here")


def _children_after(seconds: float) -> list[psutil.Process]:
    deadline = time.monotonic() + seconds
    while (children := _children()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return children


def _children() -> list[psutil.Process]:
    """All but the one that multiprocessing keeps for as long as Python runs."""
    return [child for child in psutil.Process().children(recursive=True) if not _is_multiprocessings(child)]


def _is_multiprocessings(child: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):  # it has ended, perhaps without having been waited for
        return "multiprocessing.resource_tracker" in str(child.cmdline())
    return False
