"""A file that others write to: read up to its end, and looked at there until it has more or is another one.

A file that is replaced is read up to its end all the same, however late that is noticed: it stays open.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from conf.errors import SourceRefused, SourceUnavailable
from connectors.closeable import Closeable

_CHUNK: Final = 1 << 18


class GrowingFile(Closeable):
    """An open file, what was read of it before being passed. For one thread at a time; close it by ``with``.

    Args:
        begins: Offset of the first byte to read.
        lacks: How many bytes before that the file may still lack: what pads its last message.

    Raises:
        SourceUnavailable: It cannot be opened now.
        SourceRefused: ``file-shorter``: it has not even what was read before. ``no-file``: it is another thing.
    """

    def __init__(self, path: Path, begins: int, *, lacks: int = 0) -> None:
        self._path = path
        try:
            self._file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115 - `close` closes it
        except OSError as error:
            raise self._unavailable(error) from error
        held = os.fstat(self._file.fileno())
        if not stat.S_ISREG(held.st_mode):
            self._file.close()
            raise SourceRefused(code="no-file", text=f"{path} is a pipe or a device, not a file that grows")
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
        """Return the next bytes; none at what is the end now. Raises SourceUnavailable when that fails."""
        try:
            chunk = self._file.read(_CHUNK)
        except OSError as error:
            raise self._unavailable(error) from error
        if chunk:
            self._read_to = self._file.tell()
        return chunk

    def has_more(self) -> bool:
        """Tell whether the file has grown since it was read up to its end.

        Raises:
            SourceUnavailable: All that was in it is read, and there will be no more: it became shorter, or its path
                names no file or another one now.
        """
        named = self._named()
        held, place = os.fstat(self._file.fileno()), self._read_to
        if held.st_size > self._file.tell():
            return True
        if held.st_size < place:
            raise SourceUnavailable(f"{self._path} has {held.st_size} bytes, {place} were read: it was cut")
        if isinstance(named, OSError):
            raise self._unavailable(named) from named
        if not os.path.samestat(named, held):
            raise SourceUnavailable(f"{self._path} is another file now, {place} bytes were read of the one before")
        return False

    def _named(self) -> os.stat_result | OSError:
        try:
            return self._path.stat()
        except OSError as error:
            return error

    def _unavailable(self, error: OSError) -> SourceUnavailable:
        return SourceUnavailable(f"{self._path}: {error.strerror or error}")


def _without_waiting(path: str, flags: int) -> int:
    """Open a pipe, too, at once: otherwise that waits for a writer, deaf to signals."""
    return os.open(path, flags | os.O_NONBLOCK)
