"""make finds or makes its virtual environment, and says in one message what stops it.

The course here is a small one with the real Makefile and the real tools/install.py. Its package builds
itself, so that pip needs no network.
"""

import ast
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COURSE = Path(__file__).parents[1]
INSTALL = COURSE / "tools" / "install.py"

# What pip asks of a package (PEP 517 and 660), without another package that would have to be downloaded.
BACKEND = """\
import os, pathlib, time, zipfile

def get_requires_for_build_editable(config_settings=None):
    return []

def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    pathlib.Path("building").touch()
    while pathlib.Path("wait").exists():
        time.sleep(0.01)
    files = {
        "mini.pth": os.getcwd(),
        "mini-1.dist-info/METADATA": "Metadata-Version: 2.1\\nName: mini\\nVersion: 1\\n",
        "mini-1.dist-info/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        "mini-1.dist-info/RECORD": "",
    }
    with zipfile.ZipFile(pathlib.Path(wheel_directory, "mini-1-py3-none-any.whl"), "w") as wheel:
        for name, content in files.items():
            wheel.writestr(name, content)
        if pathlib.Path("large").exists():
            wheel.writestr("mini_data/large", os.urandom(10**8))
    return "mini-1-py3-none-any.whl"
"""


@pytest.fixture
def course(tmp_path: Path) -> Path:
    (tmp_path / "tools").mkdir()
    shutil.copy(INSTALL, tmp_path / "tools")
    shutil.copy(COURSE / "Makefile", tmp_path)
    (tmp_path / ".jupyter").mkdir()
    shutil.copy(COURSE / ".jupyter" / "ipython_kernel_config.py", tmp_path / ".jupyter")
    (tmp_path / "requirements.txt").write_text("")
    (tmp_path / "backend.py").write_text(BACKEND)
    (tmp_path / "mini.py").write_text("")
    (tmp_path / "pyproject.toml").write_text(
        "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
        "[project]\nname = 'mini'\nversion = '1'\n"
    )
    return tmp_path


def make(course: Path, *arguments: str) -> subprocess.CompletedProcess:
    command = ["make", *arguments, f"PYTHON={sys.executable}"]
    return subprocess.run(command, cwd=course, capture_output=True, text=True)


def can_import_the_package(course: Path) -> bool:
    return subprocess.run([course / ".venv/bin/python", "-c", "import mini"], cwd="/").returncode == 0


def test_the_first_make_installs_and_the_second_has_nothing_to_do_until_requirements_change(course):
    first = make(course, "install")
    assert first.returncode == 0, first.stderr
    assert can_import_the_package(course)
    assert (course / ".venv/etc/ipython/ipython_kernel_config.py").exists()

    (course / "building").unlink()
    second = make(course, "install")
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
    assert not (course / "building").exists()

    (course / "requirements.txt").write_text("# changed\n")
    assert make(course, "install").returncode == 0
    assert (course / "building").exists()


def test_an_environment_made_by_hand_is_kept_and_completed(course):
    subprocess.run([sys.executable, "-m", "venv", course / ".venv"], check=True)
    (course / ".venv" / "mine").touch()
    assert make(course, "install").returncode == 0
    assert can_import_the_package(course)
    assert (course / ".venv" / "mine").exists()


def test_an_environment_whose_python_is_gone_is_made_again(course):
    make(course, "install")
    for python in (course / ".venv/bin").glob("python*"):
        python.unlink()
    (course / ".venv/bin/python").symlink_to("/nowhere/python3")
    assert make(course, "install").returncode == 0
    assert can_import_the_package(course)


