"""What the processes of `test_pool` do. They import this module, and so it imports little."""

import atexit
import os
import signal
import subprocess
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
        case "wait":
            child = subprocess.Popen(["sleep", "600"], start_new_session=True)
            Path(file).write_text(f"{os.getpid()} {child.pid}")
            time.sleep(600)
    return what
