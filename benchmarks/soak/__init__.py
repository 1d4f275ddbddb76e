"""A soak test: random SPMD programs on real ranks, half of them with one fault planted on one rank.

`generate` draws legal programs, `faults` plants, `oracle` foretells by simulation what must become of each,
`world` runs them, `judge` compares. `rows` are the lines of `make bench`, `make soak` is the long run.
"""

from .rows import BENCHMARKS

__all__ = ["BENCHMARKS"]
