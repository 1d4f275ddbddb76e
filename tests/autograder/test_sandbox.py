"""Code in a sandbox: its reach, and its end when it takes too much."""

import errno
import mmap
import os
import socket
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from autograder.inside.system_calls import MACHINES, REFUSED, seccomp_filter
from autograder.sandbox import bubblewrap, sandbox
from autograder.sandbox.sandbox import SandboxMissing
from autograder.sandbox.usage import OpenFiles, Usage, exceeded, usage_of
from tests.autograder.conftest import SMALL, running_in

HOLD = "kept = [b'1' * 10_000_000 for _ in range(160)]; time.sleep(60)\n"
HOLD_IN_A_FILE = (
    "file = os.memfd_create('bomb')\nfor _ in range(160): os.write(file, bytes(10_000_000))\ntime.sleep(60)\n"
)


def said(run, expression: str) -> object:
    return run(f"import os, pathlib; say({expression})")[1]


def test_it_sees_no_file_of_the_user_of_the_course_or_of_grading(run):
    course = Path(bubblewrap.PACKAGES)
    seen = said(
        run,
        "[os.path.join(where, name) for top in ('/home', '/root', '/etc', '/var', '/srv', "
        f"'/mnt', '/tmp', {str(course)!r}) for where, _, names in os.walk(top) for name in names]",
    )
    allowed = (sys.prefix, sys.base_prefix, "/etc/alternatives", "/etc/ld.so.cache")
    allowed += tuple(str(course / path) for path in bubblewrap.COURSE)
    assert [path for path in seen if not path.startswith(allowed)] == []
    assert not said(run, f"os.path.exists({str(course / 'autograder' / 'checks')!r})")


