"""`make gpu`: everything that shows how the course behaves on GPUs, into one folder of evidence.

`plan` lists the steps, `run` takes one, `evidence` keeps what came of them; each other module is a step.
"""
