"""The inside of a rank: its shell, its process groups, and its notes of every call.

`main` is where a rank begins. Nothing in the notebook imports this room; shared types are in `protocol`.
"""
