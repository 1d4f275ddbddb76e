"""A lecture runs unchanged on ranks of two nodes, which are network namespaces."""

import os

import nbformat

from tests.conftest import COURSE
from tests.network_of_nodes import network_of_nodes
from tests.processes import run

LECTURE = COURSE / "lectures" / "02_collectives" / "lecture.ipynb"


def test_lecture_02_runs_unchanged_on_two_nodes_and_its_deadlocks_are_explained(tmp_path):
    with network_of_nodes(tmp_path) as network:
        named = {"FOURRANKS_NODES": ",".join(network.nodes), "FOURRANKS_LAUNCHER": network.launcher}
        command = ["jupyter", "nbconvert", "--to", "notebook", "--execute", LECTURE]
        done = run([*command, "--output-dir", tmp_path], cwd=tmp_path, env=os.environ | named)
    assert done.returncode == 0, done.stderr  # a cell that raises ends it, unless that is expected
    cells = nbformat.read(tmp_path / "lecture.ipynb", as_version=4).cells
    outputs = [output for cell in cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("4 ranks on Gloo over 2 nodes are ready" in output.get("text", "") for output in outputs)
    errors = [output.ename for output in outputs if output.output_type == "error"]
    assert errors == ["DeadlockError"] * 3
