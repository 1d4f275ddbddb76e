"""`fourranks run`: a program on ranks from a shell, beside torchrun where that says what is right."""

from __future__ import annotations

import gzip
import json
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest
import torch.distributed as dist

import fourranks
from fourranks import RankError, cell, conductor, zygote
from fourranks.hardware import processors
from fourranks.protocol.messages import TEXT_LIMIT
from tests.processes import run, started

RUN = [sys.executable, "-m", "fourranks", "run"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]

WHERE = """
import json, os, sys
import torch.distributed as dist
from beside import BESIDE

def main():
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MINE")
    found = {name: os.environ.get(name) for name in names} | {
        "argv": sys.argv, "path": sys.path[0], "file": __file__, "cwd": os.getcwd(), "main": __name__,
        "initialized": dist.is_initialized(), "torchelastic": dist.is_torchelastic_launched(),
        "is main": sys.modules["__main__"].main is main, "port": "MASTER_PORT" in os.environ,
        "backend of figures": os.environ.get("MPLBACKEND"), "package": __package__,
    }
    dist.init_process_group("gloo")
    gathered = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, found)
    if dist.get_rank() == 0:
        print(json.dumps(gathered))
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
"""

HOLDS = """
import subprocess, sys, time
import torch.distributed as dist

dist.init_process_group("gloo")
child = subprocess.Popen(["sleep", "600"])
print("child", child.pid)
try:
    while True:
        dist.barrier()
        time.sleep(0.01)
except KeyboardInterrupt:
    print("interrupted")
    raise
"""


@pytest.fixture
def script(tmp_path):
    """Write a script; returns its path."""

    def write(text: str, name: str = "train.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    return write


def last_json(text: str):
    return json.loads(text.strip().splitlines()[-1].partition("[0] ")[2] or text.strip().splitlines()[-1])


@pytest.mark.parametrize("name", ["jobs/train.py", "module"])
def test_a_program_finds_what_torchrun_gives_it(script, tmp_path, name):
    script(WHERE, "jobs/train.py")
    script("BESIDE = True", "jobs/beside.py")
    script("BESIDE = True", "beside.py")
    program = ["-m", "jobs.train"] if name == "module" else [name]
    program += ["--lr", "0.1", "-n", "3", "--help"]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "MINE": "yes"}
    number = ["-n", "2"] if name == "module" else ["--standalone", "--nproc_per_node=2"]  # as torchrun has it
    ours = run([*RUN, *number, *program], cwd=tmp_path, env=environment)
    theirs = run([*TORCHRUN, *program], cwd=tmp_path, env=environment)
    assert theirs.returncode == 0, theirs.stderr
    assert (ours.returncode, ours.stderr) == (0, "")
    found, expected = last_json(ours.stdout), last_json(theirs.stdout)
    for mine, other in zip(found, expected, strict=True):
        assert mine.pop("MASTER_ADDR") == "127.0.0.1"
        assert other.pop("MASTER_ADDR")
        assert mine == other


