"""The grammar of the lines of `%ranks` and `%%ranks`: actions, options, help, and likely slips.

`magics` carries out what is read here. The table is the README's.
"""

from __future__ import annotations

import argparse
import difflib
import functools
import keyword
import shlex
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from IPython.core.error import UsageError

from .nodes.names import RAY
from .workers import MAX_WORLD_SIZE

TABLE = (
    ("`%%ranks 0,2-3 --timeout 30`", "runs on some ranks, for at most 30 seconds"),
    (
        "`%%ranks --trace`",
        "draws who computed, communicated and waited, with each rank's bubble, above a table with bandwidths "
        "as nccl-tests counts them",
    ),
    ("`%%ranks --steps x`", "shows round by round who sent what to whom, and what `x` held on every rank"),
    (
        "`%%ranks --out loss`",
        "brings `loss` back as a list, one entry a rank; `%ranks push x` sends a variable",
    ),
    (
        "`%ranks auto`",
        "from now on runs every cell that begins with code on all ranks, without `%%ranks`; "
        "`%ranks auto --off` ends that",
    ),
    (
        "`%%ranks --save-script train.py`",
        "runs the cell and saves it as a program for torchrun, with nothing of this package in it",
    ),
    (
        "`%ranks dashboard`",
        "shows live what each rank does and waits for; its buttons work in the middle of a cell; with "
        "`--side` it stands beside the notebook, in JupyterLab",
    ),
    (
        "`fourranks.progress(range(1000))`",
        "in a cell, after `import fourranks` in it: one bar for all ranks, with the slowest named",
    ),
    (
        "`%ranks start -n 8 --device cuda`",
        "eight ranks; with fewer GPUs than ranks these share them, over Gloo",
    ),
    (
        "`%ranks start --backend nccl`",
        "ranks on NCCL; with fewer GPUs than ranks these share them, from NCCL 2.30 on",
    ),
    (
        "`%ranks start -n 8 --nodes hostA,hostB`",
        "ranks on two machines that ssh reaches, or srun in a Slurm allocation: docs/clusters.md",
    ),
    ("`%ranks start -n 8 --on ray`", "ranks on the nodes of a Ray cluster: docs/clusters.md"),
    ("`%ranks`, `%ranks restart`, `%ranks stop`", "lists the ranks, starts them afresh, ends them"),
    ("`%ranks last`", "shows again what the last cell showed, for instance after its tab was closed"),
    ("`%ranks help`", "shows this table"),
)
ACTIONS = ("status", "start", "stop", "restart", "push", "auto", "dashboard", "last", "help")
Names = Callable[[str], Iterable[str]]
_OWN_OPTIONS = {"--side": "dashboard", "--off": "auto"}  # of actions other than start
_WIDTH = 110  # characters of a line of help: JupyterLab would break a longer one inside a word
BACKENDS, DEVICES = ("auto", "gloo", "nccl"), ("auto", "cpu", "cuda")


def help_text() -> str:
    """Return the table and all options as plain text."""
    plain = [(usage.replace("`", ""), effect.replace("`", "")) for usage, effect in TABLE]
    return "\n".join([*_columns(plain), "", *_columns(_options())])


def help_markdown() -> str:
    """Return the same as Markdown."""
    rows = [*TABLE, *((f"`{usage}`", effect) for usage, effect in _options())]
    return "\n".join(["| in a notebook | |", "|---|---|", *(f"| {usage} | {does} |" for usage, does in rows)])


def _columns(rows: Sequence[tuple[str, str]]) -> list[str]:
    width = max(len(left) for left, _ in rows) + 2
    below = f"\n{' ' * width}"
    return [f"{left:{width}}{below.join(textwrap.wrap(right, _WIDTH - width))}" for left, right in rows]


def _options() -> list[tuple[str, str]]:
    """List the options of `%ranks` and `%%ranks`."""
    line = [
        (f"%ranks {_action_of(option.option_strings[0])}", option) for option in _optional(_line_parser())
    ]
    cell = [("%%ranks", option) for option in _optional(_cell_parser())]
    return [
        (f"{magic} {option.option_strings[0]}", f"{option.help}{_choices(option)}")
        for magic, option in line + cell
    ]


