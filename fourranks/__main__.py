"""The command `fourranks`, also `python -m fourranks`: everything that can be done from a shell."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable, Collection, Sequence
from io import TextIOWrapper

from . import __version__, launch
from .command_output import ends_with_its_output
from .plan.command import add_options as add_plan_options
from .plan.command import main as plan_main


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        The exit code; 2 if the command cannot be read.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr does: ranks print any text
    with ends_with_its_output():
        return _run(arguments)


def _run(arguments: Sequence[str] | None) -> int:
    words = sys.argv[1:] if arguments is None else list(arguments)
    parser, commands = _parser()
    named = next((word for word in words if not word.startswith("-")), None)
    if named is not None and named not in commands:
        parser.error(_no_such_command(named, commands))
    options, unknown = parser.parse_known_args(words)
    if unknown:
        of_command = getattr(options, "parser", parser)  # its own usage names the options that there are
        of_command.error(f"unrecognized arguments: {' '.join(unknown)}")
    if options.command is None:
        parser.print_help()
        return 0
    return commands[options.command](options)


def _parser() -> tuple[argparse.ArgumentParser, dict[str, Callable[[argparse.Namespace], int]]]:
    """Describe the command line; returns its parser, and what each command calls."""
    parser = argparse.ArgumentParser(prog="fourranks", description="Four Ranks, from a shell.")
    parser.add_argument("--version", action="version", version=f"fourranks {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    doctor = commands.add_parser(
        "doctor",
        help="check whether this machine is fit for ranks and for the course",
        description="Check whether this machine is fit for ranks, and say what to do where it is not. "
        "The exit code is 1 if there is a problem.",
    )
    doctor.add_argument("--quick", action="store_true", help="leave out the bandwidth checks (20 s)")
    plan = commands.add_parser(
        "plan",
        help="predict step time and memory of a model on a cluster, without one",
        description="List the best plans for a model on a cluster, or predict a table of runs. The exit "
        "code is 1 if no plan fits or a row cannot be predicted, 2 if the arguments cannot be read.",
    )
    add_plan_options(plan)
    run = commands.add_parser(
        "run",
        help="run a program on ranks, as torchrun would, and explain its deadlocks",
        description="Run a script or a module on ranks, with the environment that torchrun gives it. What "
        "ranks print is shown with their number in front; ranks that would wait for each other forever are "
        "stopped, with the reason. The exit code is the program's: 0, or n of sys.exit(n); 1 after an "
        "error or a deadlock; 2 if it cannot be started; 130 after Ctrl-C; 128 + n if signal n ends it.",
    )
    launch.add_options(run)
    for each in (doctor, plan, run):
        each.set_defaults(parser=each)
    return parser, {"doctor": _doctor, "plan": plan_main, "run": launch.main}


def _no_such_command(named: str, commands: Collection[str]) -> str:
    alike = difflib.get_close_matches(named, commands, n=1)
    suggestion = f" Did you mean `fourranks {alike[0]}`?" if alike else ""
    return f"there is no command {named!r}.{suggestion} `fourranks --help` lists the commands."


def _doctor(options: argparse.Namespace) -> int:
    from . import doctor  # only when asked for: its checks take a while to import

    return doctor.main(options.quick)


if __name__ == "__main__":
    sys.exit(main())
