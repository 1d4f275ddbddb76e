"""A kernel that is not the course's own: what tools/anywhere.py installs in it, and what it refuses."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import torch

from tests.processes import run

COURSE = Path(__file__).parents[1]


@pytest.fixture
def clone(tmp_path):
    """A copy of the course as far as the package is made of it: pip leaves files where it builds."""
    for folder in ("autograder", "fourranks"):
        shutil.copytree(COURSE / folder, tmp_path / "clone" / folder)
    for name in ("LICENSE", "README.md", "pyproject.toml", "tools/anywhere.py"):
        (tmp_path / "clone" / name).parent.mkdir(exist_ok=True)
        shutil.copy(COURSE / name, tmp_path / "clone" / name)
    return tmp_path / "clone"


def kernel(folder: Path, *options: str) -> Path:
    """Make an environment; returns its Python."""
    subprocess.run([sys.executable, "-m", "venv", *options, folder], check=True)
    return folder / "bin" / "python"


def packages_of(python: Path) -> Path:
    [packages] = python.parents[1].glob("lib/python*/site-packages")
    return packages


@pytest.fixture
def furnished(tmp_path):
    """The Python of a kernel that sees all packages of this environment, whose setuptools builds."""
    python = kernel(tmp_path / "kernel", "--without-pip")
    (packages_of(python) / "foreign.pth").write_text(sysconfig.get_path("purelib"))
    return python


OFFLINE = os.environ | {"PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_INDEX": "1"}


def test_the_package_is_installed_around_the_torch_that_is_there(clone, furnished):
    ran = run([furnished, clone / "tools" / "anywhere.py"], env=OFFLINE)
    assert ran.returncode == 0, ran.stderr
    assert "with this kernel's own torch" in ran.stdout and "%ranks dashboard is live here" in ran.stdout
    where = "import fourranks, torch; print(fourranks.__file__); print(torch.__file__)"
    ours, theirs = run([furnished, "-c", where], cwd="/").stdout.split()
    assert Path(ours).is_relative_to(packages_of(furnished)) and theirs == torch.__file__


def test_a_kernel_is_asked_for_a_restart_until_it_was_restarted(clone, furnished):
    loaded = "import IPython, runpy, sys; IPython.__version__ = '7.34.0'; "
    cell = "runpy.run_path(sys.argv[1], run_name='__main__')"
    ran = run([furnished, "-c", loaded + cell, clone / "tools" / "anywhere.py"], env=OFFLINE)
    assert ran.returncode == 0, ran.stderr
    assert "Restart the kernel, then run this cell again: ipython was replaced" in ran.stdout


@pytest.mark.parametrize(
    "version, reason",
    [
        ("2.9.0", "has torch 2.9.0; Four Ranks is made for 2.13 to 2.15"),
        ("", "has no torch: %pip install torch"),
    ],
)
def test_a_kernel_without_a_fit_torch_is_told_what_to_do(tmp_path, version, reason):
    python = kernel(tmp_path / "kernel", "--without-pip")
    if version:
        found = packages_of(python) / f"torch-{version}.dist-info"
        found.mkdir()
        (found / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
    ran = run([python, COURSE / "tools" / "anywhere.py"])
    assert ran.returncode == 1
    assert reason in ran.stderr and "Traceback" not in ran.stderr


def test_pips_own_reason_is_shown_where_nothing_can_be_installed(clone, furnished):
    (clone / "pyproject.toml").write_text("no project")
    ran = run([furnished, clone / "tools" / "anywhere.py"], env=OFFLINE)
    assert ran.returncode == 1
    assert "Four Ranks could not be installed; pip's reason is above." in ran.stderr


def test_the_page_has_the_cell_that_calls_it():
    page = (COURSE / "docs" / "anywhere.md").read_text()
    assert "%run four_ranks/tools/anywhere.py" in page
