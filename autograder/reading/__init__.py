"""What the text of a student's code says, before any of it runs."""
