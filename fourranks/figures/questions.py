"""Questions that later lectures ask again about earlier ones, three of each topic. `ledger` asks them.

A lecture repeats one question of each of the three topics before it, so each topic's questions come back one,
two and three lectures later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..plan.collectives import rounds
from ..trace.bandwidth import busbw_factor
from .alpha_beta import crossover_bytes, ring_all_reduce
from .published import GPUS

H100 = GPUS["H100 SXM"]


class Reminder(NamedTuple):
    """A question of a topic that was taught, and its answer in words."""

    topic: str
    text: str
    answer: str


# Each topic's questions: asked one lecture later, two later, three later.
_BANK: Mapping[str, tuple[tuple[str, str], tuple[str, str], tuple[str, str]]] = {
    "00": (
        (
            "Rank 2 alone runs x[0] = 100. On how many of the four ranks has x[0] changed?",
            "On 1: each rank is a process with a memory of its own.",
        ),
        (
            "Three of four ranks call all_reduce, the fourth has ended its cell. What happens?",
            "A deadlock: the three wait for a call that will never come.",
        ),
        (
            "Rank r holds the number r; there are four ranks. What does rank 0 hold after an all-reduce?",
            f"{sum(range(4))}, as all others do: the sum of 0, 1, 2 and 3.",
        ),
    ),
    "01": (
        (
            "How many TB do the 175 billion parameters of GPT-3 need for training, at 16 bytes each?",
            f"{16 * 175e9 / 1e12:.1f}: {16 * 175e9 / H100.hbm_bytes:.0f} GPUs of 80 GB, without activations.",
        ),
        (
            "By which factor is an H100's own memory (HBM) faster than NVLink in one direction, for reading?",
            f"{H100.hbm_bandwidth / H100.nvlink_bandwidth:.1f}: "
            f"{H100.hbm_bandwidth / 1e12:.2f} TB/s against {H100.nvlink_bandwidth / 1e9:.0f} GB/s.",
        ),
        (
            "An operation makes 1 FLOP for each byte it moves. What limits it on an H100?",
            f"Traffic: in bfloat16 the ridge is at {H100.bf16_flops / H100.hbm_bandwidth:.0f} FLOPs a byte.",
        ),
    ),
    "02": (
        (
            "A ring all-reduces 16 MiB on 4 ranks. How many MiB does each rank send?",
            f"{busbw_factor('all_reduce', 4) * 16:.0f} MiB: 2(N-1)/N times S.",
        ),
        (
            "In how many rounds does a tree broadcast to 64 ranks?",
            f"{rounds(64)}: in each round the ranks that know become twice as many.",
        ),
        (
            "Of which two collectives is an all-reduce made?",
            "A reduce-scatter, then an all-gather.",
        ),
    ),
    "03": (
        (
            "A reduce-scatter on 8 ranks has an algbw of 80 GB/s. What is its busbw in GB/s?",
            f"{80 * busbw_factor('reduce_scatter', 8):.0f} GB/s: (N-1)/N of it.",
        ),
        (
            "A ring all-reduce of 1 KiB on 64 ranks, 10 us a message, 50 GB/s: how many ms, and why?",
            f"{1e3 * ring_all_reduce(64, 1024, 1e-5, 1 / 50e9):.2f}: the latency of 126 messages in a row.",
        ),
        (
            "Below how many MiB does an unpipelined tree beat a ring: 64 ranks, 10 us, 50 GB/s?",
            f"{crossover_bytes(64, 1e-5, 1 / 50e9) / 2**20:.1f}.",
        ),
    ),
    "04": (
        (
            "After a step of data parallelism: what differs between ranks, losses, gradients or parameters?",
            "Only the losses, as each rank has read other rows.",
        ),
        (
            "One rank has 1 example, another 3. Why is the mean of their two mean gradients wrong?",
            "The single example gets 3 times the weight of each of the others. Sum and count instead.",
        ),
        (
            "A rank accumulates 8 microbatches. By what is each loss divided? How often does it communicate?",
            "By 8; once, since the first seven run under no_sync.",
        ),
    ),
    "05": (
        (
            "Unsharded, a rank keeps 16 bytes a parameter. How many does each of 64 ranks keep under ZeRO-1?",
            f"{4 + 12 / 64:.2f}: 4 for weight and gradient, and a 64th of 12.",
        ),
        (
            "Which stage of ZeRO sends more than plain data parallelism, and how much more?",
            "Only stage 3: 3P instead of 2P, as weights are gathered once more in the backward pass.",
        ),
        (
            "Does FSDP make the activations of a rank smaller?",
            "No: they depend on the rank's rows, and these are its own.",
        ),
    ),
    "06": (
        (
            "How many all-reduces does tensor parallelism add to a transformer layer, in both passes?",
            "4: one for attention and one for the MLP in each pass.",
        ),
        (
            "The first matrix of an MLP is cut by columns. How is the second one cut, and why?",
            "By rows: it takes the columns as they lie, and one sum at the end is enough.",
        ),
        (
            "What does sequence parallelism add to the traffic of tensor parallelism?",
            "Nothing: each all-reduce becomes a reduce-scatter and an all-gather of the same volume.",
        ),
    ),
    "07": (
        (
            "A pipeline of 4 stages, 8 microbatches, 1F1B: which share of the time is a rank idle?",
            f"{3 / (8 + 3):.0%}: (p-1)/(m+p-1).",
        ),
        (
            "What does 1F1B save compared with GPipe?",
            "Memory, not time: at most p - i microbatches are alive on stage i instead of m.",
        ),
        (
            "Why may blocking sends hang under 1F1B and not under GPipe?",
            "Neighbours send to each other at the same time, one an activation, the other a gradient.",
        ),
    ),
}


def asked_in(topic: str) -> list[Reminder]:
    """Return the questions that a lecture repeats; topics without earlier ones ask nothing.

    A question about a topic that is too early for its turn is asked of the first one.
    """
    earlier = [name for name in sorted(_BANK) if name < topic]
    if not earlier:
        return []
    topics = [earlier[max(0, len(earlier) - back)] for back in (1, 2, 3)]
    return [Reminder(name, *_BANK[name][turn]) for turn, name in enumerate(topics)]
