"""Ranks that are fresh processes, not forks: slower to start, and otherwise the same."""

from __future__ import annotations

import os
import sys
import threading

import pytest
import torch

import fourranks
from fourranks import DeadlockError, RankError, StartError
from fourranks.errors import plain


@pytest.fixture(scope="module")
def spawned():
    with fourranks.start(2, "gloo", start_method="spawn") as group:
        yield group


def test_spawned_ranks_are_python_processes_of_their_own(spawned):
    commands = spawned.pull("open('/proc/self/cmdline').read()")
    assert all("fourranks.spawn" in command for command in commands)
    assert spawned.start_method == "spawn"


def test_they_run_cells_calls_and_carry_values_as_forked_ones_do(spawned):
    assert str(spawned.execute("x = torch.arange(4.) + rank\ndist.all_reduce(x)\nx")).startswith(
        "[0-1] tensor"
    )
    spawned.push(big=torch.ones(100_000))
    assert [value.sum() for value in spawned.run(lambda tensor: tensor * 2, torch.ones(100_000))] == [
        200_000
    ] * 2
    assert spawned.pull("(rank, world_size, str(device), big.sum().item())") == [
        (0, 2, "cpu", 100_000.0),
        (1, 2, "cpu", 100_000.0),
    ]


def test_they_see_the_notebooks_settings_and_none_of_ours(spawned):
    names = ["PYTHONHASHSEED", "RANK", "MASTER_ADDR"]
    values = spawned.pull(f"[__import__('os').environ.get(name) for name in {names}]")
    assert values == [[os.environ.get(names[0]), str(rank), "127.0.0.1"] for rank in range(2)]
    assert spawned.pull("__import__('sys').path") == [sys.path] * 2


def test_they_agree_on_hashes(spawned):
    first, second = spawned.pull("hash('text')")
    assert first == second


def test_an_error_shows_the_cells_line(spawned):
    with pytest.raises(RankError) as caught:
        spawned.execute("kept = rank\n1 / rank")
    assert "----> 2 1 / rank" in plain(str(caught.value))


@pytest.mark.parametrize(
    "cell",
    [
        "dist.barrier() if rank else dist.all_reduce(torch.ones(1))",
        "dist.broadcast(torch.ones(1), src=rank)",
        "dist.all_reduce(torch.ones(1 + rank))",
        "dist.send(torch.ones(3), 1) if rank == 0 else dist.recv(torch.ones(2), 0)",
    ],
)
def test_a_contradiction_is_proven_and_costs_no_variable(spawned, cell):
    spawned.execute("kept = rank")
    with pytest.raises(DeadlockError):
        spawned.execute(cell)
    spawned.execute("dist.barrier()")
    assert spawned.pull("kept") == [0, 1]


def test_an_interrupt_reaches_them(spawned):
    threading.Timer(0.3, spawned.interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        spawned.execute("while True: pass")
    assert spawned.pull("rank") == [0, 1]


def test_a_start_method_that_does_not_exist_is_named():
    with pytest.raises(StartError, match="no start method 'forkserver'; choose auto, fork or spawn"):
        fourranks.start(start_method="forkserver")
