"""The sandbox from outside: its walls, its limits, and the handle of the student's process in it."""
