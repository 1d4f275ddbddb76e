"""Runs a notebook from top to bottom and keeps its outputs; `build` calls it for lectures and solutions."""

import contextlib
import os
import tempfile
import textwrap
import time
import uuid
from pathlib import Path

import psutil
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from traitlets.config import Config

from autograder.notebooks.marked_processes import marked

CELL_TIMEOUT = 180  # seconds; a whole lecture runs in less
EXIT_TIMEOUT = 20  # seconds that processes may outlive their kernel; one that has used a GPU needs some
MARK = "FOURRANKS_EXECUTION"  # set in the kernel's environment, and so in that of all it starts


class ExecutionError(Exception):
    """The notebook did not run to its end, or left processes behind; the text says where and why."""


def execute(notebook: NotebookNode, folder: Path, cell_timeout: float = CELL_TIMEOUT) -> None:
    """Run all cells in a kernel that starts in `folder`; fill in their outputs and counts.

    Raises:
        ExecutionError: a cell raised, took longer than `cell_timeout` seconds or ended the kernel, or
            processes outlived the kernel. None is left when this returns.
    """
    mark = uuid.uuid4().hex
    with tempfile.TemporaryDirectory() as sockets:  # no other user may open it
        client = NotebookClient(
            notebook,
            resources={"metadata": {"path": str(folder)}},
            timeout=cell_timeout,
            # A TCP port that is free when it is chosen may be taken when the kernel opens it.
            config=Config(KernelManager={"transport": "ipc", "ip": f"{sockets}/kernel"}),
            coalesce_streams=True,
            record_timing=False,
        )
        try:
            with client.setup_kernel(env=os.environ | {MARK: mark}):
                for index, cell in enumerate(notebook.cells):
                    _execute_cell(client, cell, index)
        finally:
            left = _kill_what_is_left(mark)
    if left:
        raise ExecutionError(
            f"it left processes behind: {', '.join(left)}. Its last cell must end what it started."
        )


def _execute_cell(client: NotebookClient, cell: NotebookNode, index: int) -> None:
    try:
        client.execute_cell(cell, index)
        _keep_each_picture_once(cell)
    except CellExecutionError as error:
        reason = f"{error.ename}: {error.evalue}"
    except CellTimeoutError:
        reason = f"it had not ended after {client.timeout:g} seconds"
    except DeadKernelError:
        reason = "the kernel died"
    else:
        return
    source = textwrap.indent(cell.source, "    ")
    raise ExecutionError(f"cell {index + 1} ({cell.id}) failed: {reason}\n{source}")


def _keep_each_picture_once(cell: NotebookNode) -> None:
    """Leave out a picture's PNG where the page that shows it, with its words, has the picture in it."""
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        if "image/png" in data and data["image/png"].strip() in data.get("text/html", ""):
            del data["image/png"]
            output.metadata.pop("image/png", None)


def _kill_what_is_left(mark: str) -> list[str]:
    """Wait for the processes that carry `mark`, kill those that stay, and return their names."""
    alive, names = _wait(list(marked(MARK, mark))), []
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended after all
            names.append(f"{process.name()} ({process.pid})")
            process.kill()
    _wait(alive)
    return names


def _wait(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Return those of `processes` that still run after `EXIT_TIMEOUT`."""
    deadline = time.monotonic() + EXIT_TIMEOUT
    while (alive := [process for process in processes if _runs(process)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return alive


def _runs(process: psutil.Process) -> bool:
    """Take an orphan that no process collects (in a container, say) for ended, unlike psutil's waiting."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
