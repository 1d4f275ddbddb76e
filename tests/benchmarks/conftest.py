"""The benchmarks are not an installed package: they are found from the top folder of the course."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
