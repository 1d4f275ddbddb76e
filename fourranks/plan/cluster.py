"""A cluster on paper: nodes of GPUs, the links inside a node, the network cards between nodes."""

from __future__ import annotations

from dataclasses import dataclass, replace


class PlanError(ValueError):
    """A model, cluster or plan that cannot be; the message says what to change."""


MOST_GPUS = 1_000_000


@dataclass(frozen=True)
class Constants:
    """What data sheets do not say: fitted once for a GPU generation by `python -m benchmarks.plan --fit`.

    Attributes:
        matmul_efficiency: share of the peak that a very large matrix multiplication reaches.
        half_size: a matrix side of this length, in elements, halves that share.
        memory_efficiency: share of the memory's bandwidth that vector operations reach.
        nvlink_efficiency, network_efficiency: share of a link's nominal rate that collectives reach.
        launch_seconds: the processor's time to start one pass of a layer; a GPU cannot be faster.
    """

    matmul_efficiency: float
    half_size: float
    memory_efficiency: float
    nvlink_efficiency: float
    network_efficiency: float
    launch_seconds: float


# The A100's are fitted; the H100's are set by hand: too few of its runs are published to fit six.
A100_CONSTANTS = Constants(0.871, 191.0, 0.998, 0.681, 0.678, 1.14e-3)
H100_CONSTANTS = Constants(0.70, 60.0, 0.6, 0.75, 0.65, 0.5e-3)


@dataclass(frozen=True)
class GpuModel:
    """One kind of GPU and the node it comes in; bytes, FLOP/s and bytes per second and direction.

    Attributes:
        card_bandwidth: of one network card.
        cards: network cards of a node of eight.
    """

    name: str
    peak_flops: float
    fp8_flops: float
    memory_bytes: float
    memory_bandwidth: float
    nvlink_bandwidth: float
    card_bandwidth: float
    cards: int
    constants: Constants


def _gpu(
    name: str, tflops: tuple[float, float], memory: tuple[float, float], links: tuple[float, float, int],
    constants: Constants,
) -> GpuModel:  # fmt: skip
    """Describe a GPU by TFLOP/s (16 bits, 8 bits), GB and TB/s, GB/s of NVLink and of a card, cards."""
    return GpuModel(
        name, tflops[0] * 1e12, tflops[1] * 1e12, memory[0] * 1e9, memory[1] * 1e12,
        links[0] * 1e9, links[1] * 1e9, links[2], constants,
    )  # fmt: skip


# Data sheets, as figures.published has them, with the cards of a DGX A100 (HDR), DGX H100 (NDR), p4d (EFA).
GPUS = {
    gpu.name: gpu
    for gpu in (
        _gpu("a100", (312, 312), (80, 2.04), (300, 25, 8), A100_CONSTANTS),
        _gpu("a100-40gb", (312, 312), (40, 1.56), (300, 12.5, 4), A100_CONSTANTS),
        _gpu("h100", (989, 1979), (80, 3.35), (450, 50, 8), H100_CONSTANTS),
        _gpu("h800", (989, 1979), (80, 3.35), (200, 50, 8), H100_CONSTANTS),
        _gpu("h200", (989, 1979), (141, 4.8), (450, 50, 8), H100_CONSTANTS),
        _gpu("b200", (2250, 4500), (180, 8.0), (900, 50, 8), H100_CONSTANTS),
    )
}


@dataclass(frozen=True)
class Cluster:
    """`gpus` GPUs, `gpus_per_node` of them joined by NVLink, the nodes by their network cards."""

    gpu: GpuModel
    gpus: int
    gpus_per_node: int = 8

    def __post_init__(self) -> None:
        if self.gpus > MOST_GPUS:
            raise PlanError(f"{self.gpus} GPUs are too many to plan for: at most {MOST_GPUS}")
        if self.gpus < 1 or self.gpus_per_node < 1:
            raise PlanError(
                f"a cluster needs at least 1 GPU, not {self.gpus} in nodes of {self.gpus_per_node}"
            )

    @property
    def node_bandwidth(self) -> float:
        """Bytes per second that leave a node through all its cards."""
        return self.gpu.cards * self.gpu.card_bandwidth


def find_gpu(name: str) -> GpuModel:
    """Find a GPU by its name or by a longer text that begins with it ("A100-80GB SXM (Selene)").

    Raises:
        PlanError: there is none of this name.
    """
    text = name.lower()
    if text.startswith("a100-40"):
        return GPUS["a100-40gb"]
    for gpu in GPUS.values():
        if text.startswith(gpu.name):
            return gpu if "omni" not in text else replace(gpu, card_bandwidth=12.5e9, cards=4)
    raise PlanError(f"there is no GPU {name!r}; choose one of {', '.join(GPUS)}")
