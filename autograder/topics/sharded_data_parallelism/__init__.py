"""Topic 05: data parallelism with sharded optimizers, gradients and parameters."""
