"""What processes of one sandbox can do to one another: ranks, students' cells, and what answers checks."""

# Two processes as two ranks are, or as students' cells and the process above them; the second one tries.
TRY = """
import os, time
from autograder.sandbox.isolation import keep_apart
reading, writing = os.pipe()
first = os.fork()
if first == 0:
    keep_apart({shares_files}); os.write(writing, b"."); time.sleep(60)
os.read(reading, 1)
if os.fork() == 0:
    keep_apart({shares_files})
    for attempt in {attempts}:
        try: exec(attempt); os.write(writing, b"done ")
        except PermissionError as error: os.write(writing, b"denied ")
    os._exit(0)
os.wait()
say(os.read(reading, 1000).decode().split())
os.kill(first, 9)
"""


def tried(run, *attempts: str, shares_files: bool = False) -> set[str]:
    return set(run(TRY.format(attempts=attempts, shares_files=shares_files))[1])


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


def test_cells_cannot_look_into_what_runs_beside_them(run):
    places = [f"{process}/{name}" for process in ("{first}", "{os.getppid()}") for name in ("mem", "fd/1")]
    attempts = [f"open(f'/proc/{place}', 'rb')" for place in places]
    assert tried(run, *attempts, shares_files=True) == {"denied"}


def test_what_answers_checks_unpickles_messages_of_ranks_only(run):
    code = """
import pickle
from autograder.sandbox.isolation import unpickle_messages_only
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
