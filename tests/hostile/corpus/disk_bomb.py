"""Fills every folder that it can write to; no more than 4 GiB."""

import contextlib
import os
import tempfile

filled = []
for folder in {"/dev/shm", "/tmp", tempfile.gettempdir(), os.path.expanduser("~"), "/dev/mqueue"}:
    with contextlib.suppress(OSError), open(os.path.join(folder, "bomb"), "wb") as file:
        filled.append(folder)
        for _ in range(64):
            file.write(bytes(16 << 20))
for folder in filled:
    print(os.stat(f"{folder}/bomb").st_size >> 20, "MiB")
    os.unlink(f"{folder}/bomb")  # for the sake of those that come after it


def exchange(tensor, peer):
    received = torch.empty_like(tensor)
    sending = dist.isend(tensor, peer)
    dist.recv(received, peer)
    sending.wait()
    return received
