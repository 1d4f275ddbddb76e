"""`fourranks plan` from the shell: predictions of measured runs, and what it says to bad input."""

from __future__ import annotations

import csv
import re
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from fourranks.__main__ import main
from fourranks.plan.cluster import GPUS, Cluster, find_gpu
from fourranks.plan.predict import Prediction, predict_file
from fourranks.plan.timeline import predicted_trace

DATA = Path(__file__).parents[2] / "benchmarks" / "data"
HEADER = (
    "id,model,layers,hidden,heads,seq,gpus,gpu,tp,pp,dp,micro_batch,global_batch_seqs,recompute,step_time_s\n"
)
GOOD = "a,GPT,24,2048,16,2048,8,A100,1,1,8,1,64,full,1\n"


@pytest.fixture(scope="module")
def published() -> list[Prediction]:
    return predict_file(DATA / "published_runs.csv")


def errors(rows: list[Prediction], pattern: str) -> list[float]:
    found = [abs(each.error) for each in rows if re.match(pattern, each.name) and each.error is not None]
    assert found
    return found


def test_korthikantis_rows_are_met(published):
    found = errors(published, "korthikanti")
    assert len(found) == 8
    assert statistics.mean(found) <= 0.04
    assert max(found) <= 0.09


def test_narayanans_tables_are_met_without_a_fit(published):
    assert max(errors(published, "narayanan21-(t1|t2-PTD)")) <= 0.15


def test_zero_3_collapses_as_measured(published):
    found = [each.tflops for each in published if each.name.startswith("narayanan21-t2-ZeRO-3-174.6B")]
    assert found == pytest.approx([144, 88, 44], rel=0.2)


def test_h100_rows_with_a_published_step_are_met(published):
    assert max(errors(published, "llama3-405b|bridge2511")) <= 0.2


@pytest.mark.parametrize("table, rows, mean", [("multi_node", 55, 0.10), ("single_node", 720, 0.20)])
def test_megatrons_iteration_times_are_met(table, rows, mean):
    found = errors(predict_file(DATA / f"megatron_a100_{table}.csv"), "")
    assert len(found) == rows
    assert statistics.mean(found) <= mean


@pytest.mark.parametrize(
    "row, told",
    [
        ("b,GPT,abc,2048,16,2048,8,A100,1,1,8,1,64,full,1\n", "layers is 'abc', not a number"),
        ("b,GPT,24,2048,16,2048,8,Abacus,1,1,8,1,64,full,1\n", "there is no GPU 'Abacus'"),
        ("b,GPT,24,2048,16,2048,,A100,1,1,8,1,64,full,1\n", "gpus is empty"),
        ("b,GPT,24,2048,16,2048,1e300,A100,1,1,,1,64,full,1\n", "gpus is 1e300, more than"),
        ("b,GPT,24,2048,16,2048,1e9,A100,,,,,64,full,1\n", "too many to plan for"),
        ("b,GPT,24,2048,16,2048,8,A100,3,1,8,1,64,full,1\n", "16 heads do not divide into 3"),
        ("b,GPT,24,2048,16,2048,8,A100,1,1,4,1,64,full,1\n", "the plan is for 4 GPUs, the cluster has 8"),
        ("b,GPT,24,2048,16,2048,8,A100,1,1,8,1,64,full,-1\n", "step_time_s must be above 0"),
        ("b,GPT,24,2048,16,2048,8,A100,1,1,8,1,64,full,5e-324\n", "step_time_s is 5e-324, less than 1e-06"),
        ("b,GPT,24,2048,16,2048,8,A100,1,1,8,1,64,full,1e308\n", "step_time_s is 1e308, more than 1e+15"),
        (
            "b,GPT,24,2048,16,2048,8,A100,1,1,8,1,64,yes,1\n",
            "recompute is 'yes', none of none, selective, full",
        ),
        ("b,GPT,24,2048,16,nan,8,A100,1,1,8,1,64,full,1\n", "seq must be above 0"),
        ("b,Mystery,,,,2048,8,A100,1,1,8,1,64,full,1\n", "there is no model 'Mystery'"),
        ("b\n", "there is no model ''"),
    ],
    ids=[
        "text",
        "gpu",
        "empty",
        "huge",
        "endless",
        "heads",
        "product",
        "negative",
        "tiny",
        "vast",
        "recompute",
        "nan",
        "model",
        "short",
    ],  # fmt: skip
)
def test_a_bad_row_is_named_by_its_line_and_does_not_stop_the_others(row, told, tmp_path, capsys):
    path = tmp_path / "runs.csv"
    path.write_text(HEADER + row + GOOD)
    assert main(["plan", "--predict", str(path)]) == 1
    out, err = capsys.readouterr()
    assert "line 2: " in err and told in err and "line 3: " not in err
    rows = list(csv.DictReader(out.splitlines()))
    assert told in rows[0]["problem"] and not rows[0]["predicted_step_s"]
    assert float(rows[1]["predicted_step_s"]) > 0 and rows[1]["error_pct"]


