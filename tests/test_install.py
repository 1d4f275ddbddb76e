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

from tests.processes import run, started

COURSE = Path(__file__).parents[1]
INSTALL = COURSE / "tools" / "install.py"

# A build backend as pip asks for it (PEP 517 and 660), without any package to download.
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
            wheel.writestr("mini_data/large", os.urandom(10**7))
    return "mini-1-py3-none-any.whl"
"""


def make_course(folder: Path) -> Path:
    (folder / "tools").mkdir()
    shutil.copy(INSTALL, folder / "tools")
    shutil.copy(COURSE / "Makefile", folder)
    (folder / ".jupyter").mkdir()
    shutil.copy(COURSE / ".jupyter" / "ipython_kernel_config.py", folder / ".jupyter")
    (folder / "requirements.txt").write_text("")
    (folder / "backend.py").write_text(BACKEND)
    (folder / "mini.py").write_text("")
    (folder / "pyproject.toml").write_text(
        "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
        "[project]\nname = 'mini'\nversion = '1'\n"
    )
    return folder


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """A course where nothing is installed."""
    return make_course(tmp_path)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A course with an environment that was made by hand, then completed by make; tests may break it."""
    course = make_course(tmp_path_factory.mktemp("installed"))
    subprocess.run([sys.executable, "-m", "venv", course / ".venv"], check=True)
    (course / ".venv" / "mine").touch()
    first = make(course, "install")
    assert first.returncode == 0, first.stderr
    return course


def make(course: Path, *arguments: str) -> subprocess.CompletedProcess:
    return run(["make", *arguments, f"PYTHON={sys.executable}"], cwd=course)


def change_requirements(course: Path, text: str = "") -> None:
    """Have make install again."""
    (course / "building").unlink(missing_ok=True)
    (course / "requirements.txt").write_text(f"# {time.time()}\n{text}")


def can_import_the_package(course: Path) -> bool:
    return subprocess.run([course / ".venv/bin/python", "-c", "import mini"], cwd="/").returncode == 0


def test_an_environment_made_by_hand_is_kept_and_completed(installed):
    assert can_import_the_package(installed)
    assert (installed / ".venv/etc/ipython/ipython_kernel_config.py").exists()
    assert (installed / ".venv" / "mine").exists()


def test_make_has_nothing_to_do_until_requirements_change(installed):
    (installed / "building").unlink()
    again = make(installed, "install")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert not (installed / "building").exists()

    change_requirements(installed)
    assert make(installed, "install").returncode == 0
    assert (installed / "building").exists()


def test_packages_that_cannot_be_installed_are_reported_and_make_can_be_run_again(installed):
    change_requirements(installed, "./missing\n")
    failed = make(installed, "install")
    assert failed.returncode != 0
    assert "missing" in failed.stdout
    assert "Not all packages were installed; pip's reason is above." in failed.stderr

    change_requirements(installed)
    again = make(installed, "install")
    assert again.returncode == 0
    assert "interrupted" not in again.stdout


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="is about machines without a GPU")
def test_without_a_gpu_the_small_torch_is_looked_for_and_its_lack_stops_nothing(installed):
    change_requirements(installed, "torch==0.0.0\n")  # which nobody has
    no_network = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    answer = run(["make", "install", f"PYTHON={sys.executable}"], cwd=installed, env=os.environ | no_network)
    assert "It cannot be had here, so pip installs the torch that it finds." in answer.stdout
    assert "torch==0.0.0" in answer.stdout
    assert "Not all packages were installed; pip's reason is above." in answer.stderr


def test_a_disk_that_fills_up_during_the_install_is_named(installed, program):
    # A file system of its own where pip unpacks, without room for a large package.
    (installed / ".venv/tmp").mkdir()
    (installed / "large").touch()
    change_requirements(installed)
    small_disk = [
        program("bwrap"),
        "--dev-bind",
        "/",
        "/",
        "--size",
        "4000000",
        "--tmpfs",
        installed / ".venv/tmp",
    ]
    answer = run([*small_disk, "make", "install", f"PYTHON={sys.executable}"], cwd=installed)
    (installed / "large").unlink()
    assert answer.returncode != 0
    assert "The disk is full, so not all packages were installed.\nFree some space" in answer.stderr


def test_an_interrupted_install_is_repaired_by_the_next_make(installed):
    change_requirements(installed)
    (installed / "wait").touch()
    command = ["make", "install", f"PYTHON={sys.executable}"]
    with started(command, cwd=installed, stderr=subprocess.PIPE, text=True) as running:
        while not (installed / "building").exists():
            assert running.poll() is None
            time.sleep(0.01)
        os.killpg(running.pid, signal.SIGINT)
        said = running.stderr.read()
    assert "Interrupted. The next make" in said
    assert "Traceback" not in said

    (installed / "wait").unlink()
    (installed / ".venv" / "half").touch()
    repaired = make(installed, "install")
    assert repaired.returncode == 0, repaired.stderr
    assert "The last install was interrupted: starting .venv afresh." in repaired.stdout
    assert can_import_the_package(installed)
    assert not (installed / ".venv" / "half").exists()


