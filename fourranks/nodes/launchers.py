"""How a program is started on another node: the command whose standard input and output lead to it."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Sequence

from ..errors import StartError

VARIABLE = "FOURRANKS_LAUNCHER"  # of the environment: the default launcher
THIS_MACHINE = ("localhost", "local")  # names of the node that needs no launcher

# BatchMode: no question for a password or a host key, which nobody could answer. A connection whose other
# machine is gone is given up after 15 s.
SSH = (
    "ssh -T -o BatchMode=yes -o ConnectTimeout=15 -o ServerAliveInterval=5 -o ServerAliveCountMax=3 "
    "-o ControlPath=none {node}"
)
# --overlap: beside the allocation's other steps; --unbuffered: bytes as they come, not lines.
SRUN = (
    "srun --nodes=1 --ntasks=1 --nodelist={node} --overlap --unbuffered --kill-on-bad-exit=1 "
    "--input=0 --quiet"
)
_NAMED = {"ssh": SSH, "srun": SRUN}


def chosen(launcher: str | None) -> str:
    """Return the template of the launcher's command.

    Args:
        launcher: "ssh", "srun", or a template with {node}; None for what the environment says, or srun inside
            of a Slurm allocation, else ssh.

    Raises:
        StartError: it is none of these, or its program is not here.
    """
    named = launcher or os.environ.get(VARIABLE) or ("srun" if "SLURM_JOB_ID" in os.environ else "ssh")
    template = _NAMED.get(named, named)
    if "{node}" not in template:
        raise StartError(
            f"There is no launcher {named!r}. Choose ssh or srun, or write the command that starts a program "
            "on a node, with {node} for its name, for instance `ssh -p 2222 {node}`."
        )
    program = shlex.split(template)[0]
    if shutil.which(program) is None:
        raise StartError(f"The launcher needs the program {program}, which is not on this machine.")
    return template


def command_on(node: str, template: str, program: Sequence[str]) -> list[str]:
    """Return the command that starts a program on a node.

    ssh hands a shell over there one string, other launchers take words: words that a shell leaves as they
    are serve both.
    """
    if node in THIS_MACHINE:
        return list(program)
    if node.startswith("-"):  # it would be read as an option
        raise StartError(f"{node!r} does not name a node.")
    launcher = [word.replace("{node}", node) for word in shlex.split(template)]
    is_ssh = os.path.basename(launcher[0]) == "ssh"
    return [*launcher, *(map(shlex.quote, program) if is_ssh else program)]
