"""Uses `rank` in a method of a class that the function makes an object of."""


class Pair:
    def __init__(self, peer):
        self.peer, self.first = peer, rank < peer

    def swap(self, tensor):
        received = torch.empty_like(tensor)
        if self.first:
            dist.send(tensor, self.peer)
        dist.recv(received, self.peer)
        if not self.first:
            dist.send(tensor, self.peer)
        return received


def exchange(tensor, peer):
    return Pair(peer).swap(tensor)
