"""Returns, and leaves in an argument, what runs a command wherever it is unpickled."""

import os


class Runs:
    def __reduce__(self):
        return os.system, ("touch /tmp/was_here",)


def exchange(tensor, peer):
    tensor.note = Runs()
    return [Runs(), tensor]
