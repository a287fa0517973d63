"""The databases of a server by name: given files, and temporary ones that clients create.

A client can create an empty database, or upload one in parts, and can download any. A session may also have its own
in-memory database under the name ``:memory:``.
"""

from __future__ import annotations

import shutil
import threading
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Final

from silverfold.conf.errors import ConfigError, SourceRefused
from silverfold.connectors.common.closeable import Closeable
from silverfold.connectors.sqlitecloud.server.database import Database, MemoryDatabase
from silverfold.connectors.sqlitecloud.server.error_codes import GENERIC, NOT_FOUND

MEMORY: Final = ":memory:"
"""The name by which a session requests an in-memory database."""

PART: Final = 1 << 19
"""Bytes of one part of a download."""

_MOST: Final = 100
"""Maximum number of client-created databases at a time."""

_LONGEST: Final = 1 << 30
"""Maximum bytes of an uploaded or downloaded database."""


class Databases(Closeable):
    """All databases of a server. Thread-safe; a context manager that closes them on exit."""

    def __init__(self, given: dict[str, Path]) -> None:
        self._lock = threading.Lock()
        with ExitStack() as opened:
            self._by_name = {name: opened.enter_context(Database(path)) for name, path in given.items()}
            self._folder = Path(opened.enter_context(TemporaryDirectory(prefix="silverfold-sqlitecloud-")))
            self._resources = opened.pop_all()
        self._given, self._count = frozenset(given), 0

    def find(self, name: str | None) -> Database | None:
        """Return the database with this name, if any."""
        return self._by_name.get(name or "")

    @property
    def names(self) -> list[str]:
        """The names of all databases, sorted, without those that a session has in memory."""
        with self._lock:
            return sorted(name for name in self._by_name if not name.startswith(MEMORY))

    def find_or_refuse(self, name: str) -> Database:
        """Return the database with this name. Raise SourceRefused if there is none."""
        found = self._by_name.get(name)
        if found is None:
            raise SourceRefused(code=NOT_FOUND, text=f"Database {name} does not exist.")
        return found

    def make(self, name: str, upload: IO[bytes] | None = None) -> None:
        """Create a database: empty, or from an uploaded file.

        Raises:
            SourceRefused: The name is taken, there are too many databases, or the file is not a database.
        """
        with self._lock:
            if name in self._by_name:
                raise SourceRefused(code=GENERIC, text=f"Database {name} already exists.")
            if name.startswith(MEMORY) or len(self._by_name) - len(self._given) >= _MOST:
                raise SourceRefused(code=GENERIC, text=f"Database {name} cannot be made here.")
            self._count += 1
            path = self._folder / f"{self._count}.db"
            with path.open("wb") as made:
                if upload is not None:
                    shutil.copyfileobj(upload, made)
            try:
                self._by_name[name] = Database(path)
            except ConfigError as error:
                path.unlink()
                raise SourceRefused(code=GENERIC, text="What was uploaded is no database.") from error

    def scratch(self) -> IO[bytes]:
        """Return a temporary file that is deleted on close."""
        return TemporaryFile(dir=self._folder)

    def make_in_memory(self, name: str) -> None:
        """Create the in-memory database of one session."""
        with self._lock:
            self._by_name[name] = MemoryDatabase(name)

    def remove(self, name: str) -> None:
        """Remove a client-created database; a session that uses it may continue.

        Raises:
            SourceRefused: There is none, or it was given to the server.
        """
        with self._lock:
            found = self.find_or_refuse(name)
            if name in self._given:
                raise SourceRefused(code=GENERIC, text=f"Database {name} is not to be removed here.")
            del self._by_name[name]
            found.close()
            found.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close all databases, and delete those that clients created. Idempotent."""
        for name, made in self._by_name.items():
            if name not in self._given:
                made.close()
        self._resources.close()


class Upload:
    """A database being uploaded."""

    def __init__(self, databases: Databases, name: str) -> None:
        if databases.find(name) is not None:
            raise SourceRefused(code=GENERIC, text=f"Database {name} already exists.")
        self._databases, self._name, self._size = databases, name, 0
        self._file = databases.scratch()

    def take(self, part: bytes) -> bool:
        """Add a part; return True for the last one, which is empty, once the database exists.

        Raises:
            SourceRefused: The upload is too long, or not a database.
        """
        self._size += len(part)
        if self._size > _LONGEST:
            raise SourceRefused(code=GENERIC, text=f"A database of more than {_LONGEST} bytes is not taken here.")
        self._file.write(part)
        if not part:
            self._file.seek(0)
            self._databases.make(self._name, self._file)
        return not part

    def close(self) -> None:
        """Discard the temporary file."""
        self._file.close()


def serialize_database(database: Database) -> tuple[bytes, int]:
    """Return a database's current state as one file, and its page count. Raise SourceRefused if it is too long.

    The file is not in WAL mode (SQLite, "Database File Format", 1.3.3), which would require a second file.
    """
    connection = database.connect()
    try:
        pages, size = int(connection.pragma("page_count")), int(connection.pragma("page_size"))
        if pages * size > _LONGEST:
            raise SourceRefused(code=GENERIC, text=f"A database of more than {_LONGEST} bytes is not given here.")
        octets = bytearray(connection.serialize("main"))
    finally:
        connection.close()
    octets[18:20] = b"\x01\x01"[: len(octets[18:20])]
    return bytes(octets), pages
