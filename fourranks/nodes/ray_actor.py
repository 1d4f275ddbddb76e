"""The part in Ray's own processes on a node: starts the agent, carries its standard input and output.

These classes are sent by value, so that a node without this package can say so. They import nothing of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence

import ray

CHUNK = 1 << 16  # Ray hands on what is below 100 KiB without its object store
LAST_WORDS = 2000  # characters


class SlotHolder:
    """Holds the GPU of one slot."""

    def gpus(self) -> list[str]:
        """Return what Ray calls it."""
        return [str(number) for number in ray.get_gpu_ids()]


class AgentHost:
    """Has the agent of one node as its child."""

    def begin(self, command: Sequence[str], gpus: Sequence[str] | None) -> str:
        """Start the agent; returns what is wrong, or "".

        Args:
            command: has {python} where this node's Python belongs.
            gpus: that its ranks may use; None for those that the node shows everybody.
        """
        if os.environ.get("RAY_AUTH_MODE") != "token":
            return "it asks for no token: start all of the cluster with RAY_AUTH_MODE=token"
        environment = dict(os.environ)
        environment.pop("OMP_NUM_THREADS", None)  # Ray's
        if gpus is not None:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (it lasts as long as this)
        self._agent = subprocess.Popen(
            [sys.executable if word == "{python}" else word for word in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            env=environment,
        )
        assert self._agent.stdin is not None and self._agent.stdout is not None
        self._input, self._output = self._agent.stdin, self._agent.stdout
        self._next = 0
        self._early: dict[int, bytes] = {}
        return ""

    @ray.method(concurrency_group="feed")  # type: ignore[untyped-decorator]  # Ray is no dependency
    def feed(self, number: int, data: bytes) -> None:
        """Hand the agent bytes, in the order of their numbers; none at all are the end."""
        self._early[number] = data
        while self._next in self._early:
            data = self._early.pop(self._next)
            self._next += 1
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._input.fileno(), rest) :]
            if not data:
                self._input.close()

    @ray.method(concurrency_group="read")  # type: ignore[untyped-decorator]
    def read(self) -> Iterator[bytes]:
        """Yield what the agent writes, as it comes; raise the text of its stderr at the end."""
        while data := os.read(self._output.fileno(), CHUNK):
            yield data
        self._agent.wait()
        self._errors.seek(0)
        if said := self._errors.read().decode(errors="replace").strip()[-LAST_WORDS:]:
            raise RuntimeError(said)
