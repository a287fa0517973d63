"""The Deephaven connector, as the registry hands it out."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel

from conf.errors import SchemaError
from conf.model import Table
from connectors.base import Connector, Decoder, Feed, Keeps, PlainReader, Problem, Receiver, Watch
from connectors.deephaven.messages import SubscribeMode
from connectors.deephaven.options import DeephavenOptions, DeephavenTable
from connectors.deephaven.schemas import BUILTIN, load_roles
from connectors.transport import address_problems, parse_address

if TYPE_CHECKING:
    from connectors.deephaven.plain import PlainValues


@dataclass(frozen=True)
class DeephavenConnector:
    """See `connectors.base.Connector`. After a lost connection the transport offers nothing but a new snapshot."""

    name: str = "deephaven"
    Options: type[BaseModel] = DeephavenOptions
    TableOptions: type[Table] = DeephavenTable
    continuity: Literal["resync", "resume"] = "resync"
    net: bool = True
    partial: bool = True
    sequenced: bool = False

    def has_snapshots(self, table: Table) -> bool:
        """Tell whether the table's subscription begins with a snapshot."""
        assert isinstance(table, DeephavenTable)
        return table.mode is not SubscribeMode.UPDATES_ONLY

    def keeps(self, table: Table) -> Keeps:
        """Return whether silver is the table's state or a log of changes."""
        assert isinstance(table, DeephavenTable)
        return Keeps.CHANGES if table.keeps_log else Keeps.STATE

    def stream(self, feed: Feed, table: str) -> str:
        """Return the table's own name, for each is subscribed for itself; and source and filter, where no snapshot
        tells rows of one from those of another."""
        return _table(feed, table).stream(table)

    def row_settings(self, feed: Feed, table: str) -> Mapping[str, str | list[str]]:
        """Return those of the table's settings that say which rows it has."""
        return feed.tables[table].row_settings

    def problems(self, feed: Feed) -> Iterator[Problem]:
        """Yield what is wrong beyond the models: an address that is none, a schema that cannot be used."""
        yield from address_problems(feed, parse_address)
        schema = _options(feed).schema_
        try:
            load_roles(schema)
        except SchemaError as error:
            yield Problem("options.schema", schema, f"{BUILTIN}, or a schema of the transport: {error}")
        for name, table in feed.tables.items():
            if table.on_unexplained != "count":  # a net row does not say what it was made of
                yield Problem(f"tables.{name}.on_unexplained", table.on_unexplained, "count")

    def listens_at(self, feed: Feed) -> None:
        """Return nothing: it connects."""

    def changed(self, feed: Feed, told: bytes) -> None:
        """Return nothing: a table says what it has whenever it is subscribed, the settings do not."""

    def receiver(self, feed: Feed) -> Receiver:
        """Return a receiver for the feed. Opens nothing yet."""
        from connectors.deephaven.receiver import DeephavenReceiver  # noqa: PLC0415 - a build needs no sockets

        rng = Random()  # noqa: S311 - it spreads waits, it keeps no secret
        return DeephavenReceiver(feed, rng=rng, clock=time.monotonic)

    def decoder(self, feed: Feed) -> Decoder:
        """Return the feed's decoder."""
        from connectors.deephaven.decode import DeephavenDecoder  # noqa: PLC0415 - a receiver must not load Spark

        return DeephavenDecoder(feed)

    def plain(self, feed: Feed, table: str) -> PlainReader:
        """Return a reader of the landed frames of one table's stream."""
        from connectors.deephaven.plain import DeephavenPlainReader  # noqa: PLC0415 - only what verifies needs it

        options = _options(feed)
        stream = self.stream(feed, table)
        return DeephavenPlainReader(stream, _values(feed, table), load_roles(options.schema_, options.text))

    def watch(self, feed: Feed, table: str) -> AbstractContextManager[Watch]:
        """Subscribe to a table as its settings say, until the block ends. Raises SourceUnavailable."""
        from connectors.deephaven.watch import DeephavenWatch  # noqa: PLC0415 - only what verifies needs a client

        return DeephavenWatch(feed, _values(feed, table))


def _options(feed: Feed) -> DeephavenOptions:
    assert isinstance(feed.options, DeephavenOptions)
    return feed.options


def _table(feed: Feed, name: str) -> DeephavenTable:
    table = feed.tables[name]
    assert isinstance(table, DeephavenTable)
    return table


def _values(feed: Feed, table: str) -> PlainValues:
    from connectors.deephaven.plain import PlainValues  # noqa: PLC0415 - only what verifies needs it

    settings = _table(feed, table)
    return PlainValues(_options(feed), settings)


CONNECTOR: Connector = DeephavenConnector()
"""The one object of this folder."""