def test_an_interrupted_install_is_repaired_by_the_next_make(course):
    (course / "wait").touch()
    command = ["make", "install", f"PYTHON={sys.executable}"]
    with subprocess.Popen(
        command, cwd=course, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        while not (course / "building").exists():
            assert running.poll() is None
            time.sleep(0.01)
        os.killpg(running.pid, signal.SIGINT)
        said = running.stderr.read()
    assert "Interrupted. The next make" in said
    assert "Traceback" not in said

    (course / "wait").unlink()
    (course / ".venv" / "half").touch()
    repaired = make(course, "install")
    assert repaired.returncode == 0, repaired.stderr
    assert "The last install was interrupted: starting .venv afresh." in repaired.stdout
    assert can_import_the_package(course)
    assert not (course / ".venv" / "half").exists()


def test_packages_that_cannot_be_installed_are_reported_and_make_can_be_run_again(course):
    (course / "requirements.txt").write_text("./missing\n")
    failed = make(course, "install")
    assert failed.returncode != 0
    assert "missing" in failed.stdout
    assert "Not all packages were installed; pip's reason is above." in failed.stderr
    (course / "requirements.txt").write_text("")
    again = make(course, "install")
    assert again.returncode == 0
    assert "interrupted" not in again.stdout


def test_a_disk_that_fills_up_during_the_install_is_named(course, program):
    # A file system of its own for .venv, with room for the environment but not for a large package.
    (course / ".venv").mkdir()
    (course / "large").touch()
    (course / "tools/install.py").write_text(INSTALL.read_text().replace("NEEDED_GB = 3", "NEEDED_GB = 0"))
    small_disk = [
        program("bwrap"),
        "--dev-bind",
        "/",
        "/",
        "--size",
        "100000000",
        "--tmpfs",
        course / ".venv",
    ]
    command = [*small_disk, "make", "install", f"PYTHON={sys.executable}"]
    answer = subprocess.run(command, cwd=course, capture_output=True, text=True)
    assert answer.returncode != 0
    assert "The disk is full, so not all packages were installed.\nFree some space" in answer.stderr


UNFIT = {
    "old Python": (
        "sys.version_info = (3, 9, 2)",
        "Python 3.9 is too old: this course needs Python 3.10 or newer.",
        "Install one, and name it: make lab PYTHON=python3.10",
    ),
    "no venv": (
        "sys.modules['ensurepip'] = None",
        "This Python cannot make virtual environments: its venv module is missing or not whole.",
        "On Debian and Ubuntu: apt install python3-venv",
    ),
    "no right to write": (
        "import os\ndef makedirs(*args, **kwargs): raise PermissionError(13, 'Permission denied', '.venv')\n"
        "os.makedirs = makedirs",
        "The install failed: [Errno 13] Permission denied: '.venv'",
        "Mend that, then run make again.",
    ),
    "full disk": (
        "from types import SimpleNamespace\nshutil.disk_usage = lambda path: SimpleNamespace(free=2.2e9)",
        "The disk is too full: the install needs 3 GB, and",
        "Free some space, then run make again.",
    ),
}


@pytest.mark.parametrize(("change", "what", "remedy"), UNFIT.values(), ids=UNFIT)
def test_a_machine_that_cannot_install_the_course_is_told_why_and_what_to_do(course, change, what, remedy):
    code = f"import runpy, shutil, sys\n{change}\nrunpy.run_path('tools/install.py', run_name='__main__')"
    answer = subprocess.run([sys.executable, "-c", code], cwd=course, capture_output=True, text=True)
    assert answer.returncode == 1
    assert "Traceback" not in answer.stderr
    first, second = answer.stderr.strip().splitlines()
    assert first.startswith(what)
    assert second == remedy
    assert not (course / ".venv").exists()


def test_a_missing_python_is_named(course):
    answer = subprocess.run(["make", "install", "PYTHON=python9"], cwd=course, capture_output=True, text=True)
    assert answer.returncode != 0
    assert "python9 was not found. On Debian: apt install python3 python3-venv" in answer.stderr


def test_old_pythons_can_read_the_installer():
    ast.parse(INSTALL.read_text(), feature_version=(3, 4))


def test_make_lists_its_targets(course):
    listed = make(course).stdout
    for target in ("help", "lab", "test", "build", "check-build", "lint", "format", "clean"):
        assert f"make {target} " in listed
