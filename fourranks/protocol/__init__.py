"""Shared by the notebook and its ranks: messages, what they carry, and memory that several processes map.

Both sides import it, and it imports neither: no torch, no process group, no notebook.
"""
