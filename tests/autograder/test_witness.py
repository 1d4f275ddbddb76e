"""Ranks whose calls a witness makes compute, wait, fail and explain themselves as all ranks do."""

import time
from collections import Counter
from functools import partial

import pytest
import torch

from autograder.inside.runs import DEADLOCK, DIED, RAISED, UNTOLD, RunFailed
from autograder.kit.student import NotebookFunction
from autograder.sandbox.bubblewrap import Bubblewrap
from autograder.sandbox.launch import launch
from autograder.sandbox.student_process import StudentProcess

CALLS = """
import threading, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

def neighbours():
    rank, size = dist.get_rank(), dist.get_world_size()
    return rank, size, (rank + 1) % size, (rank - 1) % size

def collectives(x):
    rank, size, *_ = neighbours()
    found = []
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
    found.append(x.clone())
    dist.broadcast(x, src=1)
    gathered = [torch.empty_like(x) for _ in range(size)]
    dist.all_gather(gathered, x + rank)
    found.append(torch.stack(gathered))
    flat = torch.empty(size * x.numel())
    dist.all_gather_into_tensor(flat, x * rank)
    part = torch.empty(x.numel())
    dist.reduce_scatter_tensor(part, flat.clone())
    found += [flat, part]
    taken = torch.empty(size)
    dist.all_to_all_single(taken, torch.arange(float(size)) + 10 * rank)
    one = torch.empty(2)
    dist.scatter(one, [torch.full((2,), float(i)) for i in range(size)] if rank == 0 else None, src=0)
    ends = [torch.empty(2) for _ in range(size)] if rank == 1 else None
    dist.gather(one, ends, dst=1)
    dist.reduce(one, dst=0)
    dist.barrier()
    dist.monitored_barrier()
    names = [None] * size
    dist.all_gather_object(names, {"rank": rank})
    return found + [taken, ends, one if rank == 0 else None, names]

def messages(x):
    rank, size, after, before = neighbours()
    sent, came = dist.isend(x + rank, after, tag=3), torch.empty_like(x)
    source = dist.irecv(came, before, tag=3)
    sent.wait(); source.wait()
    ops = [dist.P2POp(dist.isend, came, after), dist.P2POp(dist.irecv, torch.empty_like(x), before)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    if rank == 0:
        anyone = torch.empty_like(x)
        return [came, sorted(dist.recv(anyone) for _ in range(size - 1))]
    dist.send(x, 0)
    return [came, ops[1].tensor]

def through_before_others(x):
    rank, size, *_ = neighbours()
    ends = [torch.empty_like(x) for _ in range(size)] if rank == 0 else None
    if rank == 2:
        dist.recv(x, 1)
    dist.gather(x, ends, dst=0)  # rank 1 needs nothing of rank 2 to be through
    if rank == 1:
        dist.send(x + 1, 2)
    return ends

def groups(x):
    low = dist.new_group([0, 1])
    odd = dist.new_group([1, 2])
    for group in (low, odd):
        if dist.get_rank(group) >= 0:
            dist.all_reduce(x, group=group)
            dist.broadcast(x, group=group, group_src=1)
    return x

def handles(x):
    work = dist.all_reduce(x, async_op=True)
    future = work.get_future()
    work.wait()
    return [x, future.wait()[0], work.is_completed(), work.is_success()]

def parallel(x):
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(3, 2))
    model(x * dist.get_rank()).sum().backward()
    return [parameter.grad for parameter in model.parameters()]

def in_place_in_a_graph(x):
    x.requires_grad_()
    y = x * 2
    dist.all_reduce(y.detach())
    (y * x).sum().backward()
    return x.grad

def threads(x):
    rank, size, after, before = neighbours()
    came = torch.empty_like(x)
    thread = threading.Thread(target=lambda: dist.recv(came, before))
    thread.start(); time.sleep(0.1)
    dist.send(x + rank, after)
    thread.join()
    return came

def refused(x):
    try:
        dist.send(torch.ones(2, 2).t(), (dist.get_rank() + 1) % dist.get_world_size())
    except Exception as error:
        return type(error).__name__, str(error)

def unknown_rank(x):
    dist.broadcast(x, src=7)

def unknown_root(x):
    dist.broadcast(x, group_src=7)

def less_than_nothing(x):
    dist.all_to_all_single(torch.zeros(3), x, [-1, 4], [-1, 4])

def past_the_end(x):
    dist.send(x, dist.get_rank() + 1)

def patience(x):
    work = dist.irecv(x, 1 - dist.get_rank())
    from datetime import timedelta
    work.wait(timedelta(seconds=0.2))

def all_receive(x):
    dist.recv(x, neighbours()[3])

def disagree(x):
    dist.all_reduce(x[: dist.get_rank() + 1])

def one_ends(x):
    import os
    if dist.get_rank() == 1:
        os._exit(3)
    dist.all_reduce(x)

def nonsense(x):
    dist.group.WORLD.inner.witness._connection.sendall(b"nonsense" * 10)
    dist.all_reduce(x)

def repeat_a_number(x):
    dist.group.WORLD.inner.witness._numbers = iter([0] * 9)
    dist.all_reduce(x)

def inherited(x):
    import os
    links = []
    for number in os.listdir("/proc/self/fd"):
        try: links.append(os.readlink(f"/proc/self/fd/{number}"))
        except OSError: pass
    return [link for link in links if link.startswith(("socket:", "pipe:"))]

def look_by_each_thread(x):
    import ctypes, os
    libc, found, looked = ctypes.CDLL(None), [], threading.Event()
    @ctypes.CFUNCTYPE(None, ctypes.c_int)
    def look(signal):
        try:
            os.close(os.open(f"/proc/{os.getppid()}/mem", os.O_RDONLY))
            found.append("memory")
        except PermissionError:
            found.append("nothing")
        looked.set()
    libc.signal.restype = ctypes.c_void_p
    before = libc.signal(10, look)
    threads = os.listdir("/proc/self/task")
    for thread in map(int, threads):
        looked.clear()
        libc.tgkill(os.getpid(), thread, 10)
        looked.wait(5)
    libc.signal(10, ctypes.c_void_p(before))
    return found, len(threads)

def stopped_clock(x):
    time.perf_counter = lambda: float("nan")
    rank = dist.get_rank()
    dist.send(x, 1) if rank == 0 else dist.recv(x, 0)
    return x

def many_before_a_wait(x):
    rank, size, after, before = neighbours()
    came = [torch.empty_like(x) for _ in range(600)]
    works = [dist.isend(x + number, after) for number in range(600)]
    works += [dist.irecv(each, before) for each in came]
    for work in works:
        work.wait()
    return torch.stack(came)

def all_send(x):
    dist.send(x, 1 - dist.get_rank())

def sum_and_size(x):
    dist.all_reduce(x)
    return x, dist.get_world_size()

def alone(x):
    return None

def more_room_than_message(x):
    y = torch.full((6,), 7.0)
    if dist.get_rank() == 0:
        dist.send(x, 1)
    elif dist.get_rank() == 1:
        dist.recv(y, 0)
    return y

class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, part):
        whole = torch.zeros(part.numel() * dist.get_world_size())
        dist.all_gather_into_tensor(whole, part)
        return whole

    @staticmethod
    def backward(ctx, gradient):  # of `sum`: one element that repeats
        part = torch.zeros(gradient.numel() // dist.get_world_size())
        dist.reduce_scatter_tensor(part, gradient)
        return part

def expanded(x):
    Gather.apply(x.requires_grad_()).sum().backward()
    gathered = [torch.zeros(4) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, x.detach()[1].expand(4))
    return x.grad, gathered

def sums_of_bools(x):
    mask = x > 1
    dist.all_reduce(mask)
    dist.reduce(mask, dst=0)
    return mask if dist.get_rank() == 0 else None

def limited_group(x):
    from datetime import timedelta
    said = []
    for call in (dist.all_reduce, lambda y, group: dist.recv(y, 1, group=group)):
        limited = dist.new_group(timeout=timedelta(seconds=1))
        if dist.get_rank() == 0:
            try: call(x.clone(), group=limited)
            except RuntimeError as error: said.append(type(error).__name__)
        else:
            time.sleep(1.5)
    everyone = dist.new_group()
    dist.all_reduce(x, group=everyone)
    return said, x

def caught_refusal(x):
    said = []
    if dist.get_rank() == 1:
        try: dist.all_gather([torch.zeros(2)] * dist.get_world_size(), x)
        except Exception as error: said.append(type(error).__name__)
    else:
        time.sleep(0.5)
    dist.all_reduce(x)
    return said, x

def asynchronous(x):
    kinds = {
        "plain": torch.ones,
        "gaps": lambda shape: torch.ones((*shape, 2))[..., 0],
        "conjugate": lambda shape: torch.ones(shape, dtype=torch.complex64).conj(),
    }
    for dtype in (torch.float16, torch.int64, torch.bool, torch.float8_e4m3fn):
        kinds[str(dtype)] = lambda shape, dtype=dtype: torch.ones(shape).to(dtype)
    said = []
    def ask(call, *given, **more):
        what = kind, shape, call.__name__, str(more)
        try: work = call(*given, async_op=True, **more)
        except Exception as error: return said.append((*what, "refused at once", type(error).__name__))
        try: work.wait()
        except Exception as error: return said.append((*what, "failed later", type(error).__name__))
        said.append((*what, "came"))
    for kind, make in kinds.items():
        for shape in ((4,), (2, 3), (0,)):
            for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.AVG, dist.ReduceOp.BAND):
                ask(dist.all_reduce, make(shape), op=op)
                ask(dist.reduce, make(shape), 0, op=op)
                ask(dist.reduce_scatter_tensor, make(shape), make(shape), op=op)
            twice = (2 * shape[0], *shape[1:])
            sides = (make(shape), make(shape)), (make(shape), make(twice)), (torch.ones(shape), make(shape))
            for part, whole in sides:
                ask(dist.broadcast, part, 0)
                ask(dist.all_gather_into_tensor, whole, part)
                ask(dist.reduce_scatter_tensor, part, whole)
                ask(dist.all_to_all_single, part, whole)
                ask(dist.all_to_all_single, part, whole, [shape[0]], [shape[0]])
                ask(dist.all_gather, [whole], part)
                ask(dist.reduce_scatter, part, [whole])
                ask(dist.all_to_all, [part], [whole])
                ask(dist.gather, part, [whole])
                ask(dist.scatter, part, [whole])
    dist.all_reduce(x)
    return said, x

def quantized(x):
    dist.all_reduce(torch.quantize_per_tensor(x, 1.0, 0, torch.quint8))

def many_sends_before_a_barrier(x):
    rank, size, *_ = neighbours()
    if rank > 0:
        dist.send(x, 0)
        dist.barrier()
        for work in [dist.isend(x, 0) for _ in range(600)]: work.wait()
        return
    came = torch.empty_like(x)
    for _ in range(size - 1): dist.recv(came)
    dist.barrier()
    return sum(dist.recv(came) for _ in range(600 * (size - 1)))

def leak(x):
    y = torch.zeros(100_000)
    for _ in range(10):
        if dist.get_rank() == 1:
            for _ in range(3):
                try: dist.send(torch.full((100_000,), 1234.5).view(2, -1).t(), 0)
                except Exception: pass
            dist.send(x, 0)
        elif dist.get_rank() == 0:
            dist.recv(y, 1)
    return int((y == 1234.5).sum())

def leak_by_a_form(x):
    from autograder.inside import witnessed
    if dist.get_rank() == 0:  # sends the form of what it receives into, and nothing that is in it
        to_plain = witnessed.to_plain
        witnessed.to_plain = lambda given, sent, unread=(): to_plain(
            given, sent, frozenset(map(id, given[0])) if isinstance(given, tuple) else unread
        )
    return leak(x)

def read_beyond(x):
    found = []
    for call, more in ((dist.all_reduce, {}), (dist.broadcast, {"src": 0}), (dist.reduce, {"dst": 1})):
        came = torch.zeros(4096)
        if dist.get_rank() == 1:
            call(came, **more)
        else:
            try: call(torch.zeros(1).expand(4096), **more)
            except RuntimeError: pass  # elements that are one cannot be written
        found.append(int(came.count_nonzero()))
    came = torch.zeros(4096, dtype=torch.float64)
    given = torch.zeros(4096, dtype=torch.uint8)
    try: dist.group.WORLD.inner.alltoall_base(came, given, [], []).wait()  # which torch would not call
    except ValueError: pass
    return [*found, int(came.count_nonzero())]

def write_beyond(x):
    if dist.get_rank() == 1:
        dist.broadcast(torch.ones(1 << 22), src=1)
    else:
        try: dist.broadcast(torch.zeros(1).expand(1 << 22), src=1)
        except RuntimeError: pass
    dist.all_reduce(x)
    return x

def sockets(x):
    import socket
    socket.socket()

def calls_later(x):
    def later():
        time.sleep(0.2)
        dist.all_reduce(x)
    threading.Thread(target=later).start()

"""


