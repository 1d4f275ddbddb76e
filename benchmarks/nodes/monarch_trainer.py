"""The same as an actor of Monarch's, whose module its processes import."""

from __future__ import annotations

from monarch.actor import Actor, current_rank, endpoint

from .trainer import Trainer


class MonarchTrainer(Actor):
    """One rank."""

    def __init__(self) -> None:
        self._trainer = Trainer()

    @endpoint
    def form(self, port: int, world_size: int) -> float:
        return self._trainer.form(port, current_rank().rank, world_size)

    @endpoint
    def run(self, code: str) -> None:
        self._trainer.run(code)
