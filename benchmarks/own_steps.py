"""`python -m benchmarks.own_steps`: the lectures' own steps on four Gloo ranks, predicted and measured.

Links are fitted by `fourranks.bench`. A step without communication is timed on as many ranks at
the same time, each alone in a virtual world whose calls return at once. From both a step under each strategy
follows; then it is measured. `--write` puts the table into docs/plan.md. On a machine that does something
else, run it under `chrt -r 1`, which the ranks inherit.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

import fourranks
from fourranks import bench
from fourranks.figures.alpha_beta import fit_alpha_beta
from fourranks.learner.corpus import CONTEXT, course
from fourranks.learner.model import Config, Embedding, Head, TransformerBlock, transformer
from fourranks.learner.on_mesh import MeshTraining
from fourranks.learner.training import train

RANKS, ROWS, MICROBATCHES = 4, 16, 4
CORES = len(os.sched_getaffinity(0))
WARM_UP, STEPS, ROUNDS = 3, 8, 5
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "sendrecv")
SIZES = tuple(4**exponent for exponent in range(6, 12))  # 4 KiB to 4 MiB
PAGE = Path(__file__).parent.parent / "docs" / "plan.md"
BEGIN, END = "<!-- own steps: begin -->\n", "<!-- own steps: end -->\n"


@dataclass(frozen=True)
class Strategy:
    """A cut of the model.

    Attributes:
        sizes: of data, pipeline and tensor; none for `fully_shard`.
        microbatches: into which a rank's rows are cut.
    """

    name: str
    sizes: tuple[int, int, int] | None
    microbatches: int = 1

    @property
    def rows(self) -> int:
        """Rows of a microbatch."""
        return ROWS // ((self.sizes[0] if self.sizes else RANKS) * self.microbatches)


STRATEGIES = (
    Strategy("data parallel (DDP)", (4, 1, 1)),
    Strategy("fully sharded (ZeRO-3, `fully_shard`)", None),
    Strategy("tensor parallel", (1, 1, 4)),
    Strategy("pipeline, GPipe, 4 microbatches", (1, 4, 1), MICROBATCHES),
    Strategy("data 2 × tensor 2", (2, 1, 2)),
)


# --- on the ranks -----------------------------------------------------------------------------------------


def seconds_of(run: Callable[[], object]) -> float:
    """Return the median seconds until the last rank has done what all begin together."""
    return bench.benchmark(run, warmup=WARM_UP, iterations=STEPS)


def step_seconds(strategy: Strategy) -> float:
    """Measure a step of the learner's training under a strategy."""
    corpus = course()
    config = Config(len(corpus.alphabet))
    if strategy.sizes is not None:
        training = MeshTraining(config, strategy.sizes, strategy.microbatches)
        return seconds_of(lambda: training.step(corpus, 0))
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model, mesh = transformer(config), init_device_mesh("cpu", (RANKS,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    return seconds_of(lambda: train(model, optimizer, corpus, [0], dist.get_rank(), RANKS))


# --- where the ranks were started -------------------------------------------------------------------------


class Links:
    """Seconds of collectives, alpha + beta S, fitted to what `bench` measures on all ranks."""

    def __init__(self, world: fourranks.RankGroup) -> None:
        found = bench.sweep(world, COLLECTIVES, SIZES, iterations=21)
        self.fits: dict[str, tuple[float, float]] = {}
        for name in COLLECTIVES:
            own = [each for each in found if each.collective == name]
            self.fits[name] = fit_alpha_beta([m.num_bytes for m in own], [m.seconds for m in own])

    def seconds(self, name: str, num_bytes: float) -> float:
        """Return the seconds on all ranks."""
        alpha, beta = self.fits[name]
        return alpha + beta * num_bytes

    def all_reduce(self, ranks: int, num_bytes: float) -> float:
        """Return the seconds in groups of so many ranks: as many messages of a ring, of their size."""
        alpha, beta = self.fits["all_reduce"]
        return (ranks - 1) / (RANKS - 1) * (alpha + beta * num_bytes * RANKS / ranks)

    def __str__(self) -> str:
        told = [f"{n} {1e6 * a:.0f} µs + S / {1e-9 / b:.2f} GB/s" for n, (a, b) in self.fits.items()]
        return ", ".join(told)


def alone(strategy: Strategy) -> float:
    """Return what a step takes the slowest rank without communication: all run, each in a virtual world."""
    with ThreadPoolExecutor(RANKS) as ranks:
        started = [
            ranks.submit(fourranks.run_virtual, step_seconds, strategy, world_size=RANKS, rank=rank)
            for rank in range(RANKS)
        ]
        return max(each.result().value for each in started)


def predicted(strategy: Strategy, computing: float, links: Links) -> float:
    """Predict a step from what it takes without communication, and the links."""
    config = Config(len(course().alphabet))
    if strategy.sizes is None:
        layers = [4 * sum(p.numel() for p in layer.parameters()) for layer in transformer(config)]
        gathers = sum(2 * links.seconds("all_gather", nbytes) for nbytes in layers)
        return computing + gathers + sum(links.seconds("reduce_scatter", nbytes) for nbytes in layers)
    data, pipeline, tensor = strategy.sizes
    activation = 4 * strategy.rows * CONTEXT * config.width
    told = links.all_reduce(data, 4) + links.all_reduce(pipeline, 4)  # the loss
    if pipeline > 1:
        slot, hop = computing / strategy.microbatches, links.seconds("sendrecv", activation)
        return _pipelined(slot, hop, pipeline, strategy.microbatches) + told
    summed = 4 * config.blocks * links.all_reduce(tensor, activation)
    return computing + links.all_reduce(data, 4 * _held(config, tensor)) + summed + told


def _held(config: Config, tensor: int) -> int:
    """Return the parameters of a rank that has all layers, or its share of them."""
    ends = [*Embedding(config).parameters(), *Head(config).parameters()]
    block = sum(p.numel() for p in TransformerBlock(config, tensor).parameters())
    return config.blocks * block + sum(p.numel() for p in ends)


def _pipelined(slot: float, hop: float, stages: int, microbatches: int) -> float:
    """Return the seconds of all slots; stages that work at the same time share the cores.

    Args:
        slot: forward and backward of a microbatch while all stages work.
    """
    slots = microbatches + stages - 1
    working = [min(at + 1, slots - at, stages, microbatches) for at in range(slots)]
    crowded = max(1.0, stages / CORES)
    return sum(slot * max(1.0, each / CORES) / crowded for each in working) + 2 * (slots - 1) * hop


def table() -> list[str]:
    """Measure everything, in turns, and return a Markdown table of medians."""
    seen: dict[str, list[tuple[float, float]]] = {strategy.name: [] for strategy in STRATEGIES}
    with fourranks.start(RANKS) as world:
        for _ in range(ROUNDS):
            links = Links(world)
            for strategy in STRATEGIES:
                pair = predicted(strategy, alone(strategy), links), world.run(step_seconds, strategy)[0]
                seen[strategy.name].append(pair)
    lines = ["| strategy | predicted (ms) | measured (ms) | error (%) |", "|---|---|---|---|"]
    for name, pairs in seen.items():
        paper, real = (1e3 * statistics.median(each) for each in zip(*pairs, strict=True))
        lines.append(f"| {name} | {paper:.1f} | {real:.1f} | {100 * (paper / real - 1):+.0f} |")
    return [*lines, "", f"{CORES} cores; the links of the last round: {links}."]


def main() -> None:
    """Print the table, and write it where that is asked for."""
    lines = table()
    print("\n".join(lines))
    if "--write" in sys.argv[1:]:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        text = f"{before}{BEGIN}{chr(10).join(lines)}\n{END}{rest.partition(END)[2]}"
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
