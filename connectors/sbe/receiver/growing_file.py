"""Reads a file that others write to: up to its end, then polls it until it has grown or was replaced.

The file stays open, so a replaced file is still read to its end, however late the replacement is noticed.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from silverfold.conf.errors import SourceRefused, SourceUnavailable
from silverfold.connectors.common.closeable import Closeable

_CHUNK: Final = 1 << 18


class GrowingFile(Closeable):
    """An open file, read from an offset on. For one thread at a time; close it by ``with``.

    Args:
        begins: Offset of the first byte to read.
        lacks: Number of bytes before ``begins`` that may still be missing: padding of the last message.

    Raises:
        SourceUnavailable: The file cannot be opened now.
        SourceRefused: ``file-shorter``: the file ends before ``begins``. ``no-file``: it is not a regular file.
    """

    def __init__(self, path: Path, begins: int, *, lacks: int = 0) -> None:
        self._path = path
        try:
            self._file = open(path, "rb", opener=_open_nonblocking)  # noqa: SIM115 - `close` closes it
        except IsADirectoryError as error:
            raise self._no_file() from error
        except OSError as error:
            raise self._unavailable(error) from error
        held = os.fstat(self._file.fileno())
        if not stat.S_ISREG(held.st_mode):
            self._file.close()
            raise self._no_file()
        size = held.st_size
        if size < begins - lacks:
            self._file.close()
            text = f"{path} has {size} bytes, {begins} were read before: it is another file"
            raise SourceRefused(code="file-shorter", text=text)
        self._file.seek(begins)
        self._read_to = min(begins, size)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def read(self) -> bytes:
        """Return the next bytes; empty at the current end. Raises SourceUnavailable if reading fails."""
        try:
            chunk = self._file.read(_CHUNK)
        except OSError as error:
            raise self._unavailable(error) from error
        if chunk:
            self._read_to = self._file.tell()
        return chunk

    def has_more(self) -> bool:
        """Return whether the file has grown since it was read up to its end.

        Raises:
            SourceUnavailable: Everything is read and no more will come: the file was truncated, or its path now names
                no file or another one.
        """
        named = self._stat_path()
        held, read_to = os.fstat(self._file.fileno()), self._read_to
        if held.st_size > self._file.tell():
            return True
        if held.st_size < read_to:
            raise SourceUnavailable(f"{self._path} has {held.st_size} bytes, {read_to} were read: it was cut")
        if isinstance(named, OSError):
            raise self._unavailable(named) from named
        if not os.path.samestat(named, held):
            raise SourceUnavailable(f"{self._path} is another file now, {read_to} bytes were read of the one before")
        return False

    def _stat_path(self) -> os.stat_result | OSError:
        try:
            return self._path.stat()
        except OSError as error:
            return error

    def _no_file(self) -> SourceRefused:
        return SourceRefused(
            code="no-file", text=f"{self._path} is a folder, a pipe or a device, not a file that grows"
        )

    def _unavailable(self, error: OSError) -> SourceUnavailable:
        return SourceUnavailable(f"{self._path}: {error.strerror or error}")


def _open_nonblocking(path: str, flags: int) -> int:
    """Open without blocking: opening a pipe would otherwise wait for a writer and ignore signals."""
    return os.open(path, flags | os.O_NONBLOCK)
