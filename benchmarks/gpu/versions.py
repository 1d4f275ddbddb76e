"""A step: the machine's versions, down to the driver, as a table and in nvidia-smi's own words."""

from __future__ import annotations

import torch

from benchmarks.table import head
from fourranks import zygote
from fourranks.doctor.tool import NoAnswer, ask
from fourranks.hardware import dotted, nccl_version

QUERIES = (("nvidia-smi",), ("nvidia-smi", "topo", "-m"), ("nvidia-smi", "nvlink", "-s"))


def main() -> None:
    print(head("make gpu", "The machine", f"- CUDA that torch is built for: {torch.version.cuda or 'none'}"))
    print(f"- NCCL that torch has loaded: {dotted(nccl_version()) or 'none'}")
    print(f"- GPUs that torch can use: {', '.join(zygote.shared().gpus().names) or 'none'}")
    for query in QUERIES:
        print(f"\n## {' '.join(query)}\n\n```\n{_answer(query)}\n```")


def _answer(query: tuple[str, ...]) -> str:
    try:
        return ask(*query)
    except NoAnswer as reason:
        return str(reason)


if __name__ == "__main__":
    main()
