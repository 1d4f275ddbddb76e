"""Processes of one sandbox are kept apart: ranks, students' cells, and the broker."""

import pytest

# Two processes as two ranks are, or as students' cells and the process above them; the second one tries.
TRY = """
import os, time
import fcntl, resource, socket, struct
import ctypes, mmap, select, threading
from autograder.inside import system_calls
from autograder.inside.isolation import keep_apart, keep_memory_in_sight, leave_no_traces
def call(name, *arguments):
    numbers = (system_calls.REFUSED | system_calls.REFUSED_TO_RANKS | {{"futex": system_calls._FUTEX}})[name]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(numbers[system_calls.MACHINES.index(os.uname().machine)], *arguments) < 0:
        raise OSError(ctypes.get_errno(), name)
open("/tmp/prepared", "w").write("text")
reading, writing = os.pipe()
first = os.fork()
if first == 0:
    keep_apart({shares_files}); os.write(writing, b"."); time.sleep(60)
os.read(reading, 1)
if os.fork() == 0:
    keep_apart({shares_files})
    leave_no_traces({shares_files})
    if {is_measured}: keep_memory_in_sight()
    for attempt in {attempts}:
        try: exec(attempt); os.write(writing, b"done ")
        except PermissionError as error: os.write(writing, b"denied ")
    os._exit(0)
os.wait()
say(os.read(reading, 1000).decode().split())
os.kill(first, 9)
"""


def tried(run, *attempts: str, shares_files: bool = False, is_measured: bool = False) -> set[str]:
    options = {"shares_files": shares_files, "is_measured": is_measured}
    return set(run(TRY.format(attempts=attempts, **options))[1])


def test_ranks_cannot_change_files(run):
    attempts = ("open('/tmp/new', 'w')", "os.mkdir('new')", "os.symlink('a', '/dev/shm/b')")
    assert tried(run, *attempts) == {"denied"}
    assert tried(run, "open('/dev/null', 'w').write('text')") == {"done"}


def test_ranks_whose_exercise_is_files_can(run):
    attempts = ("open('/tmp/new', 'w')", "os.mkdir('/tmp/in')", "os.rename('/tmp/new', '/tmp/in/new')")
    assert tried(run, *attempts, shares_files=True) == {"done"}


def test_ranks_cannot_look_into_each_other(run):
    names = ("mem", "environ", "cmdline", "comm", "fd/1")
    assert tried(run, *(f"open(f'/proc/{{first}}/{name}', 'rb')" for name in names)) == {"denied"}
    assert tried(run, "open('/proc/self/maps').read()") == {"done"}


def test_ranks_cannot_read_what_cells_have_written(run):
    assert tried(run, "open('/tmp/prepared')") == {"denied"}
    assert tried(run, "open('/tmp/prepared')", shares_files=True) == {"done"}
    assert tried(run, "import json.tool", "open('/dev/zero', 'rb').read(1)") == {"done"}


@pytest.mark.parametrize(
    "attempt",
    [
        "os.setxattr('/tmp/prepared', 'user.note', b'text')",
        "os.utime('/tmp/prepared', ns=(1, 2))",
        "os.chmod('/tmp/prepared', 0o640)",
        "fcntl.lockf(os.open('/usr', 0), fcntl.LOCK_SH, 10, 20)",
        "fcntl.flock(os.open('/usr', 0), fcntl.LOCK_SH)",
        "fcntl.fcntl(os.open('/usr', 0), fcntl.F_NOTIFY, 1)",
        "fcntl.fcntl(os.open('/usr', 0), 1040, bytes(8))",  # a delegation
        "fcntl.ioctl(os.open('/usr', 0), 0x40086602, bytes(8))",
        "fcntl.ioctl(os.open('/usr', 0), 0x40086604, bytes(8))",  # a file system's own: a file's version
        "resource.prlimit(first, resource.RLIMIT_NOFILE)",
        "os.setpriority(os.PRIO_PROCESS, 0, 9)",
        "os.setpgid(0, 0)",
        "socket.socket()",
        "os.chown('/tmp/prepared', -1, -1)",  # which dates it
        "os.truncate('/tmp/prepared', 3)",
        "call('futex', ctypes.pythonapi.Py_IsInitialized, 1, 1)",  # wakes who waits at this place of a file
        "call('futex_waitv', None, 0, 0, None, 0)",
        "os.open('/dev/ptmx', os.O_RDONLY)",
        "os.open('/proc/timer_list', os.O_RDONLY)",  # for root, as whom it runs where root grades
        "os.open('/dev/pts/ptmx', 3)",  # neither to read nor to write, but to set the size of a window
        "call('io_setup', 1, ctypes.byref(ctypes.c_long(0)))",
        "call('mbind', ctypes.byref(ctypes.c_char.from_buffer(mmap.mmap(-1, 4096))), 4096, 0, None, 0, 0)",
        "call('openat2', -100, b'/dev/null', bytes(24), 24)",
        "call('open_by_handle_at', -10002, struct.pack('IiQ', 8, 254, 1), 0)",  # a process, by its number
    ],
    ids=lambda attempt: attempt.rpartition(",")[0],
)
def test_ranks_leave_no_traces_that_others_could_see(attempt, run):
    assert tried(run, attempt) == {"denied"}