def test_it_can_write_only_to_what_ends_with_it(run):
    places = ["/", "/usr", "/dev", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", sys.prefix]
    places += [str(bubblewrap.PACKAGES / "fourranks")]
    assert said(run, f"[place for place in {places} if os.access(place, os.W_OK)]") == []
    assert said(run, "pathlib.Path('new').write_text('mine')") == 4
    assert said(run, "os.listdir('.')") == []


def test_it_knows_nothing_of_the_environment_and_of_other_processes(run, monkeypatch):
    monkeypatch.setenv("A_SECRET", "42")
    assert "A_SECRET" not in said(run, "dict(os.environ)")
    assert len(said(run, "[name for name in os.listdir('/proc') if name.isdigit()]")) <= 2


def test_it_cannot_read_what_it_was_locked_into(run):
    command = said(run, "open('/proc/1/cmdline').read()")
    assert "bwrap" in command
    assert "--ro-bind" not in command and "--seccomp" not in command and str(bubblewrap.HOME) not in command


def test_it_has_no_network_but_its_own_loopback(run):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        tried = said(run, f"socket.socket().connect_ex(('127.0.0.1', {port}))")
    assert tried != 0
    assert said(run, "socket.socket().connect_ex(('192.0.2.1', 80))") != 0
    own = "(lambda s: socket.socket().connect_ex(s.getsockname()))(socket.create_server(('127.0.0.1', 0)))"
    assert said(run, own) == 0


def test_linux_refuses_calls_that_get_past_what_is_watched(run_in_each):
    names = ("shmget", "msgget", "ptrace", "unshare", "keyctl", "io_uring_setup", "process_vm_readv")
    machine = MACHINES.index(os.uname().machine)
    numbers = [REFUSED[name][machine] for name in names]
    code = f"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
say([(libc.syscall(number, 0, 0, 0), ctypes.get_errno()) for number in {numbers}])
"""
    assert run_in_each(code)[1] == [[-1, errno.EPERM]] * len(names)


def test_it_stays_on_the_processors_of_its_job(run_in_each):
    everywhere = os.sched_getaffinity(0)
    code = """
import os
try: os.sched_setaffinity(0, range(os.cpu_count()))
except PermissionError: say(sorted(os.sched_getaffinity(0)))
"""
    try:
        os.sched_setaffinity(0, {min(everywhere)})
        assert run_in_each(code)[1] == [min(everywhere)]
    finally:
        os.sched_setaffinity(0, everywhere)


def test_processes_can_talk_by_ip_and_by_pairs_of_sockets_only(run_in_each):
    families = [socket.AF_UNIX, 40, 17, 38]  # 40 reaches the hypervisor, 17 the wire, 38 the kernel's crypto
    code = f"""
refused = 0
for family in {[int(family) for family in families]}:
    try: socket.socket(family)
    except OSError: refused += 1
socket.socket().close()
say(refused)
"""
    assert run_in_each(code)[1] == len(families)


def test_no_part_of_linux_is_loaded_for_a_protocol_or_a_terminal(run_in_each):
    code = """
import errno, fcntl, os, struct
def tried(family, kind, protocol):
    try: socket.socket(family, kind, protocol).close()
    except OSError as error: return errno.errorcode[error.errno]
    return "done"
def discipline(number):
    try: fcntl.ioctl(0, 0x5423, struct.pack("i", number))
    except OSError as error: return errno.errorcode[error.errno]
MPTCP, UDP_LITE, DCCP = (1, 262), (2, 136), (6, 0)
usual = [tried(family, *kind) for family in (2, 10) for kind in ((1, 0), (1, 6), (2, 0), (2, 17))]
others = [tried(family, *kind) for family in (2, 10) for kind in (MPTCP, UDP_LITE, DCCP)]
say([usual, others, discipline(27)])
"""
    refused = ["EPROTONOSUPPORT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT"]
    assert run_in_each(code)[1] == [["done"] * 8, refused * 2, "EACCES"]


def test_with_gpus_its_ranks_can_name_sockets_for_each_other_and_reach_none_outside(program):
    program("bwrap")
    name = f"\0fourranks test {os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as outside:
        outside.bind(name)
        code = f"""
one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
one.bind("\\0nccl")
one.sendto(b"a descriptor", "\\0nccl")
say([one.recv(99).decode(), one.connect_ex({name!r})])
"""
        with running_in(lambda command, fds, limits: bubblewrap.BubblewrapWithGpus(command, fds)) as run:
            assert run(code)[1] == ["a descriptor", errno.ECONNREFUSED]


def test_no_process_can_hide_from_the_watch(run_in_each):
    code = "import ctypes; say([ctypes.CDLL(None).prctl(option, 0, 0, 0, 0) for option in (4, 3)])"
    assert run_in_each(code)[1] == [-1, 1]  # to set whether it can be looked into, and to ask


def test_no_filter_is_known_for_other_machines(monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(NotImplementedError, match="x86_64 and aarch64"):
        seccomp_filter()


def test_linux_counts_what_its_processes_send_each_other(run_in_each):
    confined, _ = run_in_each(
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "one = socket.create_connection(server.getsockname())\n"
        "other, _ = server.accept()\n"
        "for _ in range(10):\n    one.sendall(bytes(100_000)); left = 100_000\n"
        "    while left: left -= len(other.recv(left))\n"
        "say('done'); import time; time.sleep(60)"
    )
    assert 1_000_000 <= confined.traffic().nbytes < 1_100_000


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        pytest.param(
            "import os, time\nfor _ in range(9): os.fork()\ntime.sleep(60)", "processes", id="a fork bomb"
        ),
        pytest.param(
            "import threading, time\n"
            "for _ in range(1000): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
            "time.sleep(60)",
            "threads",
            id="a thousand threads",
        ),
        pytest.param("x = [b'1' * 10_000_000 for _ in range(200)]", "memory", id="a memory bomb"),
        pytest.param(
            "import time\nwhile time.process_time() < 60: pass", "processor time", id="a loop of a minute"
        ),
        pytest.param(f"import os, time\n{HOLD_IN_A_FILE}", "memory", id="memory that belongs to no process"),
        pytest.param(
            f"import ctypes, time\nctypes.CDLL(None).prctl(15, b'\\xff')\n{HOLD}",
            "memory",
            id="a process whose name is no text",
        ),
        pytest.param(
            "import ctypes, os, time\n"
            "ctypes.CDLL(None).prctl(15, b'\\x0bVmPTE: -999999')\n"
            f"if os.fork(): os.fork()\n{HOLD}",
            "memory",
            id="processes whose name looks like a line of what they take",
        ),
        pytest.param(
            "import ctypes, os, threading, time\n"
            f"def hold():\n    time.sleep(1)\n    {HOLD}"
            "if os.fork(): time.sleep(60)\n"
            "threading.Thread(target=hold).start()\n"
            "ctypes.CDLL(None).pthread_exit(None)",
            "memory",
            id="a process whose first thread has ended",
        ),
        pytest.param(
            "import os, time\n"
            "for _ in range(25): os.mkdir('d' * 200); os.chdir('d' * 200)\n"
            f"os.dup2(os.open('file', os.O_CREAT), 2)\n{HOLD_IN_A_FILE}",
            "memory",
            id="behind a file whose path is too long to be read",
        ),
        pytest.param(
            "import mmap, time\n"
            "memory = mmap.mmap(-1, 1 << 40, mmap.MAP_PRIVATE | mmap.MAP_NORESERVE, mmap.PROT_READ)\n"
            "for at in range(0, 1 << 40, 1 << 21): memory[at]\n"
            "time.sleep(60)",
            "memory",
            id="tables of pages that hold nothing",
        ),
    ],
)
def test_who_takes_too_much_is_ended_with_all_that_they_started(run_in_each, code, reason):
    confined, _ = run_in_each(code)
    assert reason in confined.exceeded or reason == "memory"  # a single process also gets a MemoryError
    deadline = time.monotonic() + 5
    with pytest.raises(OSError):
        while confined._processes() and time.monotonic() < deadline:
            time.sleep(0.05)


def test_no_thread_has_files_that_the_watch_does_not_see(run_in_each):
    _, got = run_in_each(
        "import ctypes\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "top = ctypes.addressof(ctypes.create_string_buffer(1 << 16)) + (1 << 15)\n"
        "tried = libc.clone(libc.pause, ctypes.c_void_p(top & ~15), 0x10900, None), ctypes.get_errno()\n"
        "say([tried, [libc.close_range(999, 999, 2), ctypes.get_errno()], libc.close_range(999, 999, 0)])"
    )
    assert got == [[-1, errno.EPERM], [-1, errno.EPERM], 0]


def test_what_can_no_longer_be_watched_is_ended(run_in_each, monkeypatch):
    monkeypatch.setattr(sandbox, "usage_of", lambda *_: int("no number"))
    with monkeypatch.context() as patch:
        patch.setattr("threading.excepthook", lambda _: None)
        _, got = run_in_each("import time; time.sleep(20); say('done')")
    assert got is None


MAPPED_OFTEN = """
import mmap, os, time
file = os.memfd_create("")
os.ftruncate(file, 128 << 20)
kept = [mmap.mmap(file, 0, mmap.MAP_SHARED | mmap.MAP_POPULATE) for _ in range(100)]
time.sleep(3)
say("done")
"""


def test_what_takes_long_to_be_looked_at_is_ended(run_in_each, monkeypatch):
    monkeypatch.setattr(sandbox, "LONGEST_LOOK", 0.1)
    confined, got = run_in_each(MAPPED_OFTEN)
    assert got is None
    assert "cannot be watched" in confined.exceeded


def test_it_is_watched_by_two_threads_however_often_it_is_looked_at(run_in_each, monkeypatch):
    begun, start = [], threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda thread: (begun.append(thread), start(thread))[1])
    monkeypatch.setattr(sandbox, "WATCH_EVERY", 0.01)
    confined, _ = run_in_each("import time; time.sleep(0.5); say('done')")
    confined.kill()
    assert len(begun) == 2 and not any(thread.is_alive() for thread in begun)


def test_while_it_is_set_up_no_process_of_the_machine_is_taken_for_one_in_it(run_in_each, monkeypatch):
    monkeypatch.setattr(sandbox, "WATCH_EVERY", 0.0001)
    for _ in range(5):  # the machine has more processes than this sandbox may have
        confined, got = run_in_each("import time; time.sleep(0.2); say('done')")
        assert (confined.exceeded, got) == ("", "done")


def test_it_is_watched_however_long_it_takes_to_be_set_up(run_in_each, monkeypatch):
    monkeypatch.setattr(sandbox, "WATCH_EVERY", 0.0001)  # so the first look comes too early
    for _ in range(5):
        confined, got = run_in_each(
            "import os, time\nfor _ in range(5): os.fork()\ntime.sleep(5)\nsay('done')"
        )
        assert (confined.exceeded, got) == ("more than 20 processes at a time", None)


def test_what_it_is_started_with_fits_however_small_a_pipe_is():
    given = bubblewrap._readable(bytes(1 << 20))
    assert len(os.read(given, 2 << 20)) == 1 << 20
    os.close(given)


def test_files_take_no_more_than_they_may(run):
    confined, got = run(
        "try:\n    for i in range(9): open(str(i), 'wb').write(bytes(300_000))\n"
        "except OSError as error: say(error.errno)"
    )
    assert got == 28  # no space left


UNREAD = """
import time
server, kept = socket.create_server(("127.0.0.1", 0)), []
for _ in range(30):
    kept.append(socket.create_connection(server.getsockname()))
    kept.append(server.accept()[0])
    kept[-2].setblocking(False)
    try:
        while kept[-2].send(bytes(1 << 16)): pass
    except BlockingIOError: pass
time.sleep({seconds})
say("done")
"""


UNREAD_DATAGRAMS = """
import time
sender, kept = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), []
for _ in range(400):
    kept.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    kept[-1].bind(("127.0.0.1", 0))
    for _ in range(5): sender.sendto(bytes(60_000), kept[-1].getsockname())
