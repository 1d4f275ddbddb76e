import io
import os
import shutil
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

FAILS_AS = {
    "writes_on_every_rank": ("SECOND_WRITER", "rank 0 alone"),
    "writes_a_file_for_each_rank": ("SECOND_WRITER", "rank 0 alone"),
    "does_not_wait": ("DID_NOT_WAIT", "wait for rank 0"),
    "waits_before_it_writes": ("DID_NOT_WAIT", "after it has written"),
    "writes_into_the_earlier_file": ("WRITTEN_OVER", "os.replace"),
    "copies_over_the_earlier_file": ("WRITTEN_OVER", "os.replace"),
    "saves_the_wrapper": ("OTHER_NAMES", "what is inside"),
    "cuts_names_in_the_middle": ("OTHER_NAMES", "a layer's own name"),
    "forgets_the_buffers": ("NOT_WHOLE", "includes buffers"),
    "forgets_the_optimizer": ("NOT_WHOLE", "Compare with the table"),
    "saves_the_momenta_only": ("NOT_WHOLE", "learning rates"),
    "saves_a_tensor_as_step": ("NOT_WHOLE", "Compare with the table"),
    "saves_its_own_random_state": ("RANDOM_STATES", "all their states"),
    "saves_random_states_in_a_dict": ("RANDOM_STATES", "a list"),
    "saves_whole_objects": ("UNREADABLE", "plain data"),
    "makes_no_folder": ("RAISED", "the line"),
    "removes_the_earlier_file_first": ("LOST", "os.replace"),
    "moves_the_earlier_file_away": ("LOST", "os.replace"),
    "hides_a_full_disk": ("UNNOTICED", "must say so"),
    "leaves_the_others_waiting": ("LEFT_WAITING", "raise on every rank"),
    "makes_the_folder_before_it_catches": ("LEFT_WAITING", "making the folder"),
    "leaves_the_temporary_file": ("LEFT_OVER", "none of your other files"),
    "leaves_a_file_for_each_killed_process": ("LEFT_OVER", "always has the same name"),
    "empties_the_folder": ("DELETED", "written yourself"),
    "stumbles_over_a_leftover": ("RAISED", "the line"),
    "writes_elsewhere": ("NO_FILE", "exactly this path"),
    "writes_twice_into_one_file": ("TOO_LARGE", "nothing else"),
    "leaves_it_in_memory": ("NOT_ON_THE_DISK", "os.fsync"),
    "writes_in_the_temporary_folder": ("NOT_ON_THE_DISK or WRITTEN_OVER", "folder"),
    "takes_a_part_for_the_whole": ("LOST", "only a part"),
    "syncs_under_the_final_name": ("NOT_ON_THE_DISK", "Before the file gets"),
    "needs_a_folder_in_the_path": ("RAISED", "Read the line"),
}


def content_of(model, optimizer, step):
    random_states = [None] * dist.get_world_size()
    dist.all_gather_object(random_states, {"cpu": torch.get_rng_state()})
    model = getattr(model, "module", model)
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "step": step,
        "random_states": random_states,
    }


def to_disk(content, path):
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "wb") as file:
        torch.save(content, file)
        os.fsync(file.fileno())


def replace(content, path):
    to_disk(content, f"{path}.tmp")
    os.replace(f"{path}.tmp", path)


def finish(write, content, path):
    """Writes on rank 0; all ranks wait, and all raise when it fails."""
    outcome = [None]
    if dist.get_rank() == 0:
        try:
            write(content, path)
        except Exception as error:
            outcome = [str(error)]
    dist.broadcast_object_list(outcome, src=0)
    if outcome[0]:
        raise RuntimeError(outcome[0])


def writes_on_every_rank(path, model, optimizer, step):
    replace(content_of(model, optimizer, step), path)
    dist.barrier()


def writes_a_file_for_each_rank(path, model, optimizer, step):
    name = str(path) if dist.get_rank() == 0 else f"{path}.rank{dist.get_rank()}"
    replace(content_of(model, optimizer, step), name)
    dist.barrier()


def does_not_wait(path, model, optimizer, step):
    content = content_of(model, optimizer, step)
    if dist.get_rank() == 0:
        replace(content, path)


def waits_before_it_writes(path, model, optimizer, step):
    content = content_of(model, optimizer, step)
    dist.barrier()
    if dist.get_rank() == 0:
        replace(content, path)


def writes_into_the_earlier_file(path, model, optimizer, step):
    def write(content, path):
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        torch.save(content, path)

    finish(write, content_of(model, optimizer, step), path)


def copies_over_the_earlier_file(path, model, optimizer, step):
    def write(content, path):
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        torch.save(content, f"{path}.tmp")
        shutil.copyfile(f"{path}.tmp", path)
        os.remove(f"{path}.tmp")

    finish(write, content_of(model, optimizer, step), path)


def saves_the_wrapper(path, model, optimizer, step):
    finish(replace, content_of(model, optimizer, step) | {"model": model.state_dict()}, path)


def cuts_names_in_the_middle(path, model, optimizer, step):
    state = {name.replace("module.", ""): tensor for name, tensor in model.state_dict().items()}
    finish(replace, content_of(model, optimizer, step) | {"model": state}, path)


def forgets_the_buffers(path, model, optimizer, step):
    parameters = {name: p.detach() for name, p in getattr(model, "module", model).named_parameters()}
    finish(replace, content_of(model, optimizer, step) | {"model": parameters}, path)


def forgets_the_optimizer(path, model, optimizer, step):
    content = content_of(model, optimizer, step)
    del content["optimizer"]
    finish(replace, content, path)


