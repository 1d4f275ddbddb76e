"""A masked name can be had from nowhere: not from files, not from memory, not from compiled code."""

import json
import subprocess
import sys

import pytest

from autograder.topics import data_parallelism, tensor_parallelism
from fourranks import landlock

pytestmark = pytest.mark.skipif(landlock.version() < landlock.NEEDED, reason="needs Landlock")

# Ways that are tried in a process from which libraries have been taken, by what they are called.
TRIALS = """
import contextlib, ctypes, gc, glob, importlib.util, json, os, subprocess, sys
import torch, torch.distributed as dist
from torch import nn
from autograder.inside import forbidden
from autograder.inside import masking

ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)  # as in a sandbox: nothing that is started gets more rights
kept = nn.parallel.DistributedDataParallel, nn.parallel.scatter_gather.scatter
reducer = dist.Reducer
root = torch.__path__[0]
link = sys.argv[2]
os.symlink(root, link)
masking.mask(json.loads(sys.argv[1]))


def run(function, *arguments):
    try:
        return str(function(*arguments))[:50]
    except BaseException as error:
        return type(error).__name__


def is_readable(path):
    with contextlib.suppress(PermissionError), open(path, "rb") as file:
        return bool(file.read(1))

def read(path):
    found = glob.glob(f"{root}/{path}")  # of compiled code there may be more than one form
    if found and not any(map(is_readable, found)):
        raise PermissionError
    return bool(found)


def loaded(name):
    spec = importlib.util.spec_from_file_location("own", f"{root}/{name}")
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


def operator(name):
    torch._C._jit_get_operation(name)[0](torch.ones(2, requires_grad=True), 1, "none")


def code_of_ddp():
    gc.unfreeze()
    codes = [each.__code__ for each in gc.get_objects() if type(each) is type(run)]
    return sum("nn/parallel" in code.co_filename for code in codes)


print(json.dumps({name: run(*trial) for name, trial in {
    "kept class": (kept[0], nn.Linear(1, 1)),
    "kept function": (kept[1], torch.ones(1), [0]),
    "kept constructor": (reducer, [], [], None),
    "its dictionary": (kept[0].__dict__["forward"], None),
    "constructor of the type": (lambda: reducer.__init__(reducer.__new__(reducer), [], [], None),),
    "code in memory": (code_of_ddp,),
    "text of DDP": (read, "nn/parallel/distributed.py"),
    "compiled DDP": (read, "nn/parallel/__pycache__/distributed.*.pyc"),
    "by a link": (lambda: open(f"{link}/nn/parallel/distributed.py"),),
    "by /proc": (lambda: open(f"/proc/self/root{os.path.realpath(root)}/nn/parallel/distributed.py"),),
    "by another program": (
        lambda: subprocess.run(["cat", f"{root}/nn/parallel/distributed.py"], capture_output=True).stdout,
    ),
    "by another Python": (
        lambda: subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode,
    ),
    "text of DTensor": (read, "distributed/tensor/_api.py"),
    "module of DTensor": (loaded, "distributed/tensor/placement_types.py"),
    "text of functional collectives": (read, "distributed/_functional_collectives.py"),
    "compiled functional collectives": (read, "distributed/__pycache__/_functional_collectives.*.pyc"),
    "differentiable operator": (operator, "_c10d_functional_autograd::all_gather_into_tensor"),
    "plain operator": (operator, "_c10d_functional::all_gather_into_tensor"),
    "text of an optimizer": (read, "optim/sgd.py"),
    "text of torch.distributed": (read, "distributed/distributed_c10d.py"),
    "a temporary file": (lambda: open(f"{link}.txt", "w+").write("1"),),
    "a model": (lambda: nn.Linear(2, 2)(torch.ones(2)).sum().backward(),),
}.items() if name in json.loads(sys.argv[3])}))
"""
FREE = {"text of an optimizer": "True", "text of torch.distributed": "True", "a model": "None"}


@pytest.fixture(scope="module")
def tried(tmp_path_factory):
    """The outcomes of the trials, once for each list."""
    results = {}

    def tried(libraries, trials):
        if libraries not in results:
            link = str(tmp_path_factory.mktemp("torch") / "link")
            command = [sys.executable, "-c", TRIALS, json.dumps(libraries), link, json.dumps(list(trials))]
            run = subprocess.run(command, capture_output=True, text=True, timeout=120)
            assert run.returncode == 0, run.stderr
            results[libraries] = json.loads(run.stdout)
        return results[libraries]

    return tried


WITHOUT_DDP = {
    "kept class": "ForbiddenLibrary",
    "kept function": "ForbiddenLibrary",
    "kept constructor": "ForbiddenLibrary",
    "its dictionary": "ForbiddenLibrary",
    "constructor of the type": "ForbiddenLibrary",
    "code in memory": "0",
    "text of DDP": "PermissionError",
    "compiled DDP": "PermissionError",
    "by a link": "PermissionError",
    "by /proc": "PermissionError",
    "by another program": "b''",
    "by another Python": "1",
    "text of DTensor": "True",
    "differentiable operator": "RuntimeError",
    **FREE,
}
WITHOUT_DTENSOR = {
    "text of DTensor": "PermissionError",
    "module of DTensor": "PermissionError",
    "text of functional collectives": "PermissionError",
    "compiled functional collectives": "PermissionError",
    "differentiable operator": "ForbiddenLibrary",
    "plain operator": "RuntimeError",  # no such group: it moves data, and so a witness would see it
    "text of DDP": "True",
    "by another Python": "0",
    **FREE,
}


@pytest.mark.parametrize("trial", WITHOUT_DDP)
def test_of_ddp_nothing_is_left_and_all_else_is_there(tried, trial):
    assert tried(data_parallelism.banned.BANNED, WITHOUT_DDP)[trial] == WITHOUT_DDP[trial]


@pytest.mark.parametrize("trial", WITHOUT_DTENSOR)
def test_of_dtensor_nothing_is_left_and_all_else_is_there(tried, trial):
    assert tried(tensor_parallelism.banned.BANNED, WITHOUT_DTENSOR)[trial] == WITHOUT_DTENSOR[trial]
