"""`%ranks` and `%%ranks` in a real kernel, as JupyterLab would drive it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
from base64 import b64decode
from pathlib import Path

import nbclient
import nbformat
import pytest
from traitlets.config import Config

from fourranks import commands
from fourranks.errors import plain


class Kernel(nbclient.NotebookClient):
    """A kernel with the extension loaded; `run` returns the outputs of a cell as a notebook stores them."""

    def __init__(self, load: bool = True) -> None:
        # In the current folder the kernels of two workers would meet.
        self._sockets = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        super().__init__(
            nbformat.v4.new_notebook(),
            kernel_name="python3",
            allow_errors=True,
            timeout=60,
            config=Config(KernelManager={"transport": "ipc", "ip": f"{self._sockets.name}/kernel"}),
        )
        self.reset_execution_trackers()
        self.create_kernel_manager()
        self.start_new_kernel()
        self.start_new_kernel_client()
        self._while_running = None
        if load:
            self.run("%load_ext fourranks")

    @property
    def pid(self) -> int:
        return self.km.provisioner.pid

    def run(self, source: str, while_running=None) -> list:
        """Run a cell; `while_running` is called once its first output is there."""
        self._while_running = while_running
        cell = nbformat.v4.new_code_cell(source)
        self.nb.cells = [cell]
        self.execute_cell(cell, 0)
        return joined(cell.outputs)

    @property
    def number(self) -> int:
        """The number in front of the last cell."""
        return self.nb.cells[0].execution_count

    def output(self, *args):
        added = super().output(*args)
        if added is not None and self._while_running is not None:
            self._while_running, call = None, self._while_running
            call()
        return added

    def text(self, source: str, **options) -> str:
        """All that a cell shows, as text."""
        return "".join(as_text(output) for output in self.run(source, **options))

    def interrupt(self) -> None:
        """Press the interrupt button: a signal to the kernel's whole process group."""
        os.killpg(os.getpgid(self.pid), signal.SIGINT)

    def stop(self) -> None:
        try:
            self._cleanup_kernel()
        finally:
            self._sockets.cleanup()


def joined(outputs: list) -> list:
    """The outputs with text that arrived in several messages as one, which is how JupyterLab stores it."""
    kept: list = []
    for output in outputs:
        if output.output_type == "stream" and kept and kept[-1].get("name") == output.name:
            kept[-1].text += output.text
        else:
            kept.append(output)
    return kept


def as_text(output) -> str:
    if output.output_type == "stream":
        return output.text
    if output.output_type == "error":
        return plain("\n".join(output.traceback)) + "\n"
    return output.data.get("text/plain", "") + "\n"


@pytest.fixture(scope="module")
def kernel():
    kernel = Kernel()
    kernel.run("%ranks start")
    yield kernel
    kernel.stop()


def test_a_cell_without_a_world_starts_the_default_one_and_says_so(kernel):
    kernel.run("%ranks stop")
    shown = kernel.text("%%ranks\nx = torch.arange(4.) + rank\ndist.all_reduce(x)\nx")
    assert shown == "4 ranks on Gloo started for this cell.\n[0-3] tensor([ 6., 10., 14., 18.])\n"


def test_start_status_restart_and_stop(kernel):
    assert "3 ranks on Gloo are ready" in kernel.text("%ranks start -n 3 --backend gloo")
    status = kernel.run("%ranks")[0].data
    assert status["text/plain"].split("\n")[0].split() == [
        "rank",
        "pid",
        "device",
        "backend",
        "state",
        "memory",
    ]
    assert len(status["text/plain"].split("\n")) == 4
    assert "<table>" in status["text/html"]
    kernel.run("%%ranks\nx = 1")
    assert "fresh again" in kernel.text("%ranks restart")
    assert "NameError" in kernel.text("%%ranks\nx")
    assert "have ended" in kernel.text("%ranks stop")
    assert "`%ranks start`" in kernel.text("%ranks")


def test_ranks_are_spawned_when_asked_for(kernel):
    assert "1 rank on Gloo is ready" in kernel.text("%ranks start -n 1 --backend gloo --spawn")
    assert kernel.text("import fourranks; fourranks.world().start_method") == "'spawn'\n"
    kernel.run("%ranks stop")