def test_empty_optional_columns_are_filled_in(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text(HEADER + "a,GPT,24,2048,16,,64,H100,,,,,256,,\n" + "b,GPT,24,2048,16,,64,H100,2,,,,,,\n")
    found = predict_file(path)
    assert [each.problem for each in found] == ["", ""]
    assert [each.error for each in found] == [None, None]


@pytest.mark.parametrize("model, parameters", [("Mixture (...B active)", "7"), ("GPT", "1e308")])
def test_absurd_numbers_of_parameters_stop_nothing(model, parameters, tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text(HEADER.replace("id", "params_B", 1) + GOOD.replace("a,GPT", f"{parameters},{model}"))
    (found,) = predict_file(path)
    assert found.predicted_s or found.problem.startswith("params_B is 1e308, more than")


@pytest.mark.parametrize("text", ["", "name,colour\nx,red\n"], ids=["empty", "other columns"])
def test_a_table_of_something_else_is_refused(text, tmp_path, capsys):
    path = tmp_path / "runs.csv"
    path.write_text(text)
    assert main(["plan", "--predict", str(path)]) == 2
    assert "the table has no column global_batch_seqs and no gpus" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, told",
    [
        (["--model", "foo"], "there is no model 'foo'"),
        (["--gpu", "foo", "--model", "gpt2-xl"], "there is no GPU 'foo'"),
        (["--gpus", "10000000000", "--model", "gpt2-xl"], "too many to plan for"),
        (["--layers", "2"], "--hidden, --heads missing"),
        (["--model", "gpt2-xl", "--gpus", "0"], "at least 1 GPU"),
        (["--model", "gpt2-xl", "--layers", "-1"], "layers must be at least 1"),
        (["--model", "gpt2-xl", "--ffn", "-1"], "the width inside the MLP cannot be -1"),
        (["--model", "gpt2-xl", "--heads", "17"], "a width of 1600 does not divide into 17 heads"),
        (["--model", "gpt2-xl", "--batch", "0"], "--batch and --top must be at least 1"),
        (["--predict", "missing.csv"], "missing.csv cannot be read"),
        (["--predict", "runs.csv", "--gpu", "h100"], "--gpu has no place beside --predict"),
        (["--predict", "runs.csv", "--kv-heads", "0"], "--kv-heads has no place beside --predict"),
    ],
)
def test_bad_arguments_are_met_with_one_message(words, told, capsys):
    assert main(["plan", *words]) == 2
    assert told in capsys.readouterr().err


def test_plans_are_listed_with_time_memory_and_bound(capsys):
    assert main(["plan", "--model", "llama3-8b", "--gpus", "64", "--gpu", "h100", "--top", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("llama3-8b, 8.03 billion parameters, 64 x h100")
    assert lines[1].split() == ["step", "TFLOP/s", "GB", "bound", "by", "plan"]
    assert len(lines) == 5 and all("compute" in line for line in lines[2:])


def test_a_model_too_large_says_so(capsys):
    assert main(["plan", "--model", "llama3-405b", "--gpus", "8", "--top", "1"]) == 1
    assert "No plan fits. The one that needs least:" in capsys.readouterr().out


def test_a_trillion_parameters_are_written_without_an_exponent(capsys):
    main(["plan", "--model", "gpt-1t", "--gpus", "8", "--top", "1"])
    assert capsys.readouterr().out.startswith("gpt-1t, 1,008 billion parameters, 8 x h100")


def test_a_table_with_predictions_is_predicted_again_without_a_second_set_of_columns(capsys):
    table = Path(__file__).parents[2] / "docs" / "plan_rows.csv"
    main(["plan", "--predict", str(table)])
    header = capsys.readouterr().out.splitlines()[0]
    assert header == table.read_text().splitlines()[0]


def test_planning_needs_no_torch():
    code = (
        "import sys; from fourranks.__main__ import main; main(['plan', '--model', 'gpt2-xl']);"
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)


def test_the_predicted_step_is_drawn_as_a_measured_one():
    from fourranks.plan.layout import Plan
    from fourranks.plan.step import estimate_step
    from fourranks.plan.transformer import MODELS
    from fourranks.views.timeline import timeline

    plan = Plan(pipeline=4, data=2, batch=16)
    estimate = estimate_step(MODELS["gpt2-xl"], Cluster(GPUS["a100"], 8), plan)
    assert re.search(r"rank 3 waits \d+%", timeline(predicted_trace(plan, estimate)).alt)


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        ("a100", "a100"),
        ("A100-80GB SXM (Selene)", "a100"),
        ("A100 40GB", "a100-40gb"),
        ("a100-40gb", "a100-40gb"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA H100 80GB HBM3", "h100"),
    ],
)
def test_a_gpu_is_found_by_the_names_that_people_and_nvidia_give_it(name, gpu):
    assert find_gpu(name) is GPUS[gpu]
