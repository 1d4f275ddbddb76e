"""The command `autograder`: reads its arguments and calls the module that does the work."""

import argparse
import sys
from pathlib import Path


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="autograder", description="Build, check and grade the course.")
    commands = parser.add_subparsers(required=True, metavar="command")

    build = commands.add_parser("build", help="make lectures/, exercises/ and solutions/ from source/")
    build.add_argument("--check", action="store_true", help="change nothing; exit 1 if they are out of date")
    build.set_defaults(run=_build)

    check = commands.add_parser("check", help="run an exercise's checks and show the score")
    check.add_argument("exercise", type=Path, help="a folder or notebook, such as exercises/02_collectives")
    check.set_defaults(run=_check)

    options = parser.parse_args(arguments)
    return options.run(options)


def _build(options: argparse.Namespace) -> int:
    from autograder.notebooks.build import build, check
    from autograder.notebooks.source import SourceError

    try:
        problems = check(Path.cwd()) if options.check else build(Path.cwd())
    except SourceError as error:
        problems = [str(error)]
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems and options.check:
        print("\nRun `make build` and commit what it changes.", file=sys.stderr)
    return 1 if problems else 0


def _check(options: argparse.Namespace) -> int:
    from autograder.score import ScoreError, check

    try:
        return 0 if check(options.exercise) else 1
    except ScoreError as error:
        print(error, file=sys.stderr)
        return 2
