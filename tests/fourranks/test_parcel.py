"""Values on their way between the notebook and its ranks, large ones above all."""

from __future__ import annotations

import mmap
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
import torch.distributed as dist

from fourranks import FourRanksError, RankDied, RankError
from fourranks.protocol.memory import MemoryFile
from fourranks.protocol.parcel import SMALL, dumps, pack

MANY = 100_000


def sent(value):
    """The value as it arrives on the other side."""
    parcel = pack(value)
    arrived = pickle.loads(pickle.dumps(parcel))
    if parcel.file is not None:
        arrived.file = MemoryFile(os.dup(parcel.file.descriptor))
    return arrived.unpack()


TENSORS = {
    "plain": torch.arange,
    "bfloat16": lambda n: torch.arange(n).to(torch.bfloat16),
    "float8": lambda n: torch.ones(n).to(torch.float8_e4m3fn),
    "uint16": lambda n: torch.ones(n, dtype=torch.uint16),
    "bool": lambda n: torch.arange(n) % 2 == 0,
    "complex conjugate": lambda n: torch.full((n,), 1 + 2j).conj(),
    "not contiguous": lambda n: torch.randn(n, 3).t(),
    "expanded": lambda n: torch.ones(1).expand(n),
    "part of a larger one": lambda n: torch.arange(2.0 * n)[n:],
    "empty": lambda n: torch.empty(0, n),
    "without dimensions": lambda n: torch.tensor(float(n)),
    "with gradient": lambda n: torch.ones(n, requires_grad=True),
    "parameter": lambda n: torch.nn.Parameter(torch.ones(n), requires_grad=False),
    "sparse": lambda n: torch.ones(n).to_sparse(),
}


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="Linux keeps files in memory as they are")
def test_a_file_that_is_sent_can_be_changed_by_nobody():
    file = pack(torch.zeros(SMALL)).file
    with pytest.raises(PermissionError):
        os.pwrite(file.descriptor, b".", 0)
    with pytest.raises(PermissionError):
        mmap.mmap(file.descriptor, SMALL)


@pytest.mark.parametrize("size", [3, MANY], ids=["small", "large"])
@pytest.mark.parametrize("kind", TENSORS)
def test_a_tensor_of_any_kind_arrives_as_it_was(kind, size):
    tensor = TENSORS[kind](size)
    arrived = sent({"in a dict": tensor})["in a dict"]
    assert type(arrived) is type(tensor)
    for attribute in ("dtype", "shape", "layout", "requires_grad"):
        assert getattr(arrived, attribute) == getattr(tensor, attribute)
    dense, expected = (each.detach().to_dense().to(torch.complex64) for each in (arrived, tensor))
    assert torch.equal(dense, expected)


@pytest.mark.parametrize("size", [3, MANY])
def test_what_arrives_can_be_changed_and_shares_nothing_with_the_senders(size):
    tensor, array = torch.zeros(size), np.zeros(size)
    arrived, arrived_array = sent((tensor, array))
    arrived += 1
    arrived_array += 1
    assert (tensor.sum(), array.sum(), arrived.sum(), arrived_array.sum()) == (0, 0, size, size)


@pytest.mark.parametrize("size", [3, MANY])
def test_tied_weights_and_views_of_one_tensor_stay_tied(size):
    model = torch.nn.ModuleDict({"embedding": torch.nn.Linear(size, 1), "head": torch.nn.Linear(size, 1)})
    model["head"].weight = model["embedding"].weight
    arrived, first, last = sent((model, model["head"].bias[:1], model["head"].bias[:1]))
    assert arrived["head"].weight is arrived["embedding"].weight
    with torch.no_grad():
        first.fill_(7)
    assert last == 7
    assert arrived["head"].bias == 7


def test_a_small_tensor_can_still_grow():
    assert sent(torch.ones(3)).resize_(1000).shape == (1000,)


def test_only_the_part_that_is_asked_for_travels():
    assert sum(pack(torch.ones(MANY)[:10]).sizes) < 1000


@pytest.mark.parametrize("value", [b"x" * MANY, "x" * MANY, list(range(MANY)), np.arange(MANY)[::2]])
def test_large_values_that_are_no_tensors_arrive_too(value):
    assert np.array_equal(sent(value), value)
    assert pack(value).content is None
    assert len(pickle.dumps(pack(value))) < SMALL


