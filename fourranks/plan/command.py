"""The command `fourranks plan`: its options, and what it prints."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from .cluster import GPUS, Cluster, PlanError, find_gpu
from .layout import RECOMPUTE, SCHEDULES
from .predict import predict_file
from .report import plan_table, summary, write_predictions
from .search import ALL, Choices, candidates, too_large, usual_batch
from .transformer import MODELS, Transformer, find_model

_NUMBERS = {
    "layers": "transformer layers",
    "hidden": "width of the model",
    "heads": "attention heads",
    "kv_heads": "heads of keys and values (as many as --heads)",
    "ffn": "width inside the MLP (4 times --hidden)",
    "sequence": "tokens of a sequence (2048)",
    "vocabulary": "tokens of the vocabulary (51200)",
    "experts": "experts of each layer (1: no mixture of experts)",
    "active_experts": "experts that a token goes to (1)",
}
_USUAL = {"gpus": 8, "gpu": "h100", "top": 10}
_OF_THE_SEARCH = ("model", *_NUMBERS, "gated", *_USUAL, "batch", "schedule", "zero", "recompute")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe the options of `fourranks plan`."""
    parser.add_argument("--model", help=f"one of {', '.join(MODELS)}; or give --layers, --hidden, --heads")
    for name, meaning in _NUMBERS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, metavar="N", help=meaning)
    parser.add_argument(
        "--gated", action="store_true", default=None, help="the MLP has three matrices (SwiGLU)"
    )
    parser.add_argument("--gpus", type=int, metavar="N", help="how many GPUs (8)")
    parser.add_argument("--gpu", help=f"one of {', '.join(GPUS)} (h100)")
    parser.add_argument("--batch", type=int, metavar="N", help="sequences a step (4 times the GPUs)")
    parser.add_argument("--top", type=int, metavar="N", help="plans to list (10)")
    parser.add_argument("--schedule", choices=SCHEDULES, help=f"instead of all of {', '.join(ALL.schedules)}")
    parser.add_argument("--zero", type=int, choices=range(4), help="stage of ZeRO, instead of 1 to 3")
    parser.add_argument("--recompute", choices=RECOMPUTE, help=f"instead of {' and '.join(ALL.recompute)}")
    parser.add_argument("--predict", type=Path, metavar="CSV", help="instead, predict the runs of a table")


def main(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code, 2 if it cannot be done, 1 if no plan fits or a row is bad."""
    try:
        return _predict(options) if options.predict else _list(options)
    except PlanError as error:
        print(f"fourranks plan: {error}", file=sys.stderr)
        return 2


def _predict(options: argparse.Namespace) -> int:
    path: Path = options.predict
    if given := [name for name in _OF_THE_SEARCH if getattr(options, name) is not None]:
        option = given[0].replace("_", "-")
        raise PlanError(f"--{option} has no place beside --predict: each row of {path} has its own values")
    found = predict_file(path)
    write_predictions(found, sys.stdout)
    bad = [each for each in found if each.problem]
    for each in bad:
        print(f"{path}, line {each.line}: {each.problem}", file=sys.stderr)
    print(summary(found), file=sys.stderr)
    return 1 if bad else 0


def _list(options: argparse.Namespace) -> int:
    for name, usual in _USUAL.items():
        if getattr(options, name) is None:
            setattr(options, name, usual)
    model, cluster = _model(options), Cluster(find_gpu(options.gpu), options.gpus)
    batch = usual_batch(cluster) if options.batch is None else options.batch
    if batch < 1 or options.top < 1:
        raise PlanError("--batch and --top must be at least 1")
    found = candidates(model, cluster, batch, _choices(options))
    billions = model.parameters / 1e9
    size = f"{billions:,.0f}" if billions >= 100 else f"{billions:.3g}"
    print(f"{model.name}, {size} billion parameters, {cluster.gpus} x {cluster.gpu.name}, "
          f"{batch} sequences of {model.sequence} a step: {len(found)} plans")  # fmt: skip
    print(plan_table(found[: options.top]))
    if found[0].estimate.fits:
        return 0
    closest = min(found, key=lambda each: each.estimate.memory.total)
    print(f"No plan fits. The one that needs least: {too_large(closest)}.")
    return 1


def _choices(options: argparse.Namespace) -> Choices:
    """Return what plans may differ in: one of each option that was given, else all."""
    given = {"schedules": options.schedule, "stages": options.zero, "recompute": options.recompute}
    return ALL._replace(**{name: (value,) for name, value in given.items() if value is not None})


def _model(options: argparse.Namespace) -> Transformer:
    given = {
        name: getattr(options, name) for name in (*_NUMBERS, "gated") if getattr(options, name) is not None
    }
    if options.model:
        return replace(find_model(options.model), **given)
    if missing := [f"--{name}" for name in ("layers", "hidden", "heads") if name not in given]:
        raise PlanError(f"give a --model, or its numbers: {', '.join(missing)} missing")
    return Transformer(**given)
