"""Makes the README's picture from a real run: a notebook seen in a browser.

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

DOCS = Path(__file__).parents[1] / "docs"
SIZE = "1025,1095"

CELLS = [
    "%load_ext fourranks",
    "%%ranks\nx = torch.arange(4.) + rank\nprint('before:', x)\ndist.all_reduce(x)\nx",
    "%%ranks --trace\n"
    "for step in range(3):\n"
    "    gradient = torch.randn(400_000 + 300_000 * rank).sort().values[:200_000]  # not equally fast\n"
    "    dist.all_reduce(gradient, op=dist.ReduceOp.AVG)",
    "%%ranks\nif rank != 2:\n    dist.barrier()",
]


def main() -> None:
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
