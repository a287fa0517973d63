"""Reads files that people name in settings, and knows how a full disk is told."""

from __future__ import annotations

import errno
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""How an OSError is numbered that says: there is no room to write."""


def read_whole(path: Path) -> bytes:
    """Return what is in a file. Raises OSError as `check_files`, and where it cannot be read."""
    check_files([path])
    return path.read_bytes()


def check_files(paths: Iterable[Path | str | None]) -> None:
    """Pass where each is a file: who reads a pipe or a device may wait for ever. None and an empty name are left out.

    Raises:
        OSError: One is none, or is not there.
    """
    for path in paths:
        if path and not stat.S_ISREG(Path(path).stat().st_mode):
            raise OSError(errno.EINVAL, "Not a file", str(path))
