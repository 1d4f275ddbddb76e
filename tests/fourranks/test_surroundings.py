"""Ranks start whatever surrounds the notebook, or one sentence says what is missing."""

import os
import re
import subprocess
import sys

import pytest

import fourranks

STARTS = """
import fourranks
with fourranks.start(2, "gloo") as group:
    group.execute("dist.all_reduce(torch.ones(1))")
    print(group.pull("rank"))
"""


def notebook(source, before=(), **options):
    """Run a process that plays a kernel, by a command that prepares it."""
    return subprocess.run(
        [*before, sys.executable, "-c", source], capture_output=True, text=True, timeout=100, **options
    )


def test_modules_of_the_readers_do_not_take_the_place_of_pythons(tmp_path):
    for name in ("random", "queue", "socket", "selectors", "torch"):
        (tmp_path / f"{name}.py").write_text("raise AssertionError('nobody asked for this')")
    elsewhere = "import sys; sys.path.pop(0)\n"  # as in a notebook that has imported the others already
    done = notebook(elsewhere + STARTS, cwd=tmp_path)
    assert done.stdout == "[0, 1]\n", done.stderr


def test_ranks_can_import_what_is_beside_the_notebook(tmp_path):
    (tmp_path / "helper.py").write_text("answer = 7")
    source = STARTS.replace("dist.all_reduce(torch.ones(1))", "from helper import answer")
    done = notebook(source, cwd=tmp_path)
    assert done.stdout == "[0, 1]\n", done.stderr


def test_the_folder_may_have_been_deleted(tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    deletes = f"import os, fourranks; fourranks.start; os.rmdir({str(folder)!r})"
    done = notebook(f"{deletes}\n{STARTS}", cwd=folder)
    assert done.stdout == "[0, 1]\n", done.stderr


def test_a_debug_level_at_which_torch_fails_ranks_that_send_messages_does_not_count():
    messages = "if rank < 2: (dist.send if rank else dist.recv)(torch.ones(1), 1 - rank)\\ndist.barrier()"
    source = STARTS.replace("start(2", "start(3").replace("dist.all_reduce(torch.ones(1))", messages)
    done = notebook(source, env=os.environ | {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})
    assert done.stdout == "[0, 1, 2]\n", done.stderr


def test_calls_that_disagree_are_explained_at_the_debug_level_at_which_torch_compares_them_too():
    with fourranks.start(world_size=2) as group:
        group.execute("dist.set_debug_level(dist.DebugLevel.DETAIL)\nown = dist.new_group()")
        with pytest.raises(fourranks.DeadlockError, match="disagree on the shape"):
            group.execute("own.allreduce([torch.ones(1 + rank)])", timeout=20)


def test_no_folder_for_temporary_files_is_needed():
    full = "import os, tempfile\ntempfile._candidate_tempdir_list = lambda: [os.sep + 'nowhere']"
    done = notebook(f"{full}\n{STARTS}")
    assert done.stdout == "[0, 1]\n", done.stderr


def test_nor_is_a_folder_of_ipythons(tmp_path):
    (tmp_path / ".ipython").symlink_to("nowhere")  # so that it cannot be made, as on a full disk
    source = STARTS.replace("dist.all_reduce(torch.ones(1))", "%cd -q nowhere\\n%cd -q /")
    done = notebook(source, env=os.environ | {"IPYTHONDIR": str(tmp_path / ".ipython")})
    assert done.stdout == "[0, 1]\n", done.stderr


@pytest.mark.parametrize("streams", [(0,), (0, 1), (0, 1, 2)])
def test_standard_streams_may_be_closed_as_in_a_daemon(streams, tmp_path):
    writes = f"open({str(tmp_path / 'ranks')!r}, 'w').write(str(group.pull('rank')))"
    source = STARTS.replace('print(group.pull("rank"))', writes)
    done = notebook(f"import os\nfor stream in {streams}: os.close(stream)\n{source}")
    assert (tmp_path / "ranks").read_text() == "[0, 1]", done.stderr


def test_more_files_may_be_open_than_select_can_watch():
    opens = """
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (1200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
"""
    done = notebook(opens + STARTS)
    assert done.stdout == "[0, 1]\n", done.stderr


def test_fewer_open_files_than_ranks_need_are_said_to_be_the_reason():
    few = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))"
    done = notebook(f"{few}\n{STARTS.replace('start(2', 'start(20')}")
    assert "StartError: Rank" in done.stderr and "a process may have 40 files open" in done.stderr


def test_files_that_may_not_be_as_large_as_ranks_need_are_said_to_be_the_reason():
    small = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))"
    done = notebook(f"{small}\n{STARTS}")
    assert "StartError: The ranks cannot be started" in done.stderr
    assert "a file that a process writes may have 1,000 bytes" in done.stderr and "`ulimit -f" in done.stderr


def test_ranks_that_may_have_too_few_files_open_to_connect_name_the_command_that_finds_it_out():
    few_on_the_ranks = """
import resource
from fourranks import zygote
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (20, limits[1]))
zygote.shared().ready()
resource.setrlimit(resource.RLIMIT_NOFILE, limits)
"""
    done = notebook(few_on_the_ranks + STARTS.replace("start(2", "start(4"))
    assert "StartError: The ranks could not form a process group. `fourranks doctor`" in done.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make network namespaces")
def test_a_loopback_interface_that_is_down_is_said_to_be_the_reason():
    done = notebook(STARTS, before=["unshare", "--net"])
    assert "StartError: Ranks meet at 127.0.0.1, which cannot be reached" in done.stderr


REFUSED = """
import errno, itertools, os, torch
import fourranks
from autograder.inside import forked_zygote

fork, forks = os.fork, itertools.count()

def fork_few():
    if next(forks) in (3, 4):  # after the zygote, the first world's rank, and the second one's first
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return fork()

os.fork = fork_few
forked_zygote.share()
with fourranks.start(1, "gloo") as group:
    group.execute("kept = 7")
    try:
        fourranks.start(4, "gloo")
    except fourranks.errors.StartError as error:
        print(error)
    print(group.pull("kept"))
"""


def test_ranks_that_linux_refuses_to_start_cost_no_other_world_its_ranks():
    done = notebook(REFUSED)
    refusal = r"Ranks? 1(-2)? could not be started, because there may be no more processes"
    assert re.search(refusal, done.stdout), done.stderr  # the first is enough to end the start
    assert done.stdout.endswith("\n[7]\n")
