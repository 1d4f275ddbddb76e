"""Beyond what `test_checks` asks of checkpoints: real faults, and what is told of them."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from autograder import check
from autograder.kit import student
from tests.autograder import shelf
from tests.autograder.shelf import failure_of

TOPIC = "04_data_parallelism"
OPERATIONS = ("load_checkpoint", "save_checkpoint")
FEW = {"world_sizes": (2, 3)}  # enough to tell every mistake on the shelf


@pytest.fixture(scope="module")
def solutions() -> dict:
    return shelf.solutions(TOPIC)


def test_a_function_that_never_ends_and_one_that_dies_fail_their_checks():
    def never_end(*arguments):
        while True:
            pass

    def die(*arguments):
        os._exit(3)

    for function, kind in ((never_end, "TIMED_OUT"), (die, "DIED")):
        function.__module__ = "__main__"  # reaches the ranks by value, as a notebook's functions do
        for operation in OPERATIONS:
            handle = student.NotebookFunction(function)
            handle.timeout = 2.0 if function is never_end else 20.0
            assert shelf.name_of(failure_of(operation, handle, **FEW).verdict.mistake) == kind


def test_a_checkpoint_that_a_killed_rank_leaves_behind_is_shown_as_what_new_ranks_find():
    mistake = shelf.wrong_solutions(TOPIC, "save_checkpoint")["moves_the_earlier_file_away"]
    text = str(failure_of("save_checkpoint", mistake, **FEW))
    assert "3 ranks, killed in the midst of writing" in text
    assert "the earlier checkpoint, whole" in text
    assert "no file" in text


def test_what_is_missing_in_a_checkpoint_is_named_by_its_place():
    mistake = shelf.wrong_solutions(TOPIC, "save_checkpoint")["forgets_the_buffers"]
    text = str(failure_of("save_checkpoint", mistake, world_sizes=(2,)))
    assert "model['submodule.1.running_mean']" in text


def test_a_tensor_that_is_saved_in_place_of_a_number_is_shown_as_one():
    mistake = shelf.wrong_solutions(TOPIC, "save_checkpoint")["saves_a_tensor_as_step"]
    assert "got       tensor(" in str(failure_of("save_checkpoint", mistake, world_sizes=(2,)))


ON_A_FULL_DISK = """
import sys, torch, fourranks
from tests.autograder import shelf

def fill(save_checkpoint, load_checkpoint, path):
    small, large = torch.nn.Linear(4, 4), torch.nn.Linear(4, 40_000)
    optimizer = torch.optim.SGD(small.parameters(), lr=1.0)
    save_checkpoint(path, small, optimizer, step=17)
    try:
        save_checkpoint(path, large, optimizer, step=18)
    except RuntimeError as error:
        return load_checkpoint(path, small, optimizer), str(error)

solutions = shelf.solutions("04_data_parallelism")
functions = [solutions[name] for name in ("save_checkpoint", "load_checkpoint")]
for step, error in fourranks.run(fill, *functions, sys.argv[1], world_size=2):
    print(step, error)
"""


def test_the_solution_keeps_the_earlier_checkpoint_on_a_disk_that_is_really_full(tmp_path):
    mount = f'mount -t tmpfs -o size=256k full {tmp_path} && exec "$@"'
    namespace = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]
    if not shutil.which("unshare") or subprocess.run([*namespace, "true"], capture_output=True).returncode:
        pytest.skip("needs unshare, and permission to mount in a user namespace")
    command = [*namespace, sys.executable, "-c", ON_A_FULL_DISK, str(tmp_path / "last.pt")]
    done = subprocess.run(command, cwd=shelf.SOURCE.parent, capture_output=True, text=True)
    assert done.stdout.count("17 ") == 2, done.stderr
    assert done.stdout.count("was not written") == 2


def test_checks_leave_no_file_and_no_process_behind(solutions, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    check.load_checkpoint(solutions["load_checkpoint"], world_sizes=(2,))  # the zygote stays
    before = set(psutil.Process().children(recursive=True))
    check.save_checkpoint(solutions["save_checkpoint"], world_sizes=(2,))
    failure_of("load_checkpoint", lambda *arguments: 0, world_sizes=(2,))
    assert list(Path(tmp_path).iterdir()) == []
    assert set(psutil.Process().children(recursive=True)) <= before
