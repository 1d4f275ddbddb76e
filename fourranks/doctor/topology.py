"""Reads `nvidia-smi topo -m`: how the GPUs and network cards of a machine are connected. Pure text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import combinations, takewhile

from ..naming import counted

_ANSI = re.compile(r"\x1b\[[0-9;]*m")  # newer drivers underline the head of the table
_DEVICE = re.compile(r"(GPU\d|NIC\d|mlx|hfi|bnxt|irdma)\w*$")
_MEANINGS = {  # from near to far
    "PIX": "one PCIe switch",
    "PXB": "several PCIe switches",
    "PHB": "PCIe and the processor's host bridge",
    "NODE": "PCIe and several host bridges of one processor",
    "SYS": "PCIe and the link between processors",
    "SOC": "PCIe and the link between processors, as old drivers call it",
}
_FAR = list(_MEANINGS)


@dataclass(frozen=True)
class Topology:
    """The table of `nvidia-smi topo -m`, or of `topo -p2p`.

    Attributes:
        devices: names of GPUs and network cards, in the table's order.
        entries: the entry of each row and column, such as "NV12" or "PHB".
    """

    devices: tuple[str, ...]
    entries: dict[tuple[str, str], str]

    @property
    def gpus(self) -> list[str]:
        return [name for name in self.devices if name.startswith("GPU")]

    def between_gpus(self) -> dict[tuple[str, str], str]:
        """Return the entry for each pair of GPUs."""
        return {pair: self.entries.get(pair, "?") for pair in combinations(self.gpus, 2)}

    def bottleneck(self) -> str:
        """Return the worst link of the best ring through all GPUs, which is how NCCL joins them."""
        links = self.between_gpus()
        for worst in sorted(set(links.values()), key=distance):
            near = {pair for pair, link in links.items() if distance(link) <= distance(worst)}
            if _has_ring(self.gpus, near | {(other, one) for one, other in near}):
                return worst
        raise ValueError("there are no two GPUs in it")


def parse(text: str) -> Topology:
    """Read the table.

    Raises:
        ValueError: there is none in the text.
    """
    rows = [line.split() for line in _ANSI.sub("", text).splitlines()]
    for number, head in enumerate(rows):
        devices = tuple(takewhile(_DEVICE.match, head))
        if devices and head[len(devices) : len(devices) + 1] in ([], ["CPU"]):  # "CPU Affinity"
            body = [row for row in rows[number + 1 :] if row and row[0] in devices]
            break
    else:
        raise ValueError("there is no table of GPUs in it")
    entries = {
        (row[0], column): entry for row in body for column, entry in zip(devices, row[1:], strict=False)
    }
    return Topology(devices, entries)


def _has_ring(gpus: list[str], joined: set[tuple[str, str]], way: tuple[str, ...] = ()) -> bool:
    """Tell whether a way along joined GPUs, begun by `way`, passes each one once and comes back."""
    way = way or (gpus[0],)
    if len(way) == len(gpus):
        return (way[-1], way[0]) in joined
    return any(
        _has_ring(gpus, joined, (*way, gpu)) for gpu in gpus if gpu not in way and (way[-1], gpu) in joined
    )


def nvlinks(link: str) -> int:
    """Return the number of NVLinks that "NV12" stands for; 0 for everything else."""
    return int(link[2:]) if re.fullmatch(r"NV\d+", link) else 0


def distance(link: str) -> float:
    """Order links from the fastest to the slowest; the unknown is last."""
    if count := nvlinks(link):
        return -count
    return _FAR.index(link) if link in _FAR else len(_FAR)


def meaning(link: str) -> str:
    """Describe a link: "PIX (one PCIe switch)"."""
    count = nvlinks(link)
    words = counted(count, "NVLink") if count else _MEANINGS.get(link, "unknown")
    return f"{link} ({words})"


def describe(topology: Topology) -> str:
    """Say which GPUs are joined by what, the fastest first, one line a kind of link."""
    pairs: dict[str, list[str]] = {}
    for (one, other), link in topology.between_gpus().items():
        pairs.setdefault(link, []).append(pair(one, other))
    if len(pairs) == 1:
        all_of_them = "both GPUs" if len(topology.gpus) == 2 else f"all {len(topology.gpus)} GPUs"
        return f"{meaning(*pairs)} between {all_of_them}"
    return "\n".join(
        f"{meaning(link)} between GPUs {', '.join(pairs[link])}" for link in sorted(pairs, key=distance)
    )


def pair(one: str, other: str) -> str:
    """Name two GPUs by their numbers."""
    return f"{one[3:]}↔{other[3:]}"
