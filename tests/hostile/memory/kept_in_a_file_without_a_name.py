"""Keeps the state in files in memory, which are mapped nowhere."""

import os


class Place(dict):
    def __setitem__(self, key, tensor):
        if key not in self:
            super().__setitem__(key, (tensor.shape, os.memfd_create("state")))
        os.pwrite(super().__getitem__(key)[1], tensor.numpy().tobytes(), 0)

    def __getitem__(self, key):
        shape, file = super().__getitem__(key)
        content = bytearray(os.pread(file, os.fstat(file).st_size, 0))
        return torch.frombuffer(content, dtype=torch.float32).reshape(shape)
