"""A changing database, its server, and a receiver that lands its notifications: everything but the build."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import apsw

from silverfold.conf.model import Commit, Reconnect
from silverfold.conf.validate import validated
from silverfold.connectors.base import Feed
from silverfold.connectors.sqlitecloud.connector import CONNECTOR
from silverfold.connectors.sqlitecloud.options import SqliteCloudOptions, SqliteCloudTable
from silverfold.connectors.sqlitecloud.server.options import ServerOptions
from silverfold.connectors.sqlitecloud.server.server import SqliteCloudServer
from silverfold.connectors.sqlitecloud.server.state import ServedSession
from silverfold.pipelines.landing.bronze import read_small_columns
from silverfold.pipelines.places import Place, Places
from silverfold.pipelines.store import open_table
from tests.support.receiver_thread import ReceiverThread

FEED: Final = "music"
TABLES: Final = ("artist", "track", "pair")
SCHEMA: Final = """
CREATE TABLE artist(id INTEGER PRIMARY KEY, name TEXT NOT NULL, born DATE, "sqlite_type" TEXT);
CREATE TABLE track(album TEXT, nr INTEGER, title VARCHAR(80), seconds REAL, price NUMERIC, cover BLOB, type,
    PRIMARY KEY (album, nr)) WITHOUT ROWID;
CREATE TABLE pair(nr INTEGER, side TEXT, told INTEGER NOT NULL, PRIMARY KEY (nr, side));
"""
_PATIENCE: Final = 30.0


@dataclass
class Live:
    """A database behind a server, and its feed."""

    server: SqliteCloudServer
    path: Path
    places: Places
    feed: Feed
    rng: Random
    sessions: Sequence[ServedSession]
    _moment: int = field(default=0)

    def work(self, transactions: int) -> None:
        """Commit transactions of all kinds, in random sessions."""
        for _ in range(transactions):
            self._moment += 1
            session = self.rng.choice(self.sessions)
            run(session, "BEGIN IMMEDIATE")
            try:
                for _ in range(self.rng.randint(1, 4)):
                    statement, values = self._statement()
                    run(session, statement, *values)
                self._keep_pair(session)
                run(session, "COMMIT")
            except apsw.ConstraintError:
                run(session, "ROLLBACK")

    def landed(self) -> int:
        """Wait until the newest epoch has a complete newest snapshot of every table, and nothing more lands.

        Returns:
            The position of the last frame.
        """
        deadline, before, since = time.monotonic() + _PATIENCE, -1, time.monotonic()
        while time.monotonic() < deadline:
            last, _, open_ = reached(self.places.bronze(FEED), TABLES)
            whole = not open_
            if last != before:
                before, since = last, time.monotonic()
            elif whole and time.monotonic() - since > 0.5:
                return last
            time.sleep(0.05)
        raise AssertionError("the receiver does not come to rest")

    def _statement(self) -> tuple[str, tuple[Any, ...]]:
        rng = self.rng
        a, b, album, nr = rng.randint(1, 12), rng.randint(1, 12), rng.choice(["x", 'y"', "ü;"]), rng.randint(1, 4)
        anything = rng.choice([None, 1, 2.5, "1", "text", 2**62, -0.5])
        return rng.choice(
            [
                ("INSERT INTO artist(id, name) VALUES (?, ?)", (a, f"n{self._moment}")),
                ("INSERT OR REPLACE INTO artist(id, name, born) VALUES (?, ?, ?)", (a, "again", "1999-01-02")),
                ("UPDATE artist SET born = ? WHERE id <= ?", (f"20{self._moment:04}", a)),
                ('UPDATE artist SET "sqlite_type" = ? WHERE id = ?', ("UPDATE", a)),
                ("UPDATE artist SET id = ? WHERE id = ?", (a, b)),
                ("UPDATE artist SET id = CASE id WHEN ? THEN -1 ELSE 99 END WHERE id = ?", (a, a)),
                ("DELETE FROM artist WHERE id IN (?, -1, 99)", (a,)),
                ("DELETE FROM artist", ()) if rng.random() < 0.1 else ("SELECT 1", ()),
                ("INSERT OR IGNORE INTO track(album, nr, title, type) VALUES (?, ?, ?, ?)", (album, nr, "t", anything)),
                ("INSERT OR REPLACE INTO track VALUES (?, ?, 'whole', 1.0, 9, x'00ff', ?)", (album, nr, anything)),
                ("UPDATE track SET seconds = ?, type = ? WHERE album = ?", (a / 4, anything, album)),
                ("UPDATE track SET nr = nr + 10 WHERE album = ? AND nr = ?", (album, nr)),
                ("UPDATE track SET price = ? WHERE nr > 10", (rng.choice([None, 3, 3.25, "free"]),)),
                ("DELETE FROM track WHERE nr > 10 AND album = ?", (album,)),
            ]
        )

    def _keep_pair(self, session: ServedSession) -> None:
        """Update both sides of a pair alike, in one commit."""
        nr = self.rng.randint(1, 5)
        for side in ("left", "right"):
            run(session, "INSERT OR REPLACE INTO pair VALUES (?, ?, ?)", nr, side, self._moment)


def reached(bronze: Place, tables: Collection[str]) -> tuple[int, int, set[str]]:
    """Return the last position, its epoch, and the tables without a complete snapshot, or with an open one, in it."""
    last, epoch, open_ = -1, 0, set(tables)
    for batch in read_small_columns(bronze) if open_table(bronze) else ():
        for frame in batch.to_pylist():
            last = frame["frame_seq"]
            if frame["epoch"] > epoch:
                epoch, open_ = frame["epoch"], set(tables)
            if frame["boundary"] == "end":
                open_.discard(frame["stream"])
            elif frame["boundary"] == "begin":
                open_.add(frame["stream"])
    return last, epoch, open_


def run(session: ServedSession, statement: str, *values: Any) -> None:
    """Run one statement as a client would."""
    found = session.transactions.run(statement, lambda _count: values)
    for _ in getattr(found, "rows", ()):
        pass


@contextmanager
def living(folder: Path, rng: Random, server_options: ServerOptions, **options: Any) -> Iterator[Live]:
    """Serve a database and receive its feed until the end of the block."""
    path = folder / "music.db"
    with apsw.Connection(str(path)) as connection:
        connection.execute(SCHEMA)
    with SqliteCloudServer.start({"music.db": path}, options=server_options) as server:
        feed = _feed(f"{server.address('music.db')}&apikey=any", options)
        sessions = [server.own_session("music.db") for _ in range(2)]
        live = Live(server, path, Places(str(folder / "warehouse")), feed, rng, sessions)
        live.work(20)
        receiver = ReceiverThread(feed, CONNECTOR, live.places, rng)
        try:
            yield live
        finally:
            receiver.stop()


def _feed(address: str, options: Mapping[str, Any]) -> Feed:
    chosen = {"blob": "base64", "settle_seconds": 0.3, **options}
    return Feed(
        FEED,
        "sqlitecloud",
        address,
        validated(SqliteCloudOptions, chosen, file="test"),
        {name: SqliteCloudTable() for name in TABLES},
        Commit(interval_ms=20),
        Reconnect(first=0.01, longest=0.05),
    )
