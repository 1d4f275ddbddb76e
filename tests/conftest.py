"""What every test relies on: this environment's commands, no settings of the user's own, system programs."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PACKAGES = {"bwrap": "bubblewrap", "chromium": "chromium", "chromedriver": "chromium-driver"}

# Tests call jupyter and nbgrader, and nbgrader calls alembic, by name.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


@pytest.fixture(scope="session", autouse=True)
def _no_settings_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> None:
    for variable in ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "MPLCONFIGDIR"):
        os.environ[variable] = str(tmp_path_factory.mktemp(variable.lower()))


@pytest.fixture(scope="session")
def program() -> Callable[[str], str]:
    """Finds a system program; where it is missing the test is skipped, or fails on CI."""

    def find(name: str) -> str:
        path = shutil.which(name)
        if path is None:
            missing = f"needs {name}: apt install {PACKAGES[name]}"
            if os.environ.get("CI"):
                pytest.fail(missing)
            pytest.skip(missing)
        return path

    return find
