"""Whether the course works on a Python and a torch: `make compat` runs it on each pair that can be had."""
