"""Libraries that hold the answer are found however they are written, and nothing else is."""

import importlib.util
import re

import nbformat
import pytest

from autograder import student
from autograder.reading import forbidden
from autograder.sandbox.remote import StudentProcess
from autograder.student import Cell, Source
from tests.autograder import shelf
from tests.autograder.shelf import failure_of
from tests.autograder.test_checks import CHECKS, PARTS

SETUP = "import torch\nimport torch.distributed as dist\nfrom torch import nn"
LISTS = {
    "03_benchmarking": forbidden.BENCHMARKING,
    "04_data_parallelism": forbidden.DATA_PARALLELISM,
    "05_sharded_data_parallelism": forbidden.SHARDED_DATA_PARALLELISM,
    "06_tensor_parallelism": forbidden.TENSOR_PARALLELISM,
    "07_pipeline_parallelism": forbidden.PIPELINE_PARALLELISM,
}
FSDP = "torch.distributed.fsdp.fully_shard"


def found(*cells: str | Cell, banned: tuple[str, ...] = ("torch.distributed.fsdp", "torch.nn.parallel")):
    """What is wrong with `wrap`, as its kind and what was got."""
    given = [cell if isinstance(cell, Cell) else Cell(cell, True) for cell in (SETUP, *cells)]
    problem = forbidden.problem("wrap", given, banned)
    return problem and (problem.kind, problem.got)


def wrap(line: str) -> str:
    return f"def wrap(model):\n    {line}"


# --- what is forbidden is found


@pytest.mark.parametrize(
    "line",
    [
        "return torch.distributed.fsdp.fully_shard(model)",
        "return dist.fsdp.fully_shard(model)",
        "from torch.distributed.fsdp import fully_shard; return fully_shard(model)",
        "from torch.distributed.fsdp import fully_shard as harmless; return harmless(model)",
        "from torch.distributed import fsdp; return fsdp.fully_shard(model)",
        "import torch.distributed.fsdp as f; return f.fully_shard(model)",
        "import torch.distributed as d; return d.fsdp.fully_shard(model)",
        "import torch.distributed.fsdp; return torch.distributed.fsdp.fully_shard(model)",
        "d = dist; return d.fsdp.fully_shard(model)",
        "d = torch; e = d.distributed; return e.fsdp.fully_shard(model)",
        "f = dist.fsdp.fully_shard; return f(model)",
        "return getattr(dist, 'fsdp').fully_shard(model)",
        "return getattr(getattr(torch, 'distributed'), 'fsdp').fully_shard(model)",
        "return getattr(dist.fsdp, 'fully_' + 'shard')(model)",
        "return nn.functional.torch.distributed.fsdp.fully_shard(model)",
        "return (lambda m: dist.fsdp.fully_shard(m))(model)",
        "return [dist.fully_shard(model) for dist in [dist.fsdp]]",
        "return [dist.fsdp.fully_shard(m) for m in [model]]",
        "[0 for dist in ()]; return dist.fsdp.fully_shard(model)",
        "f = lambda x=(lambda dist: 1): dist.fsdp.fully_shard(model); return f()",
        "return max([model], key=dist.fsdp.fully_shard)",
        "with dist.fsdp.MixedPrecisionPolicy(): return model",
        "from torch.distributed._composable.fsdp import fully_shard; return fully_shard(model)",
        "from torch.distributed._composable import replicate; return replicate(model)",
        "return nn.parallel.DistributedDataParallel(model)",
        "return nn.DataParallel(model)",
        "return torch.nn.parallel.distributed.DistributedDataParallel(model)",
        "return dist.Reducer(model)",
        "def inner():\n        from torch.distributed import fsdp\n    return inner()",
        "class Inner:\n        from torch.distributed.fsdp import fully_shard as f\n    return Inner.f",
    ],
)
def test_a_forbidden_library_is_found_however_it_is_written(line):
    kind, got = found(wrap(line))
    assert kind == "forbidden library", got
    assert "of the cell with wrap" in got


USE = wrap("return shard(model)")


