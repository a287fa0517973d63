"""Reads files named in settings, and lists the error numbers of a full disk."""

from __future__ import annotations

import errno
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from silverfold.conf.text import without_controls

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Values of ``OSError.errno`` for lack of space to write."""


check_path: Final = without_controls("a path")
"""Check of a path from the settings: to the system's own calls, a NUL in one would be a ValueError, and a traceback."""


def read_whole(path: Path) -> bytes:
    """Return the content of a file. Raises OSError as `check_files` does, or if it cannot be read."""
    check_files([path])
    return path.read_bytes()


def check_files(paths: Iterable[Path | str | None]) -> None:
    """Check that each path is a regular file: reading a pipe or a device may block forever. Skip None and empty names.

    Raises:
        OSError: A path does not exist, or is not a regular file.
    """
    for path in paths:
        if path and not stat.S_ISREG(Path(path).stat().st_mode):
            raise OSError(errno.EINVAL, "Not a file", str(path))
