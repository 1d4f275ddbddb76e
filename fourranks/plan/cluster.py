"""A cluster on paper: nodes of GPUs, the links inside a node, the network cards between nodes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from . import data_sheets
from .data_sheets import GB, TB, GpuSpecs


class PlanError(ValueError):
    """A model, cluster or plan that cannot be; the message says what to change."""


MOST_GPUS = 1_000_000


@dataclass(frozen=True)
class Constants:
    """Figures that data sheets lack, fitted once for a GPU generation by `python -m benchmarks.plan --fit`.

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
    name: str, specs: GpuSpecs, fp8_tflops: float, card_gigabytes: float, cards: int, constants: Constants
) -> GpuModel:
    """Add to a data sheet the rate of 8-bit products, the network cards of a node, and fitted constants."""
    return GpuModel(
        name=name,
        peak_flops=specs.bf16_flops,
        fp8_flops=fp8_tflops * 1e12,
        memory_bytes=specs.hbm_bytes,
        memory_bandwidth=specs.hbm_bandwidth,
        nvlink_bandwidth=specs.nvlink_bandwidth,
        card_bandwidth=card_gigabytes * GB,
        cards=cards,
        constants=constants,
    )


_A100, _H100, _H200, _B200 = (data_sheets.GPUS[f"{name} SXM"] for name in ("A100", "H100", "H200", "B200"))
_A100_40GB = replace(_A100, hbm_bytes=40 * GB, hbm_bandwidth=1.56 * TB)
_H800 = replace(_H100, nvlink_bandwidth=200 * GB)

# With the network cards of a DGX A100 (HDR), DGX H100 (NDR) and p4d (EFA).
GPUS = {
    gpu.name: gpu
    for gpu in (
        _gpu("a100", _A100, 312, 25, 8, A100_CONSTANTS),  # has none for fp8
        _gpu("a100-40gb", _A100_40GB, 312, 12.5, 4, A100_CONSTANTS),
        _gpu("h100", _H100, 1979, 50, 8, H100_CONSTANTS),
        _gpu("h800", _H800, 1979, 50, 8, H100_CONSTANTS),
        _gpu("h200", _H200, 1979, 50, 8, H100_CONSTANTS),
        _gpu("b200", _B200, 4500, 50, 8, H100_CONSTANTS),
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
    """Find a GPU by its name or by a longer text, such as "A100-80GB SXM (Selene)" or nvidia-smi's.

    Raises:
        PlanError: there is none of this name.
    """
    text = name.lower().removeprefix("nvidia ")
    if text.startswith("a100") and "40gb" in text.replace(" ", ""):
        return GPUS["a100-40gb"]
    for gpu in GPUS.values():
        if text.startswith(gpu.name):
            return gpu if "omni" not in text else replace(gpu, card_bandwidth=12.5e9, cards=4)
    raise PlanError(f"there is no GPU {name!r}; choose one of {', '.join(GPUS)}")
