"""Ends the process that runs the notebook, without a word."""

import os

os._exit(0)
