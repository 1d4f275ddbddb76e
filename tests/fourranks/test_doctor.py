"""`fourranks doctor`: checks of this machine, and recorded answers of tools that it may lack."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from fourranks import doctor
from fourranks.doctor import gpus, system, topology, worlds
from fourranks.doctor.report import Check, Finding, Severity, report
from fourranks.doctor.tool import NoAnswer, ask
from fourranks.figures import published
from fourranks.hardware import Gpus

DATA = Path(__file__).parent / "data"
TOPOLOGIES = Path(published.__file__).parent / "topologies"
TWO_A100 = """\
NVIDIA A100-SXM4-80GB, 81920, 4, Default, 4, 16, 550.54.15
NVIDIA A100-SXM4-80GB, 81920, 61000, Default, 4, 16, 550.54.15"""


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """Puts a shell script of a given name in front of all other programs."""

    def install(name: str, script: str) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)

    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    return install


@pytest.fixture
def nvidia_smi(tool):
    """An nvidia-smi that prints recorded answers."""

    def install(cards: str = TWO_A100, topo: str = "8_a100", p2p: str = "p2p_2_gns") -> None:
        tool(
            "nvidia-smi",
            f"""
case "$1 $2" in
  --query-gpu*) cat <<'END'
{cards}
END
  ;;
  "topo -m") cat {TOPOLOGIES / topo}.txt ;;
  "topo -p2p") cat {DATA / p2p}.txt ;;
  "nvlink -s") printf 'GPU 0: NVIDIA H100\\n\\t Link 0: 26.562 GB/s\\n\\t Link 1: 26.562 GB/s\\n' ;;
  *) echo '| NVIDIA-SMI 550.54.15    Driver Version: 550.54.15    CUDA Version: 12.4     |' ;;