@pytest.mark.parametrize(
    ("ending", "status", "said"),
    [
        ("", 0, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit(0)", 0, ""),
        ("sys.exit(7)", 7, "Ranks 0-1 left with exit status 7."),
        ("sys.exit(-1)", 255, "Ranks 0-1 left with exit status 255."),
        ("sys.exit('no data')", 1, "Ranks 0-1 left: no data"),
        ("exit(3) if rank else dist.barrier()", 3, "Rank 0 waits in barrier (train.py, line 6"),
        ("exit(3) if rank else dist.barrier()", 3, "Rank 1 exited, so never came"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero"),
        ("import no_such_module", 1, "ModuleNotFoundError: No module named 'no_such_module'"),
        ("dist.barrier()\ntime.sleep(0.5)\nos._exit(9)", 1, "exited with code 9 (last seen in"),
    ],
)
def test_the_exit_status_is_the_programs(script, ending, status, said):
    path = script(f"import os, sys, time\nimport torch.distributed as dist\ndist.init_process_group()\n"
                  f"rank = dist.get_rank()\nprint('begun')\n{ending}\n")  # fmt: skip
    done = run([*RUN, "-n", "2", path])
    assert done.returncode == status
    assert said in done.stderr and bool(said) == bool(done.stderr)
    assert sorted(done.stdout.splitlines()) == ["[0] begun", "[1] begun"]
    for own in ("fourranks/rank", "%ranks", "keep their variables"):
        assert own not in done.stderr


def test_text_that_the_terminal_cannot_show_ends_nothing(script):
    path = script("print('größer →')")
    done = run([*RUN, "-n", "2", path], env={"PATH": "/usr/bin:/bin", "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == [f"[{rank}] gr\\xf6\\xdfer \\u2192" for rank in range(2)]


@pytest.mark.parametrize("name", ["cpu", "gpu", "auto", "tpu"])
def test_the_number_of_ranks_is_named_by_what_torchrun_counts(script, name):
    gpus = zygote.shared().gpus().count
    count = {"cpu": processors(), "gpu": gpus, "auto": gpus or processors()}.get(name)
    done = run([*RUN, "--nproc-per-node", name, script("import os; print('has', os.environ['WORLD_SIZE'])")])
    if count:
        assert done.returncode == 0 and done.stdout.count(f"has {count}\n") == count
    else:
        why = (
            "there is no GPU that torch can use"
            if name == "gpu"
            else "give a number, cpu, gpu or auto, not 'tpu'"
        )
        assert done.returncode == 2 and why in done.stderr


def test_a_line_that_was_written_for_torchrun_on_one_machine_runs(script):
    path = script("import os, sys; print(os.environ['WORLD_SIZE'], *sys.argv[1:])")
    line = ["--nnodes=1:1", "--nproc_per_node=2", "--node_rank", "0", "--max-restarts=0",
            "--master_port=29501", "--rdzv-backend=c10d", "--rdzv-endpoint", "localhost:0"]  # fmt: skip
    done = run([*RUN, *line, path, "--nnodes=3"])
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == ["[0] 2 --nnodes=3", "[1] 2 --nnodes=3"]


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--nnodes=2", "all nodes: -n says how many, --nodes hostA,hostB where"),
        ("--node_rank=1", "one command starts the ranks of all nodes"),
        ("--max-restarts=3", "nothing is restarted here after a failure: leave this option out"),
        ("--tee=3", "unrecognized arguments: --tee=3"),
    ],
)
def test_what_torchrun_alone_can_do_is_refused_beside_the_options_that_there_are(script, option, said):
    done = run([*RUN, "-n", "2", option, script("print('runs')")])
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr and done.stderr.startswith("usage: fourranks run [-h] [-n WORLD_SIZE]")


def test_a_syntax_error_and_what_does_not_exist_are_told(script, tmp_path):
    done = run([*RUN, "-n", "1", script("x = (\n")])
    assert done.returncode == 1 and "SyntaxError: '(' was never closed" in done.stderr
    done = run([*RUN, tmp_path / "none.py"])
    assert (done.returncode, done.stderr) == (2, f"fourranks run: there is no file {tmp_path / 'none.py'}\n")
    done = run([*RUN, "--nodes", "a,b", "--nproc-per-node", "4", script("pass")])
    assert done.returncode == 2 and "over several nodes, -n says how many ranks" in done.stderr
    done = run([*RUN, "-n", "1", "-m", "no_such.module"])
    assert done.returncode == 1 and "no_such" in done.stderr
    done = run([*RUN, "-n", "0", script("")])
    assert (done.returncode, done.stderr) == (2, "fourranks run: A world has 1 to 128 ranks, not 0.\n")


def test_a_deadlock_is_explained_and_ends_the_program(script):
    path = script("""
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        x = torch.ones(3)
        for step in range(100):
            if step == 50 and dist.get_rank() == 1:
                dist.broadcast(x, src=0)
            dist.all_reduce(x)
    """)
    done = run([*RUN, "-n", "3", path])
    assert done.returncode == 1
    assert "Ranks 0,2 wait in all_reduce (train.py, line 10: dist.all_reduce(x))." in done.stderr
    assert "Rank 1 waits in broadcast (train.py, line 9: dist.broadcast(x, src=0))." in done.stderr
    assert " cell" not in done.stderr


def test_a_rank_that_never_joins_is_named(script):
    path = script("""
        import os
        import torch.distributed as dist

        if os.environ["RANK"] != "1":
            dist.init_process_group("gloo")
    """)
    done = run([*RUN, "-n", "2", path])
    assert done.returncode == 1
    assert (
        "Rank 0 waits in init_process_group" in done.stderr and "Rank 1 finished the program" in done.stderr
    )


def test_ranks_that_meet_for_remote_calls_form_no_process_group(script, monkeypatch):
    path = script("""
        import os
        import torch.distributed.rpc as rpc

        rank = int(os.environ["RANK"])
        rpc.init_rpc(f"worker {rank}".replace(" ", "-"), rank=rank, world_size=2)
        if rank == 0:
            raise ValueError("no call")
        rpc.shutdown()
    """)
    monkeypatch.setattr(conductor, "PATIENCE_WITH_OTHERS", 1.0)
    with fourranks.start(2, "gloo") as group, pytest.raises(RankError) as caught:
        group.run_program(path)
    assert "Rank 1: train.py, line 9: rpc.shutdown()" in str(caught.value)
    assert "init_process_group" not in str(caught.value)


def test_ranks_that_go_on_alone_after_an_error_are_ended_and_said_where_they_were(script, monkeypatch):
    path = script("""
        import os, time

        if os.environ["RANK"] == "1":
            raise OSError("disk full")
        while True:
            time.sleep(0.01)
    """)
    monkeypatch.setattr(conductor, "PATIENCE_WITH_OTHERS", 0.5)
    with fourranks.start(2, "gloo") as group, pytest.raises(RankError, match="disk full") as caught:
        group.run_program(str(path))
    assert list(caught.value.errors) == [1]
    assert "Rank 0: train.py, line 7: time.sleep(0.01)" in str(caught.value)


def test_a_program_may_print_more_than_a_page_and_each_line_has_its_rank(script):
    count = 3 * TEXT_LIMIT // 100
    path = script(f"""
        import os, sys

        for number in range({count}):
            print(number, "x" * 100)
        print("end", file=sys.stderr)
        os.write(1, b"from C\\n")
    """)
    done = run([*RUN, "-n", "2", path])
    for rank in range(2):
        own = [line for line in done.stdout.splitlines() if line.startswith(f"[{rank}] ")]
        own.remove(f"[{rank}] from C")  # output past Python's streams comes by another way
        assert own == [f"[{rank}] {number} {'x' * 100}" for number in range(count)]
    assert sorted(done.stderr.splitlines()) == ["[0] end", "[1] end"]


def test_a_line_that_a_program_writes_over_is_shown_meanwhile_and_in_the_end(script):
    path = script("""
        import sys, time

        for step in range(30):
            sys.stderr.write(f"\\rstep {step}")
            sys.stderr.flush()
            time.sleep(0.1)
        sys.stderr.write("\\n")
        print("a line, ", end="", flush=True)
        time.sleep(1.5)
        print("in two parts")
    """)
    done = run([*RUN, "-n", "1", path])
    lines = done.stderr.splitlines()
    assert 3 <= len(lines) <= 6 and len(set(lines)) == len(lines)
    assert lines[-1] == "[0] step 29" and all(line.startswith("[0] step ") for line in lines)
    assert done.stdout == "[0] a line, in two parts\n"


def test_threads_and_exit_functions_of_a_program_come_to_their_end(script):
    path = script("""
        import atexit, threading, time
        from concurrent.futures import ThreadPoolExecutor

        def late():
            time.sleep(0.3)
            print("thread")

        atexit.register(print, "exit function")
        threading.Thread(target=late).start()
        ThreadPoolExecutor().submit(int)  # its thread waits for more
        print("main")
    """)
    done = run([*RUN, "-n", "1", path])
    assert done.stdout.splitlines() == ["[0] main", "[0] thread", "[0] exit function"], done.stderr


def test_a_handle_that_outlives_the_modules_of_a_program_says_nothing(script):
    path = script("""
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        torch.kept_by_a_library = dist.all_reduce(torch.ones(1), async_op=True)
        dist.barrier()
    """)
    done = run([*RUN, "-n", "2", path])
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "ending", ["", "sys.exit(3)", "raise ValueError", "if rank == 1: raise ValueError\ntime.sleep(600)"]
)
def test_what_a_program_leaves_open_is_written_and_its_objects_are_deleted(script, tmp_path, ending):
    path = script(f"""
        import gzip, os, sys, tempfile, time

        class Last:
            def __del__(self):
                print("deleted")

        rank = int(os.environ["RANK"])
        last, scratch = Last(), tempfile.TemporaryDirectory(dir="{tmp_path}", prefix="scratch")
        log, packed = open(f"{tmp_path}/log{{rank}}", "w"), gzip.open(f"{tmp_path}/packed{{rank}}", "wt")
        log.write("step 1")
        packed.write("step 1")
        {ending.replace(chr(10), chr(10) + 8 * " ")}
    """)
    done = run([*RUN, "-n", "2", path])
    stuck = {0} if "600" in ending else set()
    assert [(tmp_path / f"log{rank}").read_text() for rank in (0, 1)] == ["step 1"] * 2, done.stderr
    for rank in {0, 1} - stuck:
        assert gzip.decompress((tmp_path / f"packed{rank}").read_bytes()) == b"step 1"
        assert f"[{rank}] deleted" in done.stdout
    assert not list(tmp_path.glob("scratch*")) or stuck


def test_a_program_that_ends_at_once_does_not_end_while_groups_of_before_are_destroyed(script):
    shown = []
    zygote.shared().import_modules(zygote.COMPILER)  # with which comes triton, where torch is built for CUDA
    with fourranks.start(4, "gloo") as group:
        group.execute("for _ in range(20): dist.new_group()")  # Gloo takes 10 ms for each connection
        group.run_program(str(script("print('begun')")), on_output=shown.append)
        group.stop()
    assert str(shown[-1]) == "[0-3] begun"


def test_when_python_ends_after_a_program_no_thread_waits_for_its_messages(script):
    path = script("""
import threading
import torch, torch.distributed as dist

class Last:
    def __del__(self, threads=threading.enumerate, show=print):
        show([thread.name for thread in threads() if "messages" in thread.name])

last = Last()
dist.init_process_group("gloo")
if dist.get_rank() == 0:
    dist.isend(torch.ones(1000), 1)
""")
    done = run([*RUN, "-n", "2", path])
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, ["[0] []", "[1] []"])
    assert "was not waited for" in done.stderr and "terminate" not in done.stderr