@pytest.mark.parametrize(
    "cells",
    [
        ["from torch.distributed.fsdp import fully_shard as wrap"],
        ["from torch.distributed.fsdp import fully_shard\nwrap = fully_shard"],
        ["import functools\nwrap = functools.partial(dist.fsdp.fully_shard, mesh=None)"],
        ["wrap = lambda model: dist.fsdp.fully_shard(model)"],
        ["class wrap(nn.parallel.DistributedDataParallel): pass"],
        ["class wrap(nn.Module):\n    make = staticmethod(dist.fsdp.fully_shard)"],
        ["class Base(nn.parallel.DistributedDataParallel): pass", "class wrap(Base): pass"],
        ["@dist.fsdp.register_fsdp_forward_method\ndef wrap(model): return model"],
        ["def wrap(model, shard=dist.fsdp.fully_shard): return shard(model)"],
        ["from torch.distributed.fsdp import fully_shard as shard", USE],
        ["shard = dist.fsdp.fully_shard", USE],
        [USE, "def shard(model):\n    return dist.fsdp.fully_shard(model)"],
        [wrap("return dist.fsdp.fully_shard(model)"), "wrap = staticmethod(wrap)"],
        [wrap("return dist.fsdp.fully_shard(model)"), "shard = wrap", USE],
        [wrap("return dist.fsdp.fully_shard(model)"), "def wrap(model, shard=wrap): return shard(model)"],
        ["class wrap(nn.parallel.DistributedDataParallel): pass", "class wrap(wrap): pass"],
        ["d = torch.distributed", wrap("return d.fsdp.fully_shard(model)")],
        [
            "try:\n    import torch.distributed as d\nexcept ImportError:\n    d = None",
            wrap("d.fsdp.fully_shard(model)"),
        ],
        ["from torch.distributed.fsdp import *", wrap("return fully_shard(model)")],
        ["tools = {'shard': dist.fsdp.fully_shard}", wrap("return tools['shard'](model)")],
        ["tools = {}", "tools['shard'] = dist.fsdp.fully_shard", wrap("return tools['shard'](model)")],
        ["tools = []", "tools.append(dist.fsdp.fully_shard)", wrap("return tools[0](model)")],
        ["class wrap(nn.Module): pass", "wrap.forward = dist.fsdp.fully_shard"],
        ["class wrap(nn.Module): pass", "setattr(wrap, 'for' + 'ward', dist.fsdp.fully_shard)"],
        [
            "class wrap(nn.Module): pass",
            "def install():\n    wrap.forward = dist.fsdp.fully_shard",
            "install()",
        ],
        ["nn.Module.sharded = dist.fsdp.fully_shard", wrap("return nn.Linear.sharded(model)")],
        [
            "def install():\n    global shard\n    from torch.distributed.fsdp import fully_shard as shard",
            "install()",
            USE,
        ],
        [
            "if dist.is_available():\n    from torch.distributed.fsdp import fully_shard as shard",
            USE,
        ],
        ["[shard := dist.fsdp.fully_shard for _ in [0]]", USE],
        ["for shard in [dist.fsdp.fully_shard]: pass", USE],
        ["with torch.no_grad() as shard, dist.fsdp.x as shard: pass", USE],
        ["%%time\ndef wrap(model):\n    return dist.fsdp.fully_shard(model)"],
        ["%time shard = dist.fsdp.fully_shard", USE],
        ["%matplotlib inline\n!ls\ndef wrap(model):\n    return dist.fsdp.fully_shard(model)"],
        ["In [1]: shard = dist.fsdp.fully_shard", USE],
        ["shard = await dist.fsdp.fully_shard", USE],
    ],
)
def test_it_is_found_wherever_the_checked_name_leads(cells):
    assert found(*cells)[0] == "forbidden library"


def test_the_place_is_named_with_its_line_and_its_cell():
    cells = [
        "\n\ndef shard(model):\n    x = 1\n    return dist.fsdp.fully_shard(model)",
        wrap("return shard(model)"),
    ]
    assert found(*cells) == ("forbidden library", f"{FSDP} in line 5 of the cell with shard")


# --- what is not forbidden is not found


