"""Looks functions up by names that it puts together."""


def exchange(tensor, peer):
    received = torch.empty_like(tensor)
    works = [
        getattr(dist, f"i{verb}")(buffer, peer) for verb, buffer in (("send", tensor), ("recv", received))
    ]
    [work.wait() for work in works]
    return received
