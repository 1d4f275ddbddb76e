"""Make .venv at the top of the course and install what is missing there; `make` calls this before every task.

With SYSTEM_TORCH=1 in the environment, .venv sees the packages of the Python that runs this, and uses its
torch. It does so from then on; SYSTEM_TORCH=0 or `make clean` ends that.

Uses the standard library alone, and syntax that old Pythons can read, so that they can say what is wrong.
"""

import fcntl
import filecmp
import hashlib
import os
import re
import shutil
import subprocess
import sys

COURSE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(COURSE, ".venv")
VENV_PYTHON = os.path.join(VENV, "bin", "python")
RECORD = os.path.join(VENV, "installed")  # the digest of what is installed, or UNFINISHED
UNFINISHED = "unfinished"
KERNEL_CONFIG = os.path.join(COURSE, ".jupyter", "ipython_kernel_config.py")
REQUIREMENTS = os.path.join(COURSE, "requirements.txt")
OLDEST_PYTHON = (3, 10)
OLDEST_TORCH, TOO_NEW_TORCH = (2, 13), (2, 16)  # as in pyproject.toml
NEEDED_GB = 3  # torch for CPU alone, JupyterLab and the rest, with room to unpack them


def main():
    if is_installed():
        configure_kernels()
        return
    check_python()
    with open(REQUIREMENTS) as lock:
        wait_for_others(lock)
        if not is_installed():  # by the make that was waited for
            complete()


def is_installed():
    return read_record() == digest(wants_system_torch()) and os.path.exists(VENV_PYTHON)


def wait_for_others(lock):
    """Wait until no other make installs here, and keep others waiting until the file `lock` is closed."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("Another make is installing into .venv: waiting until it has ended.")
        sys.stdout.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
    except EnvironmentError:  # some network drives have no locks
        pass


def complete():
    """Make .venv where it is missing or no longer works, and install in it what is missing."""
    use_system = wants_system_torch()
    wanted = digest(use_system)
    recorded = read_record()
    check_disk()
    system_torch = find_system_torch() if use_system else None
    if recorded == UNFINISHED:
        print("The last install was interrupted: starting .venv afresh.")
    if recorded == UNFINISHED or not venv_works() or use_system != sees_system():
        make_venv(use_system)
    write_record(UNFINISHED)
    if system_torch:
        install(*around(system_torch))
        make_kernel()
    else:
        install_small_torch()
        install("--requirement", REQUIREMENTS)
    configure_kernels()
    write_record(wanted)


def digest(use_system):
    """Changes when the requirements do, or when the course is moved: a virtual environment cannot move."""
    parts = [COURSE.encode()] + [b"system torch"] * use_system
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


def make_venv(use_system):
    print("Making a virtual environment in .venv")
    os.makedirs(VENV, exist_ok=True)
    write_record(UNFINISHED)
    sees = ["--system-site-packages"] * use_system
    if subprocess.call([sys.executable, "-m", "venv", "--clear"] + sees + [VENV]) != 0:
        stop("The virtual environment in .venv could not be made; the reason is above.")


# --- the torch that is there -----------------------------------------------------------------------------


def wants_system_torch():
    """SYSTEM_TORCH asks for it, or forbids it by 0; without that .venv stays what it is."""
    asked = os.environ.get("SYSTEM_TORCH", "")
    return asked != "0" if asked else sees_system()


def sees_system():
    try:
        with open(os.path.join(VENV, "pyvenv.cfg")) as file:
            return "include-system-site-packages = true" in file.read()
    except EnvironmentError:
        return False


def find_system_torch():
    """Return version and folder of this Python's torch, which must be one that the course is made for."""
    from importlib import metadata

    own_python = "Use the Python that has it: make lab SYSTEM_TORCH=1 PYTHON=/path/to/python"
    without = "or leave SYSTEM_TORCH=1 away, and torch is installed in .venv."
    try:
        torch = metadata.distribution("torch")
    except metadata.PackageNotFoundError:
        stop(
            "SYSTEM_TORCH=1 asks for the torch of {0}, which has none.".format(sys.executable),
            own_python + ",\n" + without,
        )
    numbers, preview = re.match(r"(\d+\.\d+)(?:\.\d+)?(a|b|rc|\.dev)?", torch.version).groups()
    version = tuple(map(int, numbers.split(".")))
    if preview and version == OLDEST_TORCH or not OLDEST_TORCH <= version < TOO_NEW_TORCH:
        stop(
            "SYSTEM_TORCH=1 asks for the torch of {0}: {1}.".format(sys.executable, torch.version),
            "The course is made for torch 2.13 to 2.15. {0},\n{1}".format(own_python, without),
        )
    return torch.version, str(torch.locate_file(""))


