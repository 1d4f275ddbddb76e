"""Programs that use a student's classes and functions on the ranks, beside them, and report plain data.

A check names one in a case; it gets the student's code, then the case's inputs of its rank. No expected value
is known here.
"""
