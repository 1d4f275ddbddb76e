"""Grades on the nodes of a Ray cluster: a pool of workers as `pool.Pool` is, each of them an actor on a node.

`grade` uses it with `--on ray`. The submissions, the records and the gradebook stay with this process, the
driver: a node gets one submission at a time, with its tests, and sends back what it came to. Nodes may come
and go meanwhile.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from autograder.grading.grade_submission import CORES, GradingTask, Refereed, Submission, entered, prepared
from autograder.grading.gradebook import ClassError
from autograder.grading.on_node import NodeGrader, Software, read
from autograder.grading.pool import Failed, Running
from autograder.grading.records import Terms
from autograder.grading.submission import SubmissionError
from autograder.kit.text import line
from fourranks.errors import StartError
from fourranks.nodes import ray_join
from fourranks.nodes.ray_join import GIVES

LOOK = 1.0  # seconds between looks at which nodes there are
REST = 5.0  # seconds until a node that has lost a worker is tried again: Ray takes some to notice its end
PATIENCE = 300.0  # seconds to wait for another node when the last one has ended
TRIES = 3  # of a submission whose node ends, and of starting a worker on a node


class RayPool:
    """The workers of the cluster that was joined; its context begins once a node is fit.

    Args:
        terms: on which submissions are to be run.
        jobs: submissions at a time, on all nodes together, at most.
        gpus: of a submission.
        say: tells the user what became of a node.
    """

    def __init__(self, terms: Terms, jobs: int, gpus: int, say: Callable[[str], None]) -> None:
        self._terms = terms
        self._jobs = jobs
        self._gpus = gpus
        self._say = say
        self._software = Software.installed()
        self._waiting: deque[Submission] = deque()
        self._has_inputs = False
        self._lost: Counter[Submission] = Counter()
        self._workers: list[_Actor] = []
        self._nodes: dict[str, _Node] = {}
        self._looked = 0.0
        self._had_nodes = time.monotonic()

    def results(self, inputs: Iterable[Submission]) -> Iterator[tuple[Submission, Refereed | Failed]]:
        """Yield each submission with what came of it, as they come."""
        self._waiting.extend(inputs)
        self._has_inputs = True
        while self._waiting or self.running():
            self._look_for_nodes()
            for worker in [each for each in self._workers if each.is_idle]:
                yield from self._give(worker)
            for worker in self._ready():
                yield from self._answered(worker)

    def running(self) -> list[Running]:
        """Return the submissions that are being run, where, and for how many seconds."""
        now = time.monotonic()
        return [
            Running(worker.one, now - worker.began, worker.node.name)
            for worker in list(self._workers)
            if worker.one is not None
        ]

    def __enter__(self) -> RayPool:
        """Wait until a node is fit to grade.

        Raises:
            ClassError: none is.
        """
        try:
            while not self._has_served():
                self._look_for_nodes()
                for worker in self._ready():
                    nothing = list(self._answered(worker))
                    assert not nothing, "no worker has a submission yet"
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _stop(self) -> None:
        for worker in self._workers:
            ray.kill(worker.actor)
        ray.shutdown()

    def _has_served(self) -> bool:
        """Tell whether a node has ever been fit."""
        return any(node.served for node in self._nodes.values())

    # --- nodes ---------------------------------------------------------------------------------------------

    def _look_for_nodes(self) -> None:
        """Have as many workers on each node as there is room for."""
        if time.monotonic() - self._looked < LOOK:
            return
        self._looked = time.monotonic()
        alive = {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
        for name, node in alive.items():
            self._nodes.setdefault(name, _Node.of(node, self._gpus))
        for worker in [each for each in self._workers if each.is_idle and each.node.id not in alive]:
            self._end(worker)
        fit = [node for name, node in self._nodes.items() if name in alive and node.jobs and not node.unfit]
        self._require_nodes(fit, [self._nodes[name] for name in alive])
        missing = [
            (number, node)
            for node in fit
            for number in range(node.jobs)
            if self._looked >= node.rests_until
            and not any(worker.node is node and worker.number == number for worker in self._workers)
        ]
        missing.sort(key=lambda each: each[0])  # one on each node before a second one on any
        left = len(self._waiting) + len(self.running()) if self._has_inputs else self._jobs
        most = min(self._jobs, left)
        for number, node in missing[: max(0, most - len(self._workers))]:
            self._start(number, node)

    def _require_nodes(self, fit: list[_Node], alive: list[_Node]) -> None:
        """Require a node that can grade or, when there was one, that there is one again before long."""
        now = time.monotonic()
        if fit:
            self._had_nodes = now
        elif now - self._had_nodes > PATIENCE or not self._has_served():
            reasons = "\n".join(line(f"  {node.name}: {node.unfit or self._room(node)}") for node in alive)
            raise ClassError(f"No node of the cluster can grade.\n{reasons or '  It has none.'}\n{GIVES}")

    def _room(self, node: _Node) -> str:
        has = f"{node.cpus:g} CPUs and {node.gpus:g} GPUs"
        return f"it has {has}; a submission takes one CPU or more, and {self._gpus} GPUs."

    def _start(self, number: int, node: _Node) -> None:
        actor = (
            ray.remote(NodeGrader)
            .options(
                num_cpus=min(CORES, node.cpus),
                num_gpus=self._gpus,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
            )
            .remote(number, node.jobs)
        )
        self._workers.append(_Actor(node, number, actor, actor.unfit.remote(self._software, self._terms)))

    # --- answers -------------------------------------------------------------------------------------------

    def _ready(self) -> list[_Actor]:
        """Return the workers that have answered, once there is one or it is time to look for nodes."""
        calls = {worker.call: worker for worker in self._workers if worker.call is not None}
        if not calls:
            time.sleep(LOOK)
            return []
        done, _ = ray.wait(list(calls), timeout=LOOK)
        return [calls[call] for call in done]

    def _answered(self, worker: _Actor) -> Iterator[tuple[Submission, Refereed | Failed]]:
        """Take a worker's answer, give it the next submission, and yield what came of those dealt with."""
        one, work, call = worker.one, worker.work, worker.call
        try:
            answer = ray.get(call)
        except ray.exceptions.RayError as error:
            yield from self._failed(worker, error)
            return
        if one is None and answer:
            self._refuse(worker, answer)
            return
        worker.node.served = True
        yield from self._give(worker)
        if one is not None:
            yield one, _outcome(one, work, answer, worker.node.name)

    def _give(self, worker: _Actor) -> Iterator[tuple[Submission, Refereed]]:
        """Have a worker run the next submission that can be run; yield those that cannot."""
        worker.one = worker.work = worker.call = None
        while self._waiting:
            one = self._waiting.popleft()
            try:
                work = prepared(one)
            except SubmissionError as error:
                yield one, Refereed(problem=str(error))
                continue
            worker.work, worker.began, worker.one = work, time.monotonic(), one
            worker.call = worker.actor.run.remote(work)
            return

    def _failed(self, worker: _Actor, error: Exception) -> Iterator[tuple[Submission, Failed]]:
        """Deal with a worker that ended, with its node or without, or that could not start."""
        one, node = worker.one, worker.node
        said = line(str(error).strip().splitlines()[-1], 300)
        self._end(worker)
        node.rests_until = time.monotonic() + REST
        if one is None:
            node.failed_starts += 1
            if node.failed_starts == TRIES:
                self._refuse(worker, f"no worker could be started there: {said}")
            return
        self._lost[one] += 1
        if self._lost[one] == TRIES:
            yield (
                one,
                Failed(f"{TRIES} workers of the cluster ended while they graded it: {said}", exhausted=True),
            )
        else:
            self._waiting.appendleft(one)
            self._say(f"{node.name}: a worker ended while it graded {one.student}, who is graded again")

    def _refuse(self, worker: _Actor, reason: str) -> None:
        """Use a node no more."""
        if not worker.node.unfit:
            self._say(f"{worker.node.name}: NOT used: {reason}")
        worker.node.unfit = reason
        self._end(worker)

    def _end(self, worker: _Actor) -> None:
        if worker in self._workers:
            self._workers.remove(worker)
            ray.kill(worker.actor)