def test_a_comment_on_a_magics_line_is_no_argument(kernel):
    assert kernel.text("%%ranks 0   # one of them\n'here'").endswith("[0] 'here'\n")
    assert "rank" in kernel.text("%ranks  # what are they?")


def test_some_ranks_only(kernel):
    assert kernel.text("%%ranks 0,2-3\nprint('hi', rank)").endswith("[0] hi 0\n[2] hi 2\n[3] hi 3\n")


def test_equal_lines_are_merged_although_the_ranks_are_not_equally_fast(kernel):
    cell = "%%ranks\nimport time\nfor step in range(3):\n    time.sleep(0.1 * rank)\n    print('step', step)"
    assert kernel.text(cell) == "[0-3] step 0\n[0-3] step 1\n[0-3] step 2\n"


def test_output_streams_while_the_cell_runs(kernel):
    cell = "%%ranks\nimport time\nprint('first')\nwhile True: time.sleep(0.05)"
    shown = kernel.text(cell, while_running=kernel.interrupt)
    assert "[0-3] first" in shown
    assert "KeyboardInterrupt" in shown


def test_stderr_is_stderr_and_labelled(kernel):
    outputs = kernel.run("%%ranks 1\nimport sys\nprint('careful', file=sys.stderr)")
    assert [output.text for output in outputs if output.name == "stderr"] == ["[1] careful\n"]


def test_text_on_stdout_and_stderr_stands_in_the_order_in_which_it_was_printed(kernel):
    cell = "%%ranks 1\nimport sys\nfor step in range(3):\n    print(step)\n    print(step, file=sys.stderr)"
    outputs = [(output.name, output.text) for output in kernel.run(cell)]
    streams = ("stdout", "stderr")
    assert outputs == [(stream, f"[1] {step}\n") for step in range(3) for stream in streams]


def test_a_progress_bar_is_one_line_in_the_end(kernel):
    bar = "for i in range(4):\n    print(f'\\r{i}/3', end='', flush=True); time.sleep(0.1)"
    cell = f"%%ranks\nimport time\n{bar}"
    assert kernel.text(cell) == "[0-3] 3/3\n"


def test_figures_stand_where_they_were_shown(kernel):
    outputs = kernel.run(
        "%%ranks\nimport matplotlib.pyplot as plt\nprint('before')\n"
        "plt.figure(figsize=(1, 1)); plt.plot([1, 2]); plt.show()\nprint('after')"
    )
    assert [output.output_type for output in outputs] == ["stream", "display_data", "stream"], outputs
    assert outputs[0].text == "[0-3] before\n[0-3]\n"
    assert "image/png" in outputs[1].data
    assert outputs[2].text == "[0-3] after\n"


@pytest.fixture
def auto(kernel):
    """A kernel whose cells run on the ranks without a magic."""
    kernel.run("%%ranks\npass")
    assert "From now on every cell that begins with code runs on all ranks" in kernel.text("%ranks auto")
    yield kernel
    assert "Cells run in the notebook again" in kernel.text("%ranks auto --off")


def test_every_cell_of_code_runs_on_the_ranks_if_asked_for(auto):
    assert auto.text("\n# on all ranks\nx = 10 + rank\nx") == "".join(f"[{n}] {10 + n}\n" for n in range(4))
    assert auto.text("%%ranks 2\nx") == "[2] 12\n"
    assert auto.text("%%timeit -n1 -r1\nin_the_notebook = not 'rank' in globals()\nassert in_the_notebook")
    assert auto.text("# a comment") == ""
    auto.text("%ranks auto")  # once more changes nothing
    assert auto.text("%ranks auto --off")
    assert "name 'rank' is not defined" in auto.text("rank")


def test_errors_of_a_cell_that_runs_on_the_ranks_by_itself_number_its_lines(auto):
    shown = auto.text("x = 1\n1 / 0")
    assert "Ranks 0-3 raised ZeroDivisionError" in shown
    assert "----> 2 1 / 0" in shown
    assert f"Cell In[{auto.number}], line 2" in shown


def test_cells_run_in_the_notebook_again_when_the_ranks_are_stopped_or_the_extension_goes(kernel):
    for end in ("%ranks stop", "%unload_ext fourranks\n%load_ext fourranks"):
        kernel.run("%ranks auto")
        kernel.run("rank")
        kernel.run(end)
        assert kernel.text("1 + 1") == "2\n"
    kernel.run("%ranks start")


