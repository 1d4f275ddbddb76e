"""Raises an error that a terminal would clear, hide, or show backwards."""


def exchange(tensor, peer):
    raise ValueError("\x1b[8m passed \x1b[0m \u202e dessap \r\x07 \x9b2J")