def test_a_second_make_waits_until_the_first_has_installed(installed):
    change_requirements(installed)
    (installed / "wait").touch()
    (installed / ".venv" / "kept").touch()
    command = ["make", "install", f"PYTHON={sys.executable}"]
    options = {"cwd": installed, "stdout": subprocess.PIPE, "text": True}
    with started(command, **options) as first:
        while not (installed / "building").exists():
            assert first.poll() is None
            time.sleep(0.01)
        with started(command, **options) as second:
            said = second.stdout.readline()
            (installed / "wait").unlink()
            said += second.communicate()[0]
        first.communicate()
    assert (first.returncode, second.returncode) == (0, 0)
    assert said == "Another make is installing into .venv: waiting until it has ended.\n"
    assert (installed / ".venv" / "kept").exists()
    assert can_import_the_package(installed)


def test_an_environment_whose_python_is_gone_is_made_again(installed):
    for python in (installed / ".venv/bin").glob("python*"):
        python.unlink()
    (installed / ".venv/bin/python").symlink_to("/nowhere/python3")
    assert make(installed, "install").returncode == 0
    assert can_import_the_package(installed)


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
        "Fix that, then run make again.",
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
    answer = run([sys.executable, "-c", code], cwd=course)
    assert answer.returncode == 1
    assert "Traceback" not in answer.stderr
    first, second = answer.stderr.strip().splitlines()
    assert first.startswith(what)
    assert second == remedy
    assert not (course / ".venv").exists()


def with_torch(folder: Path, version: str) -> Path:
    """Make an environment that has a torch of this version, and a kernel; returns its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    [packages] = folder.glob("lib/python*/site-packages")
    (packages / "torch.py").write_text(f"__version__ = {version!r}\n")
    (packages / f"torch-{version}.dist-info").mkdir()
    metadata = f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n"
    (packages / f"torch-{version}.dist-info" / "METADATA").write_text(metadata)
    (packages / "ipykernel.py").write_text(
        "import pathlib, sys\npathlib.Path(sys.prefix, 'kernel').write_text(' '.join(sys.argv[1:]))\n"
    )
    return folder / "bin" / "python"


def test_the_torch_that_is_there_is_used_and_stays_in_use(course, tmp_path_factory):
    python = with_torch(tmp_path_factory.mktemp("image"), "2.14.1")
    (course / "requirements.txt").write_text("torch==2.13.0\n")  # which pip would have to download
    made = run(["make", "install", "SYSTEM_TORCH=1", f"PYTHON={python}"], cwd=course)
    assert made.returncode == 0, made.stdout + made.stderr
    assert "Using torch 2.14.1" in made.stdout
    version = subprocess.check_output(
        [course / ".venv/bin/python", "-c", "import torch; print(torch.__version__)"]
    )
    assert version == b"2.14.1\n"
    assert (course / ".venv/kernel").read_text() == "install --sys-prefix"  # or Jupyter would run the image's
    again = run(["make", "install", f"PYTHON={python}"], cwd=course)
    assert (again.returncode, again.stdout) == (0, "")


HIDE_TORCH = """\
import importlib.metadata
def distribution(name): raise importlib.metadata.PackageNotFoundError(name)
importlib.metadata.distribution = distribution
"""


@pytest.mark.parametrize(
    ("version", "reason"),
    [("2.9.1", "2.9.1"), ("2.16.0", "2.16.0"), ("2.13.0a0+git", "2.13.0a0+git"), ("", "which has none")],
)
def test_a_torch_that_the_course_is_not_made_for_is_refused_before_anything_is_made(
    course, tmp_path_factory, version, reason
):
    python = with_torch(tmp_path_factory.mktemp("image"), version) if version else sys.executable
    hide = "" if version else HIDE_TORCH
    code = f"{hide}import runpy; runpy.run_path('tools/install.py', run_name='__main__')"
    answer = run([python, "-c", code], cwd=course, env=os.environ | {"SYSTEM_TORCH": "1"})
    assert answer.returncode == 1
    assert reason in answer.stderr and "leave SYSTEM_TORCH=1 away" in answer.stderr
    assert not (course / ".venv").exists()


def test_a_missing_python_is_named(course):
    answer = run(["make", "install", "PYTHON=python9"], cwd=course)
    assert answer.returncode != 0
    assert "python9 was not found. On Debian: apt install python3 python3-venv" in answer.stderr


@pytest.mark.parametrize("named", ["{home}/my python", "~/my python"])
def test_the_python_may_lie_in_a_folder_with_a_space_in_its_name(named, course):
    (course / "my python").symlink_to(sys.executable)
    (course / "tools" / "install.py").write_text("print('runs')")
    python = named.format(home=course)
    answer = run(["make", "install", f"PYTHON={python}", f"HOME={course}"], cwd=course)
    assert answer.stdout == "runs\n", answer.stderr


def test_jupyterlab_gets_its_settings_in_a_folder_with_a_space_in_its_name(tmp_path):
    (tmp_path / "my course").mkdir()
    course = make_course(tmp_path / "my course")
    (course / "jupyterlab.py").write_text("import os\nprint(os.environ['JUPYTER_CONFIG_PATH'])\n")
    opened = make(course, "lab")
    assert opened.returncode == 0, opened.stderr
    assert opened.stdout.splitlines()[-1] == str(course / ".jupyter")


def test_old_pythons_can_read_the_installer():
    ast.parse(INSTALL.read_text(), feature_version=(3, 4))


def test_make_lists_its_targets(course):
    listed = make(course).stdout
    for target in ("help", "lab", "test", "build", "check-build", "lint", "format", "clean"):
        assert f"make {target} " in listed