@pytest.fixture(scope="module")
def student(program):
    program("bwrap")
    with StudentProcess([CALLS], launch=partial(launch, Bubblewrap)) as process:
        yield process


@pytest.fixture(scope="module")
def notebook():
    names = {}
    exec(CALLS, names)
    return names


def inputs(world_size: int) -> list[tuple]:
    return [(torch.arange(3.0) + rank,) for rank in range(world_size)]


def without_places(calls):
    """In no order: the first rank to be received from, if any, is chance."""
    return Counter((call.op, call.ranks, call.nbytes, call.peer, call.root, call.reduce_op) for call in calls)


def same(one: object, other: object) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


@pytest.mark.parametrize(
    "name",
    ["collectives", "messages", "groups", "handles", "parallel", "in_place_in_a_graph", "threads", "refused"]
    + ["many_before_a_wait", "through_before_others", "more_room_than_message", "expanded", "sums_of_bools"]
    + ["limited_group", "caught_refusal", "many_sends_before_a_barrier"],
)
def test_calls_come_to_the_same_as_without_a_witness(name, student, notebook):
    with NotebookFunction(notebook[name]) as plain:
        expected = plain.run(inputs(3))
    outcomes = student.function(name).run(inputs(3))
    assert same([outcome.value for outcome in outcomes], [outcome.value for outcome in expected])
    assert [without_places(each.calls) for each in outcomes] == [
        without_places(each.calls) for each in expected
    ]


