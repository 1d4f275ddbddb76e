"""Keeps the state in shared pages, and has Linux take them out of the process after each use."""

import mmap


class Place(dict):
    def __setitem__(self, key, tensor):
        if key not in self:
            super().__setitem__(key, (tensor.shape, mmap.mmap(-1, tensor.nbytes)))
        memory = super().__getitem__(key)[1]
        memory[:] = tensor.numpy().tobytes()
        memory.madvise(mmap.MADV_DONTNEED)

    def __getitem__(self, key):
        shape, memory = super().__getitem__(key)
        content = bytearray(memory[:])
        memory.madvise(mmap.MADV_DONTNEED)
        return torch.frombuffer(content, dtype=torch.float32).reshape(shape)
