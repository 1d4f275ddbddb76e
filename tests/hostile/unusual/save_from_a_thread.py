"""Has a thread write a checkpoint and make the disk take it, and waits for it."""

import os
from concurrent.futures import ThreadPoolExecutor
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
    new = path.with_suffix(".new")
    try:
        with ThreadPoolExecutor() as pool:
            pool.submit(write_through, content, new).result()
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def write_through(content, path):
    with path.open("wb") as file:
        torch.save(content, file)
        file.flush()
        os.fsync(file.fileno())