@dataclass(eq=False)
class _Node:
    """A node of the cluster.

    Attributes:
        jobs: how many submissions it can run at a time.
        unfit: why it is not used; "" if it is.
        served: whether it has ever been fit.
    """

    id: str
    name: str
    cpus: float
    gpus: float
    jobs: int
    unfit: str = ""
    served: bool = False
    failed_starts: int = 0
    rests_until: float = 0.0

    @classmethod
    def of(cls, node: Mapping[str, Any], gpus: int) -> _Node:
        """Return a node of `ray.nodes()`, for submissions that take so many GPUs each."""
        cpus, own_gpus = (node["Resources"].get(kind, 0.0) for kind in ("CPU", "GPU"))
        jobs = int(cpus // CORES) or int(cpus >= 1)
        if gpus:
            jobs = min(jobs, int(own_gpus // gpus))
        return cls(node["NodeID"], node["NodeName"], cpus, own_gpus, jobs)


@dataclass(eq=False)
class _Actor:
    """An actor, and what it is at: a submission or, when there is none, whether it is fit."""

    node: _Node
    number: int
    actor: Any
    call: Any
    one: Submission | None = None
    work: GradingTask | None = None
    began: float = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether it waits for a submission, as all were given out when it asked."""
        return self.call is None


def _outcome(one: Submission, work: GradingTask | None, answer: str, node: str) -> Refereed | Failed:
    """Keep on record what a node has sent back."""
    assert work is not None, "a worker that runs a submission has it"
    try:
        new = read(answer, work)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return Failed(f"{node} sent back something other than a record: {error}")
    return new if isinstance(new, Failed) else entered(one, work, new)


def join() -> None:
    """Connect to the cluster that RAY_ADDRESS names, or that this machine is of.

    Raises:
        ClassError: when there is none, or everybody could use it.
    """
    try:
        ray_join.join()
    except StartError as error:
        raise ClassError(line(str(error), 700)) from None
