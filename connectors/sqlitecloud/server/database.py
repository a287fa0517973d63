"""SQLite files of a server: many connections at once, and one order of commits.

A served file is in SQLite's WAL mode, so that readers and a writer do not block each other. Afterwards it is a single
file again, in its original journal mode.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final
from urllib.parse import quote

import apsw

from silverfold.conf.errors import ConfigError
from silverfold.connectors.common.closeable import Closeable

_WAIT_FOR_WRITER_MS: Final = 5_000
"""How long a statement waits for another session's transaction before SQLite reports a locked database."""

_OPEN_IN_MEMORY: Final = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI


class Database(Closeable):
    """One served file. Thread-safe; a context manager that closes on exit.

    Args:
        path: The file.

    Raises:
        ConfigError: The file does not exist, is not an SQLite database, or is not writable.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise _unusable(path, "no file" if path.exists() else "no such file")
        self.path = path
        self.order = threading.Lock()
        """Held from a commit until its notifications are published, so that messages keep the order of commits."""
        try:
            self._first = self._open()
            self._original_mode = str(self._first.pragma("journal_mode"))
            mode = self._first.pragma("journal_mode", "wal")
        except apsw.Error as error:
            raise _unusable(path, str(error)) from error
        if mode != "wal":
            raise _unusable(path, f"it stays in the journal mode {mode}")

    def connect(self) -> apsw.Connection:
        """Return a new connection. Close it before the database."""
        connection = self._open()
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        return connection

    def close(self) -> None:
        """Restore the journal mode, leaving a single file. Idempotent."""
        try:
            self._first.pragma("journal_mode", self._original_mode)
        except apsw.ConnectionClosedError:
            return
        except apsw.Error:  # another program has it open: the database stays valid, with its WAL beside it
            pass
        self._first.close()

    def _open(self) -> apsw.Connection:
        connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
        connection.set_busy_timeout(_WAIT_FOR_WRITER_MS)
        connection.pragma("synchronous", "normal")  # safe in WAL mode, and does not wait for the disk at each commit
        return connection


class MemoryDatabase(Database):
    """An in-memory database (SQLite's VFS ``memdb``), used by one session and lost on close.

    Args:
        name: Unique in this process.
    """

    def __init__(self, name: str) -> None:
        self.path = Path(name)
        self.order = threading.Lock()
        self._first = self._open()

    def close(self) -> None:
        """Discard the database. Idempotent."""
        self._first.close()

    def _open(self) -> apsw.Connection:
        return apsw.Connection(f"file:/{quote(str(self.path))}?vfs=memdb", flags=_OPEN_IN_MEMORY)


def _unusable(path: Path, found: str) -> ConfigError:
    return ConfigError(file=str(path), key="database", found=found, allowed="an SQLite database that can be written")