def test_tracebacks_number_the_lines_as_the_notebook_does(kernel):
    shown = kernel.text("%%ranks\nx = 1\n1 / 0")
    assert "Ranks 0-3 raised ZeroDivisionError" in shown
    assert "----> 3 1 / 0" in shown
    assert f"Cell In[{kernel.number}], line 3" in shown
    assert "fourranks/" not in shown  # no frame of ours


@pytest.mark.parametrize("cell", ["1 / 0", "if rank: dist.barrier()"])
def test_an_error_of_the_ranks_opens_no_debugger_in_the_notebook(cell, kernel):
    kernel.run("%pdb on")
    try:
        shown = kernel.text(f"%%ranks\n{cell}")
    finally:
        kernel.run("%pdb off")
    assert "ZeroDivisionError" in shown or "Ranks 1-3 wait in barrier" in shown
    assert "fourranks/" not in shown


def test_a_deadlock_is_explained_and_variables_live_on(kernel):
    kernel.run("%%ranks\nkept = rank")
    shown = kernel.text(
        "%%ranks\nif rank == 3:\n    dist.barrier()\nelse:\n    dist.all_reduce(torch.ones(1))"
    )
    assert "Rank 3 waits in barrier" in shown
    assert "line 3: dist.barrier()" in shown
    assert kernel.text("%%ranks\nkept") == "[0] 0\n[1] 1\n[2] 2\n[3] 3\n"


def test_a_deadlock_is_drawn_above_its_error_whoever_raised_it(kernel):
    stuck = "x = torch.ones(2)\\nif rank: dist.barrier()"
    for cell in (
        f"%%ranks\n{stuck}".replace("\\n", "\n"),
        f"import fourranks\nfourranks.world().execute('{stuck}')",
    ):
        figure, error = kernel.run(cell)
        picture = re.search('src="data:image/svg.xml;base64,(.*?)"', figure["data"]["text/html"])[1]
        texts = re.findall("<text.*?>(.*?)</text>", b64decode(picture).decode())
        assert {"ranks 1-3", "rank 0", "finished the cell"} <= set(texts) and "barrier, line" in str(texts)
        (words,) = re.findall('<img alt="(.*?)"', figure["data"]["text/html"])
        assert re.fullmatch(
            r"who waits for whom: rank 0: finished the cell; ranks 1-3: barrier, line \d, waiting for rank 0",
            words,
        )
        assert error["ename"] == "DeadlockError"


def test_status_says_how_often_the_process_group_was_formed_anew(kernel):
    kernel.run("%ranks restart")
    assert "formed again" not in kernel.text("%ranks")
    kernel.run("%%ranks\nif rank: dist.barrier()")
    assert "The process group was formed again once since the ranks were started." in kernel.text("%ranks")


def test_the_interrupt_button_frees_ranks_that_are_blocked_in_a_collective(kernel):
    kernel.run("%%ranks\nkept = rank")
    cell = "%%ranks\nimport time\nprint('go')\nif rank: dist.barrier()\nelse: time.sleep(99)"
    assert "KeyboardInterrupt" in kernel.text(cell, while_running=kernel.interrupt)
    assert kernel.text("%%ranks\ndist.barrier()\nkept") == "[0] 0\n[1] 1\n[2] 2\n[3] 3\n"


_INTERRUPTED = """
import signal
class Slow:
    def __reduce__(self):
        signal.raise_signal(signal.SIGINT)
slow = Slow()
"""


def test_an_interrupt_before_the_ranks_have_begun_is_one_message_too(kernel):
    kernel.run(_INTERRUPTED)
    assert kernel.text("%ranks push slow") == "KeyboardInterrupt: The cell was interrupted.\n"
    assert kernel.text("%%ranks\ndist.barrier()\nrank == 3") == "[0-2] False\n[3] True\n"


def test_a_timeout_is_an_option_of_the_cell(kernel):
    shown = kernel.text("%%ranks --timeout 0.3\nimport time\ntime.sleep(60)")
    assert "CellTimeout" in shown


def test_a_trace_shows_a_figure_and_a_table_under_the_cell(kernel):
    outputs = kernel.run("%%ranks --trace\ndist.all_reduce(torch.ones(1000))")
    assert "3.91 KiB" in outputs[-1].data["text/html"]
    assert any("image/png" in output.get("data", {}) for output in outputs)


