"""A server in its own process that sends prepared notifications as fast as clients read them."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

import apsw
import structlog

from silverfold.connectors.base import Feed
from silverfold.connectors.sqlitecloud.options import SqliteCloudOptions, SqliteCloudTable
from silverfold.connectors.sqlitecloud.protocol.encode import encode_json
from silverfold.connectors.sqlitecloud.server.options import Pacing, ServerOptions
from silverfold.connectors.sqlitecloud.server.pubsub.broker import Topic
from silverfold.connectors.sqlitecloud.server.pubsub.capture import RowChange, TableChanges
from silverfold.connectors.sqlitecloud.server.pubsub.dialect import Dialect, sender_text, table_text
from silverfold.connectors.sqlitecloud.server.server import SqliteCloudServer, tls_context

DATABASE, TABLE, KEY = "shop.db", "orders", ("id",)
CREATED = f"CREATE TABLE {TABLE}(id INTEGER PRIMARY KEY, customer TEXT, total REAL, quantity INTEGER, note TEXT)"
DISTINCT = 5_000
"""Number of distinct notifications; more are repetitions."""

_SENDERS = [f"e7bf6b2c-7f0a-4c53-9e1d-{number:012d}" for number in range(4)]
_BLOCK = 1 << 18
"""Approximate bytes per write if frames are joined."""


@dataclass(frozen=True)
class Sent:
    """The notifications of one run.

    Args:
        rows: Rows per notification.
        joined: Many frames per write; otherwise one, which over TLS suits the official client.
        certificate: A PEM file, for TLS; its issuer's certificate is beside it: `authority`.
    """

    notifications: int
    rows: int = 1
    joined: bool = True
    certificate: Path | None = None

    @property
    def authority(self) -> Path | None:
        """PEM file of the authority to trust."""
        return None if self.certificate is None else self.certificate.with_name("authority.pem")


@dataclass(frozen=True)
class Source:
    """Handle of the server process."""

    port: int
    sent: Sent
    _pipe: Connection

    @property
    def address(self) -> str:
        """Connection string for clients."""
        trust = "insecure=1" if self.sent.authority is None else f"root_certificate={self.sent.authority}"
        return f"sqlitecloud://u:p@127.0.0.1:{self.port}/{DATABASE}?{trust}"

    def send(self) -> None:
        """Let the server send all notifications to all listeners."""
        self._pipe.send(True)


def feed_at(address: str) -> Feed:
    """Return a feed of the table with default settings."""
    return Feed("bench", "sqlitecloud", address, SqliteCloudOptions(), {TABLE: SqliteCloudTable()})


@contextmanager
def source(sent: Sent) -> Iterator[Source]:
    """Run a server until the end of the block."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(sent, theirs))
    process.start()
    try:
        yield Source(ours.recv(), sent, ours)
    finally:
        ours.send(False)
        process.join()


def serve(sent: Sent, pipe: Connection) -> None:
    """Serve an empty table, and send its notifications as often as the parent requests. Runs in its own process."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("error"))
    made = frames(DISTINCT, sent.rows)
    every = [made[number % DISTINCT] for number in range(sent.notifications)]
    written = blocks(every) if sent.joined else every
    pacing = Pacing.JOINED if sent.joined else Pacing.SAFE
    server_options = ServerOptions(pacing=pacing, slow_reader="stall", most_unsent=4 * _BLOCK)
    tls = None if sent.certificate is None else tls_context(sent.certificate)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / DATABASE
        database = apsw.Connection(str(file))
        database.execute(CREATED)
        database.close()
        with SqliteCloudServer.start({DATABASE: file}, tls=tls, options=server_options) as server:
            listeners = server.own_session(DATABASE).served.listeners
            pipe.send(server.port)
            while pipe.recv():
                (subscriber,) = listeners._subscribers_of(Topic(TABLE, DATABASE, is_table=True))
                for block in written:
                    subscriber.deliver(block)


def frames(count: int, rows: int) -> list[bytes]:
    """Return encoded notifications, each of some changed rows: 6 in 10 updated, 3 inserted, 1 deleted."""
    chance = Random(11)
    made = []
    for number in range(count):
        changes = TableChanges(TABLE, KEY, tuple(changed(chance, number * rows + at) for at in range(rows)))
        by = sender_text(chance.choice(_SENDERS))
        made.append(encode_json(table_text(Dialect(), sender=by, changes=changes)))
    return made


def changed(chance: Random, key: int) -> RowChange:
    """Return a random change of a row."""
    drawn, total = chance.random(), round(chance.uniform(1, 500), 2)
    if drawn < 0.1:
        return RowChange("DELETE", {}, (key,))
    if drawn < 0.7:
        return RowChange("UPDATE", {"id": key, "total": total, "quantity": chance.randrange(100)}, (key,))
    note = chance.choice([None, "", "gift", 'ring "twice"', "Grüße"])
    row = {"id": key, "customer": f"customer {key:,}", "total": total, "quantity": chance.randrange(100), "note": note}
    return RowChange("INSERT", row, ())


def blocks(every: list[bytes]) -> list[bytes]:
    """Return the frames joined into blocks, so that sending costs almost nothing."""
    size = max(1, _BLOCK * len(every) // sum(map(len, every)))
    return [b"".join(every[at : at + size]) for at in range(0, len(every), size)]
