"""The ranks of a world get a backend and devices. The rules need no GPU."""

import pytest

import fourranks
from fourranks.errors import StartError
from fourranks.hardware import Gpus
from fourranks.placement import BACKEND_VARIABLE, place, preferred_backend

OLD, NEW = (2, 29, 7), (2, 30, 7)  # of torch 2.13.0 and 2.15.0: only the newer lets ranks share a GPU


def gpus(count: int, nccl: tuple[int, ...] = OLD, trouble: str = "") -> Gpus:
    return Gpus(tuple(f"GPU type {number % 2}" for number in range(count)), nccl, trouble, "13.0")


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
    monkeypatch.delenv(BACKEND_VARIABLE, raising=False)
    if set_to:
        monkeypatch.setenv(BACKEND_VARIABLE, set_to)
    assert preferred_backend(backend, device) == asked


def test_a_backend_in_the_environment_that_there_is_not_is_refused(monkeypatch):
    monkeypatch.setenv(BACKEND_VARIABLE, "mpi")
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
