"""A database file, and servers of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import apsw
import pytest

from silverfold.connectors.sqlitecloud.server.options import ServerOptions
from silverfold.connectors.sqlitecloud.server.server import SqliteCloudServer

FOO = "CREATE TABLE foo(id INTEGER PRIMARY KEY, col1 TEXT, col2 TEXT)"

Serve = Callable[..., SqliteCloudServer]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    with apsw.Connection(str(path)) as connection:
        connection.execute(FOO)
        connection.execute("CREATE TABLE bar(name TEXT PRIMARY KEY, n) WITHOUT ROWID")
    connection.close()
    return path


@pytest.fixture
def serve(file: Path) -> Iterator[Serve]:
    """Start servers of the file; ``with_tls`` and the like are the options of `SqliteCloudServer.start`."""
    with ExitStack() as running:

        def started(server_options: ServerOptions | None = None, **options: object) -> SqliteCloudServer:
            return running.enter_context(SqliteCloudServer.start({"shop.db": file}, options=server_options, **options))

        yield started


@pytest.fixture
def server(serve: Serve) -> SqliteCloudServer:
    return serve()
