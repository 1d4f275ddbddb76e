"""Which mistake most likely led to a deadlock: each hint looks for the sign of one mistake."""
