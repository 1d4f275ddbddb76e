"""A mutation run: small faults in the exercises' reference solutions, and whether the checks catch them.

`exercise` reads what students would write and what tests it, `operators` say what a small fault is, `mutants`
makes them, `world` runs the tests on each in a process that may hang or die, `equivalents` names those that
are no fault at all. `make mutation` runs all and writes `benchmarks/mutation.md`.
"""
