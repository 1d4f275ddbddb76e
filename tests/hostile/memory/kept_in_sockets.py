"""Keeps the state in files in memory that are on their way through a pair of sockets."""

import os
import socket


class Place(dict):
    def __setitem__(self, key, tensor):
        ours, theirs = socket.socketpair()
        file = os.memfd_create("state")
        os.pwrite(file, tensor.numpy().tobytes(), 0)
        socket.send_fds(ours, [b"."], [file])
        os.close(file)
        super().__setitem__(key, (tensor.shape, ours, theirs))

    def __getitem__(self, key):
        shape, ours, theirs = super().__getitem__(key)
        _, (file,), _, _ = socket.recv_fds(theirs, 1, 1)
        content = bytearray(os.pread(file, os.fstat(file).st_size, 0))
        os.close(file)
        return torch.frombuffer(content, dtype=torch.float32).reshape(shape)
