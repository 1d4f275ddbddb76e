"""Tables of training runs: each row read as model, cluster and plan, and predicted.

Two kinds are known by their columns: published runs, and Megatron's iteration times as published with vTrain.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from .cluster import Cluster, PlanError, find_gpu
from .layout import RECOMPUTE, Plan
from .search import USUAL, best_plan
from .step import estimate_step
from .transformer import Transformer, find_model

VTRAIN_COLUMNS = {
    "# GPUs": "gpus", "global batch": "global_batch_seqs", "micro batch": "micro_batch",
    "hidden size": "hidden", "attention heads": "heads", "# layers": "layers", "sequence length": "seq",
    "tensor parallelism": "tp", "data parallelism": "dp", "pipeline parallelism": "pp",
    "iteration time (ms)": "step_time_ms", "Parameters (billion)": "params_B",
}  # fmt: skip
NEEDED = {"gpus", "global_batch_seqs"}
NEAR = 0.08  # below this, the rounding of "8B" explains a difference in parameters
MOST = 1e9  # of anything that is counted
LEAST_MEASURED, MOST_MEASURED = 1e-6, 1e15  # of anything else
USUAL_TOKENS = 4e6  # of a step, where a row does not tell its batch
Row = Mapping[str, str]


@dataclass(frozen=True)
class Prediction:
    """One row of a table: the prediction, or why there is none.

    Attributes:
        line: of the file, from 1.
        measured_s, predicted_s: seconds a step; None where there is none.
        tflops: predicted for one GPU, counted as the row counts (with recompute or without).
        problem: why the row cannot be predicted.
    """

    line: int
    name: str
    row: Row
    measured_s: float | None = None
    predicted_s: float | None = None
    tflops: float | None = None
    problem: str = ""
    cells: Row = field(default_factory=dict)  # as the file has them, under its own columns

    @property
    def error(self) -> float | None:
        """Relative error; above zero where the prediction is slower than the measurement."""
        if self.measured_s is None or self.predicted_s is None:
            return None
        return self.predicted_s / self.measured_s - 1


def predict_file(path: Path) -> list[Prediction]:
    """Predict every row of a table.

    Raises:
        PlanError: the file cannot be read, or its columns are of neither kind.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return list(_predict_rows(csv.DictReader(file)))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise PlanError(f"{path} cannot be read as CSV: {error}") from error


def _predict_rows(reader: csv.DictReader[str]) -> Iterator[Prediction]:
    columns = {VTRAIN_COLUMNS.get(name, name) for name in reader.fieldnames or ()}
    if missing := sorted(NEEDED - columns):
        raise PlanError(
            f"the table has no column {' and no '.join(missing)}: see docs/plan.md for its columns"
        )
    for raw in reader:
        row = {VTRAIN_COLUMNS.get(key, key): (value or "").strip() for key, value in raw.items() if key}
        if "# GPUs" in raw:  # vTrain's runs recompute all
            row.setdefault("recompute", "full")
        cells = {key: value or "" for key, value in raw.items() if key}
        yield replace(predict_row(row, reader.line_num), cells=cells)


def predict_row(row: Row, line: int = 0) -> Prediction:
    """Predict one row; a fault in it stands in the result's `problem`."""
    name = row.get("id") or row.get("model") or f"line {line}"
    try:
        model, cluster, plan = read_row(row)
        estimate = estimate_step(model, cluster, plan)
        measured = _measured(row, model, plan)
    except PlanError as error:
        return Prediction(line, name, row, problem=str(error))
    return Prediction(
        line, name, row, measured, estimate.seconds, _tflops(row, model, plan, estimate.seconds)
    )


def read_row(row: Row) -> tuple[Transformer, Cluster, Plan]:
    """Read model, cluster and plan out of a row with the columns of published runs.

    Raises:
        PlanError: a number is missing or cannot be, or the plan does not fit together.
    """
    model, cluster = _model(row), _cluster(row)
    if not any(row.get(column) for column in ("tp", "pp", "dp", "sharding")):
        return model, cluster, best_plan(model, cluster, _batch(row, model, cluster.gpus), USUAL)
    return model, cluster, _complete(model, cluster, _plan(row, model, cluster), row)


def _model(row: Row) -> Transformer:
    if not row.get("layers"):
        known = find_model(row.get("model", ""))
        return replace(known, sequence=_int(row, "seq", known.sequence))
    llama = any(word in row.get("model", "").lower() for word in ("llama", "smollm"))
    try:
        named = find_model(row.get("model", "").replace("Llama 3.1", "llama3"))
    except PlanError:
        named = None
    model = Transformer(
        name=row.get("model") or "model", layers=_int(row, "layers"), hidden=_int(row, "hidden"),
        heads=_int(row, "heads"), sequence=_int(row, "seq", 2048), vocabulary=_int(row, "vocab", 51200),
    )  # fmt: skip
    if named is not None and named.hidden == model.hidden:
        return replace(model, kv_heads=named.kv_heads, ffn=named.ffn, gated=named.gated)
    if llama:
        model = replace(model, gated=True, tied=False, ffn=round(8 / 3 * model.hidden))
    return _with_parameters(model, row)


def _with_parameters(model: Transformer, row: Row) -> Transformer:
    """Return the model with the width of its MLP chosen so that it has the parameters that the row tells.

    Of a mixture of experts that says so ("37B active") those count through which a token goes.
    """
    active = re.search(r"(\d+(?:\.\d+)?)B active", row.get("model", ""))
    if not row.get("params_B"):
        return model
    told = 1e9 * (float(active[1]) if active else _float(row, "params_B"))
    missing = (told - model.parameters) / model.layers
    if abs(told / model.parameters - 1) < NEAR or model.mlp_parameters + missing <= 0:
        return model
    return replace(model, ffn=round(model.ffn_width * (1 + missing / model.mlp_parameters)))


