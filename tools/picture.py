"""Makes the README's pictures from real runs: a notebook seen in a browser, and a ring round by round.

    .venv/bin/python tools/picture.py

Needs Debian's chromium.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import nbclient
import nbformat
from nbconvert import HTMLExporter

import fourranks

DOCS = Path(__file__).parents[1] / "docs"
SIZE = "920,1045"

CELLS = [
    "%load_ext fourranks",
    "%%ranks\nx = torch.arange(4.) + rank\nprint('before:', x)\ndist.all_reduce(x)\nx",
    "%%ranks --trace\n"
    "for step in range(3):\n"
    "    gradient = torch.randn(400_000 + 300_000 * rank).sort().values[:200_000]  # not equally fast\n"
    "    dist.all_reduce(gradient, op=dist.ReduceOp.AVG)",
    "%%ranks\nif rank != 2:\n    dist.barrier()",
]

RING = """
def pass_on(give, take):
    right, left = (rank + 1) % world_size, (rank - 1) % world_size
    both = [dist.P2POp(dist.isend, give, right), dist.P2POp(dist.irecv, take, left)]
    for work in dist.batch_isend_irecv(both):
        work.wait()

x = torch.arange(1.0, 5.0) * 10**rank
chunks, inbox = x.chunk(world_size), torch.empty(1)
for turn in range(world_size - 1):
    pass_on(chunks[(rank - turn) % world_size], inbox)
    chunks[(rank - turn - 1) % world_size].add_(inbox)
for turn in range(world_size - 1):
    pass_on(chunks[(rank + 1 - turn) % world_size], chunks[(rank - turn) % world_size])
"""


def main() -> None:
    """Make both pictures."""
    draw_ring()
    photograph_notebook()


def draw_ring() -> None:
    """Run a ring all-reduce and draw its rounds."""
    with fourranks.start(4, "gloo") as group, group.trace(values="x") as trace:
        group.execute(RING)
    steps = trace.steps("ring all-reduce of four numbers, Gloo, 4 ranks")
    (DOCS / "ring.png").write_bytes(steps.overview.png())


def photograph_notebook() -> None:
    """Run the cells, render the notebook, take the picture."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    nbclient.NotebookClient(notebook, kernel_name="python3", allow_errors=True).execute()
    notebook.cells = notebook.cells[1:]
    page, _ = HTMLExporter().from_notebook_node(notebook)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "picture.html"
        source.write_text(page)
        subprocess.run(
            [
                shutil.which("chromium") or sys.exit("needs chromium: apt install chromium"),
                *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
                *(f"--user-data-dir={folder}/profile", f"--window-size={SIZE}", "--hide-scrollbars"),
                *(f"--screenshot={DOCS / 'four_ranks.png'}", source.as_uri()),
            ],
            check=True,
            capture_output=True,
        )


if __name__ == "__main__":
    main()
