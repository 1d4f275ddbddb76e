"""Topic 07: schedules and training of pipelines."""
