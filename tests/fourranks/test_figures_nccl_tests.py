"""The output of nccl-tests is read: recorded on real machines between 2019 and 2026.

The recordings come from public issues and documentation, some with lines left out:
NVIDIA/nccl-tests#82, #128, #214, #280, #287, NVIDIA/nccl#1435, microsoft/NPKit#19.
"""

from pathlib import Path

import pytest

from fourranks.figures import nccl_tests
from fourranks.figures.nccl_tests import NcclTestsError, Timing, parse

RECORDED = Path(__file__).parent / "data" / "nccl_tests"


def recorded(name):
    return (RECORDED / f"{name}.txt").read_text()


def test_every_line_of_a_table_is_read_in_base_units():
    report = parse(recorded("all_reduce_8_h100"))
    assert [row.num_bytes for row in report.rows] == [2**28, 2**29, 2**30, 2**31]
    last = report.rows[-1]
    assert (last.count, last.dtype, last.redop, last.root) == (536870912, "float", "sum", "-1")
    assert last.out_of_place == Timing(pytest.approx(7983.5e-6), 268.99e9, 470.73e9, 0)
    assert last.in_place == Timing(pytest.approx(7985.2e-6), 268.93e9, pytest.approx(470.63e9), 0)
    assert report.world_size == 8
    assert report.average_busbw == pytest.approx(448.212e9)
    assert report.out_of_bounds == 0


def test_a_program_that_says_what_it_measures_is_believed_also_behind_mpirun():
    report = parse(recorded("all_reduce_2_mpirun"))
    assert (report.collective, report.world_size, len(report.rows)) == ("all_reduce", 2, 8)
    assert report.rows[5].out_of_place.seconds == pytest.approx(14977.1e-6)
    assert report.average_busbw == pytest.approx(1.57614e9)


@pytest.mark.parametrize(
    "name, ranks, lines, half",
    [
        ("alltoall_1_rtx5090", 1, 1, Timing(pytest.approx(0.78e-6), pytest.approx(43046.10e9), 0, None)),
        ("all_gather_2_bfloat16", None, 4, Timing(pytest.approx(98.19e-6), 170.86e9, 85.43e9, 0)),
        ("reduce_scatter_8", None, 4, Timing(pytest.approx(5.54e-6), 0, 0, 0)),
        ("broadcast_2_v100_2021", 2, 1, Timing(pytest.approx(38.17e-6), 0, 0, None)),
        ("all_reduce_4_rtx2080_2019", 4, 3, Timing(pytest.approx(62.08e-6), 0, 0, 0)),
        ("sendrecv_2_a40", 2, 5, Timing(pytest.approx(33.65e-6), 0.01e9, 0.01e9, None)),
    ],
)
def test_tables_of_other_programs_and_years_are_read_too(name, ranks, lines, half):
    report = parse(recorded(name))
    assert (report.world_size, len(report.rows)) == (ranks, lines)
    assert report.rows[0].in_place == half


def test_columns_that_a_program_does_not_have_are_empty():
    row = parse(recorded("broadcast_2_v100_2021")).rows[0]
    assert (row.redop, row.root, row.dtype) == ("", "0", "float")
    row = parse(recorded("all_reduce_4_rtx2080_2019")).rows[0]
    assert (row.redop, row.root) == ("sum", "")
    assert row.out_of_place.wrong == 1e-07


def test_a_blank_operation_a_single_half_per_iteration_columns_and_timestamps_are_no_obstacle():
    table = """# size count type redop root time algbw busbw #wrong i_min i_max i_p99 i_cv% timestamp
    1024  256  float          -1  12.5  0.08  0.06   3  11.0 13.0 12.9 4.2 2026-02-01 10:11:12
    """
    (row,) = parse(table).rows
    assert (row.redop, row.root, row.in_place) == ("", "-1", None)
    assert row.out_of_place == Timing(pytest.approx(12.5e-6), 0.08e9, 0.06e9, 3)


def test_times_in_exponents_are_read():
    text = recorded("sendrecv_2_a40").replace("   34.24", "  1.2e+07", 1)
    assert parse(text).rows[0].out_of_place.seconds == pytest.approx(12.0)


@pytest.mark.parametrize(
    "text, message",
    [
        (recorded("failed_4_rtx4090"), "common.cu:1005 'unhandled CUDA error'"),
        ("", "no table of nccl-tests"),
        ("bash: all_reduce_perf: command not found", "begins: 'bash: all_reduce_perf"),
        ("#  size  count  type  redop  root  time  algbw  busbw #wrong\n", "has no lines"),
        (recorded("sendrecv_2_a40").rsplit("0.13", 1)[0], "cut off: '4096"),
        (recorded("sendrecv_2_a40").replace("34.15", "NCCL"), "cannot be read: '512"),
    ],
    ids=["failure", "empty", "no program", "header only", "cut off", "garbled"],
)
def test_anything_else_is_refused_with_what_was_found(text, message):
    with pytest.raises(NcclTestsError, match="nccl-tests") as caught:
        parse(text)
    assert message in str(caught.value)


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Puts a program that prints something, and ends with some code, where all_reduce_perf belongs."""

    def put(output, code=0):
        path = tmp_path / "all_reduce_perf"
        path.write_text(
            f'#!/bin/sh\necho "$@" > {tmp_path}/arguments\ncat <<"END"\n{output}\nEND\nexit {code}\n'
        )
        path.chmod(0o755)
        monkeypatch.setenv(nccl_tests.FOLDER, str(tmp_path))
        return tmp_path / "arguments"

    return put


def test_a_program_is_run_over_the_sizes_on_so_many_gpus(program):
    arguments = program(recorded("all_reduce_8_h100"))
    report = nccl_tests.run("all_reduce", [2**20, 2**22, 2**24], gpus=4)
    assert len(report.rows) == 4
    assert arguments.read_text().split() == ["-b", "1048576", "-e", "16777216", "-f", "4", "-g", "4"]


def test_a_program_that_fails_is_quoted(program):
    program("Invalid number of GPUs: 4 requested but only 1 were found.", code=3)
    with pytest.raises(NcclTestsError, match="ended with code 3:\nInvalid number of GPUs"):
        nccl_tests.run("all_reduce", [1024], gpus=4)


def test_a_missing_program_says_where_it_is_looked_for(tmp_path, monkeypatch):
    monkeypatch.setenv(nccl_tests.FOLDER, str(tmp_path))
    with pytest.raises(NcclTestsError, match="all_to_all|alltoall_perf was not found.*NCCL_TESTS"):
        nccl_tests.run("all_to_all", [1024], gpus=4)
