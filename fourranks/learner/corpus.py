"""The text that the model learns: this course's own lectures, as they once were, and batches of it.

`tools/course_text.py` made the file. It stays as it is, so losses of different days can be compared.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from importlib.resources import files

import torch
from torch import Tensor, nn

CONTEXT = 64  # characters that the model sees at a time


@dataclass(frozen=True)
class Corpus:
    """A text as numbers, one for each different character."""

    alphabet: str
    numbers: Tensor

    @classmethod
    def of(cls, text: str) -> Corpus:
        """Make one of a text; characters are numbered in the order of Unicode."""
        alphabet = "".join(sorted(set(text)))
        return cls(alphabet, torch.tensor([alphabet.index(character) for character in text]))

    def encoded(self, text: str) -> Tensor:
        """Return the numbers of a text's characters; those that are not in the alphabet are left out."""
        known = [self.alphabet.index(character) for character in text if character in self.alphabet]
        return torch.tensor(known, dtype=torch.int64)

    def decoded(self, numbers: Tensor) -> str:
        """Return the characters with these numbers."""
        return "".join(self.alphabet[number] for number in numbers.tolist())


def course() -> Corpus:
    """Load the lectures of this course."""
    file = files("fourranks.learner").joinpath("course.txt.gz")
    return Corpus.of(gzip.decompress(file.read_bytes()).decode())


def batch(
    corpus: Corpus, step: int, rank: int = 0, ranks: int = 1, rows: int = 16, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Draw a batch of pieces of the text, and return a rank's rows of it: characters, and those that follow.

    Step and seed decide the whole batch, so all ranks know it without a message; both tensors are
    (rows / ranks, CONTEXT).

    Raises:
        ValueError: the rows cannot be divided evenly.
    """
    if rows % ranks:
        raise ValueError(
            f"{rows} rows do not divide over {ranks} ranks evenly. Choose a multiple of {ranks}."
        )
    draws = torch.Generator().manual_seed(seed * 1_000_003 + step)
    starts = torch.randint(len(corpus.numbers) - CONTEXT, (rows,), generator=draws)
    pieces = torch.stack([corpus.numbers[start : start + CONTEXT + 1] for start in starts.chunk(ranks)[rank]])
    return pieces[:, :-1], pieces[:, 1:]


@torch.no_grad()
def write(
    model: nn.Module,
    corpus: Corpus,
    prompt: str,
    count: int = 400,
    temperature: float = 0.7,
    seed: int = 0,
) -> str:
    """Let a model on the CPU go on from a prompt, character by character, each drawn by its probability.

    Below a temperature of 1 likely characters are drawn more often than the model says.

    Raises:
        ValueError: the prompt has no character of the text.
    """
    draws = torch.Generator().manual_seed(seed)
    written = corpus.encoded(prompt)
    if not len(written):
        raise ValueError(
            f"The prompt {prompt!r} has no character of the text, which are {corpus.alphabet!r}."
        )
    for _ in range(count):
        scores = model(written[None, -CONTEXT:])[0, -1] / temperature
        following = torch.multinomial(scores.softmax(-1), 1, generator=draws)
        written = torch.cat([written, following])
    return corpus.decoded(written)