def test_a_key_that_a_process_of_the_programs_own_sets_is_waited_for(script):
    path = script("""
        import subprocess, sys
        import torch.distributed as dist

        CHILD = "import sys, time, torch.distributed as dist; time.sleep(3); " \\
            "dist.TCPStore('127.0.0.1', int(sys.argv[1]), is_master=False).set('go', '1')"

        dist.init_process_group("gloo")
        store, port = None, [0]
        if dist.get_rank() == 0:
            store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            port = [store.port]
            child = subprocess.Popen([sys.executable, "-c", CHILD, str(store.port)])
        dist.broadcast_object_list(port)
        store = store or dist.TCPStore("127.0.0.1", port[0], is_master=False)
        store.wait(["go"])
        dist.barrier()
        print("gone")
    """)
    done = run([*RUN, "-n", "2", path])
    assert sorted(done.stdout.split()) == ["[0]", "[1]", "gone", "gone"], done.stderr


def test_a_program_may_form_its_group_at_an_address_of_its_own(script):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    done = run([*RUN, "-n", "2", script(f"""
        import os, torch
        import torch.distributed as dist

        for address in "env://", "{address}":
            place = dict(rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
            dist.init_process_group("gloo", init_method=address, **place)
            x = torch.ones(1)
            dist.all_reduce(x)
            print(x.item())
            dist.destroy_process_group()
    """)])  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == ["[0] 2.0"] * 2 + ["[1] 2.0"] * 2


