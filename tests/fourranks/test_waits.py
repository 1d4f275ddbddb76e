"""Waits of real ranks: programs that are legal in torch run, programs that hang are told so.

The legal programs keep some ranks waiting for longer than a proof takes.
"""

from __future__ import annotations

import textwrap

import pytest
import torch
import torch.distributed as dist

from fourranks.errors import CellTimeout, DeadlockError, RankError

LONG = 1.2  # seconds: a wait that goes on for as long is called a deadlock if it is taken for one


def cell(source: str) -> str:
    return "import datetime, threading, time\n" + textwrap.dedent(source).replace("LONG", str(LONG))


def still_works(group) -> bool:
    """Whether the ranks have kept their variables and can communicate."""
    group.execute("after = torch.ones(1); dist.all_reduce(after)")
    return group.pull("kept") == list(range(4)) and group.pull("after.item()") == [4.0] * 4


@pytest.fixture
def world(shared_group):
    shared_group.execute("kept = rank")
    return shared_group


LEGAL = {
    "messages that take long to be handed over": """
        class Slow:  # as the process that makes the calls of a rank in a sandbox, on a busy machine
            def __getattr__(self, name):
                return getattr(inner, name)

            def send(self, *arguments):
                time.sleep(LONG)
                return inner.send(*arguments)

        inner, dist.group.WORLD.inner = dist.group.WORLD.inner, Slow()
        sending = dist.isend(torch.ones(1), (rank + 1) % 4)
        dist.group.WORLD.inner = inner
        dist.recv(torch.zeros(1), (rank - 1) % 4)
        sending.wait()
    """,
    "the default group is made again after calls that not all ranks have made": """
        dist.destroy_process_group()
        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=1))
        try:
            dist.barrier() if rank == 0 else time.sleep(2)
        except RuntimeError:
            pass
        dist.destroy_process_group()
        dist.init_process_group("gloo")
        x = torch.ones(1)
        if rank == 1:
            time.sleep(1)
        dist.all_reduce(x)
        assert x == 4
    """,
    "and after a message that nobody has received": """
        work = dist.isend(torch.ones(1), 1) if rank == 0 else None
        dist.barrier()  # else rank 1 may have closed the connection
        dist.destroy_process_group()
        dist.init_process_group("gloo")
        if rank == 0:
            time.sleep(1)
            dist.send(torch.ones(1), 1)
        elif rank == 1:
            dist.recv(torch.zeros(1), 0)
    """,
    "a thread waits on a group of its own while the main thread computes": """
        g, x = dist.new_group(), torch.tensor([float(rank)])
        thread = threading.Thread(target=dist.broadcast, args=[x, 0], kwargs={"group": g})
        if rank == 0:
            time.sleep(LONG)
        thread.start()
        time.sleep(LONG)
        thread.join()
        assert x.item() == 0
    """,
    "the main thread waits for what a thread of another rank does later": """
        g, x = dist.new_group(), torch.ones(1)
        def late():
            time.sleep(LONG)
            dist.all_reduce(x)
        if rank == 3:
            thread = threading.Thread(target=late)
            thread.start()
            dist.barrier(group=g)
            thread.join()
        else:
            dist.all_reduce(x)
            dist.barrier(group=g)
        assert x.item() == 4
    """,
    "a rank ends its cell and leaves a timer that makes its call": """
        x = torch.ones(1)
        if rank == 1:
            threading.Timer(LONG, dist.all_reduce, [x]).start()
        else:
            dist.all_reduce(x)
            assert x.item() == 4
    """,
    "a worker of a pool communicates what the main thread waits for": """
        from concurrent.futures import ThreadPoolExecutor
        g = dist.new_group()
        def job():
            time.sleep(LONG * (rank == 1))
            x = torch.ones(1)
            dist.all_reduce(x, group=g)
            return x.item()
        with ThreadPoolExecutor() as pool:
            future = pool.submit(job)
            dist.barrier()
            assert future.result() == 4
    """,
    "the main thread waits for a process of a pool while another communicates": """
        from multiprocessing import get_context
        g = dist.new_group()
        if rank == 0:
            thread = threading.Thread(target=dist.barrier, args=[g])
            with get_context("fork").Pool(1) as pool:
                thread.start()
                pool.map(time.sleep, [LONG])
            dist.barrier()
            thread.join()
        else:
            dist.barrier()
            dist.barrier(group=g)
    """,
    "the main thread waits for a process of an executor while another communicates": """
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context
        g = dist.new_group()
        if rank == 0:
            thread = threading.Thread(target=dist.barrier, args=[g])
            with ProcessPoolExecutor(1, get_context("fork")) as pool:
                future = pool.submit(time.sleep, LONG)
                thread.start()
                future.result()
            dist.barrier()
            thread.join()
        else:
            dist.barrier()
            dist.barrier(group=g)
    """,
    "the main thread waits for a pool's thread in C code while another communicates": """
        from multiprocessing.pool import ThreadPool
        g = dist.new_group()
        if rank == 0:
            thread = threading.Thread(target=dist.barrier, args=[g])
            thread.start()
            with ThreadPool(1) as pool:
                pool.apply(time.sleep, [LONG])
            dist.barrier()
            thread.join()
        else:
            dist.barrier()
            dist.barrier(group=g)
    """,
    "an alarm ends the main thread's wait for a thread that communicates": """
        import signal
        g = dist.new_group()
        def give_up(*_):
            raise TimeoutError
        if rank == 0:
            thread = threading.Thread(target=dist.barrier, args=[g])
            thread.start()
            signal.signal(signal.SIGALRM, give_up)
            signal.setitimer(signal.ITIMER_REAL, LONG)
            try:
                thread.join()
                assert False
            except TimeoutError:
                dist.barrier()
                thread.join()
        else:
            dist.barrier()
            dist.barrier(group=g)
    """,
    "a callback of a future wakes the main thread": """
        if rank == 2:
            time.sleep(LONG)
        done = threading.Event()
        work = dist.all_reduce(torch.ones(1), async_op=True)
        work.get_future().add_done_callback(lambda _: done.set())
        done.wait()
    """,
    "all ranks catch that an asynchronous call is refused": """
        time.sleep(0.3 * rank)
        try:
            dist.all_gather([torch.zeros(2)] * 3, torch.zeros(2), async_op=True)
            assert False
        except RuntimeError:
            dist.barrier()
    """,
    "all ranks catch that an all-to-all is refused, each another one": """
        try:
            dist.all_to_all_single(torch.ones(4), torch.ones(8 + 4 * rank))
            assert False
        except RuntimeError:
            x = torch.ones(1)
            dist.all_reduce(x)
            assert x.item() == 4
    """,
    "all ranks catch that an all-to-all of lists is refused, each another one": """
        time.sleep(0.1 * rank)
        try:
            dist.all_to_all([torch.zeros(i + 1) for i in range(4)], [torch.ones(rank + 1)] * 4)
            assert False
        except RuntimeError:
            dist.barrier()
    """,
    "all ranks catch that a layout or a shape is refused": """
        x = torch.ones(4, 4)
        for refused in (
            lambda: dist.all_to_all_single(torch.ones(4, 4), x.t()),
            lambda: dist.all_gather_into_tensor(torch.ones(4), x[0, 0]),
            lambda: dist.broadcast(x.to_sparse(), 0),
        ):
            time.sleep(0.1 * rank)
            try:
                refused()
                assert False
            except (ValueError, RuntimeError):  # a NotImplementedError is one, too
                dist.barrier()
    """,
    "all ranks catch that shares are not equal, which torch refuses since 2.15": """
        time.sleep(0.1 * rank)
        try:
            dist.all_to_all_single(torch.ones(6), torch.ones(6))
        except RuntimeError:
            pass
        dist.barrier()
    """,
    "all ranks catch that Gloo has no gather_single, which torch offers since 2.15": """
        time.sleep(0.1 * rank)
        try:
            dist.gather_single(torch.ones(1), torch.empty(4) if rank == 0 else None)
            assert False
        except (AttributeError, RuntimeError):
            dist.barrier()
    """,
    "ranks that run apart catch several refusals": """
        for attempt in range(4):
            time.sleep(0.1 * ((rank + attempt) % 4))
            try:
                dist.all_gather([torch.zeros(attempt)] * 3, torch.zeros(attempt), async_op=attempt % 2)
                assert False
            except RuntimeError:
                pass
        x = torch.ones(1)
        dist.all_reduce(x)
        assert x.item() == 4
    """,
    "only the root is refused, and does it right the second time": """
        x = torch.tensor([float(rank)])
        if rank == 0:
            try:
                dist.gather(x, [torch.zeros(1)] * 3, dst=0)
                assert False
            except RuntimeError:
                time.sleep(LONG)
            parts = [torch.zeros(1) for _ in range(4)]
            dist.gather(x, parts, dst=0)
            assert [part.item() for part in parts] == [0, 1, 2, 3]
        else:
            dist.gather(x, dst=0)
        dist.all_reduce(x)
        assert x.item() == 6
    """,
    "one rank asks for a group that cannot be": """
        if rank == 1:
            try:
                dist.new_group([0, 1, 2, 3, 4])
                assert False
            except ValueError:
                pass
        dist.barrier(group=dist.new_group())
    """,
    "a barrier's own timeout is caught": """
        store = dist.distributed_c10d._get_default_store()
        if rank == 0:
            try:
                dist.barrier(timeout=datetime.timedelta(seconds=LONG))
                assert False
            except RuntimeError:
                store.set("caught", "")
        else:
            store.wait(["caught"])
    """,
    "an iterator gives the ranks of a group, which torch reads once": """
        odd = dist.new_group(r for r in range(4) if r % 2)
        if rank % 2:
            x = torch.ones(1)
            dist.all_reduce(x, group=odd)
            assert x.item() == 2
    """,
    "a group's own timeout is caught": """
        g = dist.new_group(timeout=datetime.timedelta(seconds=LONG))
        begun = time.monotonic()
        if rank == 0:
            try:
                dist.recv(torch.zeros(1), 1, group=g)
                assert False
            except RuntimeError:
                assert time.monotonic() - begun > 0.9 * LONG
        dist.barrier()
    """,
    "a group's own timeout is caught where DDP waits for it": """
        g = dist.new_group()
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1), process_group=g)
        set_timeout = getattr(dist, "set_timeout", dist.distributed_c10d._set_pg_timeout)
        set_timeout(datetime.timedelta(seconds=LONG), g)  # only now: a first model has to import much
        if rank == 0:
            try:
                model(torch.ones(1, 2)).sum().backward()
                assert False
            except RuntimeError:
                pass
        dist.barrier()
    """,
    "a group's own timeout ends a wait for what the end of a call sets": """
        g = dist.new_group(timeout=datetime.timedelta(seconds=LONG))
        if rank == 0:
            is_over = threading.Event()
            dist.barrier(group=g, async_op=True).get_future().add_done_callback(lambda _: is_over.set())
            is_over.wait()
        dist.barrier()
    """,
    "a message ends at a shorter timeout that its group got later": """
        g = dist.new_group()
        set_timeout = getattr(dist, "set_timeout", dist.distributed_c10d._set_pg_timeout)
        set_timeout(datetime.timedelta(seconds=LONG), g)
        if rank == 0:
            try:
                dist.recv(torch.zeros(1), 1, group=g)
                assert False
            except RuntimeError:
                pass
        dist.barrier()
    """,
    "a message arrives within a longer timeout that its group got later": """
        g = dist.new_group(timeout=datetime.timedelta(seconds=LONG / 2))
        set_timeout = getattr(dist, "set_timeout", dist.distributed_c10d._set_pg_timeout)
        set_timeout(datetime.timedelta(minutes=30), g)
        x = torch.ones(1)
        if rank == 0:
            dist.recv(x, 1, group=g)
        elif rank == 1:
            time.sleep(LONG)
            dist.send(x, 0, group=g)
    """,
    "ranks that contradict each other catch the timeout of their group": """
        g = dist.new_group(timeout=datetime.timedelta(seconds=LONG))
        try:
            dist.all_reduce(torch.ones(1 + rank), group=g)
            assert False
        except RuntimeError:
            dist.barrier()
    """,
    "the timeout of one wait is caught, and the next wait is in time": """
        if rank == 3:
            time.sleep(2 * LONG)
        x = torch.ones(1)
        work = dist.all_reduce(x, async_op=True)
        try:
            work.wait(datetime.timedelta(seconds=LONG))
        except RuntimeError:
            work.wait()
        assert x.item() == 4
    """,
    "a monitored barrier reports the rank that is missing": """
        if rank < 3:
            try:
                dist.monitored_barrier(timeout=datetime.timedelta(seconds=LONG))
                assert False
            except RuntimeError as error:
                assert rank or "3" in str(error)
    """,
    "members of a group divide it among themselves": """
        half = dist.new_group([0, 1])
        if rank < 2:
            mine, _ = dist.new_subgroups(group_size=1, group=half)
            dist.barrier(group=mine)
        dist.barrier()
        for member in [0, 1] if rank > 1 else []:  # so that all ranks have counted as many groups
            dist.new_group([member])
    """,
    "the members of groups make them among themselves": """
        for _ in range(2 if rank < 2 else 1):
            mine = dist.new_group([0, 1] if rank < 2 else [2, 3], use_local_synchronization=True)
        dist.barrier(group=mine)
    """,
    "a future of the reader's own is set by a thread": """
        future = torch.futures.Future()
        if rank == 0:
            threading.Timer(LONG, future.set_result, [7]).start()
            assert future.wait() == 7
        dist.barrier()
    """,
    "a key of the store is set late": """
        store = dist.distributed_c10d._get_default_store()
        if rank == 0:
            time.sleep(LONG)
            store.set("ready", "yes")
        store.wait(["ready"])
        assert store.get("ready") == b"yes"
    """,
    "a queue of the store is filled late": """
        store = dist.distributed_c10d._get_default_store()
        if rank == 0:
            time.sleep(LONG)
            for value in "abcd":
                store.queue_push("letters", value)
        taken = [None] * world_size
        dist.all_gather_object(taken, store.queue_pop("letters"))
        assert sorted(taken) == [b"a", b"b", b"c", b"d"]
        try:
            store.queue_pop("letters", block=False)
            assert False
        except dist.QueueEmptyError:
            pass
    """,
    "a queue of a store has the store's limit": """
        store = dist.HashStore()
        store.set_timeout(datetime.timedelta(seconds=LONG))
        try:
            store.queue_pop("letters")
            assert False
        except dist.DistStoreError:
            pass
    """,
    "a wait for a key has a limit": """
        store, begun = dist.distributed_c10d._get_default_store(), time.monotonic()
        try:
            store.wait(["never"], datetime.timedelta(seconds=LONG))
            assert False
        except dist.DistStoreError as error:
            assert f"after {1000 * LONG:.0f}ms" in str(error) and time.monotonic() - begun > 0.9 * LONG
    """,
    "a store of the reader's own has no more than torch needs": """
        class Own(dist.Store):
            def __init__(self):
                super().__init__()
                self.kept = {}

            def set(self, key, value):
                self.kept[key] = value

            def get(self, key):
                return self.kept[key]

            def multi_get(self, keys):
                return [self.kept[key] for key in keys]

            def wait(self, keys, timeout=None):
                assert {*keys} <= {*self.kept}

        own = Own()
        store = dist.PrefixStore("prefix", own)
        store.set("ready", "yes")
        store.wait(["ready"])
        assert store.get("ready") == b"yes" and store.multi_get(["ready"]) == [b"yes"]
    """,
    "a process group is made by hand": """
        store = dist.PrefixStore("by hand", dist.distributed_c10d._get_default_store())
        by_hand, x = dist.ProcessGroupGloo(store, rank, world_size), torch.ones(1)
        time.sleep(LONG * (rank == 2))
        by_hand.allreduce([x]).wait()
        assert x.item() == 4
    """,
}


