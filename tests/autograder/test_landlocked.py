"""The sandbox without namespaces: the reach of its processes, and that none of them is left."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from autograder.sandbox import landlocked, tiers, usage
from autograder.sandbox.landlocked import Landlocked
from autograder.sandbox.sandbox import SandboxMissing
from autograder.sandbox.tiers import Tier
from tests.autograder.conftest import running_in
from tests.classroom import folders

COURSE = Path(__file__).parents[2]
REFUSED = """
def refused(what, *arguments):
    try: what(*arguments)
    except PermissionError: return True
    return False
"""


@pytest.fixture
def run():
    """Runs Python code in such a sandbox; returns the sandbox and what it has to `say`, if anything."""
    if reason := tiers.missing(Tier.LANDLOCK):
        pytest.skip(reason)
    with running_in(Landlocked) as run:
        yield run


def test_it_reads_the_course_s_part_for_it_and_nothing_else(run, tmp_path):
    (tmp_path / "secret").write_text("42")
    paths = ["/etc/passwd", str(tmp_path / "secret"), __file__, str(COURSE / "autograder/cli.py")]
    paths += [f"/proc/{os.getpid()}/environ"]
    assert run(f"{REFUSED}say([refused(open, path) for path in {paths}])")[1] == [True] * len(paths)
    assert "no_checks" in run("import autograder.check as own, os; say(os.path.realpath(own.__file__))")[1]


def test_it_lists_no_folder_of_the_user_or_of_the_course(run):
    folders = ["/", "/tmp", str(COURSE), str(COURSE / "autograder"), str(Path.home())]
    assert run(f"import os\n{REFUSED}say([refused(os.listdir, folder) for folder in {folders}])")[1] == [
        True
    ] * len(folders)


def test_it_writes_to_its_home_and_temporary_files_alone(run, tmp_path):
    places = ["/", "/tmp", "/dev/shm", "/var/tmp", sys.prefix, str(COURSE / "fourranks"), str(tmp_path)]
    code = f"""
import os, pathlib, tempfile
{REFUSED}
written = [pathlib.Path(folder, 'new').write_text('mine') for folder in ('.', tempfile.gettempdir())]
say([written, [refused(open, os.path.join(place, 'new'), 'w') for place in {places}]])
"""
    assert run(code)[1] == [[4, 4], [True] * len(places)]


def test_it_has_no_rights_and_signals_nobody_outside(run):
    code = f"""
import os
import shutil
{REFUSED}
rights = [line.split()[1] for line in open('/proc/self/status') if line.startswith('CapEff')]
say([rights, refused(os.kill, {os.getpid()}, 0), refused(os.kill, 1, 0)])
"""
    assert run(code)[1] == [["0" * 16], True, True]


def test_a_file_takes_no_more_than_it_may_and_a_folder_ends_the_sandbox(run):
    code = """
import autograder.inside.limits as limits, pathlib, time
limits.restrict(limits.Limits(disk_bytes=1 << 20))
got = 0
try: pathlib.Path('large').write_bytes(bytes(2 << 20))
except OSError as error: got = error.errno
for i in range(12): pathlib.Path(str(i)).write_bytes(bytes(300_000))
say(got)
time.sleep(60)
"""
    confined, got = run(code)
    assert got == 27  # file too large
    assert _ended(confined) and confined.exceeded == "more than 3 MiB of files"


@pytest.mark.parametrize(
    "hide",
    [
        "os.mkdir('n', 0o300); os.chdir('n')",  # which no one can list
        "for _ in range(25): os.mkdir('n' * 200); os.chdir('n' * 200)",  # a path that Linux does not take
    ],
)
def test_files_in_a_folder_that_cannot_be_looked_into_end_the_sandbox(run, hide):
    confined, _ = run(f"import os, time\n{hide}\nopen('new', 'wb').write(bytes(5 << 20))\ntime.sleep(20)")
    assert _ended(confined) and "MiB of files" in confined.exceeded


@pytest.mark.parametrize(("renamed", "found"), [(2, 1 << 20), (1000, 8 << 20)])
def test_folders_that_are_renamed_all_the_time_are_looked_for_until_they_are_found(
    tmp_path, monkeypatch, renamed, found
):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/file").write_bytes(bytes(1 << 20))
    names, walk = iter(map(str, range(renamed))), usage.walk

    def renamed_meanwhile(*arguments, **keywords):
        for place in walk(*arguments, **keywords):
            yield place
            if place[1] and (name := next(names, "")):
                os.rename(tmp_path / place[1][0], tmp_path / name)

    monkeypatch.setattr(usage, "walk", renamed_meanwhile)
    assert 0 <= usage.disk_of(tmp_path, 8 << 20) - found < 1 << 18


def test_folders_count_however_many_are_in_one_another(tmp_path):
    with folders(tmp_path, "d", 1200):
        assert usage.disk_of(tmp_path, 1 << 30) >= 1201 * usage.AN_ENTRY


def test_room_on_the_disk_is_had_by_writing_alone(run):
    code = """