@pytest.mark.parametrize(
    ("chosen", "sums"),
    [
        ("rank=world_size - 1 - rank, world_size=world_size", ["2.0"] * 3),
        ("rank=rank, world_size=2", ["2.0", "2.0", "alone"]),
    ],
)
def test_a_program_may_number_its_ranks_itself(script, chosen, sums):
    path = script(f"""
        import os, torch
        import torch.distributed as dist

        rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        if "alone" in {sums} and rank == 2:
            print("alone")
        else:
            dist.init_process_group("gloo", {chosen})
            x = torch.tensor([float(rank) if "alone" not in {sums} else 1.0])
            dist.broadcast(x, 0) if "alone" not in {sums} else dist.all_reduce(x)
            print(x.item())
    """)
    done = run([*RUN, "-n", "3", path])
    assert sorted(line.split()[1] for line in done.stdout.splitlines()) == sums, done.stderr
    assert done.returncode == 0


@pytest.mark.skipif(not hasattr(dist, "_reconfigure"), reason="groups are connected anew since torch 2.15")
def test_a_program_may_connect_its_group_anew_in_parts_and_in_another_order(script):
    path = script("""
        import os, torch
        import torch.distributed as dist

        rank = int(os.environ["RANK"])
        dist.init_process_group("gloo", enable_reconfigure=True)
        store = dist.distributed_c10d._get_default_store()
        for members in [0, 1, 2], [1, 0] if rank < 2 else [2]:
            store.set(f"{members} {rank}", dist._get_reconfigure_handle())
            handles = [store.get(f"{members} {member}").decode() for member in members]
            dist._reconfigure(len(members), handles).wait()
            x = torch.ones(1)
            if len(members) == 1:
                dist.barrier()
            dist.all_reduce(x)
            if dist.get_world_size() == 2:
                dist.recv(x, 0) if dist.get_rank() else dist.send(x, 1)
            print(dist.get_rank(), x.item())
    """)
    done = run([*RUN, "-n", "3", path])
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == [
        *("[0] 0 3.0", "[0] 1 2.0", "[1] 0 2.0", "[1] 1 3.0", "[2] 0 1.0", "[2] 2 3.0")
    ]


