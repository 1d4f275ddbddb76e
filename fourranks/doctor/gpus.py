"""Checks of NVIDIA's driver, the GPUs, the links between them, and NCCL. They run without a GPU, too."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass

from .. import zygote
from ..cuda_errors import explain
from ..hardware import Gpus, dotted
from ..placement import SHARING_NCCL, can_host_nccl, newer_nccl
from . import topology
from .report import Finding, Severity
from .tool import NoAnswer, ask

COURSE_RANKS = 4  # of most lectures
NO_GPUS = "no NVIDIA GPUs: the ranks use the processors"
IN_USE = 0.05  # share of a GPU's memory that is taken when somebody computes on it
PCIE_GB = {3: 15.75, 4: 31.5, 5: 63.0, 6: 121.0}  # 16 lanes of each generation, one direction, GB/s
NVLINK_GB = 25.0  # one link of NVLink 2 to 4, one direction, GB/s
_FIELDS = "name,memory.total,memory.used,compute_mode,pcie.link.gen.max,pcie.link.width.max,driver_version"


@dataclass(frozen=True)
class Gpu:
    """One line of nvidia-smi; sizes in MiB."""

    name: str
    memory: float
    used: float
    compute_mode: str
    pcie_generation: int
    pcie_width: int
    driver: str


def installed() -> list[Gpu]:
    """Return the GPUs that the driver sees.

    Raises:
        NoAnswer: nvidia-smi is missing or did not answer as it does.
    """
    lines = ask("nvidia-smi", f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits").splitlines()
    try:
        return [_gpu(*(value.strip() for value in line.split(","))) for line in lines]
    except TypeError:
        raise NoAnswer(f"nvidia-smi answered {lines[0]!r}") from None


def _gpu(
    name: str, memory: str, used: str, compute_mode: str, generation: str, width: str, driver: str
) -> Gpu:
    pcie = int(_number(generation)), int(_number(width))
    return Gpu(name, _number(memory), _number(used), compute_mode, *pcie, driver)


def _number(text: str) -> float:
    """Read a number; 0 for "[N/A]", which a virtual or partitioned GPU says."""
    return float(text) if re.fullmatch(r"[\d.]+", text) else 0.0


def driver() -> Finding:
    """Judge whether the driver can run the CUDA that torch was built for."""
    import torch

    built = torch.version.cuda
    try:
        cards = installed()
    except NoAnswer as reason:
        return _without_answer(str(reason))
    if not cards:
        return Finding(Severity.OK, "installed, but it sees no GPU")
    if built is None:
        advice = "Install the CUDA build of torch (pytorch.org, Get Started), in place of this one."
        return Finding(Severity.PROBLEM, "there are GPUs, but this torch was built without CUDA", advice)
    return compare_driver(cards[0].driver, built)


def _without_answer(reason: str) -> Finding:
    advice = (
        "If this machine has GPUs, `nvidia-smi` must work first. A container needs `docker run --gpus all`."
    )
    if os.path.exists("/proc/driver/nvidia"):
        return Finding(Severity.PROBLEM, f"loaded, but it does not answer: {reason}", advice)
    if shutil.which("nvidia-smi"):
        return Finding(Severity.ATTENTION, f"not loaded: {reason}", advice)
    return Finding(Severity.OK, f"none: {reason}")


def compare_driver(version: str, built: str) -> Finding:
    """Judge a driver.

    Args:
        version: of the driver.
        built: the CUDA that torch was built for.
    """
    found = f"driver {version}"
    match = re.search(r"CUDA Version: (\d+)\.(\d+)", ask("nvidia-smi"))
    if match is None:
        return Finding(Severity.ATTENTION, f"{found}; nvidia-smi does not say which CUDA it supports")
    found += f", which supports CUDA up to {match[1]}.{match[2]}; torch is built for CUDA {built}"
    if int(match[1]) < int(built.split(".")[0]):  # within a major version old drivers run newer minor ones
        advice = "Update the driver, or install a torch that was built for its CUDA."
        return Finding(Severity.PROBLEM, found, advice)
    return Finding(Severity.OK, found)


def gpus() -> Finding:
    """Say which GPUs torch can use, and whether others use them."""
    try:
        cards = installed()
    except NoAnswer:
        cards = []
    usable = zygote.shared().gpus()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    limited = f" (CUDA_VISIBLE_DEVICES is {visible!r})" if visible is not None else ""
    if not cards and not usable.count:
        return Finding(Severity.OK, NO_GPUS)
    if not usable.count:
        found = f"torch can use none of {len(cards)} GPUs{limited}: {usable.trouble or 'it gives no reason'}"
        return Finding(Severity.PROBLEM, found, _way_to_gpus(visible, usable.trouble))
    found = f"{_names(usable.names)}{limited}"
    if usable.count < 4:
        found += "; four ranks can share them over Gloo: `%ranks start --device cuda`"
    return judge_use(cards, found) if cards else Finding(Severity.OK, found)


def _way_to_gpus(visible: str | None, trouble: str) -> str:
    if meaning := explain(trouble):
        return meaning
    if visible is not None:
        return "Start Jupyter without CUDA_VISIBLE_DEVICES, or with numbers that `nvidia-smi -L` lists."
    return "See CUDA driver above: `python -c 'import torch; torch.zeros(1).cuda()'` shows the error."


def judge_use(cards: list[Gpu], found: str) -> Finding:
    """Judge what other processes leave of the GPUs; `found` is what is known of them."""
    if memory := min(card.memory for card in cards):
        found += f"\n{memory / 1024:.0f} GiB of memory each"
    taken = [number for number, card in enumerate(cards) if card.used > IN_USE * card.memory]
    alone = [number for number, card in enumerate(cards) if card.compute_mode.startswith("Exclusive")]
    if taken:
        used = ", ".join(f"GPU {number} {cards[number].used / 1024:.1f} GiB" for number in taken)
        advice = "`nvidia-smi` lists the processes, which share memory and bandwidth with the ranks."
        return Finding(Severity.ATTENTION, f"{found}, in use already: {used}", advice)
    if alone:
        found += ", but only one process at a time may use a GPU (compute mode exclusive)"
        return Finding(Severity.ATTENTION, found, "`sudo nvidia-smi -c 0` lets ranks share one.")
    return Finding(Severity.OK, found)


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names))


def links() -> Finding:
    """Say how the GPUs are joined, and whether they can read each other's memory."""
    try:
        found = topology.parse(ask("nvidia-smi", "topo", "-m"))
    except NoAnswer as reason:
        return Finding(Severity.OK, f"none: {reason}")
    except ValueError as error:
        return Finding(Severity.ATTENTION, f"nvidia-smi topo -m cannot be read: {error}")
    if len(found.gpus) < 2:
        return Finding(Severity.OK, "only one GPU, so there are no links")
    return judge_links(found, _without_peer_access())


