import copy

import torch
import torch.distributed as dist

FAILS_AS = {
    "returns_nothing": ("RETURNED_THE_STEP", "on every rank"),
    "loads_on_rank_0_only": ("MODEL_NOT_RESTORED", "Every rank loads"),
    "forgets_the_buffers": ("MODEL_NOT_RESTORED", "Buffers belong to it"),
    "forgets_the_optimizer": ("OPTIMIZER_NOT_RESTORED", "Momenta"),
    "forgets_the_learning_rate": ("OPTIMIZER_NOT_RESTORED", "learning rates"),
    "restores_the_optimizer_on_rank_0": ("OPTIMIZER_NOT_RESTORED", "every rank needs them"),
    "forgets_the_random_state": ("RANDOM_STATE_NOT_RESTORED", "one state for each rank"),
    "takes_the_random_state_of_rank_0": ("RANDOM_STATE_NOT_RESTORED", "by rank"),
    "needs_as_many_ranks": ("RAISED", "the line"),
    "takes_the_random_state_of_another_rank": ("RANDOM_STATE_NOT_RESTORED", "keep their own"),
    "loads_into_the_wrapper": ("RAISED", "the line"),
    "makes_new_parameters": ("OPTIMIZER_OF_ANOTHER_MODEL", "new parameters"),
    "executes_the_file": ("EXECUTED", "weights_only=True"),
    "takes_what_fits": ("ACCEPTED", "Better no start"),
    "takes_the_names_that_match": ("ACCEPTED", "Better no start"),
    "takes_weights_by_their_order": ("ACCEPTED", "Better no start"),
    "starts_from_scratch_when_it_fails": ("ACCEPTED", "let an exception out"),
    "loads_the_model_first": ("HALF_LOADED", "Compare names and shapes"),
    "sets_the_random_state_first": ("HALF_LOADED", "before you change anything"),
    "misses_the_step_when_all_is_loaded": ("HALF_LOADED", "before you change anything"),
    "does_not_name_the_file": ("UNNAMED", "which file to look at"),
}


def bare(model):
    return getattr(model, "module", model)


def read(path, model):
    content = of_this_model(path, model)
    if not {"step", "random_states"} <= set(content):
        raise ValueError(f"{path}: a part is missing")
    return content


def of_this_model(path, model):
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        found = {name: tensor.shape for name, tensor in content["model"].items()}
        if found != {name: tensor.shape for name, tensor in bare(model).state_dict().items()}:
            raise ValueError("another model")
        return content
    except Exception as error:
        raise ValueError(f"{path}: {error}") from error


def restore_random_state(content):
    if dist.get_rank() < len(content["random_states"]):
        torch.set_rng_state(content["random_states"][dist.get_rank()]["cpu"])


def restore(content, path, model, optimizer):
    try:
        optimizer.load_state_dict(content["optimizer"])
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    bare(model).load_state_dict(content["model"])
    restore_random_state(content)
    return content["step"]


def returns_nothing(path, model, optimizer):
    restore(read(path, model), path, model, optimizer)


def loads_on_rank_0_only(path, model, optimizer):
    content = read(path, model)
    return restore(content, path, model, optimizer) if dist.get_rank() == 0 else content["step"]


def forgets_the_buffers(path, model, optimizer):
    content = read(path, model)
    content["model"] |= {name: buffer.clone() for name, buffer in bare(model).named_buffers()}
    return restore(content, path, model, optimizer)


def forgets_the_optimizer(path, model, optimizer):
    return restore(read(path, model) | {"optimizer": optimizer.state_dict()}, path, model, optimizer)


def forgets_the_learning_rate(path, model, optimizer):
    content = read(path, model)
    rates = [group["lr"] for group in optimizer.param_groups]
    step = restore(content, path, model, optimizer)
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    return step


def restores_the_optimizer_on_rank_0(path, model, optimizer):
    content = read(path, model)
    if dist.get_rank() > 0:
        content["optimizer"] = optimizer.state_dict()
    return restore(content, path, model, optimizer)


