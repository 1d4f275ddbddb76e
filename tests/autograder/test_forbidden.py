"""Stand-ins take the place of libraries that hold the answer, however code gets there; all else is free."""

import re

import pytest

import fourranks
from autograder.inside import forbidden
from autograder.kit.student import NotebookFunction
from autograder.sandbox.student_process import StudentProcess
from autograder.topics import (
    benchmarking,
    capstone,
    data_parallelism,
    pipeline_parallelism,
    sharded_data_parallelism,
    tensor_parallelism,
    three_d_parallelism,
)
from fourranks.errors import RankError
from tests.autograder import shelf
from tests.autograder.shelf import failure_of
from tests.autograder.test_checks import CHECKS, PARTS

LISTS = {
    "03_benchmarking": benchmarking.banned.BANNED,
    "04_data_parallelism": data_parallelism.banned.BANNED,
    "05_sharded_data_parallelism": sharded_data_parallelism.banned.BANNED,
    "06_tensor_parallelism": tensor_parallelism.banned.BANNED,
    "07_pipeline_parallelism": pipeline_parallelism.banned.BANNED,
    "08_three_d_parallelism": three_d_parallelism.banned.BANNED,
    "10_capstone": capstone.banned.BANNED,
}
SETUP = "import torch\nimport torch.distributed as dist\nfrom torch import nn"


@pytest.fixture(scope="module")
def rank():
    """A world of one rank from which exercise 05's libraries have been taken."""
    with fourranks.start(world_size=1) as world:
        world.run(forbidden.hide, sharded_data_parallelism.banned.BANNED)
        yield world


def wrap(line):
    """A function of a notebook with this line in it."""
    return shelf.names(f"{SETUP}\ndef wrap(model):\n    {line}", "cell")["wrap"]


@pytest.mark.parametrize(
    "line",
    [
        "return dist.fsdp.fully_shard(model)",
        "from torch.distributed.fsdp import fully_shard as harmless; return harmless(model)",
        "import torch.distributed.fsdp as f; return f.fully_shard(model)",
        "from torch.distributed.fsdp._fully_shard import fully_shard; return fully_shard(model)",
        "import torch.distributed.fsdp.api.deeper as f; return f.x.y(model)",
        "return getattr(dist, 'fs' + 'dp').fully_shard(model)",
        "return vars(dist)['fsdp'].fully_shard(model)",
        "import sys; return sys.modules['torch.distributed.fsdp'].fully_shard(model)",
        "import importlib; return importlib.import_module('torch.distributed.fsdp').fully_shard(model)",
        "import operator; return operator.attrgetter('distributed.fsdp')(torch).fully_shard(model)",
        "from torch.utils.data.distributed import dist as d; return d.fsdp.fully_shard(model)",
        "from torch.distributed._composable.fsdp import fully_shard; return fully_shard(model)",
        "from torch.distributed._composable import replicate; return replicate(model)",
        "from torch.distributed.optim import ZeroRedundancyOptimizer as z; return z(model)",
        "return nn.parallel.DistributedDataParallel(model)",
        "from torch.nn.parallel.distributed import DistributedDataParallel as d; return d(model)",
        "return nn.DataParallel(model)",
        "return dist.Reducer(model)",
        "return torch._C._distributed_c10d.Reducer(model)",
        "return max([model], key=dist.fsdp.fully_shard)",
        "class Own(nn.parallel.DistributedDataParallel): pass\n    return Own(model)",
        "class Own(nn.Module, dist.fsdp.FSDPModule): pass\n    return Own()",
        "from torch.distributed.fsdp import ShardingStrategy\n    return ShardingStrategy.FULL_SHARD()",
    ],
)
def test_whoever_uses_a_forbidden_library_reads_what_the_exercise_asks_for(rank, line):
    with pytest.raises(RankError) as caught:
        rank.run(wrap(line), 1)
    (error,) = caught.value.errors.values()
    assert error.name == "ForbiddenLibrary"
    assert re.fullmatch(
        r"torch\.\S+ is not there while code is checked: this exercise asks .*", error.message
    )


