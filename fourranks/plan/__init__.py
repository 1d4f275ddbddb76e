"""A cluster on paper: time and memory of a training step, predicted without GPUs or torch.

`command` is `fourranks plan`; docs/plan.md says how `step`, `search`, `predict` and `timeline` are used.
"""
