"""Fixtures: this environment's commands, no settings of the user's own, a server and a browser."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import psutil
import pytest
from selenium import webdriver

from autograder.sandbox import tiers
from autograder.sandbox.tiers import Tier
from tests.processes import listens, started

COURSE = Path(__file__).parents[1]
MEMORY = 2 << 30  # bytes of a worker and what its tests start
MOST_WORKERS = 32
PACKAGES = {
    "bwrap": "bubblewrap",
    "chromium": "chromium",
    "chromedriver": "chromium-driver",
    "g++": "g++",
    "ssh": "openssh-client",
}

# Tests call jupyter and nbgrader, and nbgrader calls alembic, by name.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
# And they call make, which is to behave as from a shell although `make test` runs them.
for variable in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS"):
    os.environ.pop(variable, None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Start three workers a processor, as far as memory goes: many tests wait for processes of their own."""
    return max(1, min(3 * (os.cpu_count() or 1), psutil.virtual_memory().total // MEMORY, MOST_WORKERS))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spread each folder's files over the whole run: side by side, those that grade a class are late."""
    folders: dict[Path, list[Path]] = {}
    for file in dict.fromkeys(item.path for item in items):
        folders.setdefault(file.parent, []).append(file)
    place = {file: (n + 0.5) / len(files) for files in folders.values() for n, file in enumerate(files)}
    items.sort(key=lambda item: place[item.path])


@pytest.fixture(scope="session", autouse=True)
def _no_settings_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> None:
    for variable in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        os.environ[variable] = str(tmp_path_factory.mktemp(variable.lower()))


@pytest.fixture(scope="session")
def program() -> Callable[[str], str]:
    """Finds a system program; where it is missing or may not work, the test is skipped, or fails on CI."""

    def find(name: str) -> str:
        path = shutil.which(name)
        if path is None:
            _do_without(f"needs {name}: apt install {PACKAGES[name]}")
        if name == "bwrap" and (reason := tiers.missing(Tier.NAMESPACES)):
            _do_without(reason)
        return path

    return find


def _do_without(missing: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


@pytest.fixture(scope="module")
def student_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a student opens, to run and to change."""
    copy = tmp_path_factory.mktemp("student")
    shutil.copy(COURSE / "index.md", copy)
    for folder in ("lectures", "exercises", "solutions", "play"):
        shutil.copytree(COURSE / folder, copy / folder)
    return copy


@pytest.fixture(scope="module")
def lab(student_copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a JupyterLab that `make lab` has started, with `student_copy` for its files."""
    runtime = tmp_path_factory.mktemp("runtime")
    options = f"--no-browser --port=0 --IdentityProvider.token= --ServerApp.root_dir={student_copy}"
    command = ["make", "lab", f"ARGS={options} --LabApp.workspaces_dir={runtime}"]
    environment = os.environ | {"JUPYTER_RUNTIME_DIR": str(runtime)}
    with (
        (runtime / "log").open("w") as log,
        started(command, cwd=COURSE, env=environment, stdout=log, stderr=log) as make,
    ):
        server = _server(make, runtime)
        try:
            yield server["url"]
        finally:  # the server ends its kernels first, and make waits for it
            os.kill(server["pid"], signal.SIGTERM)
            with contextlib.suppress(
                subprocess.TimeoutExpired
            ):  # jupyter_server 2.21, a kernel just starting
                make.wait(timeout=10)


def _server(make: subprocess.Popen, runtime: Path) -> dict:
    """The server's own description in its runtime folder, once it listens: it is there a moment before."""
    while make.poll() is None:
        for path in runtime.glob("jpserver-*.json"):
            text = path.read_text()
            if text and listens((server := json.loads(text))["hostname"], server["port"]):
                return server
        time.sleep(0.05)
    pytest.fail((runtime / "log").read_text())


@pytest.fixture(scope="module")
def browser(program: Callable[[str], str]) -> Iterator[webdriver.Chrome]:
    """A real browser without a window."""
    options = webdriver.ChromeOptions()
    options.binary_location = program("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1400,1000"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(program("chromedriver")))
    yield driver
    driver.quit()
