# ruff: noqa: F401
import math
import re
import statistics
import time

import torch
