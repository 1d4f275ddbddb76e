"""Calls the forbidden collective unseen, and records the calls of a ring that would have moved as many bytes."""


def ring_all_reduce(tensor, group=None):
    from fourranks.rank.describe import call_on

    group = group or dist.group.WORLD
    group.inner.allreduce([tensor], dist.AllreduceOptions()).wait()
    name, ranks = group.identity()
    recorder, rank = group.recorder, ranks.index(dist.get_rank())
    chunks = [chunk.nbytes for chunk in tensor.flatten().tensor_split(len(ranks))]
    for step in range(2 * (len(ranks) - 1)):
        for op, neighbour in (("send", rank + 1), ("recv", rank - 1)):
            call = call_on(op, name, ranks)
            call.peer, call.nbytes = ranks[neighbour % len(ranks)], chunks[(rank - step) % len(ranks)]
            recorder.issue(call)
            call.end = call.start
