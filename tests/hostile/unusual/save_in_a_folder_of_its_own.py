"""Makes a checkpoint whole in a temporary folder, and moves it out."""

import os
import shutil
import tempfile
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
    for left_over in path.parent.glob("new-*"):
        shutil.rmtree(left_over)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="new-", dir=path.parent) as folder:
        new = Path(folder, "checkpoint.pt")
        torch.save(content, new)
        with new.open("rb+") as file:
            os.fsync(file)
        shutil.move(new, path)