def test_a_trace_is_shown_also_when_the_cell_fails(kernel):
    *_, figure, table, error = kernel.run("%%ranks --trace\ndist.barrier()\n1 / 0")
    assert "image/png" in figure.data and "barrier" in table.data["text/plain"]
    assert error.ename == "RankError"


def test_steps_show_a_slider_that_is_a_picture_where_no_script_runs(kernel):
    there, back = "if rank == 0: dist.send(x, 1)", "if rank == 1: dist.send(x, 0)"
    take, take_back = "if rank == 1: dist.recv(x, 0)", "if rank == 0: dist.recv(x, 1)"
    cell = ["%%ranks --steps x", "x = torch.ones(2)", there, take, back, take_back]
    (output,) = kernel.run("\n".join(cell))
    assert {"image/png", "text/html", "text/plain"} == output.data.keys()
    rounds = "round 1, 1 × 8 B, rank 0 to 1; round 2, 1 × 8 B, rank 1 to 0"
    assert output.data["text/plain"] == f"x on 4 ranks, round by round: {rounds}"


def test_a_cell_is_saved_as_a_program_and_runs_as_ever(kernel, tmp_path):
    path = tmp_path / "train.py"
    shown = kernel.text(f"%%ranks --save-script {path}\nprint(rank + 0.5)")
    assert (
        f"Saved as {path}. Outside of the notebook: torchrun --standalone --nproc-per-node 4 {path}" in shown
    )
    assert "[0] 0.5\n[1] 1.5\n[2] 2.5\n[3] 3.5" in shown
    assert path.read_text().endswith("print(rank + 0.5)\n\ndist.destroy_process_group()\n")


def test_a_cell_that_leans_on_others_is_neither_saved_nor_run(kernel, tmp_path):
    shown = kernel.text(f"%%ranks --save-script {tmp_path}/train.py\nran = 1\nprint(weights)")
    assert "UsageError: %%ranks --save-script: the cell uses what it does not define: weights." in shown
    assert not list(tmp_path.iterdir())
    assert "NameError" in kernel.text("%%ranks\nran")


def test_out_brings_variables_back_as_one_list_in_rank_order(kernel):
    kernel.run("%%ranks --out x,big\nx = rank ** 2\nbig = torch.full((100_000,), 1.0 * rank)")
    assert kernel.text("x, [tensor.sum().item() for tensor in big]") == (
        "([0, 1, 4, 9], [0.0, 100000.0, 200000.0, 300000.0])\n"
    )
    kernel.run("%%ranks 1,3 --out x\nx = -rank")
    assert kernel.text("x") == "[-1, -3]\n"


def test_out_of_a_variable_that_a_rank_lacks_names_the_rank_and_changes_nothing(kernel):
    kernel.run("kept = 'here'")
    shown = kernel.text("%%ranks --out kept,partly\nkept = rank\nif rank < 2: partly = 1")
    assert shown.strip() == "UsageError: --out partly: Ranks 2-3 have no variable partly after this cell"
    assert kernel.text("kept") == "'here'\n"
    assert "ZeroDivisionError" in kernel.text("%%ranks --out kept\n1 / 0")
    assert kernel.text("kept") == "'here'\n"


FUNCTIONS = """import ctypes, torch.distributed as dist
def skip(rank):
    if rank:
        dist.barrier()
def fail(rank):
    return 1 / 0
def crash(rank):
    ctypes.string_at(0)
"""


@pytest.mark.parametrize("name", [None, "lambda raw, *_: f'/tmp/ipython-input-{abs(hash(raw))}.py'"])
def test_a_line_of_a_function_that_came_from_the_notebook_is_named_by_its_cell(kernel, name):
    """However the kernel calls the files of cells: Colab has names of its own."""
    if name is not None:
        kernel.run(f"compiler = get_ipython().compile\ncompiler.get_code_name = {name}")
    kernel.run(FUNCTIONS)
    cell = f"Cell In[{kernel.number}], line"
    try:
        kernel.run("%ranks push skip fail crash")
        assert f"wait in barrier ({cell} 4: dist.barrier(), called" in kernel.text("%%ranks\nskip(rank)")
        assert f"{cell} 6, in fail(rank)\n" in kernel.text("%%ranks\nfail(rank)")
        assert f"SIGSEGV in {cell} 8." in kernel.text("%%ranks\ncrash(rank)")
    finally:
        kernel.run("vars(get_ipython().compile).pop('get_code_name', None)\n%ranks restart")