@pytest.mark.parametrize(
    "cells",
    [
        [wrap("return model"), "from torch.distributed.fsdp import fully_shard\nprint(fully_shard(wrap(1)))"],
        ["import torch.distributed.fsdp", wrap("return torch.zeros(1)")],
        [
            "from torch.distributed.fsdp import fully_shard",
            "def compare(): fully_shard(wrap(1))",
            wrap("return model"),
        ],
        ["model = dist.fsdp.fully_shard(1)", wrap("return model")],
        ["model = dist.fsdp.fully_shard(1)", wrap("return [model for model in [model]]")],
        ["results = []", "results.append(dist.fsdp.fully_shard)", wrap("results = [model]; return results")],
        [wrap("return dist.fsdp.fully_shard(model)"), wrap("return model")],
        ["from torch.nn.parallel import DistributedDataParallel as wrap", "class wrap(nn.Module): pass"],
        [Cell("def", False), wrap("return model")],
        [Cell("def", None), wrap("return model")],
        ["%%bash\nls", "%%ranks\nrank", "!ls", "wrap?", wrap("return model")],
        [wrap("return self.fsdp.fully_shard(model.parallel)").replace("(model)", "(self, model)")],
        [wrap("dist = model; return dist.fsdp")],
        [wrap("import math, typing, numpy as np; return math.sqrt(np.ones(1))")],
        [
            wrap(
                "return getattr(model, name), setattr(model, name, 1), hasattr(dist, 'all_gather_single')"
            ).replace("(model)", "(model, name)")
        ],
        [wrap("return getattr(dist, 'all_gather_single', dist.all_gather_into_tensor)")],
        [wrap("return torch.compile(model), re.compile('x'), model.eval()"), "import re"],
        [wrap("return {**vars(model), **model.__dict__}")],
        [wrap("return super().__getattr__(model)")],
        [wrap("model.__class__ = type(type(model).__name__, (type(model),), {})")],
        [wrap("gc.collect(); return sys.maxsize, inspect.signature(model)"), "import gc, inspect, sys"],
        [wrap("print(torch.__version__, __name__); display(model)")],
        ["class wrap:\n    size = 3\n    sizes = [size]\n    def f(self): return [self.size for x in ()]"],
        [wrap("try:\n        pass\n    except ValueError as error:\n        print(error)")],
        ["try:\n    wrap = len\nexcept ValueError as error:\n    print(error)"],
        [wrap("global count; count = 1; return count")],
        ["%time weights = [1]", wrap("return weights")],
        ["In", "1 + 1", "_ + 1", wrap("return model")],
    ],
)
def test_what_the_checked_name_does_not_use_is_free(cells):
    assert found(*cells) is None


@pytest.mark.parametrize("topic", sorted(path.parent.name for path in shelf.SOURCE.glob("*/exercise.py")))
def test_every_check_of_a_solved_notebook_reads_it_without_complaint(topic):
    cells: list[Cell] = []
    checked = 0
    for cell in nbformat.read(shelf.SOURCE.parent / "solutions" / topic / "exercise.ipynb", 4).cells:
        for name in re.findall(r"check\.\w+\((\w+)", cell.source):
            assert forbidden.problem(name, cells, LISTS.get(topic, ())) is None
            checked += 1
        cells += [Cell(cell.source, True)] * (cell.cell_type == "code")
    assert checked > 3


# --- code that hides what it calls


@pytest.mark.parametrize(
    ("line", "got"),
    [
        ("return getattr(dist, 'fs' + 'dp')(model)", "all of torch.distributed"),
        ("return vars(dist)['fsdp']", "all of torch.distributed"),
        ("return dist.__dict__['fsdp']", "all of torch.distributed"),
        ("return dist.__getattribute__('fsdp')", "all of torch.distributed"),
        ("return [m.fsdp for m in [dist]]", "all of torch.distributed"),
        ("a, b = dist, nn; return a.fsdp", "all of torch.distributed"),
        ("return (d := dist).fsdp", "all of torch.distributed"),
        ("model.d = dist; return model.d.fsdp", "all of torch.distributed"),
        ("class C:\n        d = dist\n    return C.d.fsdp", "all of torch.distributed"),
        ("return (lambda d=dist: d.fsdp)()", "all of torch.distributed"),
        ("return exec('import torch')", "exec"),
        ("return eval('dist.fsdp')", "eval"),
        ("e = eval; return e('dist.fsdp')", "eval"),
        ("import builtins; return builtins.eval('1')", "eval"),
        ("import builtins; return getattr(builtins, 'ev' + 'al')('1')", "all of builtins"),
        ("return __import__('torch')", "__import__"),
        ("import importlib; return importlib.import_module('torch')", "importlib"),
        ("from importlib import import_module as f; return f('torch')", "importlib.import_module"),
        ("import sys; return sys.modules['torch']", "sys.modules"),
        ("from sys import modules; return modules['torch']", "sys.modules"),
        ("return torch.sys.modules['torch']", "sys.modules"),
        ("import ctypes; return ctypes.CDLL(None)", "ctypes"),
        ("return torch.ops.c10d.allreduce_(model)", "torch.ops"),
        ("return torch._C._distributed_c10d", "torch._C"),
        ("return wrap.__globals__['dist']", "__globals__"),
        ("return getattr(wrap, '__globals__')['dist']", "__globals__"),
        ("return nn.Module.__subclasses__()", "__subclasses__"),
        ("import gc; return gc.get_objects()", "gc.get_objects"),
        ("import sys; return sys._getframe().tb_frame", "sys._getframe"),
        ("return model.f_back", "f_back"),
        ("return get_ipython().user_ns", "get_ipython"),
        ("import accelerate; return accelerate.prepare(model)", "accelerate"),
        ("from .mine import prepare; return prepare(model)", "mine"),
        ("from autograder.expected.blocks import mlp; return mlp", "autograder.expected"),
        ("return shard(model)", "shard in line 2 of the cell with wrap, which no cell defines"),
        ("return __builtins__['eval']", "__builtins__"),
    ],
)
def test_code_that_hides_what_it_calls_is_refused(line, got):
    kind, text = found(wrap(line))
    assert kind == "hidden code"
    assert got in text


