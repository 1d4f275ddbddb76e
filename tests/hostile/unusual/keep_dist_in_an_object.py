"""Keeps torch.distributed in an object, as frameworks do."""


class Communicator:
    def __init__(self, backend=dist):
        self.backend = backend

    def swap(self, tensor, peer):
        received = torch.empty_like(tensor)
        sending = self.backend.isend(tensor, peer)
        self.backend.recv(received, peer)
        sending.wait()
        return received


communicator = Communicator()


def exchange(tensor, peer):
    return communicator.swap(tensor, peer)
