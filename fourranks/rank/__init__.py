"""What lives inside a rank: its shell, its process groups, and what it notes of every call.

`main` is where a rank begins. The notebook imports only what the messages between the two carry.
"""