def around(system_torch):
    """Return pip's options for everything but torch, which stays as it is."""
    version, folder = system_torch
    if subprocess.call([VENV_PYTHON, "-c", "import torch"], stderr=subprocess.DEVNULL) != 0:
        show_to_venv(folder)  # it is in another virtual environment, whose packages no .venv sees
    with open(REQUIREMENTS) as file:
        others = [line for line in file if not line.startswith("torch==")]
    written = {"others.txt": "".join(others), "torch.txt": "torch==" + version + "\n"}
    for name, text in written.items():
        with open(os.path.join(VENV, name), "w") as file:
            file.write(text)
    print("Using torch {0} of {1}".format(version, folder))
    paths = [os.path.join(VENV, name) for name in written]
    return ["--requirement", paths[0], "--constraint", paths[1]]


def show_to_venv(folder):
    query = [VENV_PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = subprocess.check_output(query, universal_newlines=True).strip()
    with open(os.path.join(packages, "system_torch.pth"), "w") as file:
        file.write(folder + "\n")


def make_kernel():
    """Have notebooks use .venv: where the system has a kernel already, pip has not made another one."""
    command = [VENV_PYTHON, "-m", "ipykernel", "install", "--sys-prefix"]
    if subprocess.call(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) != 0:
        stop("The kernel of .venv could not be made.", "Run make again: what is already installed is kept.")


# --- a torch of its own ----------------------------------------------------------------------------------


def install_small_torch():
    """Install the build of torch for CPU alone where there is no NVIDIA GPU: megabytes in place of gigabytes.

    uv knows where that build is to be had. Where uv or the build cannot be had, pip takes the usual one.
    """
    with open(REQUIREMENTS) as file:
        torch = re.search(r"^torch==\S+", file.read(), re.MULTILINE)
    if torch is None or sys.platform != "linux" or has_gpu() or has_installed(torch.group()):
        return
    folder = os.path.join(VENV, "uv")
    get_uv = [VENV_PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    get_uv += ["--target", folder, "uv"]
    get_torch = [os.path.join(folder, "bin", "uv"), "pip", "install", "--python", VENV_PYTHON]
    get_torch += ["--torch-backend=cpu", torch.group()]
    print("Without a GPU: looking for the small build of torch")
    environment = dict(os.environ, UV_HTTP_RETRIES="1")
    for command in (get_uv, get_torch):
        if subprocess.call(command, env=environment) != 0:
            print("It cannot be had here, so pip installs the torch that it finds.")
            break
    shutil.rmtree(folder, ignore_errors=True)


def has_gpu():
    return any(map(os.path.exists, ("/proc/driver/nvidia", "/dev/nvidiactl", "/usr/lib/wsl/lib/nvidia-smi")))


def has_installed(pin):
    name, version = pin.split("==")
    query = "import importlib.metadata as m, sys; sys.exit(m.version({0!r}).split('+')[0] != {1!r})"
    command = [VENV_PYTHON, "-c", query.format(name, version)]
    return subprocess.call(command, stderr=subprocess.DEVNULL) == 0


# --- pip -------------------------------------------------------------------------------------------------


def install(*requirements):
    print("Installing the course's packages in .venv (the first time takes some minutes)")
    command = [VENV_PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar=off"]
    command += list(requirements) + ["--editable", ".[course,test]"]
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
    copy = os.path.join(folder, os.path.basename(KERNEL_CONFIG))
    if not (os.path.exists(copy) and filecmp.cmp(KERNEL_CONFIG, copy, shallow=False)):
        shutil.copy(KERNEL_CONFIG, copy)  # else somebody else's course may be read-only


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
        stop("The install failed: {0}".format(error), "Fix that, then run make again.")