@pytest.mark.parametrize(
    ("leave", "said"),
    [
        ("os._exit(0)", "ended the process with exit status 0, as os._exit does."),
        ("dist.destroy_process_group()", "destroyed the process group, so its connections are closed."),
    ],
)
@pytest.mark.parametrize("ranks", [2, 4])  # of four, one hears nothing from Gloo, and waits
def test_a_rank_that_has_closed_its_connections_is_named_where_calls_fail_for_it(script, leave, said, ranks):
    done = run([*RUN, "-n", str(ranks), script(f"""
        import os
        import torch, torch.distributed as dist

        dist.init_process_group("gloo")
        dist.barrier()
        {leave} if dist.get_rank() == 1 else dist.all_reduce(torch.ones(1))
    """)])  # fmt: skip
    assert done.returncode == 1
    assert "raised RuntimeError" in done.stderr
    assert f"Meanwhile:\n  Rank 1 {said}" in done.stderr


def test_a_rank_that_has_closed_its_connections_is_named_where_a_backward_pass_fails_for_it(script):
    done = run([*RUN, "-n", "2", script("""
        import os
        import torch, torch.distributed as dist

        dist.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
        dist.barrier()
        os._exit(0) if dist.get_rank() == 1 else model(torch.ones(1, 2)).sum().backward()
    """)])  # fmt: skip
    assert done.returncode == 1
    assert "raised RuntimeError" in done.stderr
    assert "Meanwhile:\n  Rank 1 ended the process with exit status 0" in done.stderr


def test_a_rank_that_ends_its_process_after_a_call_is_not_taken_for_one_that_never_came_to_it(
    script, monkeypatch
):
    monkeypatch.setattr(cell, "REPORT_EVERY", 0.5)  # so that it ends between two reports of the other
    path = script("""
        import os, time
        import torch, torch.distributed as dist

        dist.init_process_group("gloo")
        time.sleep(2.2 * dist.get_rank())
        dist.all_reduce(torch.ones(1))
        if dist.get_rank() == 1:
            os._exit(0)
        time.sleep(1.5)
    """)
    with fourranks.start(2, "gloo") as group:
        group.run_program(str(path))