@pytest.mark.parametrize("source", LEGAL.values(), ids=LEGAL)
def test_a_program_that_is_legal_in_torch_runs(world, source):
    world.execute(cell(source), timeout=60)
    assert still_works(world)


STARVED = {  # on rank 0 a thread that goes on only when other processes leave the processor to it
    "in a backward pass": """
        work, y = dist.barrier(group=g, async_op=True), torch.ones(400, 400, requires_grad=True)
        for _ in range(20):
            y = y @ y
        occupy_processor()
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        y.sum().backward()
        dist.barrier()
        work.wait()
    """,
    "woken by a thread that communicates": """
        woken = threading.Event()
        def wake():
            time.sleep(LONG / 2)
            occupy_processor()
            os.sched_setaffinity(0, processors)
            woken.set()
            dist.barrier(group=g)
        thread = threading.Thread(target=wake)
        thread.start()
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        woken.wait()
        dist.barrier()
        thread.join()
    """,
    "a thread that is started": """
        threads = [threading.Thread(target=dist.barrier, args=args) for args in ([g], [])]
        threads[0].start()
        time.sleep(LONG / 2)
        occupy_processor()
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        threads[1].start()
        for thread in threads:
            thread.join()
    """,
    "a worker of a pool that gets work": """
        from concurrent.futures import ThreadPoolExecutor
        thread = threading.Thread(target=dist.barrier, args=[g])
        thread.start()
        with ThreadPoolExecutor(
            1, initializer=os.sched_setscheduler, initargs=[0, os.SCHED_IDLE, os.sched_param(0)]
        ) as pool:
            pool.submit(abs, 1).result()
            occupy_processor()
            os.sched_setaffinity(0, processors)
            pool.submit(dist.barrier).result()
        thread.join()
    """,
}