def _cluster(row: Row) -> Cluster:
    gpus = _int(row, "gpus")
    if row.get("gpu"):
        return Cluster(find_gpu(row["gpu"]), gpus)
    gpu = find_gpu("a100")  # vTrain's cluster: four HDR cards a node
    return Cluster(replace(gpu, cards=4), gpus)


def _plan(row: Row, model: Transformer, cluster: Cluster) -> Plan:
    tensor, pipeline, context = _int(row, "tp", 1), _int(row, "pp", 1), _int(row, "cp", 1)
    data = _int(row, "dp", max(1, cluster.gpus // (tensor * pipeline * context)))
    recompute = row.get("recompute", "").lower() or "none"
    if not any(mode in recompute for mode in RECOMPUTE):
        raise PlanError(f"recompute is {row['recompute']!r}, none of {', '.join(RECOMPUTE)}")
    sharding, modern = row.get("sharding", "").lower(), not cluster.gpu.name.startswith("a100")
    chunks = _chunks(row, pipeline, modern)
    return Plan(
        data=data, tensor=tensor, pipeline=pipeline, context=context, expert=1,
        chunks=chunks if pipeline > 1 else 1,
        schedule="interleaved" if chunks > 1 and pipeline > 1 else "1f1b",
        zero=_zero(sharding, modern), all_cards="zero3" not in sharding,
        sequence_parallel="sequence" in recompute or modern,
        recompute=next((mode for mode in ("selective", "full") if mode in recompute), "none"),
        micro_batch=_int(row, "micro_batch", 1), batch=_batch(row, model, data),
        flash=modern, overlap=modern, fp8="fp8" in row.get("precision", "").lower(),
    )  # fmt: skip


def _chunks(row: Row, pipeline: int, modern: bool) -> int:
    """Return the chunks a rank; where H100 runs do not tell, one layer in each."""
    told = row.get("vp", "")
    if told.replace(".", "").isdecimal():
        return _int(row, "vp")
    layers = _int(row, "layers", 1)
    return 2 if told else max(1, layers // pipeline) if modern and pipeline > 1 else 1


def _batch(row: Row, model: Transformer, data: int) -> int:
    """Return the batch; rounded, as tables round it, to what divides over the data-parallel ranks."""
    told = _int(row, "global_batch_seqs", round(USUAL_TOKENS / model.sequence))
    unit = data * _int(row, "micro_batch", 1)
    return unit * max(1, round(told / unit))


def _zero(sharding: str, modern: bool) -> int:
    if sharding == "ddp" and modern:  # Megatron's distributed optimizer shards the state
        return 1
    for word, stage in (("zero2-like", 2), ("zero3", 3), ("fsdp", 3), ("zero2", 2), ("zero1", 1)):
        if word in sharding:
            return stage
    return 0


def _complete(model: Transformer, cluster: Cluster, plan: Plan, row: Row) -> Plan:
    """Choose the microbatch and recompute that the row leaves open: the fastest that fit."""
    plan = plan if plan.pipeline * plan.chunks <= model.layers else replace(plan, chunks=1, schedule="1f1b")
    open_sizes = [size for size in (1, 2, 4, 8, 16) if plan.batch % (plan.data * size) == 0]
    sizes = [plan.micro_batch] if row.get("micro_batch") else open_sizes
    modes = (plan.recompute,) if row.get("recompute") else RECOMPUTE
    tried = [replace(plan, micro_batch=size, recompute=mode) for size in sizes for mode in modes]
    estimates = [(each, estimate_step(model, cluster, each)) for each in tried]
    return min(estimates, key=lambda each: (not each[1].fits, each[1].seconds))[0]


def _measured(row: Row, model: Transformer, plan: Plan) -> float | None:
    if row.get("step_time_ms"):
        return _float(row, "step_time_ms") / 1000
    if row.get("step_time_s"):
        return _float(row, "step_time_s")
    if row.get("tokens_per_s_per_gpu"):
        return plan.batch * model.sequence / plan.gpus / _float(row, "tokens_per_s_per_gpu")
    if row.get("tflops_per_gpu"):
        return _flops(row, model, plan) / _float(row, "tflops_per_gpu") / 1e12
    return None


def _flops(row: Row, model: Transformer, plan: Plan) -> float:
    hardware = "hardware" in row.get("tflops_kind", "") and plan.recompute == "full"
    return model.step_flops(plan.batch, 4 if hardware else 3) / plan.gpus


def _tflops(row: Row, model: Transformer, plan: Plan, seconds: float) -> float:
    return _flops(row, model, plan) / seconds / 1e12


def _float(row: Row, column: str, most: float = MOST_MEASURED) -> float:
    try:
        value = float(row[column])
    except ValueError:
        raise PlanError(f"{column} is {row[column]!r}, not a number") from None
    if not 0 < value < float("inf"):
        raise PlanError(f"{column} must be above 0, not {row[column]}")
    if value > most:
        raise PlanError(f"{column} is {row[column]}, more than {most:.0e}")
    if value < LEAST_MEASURED:
        raise PlanError(f"{column} is {row[column]}, less than {LEAST_MEASURED:.0e}")
    return value


def _int(row: Row, column: str, default: int | None = None) -> int:
    if not row.get(column):
        if default is None:
            raise PlanError(f"{column} is empty, and a prediction needs it")
        return default
    value = _float(row, column, MOST)
    if value != int(value):
        raise PlanError(f"{column} must be a whole number, not {row[column]}")
    return int(value)
