"""Explanations of the errors of NCCL and CUDA, and the way out of each, by the words they are known by.

Both report what went wrong inside them; the cause is often outside: a container, a driver, another rank.
"""

from __future__ import annotations

import re

_RESTART = "CUDA is unusable on this rank from now on: `%ranks restart` starts all ranks, without variables."

# (words of the message, what it means and what to do); the first that fits is taken
_EXPLANATIONS = [
    (
        r"Duplicate GPU detected|Multiple Ranks are using the same GPU",
        """
Two ranks are on one GPU, which NCCL refuses unless it is told to expect it. Each rank has a GPU of its own,
`device`: do not choose another with torch.cuda.set_device. Ranks share a GPU where more of them are started
than there are GPUs: by `%ranks start --backend nccl` from NCCL 2.30 on, by `--backend gloo --device cuda`
always.""",
    ),
    (
        r"Error while creating shared memory segment|failed to extend /dev/shm/nccl",
        """
NCCL got no shared memory: /dev/shm is full or too small (`df -h /dev/shm`). A container gets more with
`docker run --shm-size=8g` or `--ipc=host`. Until then, `%env NCCL_SHM_DISABLE=1` and `%ranks restart` do
without it, slower.""",
    ),
    (
        r"no socket interface found|connecting to address .*with family \d+ is neither",
        """
NCCL found no network interface to connect the ranks by. Here it uses the loopback interface: `ip addr show
lo` must show it as up, and no cell may change NCCL_SOCKET_IFNAME.""",
    ),
    (
        r"driver on your system is too old|driver version is insufficient for CUDA runtime",
        """
The NVIDIA driver is older than this torch needs; `nvidia-smi` names the newest CUDA that it can run. Update
the driver, or install a torch that was built for that CUDA.""",
    ),
    (
        r"unsupported display driver / cuda driver combination|[Dd]river/library version mismatch",
        """
The driver in the kernel and its libraries are of different versions, as after an update without a reboot.
Restart the machine; in a container, use the libraries of the host.""",
    ),
    (
        r"system not yet initialized",
        """
The GPUs of this machine are joined by NVSwitch, and the service that sets it up does not run: `sudo
systemctl start nvidia-fabricmanager`, of the driver's version. On a rented machine ask the provider.""",
    ),
    (
        r"MPS (server|client|daemon)",
        """
All processes under NVIDIA's MPS share their fatal errors, and it takes no new ones until those that have met
one are gone: stop the ranks of other notebooks, too. If that does not help, `echo quit |
nvidia-cuda-mps-control` ends it, and `nvidia-cuda-mps-control -d` starts it again.""",
    ),
    (
        r"busy or unavailable",
        """
The GPU is taken: another process holds it alone (`nvidia-smi` shows compute mode and processes). `sudo
nvidia-smi -c 0` lets several processes, and so several ranks, share a GPU. Under NVIDIA's MPS it means that
another process has met a fatal error, which all share: stop the ranks of other notebooks, and try again.""",
    ),
    (
        r"Cuda failure (2 )?'out of memory'|Failed to CUDA calloc",
        """
NCCL found no GPU memory for its own buffers, which are not part of torch's. torch.cuda.empty_cache() gives
back what torch keeps unused; `%ranks` shows how much each rank's tensors take.""",
    ),
    (
        r"CUDA out of memory|CUDA error: out of memory",
        """
The GPU's memory is full. A smaller batch helps, or `del` of what is not needed and torch.cuda.empty_cache();
`%ranks` shows how much each rank's tensors take, `nvidia-smi` what other processes do. Ranks that share a GPU
share its memory.""",
    ),
    (
        r"device-side assert triggered",
        f"""
A kernel met a value that it does not allow, most often an index out of range. Kernels run some time after
Python has launched them, so the line above may come after the one at fault: the same cell on the CPU names
it, or `%env CUDA_LAUNCH_BLOCKING=1` before a restart.
{_RESTART}""",
    ),
    (
        r"illegal memory access|misaligned address|unspecified launch failure|illegal instruction was enc",
        f"""
A kernel failed while it ran. Kernels run some time after Python has launched them, so the line above may come
after the one at fault; `%env CUDA_LAUNCH_BLOCKING=1` before a restart names it.
{_RESTART}""",
    ),
    (
        r"peer access is not supported",
        """
These two GPUs cannot read each other's memory. `%env NCCL_P2P_DISABLE=1` and `%ranks restart` have NCCL go
through the host's memory instead; `python -m fourranks doctor` shows how the GPUs are linked.""",
    ),
    (
        r"no kernel image is available",
        """
This torch was not built for this generation of GPU; torch.cuda.get_arch_list() shows for which ones it was.
Install a torch that has it.""",
    ),
    (
        r"invalid device ordinal",
        """
There is no GPU of that number for this rank. Its own is `device`; CUDA_VISIBLE_DEVICES limits the GPUs and
numbers them again, from 0.""",
    ),
    (
        r"No backend type associated with device type cpu",
        """
NCCL moves only tensors that are on a GPU: make them there (device=device) or move them with .to(device).""",
    ),
    (
        r"NCCL communicator was aborted",
        """
This process group was cut to free a waiting rank and cannot be used any more. The default group has been
formed again; make sub-groups again with dist.new_group.""",
    ),
    (
        r"remote process exited|ncclRemoteError|[Cc]onnection closed by remote peer",
        """
Another rank left while this one communicated with it: its error, or its end, is the cause.""",
    ),
    (
        r"ncclUnhandledCudaError|ncclSystemError|ncclInternalError",
        """
NCCL stopped at an error of CUDA or of the system, which its last line names. `%env NCCL_DEBUG=WARN` and
`%ranks restart` have it say more; `python -m fourranks doctor` looks for causes.""",
    ),
]
_COMPILED = [(re.compile(words), meaning.strip()) for words, meaning in _EXPLANATIONS]


def explain(message: str) -> str | None:
    """Explain an error message of NCCL or CUDA and say what to do; None if no such error is known."""
    return next((meaning for words, meaning in _COMPILED if words.search(message)), None)