def test_ranks_set_limits_of_their_own(run):
    assert tried(run, "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))", "socket.socketpair()") == {"done"}


def test_ranks_can_join_threads(run):
    join = """if True:
        libc, thread = ctypes.CDLL(None), ctypes.c_ulong()
        sleep = ctypes.cast(libc.usleep, ctypes.c_void_p)
        libc.pthread_create(ctypes.byref(thread), None, sleep, ctypes.c_void_p(300_000))
        begin = time.monotonic()
        assert libc.pthread_join(thread, None) == 0 and time.monotonic() - begin > 0.2
    """
    assert tried(run, join) == {"done"}


@pytest.mark.parametrize(
    "attempt",
    [
        "os.fork()",
        "os.memfd_create('')",
        "os.pipe()",
        "socket.socketpair()",
        "select.epoll()",
        "mmap.mmap(-1, 4096)",
        "mmap.mmap(-1, 4096, mmap.MAP_PRIVATE).madvise(21)",  # to be swapped out
        "mmap.mmap(-1, 4096, mmap.MAP_PRIVATE).madvise(12)",  # to be merged with pages of the same content
    ],
)
def test_ranks_that_are_measured_keep_nothing_where_it_is_not_counted(attempt, run):
    assert tried(run, attempt, is_measured=True) == {"denied"}


def test_ranks_that_are_measured_have_memory_and_threads(run):
    attempts = (
        "mmap.mmap(-1, 4096, mmap.MAP_PRIVATE)",
        "bytearray(1 << 20)",
        "threading.Thread(target=int).start()",
    )
    assert tried(run, *attempts, is_measured=True) == {"done"}


def test_cells_cannot_look_into_what_runs_beside_them(run):
    places = [f"{process}/{name}" for process in ("{first}", "{os.getppid()}") for name in ("mem", "fd/1")]
    attempts = [f"open(f'/proc/{place}', 'rb')" for place in places]
    assert tried(run, *attempts, shares_files=True) == {"denied"}


def test_what_answers_checks_unpickles_messages_of_ranks_only(run):
    code = """
import pickle
from autograder.inside.isolation import unpickle_messages_only
from fourranks.trace import Call

class Runs:
    def __reduce__(self):
        return exec, ("say('it ran')",)

evil, honest = pickle.dumps(Runs()), pickle.dumps([Call("send", "0", (0, 1)), {"bytes": b"x"}])
unpickle_messages_only()
try: pickle.loads(evil)
except pickle.UnpicklingError as error: say([str(error), pickle.loads(honest)[0].op])
"""
    assert run(code)[1] == ["builtins.exec is no part of a rank's message", "send"]


def test_what_answers_checks_keeps_its_classes_as_they_are(run):
    code = r"""
import pickle
from autograder.inside.isolation import unpickle_messages_only
from fourranks.protocol.messages import Settings
from fourranks.trace import Call

changes = b"\x80\x02cfourranks.trace\nCall\n(N}X\x02\x00\x00\x00opX\x03\x00\x00\x00liestb."
call, settings = Call("send", "0", (0, 1)), Settings(0, 1, "gloo", "cpu", 9, "", [], {}, "fork")
honest = pickle.dumps([call, settings])
unpickle_messages_only()
try: pickle.loads(changes)
except TypeError: say([repr(pickle.loads(honest)) == repr([call, settings]), call.op])
"""
    assert run(code)[1] == [True, "send"]


def test_temporary_files_can_be_used_where_a_library_below_the_same_folder_is_hidden(run):
    code = """
import tempfile
from autograder.inside.isolation import hide_files
open("/tmp/library", "w").write("text")
tempfile.gettempdir()  # Python looks for it once
hide_files(["/tmp/library"])
with tempfile.TemporaryFile("w+") as file:
    file.write("kept"); file.seek(0); found = [file.read()]
try: open("/tmp/library")
except PermissionError: found.append("denied")
say(found)
"""
    assert run(code)[1] == ["kept", "denied"]