def test_push_sets_the_notebooks_variables_on_all_ranks(kernel):
    kernel.run("import torch\nshared = torch.ones(3)\ndef double(x): return 2 * x\nalso = {'inside': shared}")
    assert kernel.text("%ranks push shared double also") == "On ranks 0-3 now: shared, double, also.\n"
    shown = kernel.text("%%ranks\nshared += rank\ndouble(also['inside'])[0].item()")
    assert shown == "[0] 2.0\n[1] 4.0\n[2] 6.0\n[3] 8.0\n"


def test_a_function_of_the_notebook_may_call_exit(kernel):
    shown = kernel.text(
        "import fourranks\ndef leave():\n    if rank: exit()\n    return 1\nfourranks.world().run(leave)"
    )
    assert shown == "[1, None, None, None]\n"


def test_a_function_of_the_notebook_shows_its_lines_in_a_ranks_traceback(kernel):
    shown = kernel.text(
        "import fourranks\ndef inverse():\n    return 1 / rank\nfourranks.world().run(inverse)"
    )
    assert "Rank 0 raised ZeroDivisionError" in shown
    assert "----> 3     return 1 / rank" in shown


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("%ranks nonsense", "UsageError: %ranks: there is no action nonsense"),
        ("%ranks strat", "Did you mean `%ranks start`?"),
        ("%ranks 4", "Did you mean `%ranks start -n 4`?"),
        ("%ranks start 4", "Did you mean `%ranks start -n 4`?"),
        ("%ranks start 2 nccl cuda", "Did you mean `%ranks start -n 2 --backend nccl --device cuda`?"),
        ("%ranks restart 8", "Did you mean `%ranks start -n 8`?"),
        ("%ranks restart -n 8", "%ranks restart takes no -n. Did you mean `%ranks start -n 8`?"),
        ("%ranks -n 8 --spawn", "Did you mean `%ranks start -n 8 --spawn`?"),
        ("%ranks --side", "%ranks status takes no --side. Did you mean `%ranks dashboard --side`?"),
        ("%ranks stop --off", "%ranks stop takes no --off. Did you mean `%ranks auto --off`?"),
        ("%ranks dashboard -n 8", "%ranks dashboard takes no -n. Did you mean `%ranks start -n 8`?"),
        ("%ranks start -n four", "invalid int value: 'four'. `%ranks help` shows all options."),
        ("%ranks start --backend mpi", "invalid choice: 'mpi'"),
        ("%ranks start --n 8", "%ranks: unrecognized arguments: --n"),
        ("%ranks start -n 0", "1 to 128 ranks"),
        ("%ranks start -n 10000", "1 to 128 ranks"),
        ("%ranks start --launcher ssh", "A launcher is for ranks on other nodes: name them, or leave"),
        ("%ranks start --backend nccl --device cpu", "NCCL moves tensors between GPUs only"),
        ("%%ranks --timeout\n1", "expected one argument"),
        ("%%ranks --timeout -1\n1", "A timeout is a number of seconds above zero"),
        ("%%ranks --timeout 0\n1", "A timeout is a number of seconds above zero"),
        (
            "%%ranks --save-script no_such_folder/a.py\n1",
            "No such file or directory; choose another place.\n",
        ),
        ("%%ranks 1,x\n1", "'1,x' does not name ranks"),
        ("%%ranks 0,3-1\n1", "'0,3-1' does not name ranks"),
        ("%%ranks 0-1-3\n1", "'0-1-3' does not name ranks"),
        ("%%ranks 0-999999\n1", "'0-999999' does not name ranks"),
        ("%%ranks --out 1x\n1", "'1x' does not name variables"),
        ("%%ranks --steps x.grad\n1", "'x.grad' does not name a variable"),
        ("%%ranks --save-script train\n1", "'train' does not name a program; write for instance train.py"),
        ("%%ranks --steps nope\nx = torch.ones(1); dist.all_reduce(x)", "no rank has a variable nope"),
        ("%ranks\nx = 1", "Did you mean `%%ranks`, with two?"),
        ("# first\n%ranks 0,2 --trace\nx = 1", "Did you mean `%%ranks 0,2 --trace`, with two?"),
        ("x = 1\n%%ranks\nrank", "%%ranks must be the cell's first line, even above comments"),
        ("# note\n%%ranks --trace\nrank", "comments: move `%%ranks --trace` up"),
        ("%%ranks -n 2\n1", "%%ranks takes no -n: it is an option of `%ranks start`"),
        ("%%ranks 0\n%ranks push x", "%ranks needs a cell of its own"),
        ("%%ranks 0\n%load_ext fourranks", "leave the line out, or move it to a cell without %%ranks"),
        ("%%ranks 0\n%reload_ext fourranks", "leave the line out, or move it to a cell without %%ranks"),
        ("%%ranks 0\nx = 1\n%%ranks 1\nx", "%%ranks must be a cell's first line"),
        ("%rank", "Line magic function `%rank` not found. Did you mean `%ranks`?"),
        ("%%rank 0\nx = 1", "Cell magic `%%rank` not found. Did you mean `%%ranks`?"),
        ("%%ranks:\nx = 1", "Cell magic `%%ranks:` not found. Did you mean `%%ranks`?"),
        ("%%ranks(0)\nx = 1", "Cell magic `%%ranks(0)` not found. Did you mean `%%ranks`?"),
        ("%%ranks print(rank)", "Code for the ranks stands on the lines below %%ranks."),
        ("%ranks push", "UsageError: %ranks push: name the variables to send"),
        ("x = 1\n%ranks push x no_such", "UsageError: %ranks push: the notebook has no variable no_such"),
        ("steps = (n for n in [1])\n%ranks push steps", "The variable 'steps' cannot be sent to the ranks"),
        ("%ranks stop x", "UsageError: %ranks stop takes no names: x"),
        ("%%ranks 9\n1", "there is no rank 9"),
        ("%%ranks\nx = = 1", "SyntaxError"),
    ],
)
def test_what_a_reader_can_get_wrong_is_one_clear_message(kernel, cell, message):
    shown = kernel.text(cell)
    assert message in shown
    assert "Traceback (most recent call last)" not in shown.replace("SyntaxError", "")
    assert kernel.text("%%ranks 0\n'fine'").endswith("[0] 'fine'\n")


