"""A file is written whole or not at all."""

import os
import resource
import signal
from pathlib import Path

import pytest

from autograder.kit import whole_file


@pytest.fixture
def no_space():
    """Limit files to four bytes, as a disk that is full does."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def test_a_file_takes_the_place_of_the_one_before(tmp_path: Path):
    path = tmp_path / "notebook.ipynb"
    whole_file.write(path, b"first")
    whole_file.write(path, b"second")
    assert path.read_bytes() == b"second"
    assert os.listdir(path.parent) == ["notebook.ipynb"]


def test_a_full_disk_costs_nothing_of_what_was_there(tmp_path: Path, no_space):
    path = tmp_path / "record.json"
    whole_file.write(path, b"old")
    with pytest.raises(OSError):
        whole_file.write(path, b"too long")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["record.json"]


def test_what_is_made_of_a_file_can_be_as_old_as_it_is(tmp_path: Path):
    text, made = tmp_path / "exercise.py", tmp_path / "exercise.ipynb"
    text.touch()
    os.utime(text, ns=(10**18, 2 * 10**18))
    whole_file.write(made, b"{}", as_old_as=text)
    assert made.stat().st_mtime_ns == 2 * 10**18
