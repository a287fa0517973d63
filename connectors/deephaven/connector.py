"""The Deephaven connector object, as the registry returns it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from random import Random

from silverfold.conf.errors import SchemaError
from silverfold.connectors.base import Connector, Decoder, Problem, TableKind, address_problems
from silverfold.connectors.common.transport import parse_address
from silverfold.connectors.deephaven.options import DeephavenFeed, DeephavenOptions, DeephavenTable
from silverfold.connectors.deephaven.protocol.messages import SubscribeMode
from silverfold.connectors.deephaven.protocol.schemas import BUILTIN, load_roles
from silverfold.connectors.frames import Receiver
from silverfold.connectors.verification import ReferenceReader, SourceSubscription


class DeephavenConnector(Connector[DeephavenOptions, DeephavenTable]):
    """Lands and folds live tables. After a lost connection the transport offers only a new snapshot."""

    name = "deephaven"
    Options = DeephavenOptions
    TableOptions = DeephavenTable
    simulator_summary = "Serve files as live tables over Deephaven's SBE transport."
    continuity = "resync"
    folds = True

    def has_snapshots(self, table: DeephavenTable) -> bool:
        """Return whether the table's subscription begins with a snapshot."""
        return table.mode is not SubscribeMode.UPDATES_ONLY

    def table_kind(self, table: DeephavenTable) -> TableKind:
        """Return whether silver is the table's state or a changelog."""
        return TableKind.CHANGELOG if table.keeps_log else TableKind.STATE

    def stream(self, feed: DeephavenFeed, table: str) -> str:
        """Return the table's stream, named after the table: each table is subscribed separately.

        With updates only, the name includes source and filter: no snapshot separates rows of one from those of another.
        """
        return feed.tables[table].stream(table)

    def problems(self, feed: DeephavenFeed) -> Iterator[Problem]:
        """Yield problems beyond the models' checks: an invalid address, an unusable schema, an unsupported setting."""
        yield from address_problems(feed, parse_address)
        schema = feed.options.schema_
        try:
            load_roles(schema)
        except SchemaError as error:
            yield Problem("options.schema", schema, f"{BUILTIN}, or a schema of the transport: {error}")
        for name, table in feed.tables.items():
            if table.on_unexplained != "count":  # a net change does not show the changes folded into it
                yield Problem(f"tables.{name}.on_unexplained", table.on_unexplained, "count")

    def receiver(self, feed: DeephavenFeed) -> Receiver:
        """Return a receiver for the feed. Opens nothing yet."""
        from silverfold.connectors.deephaven.receiver.receiver import DeephavenReceiver

        rng = Random()  # noqa: S311 - randomises waits, guards no secret
        return DeephavenReceiver(feed, rng=rng, clock=time.monotonic)

    def decoder(self, feed: DeephavenFeed) -> Decoder[DeephavenTable]:
        """Return the feed's decoder."""
        from silverfold.connectors.deephaven.decoder.decoder import DeephavenDecoder

        return DeephavenDecoder(feed)

    def reference(self, feed: DeephavenFeed, table: str) -> ReferenceReader:
        """Return a reader of the landed frames of one table's stream."""
        from silverfold.connectors.deephaven.reference import DeephavenReferenceReader, ReferenceValues

        settings, options = feed.tables[table], feed.options
        values, roles = ReferenceValues(options, settings), load_roles(options.schema_, options.text)
        return DeephavenReferenceReader(settings.stream(table), values, roles)

    def subscribe(self, feed: DeephavenFeed, table: str) -> AbstractContextManager[SourceSubscription]:
        """Subscribe to a table according to its settings, until the block ends. Raises SourceUnavailable."""
        from silverfold.connectors.deephaven.reference import DeephavenSourceSubscription

        return DeephavenSourceSubscription(feed, table)

    def simulator(self) -> Callable[..., None]:
        """Return the command that runs the simulated source."""
        from silverfold.connectors.deephaven.server.command import deephaven

        return deephaven


CONNECTOR: Connector = DeephavenConnector()
"""The connector instance for the registry."""
