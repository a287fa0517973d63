"""The webhook connector, as the registry hands it out: tables of a database, as far as their changes tell them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel

from conf.errors import SourceRefused
from conf.model import Table
from connectors.base import Connector, Decoder, Feed, Problem, Receiver, ReferenceReader, SourceSubscription, TableKind
from connectors.sqlitecloud_webhooks.address import listening_address, table_at_source
from connectors.sqlitecloud_webhooks.options import WebhookOptions, WebhookTable
from connectors.transport import Address, address_problems


@dataclass(frozen=True)
class WebhookConnector:
    """See `connectors.base.Connector`. Nothing can be asked of the source: what is not posted again is lost."""

    name: str = "sqlitecloud_webhooks"
    Options: type[BaseModel] = WebhookOptions
    TableOptions: type[Table] = WebhookTable
    continuity: Literal["resync", "resume"] = "resume"
    folds: bool = False
    has_partial_updates: bool = True
    source_ordered: bool = False

    def has_snapshots(self, table: Table) -> bool:
        """Tell that no webhook says all there is."""
        return False

    def table_kind(self, table: Table) -> TableKind:
        """Return that rows of the table's keys are kept."""
        return TableKind.STATE

    def stream(self, feed: Feed, table: str) -> str:
        """Return the database's name, a slash, and the table's."""
        return table_at_source(feed, table).stream

    def row_settings(self, feed: Feed, table: str) -> Mapping[str, str | list[str]]:
        """Return those of the settings that say which rows the table has."""
        return feed.tables[table].row_settings | _options(feed).row_settings

    def problems(self, feed: Feed) -> Iterator[Problem]:
        """Yield what is wrong beyond the models: the address."""
        yield from address_problems(feed, listening_address)

    def listens_at(self, feed: Feed) -> Address:
        """Return where webhooks are to be posted."""
        return listening_address(feed.address)

    def schema_change(self, feed: Feed, last_control: bytes) -> None:
        """Return nothing: columns and their types are what the settings say."""

    def receiver(self, feed: Feed) -> Receiver:
        """Return a receiver for the feed. Opens nothing yet."""
        from connectors.sqlitecloud_webhooks.receiver import WebhookReceiver  # noqa: PLC0415 - a build needs no sockets

        return WebhookReceiver(feed)

    def decoder(self, feed: Feed) -> Decoder:
        """Return the feed's decoder."""
        from connectors.sqlitecloud_webhooks.decode import WebhookDecoder  # noqa: PLC0415 - a receiver loads no Spark

        return WebhookDecoder(feed)

    def reference(self, feed: Feed, table: str) -> ReferenceReader:
        """Return a reader of the landed frames of one table's stream."""
        from connectors.sqlitecloud_webhooks.reference import WebhookReferenceReader  # noqa: PLC0415 - only verifying needs it

        settings = feed.tables[table]
        assert isinstance(settings, WebhookTable)
        return WebhookReferenceReader(self.stream(feed, table), settings, _options(feed))

    def subscribe(self, feed: Feed, table: str) -> AbstractContextManager[SourceSubscription]:
        """Refuse: webhooks say what happens, never what is. Raises SourceRefused."""
        raise SourceRefused(code="no-snapshot", text="nobody can be asked by webhooks for what there is")


def _options(feed: Feed) -> WebhookOptions:
    assert isinstance(feed.options, WebhookOptions)
    return feed.options


CONNECTOR: Connector = WebhookConnector()
"""The one object of this folder."""