def judge_links(found: topology.Topology, apart: list[str]) -> Finding:
    """Judge the links between GPUs.

    Args:
        found: how they are joined.
        apart: pairs that cannot read each other's memory.
    """
    text, bottleneck = topology.describe(found), found.bottleneck()
    if topology.nvlinks(bottleneck):  # NCCL's ring needs no other links
        return Finding(Severity.OK, text)
    advice = "The course runs, but tensor parallelism, which communicates a lot, gains little without NVLink."
    if apart:
        text += f"\nno direct access between GPUs {', '.join(apart)}: NCCL goes through the host's memory"
        return Finding(Severity.ATTENTION, text, advice)
    far = topology.distance(bottleneck) > topology.distance("PXB")
    return Finding(Severity.ATTENTION, text, advice) if far else Finding(Severity.OK, text)


def _without_peer_access() -> list[str]:
    try:
        access = topology.parse(ask("nvidia-smi", "topo", "-p2p", "r")).between_gpus()
    except (NoAnswer, ValueError):
        return []
    return [topology.pair(*pair) for pair, status in access.items() if status != "OK"]


def link_speed() -> tuple[float, str] | None:
    """Return bytes per second, one way, and the name of the worst link between two GPUs; None if unknown."""
    try:
        link = topology.parse(ask("nvidia-smi", "topo", "-m")).bottleneck()
        if count := topology.nvlinks(link):
            return count * _nvlink_speed(), topology.meaning(link)
        card = min(installed(), key=lambda card: (card.pcie_generation, card.pcie_width))
        speed = PCIE_GB[card.pcie_generation] * card.pcie_width / 16 * 1e9
        return speed, f"{link}, PCIe {card.pcie_generation} x{card.pcie_width}"
    except (NoAnswer, ValueError, KeyError):
        return None


def _nvlink_speed() -> float:
    """Return the bytes per second of one NVLink, one direction."""
    try:
        speeds = re.findall(r"Link \d+: ([\d.]+) GB/s", ask("nvidia-smi", "nvlink", "-s"))
    except NoAnswer:
        speeds = []
    return min(map(float, speeds), default=NVLINK_GB) * 1e9


def nccl() -> Finding:
    """Say which NCCL torch has loaded, and whether ranks can share a GPU with it."""
    found = zygote.shared().gpus()
    if not found.nccl:
        severity = Severity.PROBLEM if found.count else Severity.OK
        advice = "Install the CUDA build of torch for Linux." if severity is Severity.PROBLEM else ""
        return Finding(severity, "this torch has no NCCL: the ranks use Gloo", advice)
    return judge_nccl_version(found)


def judge_nccl_version(found: Gpus) -> Finding:
    """Judge whether this NCCL does what this number of GPUs asks for."""
    name = f"NCCL {dotted(found.nccl)}"
    if not 0 < found.count < COURSE_RANKS:
        return Finding(Severity.OK, name)
    if can_host_nccl(COURSE_RANKS, found):
        return Finding(Severity.OK, f"{name}; four ranks can share a GPU: `%ranks start --backend nccl`")
    advice = (
        f"From {dotted(SHARING_NCCL)} on ranks can share a GPU: `{newer_nccl(found)}`. pip warns that torch "
        "requires another version, but installs it."
    )
    return Finding(Severity.OK, f"{name}: each rank needs a GPU of its own", advice)