@pytest.mark.parametrize(
    "line",
    [
        "import torch.distributed.fsdp; from torch.distributed.fsdp import fully_shard",
        "from torch.nn.parallel import DistributedDataParallel as d; return isinstance(nn.Linear(1, 1), d)",
        "def use(m: nn.parallel.DistributedDataParallel | None): return dist.fsdp.fully_shard(m)",
        "return [getattr(dist, name) for name in ('all_reduce', 'broadcast')] and None",
        "o = torch.optim.AdamW(nn.Linear(2, 2).parameters()); o.step()",
        "nn.utils.clip_grad_norm_(nn.Linear(2, 2).parameters(), 1.0)",
        "return torch.compile(torch.relu, backend='aot_eager')(torch.ones(2)).tolist()",
        "import torch.distributed.checkpoint; import torch.distributed.device_mesh",
        "import torch.distributed.tensor; import torch.distributed.pipelining",
    ],
)
def test_code_that_does_without_runs_as_it_does_elsewhere(rank, line):
    rank.run(wrap(line), 1)


@pytest.mark.parametrize("topic", LISTS)
def test_torch_s_own_machinery_works_without_what_an_exercise_forbids(topic):
    def step(libraries):
        import importlib

        import torch

        importlib.import_module("autograder.inside.forbidden").hide(libraries)
        model = torch.nn.Linear(3, 3)
        torch.compile(model, backend="aot_eager")(torch.ones(2, 3)).sum().backward()
        torch.optim.SGD(model.parameters(), 0.1, foreach=True).step()
        return torch.func.vmap(torch.relu)(torch.ones(2)).sum().item()

    assert fourranks.run(step, LISTS[topic], world_size=1) == [2.0]


# --- the lists


@pytest.mark.parametrize("topic", LISTS)
def test_the_text_of_an_exercise_says_what_its_list_says(topic):
    text = (shelf.SOURCE / topic / "exercise.py").read_text().replace("\n# ", " ")
    (sentence,) = re.findall(
        r"\*\*You may use\*\* .*?,? but (?:in your functions )?not (.*?), which contains? the answers", text
    )
    told = set(re.findall(r"`([\w.]+)`", sentence))
    assert told == ({"fourranks"} if "fourranks" in told else set(LISTS[topic]))
    assert all(forbidden.is_part(library, list(told)) for library in LISTS[topic])


def test_an_exercise_without_a_list_speaks_of_none():
    for file in shelf.SOURCE.glob("*/exercise.py"):
        text = file.read_text().replace("\n# ", " ")
        assert bool(re.search("which contains? the answers", text)) == (file.parent.name in LISTS)


class _Asked(NotebookFunction):
    """A handle that is asked what it must do without, and then is not used."""

    def forbid(self, libraries):
        raise InterruptedError(libraries)


@pytest.mark.parametrize(
    ("part", "operation"), [each for each in CHECKS if PARTS[each[0]].topic in LISTS], ids=".".join
)
def test_every_check_takes_away_what_its_exercise_forbids(part, operation):
    from autograder import check

    with pytest.raises(InterruptedError) as caught:
        getattr(check, operation)(_Asked(len))
    assert caught.value.args == (LISTS[PARTS[part].topic],)


# --- in a check

CHEAT = "def average_gradients(model, group=None):\n    nn.parallel.DistributedDataParallel(model)"


@pytest.fixture(scope="module")
def process():
    """A student's process that has run the setup."""
    with StudentProcess([SETUP + "\nfrom autograder import check"]) as process:
        yield process


def test_a_check_says_which_line_uses_what(process):
    process.run(CHEAT)
    failure = failure_of("average_gradients", process.function("average_gradients"), world_sizes=(2,))
    assert shelf.name_of(failure.verdict.mistake) == "FORBIDDEN_LIBRARY"
    assert "in line 2 (nn.parallel.DistributedDataParallel(model))" in str(failure)


def test_at_home_the_notebook_keeps_what_its_checks_do_without():
    with StudentProcess([SETUP + "\nfrom autograder import check", CHEAT]) as home:
        shown = home.run("check.average_gradients(average_gradients, world_sizes=(2,))")
        assert "a library that holds the answer" in shown.displays[0]["text/plain"]
        assert home.run("nn.parallel.DistributedDataParallel.__name__").error is None
        assert home.run("nn.DataParallel(nn.Linear(1, 1))").error is None


def test_a_name_that_nothing_defines_is_told_as_such(process):
    failure = failure_of("average_gradients", process.function("nothing"), world_sizes=(2,))
    assert shelf.name_of(failure.verdict.mistake) == "NOT_DEFINED"
    assert "the notebook defines no function nothing" in str(failure)
