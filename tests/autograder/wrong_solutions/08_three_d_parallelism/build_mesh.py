# ruff: noqa: F821
FAILS_AS = {
    "returns_groups": ("NO_MESH", "with all its fields"),
    "only_own_groups": ("GROUPS_OUT_OF_STEP", "even if it is not a member"),
    "data_fastest": ("COORDINATES_IN_ANOTHER_ORDER", "the data coordinate the slowest"),
    "counts_from_one": ("WRONG_COORDINATES", "divmod"),
    "keeps_the_last_group": ("NO_GROUP", "only to its members"),
    "keeps_lists_of_ranks": ("NOT_A_GROUP", "dist.new_group(ranks) makes one"),
    "swaps_two_groups": ("ANOTHER_AXIS", "differ in one coordinate"),
    "neighbours": ("WRONG_MEMBERS", "the same two other coordinates"),
    "everybody_averages": ("WRONG_MEMBERS", "the same two other coordinates"),
    "a_group_for_each_rank": ("GROUPS_OUT_OF_STEP", "all ranks in the same order"),
    "makes_each_twice": ("TOO_MANY_GROUPS", "make each once"),
    "accepts_another_size": ("WRONG_SIZE_ACCEPTED", "raise a ValueError"),
    "refuses_without_numbers": ("VAGUE_SIZE", "Name the size"),
    "leaves_ranks_out": ("WRONG_SIZE_ACCEPTED or RAISED", ""),
}


def right(data, pipeline, tensor):
    refuse(data, pipeline, tensor)
    sizes = data, pipeline, tensor
    return Mesh(*[group_along(sizes, axis) for axis in range(3)], *places(*sizes)[dist.get_rank()])


def names_each_size(data, pipeline, tensor):  # which is right: no product is written out
    if data * pipeline * tensor != dist.get_world_size():
        raise ValueError(f"{data} x {pipeline} x {tensor} does not fit {dist.get_world_size()} ranks")
    return right(data, pipeline, tensor)


def returns_groups(data, pipeline, tensor):
    mesh = right(data, pipeline, tensor)
    return mesh.data_group, mesh.pipeline_group, mesh.tensor_group


def only_own_groups(data, pipeline, tensor):
    refuse(data, pipeline, tensor)
    sizes, rank = (data, pipeline, tensor), dist.get_rank()
    own = [next(ranks for ranks in lines(sizes, axis) if rank in ranks) for axis in range(3)]
    return Mesh(*map(dist.new_group, own), *places(*sizes)[rank])


def data_fastest(data, pipeline, tensor):
    refuse(data, pipeline, tensor)
    found = {}
    order = [place[::-1] for place in places(tensor, pipeline, data)]
    groups = []
    for axis in range(3):
        found = {}
        for rank, place in enumerate(order):
            found.setdefault(place[:axis] + place[axis + 1 :], []).append(rank)
        made = [(ranks, dist.new_group(ranks)) for ranks in found.values()]
        groups.append(next(group for ranks, group in made if dist.get_rank() in ranks))
    return Mesh(*groups, *order[dist.get_rank()])


def counts_from_one(data, pipeline, tensor):
    mesh = right(data, pipeline, tensor)
    place = [at + 1 for at in (mesh.data_rank, mesh.pipeline_rank, mesh.tensor_rank)]
    return Mesh(mesh.data_group, mesh.pipeline_group, mesh.tensor_group, *place)


def keeps_the_last_group(data, pipeline, tensor):
    refuse(data, pipeline, tensor)
    sizes = data, pipeline, tensor
    groups = [[dist.new_group(ranks) for ranks in lines(sizes, axis)][-1] for axis in range(3)]
    return Mesh(*groups, *places(*sizes)[dist.get_rank()])


def keeps_lists_of_ranks(data, pipeline, tensor):
    mesh = right(data, pipeline, tensor)
    groups = mesh.data_group, mesh.pipeline_group, mesh.tensor_group
    place = mesh.data_rank, mesh.pipeline_rank, mesh.tensor_rank
    return Mesh(*map(dist.get_process_group_ranks, groups), *place)


def swaps_two_groups(data, pipeline, tensor):
    mesh = right(data, pipeline, tensor)
    groups = mesh.pipeline_group, mesh.data_group, mesh.tensor_group
    return Mesh(*groups, mesh.data_rank, mesh.pipeline_rank, mesh.tensor_rank)


def neighbours(data, pipeline, tensor):
    """Every group has consecutive ranks."""
    refuse(data, pipeline, tensor)
    world, groups = data * pipeline * tensor, []
    for size in (data, pipeline, tensor):
        runs = [list(range(first, first + size)) for first in range(0, world, size)]
        made = [(ranks, dist.new_group(ranks)) for ranks in runs]
        groups.append(next(group for ranks, group in made if dist.get_rank() in ranks))
    return Mesh(*groups, *places(data, pipeline, tensor)[dist.get_rank()])


def everybody_averages(data, pipeline, tensor):
    mesh = right(data, pipeline, tensor)
    groups = dist.group.WORLD, mesh.pipeline_group, mesh.tensor_group
    return Mesh(*groups, mesh.data_rank, mesh.pipeline_rank, mesh.tensor_rank)


def a_group_for_each_rank(data, pipeline, tensor):
    """Makes the same group once for each of its members, which keep different ones."""
    refuse(data, pipeline, tensor)
    sizes, groups = (data, pipeline, tensor), []
    for axis in range(3):
        for rank in range(dist.get_world_size()):
            group = dist.new_group(next(ranks for ranks in lines(sizes, axis) if rank in ranks))
            if rank == dist.get_rank():
                groups.append(group)
    return Mesh(*groups, *places(*sizes)[dist.get_rank()])


def makes_each_twice(data, pipeline, tensor):
    right(data, pipeline, tensor)
    return right(data, pipeline, tensor)


def accepts_another_size(data, pipeline, tensor):
    if data * pipeline * tensor == dist.get_world_size():
        return right(data, pipeline, tensor)
    return None


def refuses_without_numbers(data, pipeline, tensor):
    if data * pipeline * tensor != dist.get_world_size():
        raise ValueError("the mesh does not fit")
    return right(data, pipeline, tensor)


def leaves_ranks_out(data, pipeline, tensor):
    if data * pipeline * tensor > dist.get_world_size():
        refuse(data, pipeline, tensor)
    sizes = data, pipeline, tensor
    all_places = places(*sizes)
    groups = [group_along(sizes, axis) for axis in range(3)] if dist.get_rank() < len(all_places) else []
    return Mesh(*(groups or [None] * 3), *all_places[dist.get_rank() % len(all_places)])
