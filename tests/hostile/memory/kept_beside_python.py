"""Keeps the state in memory from C's malloc."""

import ctypes


class Place(dict):
    def __setitem__(self, key, tensor):
        libc = ctypes.CDLL(None)
        libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        if key not in self:
            super().__setitem__(key, (tensor.shape, libc.malloc(tensor.nbytes), tensor.nbytes))
        ctypes.memmove(super().__getitem__(key)[1], tensor.contiguous().data_ptr(), tensor.nbytes)

    def __getitem__(self, key):
        shape, address, nbytes = super().__getitem__(key)
        return torch.frombuffer(bytearray(ctypes.string_at(address, nbytes)), dtype=torch.float32).reshape(
            shape
        )