@pytest.mark.parametrize("source", STARVED.values(), ids=STARVED)
def test_a_thread_that_waits_for_a_processor_is_not_taken_for_one_that_waits_for_other_ranks(group, source):
    group.execute(
        cell("""
            import os, subprocess, sys
            g, processors = dist.new_group(), os.sched_getaffinity(0)
            def occupy_processor():
                for _ in range(8):
                    subprocess.Popen(["timeout", str(2 * LONG), sys.executable, "-c", "while True: pass"])
            if rank == 0:
                os.sched_setaffinity(0, [min(processors)])
        """)
    )
    others = "else:\n    dist.barrier()\n    dist.barrier(group=g)"
    group.execute("if rank == 0:\n" + textwrap.indent(cell(source), "    ") + others, timeout=60)


def test_ranks_that_have_made_groups_among_themselves_can_make_one_together_if_torch_lets_them(world):
    world.execute(cell(LEGAL["the members of groups make them among themselves"]), timeout=60)
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 14):
        world.execute("dist.new_group()", timeout=60)
    else:  # it counts those groups, too
        with pytest.raises(DeadlockError, match=r"rank 0 has \d+,\nrank 2 has \d+\."):
            world.execute("dist.new_group()", timeout=60)
    assert still_works(world)


ALIKE, TWO = "[torch.ones(2) for _ in range(4)]", "torch.ones(2)"
REFUSED = {
    "an operation for sparse tensors": "all_reduce(torch.eye(2).to_sparse(), dist.ReduceOp.MAX)",
    "too few outputs": f"all_gather([{TWO}], {TWO})",
    "outputs of another size": f"all_gather({ALIKE}, torch.ones(3))",
    "an output that is too long": f"all_gather_single(torch.ones(9), {TWO})",
    "an output that is stacked": f"all_gather_single(torch.ones(4, 2), {TWO})",
    "too few to gather into": f"gather({TWO}, [{TWO}], dst=2)",
    "too few to scatter": f"scatter({TWO}, [{TWO}], src=2)",
    "too many inputs": f"reduce_scatter({TWO}, {ALIKE} * 2)",
    "inputs of another size": f"reduce_scatter(torch.ones(3), {ALIKE})",
    "an input that is too long": f"reduce_scatter_single({TWO}, torch.ones(9))",
    "an input of another dtype": f"reduce_scatter_single({TWO}, torch.ones(8).double())",
    "an output without rows": "reduce_scatter_single(torch.ones(()), torch.ones(4))",
    "an input without rows": "reduce_scatter_single(torch.ones(1), torch.ones(()))",
    "too few for an all-to-all": f"all_to_all([{TWO}], [{TWO}])",
    "a message with gaps": "send(torch.ones(4)[::2], 0)",
    "a negative tag": f"recv({TWO}, 0, tag=-1)",
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_a_call_that_is_refused_and_caught_on_one_rank_leaves_no_trace(world, call):
    world.execute(
        cell(f"""
            x = torch.ones(1)
            if rank == 2:
                time.sleep(0.2)  # the others have said what they do
                try:
                    dist.{call}
                except (ValueError, RuntimeError):
                    kept = rank
                else:
                    raise AssertionError("accepted")
            dist.all_reduce(x)
        """)
    )
    assert world.pull("x.item()") == [4.0] * 4
    assert still_works(world)


HANGING = {
    "the main thread and another": """
        g = dist.new_group()
        if rank < 3:
            threading.Thread(target=dist.barrier, args=[g], daemon=True).start()
            dist.all_reduce(torch.ones(1))
    """,
    "a thread that the main thread joins": """
        g = dist.new_group()
        if rank != 2:
            thread = threading.Thread(target=dist.barrier, args=[g])
            thread.start()
            thread.join()
    """,
    "a worker that the main thread feeds by a queue": """
        import queue
        g, work, results = dist.new_group(), queue.Queue(), queue.Queue()
        def worker():
            x = work.get()
            dist.all_reduce(x, group=g)
            results.put(x)
        threading.Thread(target=worker, daemon=True).start()
        if rank:
            work.put(torch.ones(1))
            results.get()
    """,
    "ranks with idle pools": """
        from concurrent.futures import ThreadPoolExecutor
        from multiprocessing.pool import ThreadPool
        executor, pool = ThreadPoolExecutor(1), ThreadPool(1)
        executor.submit(abs, 1).result(), pool.map(abs, [1])
        if rank:
            dist.barrier()
        pool.terminate()
    """,
    "ranks with an idle executor of processes": """
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context
        executor = ProcessPoolExecutor(1, get_context("fork"))
        executor.submit(abs, 1).result()
        if rank:
            dist.barrier()
    """,
    "ranks that have sent a tensor to another process": """
        from torch.multiprocessing import get_context
        tensors = get_context("fork").SimpleQueue()
        tensors.put(torch.ones(1))
        tensors.get()
        if rank:
            dist.barrier()
    """,
    "a future": "if rank: dist.all_reduce(torch.ones(1), async_op=True).get_future().wait()",
    "what was made of a future": """
        if rank:
            dist.all_reduce(torch.ones(1), async_op=True).get_future().then(lambda f: f.value()).wait()
    """,
    "the last of several futures": """
        calls = range(2 if rank == 3 else 3)
        torch.futures.wait_all([dist.all_reduce(torch.ones(1), async_op=True).get_future() for _ in calls])
    """,
    "an event that a callback is to set": """
        done = threading.Event()
        if rank:
            work = dist.all_reduce(torch.ones(1), async_op=True)
            work.get_future().add_done_callback(lambda _: done.set())
            done.wait()
    """,
    "a call that one rank was refused, and left": """
        if rank == 0:
            try:
                dist.all_gather([torch.zeros(2)] * 3, torch.zeros(2))
            except RuntimeError:
                dist.barrier()
        else:
            dist.all_gather([torch.zeros(2) for _ in range(4)], torch.zeros(2))
    """,
    "a call of another size than the one that one rank was refused before": """
        def gather(numel):
            dist.all_gather([torch.zeros(numel) for _ in range(4)], torch.zeros(numel))
        if rank == 0:
            try:
                dist.all_gather([torch.zeros(2)], torch.zeros(2))
            except RuntimeError:
                gather(70_001)
        else:
            time.sleep(0.2)
            gather(2)
    """,
    "a group with a longer timeout than torch's own": """
        g = dist.new_group(timeout=datetime.timedelta(hours=1))
        if rank:
            dist.barrier(group=g)
    """,
    "a group with the ten minutes that libraries give theirs": """
        g = dist.new_group(timeout=datetime.timedelta(minutes=10))
        if rank:
            dist.barrier(group=g)
    """,
    "a call that does not fit, in a callback that the main thread waits for": """
        def then(future):
            return dist.all_reduce(torch.ones(1 + (rank == 2)), async_op=True).get_future().wait()

        dist.all_reduce(torch.ones(1), async_op=True).get_future().then(then).wait()
    """,
    "a key of the default store": "rank == 1 and dist.distributed_c10d._get_default_store().get('never')",
    "a key of a store made by hand": "dist.HashStore().wait(['never'])",
    "a key that another rank deletes the moment it is there": """
        class Deleted(dist.PrefixStore):  # a rank that deletes it is rarely as fast
            def check(self, keys):
                return super().check(keys) and [self.delete_key(key) for key in keys]

        if rank == 1:
            store = Deleted("deleted", dist.distributed_c10d._get_default_store())
            store.set("ready", "yes")
            assert store.get("ready") == b"yes"  # looked for and read in one step
            store.delete_key("ready")
            store.get("ready")
    """,
    "a queue of the store": "rank == 2 and dist.distributed_c10d._get_default_store().queue_pop('never')",
    "the ranks of a process group made by hand": """
        store = dist.PrefixStore("hanging", dist.distributed_c10d._get_default_store())
        if rank:
            dist.ProcessGroupGloo(store, rank, world_size)
    """,
}


@pytest.mark.parametrize("source", HANGING.values(), ids=HANGING)
def test_a_wait_for_something_that_cannot_come_is_proven(world, source):
    with pytest.raises(DeadlockError, match="would wait forever"):
        world.execute(cell(source), timeout=60)
    assert still_works(world)


def test_ranks_that_disagree_on_how_many_groups_there_are_are_told_both_numbers(world):
    with pytest.raises(DeadlockError, match=r"rank 0 has \d+,\nrank 1 has \d+\. Have both make"):
        world.execute(
            "if rank == 0: dist.new_group([0])\n"
            "if rank < 2: dist.new_group([0, 1], use_local_synchronization=True)"
        )
    assert still_works(world)


UNPROVABLE = {
    "a thread that may still call something": """
        if rank < 3:
            dist.barrier()
        else:
            threading.Thread(target=time.sleep, args=[2 * LONG]).start()
    """,
    "asking again and again": """
        if rank < 3:
            work = dist.all_reduce(torch.ones(1), async_op=True)
            while not work.is_completed():
                time.sleep(0.01)
    """,
    "a future that nobody sets": "if rank < 3: torch.futures.Future().wait()",
    "a call of a process group made by hand": """
        store = dist.PrefixStore("unprovable", dist.distributed_c10d._get_default_store())
        by_hand = dist.ProcessGroupGloo(store, rank, world_size)
        if rank < 3:
            by_hand.allreduce([torch.ones(1)]).wait()
    """,
    "a key that a process of another program may set": """
        if rank < 3:
            store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            dist.PrefixStore("mine", store).get("never")
    """,
    "a key of a file that other programs may know": """
        if rank < 3:
            import tempfile
            dist.FileStore(f"{tempfile.mkdtemp()}/store").wait(["never"])
    """,
    "workers of a store": "if rank < 3: dist.TCPStore('127.0.0.1', 0, world_size, is_master=True)",
    "the server of a store": "if rank < 3: dist.TCPStore('127.0.0.1', 1, is_master=False)",
}


@pytest.mark.parametrize("source", UNPROVABLE.values(), ids=UNPROVABLE)
def test_a_wait_that_cannot_be_proven_hopeless_ends_at_the_timeout_and_loses_nothing(world, source):
    with pytest.raises(CellTimeout) as caught:
        world.execute(cell(source), timeout=LONG)
    for whereabouts in ("Cell In[1], line", "Rank 3: finished the cell"):
        assert whereabouts in str(caught.value)
    assert still_works(world)


@pytest.mark.parametrize(
    ("op", "call"),
    [
        ("recv", "dist.irecv(torch.zeros(1), 1).wait(hasty)"),
        ("all_reduce", "dist.all_reduce(torch.ones(1), async_op=True).get_future().wait()"),
        ("all_reduce", "model(torch.ones(1, 2)).sum().backward()"),
    ],
    ids=["a message", "a future", "DDP"],
)
def test_a_failed_call_breaks_its_group_and_the_next_cell_has_a_new_one(world, op, call):
    catch = f"""
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
        hasty = datetime.timedelta(seconds=1)
        getattr(dist, "set_timeout", dist.distributed_c10d._set_pg_timeout)(hasty)
        if rank == 0:
            try:
                {call}
            except RuntimeError:
                pass
    """
    text = str(world.execute(cell(catch)))
    assert f"[0] {op} failed (Cell In[1], line 8:" in text and "is formed again before the next cell" in text
    assert still_works(world)
    assert str(world.execute("dist.barrier()")) == ""


@pytest.mark.parametrize(
    "call",
    [
        "dist.all_reduce(torch.ones(2).long(), dist.ReduceOp.AVG)",
        # Gloo's handle of a reduce-scatter is never completed.
        "dist.reduce_scatter_tensor(torch.nn.Parameter(torch.ones(2)), torch.ones(8))",
        "dist.reduce_scatter_tensor(torch.nn.Parameter(torch.ones(2)), torch.ones(8), async_op=True).wait()",
        "dist.reduce_scatter(torch.ones(2), [torch.ones(2)] * 4, dist.ReduceOp.BAND)",
        "dist.reduce_scatter(torch.ones(2), [torch.ones(2)] * 4, dist.ReduceOp.BAND, async_op=True).wait()",
    ],
)
def test_an_error_that_comes_from_no_connection_is_raised_and_leaves_the_group_as_it_is(world, call):
    caught = f"""
        try:
            {call}
        except RuntimeError:
            failed = True
    """
    assert "formed again" not in str(world.execute(cell(caught), timeout=10))
    assert world.pull("failed") == [True] * 4
    assert still_works(world)


def test_a_failed_call_of_another_group_leaves_the_default_group_as_it_is(world):
    text = str(
        world.execute(
            cell("""
                whole = dist.new_group()
                hasty = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=0.2))
                if rank == 0:
                    try:
                        dist.barrier(group=hasty)
                    except RuntimeError:
                        pass
            """)
        )
    )
    assert "Make this group again" in text and "formed again" not in text
    world.execute("dist.barrier(group=whole)")


def test_a_batch_that_an_exception_has_left_does_not_swallow_later_calls(world):
    leave = """
        from torch.distributed.distributed_c10d import _coalescing_manager
        try:
            with _coalescing_manager():
                dist.all_reduce(torch.ones(1))
                raise ValueError
        except ValueError:
            pass
    """
    assert "A batch of collectives was left by an exception." in str(world.execute(cell(leave)))
    assert still_works(world)


THROWN_AWAY = {
    "an irecv, and a collective behind it": """
        if rank == 1: dist.irecv(x, 0)
        if rank == 0: sent = dist.isend(x, 1)
        time.sleep(0.2)
        dist.all_reduce(x.clone())
    """,
    "an irecv from any source, and a collective behind it": """
        if rank == 1: dist.irecv(x)
        if rank == 2: sent = dist.isend(x, 1)
        time.sleep(0.2)
        dist.all_reduce(x.clone())
    """,
    "an irecv, and a message the other way": """
        if rank == 1: dist.irecv(x, 0); time.sleep(0.2); dist.send(x, 0)
        if rank == 0: sent = dist.isend(x, 1); time.sleep(0.4); dist.recv(x, 1)
    """,
    "an isend before anybody asks for it, and another message behind it": """
        if rank == 0: dist.isend(x, 1); time.sleep(0.4); dist.send(x, 1, tag=5)
        time.sleep(0.2)
        if rank == 1: received = dist.irecv(x, 0); dist.recv(x, 0, tag=5)
    """,
}


@pytest.mark.parametrize("numel", [4, 200_000])
@pytest.mark.parametrize("program", THROWN_AWAY.values(), ids=THROWN_AWAY)
def test_a_message_whose_handle_is_thrown_away_arrives_and_holds_up_no_other(world, program, numel):
    shown = str(world.execute(cell(f"x = torch.full([{numel}], float(rank))\n" + textwrap.dedent(program))))
    assert "its handle was thrown away before it was over" in shown and "Under torchrun" in shown
    assert still_works(world)


def test_a_message_that_nothing_waited_for_hides_no_deadlock_behind_a_thread_that_was_left_behind(world):
    world.execute(
        cell("""
            import queue
            x = torch.ones(4)
            if rank == 0:
                sent = dist.isend(x, 1)
                threading.Thread(target=queue.Queue().get, daemon=True).start()
            if rank == 1:
                dist.recv(x, 0)
        """)
    )
    with pytest.raises(DeadlockError):
        world.execute("if rank == 1: dist.recv(x, 0)", timeout=20)
    assert still_works(world)


def test_a_collective_that_a_stopped_cell_leaves_in_a_thread_hides_no_deadlock_of_a_later_cell(world):
    program = """
        import asyncio
        async def train():
            if rank != 1:
                await asyncio.to_thread(dist.all_reduce, torch.ones(2))
        (thread := threading.Thread(target=asyncio.run, args=[train()])).start()
        thread.join()
    """
    with pytest.raises(CellTimeout):  # an event loop may still do anything
        world.execute(cell(program), timeout=1)
    with pytest.raises(DeadlockError, match="Rank 3 waits in recv from rank 2"):
        world.execute("if rank == 3: dist.recv(torch.ones(2), 2)", timeout=20)
    assert still_works(world)


def test_a_handle_that_goes_with_a_function_that_was_stopped_is_not_told_as_thrown_away(world):
    def exchange():
        rank = dist.get_rank()
        received = dist.irecv(torch.empty(4), (rank + 1) % 4)
        if rank == 0:
            raise ValueError("before the message")
        dist.recv(torch.empty(4), 0, tag=5)
        received.wait()

    with pytest.raises(RankError) as caught:
        world.run(exchange)
    assert "before the message" in str(caught.value)
    assert "thrown away" not in str(caught.value.transcript)
    assert still_works(world)


def test_a_message_thrown_away_in_one_cell_is_received_in_the_next(world):
    world.execute(cell("if rank == 0: dist.isend(torch.full([4], 7.0), 1)"))
    world.execute("if rank == 1: x = torch.zeros(4); dist.recv(x, 0)")
    assert world.pull("x.sum().item()", ranks=[1]) == [28.0]


def test_a_handle_that_torch_drops_is_not_the_readers_to_keep(world):
    join = """
        from torch.distributed.algorithms.join import Join
        from torch.nn.parallel import DistributedDataParallel
        model = DistributedDataParallel(torch.nn.Linear(2, 1))
        with Join([model]):
            for _ in range(1 + rank):
                model(torch.ones(1, 2)).sum().backward()
    """
    assert "thrown away" not in str(world.execute(cell(join)))
    assert "thrown away" in str(
        world.execute("if rank == 0: dist.isend(torch.ones(1), 1)\nelse: time.sleep(0.2)")
    )
