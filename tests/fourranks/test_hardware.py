"""The zygote finds GPUs, and processors and caches are read from Linux, also in a container."""

import os
import subprocess
import sys

import pytest

from fourranks import hardware, zygote


@pytest.fixture
def cgroup(tmp_path, monkeypatch):
    """An empty folder in the place of that in which Linux says what a container may use."""
    monkeypatch.setattr(hardware, "_CGROUP", tmp_path)
    hardware.processor_quota.cache_clear()
    yield tmp_path
    hardware.processor_quota.cache_clear()


def test_the_zygote_finds_as_many_gpus_as_torch_does_in_a_process_of_its_own():
    program = "import torch; print(torch.cuda.device_count() if torch.cuda.is_available() else 0)"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert zygote.shared().gpus().count == int(answer.stdout)


@pytest.mark.parametrize("load, busyness", [(0.0, 1.0), (4.0, 1.0), (4.4, 1.1), (40.0, 10.0)])
def test_a_machine_is_as_busy_as_it_has_tasks_for_each_processor(load, busyness, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 99.0, 99.0))
    assert hardware.busyness() == pytest.approx(busyness)


def test_a_machine_that_does_not_tell_its_load_counts_as_idle(monkeypatch):
    def unobtainable():
        raise OSError

    monkeypatch.setattr(os, "getloadavg", unobtainable)
    assert hardware.busyness() == 1.0


@pytest.mark.parametrize(
    "files, quota",
    [
        ({"cpu.max": "max 100000"}, None),
        ({"cpu.max": "150000 100000"}, 1.5),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"}, 4.0),
        ({}, None),
    ],
)
def test_the_processor_limit_of_a_container_is_read(files, quota, cgroup):
    for name, text in files.items():
        (cgroup / name).parent.mkdir(exist_ok=True)
        (cgroup / name).write_text(text + "\n")
    assert hardware.processor_quota() == quota


def test_a_container_limited_to_less_than_a_processor_still_has_one(cgroup):
    (cgroup / "cpu.max").write_text("50000 100000\n")
    assert hardware.processors() == hardware.threads_per_rank(4) == 1


def test_the_caches_of_a_processor_are_read_without_those_for_instructions(tmp_path, monkeypatch):
    for index, (level, kind, size) in enumerate(
        [
            ("1", "Data", "48K"),
            ("1", "Instruction", "32K"),
            ("2", "Unified", "2048K"),
            ("3", "Unified", "30M"),
        ]
    ):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        for name, text in {"level": level, "type": kind, "size": size}.items():
            (folder / name).write_text(f"{text}\n")
    monkeypatch.setattr(hardware, "_CACHES", tmp_path)
    assert hardware.caches() == {"L1": 48 * 1024, "L2": 2048 * 1024}  # no kernel writes 30M


def test_there_may_be_nothing_to_read_about_caches(tmp_path, monkeypatch):
    monkeypatch.setattr(hardware, "_CACHES", tmp_path / "missing")
    assert hardware.caches() == {}
