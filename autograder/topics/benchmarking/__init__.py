"""Topic 03: benchmarks of collectives, and the alpha-beta model."""