@pytest.mark.parametrize("cell", ["%ranks", "%ranks\n# nothing but a comment", "%ranks\n%ranks stop x"])
def test_a_ranks_line_without_code_below_it_is_taken_as_it_is(kernel, cell):
    assert "with two" not in kernel.text(cell)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("rank", ""),
        ("world_size", ""),
        ("device", ""),
        ("torch", ", or import it here: import torch"),
        ("dist", ", or import it here: import torch.distributed as dist"),
    ],
)
def test_a_name_of_the_ranks_in_a_cell_of_the_notebook_is_told_where_it_lives(kernel, name, instead):
    kernel.run(f"{name} = 0\ndel {name}")
    error = kernel.run(f"def use():\n    return {name}\nuse()")[0]
    assert error.evalue == (
        f"name '{name}' is not defined. "
        f"The ranks have {name}: begin the cell with %%ranks to run it on them{instead}."
    )
    assert "----> 2     return" in plain("\n".join(error.traceback))


@pytest.mark.parametrize("call", ["init_process_group('gloo')", "barrier()", "get_rank()"])
def test_a_collective_in_a_cell_of_the_notebook_is_told_where_it_belongs(kernel, call):
    error = kernel.run(f"import torch.distributed\ntorch.distributed.{call}")[-1]
    said, hint = error.evalue.split(" Begin the cell with %%ranks")
    assert re.search(r"\w\.$", said)
    assert hint == " to run it on the ranks, which have a process group."
    assert kernel.run("int('x')")[0].evalue == "invalid literal for int() with base 10: 'x'"


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("halved", "def halved(x):\n    return (x / 2"),
        ("thirded", "1 / 0\ndef thirded(x):\n    return x / 3"),
    ],
)
def test_a_function_whose_cell_has_failed_is_told_to_stand_there(kernel, name, cell):
    kernel.run(cell)
    number = int(kernel.text("len(In) - 2"))
    assert kernel.run(f"{name}(2)")[0].evalue == (
        f"name '{name}' is not defined. "
        f"It is defined in cell In[{number}], which ended with an error: fix that cell and run it again."
    )