def test_an_asynchronous_call_is_refused_when_gloo_refuses_it(student, notebook):
    with NotebookFunction(notebook["asynchronous"]) as plain:
        ((expected, _),) = (outcome.value for outcome in plain.run(inputs(1)))
    ((said, _),) = (outcome.value for outcome in student.function("asynchronous").run(inputs(1)))
    assert {each[4] for each in expected} == {"refused at once", "failed later", "came"}
    assert said == expected


def failure(student: StudentProcess, name: str, world_size: int = 2) -> RunFailed:
    with pytest.raises(RunFailed) as failed:
        student.function(name).run(inputs(world_size))
    return failed.value


STUCK_IN = {
    "all_send": ["send", "send"],
    "all_receive": ["recv", "recv"],
    "disagree": ["all_reduce", "all_reduce"],
}


@pytest.mark.parametrize(
    ("name", "reason", "said"),
    [
        ("unknown_rank", RAISED, "(dist.broadcast(x, src=7)): "),
        ("unknown_root", RAISED, "broadcast: invalid arguments"),
        ("less_than_nothing", RAISED, ": invalid arguments"),
        ("quantized", RAISED, "NotImplementedError in line"),
        ("past_the_end", RAISED, "There is no rank 2 in this group of 2"),
        ("patience", RAISED, "Timed out waiting 200ms"),
        ("all_send", DEADLOCK, "Rank 0 waits in send to rank 1 (Cell In[1], line"),
        ("all_receive", DEADLOCK, "Rank 0 waits in recv from rank 1 (Cell In[1], line"),
        ("disagree", DEADLOCK, "Rank 0 and rank 1 disagree on the shape"),
        ("one_ends", DIED, "Rank 1 exited with code 3"),
        ("nonsense", RAISED, "the connections of this world have been closed"),
        ("repeat_a_number", RAISED, "the connections of this world have been closed"),
        ("sockets", RAISED, "PermissionError"),
    ],
)
def test_what_goes_wrong_is_said_as_for_all_ranks(name, reason, said, student):
    failed = failure(student, name)
    assert failed.reason == reason and said in failed.message
    assert failed.no_such_rank == (name == "past_the_end")
    assert list(failed.stuck_in) == STUCK_IN.get(name, [])
    assert student.function("threads").run(inputs(2))[0].value.tolist() == [2.0, 3.0, 4.0]


