"""The check of exercise 01's parser of `nvidia-smi topo -m`: listings of real machines, and other texts."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import combinations

from autograder.inside.drivers import hardware_hierarchy as drivers
from autograder.inside.reports import Unreadable
from autograder.kit.case import Trial, again, on_one_rank
from autograder.kit.check import Cases, Code, check
from autograder.kit.mistakes import WRONG_TYPE
from autograder.kit.problem import Problem
from autograder.kit.student import Outcome
from autograder.topics.hardware_hierarchy import mistakes
from fourranks.figures import published

Table = dict[tuple[str, str], str]  # how two devices are joined

_NO_LISTINGS = {
    "an empty text": "",
    "no GPUs": "No devices were found\n",
    "no driver": "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
    "what `nvidia-smi topo -p2p r` prints": "\tGPU0\tGPU1\n GPU0\tX\tGNS\n GPU1\tGNS\tX\n\nLegend:\n",
}


@check()
def parse_topology(code: Code, names: Sequence[str] = tuple(published.TOPOLOGIES), seed: int = 0) -> Cases:
    """Check `parse_topology` on listings of real machines and one that is made up, and on other texts.

    Each listing that is read right earns its part of the points.

    Args:
        names: of the real machines.
    """
    for name in names:
        yield _listing(published.TOPOLOGIES[name], published.topology(name))
    invented = _invented(random.Random(seed))
    made_up = _listing("a machine that is made up", invented)
    yield made_up
    below = f"$ nvidia-smi topo -m\n\n{invented}"
    yield _listing("the same, below the command that a shell shows", below, _table(invented))
    yield again(made_up, _listing("another one", _invented(random.Random(seed + 1))))
    bare = _without_affinities(invented)
    yield _listing("the same, without the columns of affinities", bare, _table(invented))
    whole = published.topology("8_a100").splitlines(keepends=True)
    torn = {
        "a listing without one of its rows": "".join(whole[:5] + whole[6:]),
        "a listing without its last rows": "".join(whole[:12]),
        "a listing torn off in a row": "".join(whole[:20]) + whole[20][:31],
    }
    for title, text in {**_NO_LISTINGS, **torn}.items():
        yield on_one_rank(f"no listing: {title}", (text,), _refused, drivers.refuse_listing)


def _listing(title: str, text: str, want: Table | None = None) -> Trial:
    """Make the trial of a listing; `want` are its entries where it is not as nvidia-smi prints it."""
    want = want or _table(text)

    def verify(outcome: Outcome) -> Problem | None:
        answer: drivers.Listing = outcome.value
        if answer.type != "dict":
            return Problem(WRONG_TYPE, "a dict", f"a {answer.type}")
        return _difference(_as_dict(answer.entries), want)

    size = len(want)
    return on_one_rank(title, (text,), verify, drivers.read_listing, size=size, counts_alone=True)


def _as_dict(entries: Sequence[tuple[object, object]]) -> dict[object, object]:
    try:
        return dict(entries)
    except TypeError as error:  # no dict has had such a key
        raise Unreadable(str(error)) from None


def _table(text: str) -> Table:
    """Return the entries of a listing that is known to be one: between its head and its first empty line."""
    head, *rows = text.replace("\x1b[4m", "").partition("\n\n")[0].splitlines()
    devices = head.partition("CPU Affinity")[0].split()
    return {
        (row.split()[0], column): entry
        for row in rows
        for column, entry in zip(devices, row.split()[1:], strict=False)
    }


def _without_affinities(text: str) -> str:
    """Return the listing as older drivers print it."""
    devices = len(text.partition("\tCPU Affinity")[0].split("\t"))
    table, _, legend = text.partition("\n\n")
    rows = ["\t".join(row.split("\t")[:devices]) for row in table.splitlines()]
    return "\n".join(rows) + "\n\n" + legend


def _difference(got: Mapping[object, object], want: Table) -> Problem | None:
    for key in got:
        if not isinstance(key, tuple) or len(key) != 2:
            return Problem(mistakes.NO_PAIRS, f"keys such as {next(iter(want))}", f"the key {key!r}")
    for pair in want:
        if pair not in got:
            return Problem(mistakes.ENTRY_MISSING, f"{len(want)} entries", f"none for {pair}")
        if got[pair] != want[pair]:
            return Problem(mistakes.ENTRY_WRONG, f"{pair}: {want[pair]!r}", f"{pair}: {got[pair]!r}")
    extra = [key for key in got if key not in want]
    if extra:
        return Problem(mistakes.ENTRY_TOO_MANY, f"{len(want)} entries", f"one for {extra[0]}, too")
    return None


def _refused(outcome: Outcome) -> Problem | None:
    error: drivers.Refusal = outcome.value
    if not error.classes:
        return Problem(mistakes.NOT_REFUSED, "a ValueError", "an answer")
    if "ValueError" not in error.classes:
        return Problem(mistakes.REFUSED_WRONGLY, "a ValueError", f"{error.classes[0]}: {error.message}")
    if not error.message.strip():
        expected = "a ValueError that says what is wrong"
        return Problem(mistakes.REFUSED_SILENTLY, expected, "a ValueError without a word")
    return None


def _invented(draw: random.Random) -> str:
    """Make a listing of some GPUs and network cards, joined by chance."""
    gpus = [f"GPU{number}" for number in range(draw.randrange(2, 17))]
    cards = [draw.choice(("NIC{}", "mlx5_{}")).format(number) for number in range(draw.randrange(1, 13))]
    devices = gpus + cards
    links = {(device, device): " X " for device in devices}
    for one, other in combinations(devices, 2):
        nvlinks = [f"NV{draw.randrange(1, 19)}"] if other in gpus else []
        links[one, other] = links[other, one] = draw.choice(["PIX", "PXB", "PHB", "NODE", "SYS", *nvlinks])
    head = ["", *devices, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]
    rows = [
        [one, *(links[one, other] for other in devices), *(("0-63", "0", "", "N/A") if one in gpus else ())]
        for one in devices
    ]
    return "\n".join(["\t".join(row) for row in (head, *rows)] + ["", "Legend:", "", "  X    = Self", ""])