def test_a_program_may_end_its_process_and_name_what_is_called_at_an_error(script):
    left = run([*RUN, "-n", "2", script("import os; print('done', flush=True); os._exit(0)")])
    assert (left.returncode, sorted(left.stdout.split())) == (0, ["[0]", "[1]", "done", "done"]), left.stderr
    hook = """
        import sys
        import torch.distributed as dist

        def hook(kind, error, traceback):
            print("called for", kind.__name__)
            sys.exit(5)

        sys.excepthook = hook
        dist.init_process_group("gloo")
        raise ValueError
    """
    raised = run([*RUN, "-n", "1", script(hook)])
    assert (raised.returncode, raised.stdout) == (5, "[0] called for ValueError\n"), raised.stderr


def test_what_a_program_has_called_at_an_error_finds_its_own_frames_alone(script):
    done = run([*RUN, "-n", "1", script("""
        import sys
        from traceback import extract_tb

        def hook(kind, error, traceback):
            for found in traceback, error.__traceback__:
                print(*(frame.name for frame in extract_tb(found)))

        def fail():
            raise ValueError("shown by the command, too")

        sys.excepthook = hook
        fail()
    """)])  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "[0] <module> fail\n" * 2), done.stderr
    assert "in fail()" in done.stderr and "ValueError: shown by the command, too" in done.stderr


def test_an_error_that_a_program_has_shown_itself_names_its_rank_once(script):
    done = run([*RUN, "-n", "1", script("""
        import sys
        import torch.distributed as dist

        dist.init_process_group("gloo")
        sys.excepthook(ValueError, ValueError("bad batch"), None)
    """)])  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "[0] [rank0]: ValueError: bad batch\n")


def test_a_program_may_start_processes_of_its_own(script):
    path = script("""
        import multiprocessing, os
        import torch.multiprocessing as mp

        def work(index, queue):
            queue.put((index, __name__))

        if __name__ == "__main__":
            queue = multiprocessing.get_context("spawn").SimpleQueue()
            mp.spawn(work, args=(queue,), nprocs=2)
            print(sorted(queue.get() for _ in range(2)))
    """)
    done = run([*RUN, "-n", "1", path])
    assert done.stdout == "[0] [(0, '__mp_main__'), (1, '__mp_main__')]\n", done.stderr


def test_a_process_that_a_program_forks_ends_as_python_ends_it_and_answers_for_no_rank(script):
    done = run([*RUN, "-n", "2", script("""
        import os, sys
        import torch.distributed as dist

        dist.init_process_group("gloo")
        for ending in "sys.exit(5)", "sys.exit('no data')", "1 / 0", "pass":
            if (child := os.fork()) == 0:
                exec(ending)
                break
            print(ending, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        else:
            dist.barrier()
            print("all ranks are there")
    """)])  # fmt: skip
    said = ["sys.exit(5) 5", "sys.exit('no data') 1", "1 / 0 1", "pass 0", "all ranks are there"]
    assert (done.returncode, sorted(done.stdout.splitlines())) == (
        0, sorted(f"[{rank}] {line}" for rank in range(2) for line in said)
    ), done.stderr  # fmt: skip
    assert done.stderr.count("] no data\n") == 2 and "exit status" not in done.stderr
    assert done.stderr.count("ZeroDivisionError: division by zero") == 2


def test_a_program_forms_its_group_as_it_asks_for_unless_a_backend_is_given(script):
    path = script("""
        import datetime
        import torch
        import torch.distributed as dist

        for _ in range(2):
            dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=77))
            group = dist.group.WORLD._get_backend(torch.device("cpu"))
            x = torch.ones(1)
            dist.all_reduce(x)
            print(dist.get_backend(), group.options._timeout.total_seconds(), x.item())
            dist.destroy_process_group()
    """)
    done = run([*RUN, "-n", "2", "--backend", "gloo", path])
    assert sorted(done.stdout.splitlines()) == sorted(["[0] gloo 77.0 2.0", "[1] gloo 77.0 2.0"] * 2)
    assert (done.returncode, done.stderr) == (0, "")
    refused = run([*RUN, "-n", "2", "--device", "cpu", path])
    assert refused.returncode == 1 and "nccl" in refused.stderr.lower()


