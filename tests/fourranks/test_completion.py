"""Tab and Shift-Tab in `%%ranks` cells, as JupyterLab asks a real kernel for them."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from fourranks import conductor
from fourranks.errors import plain
from fourranks.protocol.messages import Complete, Inspect

from .test_life_and_death import wait_until
from .test_magics import Kernel

PATIENCE = 2  # seconds for an answer, which takes longer than a reader would wait where the machine is busy
MODEL = """%%ranks
class Model:
    'A model that only ranks have.'
    def forward(self, batch, scale=3):
        'Run it.'
        return batch * scale
model = Model()
model.weight = torch.ones(3)
only_rank_0 = model if rank == 0 else None
"""


class Editor:
    """JupyterLab's editor asks the kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self._client = kernel.km.blocking_client()
        self._client.start_channels()
        self.stop = self._client.stop_channels

    def tab(self, text: str) -> list[str]:
        """The cell as it may become, for a cursor at `|`."""
        before, _, after = text.partition("|")
        reply = self._client.complete(before + after, len(before), reply=True, timeout=60)["content"]
        assert reply["status"] == "ok"
        assert reply["cursor_end"] == len(before)
        return [before[: reply["cursor_start"]] + match + "|" + after for match in reply["matches"]]

    def menu(self, text: str) -> list[dict]:
        """The entries of JupyterLab's menu, for a cursor at the end."""
        reply = self._client.complete(text.rstrip("|"), len(text) - 1, reply=True, timeout=60)["content"]
        return reply["metadata"]["_jupyter_types_experimental"]

    def shift_tab(self, text: str, detail_level: int = 0) -> str | None:
        before, _, after = text.partition("|")
        reply = self._client.inspect(before + after, len(before), detail_level, reply=True, timeout=60)
        content = reply["content"]
        assert content["status"] == "ok"
        return plain(content["data"]["text/plain"]) if content["found"] else None


@pytest.fixture(scope="module")
def kernel():
    kernel = Kernel()
    kernel.run(f"import fourranks.conductor\nfourranks.conductor.ANSWER_PATIENCE = {PATIENCE}")
    kernel.run("here = 5")
    kernel.run(MODEL)
    yield kernel
    kernel.stop()


@pytest.fixture(scope="module")
def editor(kernel):
    editor = Editor(kernel)
    yield editor
    editor.stop()


@pytest.mark.parametrize(
    ("text", "completed"),
    [
        ("%%ranks\nmodel.f|", "%%ranks\nmodel.forward|"),
        (
            "%%ranks 2-3 --timeout 5\ny = only_r|\nprint(y)",
            "%%ranks 2-3 --timeout 5\ny = only_rank_0|\nprint(y)",
        ),
        ("%%ranks\nfor x in model.weight.toli|:", "%%ranks\nfor x in model.weight.tolist|:"),
        ("%%ranks\nmodel.forward(sc|", "%%ranks\nmodel.forward(scale=|"),
        ("%%ranks\n%%timei|", "%%ranks\n%%timeit|"),
        ("%%rank|", "%%ranks|"),
        ("her|", "here|"),
    ],
)
def test_tab_completes_from_rank_0_in_a_ranks_cell_and_as_usual_elsewhere(editor, text, completed):
    assert completed in editor.tab(text)


def test_tab_and_shift_tab_ask_rank_0_where_every_cell_runs_on_the_ranks(kernel, editor):
    kernel.run("%ranks auto")
    try:
        assert editor.tab("y = 1\nmodel.f|") == ["y = 1\nmodel.forward|"]
        assert "A model that only ranks have." in editor.shift_tab("Mod|el")
        assert editor.tab("%%time\nher|") == ["%%time\nhere|"]
    finally:
        kernel.run("%ranks auto --off")
    assert editor.tab("model.f|") == []


@pytest.mark.parametrize(
    ("text", "completed"),
    [
        ("%ranks |", ["auto", "dashboard", "help", "last", "push", "restart", "start", "status", "stop"]),
        ("%ranks re|", ["restart"]),
        ("x = 1\n%ranks sta|", ["start", "status"]),
        ("%ranks start --b|", ["--backend"]),
        ("%ranks dashboard --|", ["--side"]),
        ("%ranks auto --|", ["--off"]),
        ("%ranks start --backend |", ["auto", "gloo", "nccl"]),
        ("%ranks start -n 2 --device cu|", ["cuda"]),
        ("%ranks push her|", ["here"]),
        ("%ranks push here notebook_|", ["notebook_only"]),
        ("%%ranks --t|", ["--timeout", "--trace"]),
        ("%%ranks 0-2 --steps model|\nx", ["model"]),
        ("%%ranks --out only_rank_0,mod|", ["model"]),
    ],
)
def test_tab_completes_actions_options_and_variables_of_a_magics_line(kernel, editor, text, completed):
    kernel.run("notebook_only = 1")
    before, _, after = text.partition("|")
    words = [each.partition("|")[0] for each in editor.tab(text)]
    start = before.replace(",", " ").rpartition(" ")[0]
    assert [word[len(start) + 1 :] for word in words] == completed


