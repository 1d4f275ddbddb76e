"""The wheel of `make wheel`, in an environment that has what it requires and nothing else of the course."""

import os
import subprocess
import sys
from collections.abc import Iterator
from email import message_from_bytes
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from fourranks import __version__
from tests.processes import run

COURSE = Path(__file__).parents[1]
PACKAGES = ("autograder", "fourranks")
CORE = {"cloudpickle", "ipython", "matplotlib", "psutil", "torch"}
NOT_THERE = ("anywidget", "ipykernel", "ipywidgets", "jupyterlab", "nbformat", "nbgrader", "sidecar", "zmq")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a copy of the course."""
    copy = tmp_path_factory.mktemp("course")
    for name in ("Makefile", "LICENSE", "README.md", "pyproject.toml"):
        (copy / name).write_bytes((COURSE / name).read_bytes())
    for name in files_of_packages():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes((COURSE / name).read_bytes())
    removed = copy / "build" / "lib" / "fourranks" / "removed.py"  # as an earlier build leaves it
    removed.parent.mkdir(parents=True)
    removed.touch()
    command = ["make", "--assume-old=install", "wheel", f"BIN={Path(sys.executable).parent}"]
    # This means that pip uses this environment's setuptools, and downloads none.
    made = run(command, cwd=copy, env=os.environ | {"PIP_NO_BUILD_ISOLATION": "0"})
    assert made.returncode == 0, made.stderr
    [path] = (copy / "dist").iterdir()
    assert made.stdout.strip() == path.relative_to(copy).as_posix()
    return path


def files_of_packages() -> set[str]:
    paths = [path for package in PACKAGES for path in (COURSE / package).rglob("*") if path.is_file()]
    return {path.relative_to(COURSE).as_posix() for path in paths if "__pycache__" not in path.parts}


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel, its requirements, and no more."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    [site_packages] = folder.glob("lib/python*/site-packages")
    for name in with_their_needs(CORE):
        for top in {file.parts[0] for file in distribution(name).files} - {"..", "__pycache__"}:
            if not (site_packages / top).exists():  # NVIDIA's packages share a folder
                (site_packages / top).symlink_to(distribution(name).locate_file(top))
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin/python"]
    installed = run([*pip, "install", "--quiet", "--no-deps", wheel])
    assert installed.returncode == 0, installed.stderr
    return folder / "bin"


def with_their_needs(names: set[str]) -> set[str]:
    """Find what these distributions require, and what that does."""
    found, new = set(), set(names)
    while new:
        found |= new
        new = {need for name in new for need in needs(distribution(name).requires or [])} - found
    return found


def needs(lines: list[str]) -> Iterator[str]:
    for requirement in map(Requirement, lines):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement.name


def python(bare: Path, program: str) -> str:
    ran = run([bare / "python", "-c", program], cwd="/")
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_it_requires_the_core_alone(wheel):
    with ZipFile(wheel) as archive:
        metadata = message_from_bytes(archive.read(f"fourranks-{__version__}.dist-info/METADATA"))
    assert set(needs(metadata.get_all("Requires-Dist"))) == CORE
    assert metadata["Version"] == __version__
    assert {"course", "dashboard"} <= set(metadata.get_all("Provides-Extra"))


def test_it_holds_all_files_of_both_packages_and_nothing_else(wheel):
    with ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == files_of_packages()


def test_nothing_of_the_course_is_in_the_bare_environment(bare):
    assert all(map(find_spec, NOT_THERE))  # here they are
    program = f"from importlib.util import find_spec; print([*filter(find_spec, {NOT_THERE})])"
    assert python(bare, program) == "[]\n"


def test_the_command_tells_its_version_and_corrects_a_mistyped_one(bare):
    assert run([bare / "fourranks", "--version"]).stdout == f"fourranks {__version__}\n"
    mistyped = run([bare / "fourranks", "docter"])
    assert mistyped.returncode == 2
    assert "there is no command 'docter'. Did you mean `fourranks doctor`?" in mistyped.stderr
    assert "doctor" in run([bare / "fourranks"]).stdout


def test_the_doctor_examines_this_machine(bare):
    examined = run([bare / "fourranks", "doctor", "--quick"])
    assert examined.returncode == ("\nproblem" in f"\n{examined.stdout}"), examined.stdout
    assert "4 ranks started and communicated" in examined.stdout


SESSION = """
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
for cell in (
    "%load_ext fourranks",
    "%ranks start -n 2 --backend gloo",
    "%%ranks\\nx = torch.arange(3.) + rank\\ndist.all_reduce(x)\\nx",
    "%%ranks --trace\\ndist.all_reduce(x)",
    "%%ranks\\nif rank: dist.barrier()",
    "%%ranks\\n1 / 0",
    "%ranks dashboard",
    "%ranks dashboard --side",
    "%ranks stop",
    "%unload_ext fourranks",
):
    shell.run_cell(cell)
"""


def test_the_magics_run_cells_trace_them_explain_deadlocks_and_show_a_dashboard_without_widgets(bare):
    shown = python(bare, SESSION)
    assert "2 ranks on Gloo are ready" in shown
    assert "[0-1] tensor([1., 3., 5.])" in shown
    assert "all_reduce on 2 ranks:" in shown and "busbw" in shown
    assert "Rank 1 waits in barrier (Cell In[0], line 2: if rank: dist.barrier()), for rank 0." in shown
    assert "Ranks 0-1 raised ZeroDivisionError" in shown
    still = shown.partition("2 ranks, gloo: idle (")[2].splitlines()
    assert still[1].split() == ["rank", "doing", "where", "memory"]
    assert still[2].split()[:2] == ["0", "idle"]
    live = (
        "For a live dashboard: %pip install 'fourranks[dashboard]', restart the kernel, and reload the page."
    )
    assert shown.count(live) == 2
    assert "The ranks have ended." in shown


def test_a_program_draws_a_timeline_of_its_ranks(bare, tmp_path):
    program = f"""
import fourranks
with fourranks.start(world_size=2, backend="gloo") as group:
    with group.trace() as trace:
        group.execute("dist.all_reduce(torch.ones(2))")
    trace.timeline().savefig({str(tmp_path / "timeline.png")!r})
    fourranks.show
print([operation.op for operation in trace.operations])
"""
    assert python(bare, program) == "['all_reduce']\n"
    assert (tmp_path / "timeline.png").read_bytes().startswith(b"\x89PNG")


def test_no_installed_package_takes_the_place_of_pythons_own_modules(bare):
    [site_packages] = bare.parent.glob("lib/python*/site-packages")
    decoy = site_packages / "selectors.py"
    decoy.write_text("raise ImportError('not the one of Python')")
    program = "import fourranks; print(fourranks.run(lambda: 1, world_size=1, backend='gloo'))"
    try:
        assert python(bare, program) == "[1]\n"
    finally:
        decoy.unlink()


def test_the_course_says_what_it_lacks_and_its_checks_run_without(bare):
    refused = run([bare / "autograder", "check", "exercises/02_collectives"])
    assert refused.returncode == 2
    assert refused.stderr == "autograder needs nbformat: pip install 'fourranks[course]'\n"
    program = "from autograder import check; print(check.ring_all_reduce.__name__)"
    assert python(bare, program) == "ring_all_reduce\n"
