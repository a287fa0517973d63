"""A database, its server and a receiver of its feed, run through random writes, lost connections and deaths."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple, TypeAlias

import apsw

from silverfold.conf.model import Commit, Reconnect
from silverfold.conf.validate import validated
from silverfold.connectors.base import Feed
from silverfold.connectors.common.closeable import Closeable
from silverfold.connectors.sqlitecloud.connector import CONNECTOR
from silverfold.connectors.sqlitecloud.options import SqliteCloudOptions, SqliteCloudTable
from silverfold.connectors.sqlitecloud.server.options import ServerOptions
from silverfold.connectors.sqlitecloud.server.server import SqliteCloudServer
from silverfold.pipelines.landing.bronze import read_small_columns
from silverfold.pipelines.places import Places
from silverfold.pipelines.store import open_table
from silverfold.pipelines.verifying.reference_fold import LandedTable, fold_bronze
from tests.support.receiver_thread import ReceiverThread
from tests.support.sqlitecloud.live import run
from tests.support.sqlitecloud.same import stored, unlike

FEED: Final = "life"
KEYS: Final = {"one": ("id",), "two": ("nr", "k"), "three": ("name",)}
SCHEMA: Final = """
CREATE TABLE one(id INTEGER PRIMARY KEY, a TEXT UNIQUE, n, x REAL DEFAULT 1.5);
CREATE TABLE two(k TEXT, v NUMERIC, nr INT, b BLOB, PRIMARY KEY (nr, k)) WITHOUT ROWID;
CREATE TABLE three(name VARCHAR(9) NOT NULL PRIMARY KEY, one INTEGER REFERENCES one ON DELETE CASCADE ON UPDATE CASCADE,
    sqlite_type, pv);
CREATE TRIGGER gone AFTER DELETE ON three BEGIN REPLACE INTO two(k, v, nr) VALUES (old.name, old.pv, 9); END;
INSERT INTO one(id, a) VALUES (1, 'x'), (2, NULL), (3, '');
INSERT INTO two VALUES ('a', 1, 1, NULL), ('b', '1', 1, x'00'), ('a', 2.5, 2, x'');
INSERT INTO three VALUES ('p', 1, 'UPDATE', 2), ('q', 1, NULL, NULL), ('r', NULL, 1, 1.0);
"""
_PATIENCE: Final = 20.0

Sql: TypeAlias = tuple[str, tuple[Any, ...]]


class Transacts(NamedTuple):
    """A session runs statements, any of which may fail, and commits or rolls back."""

    session: int
    statements: Sequence[Sql]
    commits: bool = True


class Alters(NamedTuple):
    """A table gets a column, followed by a row that has it; without such a row, the column would go unnoticed."""

    table: str


class Cut(NamedTuple):
    """Connections break: all, or only those of listeners."""

    all: bool


class Dies(NamedTuple):
    """The receiver dies at the commit that lands a transaction. It restarts after another transaction."""

    after: bool
    received: Transacts
    missed: Transacts


class Restarts(NamedTuple):
    """The server stops, the file is written to, and the server starts again."""

    unheard: Transacts


Step: TypeAlias = Transacts | Alters | Cut | Dies | Restarts


class History(Closeable):
    """One database, its server and the receiver of its feed."""

    def __init__(self, folder: Path, server_options: ServerOptions, options: Mapping[str, Any]) -> None:
        self._path, self._server_options, self._columns = folder / "life.db", server_options, 0
        with closing(apsw.Connection(str(self._path))) as connection:
            connection.execute(SCHEMA)
        self._places, self._rng = Places(str(folder / "warehouse")), Random(1)
        self._serve(0)
        self._feed = Feed(
            FEED,
            "sqlitecloud",
            f"{self._server.address('life.db')}&apikey=any",
            validated(SqliteCloudOptions, options, file="test"),
            {name: SqliteCloudTable() for name in KEYS},
            Commit(interval_ms=20),
            Reconnect(first=0.01, longest=0.05),
        )
        self._receive()

    def close(self) -> None:
        """Stop the receiver, and the server."""
        try:
            self._receiver.stop()
        finally:
            self._server.close()

    def live(self, steps: Sequence[Step]) -> None:
        """Run the steps, one after another."""
        for step in steps:
            match step:
                case Transacts():
                    self._transact(step)
                case Alters(table):
                    self._alter(table)
                case Cut(all=True):
                    self._server.disconnect_all()
                case Cut():
                    self._server.disconnect_listeners()
                case Dies():
                    self._die(step)
                case Restarts(unheard):
                    self._restart(unheard)

    def at_rest(self) -> dict[str, list[tuple[Any, ...]]]:
        """Return the differences between the tables and the landed frames, once everything has landed.

        Waits until there are none, up to a timeout. Frames that the receiver lands while stopping count as well.
        """
        deadline = time.monotonic() + _PATIENCE
        while self._unlike() and time.monotonic() < deadline:
            time.sleep(0.2)
        self._receiver.stop()
        found = self._unlike()
        self._receive()
        return found

    def _unlike(self) -> dict[str, list[tuple[Any, ...]]]:
        bronze = self._places.bronze(FEED)
        if open_table(bronze) is None:
            return {table: [("nothing landed",)] for table in KEYS}
        last = max((max(batch["frame_seq"].to_pylist()) for batch in read_small_columns(bronze)), default=-1)
        landed = {
            table: fold_bronze(LandedTable(bronze, CONNECTOR, self._feed, table, last)).expected() for table in KEYS
        }
        found = {name: unlike(stored(self._path, name), landed[name].rows, KEYS[name]) for name in KEYS}
        return {name: differences for name, differences in found.items() if differences}

    def _serve(self, port: int) -> None:
        self._server = SqliteCloudServer.start({"life.db": self._path}, port, options=self._server_options)
        self._sessions = [self._server.own_session("life.db") for _ in range(2)]
        for session in self._sessions:
            run(session, "PRAGMA foreign_keys = ON")
            run(session, "PRAGMA recursive_triggers = ON")

    def _receive(self) -> None:
        self._receiver = ReceiverThread(self._feed, CONNECTOR, self._places, self._rng)

    def _transact(self, step: Transacts) -> None:
        session = self._sessions[step.session]
        run(session, "BEGIN IMMEDIATE")
        for statement, values in step.statements:
            try:
                run(session, statement, *values)
            except apsw.ConstraintError:
                assert session.transactions.connection.in_transaction
        run(session, "COMMIT" if step.commits else "ROLLBACK")

    def _alter(self, table: str) -> None:
        self._columns += 1
        key = {"one": 99, "two": "z", "three": "z"}[table]
        name = KEYS[table][-1]
        others = {"two": ", nr"}.get(table, "")
        run(self._sessions[0], f"ALTER TABLE {table} ADD COLUMN c{self._columns} DEFAULT 'then'")
        run(self._sessions[1], f"DELETE FROM {table} WHERE {name} = ?", key)
        run(self._sessions[1], f"INSERT INTO {table}({name}{others}) VALUES (?{', 1' * bool(others)})", key)

    def _die(self, step: Dies) -> None:
        with self._receiver.dies(after=step.after):
            self._transact(step.received)
        self._transact(step.missed)
        self._receive()

    def _restart(self, unheard: Transacts) -> None:
        port = self._server.port
        self._server.close()
        with closing(apsw.Connection(str(self._path))) as connection:
            for statement, values in unheard.statements:
                try:
                    connection.execute(statement, values)
                except apsw.ConstraintError:
                    continue
        self._serve(port)