esac""",
        )

    return install


# --- the command -----------------------------------------------------------------------------------------


def run(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "fourranks", *arguments], capture_output=True, text=True, timeout=100
    )


def test_the_command_alone_says_how_it_is_used():
    ended = run()
    assert ended.returncode == 0
    assert "usage: fourranks" in ended.stdout
    assert "doctor" in ended.stdout


def test_the_quick_doctor_reports_every_check_and_its_exit_code_tells_of_problems():
    ended = run("doctor", "--quick")
    rows = [line for line in ended.stdout.splitlines() if line.startswith(tuple(v.value for v in Severity))]
    assert all(row[11:].startswith(check.name) for row, check in zip(rows, doctor.QUICK, strict=True))
    problem = any(row.startswith("problem") for row in rows)
    assert ended.returncode == (1 if problem else 0), ended.stdout + ended.stderr
    assert "bandwidth" not in ended.stdout
    assert "4 ranks started and communicated" in ended.stdout


# --- the report ------------------------------------------------------------------------------------------


def shown(*checks: Check) -> tuple[int, list[str]]:
    lines: list[str] = []
    code = report(checks, lines.append)
    return code, lines


def test_a_problem_gives_exit_code_1_and_attention_does_not():
    def check(severity: Severity) -> Check:
        return Check("it", lambda: Finding(severity, "found"))

    assert shown(check(Severity.OK), check(Severity.ATTENTION))[0] == 0
    code, lines = shown(check(Severity.OK), check(Severity.PROBLEM), check(Severity.PROBLEM))
    assert (code, lines[-1]) == (1, "\n1 ok, 2 problems.")


def test_a_check_that_fails_itself_is_told_and_the_others_run():
    def broken() -> Finding:
        raise ZeroDivisionError("no such number")

    code, lines = shown(Check("broken", broken), Check("whole", lambda: Finding(Severity.OK, "fine")))
    assert code == 0
    assert "could not be checked: ZeroDivisionError: no such number" in lines[0]
    assert "fine" in lines[1]


def test_columns_are_aligned_and_long_text_is_wrapped_inside_its_column():
    finding = Finding(Severity.ATTENTION, "word " * 60 + "\nsecond line", "advice " * 40)
    _, (first, second, _) = shown(
        Check("a name", lambda: finding), Check("longer name", lambda: Finding(Severity.OK, "x"))
    )
    column = second.index("x")
    lines = first.splitlines()
    assert max(map(len, lines)) <= 110
    assert lines[0].index("word") == column
    assert all(line[:column].isspace() and not line[column].isspace() for line in lines[1:] if "→" in line)
    assert any(line == " " * column + "second line" for line in lines)


# --- tools that do not answer ----------------------------------------------------------------------------


def test_a_missing_tool_is_named(tool):
    with pytest.raises(NoAnswer, match="no-such-tool was not found"):
        ask("no-such-tool")


def test_a_failing_tool_is_quoted(tool):
    tool("nvidia-smi", "echo 'couldn'\\''t communicate with the NVIDIA driver' >&2; exit 9")
    with pytest.raises(NoAnswer, match="failed: couldn't communicate"):
        ask("nvidia-smi")


def test_a_hanging_tool_is_left_behind_and_not_asked_again(tool):
    tool("nvidia-smi", "exec sleep 600")
    with pytest.raises(NoAnswer, match="did not answer within 0.2 s"):
        ask("nvidia-smi", patience=0.2)
    with pytest.raises(NoAnswer, match="did not answer an earlier call"):
        ask("nvidia-smi")


@pytest.mark.parametrize(
    "script", ["echo strange", "echo 'a, b'", "exit 6", "printf ''", "printf '\\377\\376'"]
)
@pytest.mark.parametrize("check", [gpus.driver, gpus.gpus, gpus.links, gpus.nccl])
def test_strange_answers_of_nvidia_smi_break_no_check(tool, check, script):
    tool("nvidia-smi", script)
    assert isinstance(check(), Finding)
    assert gpus.link_speed() is None


# --- GPUs, by recorded answers ---------------------------------------------------------------------------


def test_gpus_are_read_from_nvidia_smi(nvidia_smi):
    nvidia_smi()
    one, other = gpus.installed()
    assert one == gpus.Gpu("NVIDIA A100-SXM4-80GB", 81920, 4, "Default", 4, 16, "550.54.15")
    assert other.used == 61000


def test_a_gpu_that_does_not_know_its_memory_is_read_all_the_same(nvidia_smi):
    nvidia_smi(cards="NVIDIA GB10, [N/A], [N/A], Default, [N/A], [N/A], 580.95.05")
    assert gpus.installed()[0].memory == 0


def test_a_gpu_in_use_is_for_attention(nvidia_smi):
    nvidia_smi()
    finding = gpus.judge_use(gpus.installed(), "2 × NVIDIA A100-SXM4-80GB")
    assert finding.severity is Severity.ATTENTION
    assert "80 GiB of memory each, in use already: GPU 1 59.6 GiB" in finding.found


def test_a_gpu_that_one_process_may_hold_alone_is_for_attention(nvidia_smi):
    nvidia_smi(cards=TWO_A100.replace("Default", "Exclusive_Process").replace("61000", "4"))
    assert "nvidia-smi -c 0" in gpus.judge_use(gpus.installed(), "").advice


def test_idle_gpus_are_ok(nvidia_smi):
    nvidia_smi(cards=TWO_A100.replace("61000", "4"))
    assert gpus.judge_use(gpus.installed(), "").severity is Severity.OK


@pytest.mark.parametrize(
    "built, severity", [("12.1", Severity.OK), ("12.6", Severity.OK), ("13.0", Severity.PROBLEM)]
)
def test_a_driver_runs_torch_of_its_own_major_cuda_version_or_an_older_one(nvidia_smi, built, severity):
    nvidia_smi()
    assert gpus.compare_driver("550.54.15", built).severity is severity


@pytest.mark.parametrize(
    "topo, apart, severity",
    [
        ("8_a100", [], Severity.OK),
        ("8_v100", ["0↔5"], Severity.OK),  # the ring of NVLinks goes past it
        ("2_phb", [], Severity.ATTENTION),
        ("2_phb", ["0↔1"], Severity.ATTENTION),
        ("2_sys", [], Severity.ATTENTION),
    ],
)
def test_links_are_judged_by_the_ring_through_all_gpus(topo, apart, severity):
    finding = gpus.judge_links(topology.parse(published.topology(topo)), apart)
    assert finding.severity is severity
    assert ("no direct access" in finding.found) == (bool(apart) and severity is not Severity.OK)


def test_gpus_without_access_to_each_other_are_named(nvidia_smi):
    nvidia_smi(topo="2_phb")
    finding = gpus.links()
    assert finding.severity is Severity.ATTENTION
    assert "no direct access between GPUs 0↔1" in finding.found


@pytest.mark.parametrize(
    "topo, speed, name",
    [
        ("4_h100", 18 * 26.562e9, "NV18 (18 NVLinks)"),
        ("2_phb", 31.5e9, "PHB, PCIe 4 x16"),
    ],
)
def test_the_speed_of_a_link_is_that_of_its_nvlinks_or_of_pcie(nvidia_smi, topo, speed, name):
    nvidia_smi(topo=topo)
    assert gpus.link_speed() == (pytest.approx(speed), name)


@pytest.mark.parametrize(
    "bus, link, severity",
    [
        (367e9, (450e9, "NV18"), Severity.OK),
        (100e9, (450e9, "NV18"), Severity.ATTENTION),
        (100e9, None, Severity.OK),
    ],
)
def test_nccl_is_judged_by_its_share_of_the_link(bus, link, severity):
    assert worlds.judge_nccl(bus, 8, link).severity is severity


@pytest.mark.parametrize(
    "count, version, found, advice",
    [
        (
            1,
            (2, 29, 7),
            "NCCL 2.29.7: each rank needs a GPU of its own",
            "pip install --upgrade --no-deps 'nvidia-nccl-cu13>=2.30'",
        ),
        (2, (2, 30, 7), "NCCL 2.30.7; four ranks can share a GPU: `%ranks start --backend nccl`", ""),
        (4, (2, 29, 7), "NCCL 2.29.7", ""),
        (0, (2, 29, 7), "NCCL 2.29.7", ""),
    ],
)
def test_fewer_gpus_than_ranks_ask_for_an_nccl_that_lets_ranks_share(count, version, found, advice):
    finding = gpus.judge_nccl_version(Gpus(("H100",) * count, version, cuda="13.0"))
    assert (finding.severity, finding.found) == (Severity.OK, found)
    assert advice in finding.advice and bool(advice) == bool(finding.advice)


# --- the system ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outer, advises", [("2.14.1+cu130", True), ("2.9.0", False), ("", False)])
def test_a_torch_outside_of_the_virtual_environment_need_not_be_installed_twice(
    outer, advises, tmp_path, monkeypatch
):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{f'echo {outer}' if outer else 'exit 1'}\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "_base_executable", str(python))
    assert ("make lab SYSTEM_TORCH=1" in system.python_and_torch().advice) is advises


@pytest.fixture
def cgroup(tmp_path, monkeypatch):
    monkeypatch.setattr(system, "CGROUP", tmp_path)
    return tmp_path


def test_shared_memory_that_cannot_be_written_is_for_attention(monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(os.path, "isdir", lambda path: path == "/dev/shm")
    finding = system.shared_memory()
    assert finding.severity is Severity.ATTENTION and "cannot be written" in finding.found


def test_few_open_files_are_for_attention():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, limits[1]))
    try:
        finding = system.open_files()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert finding.severity is Severity.ATTENTION
    assert "ulimit -n 1024" in finding.advice


def test_a_container_with_little_memory_left_is_for_attention(cgroup):
    (cgroup / "memory.max").write_text(str(2 * 2**30))
    (cgroup / "memory.current").write_text(str(2**30))
    finding = system.memory()
    assert finding.severity is Severity.ATTENTION
    assert "1.0 GiB free within the container's limit" in finding.found


def test_a_container_with_few_processes_left_is_for_attention(cgroup):
    (cgroup / "pids.max").write_text("300")
    (cgroup / "pids.current").write_text("50")
    finding = system.processes()
    assert (finding.severity, finding.found) == (
        Severity.ATTENTION,
        "room for 250 more processes and threads",
    )


def test_a_machine_without_bubblewrap_grades_nothing_but_runs_the_course(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    finding = system.sandbox()
    assert finding.severity is Severity.ATTENTION
    assert "bubblewrap is not installed" in finding.found and "apt install bubblewrap" in finding.advice


def test_a_system_without_namespaces_is_quoted_and_told_what_to_allow(tool):
    tool("bwrap", "echo 'bwrap: No permissions to create a new namespace' >&2; exit 1")
    finding = system.sandbox()
    assert "No permissions to create a new namespace" in finding.found
    assert "seccomp=unconfined" in finding.advice and "apparmor=unconfined" in finding.advice


@pytest.mark.parametrize(
    ("version", "user", "tier"),
    [(2, 0, "tier landlock"), (6, 1000, "tier landlock"), (5, 1000, "none: ")],
    ids=["root, Linux 5.19", "a user, Linux 6.12", "a user, Linux 6.10"],
)
def test_without_namespaces_it_names_the_sandbox_that_is_left(version, user, tier, tool, monkeypatch):
    tool("bwrap", "exit 1")
    monkeypatch.setattr(system.landlock, "version", lambda: version)
    monkeypatch.setattr(system.os, "geteuid", lambda: user)
    assert system.sandbox().found.startswith(tier)


def test_a_system_without_landlock_is_told_what_grading_needs(tool, monkeypatch):
    tool("bwrap", "exit 0")
    monkeypatch.setattr(system.landlock, "version", lambda: 0)
    assert "Linux 5.19" in system.sandbox().advice


def test_a_sandbox_that_can_be_made_here_is_found(program):
    program("bwrap")
    assert system.sandbox().severity is Severity.OK


def test_the_loopback_interface_works_here():
    assert system.loopback().severity is Severity.OK


# --- ranks -----------------------------------------------------------------------------------------------


def test_the_bandwidth_check_measures_ranks_and_memory():
    finding = worlds.gloo_bandwidth(seconds=0.1)
    assert "all-reduce of 16 MiB on 4 ranks: busbw" in finding.found
    assert finding.severity in (Severity.OK, Severity.ATTENTION)  # by how busy this machine is


def test_ranks_that_do_not_start_are_a_problem(monkeypatch):
    monkeypatch.setattr(worlds, "WORLD_SIZE", 0)
    finding = worlds.ranks()
    assert (finding.severity, finding.found) == (Severity.PROBLEM, "A world has 1 to 128 ranks, not 0.")
