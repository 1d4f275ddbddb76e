"""What the checks of all topics share: they reach a student's code, compare, and show the verdict."""
