"""The webhook connector: tables of a database, as far as their changes describe them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel

from silverfold.conf.errors import SourceRefused
from silverfold.conf.model import Table
from silverfold.connectors.base import Connector, Decoder, Feed, Problem, Receiver, TableKind
from silverfold.connectors.common.transport import Address, address_problems
from silverfold.connectors.sqlitecloud_webhooks.address import listening_address, table_at_source
from silverfold.connectors.sqlitecloud_webhooks.options import WebhookOptions, WebhookTable
from silverfold.connectors.verification import ReferenceReader, SourceSubscription


@dataclass(frozen=True)
class WebhookConnector:
    """See `connectors.base.Connector`. The source cannot be queried: a change that is not posted again is lost."""

    name: str = "sqlitecloud_webhooks"
    Options: type[BaseModel] = WebhookOptions
    TableOptions: type[Table] = WebhookTable
    continuity: Literal["resync", "resume"] = "resume"
    folds: bool = False
    has_partial_updates: bool = True
    source_ordered: bool = False
    packages: tuple[str, ...] = ("aiohttp",)
    simulator_summary: str = (
        "Post the changes of a made-up table of orders, one request each, as SQLite Cloud's webhooks would."
    )

    def has_snapshots(self, table: Table) -> bool:
        """Return False: no webhook describes a complete table."""
        return False

    def table_kind(self, table: Table) -> TableKind:
        """Return STATE: one row per key."""
        return TableKind.STATE

    def stream(self, feed: Feed, table: str) -> str:
        """Return the database's name, a slash, and the table's name."""
        return table_at_source(feed, table).stream

    def row_settings(self, feed: Feed, table: str) -> Mapping[str, str | list[str]]:
        """Return the settings that determine the table's rows."""
        return feed.tables[table].row_settings | _options(feed).row_settings

    def problems(self, feed: Feed) -> Iterator[Problem]:
        """Yield problems beyond model validation: the address."""
        yield from address_problems(feed, listening_address)

    def listens_at(self, feed: Feed) -> Address:
        """Return the address to which webhooks are posted."""
        return listening_address(feed.address)

    def schema_change(self, feed: Feed, last_control: bytes) -> None:
        """Return None: column types come from the settings."""

    def receiver(self, feed: Feed) -> Receiver:
        """Return a receiver for the feed. Opens nothing yet."""
        from silverfold.connectors.sqlitecloud_webhooks.receiver.receiver import WebhookReceiver  # noqa: PLC0415 - a build needs no sockets

        return WebhookReceiver(feed)

    def decoder(self, feed: Feed) -> Decoder:
        """Return the feed's decoder."""
        from silverfold.connectors.sqlitecloud_webhooks.decoder import WebhookDecoder  # noqa: PLC0415 - a receiver loads no Spark

        return WebhookDecoder(feed)

    def reference(self, feed: Feed, table: str) -> ReferenceReader:
        """Return a reader of the landed frames of one table's stream."""
        from silverfold.connectors.sqlitecloud_webhooks.reference import WebhookReferenceReader  # noqa: PLC0415 - for verify

        settings = feed.tables[table]
        assert isinstance(settings, WebhookTable)
        return WebhookReferenceReader(self.stream(feed, table), settings, _options(feed))

    def subscribe(self, feed: Feed, table: str) -> AbstractContextManager[SourceSubscription]:
        """Raise SourceRefused: webhooks report changes, never the current rows."""
        raise SourceRefused(code="no-snapshot", text="nobody can be asked by webhooks for what there is")

    def simulator(self) -> Callable[..., None]:
        """Return the command that runs the simulated source."""
        from silverfold.connectors.sqlitecloud_webhooks.server.command import webhooks  # noqa: PLC0415 - a feed needs no server

        return webhooks


def _options(feed: Feed) -> WebhookOptions:
    assert isinstance(feed.options, WebhookOptions)
    return feed.options


CONNECTOR: Connector = WebhookConnector()
"""The connector instance for the registry."""
