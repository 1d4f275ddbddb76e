"""Make .venv at the top of the course and install what is missing there; `make` calls this before every task.

Uses the standard library alone, and syntax that old Pythons can read, so that they can say what is wrong.
"""

import hashlib
import os
import shutil
import subprocess
import sys

COURSE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(COURSE, ".venv")
VENV_PYTHON = os.path.join(VENV, "bin", "python")
RECORD = os.path.join(VENV, "installed")  # the digest of what is installed, or UNFINISHED
UNFINISHED = "unfinished"
KERNEL_CONFIG = os.path.join(COURSE, ".jupyter", "ipython_kernel_config.py")
OLDEST_PYTHON = (3, 10)
NEEDED_GB = 3  # torch for CPU alone, JupyterLab and the rest, with room to unpack them


def main():
    wanted = digest()
    recorded = read_record()
    if recorded == wanted and os.path.exists(VENV_PYTHON):
        configure_kernels()
        return
    check_python()
    check_disk()
    if recorded == UNFINISHED:
        print("The last install was interrupted: starting .venv afresh.")
    if recorded == UNFINISHED or not venv_works():
        make_venv()
    write_record(UNFINISHED)
    install()
    configure_kernels()
    write_record(wanted)


def digest():
    """Changes when the requirements do, or when the course is moved: a virtual environment cannot move."""
    parts = [COURSE.encode()]
    for name in ("requirements.txt", "pyproject.toml"):
        with open(os.path.join(COURSE, name), "rb") as file:
            parts.append(file.read())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def read_record():
    try:
        with open(RECORD) as file:
            return file.read()
    except EnvironmentError:  # as Python 2 calls it
        return ""


def write_record(text):
    with open(RECORD, "w") as file:
        file.write(text)


def check_python():
    if sys.version_info[:2] < OLDEST_PYTHON:
        have, need = (".".join(map(str, version[:2])) for version in (sys.version_info, OLDEST_PYTHON))
        stop(
            "Python {0} is too old: this course needs Python {1} or newer.".format(have, need),
            "Install one, and name it: make lab PYTHON=python{0}".format(need),
        )
    try:
        import ensurepip  # noqa: F401  Debian ships venv without it
        import venv  # noqa: F401
    except ImportError:
        stop(
            "This Python cannot make virtual environments: its venv module is missing or not whole.",
            "On Debian and Ubuntu: apt install python3-venv",
        )


def check_disk():
    free_gb = shutil.disk_usage(COURSE).free / 1e9
    if free_gb < NEEDED_GB:
        stop(
            "The disk is too full: the install needs {0} GB, and {1} has {2:.1f} GB free.".format(
                NEEDED_GB, COURSE, free_gb
            ),
            "Free some space, then run make again.",
        )


def venv_works():
    """A .venv that was moved, or whose Python was removed or upgraded, has no pip that runs."""
    command = [
        VENV_PYTHON,
        "-c",
        "import pip, sys; sys.exit(sys.version_info[:2] < {0})".format(OLDEST_PYTHON),
    ]
    try:
        return subprocess.call(command, stderr=subprocess.DEVNULL) == 0
    except OSError:
        return False


def make_venv():
    print("Making a virtual environment in .venv")
    os.makedirs(VENV, exist_ok=True)
    write_record(UNFINISHED)
    if subprocess.call([sys.executable, "-m", "venv", "--clear", VENV]) != 0:
        stop("The virtual environment in .venv could not be made; the reason is above.")


def install():
    print("Installing the course's packages in .venv (the first time takes some minutes)")
    command = [VENV_PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar=off"]
    command += ["--requirement", "requirements.txt", "--editable", "."]
    # pip unpacks in TMPDIR; /tmp is small and in memory on many machines.
    unpack = os.path.join(VENV, "tmp")
    os.makedirs(unpack, exist_ok=True)
    environment = dict(os.environ, TMPDIR=unpack, PYTHONUNBUFFERED="1")
    pip = subprocess.Popen(
        command,
        cwd=COURSE,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
    )
    said = []
    for line in pip.stdout:
        said.append(line)
        if not line.startswith("Requirement already satisfied"):
            sys.stdout.write(line)
            sys.stdout.flush()
    shutil.rmtree(unpack, ignore_errors=True)
    if pip.wait() != 0:
        explain("".join(said))


def configure_kernels():
    """Copy the kernels' settings to where IPython looks for those of one environment."""
    folder = os.path.join(VENV, "etc", "ipython")
    os.makedirs(folder, exist_ok=True)
    shutil.copy(KERNEL_CONFIG, folder)


def explain(said):
    write_record("")  # pip gave up by itself, so all that it has installed is whole
    if "No space left on device" in said or "Disk quota exceeded" in said:
        stop("The disk is full, so not all packages were installed.", "Free some space, then run make again.")
    stop(
        "Not all packages were installed; pip's reason is above.",
        "If the network was away, run make again: what is already installed is kept.",
    )


def stop(*sentences):
    sys.exit("\n" + "\n".join(sentences))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        stop("Interrupted. The next make installs the rest.")
    except EnvironmentError as error:
        stop("The install failed: {0}".format(error), "Mend that, then run make again.")
