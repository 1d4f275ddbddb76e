"""Topic 02: collectives made of messages between two ranks."""
