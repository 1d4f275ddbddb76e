"""Grading on NCCL besides Gloo: an answer counts only if it passes on both.

Where there are no two GPUs, Gloo runs in NCCL's place, in the sandbox that would have the GPUs.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook
from nbgrader.utils import determine_grade

from autograder import check
from autograder.grading import machine, referee
from autograder.inside import call_on_rank
from autograder.inside.drivers import checkpoints
from autograder.kit.student import NotebookFunction
from autograder.sandbox import student_process
from autograder.sandbox.student_process import StudentProcess
from autograder.sandbox.tiers import Tier
from fourranks import zygote
from fourranks.placement import can_host_nccl

RIGHT = """
import os, torch, torch.distributed as dist
from torch.distributed import P2POp

def exchange(tensor, peer):
    received = torch.empty_like(tensor)
    for work in dist.batch_isend_irecv([P2POp(dist.isend, tensor, peer), P2POp(dist.irecv, received, peer)]):
        work.wait()
    return received
"""
SEES_HOW_GPUS_ARE_CONNECTED = 'os.path.isdir("/sys/class")'  # which NCCL reads, so only its sandbox has it
CHECK = "check.exchange(exchange, world_sizes=(2,))"

Cells = list[NotebookNode]


def wrong_where(condition: str) -> str:
    return RIGHT.replace("    return received", f"    return received + 1 if {condition} else received")


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch, program: Callable[[str], str]) -> None:
    """A machine with GPUs, or with Gloo in the place of NCCL."""
    program("bwrap")
    if not can_host_nccl(2, zygote.shared().gpus()):
        put_gloo_in_the_place_of_nccl(monkeypatch)


@pytest.fixture
def graded(gpus: None) -> Callable[..., Cells]:
    """Grades answers, each with a test cell behind it that is worth 6 points; returns the test cells."""

    def graded(*answers: str) -> Cells:
        tests = [question(f"test_{number}") for number, _ in enumerate(answers)]
        cells = [
            cell
            for answer, test in zip(answers, tests, strict=True)
            for cell in (new_code_cell(answer), test)
        ]
        tier = Tier.NAMESPACES
        with StudentProcess(launch=tier.launch, launch_on_gpus=tier.launch_on_gpus) as student:
            referee.run(new_notebook(cells=cells), student, secret="a secret")
        return tests

    return graded


def question(name: str) -> NotebookNode:
    fields = {"grade_id": name, "grade": True, "solution": False, "locked": True, "points": 6}
    return new_code_cell(CHECK, metadata={"nbgrader": fields})


def put_gloo_in_the_place_of_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = StudentProcess.ask

    def ask_for_gloo(self: StudentProcess, request: dict, timeout: float) -> dict:
        return ask(self, request | ({"backend": "gloo"} if "backend" in request else {}), timeout)

    monkeypatch.setattr(StudentProcess, "ask", ask_for_gloo)
    monkeypatch.setattr(student_process, "can_host_nccl", lambda world_size, gpus: True)


def points(cell: NotebookNode) -> float:
    return determine_grade(cell)[0]


def test_an_answer_that_is_right_on_both_gets_its_points(graded):
    (cell,) = graded(RIGHT)
    assert points(cell) == 6
    assert "gloo, nccl" in str(cell.outputs)


def test_an_answer_that_is_wrong_on_nccl_alone_gets_none_and_reads_so(graded):
    (cell,) = graded(wrong_where(SEES_HOW_GPUS_ARE_CONNECTED))
    assert points(cell) == 0
    assert "(nccl)" in str(cell.outputs) and "(gloo)" not in str(cell.outputs)


def test_an_answer_that_is_right_on_nccl_alone_gets_none(graded):
    (cell,) = graded(wrong_where(f"not {SEES_HOW_GPUS_ARE_CONNECTED}"))
    assert points(cell) == 0


def test_a_later_cell_that_defines_it_again_does_so_on_both(graded):
    first, second = graded(wrong_where("True"), RIGHT)
    assert (points(first), points(second)) == (0, 6)


def test_a_machine_is_fit_whose_ranks_communicate_in_the_sandbox_with_gpus(gpus):
    assert machine.trouble_on_nccl(Tier.NAMESPACES) == ""


def test_nobody_is_graded_where_ranks_cannot_communicate_in_that_sandbox(gpus, monkeypatch):
    monkeypatch.setattr(machine, "PROBE", "def add(tensor): raise OSError('libcuda.so.1 is missing')")
    assert "so no submission was graded" in (trouble := machine.trouble_on_nccl(Tier.NAMESPACES))
    assert "libcuda.so.1 is missing" in trouble


def test_tensors_in_lists_and_pairs_go_to_the_gpu(monkeypatch):
    monkeypatch.setattr(dist, "get_backend", lambda: "nccl")
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor: tensor.to("meta"))
    (((weight, bias), number),) = call_on_rank._on_device([[(torch.ones(1), None), 2]])
    assert (weight.device.type, bias, number) == ("meta", None, 2)


def test_checkpoints_of_one_backend_are_not_found_by_the_other(monkeypatch):
    path_of = checkpoints._placed(lambda code, path: path)
    monkeypatch.setattr(dist, "get_backend", lambda: "gloo")
    on_gloo = Path(path_of(None, "/tmp/case_1/run/checkpoint.pt"))
    monkeypatch.setattr(dist, "get_backend", lambda: "nccl")
    on_nccl = Path(path_of(None, "/tmp/case_1/run/checkpoint.pt"))
    assert on_gloo.name == on_nccl.name == "checkpoint.pt"
    assert on_gloo.parents[1] != on_nccl.parents[1]


def test_a_check_whose_answer_makes_a_tensor_of_a_number_runs_on_gloo_alone(monkeypatch, capsys):
    monkeypatch.setattr(NotebookFunction, "backends", lambda self, world_size: ("gloo", "nccl"))

    def largest(value):
        tensor = torch.tensor(value, dtype=torch.float64)
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        return tensor.item()

    check.largest(largest, world_sizes=(2,))
    assert "(2 ranks; gloo; " in capsys.readouterr().out


def test_a_case_of_one_rank_runs_on_gloo_alone(monkeypatch, capsys):
    monkeypatch.setattr(NotebookFunction, "backends", lambda self, world_size: ("gloo", "nccl"))

    def average_gradients(module, group=None):
        for parameter in module.parameters():
            if parameter.requires_grad:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG, group=group)

    check.average_gradients(average_gradients, world_sizes=(1,))
    assert "(1 rank; gloo; " in capsys.readouterr().out