def test_a_function_that_was_given_another_name_is_guessed(kernel):
    kernel.run("def my_quarter(x): return x / 4")
    assert kernel.run("quarter(2)")[0].evalue == "name 'quarter' is not defined. Did you mean my_quarter?"


def test_a_variable_that_only_ranks_have_is_told_where_it_lives(kernel):
    kernel.run("%%ranks\nonly_here = rank")
    told = kernel.text("only_here + 1")
    assert "`%%ranks --out only_here`" in told and "define it without %%ranks" in told
    assert kernel.run("nowhere")[0].evalue == "name 'nowhere' is not defined"


def test_a_variable_that_only_the_notebook_has_is_told_how_it_is_sent(kernel):
    kernel.run("batch = 5\nimport collections as cs\nimport json")
    told = "The notebook has a variable batch, but the ranks do not. `%ranks push batch` sends it to them."
    assert told in kernel.text("%%ranks\nif rank: batch")
    assert told in kernel.text("import fourranks; fourranks.world().execute('batch')")
    shown = kernel.text("%%ranks\ncs.Counter")
    assert "the ranks have not. In a %%ranks cell: import collections as cs\n" in shown
    assert "In a %%ranks cell: import json\n" in kernel.text("%%ranks\njson.dumps")
    assert "The notebook has" not in kernel.text("%%ranks\nnowhere")
    assert "then run the script with `%run train.py` in a %%ranks cell" in kernel.text(
        "%%ranks\nopen(__file__)"
    )


@pytest.mark.parametrize(
    ("typed", "meant"), [("rnk", "rank"), ("wrold_size", "world_size"), ("gradeints", "gradients")]
)
def test_a_name_that_is_mistyped_in_a_cell_of_the_ranks_is_guessed(kernel, typed, meant):
    kernel.run("%%ranks\ngradients = 1")
    assert f"name '{typed}' is not defined\nDid you mean {meant}?\n" in kernel.text(f"%%ranks\n{typed}")


def test_a_name_that_only_rank_0_has_is_told_where_it_lives(kernel):
    kernel.run("%%ranks 0\nonly_there = 5")
    told = "Rank 0 has only_there, but ranks 1-3 do not: define it there, too, or begin the cell with"
    assert told in kernel.text("%%ranks\nonly_there").replace("\n", " ")


def test_a_name_that_a_rank_has_itself_is_no_guess(kernel):
    assert "Did you mean" not in kernel.text("%%ranks\nraise NameError('no rank', name='rank')")


def test_a_name_of_earlier_cells_that_new_ranks_lack_is_told_to_be_made_first(kernel):
    kernel.run("%ranks stop")
    told = "These ranks were started for this cell and have no variables of earlier cells."
    assert told in kernel.text("%%ranks\nhalved")
    assert told not in kernel.text("%%ranks\nhalved")


def test_a_new_start_names_what_is_lost(kernel):
    kernel.run("%ranks stop")
    assert kernel.text("%ranks start -n 2 --backend gloo").endswith(" s).\n")
    assert kernel.text("%ranks start -n 1 --backend gloo").endswith("The 2 ranks before have ended.\n")
    kernel.run("%%ranks\nloss = 1\ndef model(): pass\nrank = 7")
    shown = kernel.text("%ranks start -n 1 --backend gloo")
    assert shown.endswith("The 1 rank before has ended, and their variables with them: loss, model, rank.\n")
    kernel.run("%%ranks\nfor i in range(10): globals()[f'x{i}'] = i")
    assert kernel.text("%ranks start -n 1 --backend gloo").endswith("x4, x5, x6 and 3 more.\n")
    kernel.run("%ranks stop")


def test_last_shows_the_last_cells_output_and_error_again(kernel):
    kernel.run("%ranks stop")
    kernel.run(
        "%%ranks\nprint('lost with its tab', rank)\nfrom IPython.display import HTML\nHTML('<b>')\n1 / 0"
    )
    first = kernel.text("%ranks last")
    assert first.startswith("[0] lost with its tab 0\n")
    assert "Ranks 0-3 raised ZeroDivisionError" in plain(first)
    kernel.run("%%ranks 17\n1")  # reaches no rank
    kernel.run("%ranks stop")
    assert kernel.text("%ranks last") == first
    kernel.run("%%ranks\nHTML = 1; from IPython.display import HTML\nHTML('<b>bold</b>')")
    assert [output.data["text/html"] for output in kernel.run("%ranks last")[1:]] == ["<b>bold</b>"]