def files_in_memory() -> int:
    """Count the files without a name that this process has open."""
    descriptors = [Path("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    return sum("/memfd:fourranks" in str(each.readlink()) for each in descriptors if each.is_symlink())


def test_a_large_value_keeps_no_file_open():
    before = files_in_memory()
    kept = [sent(torch.full((MANY,), 1.0 * n)) for n in range(20)]
    assert files_in_memory() == before
    assert [tensor[0].item() for tensor in kept] == list(range(20))


# --- between real processes ---


def test_large_values_pass_between_notebook_and_ranks_in_every_call(shared_group):
    big = torch.arange(MANY)
    shared_group.push(x=big, y=big)
    shared_group.execute("assert x is y\nx += rank")
    assert [tensor[0].item() for tensor in shared_group.pull("x")] == [0, 1, 2, 3]
    assert big[0] == 0
    doubled = shared_group.run(lambda tensor: tensor.mul_(2), big)
    assert all(torch.equal(tensor, 2 * big) for tensor in doubled)
    mapped = shared_group.map(lambda tensor: tensor + 1, [(big + rank,) for rank in range(4)])
    assert [tensor[0].item() for tensor in mapped] == [1, 2, 3, 4]
    assert shared_group.pull("(x[-1].item(), 'x' * 100_000)", ranks=[3]) == [(MANY + 2, "x" * MANY)]


def test_large_values_leave_no_descriptor_behind_on_either_side(shared_group):
    def descriptors():
        on_ranks = shared_group.pull("len(__import__('os').listdir('/proc/self/fd'))")
        return [psutil.Process().num_fds(), *on_ranks]

    shared_group.push(big=torch.ones(MANY))
    before = descriptors()
    kept = []
    for _ in range(5):
        shared_group.push(big=torch.ones(MANY))
        kept += shared_group.pull("big")
    # Fewer, if a connection of an earlier test was still being closed before.
    assert all(now <= earlier for now, earlier in zip(descriptors(), before, strict=True))


def test_a_value_for_all_ranks_lies_in_memory_once(group):
    def memory():
        return sum(psutil.Process(status.pid).memory_full_info().pss for status in group.status())

    group.execute("torch.ones(1000, 1000).sum()")
    before = memory()
    big = torch.ones(32 * 2**20)
    group.push(big=big)
    group.execute("assert big.sum() == big.numel()")
    assert memory() - before < 1.5 * big.nbytes


def test_a_value_too_large_for_memory_is_an_error_and_the_world_goes_on(group):
    group.execute("import resource\nif rank == 1: resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))")
    group.execute("import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nx = torch.ones(2**20)")
    with pytest.raises(RankError, match="cannot be sent to the notebook"):
        group.pull("x")
    assert group.pull("rank") == [0, 1, 2, 3]


def test_a_rank_that_dies_while_it_packs_a_large_value_is_reported(group):
    group.execute(
        "import os, signal\n"
        "class Deadly:\n    def __reduce__(self): os.kill(os.getpid(), signal.SIGKILL)\n"
        "x = torch.ones(10_000_000)"
    )
    with pytest.raises(RankDied, match="SIGKILL"):
        group.pull("(x, Deadly() if rank == 2 else 0)")
    assert [len(tensor) for tensor in group.pull("x", ranks=[0, 1, 3])] == [10_000_000] * 3


def test_a_pull_that_takes_too_long_can_be_interrupted_and_costs_nothing(group):
    group.execute("kept = rank\nclass Slow:\n    def __reduce__(self):\n        while True: pass")
    threading.Timer(0.3, group.interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        group.pull("Slow()")
    assert group.pull("kept") == [0, 1, 2, 3]


def test_a_value_can_be_packed_while_another_thread_imports_torch():
    program = """
import sys, threading, time
from fourranks.protocol.parcel import pack
threading.Thread(target=__import__, args=["torch"]).start()
while "torch" not in sys.modules:
    time.sleep(0.001)
pack({"x": 1})
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_function_that_says_config_travels(shared_group):
    """It brings along torch.distributed.config, which is a module of a kind of its own."""
    program = "def batch_of(model):\n    return dist.get_rank() + model.config"
    notebook = {"__name__": "__main__", "dist": dist}
    exec(program, notebook)
    model = type("Model", (), {"config": 10, "__module__": "__main__"})
    assert shared_group.run(notebook["batch_of"], model) == [10, 11, 12, 13]


TYPES = """
import torch, typing

Rank = typing.NewType("Rank", int)
largest = torch.finfo(torch.float16)

class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        return 2 * gradient

def use(peer: Rank, limits=(largest, torch.iinfo(torch.int8))):
    x = torch.ones(2, requires_grad=True)
    Copy.apply(x).sum().backward()
    return x.grad.tolist(), use.__annotations__["peer"].__name__, [limit.max for limit in limits]
"""


def test_functions_travel_with_types_and_decorators_that_pickle_would_look_up_by_name(shared_group):
    cell = {"__name__": "__main__"}
    exec(compile(TYPES, "<cell>", "exec", dont_inherit=True), cell)
    assert shared_group.run(cell["use"], 1) == [cell["use"](1)] * 4
    assert len(dumps(cell["use"])) < 10_000  # and not with all that torch has in a module without a name


CLASS_IN_A_FUNCTION = """
from collections.abc import Callable

FACTOR = 3

def use(x):
    class Outer:
        class Inner:
            factor = FACTOR

            def call(self, function: Callable) -> int:
                return function(self.factor)

    return Outer.Inner().call(lambda factor: factor * x)
"""


def test_a_function_travels_with_what_the_body_of_a_class_in_it_reads(shared_group):
    cell = {"__name__": "__main__"}
    exec(compile(CLASS_IN_A_FUNCTION, "<cell>", "exec", dont_inherit=True), cell)
    assert shared_group.run(cell["use"], 2) == [cell["use"](2)] * 4 == [6] * 4


def test_a_variable_that_cannot_travel_is_named(shared_group):
    with pytest.raises(FourRanksError, match="The variable 'lock' cannot be sent to the ranks"):
        shared_group.push(x=1, lock=threading.Lock())


CELL = """
import functools

@functools.lru_cache(maxsize=7)
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

@functools.singledispatch
def kind(value):
    return "anything"

@kind.register
def _(value: int):
    return "a number"

class Square:
    @functools.cached_property
    def area(self):
        return 9

def use(n):
    empty = fibonacci.cache_info().currsize == 0
    return empty, fibonacci(n), fibonacci.cache_parameters(), fibonacci.__name__, kind(n), Square().area
"""


def test_functions_and_attributes_that_remember_their_results_travel_without_them(shared_group):
    cell = {"__name__": "__main__"}
    exec(CELL, cell)
    expected = (True, 55, {"maxsize": 7, "typed": False}, "fibonacci", "a number", 9)
    assert cell["use"](10) == expected
    assert cell["fibonacci"].cache_info().currsize > 0
    assert shared_group.run(cell["use"], 10) == [expected] * 4
