"""Keeps the state in Python's own bytes."""


class Place(dict):
    def __setitem__(self, key, tensor):
        super().__setitem__(key, (tensor.shape, tensor.numpy().tobytes()))

    def __getitem__(self, key):
        shape, content = super().__getitem__(key)
        return torch.frombuffer(bytearray(content), dtype=torch.float32).reshape(shape)