def test_last_without_a_cell_says_so(kernel):
    kernel.run("%reload_ext fourranks")
    assert kernel.text("%ranks last") == "No cell has run on the ranks yet.\n"


def test_help_is_the_readmes_table_and_lists_all_options(kernel):
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    table = readme.partition("| in a notebook | |\n|---|---|\n")[2].partition("\n\n")[0]
    rows = tuple(tuple(line.strip("| ").split(" | ")) for line in table.splitlines())
    assert rows == commands.TABLE
    documentation = kernel.text("print(get_ipython().find_line_magic('ranks').__doc__)")
    assert kernel.text("print(get_ipython().find_cell_magic('ranks').__doc__)") == documentation
    for shown in (kernel.text("%ranks help"), kernel.text("%ranks --help"), kernel.text("%%ranks -h\n1")):
        for usage, effect in rows:
            assert usage.replace("`", "") in shown
            assert effect.replace("`", "") in " ".join(shown.split())
            assert usage.replace("`", "") in documentation
        for option in (
            "-n",
            "--backend",
            "--device",
            "--spawn",
            "--timeout",
            "--out",
            "--trace",
            "--steps",
            "--save-script",
            "--off",
        ):
            assert f" {option} " in shown
    assert max(map(len, documentation.splitlines())) <= 110  # JupyterLab breaks longer ones inside a word
    assert "| `%ranks last` |" in kernel.run("%ranks help")[0].data["text/markdown"]


@pytest.mark.parametrize("options", ["-n 10000", "--on ray --launcher ssh"])
def test_a_failed_start_leaves_the_old_world_alone(options, kernel):
    kernel.run("%%ranks\nkept = 5")
    assert "StartError" in str(kernel.run(f"%ranks start {options}"))
    assert kernel.text("%%ranks 0\nkept") == "[0] 5\n"


def test_a_killed_rank_is_named_and_restart_helps(kernel):
    shown = kernel.text(
        "%%ranks\nimport os, signal\nif rank == 2: os.kill(os.getpid(), signal.SIGKILL)\ndist.barrier()"
    )
    assert "Rank 2 was killed by SIGKILL" in shown
    kernel.run("%ranks restart")
    assert kernel.text("%%ranks\ndist.barrier()\n'whole'") == "[0-3] 'whole'\n"


def test_restart_starts_the_world_of_before_also_when_it_has_ended(kernel):
    kernel.run("import fourranks\n%ranks start -n 2\nbefore = fourranks.world()")
    kernel.run("%ranks stop")
    assert "2 ranks on Gloo are fresh again" in kernel.text("%ranks restart")
    assert kernel.text("before is fourranks.world(), before.run(lambda: 1)") == "(True, [1, 1])\n"


def test_unloading_the_extension_ends_every_process(kernel):
    children = "import psutil; len(psutil.Process().children(recursive=True))"
    kernel.run("%%ranks\npass")
    assert kernel.text("%unload_ext fourranks") == "The ranks have ended, and their variables with them.\n"
    assert kernel.text(children) == "0\n"
    assert kernel.text("%load_ext fourranks") == ""
    assert kernel.text("%%ranks\nrank").startswith("4 ranks on Gloo started for this cell.")


def test_a_kernel_that_waits_for_its_restart_with_an_old_ipython_is_told_so():
    kernel = Kernel(load=False)
    kernel.run("import IPython\nIPython.version_info, IPython.__version__ = (7, 34, 0, ''), '7.34.0'")
    shown = kernel.text("%load_ext fourranks")
    kernel.stop()
    needs = "UsageError: fourranks needs IPython 8.20 or newer, and this kernel runs 7.34.0: restart"
    assert shown.startswith(needs) and shown.count("\n") == 1


def test_in_the_courses_environment_ranks_work_before_the_extension_is_loaded(tmp_path, monkeypatch):
    profile = tmp_path / "profile_default"
    profile.mkdir()
    shutil.copy(Path(__file__).parents[2] / ".jupyter" / "ipython_kernel_config.py", profile)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    kernel = Kernel(load=False)
    assert kernel.text("%%ranks 0\nrank") == "4 ranks on Gloo started for this cell.\n[0] 0\n"
    kernel.stop()
