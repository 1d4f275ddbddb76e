# ruff: noqa: F821
FAILS_AS = {
    "both_send_first": ("ALL_SEND_FIRST", "receive first"),
    "both_receive_first": ("DEADLOCK", "no rank sends"),
    "returns_its_own": ("SHIFTED", "an index is off"),
    "receives_in_place": ("WRONG_TYPE", "the task"),
    "does_not_wait": ("UNWAITED", "wait()"),
    "sends_twice": ("BYTES", "send too much"),
    "receives_as_float32": ("MISMATCH", "shape and dtype"),
    "orders_by_odd_and_even": ("SOME_SEND_FIRST", "the lower rank"),
    "only_rank_0_sends_first": ("DEADLOCK", "no rank sends"),
    "overwrites_its_own": ("MODIFIED", "belongs to the caller"),
    "keeps_its_buffer": ("OVERWRITTEN", "a new tensor in every call"),
    "sends_what_it_was_given_first": ("FROM_AN_EARLIER_CALL", "filled again"),
    "uses_its_own_tag": ("DEADLOCK", "every send needs its receive"),
    "sends_to_its_neighbours": ("DEADLOCK", "every send needs its receive"),
    "waits_for_its_send_only": ("UNWAITED", "wait()"),
    "receives_into_what_it_has_sent": ("MODIFIED", "belongs to the caller"),
}


def both_send_first(tensor, peer):
    received = torch.empty_like(tensor)
    dist.send(tensor, peer)
    dist.recv(received, peer)
    return received


def both_receive_first(tensor, peer):
    received = torch.empty_like(tensor)
    dist.recv(received, peer)
    dist.send(tensor, peer)
    return received


def swap(tensor, peer, received):
    sending = dist.isend(tensor, peer)
    dist.recv(received, peer)
    sending.wait()
    return received


def returns_its_own(tensor, peer):
    swap(tensor, peer, torch.empty_like(tensor))
    return tensor


def receives_in_place(tensor, peer):
    swap(tensor.clone(), peer, tensor)


def does_not_wait(tensor, peer):
    received = torch.empty_like(tensor)
    dist.isend(tensor, peer)
    dist.recv(received, peer)
    return received


def sends_twice(tensor, peer):
    swap(tensor, peer, torch.empty_like(tensor))
    return swap(tensor, peer, torch.empty_like(tensor))


def receives_as_float32(tensor, peer):
    return swap(tensor, peer, torch.empty(tensor.shape))


def only_rank_0_sends_first(tensor, peer):
    received = torch.empty_like(tensor)
    if dist.get_rank() == 0:
        dist.send(tensor, peer)
        dist.recv(received, peer)
    else:
        dist.recv(received, peer)
        dist.send(tensor, peer)
    return received


def overwrites_its_own(tensor, peer):
    return swap(tensor.clone(), peer, tensor)


def receives_into_what_it_has_sent(tensor, peer):
    received = torch.empty_like(tensor)
    if dist.get_rank() < peer:
        dist.send(tensor, peer)
        dist.recv(tensor, peer)
        return tensor
    dist.recv(received, peer)
    dist.send(tensor, peer)
    return received


BUFFERS = {}


def keeps_its_buffer(tensor, peer):
    return swap(tensor, peer, BUFFERS.setdefault((tensor.shape, tensor.dtype), torch.empty_like(tensor)))


def sends_what_it_was_given_first(tensor, peer):
    own = BUFFERS.setdefault((tensor.shape, tensor.dtype), tensor)
    return swap(own, peer, torch.empty_like(tensor))


def orders_by_odd_and_even(tensor, peer):
    received = torch.empty_like(tensor)
    if dist.get_rank() % 2 == 0:
        dist.send(tensor, peer)
        dist.recv(received, peer)
    else:
        dist.recv(received, peer)
        dist.send(tensor, peer)
    return received


def uses_its_own_tag(tensor, peer):
    received, tag = torch.empty_like(tensor), dist.get_rank()
    sending = dist.isend(tensor, peer, tag=tag)
    dist.recv(received, peer, tag=tag)
    sending.wait()
    return received


def sends_to_its_neighbours(tensor, peer):
    (rank, world_size), received = place(), torch.empty_like(tensor)
    sending = dist.isend(tensor, (rank + 1) % world_size)
    dist.recv(received, (rank - 1) % world_size)
    sending.wait()
    return received


def waits_for_its_send_only(tensor, peer):
    received = torch.empty_like(tensor)
    sending = [dist.P2POp(dist.isend, tensor, peer), dist.P2POp(dist.irecv, received, peer)]
    dist.batch_isend_irecv(sending)[0].wait()
    return received
