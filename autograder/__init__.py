"""Checks and grades the course's exercises, and builds its notebooks."""
