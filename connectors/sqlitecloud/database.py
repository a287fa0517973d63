"""Opens SQLite files for a server: many connections at once, and one order of commits.

While a file is served it is in SQLite's WAL mode, so that readers and a writer do not wait for each other. Afterwards
it is one whole file again, in the mode in which it was found.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final
from urllib.parse import quote

import apsw

from conf.errors import ConfigError
from connectors.closeable import Closeable

_WAIT_FOR_WRITER_MS: Final = 5_000
"""How long a statement waits for another session's transaction, before SQLite says that the database is locked."""

_OPEN_IN_MEMORY: Final = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI


class Database(Closeable):
    """One served file. May be used from any thread. Closes itself as a context manager.

    Args:
        path: The file.

    Raises:
        ConfigError: There is no such file, it is no SQLite database, or it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise _unusable(path, "no file" if path.exists() else "no such file")
        self.path = path
        self.order = threading.Lock()
        """Held from a commit until all have been told of it, so that messages have the order of commits."""
        try:
            self._first = self._opened()
            self._found_in = str(self._first.pragma("journal_mode"))
            mode = self._first.pragma("journal_mode", "wal")
        except apsw.Error as error:
            raise _unusable(path, str(error)) from error
        if mode != "wal":
            raise _unusable(path, f"it stays in the journal mode {mode}")

    def connect(self) -> apsw.Connection:
        """Return a new connection. Close it before the database."""
        connection = self._opened()
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        return connection

    def close(self) -> None:
        """Leave one whole file behind. May be repeated."""
        try:
            self._first.pragma("journal_mode", self._found_in)
        except apsw.ConnectionClosedError:
            return
        except apsw.Error:  # another program has it open: it stays a valid database, with its log beside it
            pass
        self._first.close()

    def _opened(self) -> apsw.Connection:
        connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
        connection.set_busy_timeout(_WAIT_FOR_WRITER_MS)
        connection.pragma("synchronous", "normal")  # safe in WAL mode, and does not wait for the disk at each commit
        return connection


class MemoryDatabase(Database):
    """A database in memory, gone with it (SQLite's VFS ``memdb``). One session uses it.

    Args:
        name: Unlike that of any other in this process.
    """

    def __init__(self, name: str) -> None:
        self.path = Path(name)
        self.order = threading.Lock()
        self._first = self._opened()

    def close(self) -> None:
        """Forget it. May be repeated."""
        self._first.close()

    def _opened(self) -> apsw.Connection:
        return apsw.Connection(f"file:/{quote(str(self.path))}?vfs=memdb", flags=_OPEN_IN_MEMORY)


def _unusable(path: Path, found: str) -> ConfigError:
    return ConfigError(file=str(path), key="database", found=found, allowed="an SQLite database that can be written")