def _optional(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [option for option in parser._actions if option.option_strings]


def _action_of(option: str) -> str:
    """Name the action of `%ranks` that takes this option."""
    return _OWN_OPTIONS.get(option, "start")


def _choices(option: argparse.Action) -> str:
    return f": {', '.join(option.choices)}" if option.choices else ""


def asks_for_help(line: str) -> bool:
    """Return whether a line asks for help as command lines do."""
    return bool({"-h", "--help"} & set(_words(line)))


def _words(line: str) -> list[str]:
    """Split a line as a shell does, without a comment at its end.

    Raises:
        UsageError: a quotation has no end.
    """
    try:
        return shlex.split(line, comments=True)
    except ValueError as error:
        raise UsageError(f"This line cannot be read: {line.strip()}. {error}.") from None


class _Parser(argparse.ArgumentParser):
    def __init__(self, prog: str) -> None:
        # `--n 8` would stand for --nodes, and reach for a machine of that name.
        super().__init__(prog=prog, add_help=False, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}. `%ranks help` shows all options.")


def add_start_options(parser: argparse.ArgumentParser, backend: str) -> None:
    """Describe the options that start ranks, of `%ranks start` and of `fourranks run`.

    Args:
        backend: the help text of that option.
    """
    parser.add_argument("-n", "--world-size", type=int, default=4, help="number of ranks (4)")
    parser.add_argument("--backend", choices=BACKENDS, default="auto", help=backend)
    parser.add_argument("--device", choices=DEVICES, default="auto", help="the device of the ranks' tensors")
    parser.add_argument("--spawn", action="store_true", help="fresh processes instead of forks: slower")
    parser.add_argument("--nodes", metavar="NAMES", help="machines for the ranks, for instance hostA,hostB:4")
    parser.add_argument(
        "--launcher", metavar="NAME", help="how to reach them: ssh, srun, or a command with {node}"
    )
    parser.add_argument("--on", choices=(RAY,), help="let a Ray cluster choose the machines")


def start_arguments(options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `fourranks.start` that these options stand for."""
    return {
        "world_size": options.world_size,
        "backend": options.backend,
        "device": options.device,
        "start_method": "spawn" if options.spawn else "auto",
        "nodes": options.nodes,
        "launcher": options.launcher,
        "on": options.on,
    }


@functools.cache
def _line_parser() -> _Parser:
    parser = _Parser("%ranks")
    parser.add_argument("action", nargs="?", default="status", help="what to do")
    parser.add_argument("names", nargs="*", help="with push: the notebook's variables to send to all ranks")
    add_start_options(parser, backend="what moves tensors")
    parser.add_argument("--side", action="store_true", help="beside the notebook, in JupyterLab")
    parser.add_argument("--off", action="store_true", help="cells run in the notebook again")
    return parser


@functools.cache
def _cell_parser() -> _Parser:
    parser = _Parser("%%ranks")
    parser.add_argument("ranks", nargs="?", type=_parse_ranks, help="which ranks, for instance 0,2-3 (all)")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="stop the cell after this time")
    parser.add_argument(
        "--out",
        type=_parse_names,
        default=[],
        metavar="NAMES",
        help="bring these variables of the ranks back, each as a list in rank order",
    )
    parser.add_argument("--trace", action="store_true", help="show what the ranks communicated")
    parser.add_argument(
        "--steps",
        type=_parse_name,
        metavar="NAME",
        help="show round by round who sent what to whom, and what this variable held",
    )
    parser.add_argument(
        "--save-script",
        type=_parse_file,
        metavar="FILE",
        help="save the cell as a program that torchrun starts, and run it",
    )
    return parser


def parse_line(line: str, has_code_below: bool) -> argparse.Namespace:
    """Read a `%ranks` line.

    Args:
        line: the text after `%ranks`.
        has_code_below: whether it is the first line of a cell that goes on with code.

    Raises:
        UsageError: with the line that was probably meant.
    """
    words = ["help"] if asks_for_help(line) else _words(line)
    if has_code_below and not (words and words[0] in ACTIONS) and _is_for_a_cell(words):
        meant = " ".join(["%%ranks", *words])
        raise UsageError(f"One % does not run the code below on the ranks. Did you mean `{meant}`, with two?")
    options = _line_parser().parse_intermixed_args(words)
    options.names = [name for word in options.names for name in word.split(",") if name]
    if options.action not in ACTIONS:
        meant = _corrected([options.action, *options.names])
        raise UsageError(f"%ranks: there is no action {options.action}.{meant} `%ranks help` lists them all.")
    if options.action != "push":
        _require_no_names(options)
    _require_own_options(options, words)
    return options


def _require_no_names(options: argparse.Namespace) -> None:
    if options.names:
        meant = _corrected(options.names) if options.action in ("start", "status", "restart") else ""
        raise UsageError(f"%ranks {options.action} takes no names: {' '.join(options.names)}.{meant}")


def _require_own_options(options: argparse.Namespace, words: Sequence[str]) -> None:
    given = [word for word in words if word.startswith("-") and _action_of(word) != options.action]
    if given:
        action = _action_of(given[0])
        fit = [word for word in words if word not in ACTIONS and _action_of(word) == action]
        meant = " ".join(["%ranks", action, *fit])
        raise UsageError(f"%ranks {options.action} takes no {given[0]}. Did you mean `{meant}`?")


def parse_cell_line(line: str) -> argparse.Namespace:
    """Read what follows `%%ranks` on its line.

    Raises:
        UsageError: it cannot be read.
    """
    words = _words(line)
    if elsewhere := [word for word in words if word in _line_parser()._option_string_actions]:
        raise UsageError(
            f"%%ranks takes no {elsewhere[0]}: it is an option of `%ranks start`, in a cell of its own."
        )
    return _cell_parser().parse_args(words)


def completions(before: str, notebook: Names, ranks: Names) -> tuple[str, list[str]]:
    """Find what may stand at the end of an unfinished `%ranks` or `%%ranks` line.

    Args:
        before: the line up to the cursor.
        notebook: lists the notebook's variables that begin with a text.
        ranks: lists the ranks' variables that do.

    Returns:
        The last word as far as it is typed, and what it may become.
    """
    magic, *words, word = before.lstrip().split(" ")
    words = [each for each in words if each]
    parser = _cell_parser() if magic == "%%ranks" else _line_parser()
    found = parser._option_string_actions.get(words[-1]) if words else None
    offered: Iterable[str]
    if found is not None and found.nargs == 0:  # it takes no value
        found = None
    if found is not None and found.dest in ("out", "steps"):
        word = word.rpartition(",")[2]
        offered = ranks(word)
    elif found is not None:
        offered = found.choices or ()
    elif word.startswith("-"):
        taken = parser._option_string_actions
        offered = taken if magic == "%%ranks" else [each for each in taken if words[:1] == [_action_of(each)]]
    elif magic == "%ranks" and not words:
        offered = ACTIONS
    else:
        offered = notebook(word) if words[:1] == ["push"] else ()
    return word, sorted(each for each in offered if each.startswith(word))


def kind_of(word: str) -> str:
    """Say what a word on such a line is, in the terms of IPython's completions."""
    return "param" if word.startswith("-") else "magic" if word in ACTIONS else "instance"


def _corrected(words: list[str]) -> str:
    """Suggest the line that was meant by words in a wrong place."""
    options = []
    for word in words:
        if word.isdecimal():
            options.append(f"-n {word}")
        elif word in BACKENDS:
            options.append(f"--backend {word}")
        elif word in DEVICES:
            options.append(f"--device {word}")
        elif alike := difflib.get_close_matches(word, ACTIONS, n=1):
            return f" Did you mean `%ranks {' '.join(alike)}`?"
        else:
            return ""
    return f" Did you mean `%ranks start {' '.join(options)}`?"


def _is_for_a_cell(words: list[str]) -> bool:
    try:
        _cell_parser().parse_args(words)
    except UsageError:
        return False
    return True


def _parse_ranks(text: str) -> list[int]:
    try:
        return sorted({rank for part in text.split(",") for rank in _span(*map(int, part.split("-")))})
    except (ValueError, TypeError):  # TypeError: more than two numbers
        raise argparse.ArgumentTypeError(f"{text!r} does not name ranks; write for instance 0,2-3") from None


def _span(first: int, last: int | None = None) -> range:
    """Return the ranks that `2-3` names: one at least, and no more than a world can have."""
    span = range(first, (first if last is None else last) + 1)
    if not 1 <= len(span) <= MAX_WORLD_SIZE:
        raise ValueError(span)
    return span


def _parse_name(text: str) -> str:
    if not _is_variable(text):
        raise argparse.ArgumentTypeError(f"{text!r} does not name a variable; write for instance x")
    return text


def _parse_names(text: str) -> list[str]:
    names = text.split(",")
    if not all(map(_is_variable, names)):
        raise argparse.ArgumentTypeError(f"{text!r} does not name variables; write for instance loss,model")
    return names


def _is_variable(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name)


def _parse_file(text: str) -> Path:
    if not text.endswith(".py"):
        raise argparse.ArgumentTypeError(f"{text!r} does not name a program; write for instance train.py")
    return Path(text)
