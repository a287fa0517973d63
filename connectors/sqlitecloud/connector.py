"""The SQLite Cloud connector: the tables of a database, and its channels."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from random import Random
from typing import Literal

from pydantic import BaseModel

from silverfold.conf.model import Table
from silverfold.connectors.base import Connector, Decoder, Feed, Problem, Receiver, TableKind
from silverfold.connectors.sqlitecloud.client.address import address_problems
from silverfold.connectors.sqlitecloud.options import SqliteCloudOptions, SqliteCloudTable
from silverfold.connectors.verification import ReferenceReader, SourceSubscription


@dataclass(frozen=True)
class SqliteCloudConnector:
    """See `connectors.base.Connector`. The source has no positions: a lost connection requires a new snapshot."""

    name: str = "sqlitecloud"
    Options: type[BaseModel] = SqliteCloudOptions
    TableOptions: type[Table] = SqliteCloudTable
    continuity: Literal["resync", "resume"] = "resync"
    folds: bool = False
    has_partial_updates: bool = True
    source_ordered: bool = False
    packages: tuple[str, ...] = ("apsw", "lz4", "msgspec")
    simulator_summary: str = (
        "Serve SQLite databases as SQLite Cloud does, with pub/sub, and keep their tables changing."
    )

    def has_snapshots(self, table: Table) -> bool:
        """Return whether a table has snapshots. Channels and logs have only what is notified while connected."""
        return not _settings(table).only_adds

    def table_kind(self, table: Table) -> TableKind:
        """Return STATE for the current rows, or APPEND for every message or change."""
        return TableKind.APPEND if _settings(table).only_adds else TableKind.STATE

    def stream(self, feed: Feed, table: str) -> str:
        """Return the source table's name, prefixed with ``log:`` for its log; or ``notify:`` and the channel's name."""
        return _settings(feed.tables[table]).stream(table)

    def row_settings(self, feed: Feed, table: str) -> Mapping[str, str | list[str]]:
        """Return the settings that determine the table's rows; the feed's options affect neither messages nor logs."""
        settings = _settings(feed.tables[table])
        return settings.row_settings if settings.only_adds else settings.row_settings | _options(feed).row_settings

    def problems(self, feed: Feed) -> Iterator[Problem]:
        """Yield problems beyond model validation: the address, and conflicting keys for one stream."""
        yield from address_problems(feed)
        first: dict[str, tuple[str, tuple[str, ...]]] = {}
        for name, table in feed.tables.items():
            settings = _settings(table)
            other, keys = first.setdefault(settings.stream(name), (name, settings.keys))
            if keys != settings.keys:
                yield Problem(
                    f"tables.{name}.keys", list(settings.keys), f"those of {other}, which is of the same source"
                )

    def listens_at(self, feed: Feed) -> None:
        """Return None: the connector connects to the source."""

    def schema_change(self, feed: Feed, last_control: bytes) -> None:
        """Return None: each snapshot describes its own columns, and none is resumed without one."""

    def receiver(self, feed: Feed) -> Receiver:
        """Return a receiver for the feed. Opens nothing yet."""
        from silverfold.connectors.sqlitecloud.receiver.receiver import SqliteCloudReceiver  # noqa: PLC0415 - a build needs no sockets

        rng = Random()  # noqa: S311 - spreads waits and names a channel, not a secret
        return SqliteCloudReceiver(feed, rng=rng, clock=time.monotonic, environ=os.environ)

    def decoder(self, feed: Feed) -> Decoder:
        """Return the feed's decoder."""
        from silverfold.connectors.sqlitecloud.decoder.decoder import SqliteCloudDecoder  # noqa: PLC0415 - a receiver must not load Spark

        return SqliteCloudDecoder(feed)

    def reference(self, feed: Feed, table: str) -> ReferenceReader:
        """Return a reader of the landed frames of one table's stream."""
        from silverfold.connectors.sqlitecloud.reference.reader import SqliteCloudReferenceReader  # noqa: PLC0415 - only verify needs it

        settings = _settings(feed.tables[table])
        return SqliteCloudReferenceReader(settings.stream(table), settings, _options(feed))

    def subscribe(self, feed: Feed, table: str) -> AbstractContextManager[SourceSubscription]:
        """Return a subscription of its own to a table, open until the block ends. Raise SourceUnavailable."""
        from silverfold.connectors.sqlitecloud.reference.source_subscription import SqliteCloudSourceSubscription  # noqa: PLC0415 - only verify needs a client

        return SqliteCloudSourceSubscription(feed, table)

    def simulator(self) -> Callable[..., None]:
        """Return the command that runs the simulated source."""
        from silverfold.connectors.sqlitecloud.server.command import sqlitecloud  # noqa: PLC0415 - a feed needs no server

        return sqlitecloud


def _settings(table: Table) -> SqliteCloudTable:
    assert isinstance(table, SqliteCloudTable)
    return table


def _options(feed: Feed) -> SqliteCloudOptions:
    assert isinstance(feed.options, SqliteCloudOptions)
    return feed.options


CONNECTOR: Connector = SqliteCloudConnector()
"""The connector instance for the registry."""