@pytest.mark.parametrize("backend", ["'gloo'", ""])
def test_a_program_may_destroy_a_group_at_once_although_other_ranks_still_connect(script, backend):
    path = script(f"""
        import torch.distributed as dist

        for _ in range(60):  # by itself torch fails now and then, the more often the busier the machine is
            dist.init_process_group({backend})
            dist.destroy_process_group()
    """)
    done = run([*RUN, "-n", "3", path])
    assert (done.returncode, done.stderr) == (0, "")


def children_of(process) -> list[psutil.Process]:
    """Wait until both ranks have started a child; returns all that the command has started."""
    pids = [int(process.stdout.readline().split()[-1]) for _ in range(2)]
    return [*psutil.Process(process.pid).children(recursive=True), *map(psutil.Process, pids)]


def assert_gone(processes) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and any(
        each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in processes
    ):
        time.sleep(0.05)
    assert not [each for each in processes if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]


def test_ctrl_c_interrupts_all_ranks_and_leaves_nothing(script):
    with started(
        [*RUN, "-n", "2", script(HOLDS)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        began = children_of(process)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert sorted(output.splitlines()) == ["[0] interrupted", "[1] interrupted"]
    assert "The program was interrupted." in errors and "train.py, line" in errors
    assert_gone(began)


SAVES = """
import signal, sys, time
import torch.distributed as dist

def save(number, frame):
    time.sleep({seconds} if rank == 0 else 0)
    open(f"saved{{rank}}", "w").close()
    sys.exit({status})

dist.init_process_group("gloo")
rank = dist.get_rank()
signal.signal(signal.SIGTERM, save)
print("ready")
while True:
    time.sleep(0.01)
"""


def ended_by(number: int, path: Path, **options: object) -> tuple[int, str]:
    """Send the command a signal when both ranks are ready; its exit status, and its errors."""
    pipe = subprocess.PIPE
    with started([*RUN, "-n", "2", path], stdout=pipe, stderr=pipe, text=True, **options) as process:
        assert [process.stdout.readline().split()[1] for _ in range(2)] == ["ready", "ready"]
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    return process.returncode, errors


@pytest.mark.parametrize(("seconds", "status"), [(0, 0), (1, 0), (12, 7)])
def test_a_program_may_save_something_when_its_job_is_ended(script, tmp_path, seconds, status):
    path = script(SAVES.format(seconds=seconds, status=status))
    ended, errors = ended_by(signal.SIGTERM, path, cwd=tmp_path)
    assert ended == status, errors
    assert sorted(each.name for each in tmp_path.glob("saved*")) == ["saved0", "saved1"]


def test_one_that_takes_too_long_for_it_is_interrupted(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cell, "SIGNAL_PATIENCE", 0.5)
    path = script(SAVES.format(seconds=600, status=0))
    with fourranks.start(2, "gloo") as group:
        threading.Timer(2, group.pass_on, [signal.SIGTERM]).start()
        with pytest.raises(KeyboardInterrupt, match="train.py, line 6"):
            group.run_program(path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_exit_status_of_a_program_that_a_signal_has_ended_says_so(script, number):
    path = script(SAVES.format(seconds=0, status=0).replace("signal.signal(signal.SIGTERM, save)", ""))
    assert ended_by(number, path)[0] == 128 + number


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_command_that_is_killed_leaves_nothing(script, number):
    with started([*RUN, "-n", "2", script(HOLDS)], stdout=subprocess.PIPE, text=True) as process:
        began = children_of(process)
        process.send_signal(number)
        process.wait(timeout=60)
    assert_gone(began)


def test_a_killed_rank_is_named_and_ends_the_program(script):
    abort = "dist.barrier(); dist.get_rank() or __import__('os').abort()"
    path = script(HOLDS.replace("dist.barrier()", abort))
    done = run([*RUN, "-n", "2", path])
    assert done.returncode == 1 and "Rank 0 was killed by SIGABRT" in done.stderr