import ctypes, os
file = os.open('new', os.O_CREAT | os.O_RDWR)
refused = ctypes.CDLL(None).fallocate(file, 0, ctypes.c_long(0), ctypes.c_long(1 << 20))
blocks = os.fstat(file).st_blocks
os.posix_fallocate(file, 0, 1 << 20)
say([refused, blocks, os.fstat(file).st_size])
"""
    assert run(code)[1] == [-1, 0, 1 << 20]


def test_files_count_when_their_names_are_gone(run):
    code = """
import os, time
kept = [os.open('.', os.O_RDWR | os.O_TMPFILE, 0o600), os.open('new', os.O_RDWR | os.O_CREAT, 0o600)]
os.unlink('new')
for file in kept:
    os.write(file, bytes(2 << 20))
time.sleep(20)
"""
    confined, _ = run(code)
    assert _ended(confined) and "MiB of files" in confined.exceeded


@pytest.mark.parametrize(
    ("mode", "seconds", "said"), [(0o111, 100, "a program that can be run and not read"), (0o755, 4, "\n")]
)
def test_a_program_that_can_be_run_and_not_read_ends_it(program, mode, seconds, said):
    if reason := tiers.missing(Tier.LANDLOCK):
        pytest.skip(reason)
    runs_a_copy = f"""
import os, subprocess
copy = os.open("copy", os.O_CREAT | os.O_WRONLY, {mode})
os.write(copy, open({program("sleep")!r}, "rb").read())
os.close(copy)
subprocess.run(["./copy", "{seconds}"])
"""
    grades = f"""
from autograder.sandbox.landlocked import Landlocked
from tests.autograder.conftest import running_in
with running_in(Landlocked) as run:
    print(run({runs_a_copy!r}, timeout=100)[0].exceeded)
"""
    command = [sys.executable, "-c", grades]
    if os.geteuid() == 0:  # which may not look into such a program in a container either
        command = [sys.executable, "tests/docker_default.py", *command]
    environment = os.environ | {"PYTHONPATH": str(COURSE)}
    ran = subprocess.run(command, cwd=COURSE, env=environment, capture_output=True, text=True)
    assert ran.stdout.startswith(said), ran.stdout + ran.stderr


def test_all_that_was_started_ends_with_it_and_its_folder_is_removed(run):
    code = """
import os, time
os.makedirs('deep/' * 100)
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        os.closerange(3, 100)
        if os.fork() == 0: time.sleep(1000)
        os._exit(0)
say(os.getcwd())
time.sleep(1000)
"""
    confined, home = run(code)
    processes = [psutil.Process(int(folder.name)) for folder in confined._processes()]
    assert len(processes) >= 5 and confined._top in Path(home).parents
    confined.kill()
    assert not [process for process in processes if process.is_running()]
    assert not confined._top.exists()


def test_folders_that_may_not_be_listed_or_changed_are_removed_without_root_s_rights_too():
    if reason := tiers.missing(Tier.LANDLOCK):
        pytest.skip(reason)
    grades = """