def test_no_rank_has_inherited_a_way_to_another(student):
    one, other = (outcome.value for outcome in student.function("inherited").run(inputs(2)))
    assert one and other and not set(one) & set(other)


def test_no_thread_of_a_rank_looks_into_other_processes(student):
    for outcome in student.function("look_by_each_thread").run(inputs(2)):
        found, threads = outcome.value
        assert found == ["nothing"] * threads and threads > 1


@pytest.mark.parametrize("name", ["leak", "leak_by_a_form"])
def test_a_rank_reads_nothing_that_another_has_left_with_the_witness(name, student):
    assert [outcome.value for outcome in student.function(name).run(inputs(2))] == [0, 0]


def test_no_tensor_leads_to_memory_beyond_it(student):
    """Gloo reads and writes more than there is where elements are one, or the other side's are larger."""
    assert [outcome.value for outcome in student.function("read_beyond").run(inputs(2))] == [[0] * 4] * 2
    for outcome in student.function("write_beyond").run(inputs(2)):
        assert outcome.value.equal(torch.tensor([1.0, 3.0, 5.0]))


def test_calls_are_dated_by_the_witness_whatever_a_rank_does_to_its_clock(student):
    sender, receiver = student.function("stopped_clock").run(inputs(2))
    ((sent,), (came,)) = sender.calls, receiver.calls
    assert 0 < sent.start < came.end < time.perf_counter()


