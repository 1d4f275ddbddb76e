"""Tasks for the processes of `test_pool`. They import this module, and so it imports little."""

import atexit
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def work(task):
    """A task says what to do, and in which file to remember how often."""
    what, file = task
    with Path(file).open("a") as tried:
        tried.write("x")
    match what:
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "die once" if Path(file).read_text() == "x":
            os._exit(3)
        case "raise":
            raise ValueError("no")
        case "remove at the end":
            atexit.register(Path(file).unlink)
        case "share":
            return sorted(os.sched_getaffinity(0))
        case "wait beside a sandbox":
            from autograder.sandbox.landlocked import Landlocked

            # Each process starts the next one and ends, so that no list of them is ever complete.
            forks = "for _ in range(30_000): os._exit(0) if os.fork() else os.setsid()"  # a minute or so
            code = f"import os, time\nif os.fork(): time.sleep(600)\nopen('new', 'w').close()\n{forks}"
            sandbox = Landlocked([sys.executable, "-c", code], [])
            Path(file).write_text(f"{sandbox._top}\n")
            time.sleep(600)
        case "wait":
            child = subprocess.Popen(["sleep", "600"], start_new_session=True)
            Path(file).write_text(f"{os.getpid()} {child.pid}")
            time.sleep(600)
    return what
