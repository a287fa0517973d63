"""The SQLite Cloud connector: the tables of a database, and its channels."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from random import Random

from silverfold.connectors.base import Connector, Decoder, Problem, TableKind
from silverfold.connectors.frames import Receiver
from silverfold.connectors.sqlitecloud.address import connection_problems
from silverfold.connectors.sqlitecloud.options import SqliteCloudFeed, SqliteCloudOptions, SqliteCloudTable
from silverfold.connectors.verification import ReferenceReader, SourceSubscription


class SqliteCloudConnector(Connector[SqliteCloudOptions, SqliteCloudTable]):
    """Lands a database's changes. The source has no positions: a lost connection requires a new snapshot."""

    name = "sqlitecloud"
    Options = SqliteCloudOptions
    TableOptions = SqliteCloudTable
    simulator_summary = "Serve SQLite databases as SQLite Cloud does, with pub/sub, and keep their tables changing."
    continuity = "resync"
    packages = ("apsw", "lz4", "msgspec")

    def has_snapshots(self, table: SqliteCloudTable) -> bool:
        """Return whether a table has snapshots. Channels and logs have only what is notified while connected."""
        return not table.only_adds

    def table_kind(self, table: SqliteCloudTable) -> TableKind:
        """Return STATE for the current rows, or APPEND for every message or change."""
        return TableKind.APPEND if table.only_adds else TableKind.STATE

    def stream(self, feed: SqliteCloudFeed, table: str) -> str:
        """Return the source table's name, prefixed with ``log:`` for its log; or ``notify:`` and the channel's name."""
        return feed.tables[table].stream(table)

    def row_settings(self, feed: SqliteCloudFeed, table: str) -> Mapping[str, str | list[str]]:
        """Return the settings that determine the table's rows; the feed's options affect neither messages nor logs."""
        settings = feed.tables[table]
        return settings.row_settings if settings.only_adds else settings.row_settings | feed.options.row_settings

    def problems(self, feed: SqliteCloudFeed) -> Iterator[Problem]:
        """Yield problems beyond model validation: the address, and conflicting keys for one stream."""
        yield from connection_problems(feed)
        first: dict[str, tuple[str, tuple[str, ...]]] = {}
        for name, settings in feed.tables.items():
            other, keys = first.setdefault(settings.stream(name), (name, settings.keys))
            if keys != settings.keys:
                yield Problem(
                    f"tables.{name}.keys", list(settings.keys), f"those of {other}, which is of the same source"
                )

    def receiver(self, feed: SqliteCloudFeed) -> Receiver:
        """Return a receiver for the feed. Opens nothing yet."""
        from silverfold.connectors.sqlitecloud.receiver.receiver import SqliteCloudReceiver

        rng = Random()  # noqa: S311 - spreads waits and names a channel, not a secret
        return SqliteCloudReceiver(feed, rng=rng, clock=time.monotonic, environ=os.environ)

    def decoder(self, feed: SqliteCloudFeed) -> Decoder[SqliteCloudTable]:
        """Return the feed's decoder."""
        from silverfold.connectors.sqlitecloud.decoder.decoder import SqliteCloudDecoder

        return SqliteCloudDecoder(feed)

    def reference(self, feed: SqliteCloudFeed, table: str) -> ReferenceReader:
        """Return a reader of the landed frames of one table's stream."""
        from silverfold.connectors.sqlitecloud.reference.reader import SqliteCloudReferenceReader

        settings = feed.tables[table]
        return SqliteCloudReferenceReader(settings.stream(table), settings, feed.options)

    def subscribe(self, feed: SqliteCloudFeed, table: str) -> AbstractContextManager[SourceSubscription]:
        """Return a subscription of its own to a table, open until the block ends. Raise SourceUnavailable."""
        from silverfold.connectors.sqlitecloud.reference.source_subscription import SqliteCloudSourceSubscription

        return SqliteCloudSourceSubscription(feed, table)

    def simulator(self) -> Callable[..., None]:
        """Return the command that runs the simulated source."""
        from silverfold.connectors.sqlitecloud.server.command import sqlitecloud

        return sqlitecloud


CONNECTOR: Connector = SqliteCloudConnector()
"""The connector instance for the registry."""
