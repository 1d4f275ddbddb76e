"""The launch files of lecture 09 can be read by what they are for, and start what the text says."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

LECTURE = Path(__file__).parents[1] / "source" / "09_beyond_one_node" / "lecture.py"
# Of sbatch's options those that a line of the lecture may use.
SBATCH = {
    "job-name",
    "nodes",
    "ntasks-per-node",
    "gpus-per-node",
    "cpus-per-task",
    "time",
    "requeue",
    "output",
}


def block(language: str) -> str:
    """The fenced block of this language in the lecture's text."""
    lines = LECTURE.read_text().splitlines()
    text = "\n".join(line[2:] if line.startswith("# ") else line.removeprefix("#") for line in lines)
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return found


def torchrun_options(words: list[str]) -> dict[str, str]:
    return dict(word.removeprefix("--").split("=", 1) for word in words if word.startswith("--"))


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_slurm_file_is_a_program_that_bash_reads():
    script = "#!/bin/bash\n" + block("bash")
    read = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
    assert read.returncode == 0, read.stderr


def test_the_slurm_file_asks_sbatch_for_what_it_knows_and_starts_one_agent_a_node():
    options = dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(\S+))?$", block("bash"), re.MULTILINE))
    assert set(options) == SBATCH
    assert options["ntasks-per-node"] == "1"
    before, _, after = block("bash").partition("torchrun")
    assert torchrun_options(after.split())["nproc-per-node"] == options["gpus-per-node"]
    assert before.split()[-1] == '--cpus-per-task="$SLURM_CPUS_PER_TASK"', "srun does not take it from sbatch"


def test_the_kubernetes_file_describes_a_service_and_a_job_whose_pods_meet_at_the_first():
    service, job = yaml.safe_load_all(block("yaml"))
    assert (service["kind"], job["kind"]) == ("Service", "Job")
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    options = torchrun_options(container["command"])
    assert options["rdzv-endpoint"] == f"{job['metadata']['name']}-0.{service['metadata']['name']}:29500"
    assert pod["subdomain"] == service["metadata"]["name"]
    assert int(options["nnodes"]) == job["spec"]["completions"] == job["spec"]["parallelism"]
    assert int(options["nproc-per-node"]) == container["resources"]["limits"]["nvidia.com/gpu"]
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["volumes"]}


def test_both_files_name_options_that_torchrun_has():
    from torch.distributed.run import get_args_parser

    known = get_args_parser()._option_string_actions
    _, job = yaml.safe_load_all(block("yaml"))
    command = job["spec"]["template"]["spec"]["containers"][0]["command"]
    words = [*command, *block("bash").partition("torchrun")[2].split()]
    unknown = [name for name in torchrun_options(words) if f"--{name}" not in known]
    assert unknown == []
