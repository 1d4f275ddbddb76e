"""What lives inside a rank: its shell, its process groups, and what it notes of every call.

`main` is where a rank begins. Nothing in the notebook imports this room; what both need is in `protocol`.
"""
