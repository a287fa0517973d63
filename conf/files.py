"""Reads files that people name in settings."""

from __future__ import annotations

import errno
import stat
from pathlib import Path


def read_whole(path: Path) -> bytes:
    """Return what is in a file.

    Raises:
        OSError: It cannot be read, or is none: a pipe or a device might never come to an end.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "Not a file", str(path))
    return path.read_bytes()