@pytest.mark.parametrize(
    ("text", "kind"), [("%ranks sto|", "magic"), ("%%ranks --tr|", "param"), ("%ranks push her|", "instance")]
)
def test_the_menu_of_a_magics_line_says_of_what_kind_a_word_is(editor, text, kind):
    assert [each["type"] for each in editor.menu(text)] == [kind]


def test_names_of_the_ranks_are_offered_in_no_other_cell(editor):
    assert editor.tab("only_r|") == []


def test_shift_tab_shows_signature_docstring_value_and_source_of_what_rank_0_has(editor):
    shown = editor.shift_tab("%%ranks\nmodel.forward(|")
    assert "model.forward(batch, scale=3)" in shown
    assert "Run it." in shown
    assert "tensor([1., 1., 1.])" in editor.shift_tab("%%ranks\nmodel.weight|\n1")
    assert "return batch * scale" in editor.shift_tab("%%ranks\nmodel.forward|", detail_level=1)
    assert editor.shift_tab("%%ranks\nhere|") is None


def test_shift_tab_shows_the_notebooks_own_objects_in_other_cells_and_in_the_first_line(editor):
    assert "Run a cell on the ranks" in editor.shift_tab("%%ran|ks\nmodel")
    assert "int" in editor.shift_tab("here|")
    assert editor.shift_tab("model|") is None


def test_a_question_mark_in_a_ranks_cell_shows_the_ranks_object(kernel):
    assert "[0-3] Docstring:   A model that only ranks have." in plain(kernel.text("%%ranks\nmodel?"))
    assert "return batch * scale" in plain(kernel.text("%%ranks 1\nmodel.forward??"))


def test_an_object_that_never_answers_costs_a_moment_and_nothing_else(kernel, editor):
    kernel.run(
        "%%ranks\nimport time\nclass Mute:\n    def __dir__(self): time.sleep(600)\n"
        "    __repr__ = __dir__\nmute = Mute()"
    )
    assert editor.tab("%%ranks\nmute.x|") == []
    editor.shift_tab("%%ranks\nmute|")
    assert editor.tab("%%ranks\nmodel.f|") == ["%%ranks\nmodel.forward|"]
    assert kernel.text("%%ranks\n'fine'") == "[0-3] 'fine'\n"


def test_without_rank_0_the_notebook_answers_and_no_world_is_started(kernel, editor):
    pid = int(kernel.text("import fourranks; fourranks.world().status()[0].pid"))
    os.kill(pid, signal.SIGKILL)
    assert editor.tab("%%ranks\nhere.bit_l|") == ["%%ranks\nhere.bit_length|"]
    kernel.run("%ranks stop")
    assert editor.tab("%%ranks\nhere.bit_l|") == ["%%ranks\nhere.bit_length|"]
    assert "int" in editor.shift_tab("%%ranks\nhere|")
    assert "No ranks are running" in kernel.text("%ranks")


def test_unloading_the_extension_gives_tab_and_shift_tab_back(kernel, editor):
    kernel.run("%unload_ext fourranks")
    kernel.run("shell = get_ipython()")
    assert (
        kernel.text("shell.Completer.custom_matchers, vars(shell.kernel).get('do_inspect')") == "([], None)\n"
    )
    assert "int" in editor.shift_tab("%%ranks\nhere|")
    kernel.run("%load_ext fourranks")
    kernel.run(MODEL)
    assert editor.tab("%%ranks\nmodel.f|") == ["%%ranks\nmodel.forward|"]


def test_a_question_while_another_thread_runs_a_cell_is_not_answered(group, tmp_path, monkeypatch):
    monkeypatch.setattr(conductor, "ANSWER_PATIENCE", PATIENCE)
    cell = f"import os\nwhile not os.path.exists({str(tmp_path / 'go')!r}): pass"
    thread = threading.Thread(target=group.execute, args=[cell])
    thread.start()
    assert wait_until(lambda: group.busy)
    assert group.ask(Complete("ran", 3)) is None
    (tmp_path / "go").touch()
    thread.join()
    assert group.ask(Complete("ran", 3)) == ("ran", [("range", "variable"), ("rank", "variable")])


def test_rank_0_answers_while_a_thread_of_it_computes(group):
    group.execute(
        "import threading\nthreading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()"
    )
    assert wait_until(lambda: group.ask(Inspect("rank", 0, ())))
