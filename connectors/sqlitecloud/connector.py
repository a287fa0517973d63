"""The SQLite Cloud connector, as the registry hands it out: the tables of a database, and its channels."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from random import Random
from typing import Literal

from pydantic import BaseModel

from conf.model import Table
from connectors.base import Connector, Decoder, Feed, Problem, Receiver, ReferenceReader, SourceSubscription, TableKind
from connectors.sqlitecloud.address import address_problems
from connectors.sqlitecloud.options import SqliteCloudOptions, SqliteCloudTable


@dataclass(frozen=True)
class SqliteCloudConnector:
    """See `connectors.base.Connector`. The source has no positions: after a lost connection only a snapshot helps."""

    name: str = "sqlitecloud"
    Options: type[BaseModel] = SqliteCloudOptions
    TableOptions: type[Table] = SqliteCloudTable
    continuity: Literal["resync", "resume"] = "resync"
    folds: bool = False
    has_partial_updates: bool = True
    source_ordered: bool = False

    def has_snapshots(self, table: Table) -> bool:
        """Tell whether it has a table's rows. A channel, and a log, tell only what is said while somebody listens."""
        return not _settings(table).only_adds

    def table_kind(self, table: Table) -> TableKind:
        """Return whether silver has the rows that stand, or each message or change that came."""
        return TableKind.APPEND if _settings(table).only_adds else TableKind.STATE

    def stream(self, feed: Feed, table: str) -> str:
        """Return the source table's name, behind ``log:`` for its log; or ``notify:`` and the channel's."""
        return _settings(feed.tables[table]).stream(table)

    def row_settings(self, feed: Feed, table: str) -> Mapping[str, str | list[str]]:
        """Return those of the settings that say which rows the table has; of messages and logs none does."""
        settings = _settings(feed.tables[table])
        return settings.row_settings if settings.only_adds else settings.row_settings | _options(feed).row_settings

    def problems(self, feed: Feed) -> Iterator[Problem]:
        """Yield what is wrong beyond the models: the address, keys that cannot be those of a stream."""
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
        """Return nothing: it connects."""

    def schema_change(self, feed: Feed, last_control: bytes) -> None:
        """Return nothing: each snapshot says of what columns it is, and nothing is resumed without one."""

    def receiver(self, feed: Feed) -> Receiver:
        """Return a receiver for the feed. Opens nothing yet."""
        from connectors.sqlitecloud.receiver import SqliteCloudReceiver  # noqa: PLC0415 - a build needs no sockets

        rng = Random()  # noqa: S311 - it spreads waits and names a channel, it keeps no secret
        return SqliteCloudReceiver(feed, rng=rng, clock=time.monotonic, environ=os.environ)

    def decoder(self, feed: Feed) -> Decoder:
        """Return the feed's decoder."""
        from connectors.sqlitecloud.decode import SqliteCloudDecoder  # noqa: PLC0415 - a receiver must not load Spark

        return SqliteCloudDecoder(feed)

    def reference(self, feed: Feed, table: str) -> ReferenceReader:
        """Return a reader of the landed frames of one table's stream."""
        from connectors.sqlitecloud.reference import SqliteCloudReferenceReader  # noqa: PLC0415 - only what verifies needs it

        settings = _settings(feed.tables[table])
        return SqliteCloudReferenceReader(settings.stream(table), settings, _options(feed))

    def subscribe(self, feed: Feed, table: str) -> AbstractContextManager[SourceSubscription]:
        """Subscribe to a table beside the receiver, until the block ends. Raises SourceUnavailable."""
        from connectors.sqlitecloud.source_subscription import SqliteCloudSourceSubscription  # noqa: PLC0415 - only what verifies needs a client

        return SqliteCloudSourceSubscription(feed, table)


def _settings(table: Table) -> SqliteCloudTable:
    assert isinstance(table, SqliteCloudTable)
    return table


def _options(feed: Feed) -> SqliteCloudOptions:
    assert isinstance(feed.options, SqliteCloudOptions)
    return feed.options


CONNECTOR: Connector = SqliteCloudConnector()
"""The one object of this folder."""
