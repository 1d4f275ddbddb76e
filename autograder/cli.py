"""The command `autograder`: reads its arguments and calls the module that does the work.

That is imported when a command runs, so that none waits for the libraries of another, or needs them.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import TypeAlias

from fourranks.command_output import ends_with_its_output

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return the exit status."""
    with ends_with_its_output():
        return _run(arguments)


def _run(arguments: list[str] | None) -> int:
    parser = argparse.ArgumentParser(prog="autograder", description="Build, check and grade the course.")
    commands = parser.add_subparsers(required=True, metavar="command")
    for add in (_add_build, _add_check, _add_bundle, _add_collect, _add_grade, _add_report):
        add(commands)
    options = parser.parse_args(arguments)
    if os.path.expanduser("~") == "~":  # which Jupyter needs when it is imported
        print("autograder needs a home folder: set the environment variable HOME to one.", file=sys.stderr)
        return 2
    try:
        status: int = options.run(options)
        return status
    except ModuleNotFoundError as error:
        if (error.name or "").startswith(("autograder", "fourranks")):
            raise
        extra = "ray" if error.name == "ray" else "course"
        print(f"autograder needs {error.name}: pip install 'fourranks[{extra}]'", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return 130


def _add_build(commands: Commands) -> None:
    parser = commands.add_parser("build", help="make lectures/, exercises/ and solutions/ from source/")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if they are out of date")
    parser.set_defaults(run=_build)


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


def _add_check(commands: Commands) -> None:
    parser = commands.add_parser("check", help="run an exercise's checks and show the score")
    parser.add_argument("exercise", type=Path, help="a folder or notebook, such as exercises/02_collectives")
    parser.set_defaults(run=_check)


def _check(options: argparse.Namespace) -> int:
    from autograder.grading.score import ScoreError, check

    try:
        return 0 if check(options.exercise) else 1
    except ScoreError as error:
        print(error, file=sys.stderr)
        return 2


def _add_bundle(commands: Commands) -> None:
    parser = commands.add_parser("bundle", help="make the zip to hand out: no solutions, no hidden tests")
    parser.add_argument("path", type=Path, nargs="?", default=Path(), help="the zip, or a folder for it")
    parser.add_argument(
        "--gradescope",
        metavar="ASSIGNMENT",
        default="",
        help="make the zip with which Gradescope grades this assignment",
    )
    parser.set_defaults(run=_bundle)


def _bundle(options: argparse.Namespace) -> int:
    from autograder.grading.bundle import NAME, BundleError, write, write_gradescope
    from autograder.grading.submission import SubmissionError
    from autograder.notebooks.source import SourceError

    name = f"gradescope_{options.gradescope}.zip" if options.gradescope else NAME
    path = options.path / name if options.path.is_dir() else options.path
    try:
        if options.gradescope:
            write_gradescope(Path.cwd(), options.gradescope, path)
        else:
            write(Path.cwd(), path)
    except (BundleError, SourceError, SubmissionError) as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(
            f"{path.absolute()} cannot be made: {error}. Name another place: autograder bundle PATH.",
            file=sys.stderr,
        )
        return 1
    what = (
        "upload it to Gradescope; it contains hidden tests"
        if options.gradescope
        else "hand it out to students"
    )
    print(f"made {path}: {what}")
    return 0


def _add_collect(commands: Commands) -> None:
    parser = commands.add_parser(
        "collect", help="copy what was downloaded from Moodle or Canvas to submitted/"
    )
    parser.add_argument("assignment", help="such as 02_collectives")
    parser.add_argument("download", type=Path, help="a zip or a folder")
    parser.add_argument(
        "--names", metavar="PATTERN", help="regex for paths in the download, with (?P<student>...)"
    )
    parser.add_argument(
        "--worksheet",
        type=Path,
        metavar="CSV",
        help="Moodle's: name students by e-mail address",
    )
    parser.set_defaults(run=_collect)


def _collect(options: argparse.Namespace) -> int:
    from autograder.grading.collect import PLATFORMS, CollectError, collect

    try:
        problems = collect(
            Path.cwd(), options.assignment, options.download, options.names or PLATFORMS, options.worksheet
        )
    except CollectError as error:
        print(error, file=sys.stderr)
        return 2
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def _add_grade(commands: Commands) -> None:
    parser = commands.add_parser("grade", help="grade what a class handed in, into the gradebook")
    parser.add_argument("assignment", help="such as 02_collectives")
    parser.add_argument("--jobs", type=_count, metavar="N", help="submissions at a time (default: what fits)")
    parser.add_argument("--students", type=_names, default=[], metavar="A,B", help="grade only these")
    parser.add_argument(
        "--only", default="", metavar="CHECK", help="run only this check; keep the records of all others"
    )
    parser.add_argument("--force", action="store_true", help="grade unchanged submissions again, too")
    parser.add_argument(
        "--secret",
        "--seed",
        default="",
        metavar="SECRET",
        help="draw all inputs from it, to repeat a run",
    )
    parser.add_argument("--on", choices=("ray",), help="run submissions on the nodes of a cluster, not here")
    parser.add_argument(
        "--gpus-per-submission",
        type=_count,
        default=0,
        metavar="N",
        help="GPUs that Ray reserves for each",
    )
    tier = parser.add_mutually_exclusive_group()
    tier.add_argument(
        "--tier",
        choices=("namespaces", "landlock"),
        default="",
        help="kind of sandbox (default: the strongest)",
    )
    tier.add_argument(
        "--no-sandbox",
        action="store_const",
        const="none",
        dest="tier",
        help="run students' code with all your rights: it can forge grades",
    )
    parser.add_argument(
        "--backend",
        choices=("gloo", "nccl"),
        default="gloo",
        help="nccl: run every check on NCCL, too, on this machine's GPUs; an answer must pass on both",
    )
    parser.set_defaults(run=_grade)


def _grade(options: argparse.Namespace) -> int:
    from autograder.grading.grade import Machines, grade
    from autograder.grading.gradebook import ClassError

    if options.gpus_per_submission and not options.on:
        print("--gpus-per-submission is for a cluster: add --on ray.", file=sys.stderr)
        return 2
    try:
        return grade(
            Path.cwd(),
            options.assignment,
            Machines(options.jobs, options.on == "ray", options.gpus_per_submission),
            students=options.students,
            only=options.only,
            force=options.force,
            secret=options.secret,
            tier=options.tier,
            backend=options.backend,
        )
    except ClassError as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"Grading cannot read or write a file that it needs: {error}", file=sys.stderr)
        return 2


def _add_report(commands: Commands) -> None:
    parser = commands.add_parser("report", help="write a page about a graded class, and one for each student")
    parser.add_argument("assignment", help="such as 02_collectives")
    parser.add_argument("--anonymous", action="store_true", help="leave names out of the ranking by cost")
    parser.set_defaults(run=_report)


def _report(options: argparse.Namespace) -> int:
    from autograder.grading.gradebook import ClassError
    from autograder.grading.report import report
    from autograder.grading.submission import SubmissionError

    try:
        print(report(Path.cwd(), options.assignment, options.anonymous))
    except (ClassError, SubmissionError) as error:  # the latter of what was handed out
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"The report cannot be written: {error}", file=sys.stderr)
        return 2
    return 0


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise argparse.ArgumentTypeError("name at least one student, or leave --students out for everybody")
    return names
