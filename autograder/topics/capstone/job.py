"""The capstone's task: a language drawn from a seed, its model, and the gradients and losses of both.

All of it is computed in the process of the check. Ranks see weights and gradients, and never the data. The
arithmetic is in float64, so that the machine makes no difference that counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import nn
from torch.func import functional_call

from autograder.kit.draws import Draws
from fourranks.learner.model import Config, transformer
from fourranks.learner.model import loss as mean_loss

CHARACTERS = 12
TOKENS = 16  # of a sequence
HELD_OUT = 128  # sequences
SHARPNESS = 2.0  # of the language: how much likelier some characters are than others
CONFIG = Config(characters=CHARACTERS, width=24, heads=2, blocks=1)


@dataclass(frozen=True)
class LearningTask:
    """A language and the model that learns it, from an integer.

    Each character depends on the one before it, and a little on the one before that.
    """

    seed: int

    @cached_property
    def _model(self) -> nn.Sequential:
        with torch.random.fork_rng(devices=[]):
            return transformer(CONFIG, Draws(self.seed).seed("model")).double()

    @property
    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self._model.parameters())

    @property
    def first_weights(self) -> torch.Tensor:
        """The weights that every rank begins with."""
        return nn.utils.parameters_to_vector(self._model.parameters()).detach().float()

    @cached_property
    def _probabilities(self) -> torch.Tensor:
        draws = Draws(Draws(self.seed).seed("language"))
        one, two = (draws.randn((CHARACTERS, CHARACTERS), torch.float64) for _ in range(2))
        return torch.softmax(SHARPNESS * (one[None, :, :] + 0.5 * two[:, None, :]), -1)

    @cached_property
    def _held_out(self) -> torch.Tensor:
        return self._sequences("held out", HELD_OUT)

    def _sequences(self, name: str, rows: int) -> torch.Tensor:
        chances = Draws(Draws(self.seed).seed(name)).rand((TOKENS + 1, rows), torch.float64)
        before = now = torch.zeros(rows, dtype=torch.int64)
        written = []
        for chance in chances:
            steps = self._probabilities[before, now].cumsum(-1)
            before, now = now, (chance[:, None] > steps).sum(-1).clamp_(max=CHARACTERS - 1)
            written.append(now)
        return torch.stack(written, 1)

    def gradient(self, weights: torch.Tensor, name: str, rows: int) -> torch.Tensor:
        """Return the gradient of the mean loss over sequences of this name; zeros if there are none."""
        if rows == 0:
            return torch.zeros_like(weights)
        flat = weights.double().requires_grad_()
        self._loss(flat, self._sequences(name, rows)).backward()
        assert flat.grad is not None  # it has had its backward
        return flat.grad.float()

    def loss(self, weights: torch.Tensor) -> float:
        """Return the loss of the sequences that are held out."""
        with torch.no_grad():
            return self._loss(weights.double(), self._held_out).item()

    def divergence(self, weights: torch.Tensor, others: torch.Tensor) -> float:
        """Return how far what others predict is from what these weights do, on sequences that are held out.

        It is that of Kullback and Leibler, in nats for a character.
        """
        with torch.no_grad():
            scores = (self._scores(each.double(), self._held_out[:, :-1]) for each in (weights, others))
            ours, theirs = (torch.log_softmax(each, -1) for each in scores)
            return (ours.exp() * (ours - theirs)).sum(-1).mean().item()

    def _loss(self, flat: torch.Tensor, sequences: torch.Tensor) -> torch.Tensor:
        return mean_loss(self._scores(flat, sequences[:, :-1]), sequences[:, 1:])

    def _scores(self, flat: torch.Tensor, sequences: torch.Tensor) -> torch.Tensor:
        parts = flat.split([parameter.numel() for parameter in self._model.parameters()])
        named = {
            name: part.view_as(parameter)
            for part, (name, parameter) in zip(parts, self._model.named_parameters(), strict=True)
        }
        scores: torch.Tensor = functional_call(self._model, named, sequences)
        return scores
