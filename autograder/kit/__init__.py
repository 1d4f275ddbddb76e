"""Shared by the checks of all topics: they reach a student's code, compare, and show the verdict."""