@pytest.mark.parametrize("cell", ["exec('def wrap(model): ...')", Cell("def wrap(model", False), "x = 1"])
def test_a_checked_name_that_no_cell_defines_is_refused(cell):
    assert found(cell) == ("not defined", "none that ran")


TANGLE = "\n".join(f"if x: a{i} = a{i + 1}.b\nif x: a{i} = a{i + 1}.c" for i in range(9)) + "\nwrap = a0"


@pytest.mark.parametrize(
    "cell",
    ["(" * 5000 + ")" * 5000, "x" * 3_000_000, "%x\n" * 2000, "+".join("1" * 20_000), "☃ = wrap?!", TANGLE],
)
def test_a_cell_that_ran_and_cannot_be_read_is_refused(cell):
    kind, got = found(wrap("return model"), cell)
    assert kind == "hidden code"
    assert "one " in got or "too many" in got


def test_a_cell_that_did_not_finish_takes_nothing_back():
    evil, good = wrap("return dist.fsdp.fully_shard(model)"), wrap("return model")
    assert found(evil, Cell(good, True)) is None
    assert found(evil, Cell("1 / 0\n" + good, False))[0] == "forbidden library"


# --- the lists


@pytest.mark.parametrize("topic", LISTS)
def test_the_text_of_an_exercise_says_what_its_list_says(topic):
    text = (shelf.SOURCE / topic / "exercise.py").read_text().replace("\n# ", " ")
    (sentence,) = re.findall(r"\*\*Allowed\*\* is .*?, but not (.*?), which holds?", text)
    assert sorted(re.findall(r"`([\w.]+)`", sentence)) == sorted(LISTS[topic])


def test_an_exercise_without_a_list_speaks_of_none():
    for file in shelf.SOURCE.glob("*/exercise.py"):
        assert ("hold the answer" in file.read_text() or "holds the answer" in file.read_text()) == (
            file.parent.name in LISTS
        )


@pytest.mark.parametrize("name", sorted({*sum(LISTS.values(), ()), *sum(forbidden.ALSO.values(), ())}))
def test_what_is_listed_is_there_in_this_torch(name):
    module, _, last = name.rpartition(".")
    assert importlib.util.find_spec(name) or hasattr(importlib.import_module(module), last)


@pytest.mark.parametrize(
    ("part", "operation"), [each for each in CHECKS if PARTS[each[0]].topic in LISTS], ids=".".join
)
def test_every_check_holds_the_code_to_the_list_of_its_exercise(part, operation):
    def wrap():
        raise AssertionError("the code is not to be run")

    for library in LISTS[PARTS[part].topic]:
        handle = student.NotebookFunction(wrap)
        handle.source = Source("wrap", [Cell(f"from {library} import anything as wrap", True)])
        verdict = failure_of(operation, handle).verdict
        assert verdict.kind == "forbidden library"
        assert f"{library}.anything" in str(verdict)


# --- where the text comes from

CHEAT = "def shard_batch(batch, rank, world_size):\n    return dist.fsdp.fully_shard(batch)"


@pytest.fixture(scope="module")
def process():
    """A student's process that has run the setup."""
    with StudentProcess() as process:
        process.run(SETUP + "\nfrom autograder import check")
        yield process


def test_a_student_s_process_knows_its_cells_and_those_that_failed(process):
    for cell in (CHEAT, "1 / 0\n" + CHEAT):
        process.run(cell)
    assert [cell.finished for cell in process.cells[-2:]] == [True, False]
    verdict = failure_of("shard_batch", process.function("shard_batch")).verdict
    assert verdict.kind == "forbidden library"
    assert "read, not run" in str(verdict)


def test_at_home_the_notebook_s_own_cells_are_read(process):
    for cell in (CHEAT, "not Python", "name = shard_batch"):
        process.run(cell)
    shown = process.run("check.shard_batch(name)")
    assert shown.error["name"] == "CheckFailed"
    assert FSDP in shown.displays[0]["text/plain"]
    process.run(CHEAT.replace("dist.fsdp.fully_shard", "nn.DataParallel"))  # in place of the first
    text = process.run("check.shard_batch(shard_batch)").displays[0]["text/plain"]
    assert "torch.nn.DataParallel in line 2" in text
    assert FSDP not in text
