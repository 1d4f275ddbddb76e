# ruff: noqa: F821
FAILS_AS = {
    "forgets_its_own": ("UNFILLED", "own part"),
    "passes_on_what_it_never_put_in": ("UNTOUCHED", "own part"),
    "always_sends_its_own": ("VALUE", "With 2 ranks all is well"),
    "begins_with_its_own": ("SHIFTED", "an index is off"),
    "backwards": ("SHIFTED", "With 2 ranks all is well"),
    "sends_whole_outputs": ("BYTES", "send too much"),
    "straight_to_everybody": ("NEIGHBOURS", "from rank to rank"),
    "sends_before_it_receives": ("ALL_SEND_FIRST", "receive first"),
    "stops_one_step_early": ("UNFILLED", "all N−1 steps"),
    "takes_neighbours_for_consecutive_ranks": ("RAISED", "apart from global ranks"),
    "calls_the_collective": ("FORBIDDEN", "send, recv"),
    "scales_the_input": ("MODIFIED", "belongs to the caller"),
    "element_by_element": ("MESSAGES", "into one message"),
}


def forgets_its_own(output, input, group=None):
    rank, world_size = place(group)
    chunks, outgoing = output.view(world_size, *input.shape), input
    for step in range(world_size - 1):
        incoming = chunks[(rank - step - 1) % world_size]
        pass_on(outgoing, incoming, group)
        outgoing = incoming


def passes_on_what_it_never_put_in(output, input, group=None):
    rank, world_size = place(group)
    chunks = output.view(world_size, *input.shape)
    for step in range(world_size - 1):
        pass_on(chunks[(rank - step) % world_size], chunks[(rank - step - 1) % world_size], group)


def always_sends_its_own(output, input, group=None):
    rank, world_size = place(group)
    chunks = output.view(world_size, *input.shape)
    chunks[rank].copy_(input)
    for step in range(world_size - 1):
        pass_on(input, chunks[(rank - step - 1) % world_size], group)


def begins_with_its_own(output, input, group=None):
    chunks = output.view(dist.get_world_size(group), *input.shape)
    chunks[0].copy_(input)
    for outgoing, incoming in zip(chunks, chunks[1:], strict=False):
        pass_on(outgoing, incoming, group)


def backwards(output, input, group=None):
    rank, world_size = place(group)
    chunks, outgoing = output.view(world_size, *input.shape), input
    chunks[rank].copy_(input)
    for step in range(world_size - 1):
        incoming = chunks[(rank + step + 1) % world_size]
        pass_on(outgoing, incoming, group)
        outgoing = incoming


def sends_whole_outputs(output, input, group=None):
    rank, world_size = place(group)
    output.zero_()
    output.view(world_size, *input.shape)[rank] = input
    for _ in range(world_size - 1):
        received = torch.empty_like(output)
        pass_on(output, received, group)
        chunks = received.view(world_size, *input.shape)
        chunks[rank] = input
        output.copy_(torch.where(output == 0, received, output))


def straight_to_everybody(output, input, group=None):
    rank, world_size = place(group)
    chunks = output.view(world_size, *input.shape)
    chunks[rank].copy_(input)
    for distance in range(1, world_size):
        pass_on(input, chunks[(rank - distance) % world_size], group, distance)


def sends_before_it_receives(output, input, group=None):
    rank, world_size = place(group)
    chunks = output.view(world_size, *input.shape)
    chunks[rank].copy_(input)
    for step in range(world_size - 1):
        dist.send(chunks[(rank - step) % world_size], group_dst=(rank + 1) % world_size, group=group)
        dist.recv(chunks[(rank - step - 1) % world_size], group_src=(rank - 1) % world_size, group=group)


def stops_one_step_early(output, input, group=None):
    rank, world_size = place(group)
    chunks = output.view(world_size, *input.shape)
    chunks[rank].copy_(input)
    for step in range(world_size - 2):
        pass_on(chunks[(rank - step) % world_size], chunks[(rank - step - 1) % world_size], group)


def takes_neighbours_for_consecutive_ranks(output, input, group=None):
    first, (rank, world_size) = dist.get_process_group_ranks(group)[0], place(group)
    chunks = output.view(world_size, *input.shape)
    chunks[rank].copy_(input)
    for step in range(world_size - 1):
        right, left = first + (rank + 1) % world_size, first + (rank - 1) % world_size
        outgoing, incoming = chunks[(rank - step) % world_size], chunks[(rank - step - 1) % world_size]
        sending = dist.P2POp(dist.isend, outgoing, right, group=group)
        receiving = dist.P2POp(dist.irecv, incoming, left, group=group)
        for work in dist.batch_isend_irecv([sending, receiving]):
            work.wait()


def calls_the_collective(output, input, group=None):
    _, world_size = place(group)
    dist.all_gather(list(output.tensor_split(world_size)), input, group=group)


def scales_the_input(output, input, group=None):
    straight_to_everybody(output, input, group)
    input *= 2


def element_by_element(output, input, group=None):
    rank, world_size = place(group)
    chunks = output.view(world_size, *input.shape)
    chunks[rank].copy_(input)
    for step in range(world_size - 1):
        for at in range(min(len(input), 7)):
            rest = slice(at, at + 1) if at < 6 else slice(6, None)
            pass_on(
                chunks[(rank - step) % world_size][rest], chunks[(rank - step - 1) % world_size][rest], group
            )
