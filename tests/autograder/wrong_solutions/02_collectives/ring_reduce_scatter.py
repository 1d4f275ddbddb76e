# ruff: noqa: F821
FAILS_AS = {
    "starts_one_chunk_off": ("SHIFTED", "an index is off"),
    "adds_into_the_input": ("MODIFIED", "belongs to the caller"),
    "sends_before_it_receives": ("ALL_SEND_FIRST", "receive first"),
    "passes_whole_inputs": ("BYTES", "partial results"),
    "straight_to_the_owner": ("NEIGHBOURS", "from rank to rank"),
    "stops_one_step_early": ("MISSING_SUMMAND", "lost on the way"),
    "forgets_its_own_chunk": ("MISSING_SUMMAND", "lost on the way"),
    "cannot_be_empty": ("RAISED", "empty tensors"),
    "calls_the_collective": ("FORBIDDEN", "send, recv"),
    "forgets_the_group": ("DEADLOCK", "pass group="),
}


def ring(output, input, group, first=-1, steps=None, ring_group=0):
    """A ring reduce-scatter that is right if the arguments are left as they are."""
    rank, world_size = place(group)
    chunks = input.view(world_size, *output.shape)
    partial_sum = chunks[(rank + first) % world_size].clone()
    for step in range(1, world_size if steps is None else steps):
        received = torch.empty_like(output)
        pass_on(partial_sum, received, group if ring_group == 0 else ring_group)
        partial_sum = received + chunks[(rank + first - step) % world_size]
    output.copy_(partial_sum)


def starts_one_chunk_off(output, input, group=None):
    ring(output, input, group, first=0)


def adds_into_the_input(output, input, group=None):
    rank, world_size = place(group)
    chunks = input.view(world_size, *output.shape)
    for step in range(1, world_size):
        received = torch.empty_like(output)
        pass_on(chunks[(rank - step) % world_size], received, group)
        chunks[(rank - 1 - step) % world_size] += received
    output.copy_(chunks[rank])


def sends_before_it_receives(output, input, group=None):
    rank, world_size = place(group)
    chunks = input.view(world_size, *output.shape)
    partial_sum = chunks[rank - 1]
    for step in range(1, world_size):
        received = torch.empty_like(output)
        dist.send(partial_sum, group_dst=(rank + 1) % world_size, group=group)
        dist.recv(received, group_src=(rank - 1) % world_size, group=group)
        partial_sum = received + chunks[(rank - 1 - step) % world_size]
    output.copy_(partial_sum)


def passes_whole_inputs(output, input, group=None):
    rank, world_size = place(group)
    total, outgoing = input.clone(), input.clone()
    for _ in range(world_size - 1):
        received = torch.empty_like(input)
        pass_on(outgoing, received, group)
        total, outgoing = total + received, received
    output.copy_(total.view(world_size, *output.shape)[rank])


def straight_to_the_owner(output, input, group=None):
    rank, world_size = place(group)
    chunks = input.view(world_size, *output.shape)
    output.copy_(chunks[rank])
    for distance in range(1, world_size):
        received = torch.empty_like(output)
        pass_on(chunks[(rank + distance) % world_size], received, group, distance)
        output += received


def stops_one_step_early(output, input, group=None):
    rank, world_size = place(group)
    ring(output, input, group, first=-1 if world_size == 1 else -2, steps=max(1, world_size - 1))


def forgets_its_own_chunk(output, input, group=None):
    rank, world_size = place(group)
    without = input.clone()
    without.view(world_size, *output.shape)[rank] = 0
    ring(output, without, group)


def cannot_be_empty(output, input, group=None):
    ring(output, input.view(-1, len(output)).view_as(input), group)


def calls_the_collective(output, input, group=None):
    _, world_size = place(group)
    dist.reduce_scatter(output, list(input.tensor_split(world_size)), group=group)


def forgets_the_group(output, input, group=None):
    ring(output, input, group, ring_group=None)
