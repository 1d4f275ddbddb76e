"""A cluster on paper: what a training step takes of time and memory, predicted without GPUs or torch.

`command` is `fourranks plan`; docs/plan.md says how `step`, `search`, `predict` and `timeline` are used.
"""
