"""Mutants that are no faults: what they do cannot be told from what the reference does, and why."""

from __future__ import annotations

from .mutants import Mutant

ONE_ROUND_MORE = "in the round that comes on top no position is left that would send or receive"
FROM_THE_END = "the index is at least -N, and Python counts a negative one from the end: the modulo for free"

# topic, function, statement, what stands there instead: the reason
EQUIVALENTS: dict[tuple[str, str, str, str], str] = {
    (
        "02_collectives",
        "broadcast",
        "while reach < world_size:",
        "while reach <= world_size:",
    ): ONE_ROUND_MORE,
    (
        "02_collectives",
        "reduce",
        "while distance < world_size:",
        "while distance <= world_size:",
    ): ONE_ROUND_MORE,
    (
        "02_collectives",
        "ring_reduce_scatter",
        "partial_sum = received + chunks[(rank - 1 - step) % world_size]",
        "partial_sum = received + chunks[rank - 1 - step]",
    ): FROM_THE_END,
    (
        "02_collectives",
        "ring_all_gather",
        "pass_right(chunks[(rank - step) % world_size], chunks[(rank - step - 1) % world_size], group)",
        "pass_right(chunks[rank - step], chunks[(rank - step - 1) % world_size], group)",
    ): FROM_THE_END,
    (
        "02_collectives",
        "ring_all_gather",
        "pass_right(chunks[(rank - step) % world_size], chunks[(rank - step - 1) % world_size], group)",
        "pass_right(chunks[(rank - step) % world_size], chunks[rank - step - 1], group)",
    ): FROM_THE_END,
}


def reason(mutant: Mutant) -> str:
    """Why a mutant does what the reference does; "" if it is not known to."""
    return EQUIVALENTS.get((mutant.topic, mutant.function, mutant.before, mutant.after), "")
