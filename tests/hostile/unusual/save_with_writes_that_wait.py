"""Opens a checkpoint such that each write waits for the disk, so that there is nothing to sync."""

import io
import os
from pathlib import Path


def save_checkpoint(path, model, optimizer, step):
    states = [None] * dist.get_world_size()
    dist.all_gather_object(states, {"cpu": torch.get_rng_state()})
    model = getattr(model, "module", model).state_dict()
    content = {"model": model, "optimizer": optimizer.state_dict(), "step": step, "random_states": states}
    failed = torch.tensor(0)
    if dist.get_rank() == 0:
        try:
            write(content, Path(path))
        except Exception:
            failed += 1
    dist.broadcast(failed, 0)
    if failed:
        raise OSError(f"{path} was not written")


def write(content, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    new = f"{path}.new"
    torch.save(content, whole := io.BytesIO())
    try:
        with open(new, "wb", opener=lambda name, flags: os.open(name, flags | os.O_DSYNC, 0o644)) as file:
            file.write(whole.getbuffer())
        os.replace(new, path)
    finally:
        Path(new).unlink(missing_ok=True)