from autograder.sandbox import landlocked
landlocked._has_users = lambda: False
closes = "for mode in 300 500; do mkdir $mode; echo mine > $mode/file; chmod $mode $mode; done"
sandbox = landlocked.Landlocked(["sh", "-c", closes], [])
sandbox._process.wait()
print(*sandbox._top.glob("home/student/*"))
sandbox.kill()
print(sandbox._top.exists())
"""
    without_rights = f"""
import os, sys
from autograder.inside import first_process
if os.geteuid() == 0:
    first_process._give_up_rights()
os.execv(sys.executable, [sys.executable, "-c", {grades!r}])
"""
    ran = subprocess.run([sys.executable, "-c", without_rights], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("\nFalse\n", "")


def test_all_of_it_ends_when_the_process_that_grades_is_killed():
    code = """
import sys, time
from autograder.sandbox.landlocked import Landlocked
sandbox = Landlocked(['sh', '-c', 'echo mine > new; sleep 1000'], [])
while len(sandbox._processes()) < 3: time.sleep(0.01)
print(sandbox._top, *[folder.name for folder in sandbox._processes()], flush=True)
time.sleep(1000)
"""
    if reason := tiers.missing(Tier.LANDLOCK):
        pytest.skip(reason)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as grader:
        top, *numbers = grader.stdout.readline().split()
        pids = [int(number) for number in numbers]
        grader.kill()
    deadline = time.monotonic() + 5
    while any(map(psutil.pid_exists, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not list(Path(top).glob("home/student/*"))
    shutil.rmtree(top)  # only folders and links of the grader's own are left
    assert len(pids) >= 3 and not [pid for pid in pids if psutil.pid_exists(pid)]


def test_the_folder_of_a_sandbox_whose_grader_was_killed_is_removed_by_the_next_one(
    run, tmp_path, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    abandoned, used, new = (tmp_path / f"{landlocked._PREFIX}{number}" for number in range(3))
    for folder in (abandoned, used, new):
        (folder / "home").mkdir(parents=True)
    for folder in (abandoned, used):
        os.utime(folder, (0, 0))
    lock = landlocked._lock(used)
    landlocked.check()
    os.close(lock)
    assert not abandoned.exists() and used.exists() and new.exists()


def test_its_folder_is_locked_until_it_is_removed_and_its_processes_cannot_unlock_it(run):
    code = """
import os
folders = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
say([os.path.dirname(os.path.dirname(os.environ['HOME'])) in folders])
"""
    confined, held = run(code)
    assert held == [False]
    with pytest.raises(BlockingIOError):
        landlocked._lock(confined._top)


def test_no_two_of_them_have_the_same_user():
    one, other = landlocked._User(), landlocked._User()
    assert one.number != other.number
    one.close()
    again = landlocked._User()
    assert again.number == one.number
    again.close()
    other.close()


def test_as_another_user_than_root_it_needs_landlock_s_scopes(monkeypatch):
    monkeypatch.setattr(landlocked.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(landlocked.landlock, "version", lambda: 5)
    with pytest.raises(SandboxMissing, match=r"Linux 6\.12 or later.*administrator"):
        landlocked.check()


def test_without_landlock_it_says_what_it_needs(monkeypatch):
    monkeypatch.setattr(landlocked.landlock, "version", lambda: 0)
    with pytest.raises(SandboxMissing, match=r"Linux 5\.19"):
        landlocked.check()


def _ended(confined) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            confined._processes()
        except OSError:
            return True
        time.sleep(0.05)
    return False


def test_cells_run_although_no_process_without_a_filter_has_made_a_profile_of_ipython(run):
    code = """
import os, socket, threading
from autograder.inside import cells, isolation, wire
os.chdir(os.environ["HOME"])
isolation.keep_apart(shares_files=True)
isolation.leave_no_traces(shares_files=True, starts_sessions=True)
ours, theirs = socket.socketpair()

def ask():
    wire.send(ours, {"cell": "print(40 + 2)"})
    say(wire.receive(ours)["text"])
    ours.close()

threading.Thread(target=ask).start()
cells.serve(theirs)
"""
    assert run(code)[1] == "42\n"
