"""The webhook connector: tables of a database, as far as their changes describe them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from silverfold.connectors.base import Connector, Decoder, Problem, address_problems
from silverfold.connectors.common.transport import Address
from silverfold.connectors.frames import Receiver
from silverfold.connectors.sqlitecloud_webhooks.address import listening_address, table_at_source
from silverfold.connectors.sqlitecloud_webhooks.options import WebhookFeed, WebhookOptions, WebhookTable
from silverfold.connectors.verification import ReferenceReader


class WebhookConnector(Connector[WebhookOptions, WebhookTable]):
    """Lands posted changes. The source cannot be queried: a change that is not posted again is lost.

    No webhook describes a complete table.
    """

    name = "sqlitecloud_webhooks"
    Options = WebhookOptions
    TableOptions = WebhookTable
    simulator_summary = (
        "Post the changes of a made-up table of orders, one request each, as SQLite Cloud's webhooks would."
    )
    continuity = "resume"
    control_adds_up = True
    packages = ("aiohttp",)

    def stream(self, feed: WebhookFeed, table: str) -> str:
        """Return the database's name, a slash, and the table's name."""
        return table_at_source(feed, table).stream

    def row_settings(self, feed: WebhookFeed, table: str) -> Mapping[str, str | list[str]]:
        """Return the settings that determine the table's rows."""
        return feed.tables[table].row_settings | feed.options.row_settings

    def problems(self, feed: WebhookFeed) -> Iterator[Problem]:
        """Yield problems beyond model validation: the address."""
        yield from address_problems(feed, listening_address)

    def listens_at(self, feed: WebhookFeed) -> Address:
        """Return the address to which webhooks are posted."""
        return listening_address(feed.address)

    def receiver(self, feed: WebhookFeed) -> Receiver:
        """Return a receiver for the feed. Opens nothing yet."""
        from silverfold.connectors.sqlitecloud_webhooks.receiver.receiver import WebhookReceiver

        return WebhookReceiver(feed)

    def decoder(self, feed: WebhookFeed) -> Decoder[WebhookTable]:
        """Return the feed's decoder."""
        from silverfold.connectors.sqlitecloud_webhooks.decoder import WebhookDecoder

        return WebhookDecoder(feed)

    def reference(self, feed: WebhookFeed, table: str) -> ReferenceReader:
        """Return a reader of the landed frames of one table's stream."""
        from silverfold.connectors.sqlitecloud_webhooks.reference import WebhookReferenceReader

        return WebhookReferenceReader(self.stream(feed, table), feed.tables[table], feed.options)

    def simulator(self) -> Callable[..., None]:
        """Return the command that runs the simulated source."""
        from silverfold.connectors.sqlitecloud_webhooks.server.command import webhooks

        return webhooks


CONNECTOR: Connector = WebhookConnector()
"""The connector instance for the registry."""
