"""The ranks of a world get a backend, devices, threads. The rules need no GPU."""

import os
import subprocess
import sys

import pytest

import fourranks
from fourranks import hardware, zygote
from fourranks.errors import StartError
from fourranks.hardware import Gpus, place

OLD, NEW = (2, 29, 7), (2, 30, 7)  # of torch 2.13.0 and 2.15.0: only the newer lets ranks share a GPU


def gpus(count: int, nccl: tuple[int, ...] = OLD, trouble: str = "") -> Gpus:
    return Gpus(tuple(f"GPU type {number % 2}" for number in range(count)), nccl, trouble, "13.0")


@pytest.fixture
def cgroup(tmp_path, monkeypatch):
    """An empty folder in the place of that in which Linux says what a container may use."""
    monkeypatch.setattr(hardware, "_CGROUP", tmp_path)
    hardware.processor_quota.cache_clear()
    yield tmp_path
    hardware.processor_quota.cache_clear()


@pytest.mark.parametrize(
    "world_size, backend, device, count, chosen, devices",
    [
        (4, "auto", "auto", 0, "gloo", "cpu cpu cpu cpu"),
        (4, "auto", "auto", 3, "gloo", "cpu cpu cpu cpu"),
        (4, "auto", "auto", 4, "nccl", "cuda:0 cuda:1 cuda:2 cuda:3"),
        (2, "auto", "auto", 8, "nccl", "cuda:0 cuda:1"),
        (2, "nccl", "auto", 2, "nccl", "cuda:0 cuda:1"),
        (2, "nccl", "cuda", 2, "nccl", "cuda:0 cuda:1"),
        (2, "auto", "cuda", 2, "nccl", "cuda:0 cuda:1"),
        (4, "auto", "cuda", 1, "gloo", "cuda:0 cuda:0 cuda:0 cuda:0"),
        (5, "auto", "cuda", 2, "gloo", "cuda:0 cuda:1 cuda:0 cuda:1 cuda:0"),
        (2, "gloo", "cuda", 2, "gloo", "cuda:0 cuda:1"),
        (2, "gloo", "auto", 2, "gloo", "cpu cpu"),
        (2, "auto", "cpu", 2, "gloo", "cpu cpu"),
    ],
)
def test_a_world_is_placed(world_size, backend, device, count, chosen, devices):
    placement = place(world_size, backend, device, lambda: gpus(count))
    assert (placement.backend, placement.devices) == (chosen, tuple(devices.split()))


@pytest.mark.parametrize(
    "world_size, backend, device, count, nccl, chosen, per_gpu",
    [
        (4, "nccl", "auto", 1, NEW, "nccl", 4),
        (4, "nccl", "cuda", 2, NEW, "nccl", 2),
        (5, "nccl", "auto", 2, (2, 32, 3), "nccl", 3),
        (4, "nccl", "auto", 4, NEW, "nccl", 1),
        (4, "nccl", "auto", 4, OLD, "nccl", 1),
        (4, "auto", "auto", 1, NEW, "gloo", 0),  # until it has been measured
        (4, "auto", "cuda", 1, NEW, "gloo", 4),
        (4, "gloo", "cuda", 1, OLD, "gloo", 4),
    ],
)
def test_ranks_share_gpus_over_nccl_where_they_ask_for_it(
    world_size, backend, device, count, nccl, chosen, per_gpu
):
    placement = place(world_size, backend, device, lambda: gpus(count, nccl))
    assert (placement.backend, placement.ranks_per_gpu) == (chosen, per_gpu)


def test_an_nccl_too_old_to_share_a_gpu_is_refused_with_the_command_that_makes_it_new_enough():
    with pytest.raises(StartError) as refused:
        place(4, "nccl", "auto", lambda: gpus(1, OLD))
    assert "NCCL 2.29.7 needs a GPU for each rank: 4 ranks were asked for" in str(refused.value)
    assert "`%pip install --upgrade --no-deps 'nvidia-nccl-cu13>=2.30'`" in str(refused.value)


@pytest.mark.parametrize(
    "set_to, backend, device, asked",
    [
        ("nccl", "auto", "auto", "nccl"),
        ("gloo", "auto", "cuda", "gloo"),
        ("nccl", "gloo", "auto", "gloo"),
        ("nccl", "auto", "cpu", "auto"),
        (None, "auto", "auto", "auto"),
    ],
)
def test_the_environment_chooses_the_backend_where_the_reader_does_not(
    set_to, backend, device, asked, monkeypatch
):
    monkeypatch.delenv(hardware.BACKEND_VARIABLE, raising=False)
    if set_to:
        monkeypatch.setenv(hardware.BACKEND_VARIABLE, set_to)
    assert hardware.preferred_backend(backend, device) == asked


def test_a_backend_in_the_environment_that_there_is_not_is_refused(monkeypatch):
    monkeypatch.setenv(hardware.BACKEND_VARIABLE, "mpi")
    with pytest.raises(StartError, match="There is no backend 'mpi'"):
        fourranks.start(1)


def test_each_rank_knows_the_name_of_its_gpu():
    assert place(3, "gloo", "cuda", lambda: gpus(2)).gpu_names == ("GPU type 0", "GPU type 1", "GPU type 0")
    assert place(2, "gloo", "cpu", lambda: gpus(2)).gpu_names == ("", "")


def test_gpus_without_nccl_in_torch_are_shared_over_gloo():
    assert place(2, "auto", "cuda", lambda: gpus(2, nccl=())).backend == "gloo"
    assert place(2, "auto", "auto", lambda: gpus(2, nccl=())).devices == ("cpu", "cpu")


def test_gpus_are_not_looked_for_when_they_do_not_matter():
    def find():
        raise AssertionError("looked for GPUs")

    assert place(2, "gloo", "auto", find).backend == place(2, "auto", "cpu", find).backend == "gloo"


@pytest.mark.parametrize(
    "backend, device, found, message",
    [
        (
            "nccl",
            "auto",
            gpus(3),
            "4 ranks were asked for.*torch can use 3 GPUs.*--backend gloo --device cuda",
        ),
        ("nccl", "auto", gpus(1), "torch can use 1 GPU here.*Or ask for fewer ranks"),
        ("nccl", "auto", gpus(0, NEW), "NCCL needs a GPU: 4 ranks were asked for.*--backend gloo"),
        ("nccl", "auto", gpus(4, nccl=()), "This build of torch has no NCCL"),
        ("nccl", "auto", gpus(0, trouble="the driver is too old"), r"no GPU here \(the driver is too old\)"),
        ("nccl", "cpu", gpus(4), "NCCL moves tensors between GPUs only"),
        ("gloo", "cuda", gpus(0), "--device cuda needs a GPU"),
        ("auto", "cuda", gpus(0), "--device cuda needs a GPU"),
        ("mpi", "auto", gpus(4), "There is no backend 'mpi'; choose auto, gloo or nccl"),
        ("gloo", "tpu", gpus(4), "There is no device 'tpu'; choose auto, cpu or cuda"),
    ],
)
def test_what_cannot_be_placed_says_why_and_what_to_ask_for(backend, device, found, message, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(StartError, match=message):
        place(4, backend, device, lambda: found)


def test_a_lack_of_gpus_names_the_environment_variable_that_may_cause_it(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    with pytest.raises(StartError, match="CUDA_VISIBLE_DEVICES is '7'"):
        place(2, "nccl", "auto", lambda: gpus(0))


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