def test_ranks_that_come_to_a_world_later_have_the_same_witness(student):
    for world_size in (1, 3, 8, 2, 5):
        outcomes = student.function("sum_and_size").run(inputs(world_size))
        total = sum(x for (x,) in inputs(world_size))
        assert all(same(outcome.value, [total, world_size]) for outcome in outcomes)
        assert [[call.op for call in outcome.calls] for outcome in outcomes] == [["all_reduce"]] * world_size


def test_what_an_ended_world_still_sends_is_not_counted_as_the_next_ones(student):
    """The connections of 8 ranks take more bytes to be closed than a rank alone may send untold."""
    for _ in range(5):
        student.function("sum_and_size").run(inputs(8))
        assert student.function("alone").run(inputs(1))[0].value is None
        student.function("sum_and_size").run(inputs(8))
        student.release()
        assert student.function("alone").run(inputs(1))[0].value is None


def test_a_call_between_two_runs_is_not_for_free(student):
    function = student.function("calls_later")
    assert function.run(inputs(2))[0].calls == []
    time.sleep(1)
    with pytest.raises(RunFailed, match="has called all_reduce when its last run was over") as caught:
        function.run(inputs(2))
    assert caught.value.reason == UNTOLD
    assert student.function("threads").run(inputs(2))[0].value.tolist() == [2.0, 3.0, 4.0]
