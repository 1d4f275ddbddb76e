"""Files that a reader finds whole: the old content or the new, never a part of it."""

from __future__ import annotations

import os
from pathlib import Path


def write(path: Path, content: bytes, as_old_as: Path | None = None) -> None:
    """Put a file in the place of what was there, in one step.

    Args:
        as_old_as: a file whose times it gets, too.

    Raises:
        OSError: when it cannot be written. The old content is there still.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if as_old_as is not None:
            times = as_old_as.stat()
            os.utime(partial, ns=(times.st_atime_ns, times.st_mtime_ns))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)  # of a disk that is full
