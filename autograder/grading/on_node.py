"""Runs submissions on a node of a cluster, one at a time, and says whether the node is fit for it.

`on_ray` makes an actor of `NodeGrader`. A submission runs in a process of a `Pool`, as on one machine: with
the same limits, the same second try, and its own share of the node's cores. The answer is JSON.
"""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass
from importlib.metadata import version

from autograder.grading import dependencies, machine, records
from autograder.grading.grade_submission import LIMIT, GradingTask, run
from autograder.grading.pool import Failed, Pool, shares, usable_cores
from autograder.grading.records import NotebookRecord, Terms
from autograder.sandbox.sandbox import SandboxMissing


@dataclass(frozen=True)
class Software:
    """The versions that must be the same everywhere, for a submission to get the same grade on each node."""

    python: str
    torch: str
    fourranks: str

    @classmethod
    def installed(cls) -> Software:
        """Return what this machine has; of fourranks a digest of its code follows the version."""
        python = ".".join(platform.python_version_tuple()[:2])
        return cls(python, version("torch"), f"{version('fourranks')} ({dependencies.everything()})")

    def differences(self, other: Software) -> str:
        """Say what another machine has in place of this; "" if it has the same."""
        theirs = asdict(other)
        return "; ".join(
            f"it has {name} {theirs[name]}, but the driver has {own}"
            for name, own in asdict(self).items()
            if own != theirs[name]
        )


class NodeGrader:
    """Grades on one node, in one process and what that starts.

    Args:
        number: which of the node's shares of cores it uses.
        jobs: how many shares there are.
    """

    def __init__(self, number: int, jobs: int) -> None:
        self._pool = Pool(_run, [shares(jobs, usable_cores())[number]], LIMIT)

    def unfit(self, driver: Software, terms: Terms) -> str:
        """Say why this node must not grade, and what to do; "" if it may.

        Args:
            driver: versions on the driver's machine.
            terms: on which submissions are to be run.
        """
        if os.environ.get("RAY_AUTH_MODE") != "token":  # a node has it from the command that started it
            return "it requires no token: start all of the cluster with RAY_AUTH_MODE=token."
        if differences := driver.differences(Software.installed()):
            return f"{differences}. Install the same on all nodes."
        return machine.lack(terms)

    def run(self, work: GradingTask) -> str:
        """Run a submission; return what `read` takes."""
        ((_, outcome),) = self._pool.results([work])
        return json.dumps({"failed": asdict(outcome)} if isinstance(outcome, Failed) else outcome)


def read(answer: str, work: GradingTask) -> dict[str, NotebookRecord] | Failed:
    """Return what a node has sent back, once it is found to be about this submission.

    Raises:
        ValueError: it is something else.
    """
    said = json.loads(answer)
    if "failed" in said:
        return Failed(str(said["failed"]["reason"]), said["failed"]["exhausted"] is True)
    new = {str(name): records.from_plain(saved) for name, saved in said["records"].items()}
    asked = {name: records.cells_of(notebook) for name, notebook in work.notebooks.items()}
    if _identities(new) != {name: [cell.identity for cell in cells] for name, cells in asked.items()}:
        raise ValueError("its cells are not those that were sent")
    return new


def _identities(new: dict[str, NotebookRecord]) -> dict[str, list[tuple[str, str, bool]]]:
    return {name: [cell.identity for cell in record.cells] for name, record in new.items()}


def _run(work: GradingTask) -> dict[str, object] | Failed:
    """Run a submission in a process of the pool."""
    try:
        return {"records": {name: records.plain(record) for name, record in run(work).items()}}
    except SandboxMissing as error:
        return Failed(str(error))
