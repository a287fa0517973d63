"""The tengi connector: the tables that a source publishes as a change feed over tengi."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from random import Random

from silverfold.connectors.base import Connector, Decoder, Problem, address_problems
from silverfold.connectors.common.transport import Address
from silverfold.connectors.frames import Receiver
from silverfold.connectors.tengi.address import feed_transport, handshake_problems, parse_address
from silverfold.connectors.tengi.options import ROW_NUMBER, TengiFeed, TengiOptions, TengiTable
from silverfold.connectors.verification import ReferenceReader, SourceSubscription


class TengiConnector(Connector[TengiOptions, TengiTable]):
    """Lands the changes of a source's tables in the source's order, which the receiver restores.

    After a lost connection the source continues behind the last change that landed, or sends a snapshot.
    """

    name = "tengi"
    Options = TengiOptions
    TableOptions = TengiTable
    simulator_summary = "Publish files as tables over tengi, as a change feed, and keep them changing."
    continuity = "resume"
    control_adds_up = True
    row_number = ROW_NUMBER

    def has_snapshots(self, table: TengiTable) -> bool:
        """Return True: a table begins with one."""
        return True

    def stream(self, feed: TengiFeed, table: str) -> str:
        """Return the name of the table at the source."""
        return feed.tables[table].stream(table)

    def problems(self, feed: TengiFeed) -> Iterator[Problem]:
        """Yield problems beyond model validation: address and handshake. Raise ConfigError for a transport."""
        feed_transport(feed)
        yield from address_problems(feed, parse_address)
        yield from handshake_problems(feed)

    def listens_at(self, feed: TengiFeed) -> Address | None:
        """Return the address that sources connect to, in listen mode."""
        return parse_address(feed.address) if feed.options.mode == "listen" else None

    def receiver(self, feed: TengiFeed) -> Receiver:
        """Return a receiver for the feed. Opens nothing yet."""
        from silverfold.connectors.tengi.receiver.receiver import TengiReceiver

        rng = Random()  # noqa: S311 - spreads waits
        return TengiReceiver(feed, rng=rng, environ=os.environ)

    def decoder(self, feed: TengiFeed) -> Decoder[TengiTable]:
        """Return the feed's decoder."""
        from silverfold.connectors.tengi.decoder.decoder import TengiDecoder

        return TengiDecoder(feed)

    def reference(self, feed: TengiFeed, table: str) -> ReferenceReader:
        """Return a reader of the landed frames of one table's stream."""
        from silverfold.connectors.tengi.reference.reader import TengiReferenceReader

        settings = feed.tables[table]
        return TengiReferenceReader(settings.stream(table), settings, feed.options)

    def subscribe(self, feed: TengiFeed, table: str) -> AbstractContextManager[SourceSubscription]:
        """Return a subscription of its own to a table, from its beginning. Raise SourceUnavailable."""
        from silverfold.connectors.tengi.reference.source_subscription import TengiSourceSubscription

        return TengiSourceSubscription(feed, table)

    def simulator(self) -> Callable[..., None]:
        """Return the command that runs the simulated source."""
        from silverfold.connectors.tengi.server.command import tengi

        return tengi


CONNECTOR: Connector = TengiConnector()
"""The connector instance for the registry."""
