"""The Deephaven connector object, as the registry returns it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel

from silverfold.conf.errors import SchemaError
from silverfold.conf.model import Table
from silverfold.connectors.base import Connector, Decoder, Feed, Problem, Receiver, TableKind
from silverfold.connectors.common.transport import address_problems, parse_address
from silverfold.connectors.deephaven.options import DeephavenOptions, DeephavenTable
from silverfold.connectors.deephaven.protocol.messages import SubscribeMode
from silverfold.connectors.deephaven.protocol.schemas import BUILTIN, load_roles
from silverfold.connectors.verification import ReferenceReader, SourceSubscription

if TYPE_CHECKING:
    from silverfold.connectors.deephaven.reference import ReferenceValues


@dataclass(frozen=True)
class DeephavenConnector:
    """Implements `connectors.base.Connector`. After a lost connection the transport offers only a new snapshot."""

    name: str = "deephaven"
    Options: type[BaseModel] = DeephavenOptions
    TableOptions: type[Table] = DeephavenTable
    continuity: Literal["resync", "resume"] = "resync"
    folds: bool = True
    has_partial_updates: bool = True
    source_ordered: bool = False
    packages: tuple[str, ...] = ()
    simulator_summary: str = "Serve files as live tables over Deephaven's SBE transport."

    def has_snapshots(self, table: Table) -> bool:
        """Return whether the table's subscription begins with a snapshot."""
        assert isinstance(table, DeephavenTable)
        return table.mode is not SubscribeMode.UPDATES_ONLY

    def table_kind(self, table: Table) -> TableKind:
        """Return whether silver is the table's state or a changelog."""
        assert isinstance(table, DeephavenTable)
        return TableKind.CHANGELOG if table.keeps_log else TableKind.STATE

    def stream(self, feed: Feed, table: str) -> str:
        """Return the table's stream, named after the table: each table is subscribed separately.

        With updates only, the name includes source and filter: no snapshot separates rows of one from those of another.
        """
        return _table(feed, table).stream(table)

    def row_settings(self, feed: Feed, table: str) -> Mapping[str, str | list[str]]:
        """Return the table's settings that determine which rows it has."""
        return feed.tables[table].row_settings

    def problems(self, feed: Feed) -> Iterator[Problem]:
        """Yield problems beyond the models' checks: an invalid address, an unusable schema, an unsupported setting."""
        yield from address_problems(feed, parse_address)
        schema = _options(feed).schema_
        try:
            load_roles(schema)
        except SchemaError as error:
            yield Problem("options.schema", schema, f"{BUILTIN}, or a schema of the transport: {error}")
        for name, table in feed.tables.items():
            if table.on_unexplained != "count":  # a net change does not show the changes folded into it
                yield Problem(f"tables.{name}.on_unexplained", table.on_unexplained, "count")

    def listens_at(self, feed: Feed) -> None:
        """Return None: this connector connects to the source."""

    def schema_change(self, feed: Feed, last_control: bytes) -> None:
        """Return None: columns come with each subscribe response, not from the settings."""

    def receiver(self, feed: Feed) -> Receiver:
        """Return a receiver for the feed. Opens nothing yet."""
        from silverfold.connectors.deephaven.receiver.receiver import DeephavenReceiver  # noqa: PLC0415 - a build needs no sockets

        rng = Random()  # noqa: S311 - randomises waits, guards no secret
        return DeephavenReceiver(feed, rng=rng, clock=time.monotonic)

    def decoder(self, feed: Feed) -> Decoder:
        """Return the feed's decoder."""
        from silverfold.connectors.deephaven.decoder.decoder import DeephavenDecoder  # noqa: PLC0415 - a receiver must not load Spark

        return DeephavenDecoder(feed)

    def reference(self, feed: Feed, table: str) -> ReferenceReader:
        """Return a reader of the landed frames of one table's stream."""
        from silverfold.connectors.deephaven.reference import DeephavenReferenceReader  # noqa: PLC0415 - only verify needs it

        options = _options(feed)
        stream = self.stream(feed, table)
        return DeephavenReferenceReader(stream, _values(feed, table), load_roles(options.schema_, options.text))

    def subscribe(self, feed: Feed, table: str) -> AbstractContextManager[SourceSubscription]:
        """Subscribe to a table according to its settings, until the block ends. Raises SourceUnavailable."""
        from silverfold.connectors.deephaven.reference import DeephavenSourceSubscription  # noqa: PLC0415 - for verify

        return DeephavenSourceSubscription(feed, _values(feed, table))

    def simulator(self) -> Callable[..., None]:
        """Return the command that runs the simulated source."""
        from silverfold.connectors.deephaven.server.command import deephaven  # noqa: PLC0415 - a feed needs no server

        return deephaven


def _options(feed: Feed) -> DeephavenOptions:
    assert isinstance(feed.options, DeephavenOptions)
    return feed.options


def _table(feed: Feed, name: str) -> DeephavenTable:
    table = feed.tables[name]
    assert isinstance(table, DeephavenTable)
    return table


def _values(feed: Feed, table: str) -> ReferenceValues:
    from silverfold.connectors.deephaven.reference import ReferenceValues  # noqa: PLC0415 - only verify needs it

    settings = _table(feed, table)
    return ReferenceValues(_options(feed), settings)


CONNECTOR: Connector = DeephavenConnector()
"""The connector instance for the registry."""
