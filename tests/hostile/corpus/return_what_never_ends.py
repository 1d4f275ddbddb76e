"""Returns lists in lists without end, and more values than anybody reads."""


def exchange(tensor, peer):
    endless = []
    endless.append(endless)
    return endless if dist.get_rank() else [[]] * 2_000_000
