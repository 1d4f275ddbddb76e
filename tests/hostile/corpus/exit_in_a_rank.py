"""Ends the process of a rank, as if all had gone well."""

import os


def exchange(tensor, peer):
    os._exit(0)
