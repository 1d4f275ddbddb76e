"""A node of a cluster: its words before it grades, and the answers that the driver takes."""

import json
import platform
from dataclasses import replace

import pytest
from nbformat.v4 import new_code_cell, new_notebook

from autograder.grading import records
from autograder.grading.grade_submission import GradingTask
from autograder.grading.on_node import NodeGrader, Software, read
from autograder.grading.pool import Failed
from autograder.grading.records import NotebookRecord, Terms
from autograder.sandbox.tiers import Tier
from fourranks import landlock


@pytest.fixture
def node(monkeypatch):
    """A node of a cluster that asks for a token; its process is never used, and ends."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setattr("autograder.grading.on_node.Pool", lambda *_: None)
    return NodeGrader(0, 1)


def test_a_node_with_the_same_software_is_fit(node):
    assert node.unfit(Software.installed(), Terms(Tier.NONE)) == ""


def test_a_node_with_another_torch_names_both(node):
    driver = replace(Software.installed(), torch="2.9.0")
    said = node.unfit(driver, Terms())
    assert "it has torch 2." in said and "but the driver has 2.9.0. Install the same on all nodes." in said
    assert platform.python_version() not in said


def test_a_node_without_a_sandbox_says_what_to_install(node, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "apt install bubblewrap" in node.unfit(Software.installed(), Terms(Tier.NAMESPACES))
    monkeypatch.setattr(landlock, "version", lambda: 0)
    assert "Linux 5.19" in node.unfit(Software.installed(), Terms())


def test_a_node_of_a_cluster_that_anybody_can_use_is_unfit(node, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert "requires no token" in node.unfit(Software.installed(), Terms(Tier.NONE))


# --- what it sends back -----------------------------------------------------------------------------------


@pytest.fixture
def work():
    notebook = new_notebook(cells=[new_code_cell("x = 1"), new_code_cell("y = 2")])
    return GradingTask({"exercise": notebook}, {"exercise": None}, Terms())


def test_a_record_of_what_was_sent_is_taken(work):
    record = NotebookRecord(Tier.NAMESPACES, [], records.cells_of(work.notebooks["exercise"]))
    answer = json.dumps({"records": {"exercise": records.plain(record)}})
    assert read(answer, work) == {"exercise": record}


def test_why_it_could_not_be_run_is_taken(work):
    answer = json.dumps({"failed": {"reason": "it had not ended", "exhausted": True}})
    assert read(answer, work) == Failed("it had not ended", exhausted=True)


@pytest.mark.parametrize("change", ["another cell", "no notebook", "no tier", "no JSON"])
def test_an_answer_about_something_else_is_refused(work, change):
    record = records.plain(NotebookRecord(Tier.NAMESPACES, [], records.cells_of(work.notebooks["exercise"])))
    if change == "another cell":
        record["cells"][0]["source"] = "x = 2"
    if change == "no tier":
        record["tier"] = "walls"
    answer = json.dumps({"records": {} if change == "no notebook" else {"exercise": record}})
    with pytest.raises(ValueError):
        read("{" if change == "no JSON" else answer, work)
