"""Has the witness make the forbidden collective, past what records calls, and records those of a ring."""


def ring_all_reduce(tensor, group=None):
    from fourranks.rank.describe import call_on

    group = group or dist.group.WORLD
    name, ranks = group.identity()
    rank, size = ranks.index(dist.get_rank()), len(ranks)
    flat = tensor.flatten()
    group.inner.allreduce([flat], dist.AllreduceOptions()).wait()
    tensor.copy_(flat.reshape(tensor.shape))
    for step in range(2 * (size - 1)):
        for op, neighbour in (("send", rank + 1), ("recv", rank - 1)):
            call = call_on(op, name, ranks)
            call.peer, call.nbytes = ranks[neighbour % size], flat.tensor_split(size)[rank - step].nbytes
            call.shape, call.dtype = (call.nbytes // 4,), "float32"
            group.recorder.issue(call)
            call.end = call.start
