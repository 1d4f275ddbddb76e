"""A step: a table of NCCL's times and bandwidths by collective and size, as nccl-tests counts them.

With several GPUs it has a table with a GPU for each rank; with fewer than four, where NCCL lets ranks share,
one of four ranks that do, after what a small call costs there beside Gloo. `--mps` runs both under NVIDIA's
Multi-Process Service, where kernels of several processes run at the same time instead of taking turns.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import fourranks
from fourranks import bench, zygote
from fourranks.placement import can_host_nccl

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "sendrecv")
SIZES = tuple(4**exponent for exponent in range(5, 15))  # 1 KiB to 256 MiB
SHARED_SIZES = SIZES[:-2]  # to 16 MiB: beyond it only the memory of one GPU is measured
SHARING = 4
MPS = "nvidia-cuda-mps-control"


def main(mps: bool) -> int:
    """Print the tables; returns the exit code, 1 where there is none."""
    gpus = zygote.shared().gpus()
    zygote.stop_shared()  # MPS is for processes that begin under it
    shares = gpus.count < SHARING and can_host_nccl(SHARING, gpus)
    if gpus.count > 1 and not mps:
        print(_table(gpus.count, SIZES, "a GPU for each rank"))
    with under_mps() if mps else contextlib.nullcontext():
        if shares:
            how = f"ranks share {gpus.count} GPU, MPS {'on' if mps else 'off'}"
            print(_small_calls(how))
            print(_table(SHARING, SHARED_SIZES, how))
        zygote.stop_shared()
    if gpus.count < 2 and not shares:
        print("Nothing to measure: one GPU, and NCCL before 2.30, with which ranks cannot share it.")
    return 0 if gpus.count else 1


def _small_calls(how: str) -> str:
    """Compare what an all-reduce costs that moves next to nothing: what `auto` should choose rests on it."""
    rows = [f"## {SHARING} {how}: an all-reduce of {SIZES[0]} bytes", "", "| backend | tensors on | in µs |"]
    rows += ["|---|---|---|"]
    for backend, device in (("gloo", "cpu"), ("gloo", "cuda"), ("nccl", "cuda")):
        with fourranks.start(SHARING, backend, device=device) as world:
            (measured,) = bench.sweep(world, ("all_reduce",), SIZES[:1])
        rows.append(f"| {backend} | {device} | {measured.seconds * 1e6:.1f} |")
    return "\n".join([*rows, ""])


def _table(world_size: int, sizes: tuple[int, ...], how: str) -> str:
    rows = [f"## {world_size} ranks, {how}", "", "| collective | S in bytes | time in µs | algbw | busbw |"]
    rows += ["|---|---|---|---|---|"]
    with fourranks.start(world_size, "nccl") as world:
        rows += [_row(measured) for measured in bench.sweep(world, COLLECTIVES, sizes)]
    return "\n".join([*rows, "", "Bandwidths in 10⁹ bytes per second; medians of the slowest rank.", ""])


def _row(measured: bench.Measurement) -> str:
    speeds = f"{measured.algbw / 1e9:.3f} | {measured.busbw / 1e9:.3f}"
    return f"| {measured.collective} | {measured.num_bytes} | {measured.seconds * 1e6:.1f} | {speeds} |"


@contextlib.contextmanager
def under_mps() -> Iterator[None]:
    """Have processes that begin inside the block share GPUs by an MPS of their own."""
    with tempfile.TemporaryDirectory() as folder:
        places = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        os.environ.update(places)
        subprocess.run([MPS, "-d"], check=True, timeout=60)
        try:
            yield
        finally:
            subprocess.run([MPS], input="quit\n", text=True, timeout=60)
            for name in places:
                del os.environ[name]


if __name__ == "__main__":
    sys.exit(main("--mps" in sys.argv[1:]))