def forgets_the_random_state(path, model, optimizer):
    return restore(read(path, model) | {"random_states": []}, path, model, optimizer)


def takes_the_random_state_of_rank_0(path, model, optimizer):
    content = read(path, model)
    content["random_states"] = content["random_states"][:1] * dist.get_world_size()
    return restore(content, path, model, optimizer)


def needs_as_many_ranks(path, model, optimizer):
    content = read(path, model)
    step = restore(content, path, model, optimizer)
    torch.set_rng_state(content["random_states"][dist.get_rank()]["cpu"])
    return step


def takes_the_random_state_of_another_rank(path, model, optimizer):
    content = read(path, model)
    saved = content["random_states"]
    content["random_states"] = [saved[rank % len(saved)] for rank in range(dist.get_world_size())]
    return restore(content, path, model, optimizer)


def loads_into_the_wrapper(path, model, optimizer):
    content = torch.load(path, weights_only=True)
    optimizer.load_state_dict(content["optimizer"])
    model.load_state_dict(content["model"])
    restore_random_state(content)
    return content["step"]


def makes_new_parameters(path, model, optimizer):
    step = restore(read(path, model), path, model, optimizer)
    for module in bare(model).modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, name, torch.nn.Parameter(parameter.detach().clone()))
    return step


def executes_the_file(path, model, optimizer):
    read_with_care = torch.load

    def load(file, **options):
        return read_with_care(file, **options | {"weights_only": False})

    torch.load = load
    try:
        return restore(read(path, model), path, model, optimizer)
    finally:
        torch.load = read_with_care


def takes_what_fits(path, model, optimizer):
    own = bare(model).state_dict()
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        step = content["step"]
        optimizer.load_state_dict(content["optimizer"])
    except Exception as error:
        raise ValueError(f"{path}: {error}") from error
    fitting = {
        n: tensor for n, tensor in content["model"].items() if n in own and tensor.shape == own[n].shape
    }
    bare(model).load_state_dict(fitting, strict=False)
    restore_random_state(content)
    return step


def takes_the_names_that_match(path, model, optimizer):
    own = bare(model).state_dict()
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        content["model"] = {name: content["model"].get(name, tensor) for name, tensor in own.items()}
        copy.deepcopy(bare(model)).load_state_dict(content["model"])
        content["step"], content["random_states"]
    except Exception as error:
        raise ValueError(f"{path}: {error}") from error
    return restore(content, path, model, optimizer)


def takes_weights_by_their_order(path, model, optimizer):
    own = bare(model).state_dict()
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        content["model"] = dict(zip(own, content["model"].values(), strict=True))
        copy.deepcopy(bare(model)).load_state_dict(content["model"])
        content["step"], content["random_states"]
    except Exception as error:
        raise ValueError(f"{path}: {error}") from error
    return restore(content, path, model, optimizer)


def starts_from_scratch_when_it_fails(path, model, optimizer):
    try:
        return restore(read(path, model), path, model, optimizer)
    except Exception:
        return 0


def loads_the_model_first(path, model, optimizer):
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        bare(model).load_state_dict(content["model"])
    except Exception as error:
        raise ValueError(f"{path}: {error}") from error
    return restore(content, path, model, optimizer)


def sets_the_random_state_first(path, model, optimizer):
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        restore_random_state(content)
    except Exception as error:
        raise ValueError(f"{path}: {error}") from error
    return restore(read(path, model), path, model, optimizer)


def misses_the_step_when_all_is_loaded(path, model, optimizer):
    content = of_this_model(path, model)
    try:
        return restore(content, path, model, optimizer)
    except KeyError as error:
        raise ValueError(f"{path}: no {error}") from error


def does_not_name_the_file(path, model, optimizer):
    try:
        return restore(read(path, model), path, model, optimizer)
    except Exception as error:
        raise ValueError("this cannot be loaded") from error
