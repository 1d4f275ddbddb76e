"""Measures the bytes that Gloo sends for each operation, beside the formulas of `sandbox.loopback`.

`python -m benchmarks.compat.traffic` runs with the torch that is to be tried, and prints as JSON, for each
operation, the bytes that Linux counted divided by those of the formula, on each number of ranks. A formula
holds for this torch where this is within a few percent of 1: headers of packets come on top.
"""

from __future__ import annotations

import json
from functools import partial

from autograder.inside.runs import RunFailed
from autograder.sandbox.bubblewrap import Bubblewrap
from autograder.sandbox.launch import launch
from autograder.sandbox.loopback import sent_bytes
from autograder.sandbox.student_process import RemoteFunction, StudentProcess

WORLD_SIZES = (2, 3, 4, 5)
NUMEL = 1 << 20  # of a rank's tensor of float32: 4 MiB, beside which headers are small
TRIES = 5  # for one without a segment that a busy machine has sent again
OPERATIONS = {
    "send": "d.isend(x, (r + 1) % n).wait() if r % 2 else d.recv(x, (r - 1) % n)\n"
    "    d.recv(x, (r - 1) % n) if r % 2 else d.isend(x, (r + 1) % n).wait()",
    "all_reduce": "d.all_reduce(x)",
    "broadcast": "d.broadcast(x, n - 1)",
    "reduce": "d.reduce(x, n - 1)",
    "all_gather": "d.all_gather([x.clone() for _ in range(n)], x)",
    "all_gather_single": "d.all_gather_single(x.repeat(n), x)",
    "gather": "d.gather(x, [x.clone() for _ in range(n)] if r == 0 else None)",
    "scatter": "d.scatter(x, [x.clone() for _ in range(n)] if r == 0 else None)",
    "reduce_scatter": "d.reduce_scatter(x, [x.clone() for _ in range(n)])",
    "reduce_scatter_single": "d.reduce_scatter_single(x, x.repeat(n))",
    "all_to_all": "d.all_to_all([x.clone() for _ in range(n)], [x.clone() for _ in range(n)])",
    "all_to_all_single": "d.all_to_all_single(x.repeat(n), x.repeat(n))",
}
FUNCTION = """
def {name}(numel):
    import torch, torch.distributed as d
    r, n, x = d.get_rank(), d.get_world_size(), torch.ones(numel)
    {body}
"""


def ratio(function: RemoteFunction, student: StudentProcess, world_size: int) -> float | str:
    """Return the bytes that were counted for one call, divided by those of the formula.

    The reason in words where the call fails, as it does where the two differ by more than the referee allows.
    """
    inputs = [(NUMEL,)] * world_size
    try:
        function.run([(1,)] * world_size)  # the ranks meet
        for _ in range(TRIES):
            before = student.traffic()
            outcomes = function.run(inputs)
            counted = student.traffic() - before
            if counted.resent == 0:
                break
    except RunFailed as failure:
        return str(failure)
    told = sum(sent_bytes(rank, call) for rank, outcome in enumerate(outcomes) for call in outcome.calls)
    return round(counted.nbytes / told, 4)


def ratios() -> dict[str, list[float | str]]:
    """Return the ratio of each operation on each of WORLD_SIZES."""
    cells = [FUNCTION.format(name=f"f_{name}", body=body) for name, body in OPERATIONS.items()]
    found = {}
    with StudentProcess(cells, partial(launch, Bubblewrap)) as student:
        for name in OPERATIONS:
            found[name] = [ratio(student.function(f"f_{name}"), student, size) for size in WORLD_SIZES]
            student.release()
    return found


if __name__ == "__main__":
    print(json.dumps(ratios()))
