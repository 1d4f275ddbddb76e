"""Raises an error whose name and message are longer than any page."""


def exchange(tensor, peer):
    raise type("E" * 100_000, (Exception,), {})("x" * 4_000_000)
