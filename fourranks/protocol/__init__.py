"""What the notebook and its ranks share: messages, what they carry, and memory that several processes map.

Both sides import it, and it imports neither: no torch, no process group, no notebook.
"""
