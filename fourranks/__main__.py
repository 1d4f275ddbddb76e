"""`python -m fourranks`: what can be done from a shell."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m fourranks", description="Four Ranks, from a shell.")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    doctor = commands.add_parser(
        "doctor",
        help="check whether this machine is fit for the course",
        description="Check whether this machine is fit for the course, and say what to do where it is not.",
    )
    doctor.add_argument("--quick", action="store_true", help="leave out the bandwidth checks (20 s)")
    doctor.set_defaults(command=_doctor)
    options = parser.parse_args(arguments)
    if not hasattr(options, "command"):
        parser.print_help()
        return 0
    return options.command(options)


def _doctor(options: argparse.Namespace) -> int:
    from . import doctor  # only when asked for: it imports torch

    return doctor.main(options.quick)


if __name__ == "__main__":
    sys.exit(main())
