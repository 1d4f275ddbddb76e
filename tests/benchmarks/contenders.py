"""Contenders for the tests, good and bad; each runs in a process of its own."""

import os
import subprocess
import time
from collections.abc import Iterator


def counts() -> Iterator[float]:
    yield from (1.0, 2.0, 4.0)


def is_not_installed() -> Iterator[float]:
    import a_peer_that_nobody_has  # noqa: F401

    yield 1.0


def raises() -> Iterator[float]:
    yield 1.0
    raise ValueError("no more")


def dies() -> Iterator[float]:
    yield float(os._exit(3) or 0)


def hangs() -> Iterator[float]:
    yield float(time.sleep(600) or 0)


def leaves_a_process_behind() -> Iterator[float]:
    yield float(subprocess.Popen(["sleep", "600"]).pid)