def saves_the_momenta_only(path, model, optimizer, step):
    momenta = optimizer.state_dict() | {"param_groups": []}
    finish(replace, content_of(model, optimizer, step) | {"optimizer": momenta}, path)


def saves_a_tensor_as_step(path, model, optimizer, step):
    finish(replace, content_of(model, optimizer, torch.tensor(step)), path)


def saves_its_own_random_state(path, model, optimizer, step):
    own = [{"cpu": torch.get_rng_state()}] * dist.get_world_size()
    finish(replace, content_of(model, optimizer, step) | {"random_states": own}, path)


def saves_random_states_in_a_dict(path, model, optimizer, step):
    content = content_of(model, optimizer, step)
    finish(replace, content | {"random_states": dict(enumerate(content["random_states"]))}, path)


def saves_whole_objects(path, model, optimizer, step):
    content = content_of(model, optimizer, step)
    finish(replace, content | {"model": getattr(model, "module", model), "optimizer": optimizer}, path)


def makes_no_folder(path, model, optimizer, step):
    content = content_of(model, optimizer, step)
    if dist.get_rank() == 0:
        torch.save(content, f"{path}.tmp")
        os.replace(f"{path}.tmp", path)
    dist.barrier()


def removes_the_earlier_file_first(path, model, optimizer, step):
    def write(content, path):
        to_disk(content, f"{path}.tmp")
        Path(path).unlink(missing_ok=True)
        os.rename(f"{path}.tmp", path)

    finish(write, content_of(model, optimizer, step), path)


def moves_the_earlier_file_away(path, model, optimizer, step):
    def write(content, path):
        backup = f"{path}.bak"
        if os.path.exists(path):
            os.rename(path, backup)
        try:
            replace(content, path)
        except Exception:
            os.replace(backup, path)
            raise
        if os.path.exists(backup):
            os.remove(backup)

    finish(write, content_of(model, optimizer, step), path)


def hides_a_full_disk(path, model, optimizer, step):
    content = content_of(model, optimizer, step)
    if dist.get_rank() == 0:
        try:
            replace(content, path)
        except Exception as error:
            print(error)
    dist.barrier()


def leaves_the_others_waiting(path, model, optimizer, step):
    content = content_of(model, optimizer, step)
    if dist.get_rank() == 0:
        replace(content, path)
    dist.barrier()


def makes_the_folder_before_it_catches(path, model, optimizer, step):
    if dist.get_rank() == 0:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    finish(replace, content_of(model, optimizer, step), path)


def leaves_the_temporary_file(path, model, optimizer, step):
    def write(content, path):
        to_disk(content, f"{path}.tmp")
        os.link(f"{path}.tmp", f"{path}.new")
        os.replace(f"{path}.new", path)

    def write_to_a_new_file(content, path):
        Path(f"{path}.tmp").unlink(missing_ok=True)
        write(content, path)

    finish(write_to_a_new_file, content_of(model, optimizer, step), path)


def leaves_a_file_for_each_killed_process(path, model, optimizer, step):
    def write(content, path):
        temporary = f"{path}.{os.getpid()}"
        to_disk(content, temporary)
        os.replace(temporary, path)

    finish(write, content_of(model, optimizer, step), path)


def empties_the_folder(path, model, optimizer, step):
    def write(content, path):
        replace(content, path)
        for other in Path(path).absolute().parent.iterdir():
            if other.name != Path(path).name:
                other.unlink()

    finish(write, content_of(model, optimizer, step), path)


def writes_elsewhere(path, model, optimizer, step):
    finish(replace, content_of(model, optimizer, step), f"{path}.{step}")


def stumbles_over_a_leftover(path, model, optimizer, step):
    def write(content, path):
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        with open(f"{path}.tmp", "xb") as file:
            torch.save(content, file)
            os.fsync(file.fileno())
        os.replace(f"{path}.tmp", path)

    finish(write, content_of(model, optimizer, step), path)


def writes_twice_into_one_file(path, model, optimizer, step):
    def write(content, path):
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        with open(f"{path}.tmp", "wb") as file:
            torch.save(content, file)
            torch.save(content, file)
            os.fsync(file.fileno())
        os.replace(f"{path}.tmp", path)

    finish(write, content_of(model, optimizer, step), path)


def leaves_it_in_memory(path, model, optimizer, step):
    def write(content, path):
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        torch.save(content, f"{path}.tmp")
        os.replace(f"{path}.tmp", path)

    finish(write, content_of(model, optimizer, step), path)


def writes_in_the_temporary_folder(path, model, optimizer, step):
    def write(content, path):
        number, temporary = tempfile.mkstemp()
        with os.fdopen(number, "wb") as file:
            torch.save(content, file)
            os.fsync(file.fileno())
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        shutil.move(temporary, path)

    finish(write, content_of(model, optimizer, step), path)


def takes_a_part_for_the_whole(path, model, optimizer, step):
    def write(content, path):
        torch.save(content, buffer := io.BytesIO())
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        number = os.open(f"{path}.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(number, buffer.getvalue())
        os.fsync(number)
        os.close(number)
        os.replace(f"{path}.tmp", path)

    finish(write, content_of(model, optimizer, step), path)


def syncs_under_the_final_name(path, model, optimizer, step):
    def write(content, path):
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        torch.save(content, f"{path}.tmp")
        os.replace(f"{path}.tmp", path)
        with open(path, "rb+") as file:
            os.fsync(file.fileno())

    finish(write, content_of(model, optimizer, step), path)


def needs_a_folder_in_the_path(path, model, optimizer, step):
    def write(content, path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        replace(content, path)

    finish(write, content_of(model, optimizer, step), path)
