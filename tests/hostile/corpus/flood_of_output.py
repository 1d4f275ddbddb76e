"""Prints 10 GB, displays 2 GB, and raises an error of 100 MB: nobody keeps more of it than people read."""

import os

from IPython.display import display

line = "x" * 10_000_000
for _ in range(1000):
    print(line)
for _ in range(100):
    display({"text/plain": line}, raw=True)
    os.write(1, line.encode())


def exchange(tensor, peer):
    print("y" * 10_000_000)
    raise ValueError("z" * 10_000_000)


raise ValueError(line * 10)
