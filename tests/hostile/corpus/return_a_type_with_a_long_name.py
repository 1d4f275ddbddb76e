"""Returns what cannot be sent, so that the reason why has four million characters."""


def exchange(tensor, peer):
    return type("x" * 4_000_000, (), {})()
