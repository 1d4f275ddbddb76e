"""The model that lectures 04 to 08 train, and its text; nothing here is needed to run ranks."""
