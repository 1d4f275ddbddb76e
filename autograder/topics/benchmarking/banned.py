"""Libraries that hold the answers of this exercise, and that it therefore forbids."""

BANNED = ("fourranks.bench", "fourranks.figures.alpha_beta", "fourranks.trace.bandwidth")
