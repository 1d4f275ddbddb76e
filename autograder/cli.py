"""The command `autograder`: reads its arguments and calls the module that does the work."""

import argparse
from pathlib import Path


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="autograder", description="Build, check and grade the course.")
    commands = parser.add_subparsers(required=True, metavar="command")

    build = commands.add_parser("build", help="make lectures/, exercises/ and solutions/ from source/")
    build.add_argument("--check", action="store_true", help="change nothing; exit 1 if they are out of date")
    build.set_defaults(run=_build)

    options = parser.parse_args(arguments)
    return options.run(options)


def _build(options: argparse.Namespace) -> int:
    from autograder import build

    return build.check(Path.cwd()) if options.check else build.build(Path.cwd())
