"""What the ranks of a world get: a backend, devices, threads. The rules need no GPU."""

import subprocess
import sys

import pytest

from fourranks import hardware, zygote
from fourranks.errors import StartError
from fourranks.hardware import Gpus, place


def gpus(count: int, nccl: bool = True, trouble: str = "") -> Gpus:
    return Gpus(tuple(f"GPU type {number % 2}" for number in range(count)), nccl, trouble)


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


def test_each_rank_knows_the_name_of_its_gpu():
    assert place(3, "gloo", "cuda", lambda: gpus(2)).gpu_names == ("GPU type 0", "GPU type 1", "GPU type 0")
    assert place(2, "gloo", "cpu", lambda: gpus(2)).gpu_names == ("", "")


def test_gpus_without_nccl_in_torch_are_shared_over_gloo():
    assert place(2, "auto", "cuda", lambda: gpus(2, nccl=False)).backend == "gloo"
    assert place(2, "auto", "auto", lambda: gpus(2, nccl=False)).devices == ("cpu", "cpu")


def test_gpus_are_not_looked_for_when_they_do_not_matter():
    def find():
        raise AssertionError("looked for GPUs")

    assert place(2, "gloo", "auto", find).backend == place(2, "auto", "cpu", find).backend == "gloo"


@pytest.mark.parametrize(
    "backend, device, found, message",
    [
        ("nccl", "auto", gpus(3), "4 were asked for, and torch can use 3 GPUs.*--backend gloo --device cuda"),
        ("nccl", "auto", gpus(1), "torch can use 1 GPU here. Ask for fewer ranks"),
        ("nccl", "auto", gpus(4, nccl=False), "this build of torch has no NCCL"),
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
def test_the_processor_limit_of_a_container_is_read(files, quota, tmp_path, monkeypatch):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    monkeypatch.setattr(hardware, "_CGROUP", tmp_path)
    assert hardware.processor_quota() == quota


def test_a_container_limited_to_less_than_a_processor_still_has_one(tmp_path, monkeypatch):
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    monkeypatch.setattr(hardware, "_CGROUP", tmp_path)
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