time.sleep({seconds})
say("done")
"""


@pytest.mark.parametrize("unread", [UNREAD, UNREAD_DATAGRAMS])
def test_connections_hold_no_more_than_leaves_room_for_those_of_others(run, unread):
    limits = replace(SMALL, unread_bytes=32 << 20)
    confined, said = run(unread.format(seconds=60), limits)
    assert (confined.exceeded, said) == ("more than 32 MiB sent over connections and not received", None)
    assert run(unread.format(seconds=1))[1] == "done"  # as it is far less than the machine has for them


def test_limits_are_named_by_what_was_exceeded():
    within = Usage(memory_bytes=SMALL.memory_bytes, processes=20, threads=200, cpu_seconds=5)
    assert exceeded(SMALL, within, OpenFiles(number=10**6)) == "more than 50,000 open files"
    assert exceeded(SMALL, within) == ""
    assert "1 GiB" in exceeded(SMALL, Usage(SMALL.memory_bytes + 1, 1, 1, 0))


def test_pages_that_processes_share_count_once_where_page_tables_come_to_the_limit(tmp_path):
    for pid in "12":
        (tmp_path / pid).mkdir()
        fields = ["S", *["0"] * 16, "1", *["0"] * 3, str(SMALL.memory_bytes // 2 // mmap.PAGESIZE)]
        (tmp_path / pid / "stat").write_text(f"{pid} (python) {' '.join(fields)}")
        (tmp_path / pid / "status").write_text("VmPTE:\t800 kB\n")
        (tmp_path / pid / "smaps_rollup").write_text("Pss: 1000 kB\n")
    assert usage_of(lambda: list(tmp_path.iterdir()), SMALL).memory_bytes == 2 * (800 + 1000) << 10


def test_pages_that_are_swapped_out_and_huge_pages_count_as_memory(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1/stat").write_text(f"1 (python) S {' '.join(['0'] * 16)} 1 {' '.join(['0'] * 4)}")
    (tmp_path / "1/status").write_text("VmPTE:\t8 kB\nVmSwap:\t500 kB\nHugetlbPages:\t2048 kB\n")
    assert usage_of(lambda: [tmp_path / "1"], SMALL).memory_bytes == 2556 << 10


def test_without_bubblewrap_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxMissing, match="apt install bubblewrap"):
        bubblewrap.check()


NAMES_A_PROCESS = """
report=$(tr '\\0' '\\n' <&$2 | grep --after-context=1 --regexp=--info-fd | tail -n 1)
echo "{\\"child-pid\\": $$}" >&$report
"""


@pytest.mark.parametrize("before", ["", NAMES_A_PROCESS], ids=["at once", "when it has named a process"])
def test_where_bubblewrap_may_not_it_says_what_it_needs(monkeypatch, tmp_path, before):
    refusing = tmp_path / "bwrap"
    refusing.write_text(f"#!/bin/bash\n{before}exit 1\n")
    refusing.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(SandboxMissing, match="user namespaces"):
        bubblewrap.check()
