"""Topic 04: data parallelism, checkpoints, and training with less communication."""
