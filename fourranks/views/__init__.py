"""What people look at: figures of what the ranks did. The views read recorded facts and change nothing."""

from .collective import show, steps
from .prediction import compare
from .timeline import timeline

__all__ = ["compare", "show", "steps", "timeline"]
