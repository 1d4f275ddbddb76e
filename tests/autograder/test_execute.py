"""A notebook runs to its end, or says where it stopped; either way no process is left."""

import os
import subprocess

import nbformat.v4
import psutil
import pytest

from autograder.notebooks import execute as execute_module
from autograder.notebooks.execute import ExecutionError, execute

NEXT_NUMBER = "/proc/sys/kernel/ns_last_pid"


def notebook(*sources: str):
    cells = [nbformat.v4.new_code_cell(source, id=f"cell-{i}") for i, source in enumerate(sources, 1)]
    kernelspec = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernelspec})


def test_outputs_and_counts_are_filled_in_and_nothing_else(tmp_path):
    run = notebook("import os\nprint('x' * 3)\nprint('y')", "os.getcwd()")
    metadata = dict(run.metadata)
    execute(run, tmp_path)
    first, second = run.cells
    assert [output.text for output in first.outputs] == ["xxx\ny\n"]
    assert second.outputs[0].data["text/plain"] == repr(str(tmp_path))
    assert [cell.execution_count for cell in run.cells] == [1, 2]
    assert run.metadata == metadata
    assert [cell.metadata for cell in run.cells] == [{}, {}]


def test_a_cell_that_raises_is_named_with_its_error_and_its_code(tmp_path):
    with pytest.raises(ExecutionError) as error:
        execute(notebook("x = 1", "x / 0"), tmp_path)
    assert str(error.value) == "cell 2 (cell-2) failed: ZeroDivisionError: division by zero\n    x / 0"


def test_a_cell_that_is_meant_to_raise_does_not_stop_the_notebook(tmp_path):
    run = notebook("1 / 0", "'here'")
    run.cells[0].metadata.tags = ["raises-exception"]
    execute(run, tmp_path)
    assert run.cells[1].outputs[0].data["text/plain"] == "'here'"


def test_a_cell_that_does_not_end_is_stopped(tmp_path):
    with pytest.raises(ExecutionError, match=r"cell 1 \(cell-1\) failed: it had not ended after 1 seconds"):
        execute(notebook("while True: pass"), tmp_path, cell_timeout=1)


def test_a_kernel_that_dies_is_reported(tmp_path):
    with pytest.raises(ExecutionError, match=r"cell 2 \(cell-2\) failed: the kernel died"):
        execute(notebook("import os", "os._exit(3)"), tmp_path)


def test_a_process_that_outlives_its_notebook_is_killed_and_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(execute_module, "EXIT_TIMEOUT", 0.2)
    # In a session of its own and an orphan, so that neither the kernel's exit nor its process group ends it.
    orphan = "import subprocess\nsubprocess.run('setsid sleep 1001 & echo $! > pid', shell=True)"
    with pytest.raises(ExecutionError, match=r"it left processes behind: sleep \(\d+\)"):
        execute(notebook(orphan), tmp_path)
    pid = int((tmp_path / "pid").read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_process_that_has_the_number_of_an_earlier_one_is_found_too(tmp_path, monkeypatch):
    if not os.access(NEXT_NUMBER, os.W_OK):
        pytest.skip("only root chooses the number of a process")
    monkeypatch.setattr(execute_module, "EXIT_TIMEOUT", 0.2)
    with subprocess.Popen(["sleep", "1002"]) as earlier:
        assert earlier.pid in [process.pid for process in psutil.process_iter(["name"])]
        earlier.kill()
    again = f"""
import subprocess
for _ in range(100):
    with open("{NEXT_NUMBER}", "w") as file:
        file.write("{earlier.pid - 1}")
    orphan = subprocess.Popen(["sleep", "1003"], start_new_session=True)
    if orphan.pid == {earlier.pid}:
        break
    orphan.kill(), orphan.wait()
"""
    with pytest.raises(ExecutionError, match=rf"it left processes behind: sleep \({earlier.pid}\)"):
        execute(notebook(again), tmp_path)
