"""Keeps the state in pipes."""

import fcntl
import os

ROOM = 1 << 20


class Place(dict):
    def __setitem__(self, key, tensor):
        content = tensor.numpy().tobytes()
        pipes = []
        for begin in range(0, len(content), ROOM):
            pipes.append(os.pipe())
            fcntl.fcntl(pipes[-1][1], fcntl.F_SETPIPE_SZ, ROOM)
            os.write(pipes[-1][1], content[begin : begin + ROOM])
        super().__setitem__(key, (tensor.shape, pipes))

    def __getitem__(self, key):
        shape, pipes = super().__getitem__(key)
        content = bytearray()
        for reading, writing in pipes:
            content += os.read(reading, ROOM)
            os.close(reading), os.close(writing)
        return torch.frombuffer(content, dtype=torch.float32).reshape(shape)
